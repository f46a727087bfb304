//! Clusters whose data folders are all lost, rebuilt from what their drives keep.

mod given_up;
mod halfway;
mod one_server;
mod pasts;
mod refused;
mod several;
