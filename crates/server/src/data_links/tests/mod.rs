mod askers;
mod callers;
mod cuts;
mod lines;
mod rig;
mod silence;
mod speed;
