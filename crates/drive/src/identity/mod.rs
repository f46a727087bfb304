//! What is on a drive besides data: who it is, and the state of the cluster that it belongs to.

pub mod label;
pub mod state_copy;
