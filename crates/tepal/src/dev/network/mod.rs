//! The network of an isolated cluster: each server in a network namespace of its own, so that what one server sends to another
//! can be cut off.
//!
//! ```text
//! this machine's namespace          tepal-TAG-net           tepal-TAG-s1
//! tepal-TAG 198.18.7.254 -- veth -- machine  br0  s1 -- veth -- eth0 198.18.7.1
//!                                            br0  s2 -- veth -- eth0 198.18.7.2    in tepal-TAG-s2
//! ```
//!
//! The bridge has a namespace too: rules of this machine's firewall about what is forwarded, as container runtimes set them, don't
//! apply in there.
//!
//! Invariants:
//! 1. All names follow from the cluster's folder, so what is left of a network is found again, and two clusters share nothing.
//! 2. What is there stays as it is when the network is asked for again, so that running servers and cuts are left alone; what is
//!    missing is made, also after half of it was made, or removed, by a command that was killed.
//! 3. A cut is an entry in the sender's table of neighbours, which says that the receiver has a hardware address that nobody has.
//!    So what is sent is lost without a word, as on a cut cable, on connections of before too. Nobody else notes what is cut.

mod ip;
mod subnet;

pub use subnet::Subnet;

use ip::ip;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns};
use serde::Serialize;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tepal_model::ServerId;

/// Why a cluster's network can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("--isolate needs root: each server gets a network namespace of its own")]
    NotRoot,
    #[error("`ip` isn't installed, which --isolate needs: apt-get install iproute2")]
    NoIp,
    #[error("`ip {arguments}` has failed: {said}")]
    Ip { arguments: String, said: String },
    #[error("`ip` can't be run: {0}")]
    Run(io::Error),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("an isolated cluster has at most {} servers", Subnet::SERVERS)]
    TooMany,
    #[error("every network of {} is in use on this machine: stop other clusters with `tepal dev down`", subnet::RANGE)]
    NoneFree,
    #[error("{subnet}, the network of this cluster, is in use on this machine by {interface}: stop what uses it")]
    Taken { subnet: Subnet, interface: String },
}

/// What `from` sends to `to` is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cut {
    pub from: ServerId,
    pub to: ServerId,
}

impl Cut {
    pub fn back(self) -> Self {
        Cut { from: self.to, to: self.from }
    }
}

/// The network of one cluster, whether it's there or not.
pub struct Network {
    names: Names,
    subnet: Subnet,
}

/// Of namespaces and interfaces.
struct Names {
    tag: String,
}

/// Where `ip` keeps the namespaces that have names.
const NAMESPACES: &str = "/run/netns";
/// Held while a cluster looks for a network that no other has.
const CHOOSING: &str = "/run/tepal-dev-network.lock";
const BRIDGE: &str = "br0";
/// The bridge's end of what joins it to this machine.
const MACHINE: &str = "machine";
/// A server's own interface.
const OWN: &str = "eth0";
/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:00";
/// Where servers listen, as in the examples of `tepal serve`.
const PEERS: u16 = 7118;
const API: u16 = 7117;

impl Names {
    fn of(folder: &Path) -> Self {
        Names { tag: format!("tepal-{:08x}", subnet::hash(folder) as u32) }
    }

    /// The namespace of the bridge.
    fn hub(&self) -> String {
        format!("{}-net", self.tag)
    }

    fn server(&self, server: ServerId) -> String {
        format!("{}-{server}", self.tag)
    }

    /// The interface by which this machine reaches the servers.
    fn interface(&self) -> &str {
        &self.tag
    }

    fn are_of(&self, namespace: &str) -> bool {
        namespace.strip_prefix(&self.tag).is_some_and(|rest| rest.starts_with('-'))
    }
}

impl Network {
    /// The network that the cluster in this folder was made with.
    pub fn of(folder: &Path, subnet: Subnet) -> Self {
        Network { names: Names::of(folder), subnet }
    }

    /// For a new cluster: one that nobody on this machine uses. The part that joins it to the machine is made, so it's taken then.
    pub fn found(folder: &Path) -> Result<Subnet, NetworkError> {
        check_possible()?;
        let names = Names::of(folder);
        let _one_at_a_time = lock()?;
        let taken = taken(&names)?;
        let free = |subnet: &Subnet| !taken.iter().any(|(_, net)| subnet.overlaps(*net));
        let subnet = Subnet::candidates(folder).find(free).ok_or(NetworkError::NoneFree)?;
        Network { names, subnet }.make_hub(folder)?;
        Ok(subnet)
    }

    /// Makes what is missing for these servers.
    pub fn ensure(&self, folder: &Path, servers: &[ServerId]) -> Result<(), NetworkError> {
        check_possible()?;
        check_size(servers.len())?;
        let lock = lock()?;
        if let Some((interface, _)) = taken(&self.names)?.into_iter().find(|(_, net)| self.subnet.overlaps(*net)) {
            return Err(NetworkError::Taken { subnet: self.subnet, interface });
        }
        self.make_hub(folder)?;
        drop(lock);
        servers.iter().try_for_each(|server| self.make_place(*server))
    }

