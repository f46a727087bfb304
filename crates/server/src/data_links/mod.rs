//! Data between servers, and between gateways and servers, on the data threads.
//!
//! ```text
//! asker    any data thread: Links::ask -> Line -> Outbox --- at the end of the thread's turn ---> socket
//!          owner's thread:  whoever waits <- Line <- Inbox <------------------------------------- socket
//! answerer Port (hello) -> Reception: Visitors -> a data thread: Visit { Inbox -> Answering, many at once -> Outbox }
//! ```
//!
//! Guarantees:
//! 1. What is asked of one server in one [`Lane`] arrives there in the order of the calls, from whatever threads.
//! 2. It's carried out at most once, through any number of connections: by the session of [`tepal_wire::session`].
//! 3. It's answered, or it's unreachable: the server is down as agreed ([`Links::set_down`]), or was started again after it was
//!    sent, or the links are stopped; or it's about drives, and nothing is heard of the server for so long that it would have been
//!    declared down if it were (`vigil.rs`).
//! 4. What a peer makes this server hold is bounded: by what its session was granted, one payload, and the number of sessions.
//!    What has no room in the window waits in line on the asker's side.
//!
//! A lane is one connection, so that order costs nothing. It costs that a lane's receiving is one thread's work on each
//! side, and an answer for another thread a wake-up of it; sending is the work of the thread that asks.

mod answers;
mod departures;
mod lane;
mod line;
mod link;
mod links;
mod reception;
#[cfg(test)]
mod tests;
mod vigil;
mod visit;

pub use answers::EngineAnswers;
pub use lane::Lane;
pub use links::Links;
pub use reception::{Answering, Reception};
