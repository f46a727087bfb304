//! The addresses of an isolated cluster: one of the 512 networks of 256 addresses that 198.18.0.0/15 has. That range is set aside
//! for tests of networks (RFC 2544), so nothing that anybody wants to reach is in it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tepal_model::ServerId;

/// All of them, for texts.
pub const RANGE: &str = "198.18.0.0/15";
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const COUNT: u32 = 512;
const LENGTH: u32 = 24;
/// The last part of this machine's own address.
const MACHINE: u32 = 254;

/// A network, by its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Subnet(Ipv4Addr);

impl Subnet {
    /// So many servers have an address in one.
    pub const SERVERS: u32 = MACHINE - 1;

    fn numbered(number: u32) -> Self {
        Subnet(Ipv4Addr::from_bits(FIRST.to_bits() + ((number % COUNT) << (32 - LENGTH))))
    }

    /// All networks, in the order in which the cluster in this folder would like to have them.
    pub fn candidates(folder: &Path) -> impl Iterator<Item = Self> {
        let first = (hash(folder) >> 32) as u32 % COUNT;
        (0..COUNT).map(move |step| Self::numbered(first + step))
    }

    fn address(self, last: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() | last)
    }

    /// `server` is at most [`Subnet::SERVERS`].
    pub fn server(self, server: ServerId) -> Ipv4Addr {
        assert!((1..=Self::SERVERS).contains(&server.0), "{server} has no address in {self}");
        self.address(server.0)
    }

    /// As `ip` wants it.
    pub fn server_with_length(self, server: ServerId) -> String {
        format!("{}/{LENGTH}", self.server(server))
    }

    pub fn machine_with_length(self) -> String {
        format!("{}/{LENGTH}", self.address(MACHINE))
    }

    /// Whether it has addresses in common with the network of this address and mask.
    pub fn overlaps(self, (address, mask): (Ipv4Addr, Ipv4Addr)) -> bool {
        let common = mask.to_bits() & u32::MAX << (32 - LENGTH);
        self.0.to_bits() & common == address.to_bits() & common
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{LENGTH}", self.0)
    }
}

/// FNV-1a, which stays what it is: a cluster may be up while the program is replaced.
pub fn hash(folder: &Path) -> u64 {
    let bytes = folder.as_os_str().as_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn subnet(text: &str) -> Subnet {
        Subnet(text.parse().expect("an address"))
    }

    #[test]
    fn a_folder_has_every_network_as_a_choice_and_begins_with_its_own() {
        let of = |folder: &str| Subnet::candidates(Path::new(folder)).map(|subnet| subnet.0).collect::<Vec<_>>();
        let all: BTreeSet<_> = of("/a/dev").into_iter().collect();
        assert_eq!(all.len(), 512);
        assert_eq!(all.first(), Some(&FIRST));
        assert_eq!(all.last(), Some(&Ipv4Addr::new(198, 19, 255, 0)));
        assert_eq!(of("/a/dev"), of("/a/dev"));
        assert_ne!(of("/a/dev")[0], of("/b/dev")[0]);
    }

    #[test]
    fn addresses_of_servers_and_of_the_machine_are_in_it() {
        let subnet = subnet("198.18.7.0");
        assert_eq!(subnet.to_string(), "198.18.7.0/24");
        assert_eq!(subnet.server_with_length(ServerId(253)), "198.18.7.253/24");
        assert_eq!(subnet.machine_with_length(), "198.18.7.254/24");
    }

    #[test]
    fn a_network_that_overlaps_in_any_way_is_noticed() {
        let ours = subnet("198.18.7.0");
        for (address, mask, overlaps) in [
            ("198.18.7.254", "255.255.255.0", true),
            ("198.18.7.9", "255.255.255.255", true),
            ("198.18.0.1", "255.255.0.0", true),
            ("10.0.0.1", "0.0.0.0", true),
            ("198.18.8.254", "255.255.255.0", false),
            ("198.19.7.1", "255.255.0.0", false),
            ("127.0.0.1", "255.0.0.0", false),
        ] {
            let net = (address.parse().expect("an address"), mask.parse().expect("a mask"));
            assert_eq!(ours.overlaps(net), overlaps, "{address} {mask}");
        }
    }
}
