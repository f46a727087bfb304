//! What of a server other machines reach, and how that is protected.

use super::{Config, ConfigError, tcp};
use crate::access::is_machine_name;
use std::net::IpAddr;
use tepal_gateway::nbd::{Endpoint, Protection, TlsSource};
use tepal_model::text::shown;

/// What was said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privacy {
    /// Other machines may reach the server without encryption.
    pub insecure: bool,
    /// Clients need TLS on loopback too.
    pub require_tls: bool,
    /// Further names and addresses by which clients find the server.
    pub names: Vec<String>,
    /// Other machines do reach something of it without encryption.
    pub is_open: bool,
}

impl Privacy {
    pub(super) fn new(insecure: bool, require_tls: bool, names: Vec<String>) -> Result<Self, ConfigError> {
        match names.iter().find(|name| !is_machine_name(name)) {
            Some(name) => Err(ConfigError::MachineName(shown(name))),
            None => Ok(Privacy { insecure, require_tls, names, is_open: false }),
        }
    }

    /// Whether whoever comes to this address needs TLS. Who reaches a unix socket or loopback, the system decides.
    pub fn requires_tls(&self, address: &Endpoint) -> bool {
        tcp(address).is_some_and(|address| self.requires_tls_of(address.ip().is_loopback()))
    }

    /// The same of a TCP address, which is of loopback or not.
    pub fn requires_tls_of(&self, is_loopback: bool) -> bool {
        if is_loopback { self.require_tls } else { !self.insecure }
    }
}

impl Config {
    /// How connections to an address are protected.
    pub fn protection_of(&self, address: &Endpoint, tls: TlsSource) -> Protection {
        Protection { tls: Some(tls), is_required: self.privacy.requires_tls(address) }
    }

    /// Whether somebody needs TLS to reach this server.
    pub fn wants_tls(&self) -> bool {
        let api = self.privacy.requires_tls_of(self.api.ip().is_loopback());
        api || self.listen.iter().chain(&self.peers).any(|address| self.privacy.requires_tls(address))
    }

    /// Whether other machines reach something of it without encryption.
    pub(super) fn is_open(&self) -> bool {
        let mut addresses = self.listen.iter().chain(&self.peers).filter_map(tcp).chain([self.api]);
        self.privacy.insecure && addresses.any(|address| !address.ip().is_loopback())
    }

    /// Names and addresses by which clients find this server, as far as it knows: its certificate is for them.
    pub fn machine_names(&self) -> Vec<String> {
        let listening = self.listen.iter().chain(&self.peers).filter_map(tcp).chain([self.api]);
        let mut addresses: Vec<IpAddr> =
            ["127.0.0.1", "::1"].iter().filter_map(|loopback| loopback.parse().ok()).collect();
        for address in listening.map(|address| address.ip()) {
            if address.is_unspecified() { addresses.extend(own_addresses()) } else { addresses.push(address) }
        }
        let mut names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        names.push("localhost".to_owned());
        names.extend(
            rustix::system::uname().nodename().to_str().ok().filter(|name| is_machine_name(name)).map(str::to_owned),
        );
        names.extend(self.privacy.names.iter().cloned());
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Of all interfaces of this machine.
fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let address_of = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    interfaces.filter_map(address_of).collect()
}
