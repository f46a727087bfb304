//! An NBD client that never gives up, unless it's told when to: what was asked of it is answered by the volume, however often the
//! server goes away in between.
//!
//! Specification: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>, fixed newstyle, GO, structured
//! replies where the server has them.
//!
//! Invariants:
//! 1. A request is kept, with its data, until the server's complete answer to it is in. A new connection gets every kept
//!    request again, oldest first; nothing else is ever sent twice.
//! 2. An answer is taken only from the connection that is current. Whatever an older one left half told is forgotten.
//! 3. The client never hangs up on a server that could still act on what it was sent. Only the end of the connection
//!    (or keepalive, when the server's machine is gone) makes it connect again. If it hung up by a timer, a slow server
//!    could apply an old write from the old connection after a newer write to the same place came by the new one.
//!    What `give_up` fails was perhaps sent there, and may still be done: so no request follows until that server has hung up.
//! 4. A volume that comes back smaller, read-only or without a command it had before isn't used: its requests wait.
//!
//! Why it's right to resend only what is unanswered. Writes that are in flight at the same time don't overlap, since the
//! kernel's page cache locks what it writes (and an application that writes one block twice at once, past the cache, has
//! asked for either order), so sending them again in any order gives the same bytes, as does a write that was already
//! done before the connection broke: the same data go to the same place. A write that was answered is the server's to
//! keep: with `durability=strict` it's on stable media; with `durability=flush` it survives the crash of any process, and
//! what a loss of power takes from a server before a flush is what any disk with a write cache may lose.

pub mod client;
mod give_up;
pub mod handshake;
mod inbox;
pub mod range;
mod receive;
pub mod socket;
mod tls;
pub mod wire;

#[cfg(test)]
pub mod fake_server;
#[cfg(test)]
mod tests;

pub use handshake::{Described, Export, HandshakeError};
pub use socket::{NbdAddress, secured};
pub use tls::TlsStream;
pub use wire::{Flags, Operation};
