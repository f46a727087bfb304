//! The consistency protocols, one folder each, with the same files.

pub mod primary;
