//! Drives: pulled and returned, damaged, refused, added and removed, of every kind that a machine has.

mod damaged;
mod dark;
mod emulated;
mod failing;
mod given_up;
mod growing;
mod health;
mod kinds;
mod members;
mod pulled;
mod refused;
mod thin;
mod wiped;
