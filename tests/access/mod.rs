//! Who may do what: certificates, TLS and rights, with QEMU's and libnbd's clients.

mod attached;
mod authorities;
mod client;
mod gateways;
mod limits;
mod network;
mod pools;
mod reservations;
mod rights;
mod several_servers;
mod strangers;
