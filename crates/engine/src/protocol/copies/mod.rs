//! Whole copies of blocks: writing all of them, reading one, and making them equal. Which members have copies of a region, the
//! [column](crate::map::Column::keepers) says: with [`primary`](super::primary) all of them, with [`owner`](super::owner) those that keep
//! the region's log.

mod clear;
mod fate;
mod read;
pub(in crate::protocol) mod recover;
mod status;
pub(in crate::protocol) mod write;

pub(in crate::protocol) use fate::untold;
