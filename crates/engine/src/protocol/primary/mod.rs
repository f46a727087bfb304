//! The primary protocol (Petal 2.4): `stripe`, `mirror:N` and what else keeps whole copies.
//!
//! Here one server holds all copies, and is their primary. Invariants:
//! 1. Writes that overlap go to all copies in one order (`order.rs`).
//! 2. A region's busy mark is in a copy's log no later than the first data that the mark is about. After a crash the union
//!    of all marks names every region whose copies may differ.
//! 3. A write is acknowledged when every copy that is here has it, at least `min_copies` of them clean; and for each copy
//!    that isn't here, those that took the write say on stable storage that it's stale. That a copy isn't here was
//!    agreed before.
//! 4. A read is answered from a clean copy, and only when no write that it met is still under way: what it returns, every
//!    copy has.
//! 5. In a region whose copies may differ, the first clean copy decides, before anything is read from there.

pub mod read;
pub mod recover;
#[cfg(test)]
mod tests;
pub mod write;
