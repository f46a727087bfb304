//! Snapshots as users see them: kept while their volume changes, read through any server or gateway, rolled back to, compared,
//! cloned, and carried elsewhere.

mod attached;
mod clones;
mod commands;
mod cut;
mod exports;
mod many;
mod rotten;
mod rounds;
mod space;
mod transfer;

/// NBD's number of "operation not permitted".
const NOT_PERMITTED: u32 = 1;
