//! The NBD front-end: any NBD client uses a volume as its disk. What is supported stands in `README.md` beside this file.
//!
//! ```text
//! listener -> admission -> negotiate (-> line: TLS -> negotiate) -> transmit { inbox -> request -> in_flight(execute) -> reply -> outbox }
//! ```
//!
//! Each connection is one task on one thread and shares nothing with others but its [`Admission`].

pub mod address;
mod admission;
mod attention;
mod connection;
mod execute;
mod in_flight;
mod inbox;
mod limits;
mod line;
mod listener;
mod negotiate;
mod option;
mod outbox;
mod reply;
mod request;
mod stop;
mod surplus;
mod transmit;
pub mod wire;

#[cfg(test)]
mod tests;

pub use admission::{Admission, Permit};
pub use connection::{ConnectionError, Stream, has_hung_up, serve_accepted, serve_connection};
pub use in_flight::InFlight;
pub use limits::Limits;
pub use line::{Line, Protection, TlsSource};
pub use listener::{Accepted, BindError, Endpoint, EndpointError, Listener, accept_connections};
pub use negotiate::HandshakeError;
pub use stop::{Stop, Stopper, stop_signal};
pub use surplus::Surplus;
pub use transmit::{End, TransmissionError};
