//! The real clients that the integration tests use, from Debian's packages and from crates.
//!
//! Without one of them its tests skip themselves and say so, so that a reader without root still gets the rest.

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;
use std::process::Command;
use std::time::Duration;

const APT_LIMIT: Duration = Duration::from_secs(15 * 60);

/// (program, the package that has it)
const CLIENTS: &[(&str, &str)] = &[
    ("chromium", "chromium"),
    ("dpkg-deb", "dpkg"),
    ("fio", "fio"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("kmod", "kmod"),
    ("linux.uml", "user-mode-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mmdebstrap", "mmdebstrap"),
    ("nbd-client", "nbd-client"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("prometheus", "prometheus"),
    ("qemu-io", "qemu-utils"),
    ("socat", "socat"),
    ("sqlite3", "sqlite3"),
    ("strip", "binutils"),
    ("systemd-analyze", "systemd"),
];

/// Programs that are published as crates. They are tools of the tests, and no part of what is built or shipped.
const CRATES: &[&str] = &["fsx"];

/// Programs that are published as modules of Go: name, and module with its version.
const MODULES: &[(&str, &str)] = &[("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0")];

/// Installs what is missing where that can be done, and otherwise says what is missing and goes on.
pub fn provide(workspace: &Workspace) {
    provide_packages();
    provide_browser_tests(workspace);
    provide_modules(workspace);
    for name in CRATES.iter().filter(|name| workspace.tool(name).is_none()) {
        println!("clients: installing {name} into the target folder");
        if let Err(failure) = workspace.install(name) {
            println!("clients: not installed, so that some tests will skip themselves: {failure}");
        }
    }
}

/// As with crates, where there is Go.
fn provide_modules(workspace: &Workspace) {
    let wanted = MODULES.iter().filter(|(name, _)| workspace.tool(name).is_none());
    for (name, module) in wanted.filter(|_| process::find("go").is_some()) {
        println!("clients: installing {name} into the target folder");
        let mut go = Command::new("go");
        go.args(["install", module]).env("GOBIN", workspace.tools()).env("GOFLAGS", "-mod=mod");
        if let Err(failure) = process::succeed(&mut go, APT_LIMIT) {
            println!("clients: not installed, so that some tests will skip themselves: {failure}");
        }
    }
}

/// What the tests of the console import. No browser is fetched: Chromium is Debian's.
fn provide_browser_tests(workspace: &Workspace) {
    let console = workspace.root.join("console");
    if console.join("node_modules").is_dir() || ["node", "npm"].iter().any(|program| process::find(program).is_none()) {
        return;
    }
    println!("clients: installing what the console's tests import");
    let mut npm = Command::new("npm");
    npm.current_dir(console).args(["ci", "--no-audit", "--no-fund"]).env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
    if let Err(failure) = process::succeed(&mut npm, APT_LIMIT) {
        println!("clients: not installed, so that some tests will skip themselves: {failure}");
    }
}

fn provide_packages() {
    let missing = missing(|program| process::find(program).is_some());
    if missing.is_empty() {
        return;
    }
    let names = missing.join(" ");
    if !can_install() {
        println!("clients: missing, so that some tests will skip themselves: apt-get install {names}");
        return;
    }
    println!("clients: installing {names}");
    if let Err(failure) = install(&missing) {
        println!("clients: not installed, so that some tests will skip themselves: {failure}");
    }
}

/// The packages of the programs that this machine doesn't have.
fn missing(has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    CLIENTS.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect()
}

fn can_install() -> bool {
    let id = process::capture(Command::new("id").arg("-u"), APT_LIMIT);
    id.is_ok_and(|id| id.stdout.trim() == "0") && process::find("apt-get").is_some()
}

fn install(packages: &[&str]) -> Result<(), Failure> {
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
        apt
    };
    process::succeed(apt().arg("update"), APT_LIMIT)?;
    process::succeed(apt().args(["install", "-y", "--no-install-recommends"]).args(packages), APT_LIMIT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_packages_of_missing_programs_are_asked_for() {
        assert_eq!(missing(|program| program != "qemu-io" && program != "ip"), ["iproute2", "qemu-utils"]);
        assert_eq!(missing(|_| true), Vec::<&str>::new());
    }
}
