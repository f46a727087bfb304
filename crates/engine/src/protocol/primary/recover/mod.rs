//! Making copies equal: those of a region, or one damaged block.

mod copy;
mod equalise;
mod repair;
mod without_room;
