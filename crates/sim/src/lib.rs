//! The sim.
