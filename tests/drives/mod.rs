//! Drives: pulled and returned, damaged, refused, added and removed, of every kind that a machine has.

mod damaged;
mod emulated;
mod health;
mod kinds;
mod members;
mod pulled;
mod refused;
