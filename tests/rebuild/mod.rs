//! Clusters whose data folders are all lost, rebuilt from what their drives keep.

mod one_server;
mod refused;
mod several;
