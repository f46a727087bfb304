//! Where the copies of an extent go: pure functions, the same on every machine.
//!
//! [`choose()`] picks and orders the drives of a new volume's global map; [`Rotation`] says where the copies of an extent are
//! in such an order; [`domain()`] says what the copies of a map really don't share. How the order is found is in
//! `dealing.rs` (one that keeps the rules) and `spread.rs` (one that is also even when a server fails).
//!
//! A [`Table`] says it column by column, so that any copy can go to another drive: [`allot`] makes one for a new map, [`moves`]
//! says what to change when drives come and go. [`Geometry`] is how extents go round the columns then.
//!
//! [`explicit`] is for volumes that say themselves which drives have what: Vinum's plexes.
//!
//! [`Scatter`] is the order in which a volume's chunks go from one map to another.
//!
//! [`Share`] is for pools of unequal drives: it says for each extent which drives hold it, in proportion to their capacities.
//! `share/mod.rs` tells how, `share/circle.rs` how drives are met, `share/weights.rs` how often.

#![warn(missing_docs)]

mod choose;
#[cfg(test)]
mod choose_tests;
mod dealing;
mod domain;
mod geometry;
#[cfg(test)]
mod offload_tests;
mod plexes;
mod rotation;
mod scatter;
mod share;
mod spread;
mod table;

pub use choose::{Candidate, ChooseError, Chosen, choose};
pub use domain::{Place, domain};
pub use geometry::Geometry;
pub use plexes::{ColumnSubdisks, explicit, subdisks_of_columns};
pub use rotation::Rotation;
pub use scatter::Scatter;
pub use share::{Holders, Scale, Share, ShareError};
pub use table::{ColumnHolders, Move, Table, allot, moves, rotate};
