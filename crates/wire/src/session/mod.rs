//! Sessions: each request of a client is carried out at most once by a server, and answered in the end, through any number of
//! connections. One session is one lane of one client at one server.
//!
//! A request has an id, higher than any before it, and a slot, which it has to itself until it's answered: so a server needs
//! to remember one request for each slot, whatever the order in which they are answered, and one that waits for long is in
//! nobody's way. (NFS 4.1 has such slots: RFC 8881, section 2.10.6.) What the client acknowledges by using a slot again
//! is forgotten.
//!
//! Each connection of a session has a higher epoch. The client sends again on it, in order, all that isn't answered; the server
//! answers what it has done from memory, goes on with what is under way, and hears nothing of older connections any more.
//! Answers name the epoch of the connection that they are sent on, and the client heeds those of the newest only.
//!
//! The window is the granted slots and bytes: what requests cost that aren't answered, as both sides count it by [`cost`].
//! One request is always let in, however long.
//!
//! A server that has been started again remembers nothing, and says so in its welcome. What is sent again to it may have
//! been carried out before: the frame says so ([`crate::Header::in_doubt`]), and so must those be marked that are sent
//! to another server instead.

pub mod client;
pub mod server;

#[cfg(test)]
mod tests;

pub use client::{Client, Full, ToSend};
pub use server::{Admission, Arrival, Finished, Pass, Visitors};

/// What each request costs besides its data.
const OVERHEAD: u64 = 256;

/// What a request takes of the window: the bytes of data that it brings, and those that its answer will.
pub fn cost(brought: u64, wanted: u64) -> u64 {
    OVERHEAD + brought + wanted
}
