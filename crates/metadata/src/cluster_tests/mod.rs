//! Whole clusters in one process, over a transport that loses, delays and cuts.

mod faults;
mod folders;
mod given_up;
mod growth;
mod rebuilt;
mod rig;
mod schedules;
