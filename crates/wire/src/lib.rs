//! What gateways and servers say to each other (docs/ARCHITECTURE.md): frames, messages, handshake and sessions. Everything is
//! bytes in, decisions out: no sockets, clocks or randomness, so the simulator runs this very code over a network of its own.
//!
//! ```text
//! caller                                                     server
//! Calling, session::Client                                   Host, session::Visitors
//!    | Request + Payload                                        ^ Request + Payload
//!    v                                                          |
//! Outbox --- slices(), sent() ---> network --- spaces(), received() ---> Inbox
//! ```
//!
//! - [`frame`] is the header of fixed size, with a CRC of its own: a length is believed only after that matched.
//! - [`Payload`] is data where it lies, with the CRC of each block that was computed where the data entered.
//! - [`Inbox`] takes a stream of bytes apart and [`Outbox`] gathers many frames into one write. A bad frame ends the
//!   connection: nobody looks for the next one behind it.
//! - [`handshake`] comes first on each connection. It refuses other clusters, versions and strangers, with the reason.
//! - [`message`] has every request and its answer as types.
//! - [`session`] carries out each request at most once, and keeps it until it's answered, through any number of
//!   connections.
//!
//! The byte tables are in docs/formats.md.

#![warn(missing_docs)]

pub mod field;
pub mod frame;
pub mod handshake;
pub mod inbox;
pub mod message;
pub mod outbox;
pub mod payload;
pub mod session;

pub use field::MessageError;
pub use frame::{FrameError, Header, Kind, Limits};
pub use inbox::{Frame, Inbox};
pub use outbox::Outbox;
pub use payload::Payload;