    fn make_hub(&self, folder: &Path) -> Result<(), NetworkError> {
        let (hub, interface) = (&self.names.hub(), self.names.interface());
        if make_namespace(hub)? {
            remove_interface(interface)?; // it leads to a bridge of before
        }
        if !has(hub, BRIDGE)? {
            ip(&["-n", hub, "link", "add", BRIDGE, "type", "bridge"])?;
        }
        ip(&["-n", hub, "link", "set", BRIDGE, "up"])?;
        if if_nametoindex(interface).is_err() {
            ip(&["link", "add", interface, "type", "veth", "peer", "name", MACHINE, "netns", hub])?;
        }
        ip(&["-n", hub, "link", "set", MACHINE, "master", BRIDGE, "up"])?;
        // For whoever wonders what this interface is.
        ip(&["link", "set", interface, "alias", &folder.display().to_string()])?;
        ip(&["address", "replace", &self.subnet.machine_with_length(), "dev", interface])?;
        ip(&["link", "set", interface, "up"])
    }

    fn make_place(&self, server: ServerId) -> Result<(), NetworkError> {
        let (hub, place, port) = (&self.names.hub(), &self.namespace(server), &server.to_string());
        if make_namespace(place)? && has(hub, port)? {
            // It leads to a namespace of before, with which it may vanish in this very moment.
            let _ = ip(&["-n", hub, "link", "delete", port]);
        }
        if !has(hub, port)? {
            ip(&["-n", hub, "link", "add", port, "type", "veth", "peer", "name", OWN, "netns", place])?;
        }
        ip(&["-n", hub, "link", "set", port, "master", BRIDGE, "up"])?;
        ip(&["-n", place, "link", "set", "lo", "up"])?;
        ip(&["-n", place, "address", "replace", &self.subnet.server_with_length(server), "dev", OWN])?;
        ip(&["-n", place, "link", "set", OWN, "up"])
    }

    /// Where other servers find this one.
    pub fn peers(&self, server: ServerId) -> String {
        format!("{}:{PEERS}", self.subnet.server(server))
    }

    pub fn api(&self, server: ServerId) -> String {
        format!("{}:{API}", self.subnet.server(server))
    }

    /// The name of the server's.
    pub fn namespace(&self, server: ServerId) -> String {
        self.names.server(server)
    }

    /// Has the command run in the server's namespace.
    pub fn enter(&self, server: ServerId, command: &mut Command) -> Result<(), NetworkError> {
        let path = path_of(&self.namespace(server));
        let namespace = File::open(&path).map_err(|error| NetworkError::File { path, error })?;
        // SAFETY: runs between fork and exec, and makes one system call.
        unsafe { command.pre_exec(move || Ok(setns(&namespace, CloneFlags::CLONE_NEWNET)?)) };
        Ok(())
    }

    /// Whether these servers have their places in it.
    pub fn is_there(&self, servers: &[ServerId]) -> bool {
        servers.iter().all(|server| path_of(&self.namespace(*server)).exists())
    }

    /// All that is cut between these servers.
    pub fn cuts(&self, servers: &[ServerId]) -> Result<Vec<Cut>, NetworkError> {
        let mut cuts = Vec::new();
        for &from in servers.iter().filter(|server| self.is_there(&[**server])) {
            let place = self.namespace(from);
            let told = ip::ask(&["-n", &place, "neighbour", "show", "nud", "permanent", "dev", OWN])?;
            let lost = told.lines().filter(|line| line.split_whitespace().any(|word| word == NOBODY));
            let addresses = lost.filter_map(|line| line.split_whitespace().next()?.parse::<Ipv4Addr>().ok());
            let to = addresses.filter_map(|address| servers.iter().find(|to| self.subnet.server(**to) == address));
            cuts.extend(to.map(|to| Cut { from, to: *to }));
        }
        cuts.sort();
        Ok(cuts)
    }

    pub fn cut(&self, Cut { from, to }: Cut) -> Result<(), NetworkError> {
        let (place, to) = (self.namespace(from), self.subnet.server(to).to_string());
        ip(&["-n", &place, "neighbour", "replace", &to, "lladdr", NOBODY, "nud", "permanent", "dev", OWN])
    }

    pub fn mend(&self, Cut { from, to }: Cut) -> Result<(), NetworkError> {
        let (place, to) = (self.namespace(from), self.subnet.server(to).to_string());
        ip(&["-n", &place, "neighbour", "delete", &to, "dev", OWN])
    }

