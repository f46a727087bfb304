//! Who may do what: certificates, TLS and rights, with QEMU's and libnbd's clients.

mod attached;
mod client;
mod limits;
mod network;
mod reservations;
mod rights;
mod several_servers;
mod strangers;
