//! Who may do what: certificates, TLS and rights, with QEMU's and libnbd's clients.

mod attached;
mod client;
mod network;
mod rights;
mod strangers;
mod reservations;
mod several_servers;
