//! Making copies equal: the copies of a region, or of one damaged block.

mod copy;
mod equalise;
mod repair;
mod without_room;

pub(in crate::protocol) use copy::{Copy, Line, Saying, ZEROS, taken_by_both};