    /// Removes whatever there is of the network of the cluster in this folder. Its servers must be down.
    pub fn remove(folder: &Path) -> Result<(), NetworkError> {
        let names = Names::of(folder);
        // The kernel takes a namespace's interfaces away only some time later, and the name may be wanted again at once.
        remove_interface(names.interface())?;
        let namespaces = match fs::read_dir(NAMESPACES) {
            Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()),
            // Nobody on this machine has any.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(NetworkError::File { path: NAMESPACES.into(), error }),
        };
        namespaces.filter(|name| names.are_of(name)).try_for_each(|name| ip(&["netns", "delete", &name]))
    }
}

/// Refuses more servers than a network has addresses for.
pub fn check_size(servers: usize) -> Result<(), NetworkError> {
    if servers > Subnet::SERVERS as usize { Err(NetworkError::TooMany) } else { Ok(()) }
}

fn check_possible() -> Result<(), NetworkError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(NetworkError::NotRoot);
    }
    ip(&["-Version"])
}

fn lock() -> Result<File, NetworkError> {
    let locked = || -> io::Result<File> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(CHOOSING)?;
        file.lock()?;
        Ok(file)
    };
    locked().map_err(|error| NetworkError::File { path: CHOOSING.into(), error })
}

/// An address and its mask.
type Net = (Ipv4Addr, Ipv4Addr);

/// The networks that this machine is in, but for that of these names, each with the interface.
fn taken(but: &Names) -> Result<Vec<(String, Net)>, NetworkError> {
    let interfaces = getifaddrs().map_err(|error| NetworkError::Run(error.into()))?;
    let others = interfaces.filter(|interface| interface.interface_name != but.interface());
    let nets = others.filter_map(|interface| {
        let address = interface.address?.as_sockaddr_in()?.ip();
        let mask = interface.netmask.as_ref().and_then(|mask| Some(mask.as_sockaddr_in()?.ip()));
        Some((interface.interface_name, (address, mask.unwrap_or(Ipv4Addr::BROADCAST))))
    });
    Ok(nets.collect())
}

fn path_of(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Whether it wasn't there.
fn make_namespace(name: &str) -> Result<bool, NetworkError> {
    if path_of(name).exists() {
        return Ok(false);
    }
    ip(&["netns", "add", name])?;
    Ok(true)
}

/// Whether the namespace has an interface of this name.
fn has(namespace: &str, interface: &str) -> Result<bool, NetworkError> {
    let told = ip::ask(&["-n", namespace, "-brief", "link", "show"])?;
    // The other end of a pair is named behind the @.
    let name = |line: &str| Some(line.split_whitespace().next()?.split('@').next()? == interface);
    Ok(told.lines().filter_map(name).any(|is_it| is_it))
}

/// Removes an interface of this machine's own, if it's there and not on its way out already.
fn remove_interface(name: &str) -> Result<(), NetworkError> {
    let is_there = || if_nametoindex(name).is_ok();
    if !is_there() {
        return Ok(());
    }
    let removed = ip(&["link", "delete", name]);
    if is_there() { removed } else { Ok(()) }
}

/// Of several cuts, for people: `s1 <-> s2` where nothing passes, `s1 -> s3` where only that way is cut.
pub struct Cuts<'a>(pub &'a [Cut]);

impl fmt::Display for Cuts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cuts(cuts) = self;
        // A pair is told once.
        let told = cuts.iter().filter(|cut| cut.from < cut.to || !cuts.contains(&cut.back()));
        for (number, cut) in told.enumerate() {
            let arrow = if cuts.contains(&cut.back()) { "<->" } else { "->" };
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{} {arrow} {}", cut.from, cut.to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_folder_and_fit_where_they_have_to() {
        let (one, other) = (Names::of(Path::new("/a/dev")), Names::of(Path::new("/b/dev")));
        assert_eq!(one.tag, Names::of(Path::new("/a/dev")).tag);
        assert_ne!(one.tag, other.tag);
        assert!(one.interface().len() < nix::libc::IFNAMSIZ, "{}", one.interface());
        assert!(one.are_of(&one.hub()) && one.are_of(&one.server(ServerId(12))));
        assert!(!one.are_of(&other.hub()) && !one.are_of("tepal") && !one.are_of(&format!("{}0-net", one.tag)));
    }

    #[test]
    fn the_tag_of_a_folder_stays_what_it_is_in_later_versions() {
        // A cluster may be up while the program is replaced.
        assert_eq!(Names::of(Path::new("/srv/tepal-dev")).tag, "tepal-b0c006f6");
    }

    #[test]
    fn cuts_are_told_once_with_the_way_that_is_cut() {
        let cut = |from, to| Cut { from: ServerId(from), to: ServerId(to) };
        for (cuts, told) in [
            (vec![], ""),
            (vec![cut(1, 2)], "s1 -> s2"),
            (vec![cut(2, 1)], "s2 -> s1"),
            (vec![cut(1, 2), cut(1, 3), cut(2, 1), cut(3, 2)], "s1 <-> s2, s1 -> s3, s3 -> s2"),
        ] {
            assert_eq!(Cuts(&cuts).to_string(), told);
        }
    }
}
