//! The package as `cargo xtask release` makes it, and what is in it.

use crate::cluster;
use crate::need;
use crate::program::{command, run, run_within};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Most of it is compressing the binary, twice.
const MAKING: Duration = Duration::from_secs(600);

/// Ends a test where no package can be made.
#[macro_export]
macro_rules! need_packages {
    () => {
        $crate::need!("dpkg-deb", "gzip", "md5sum", "readelf", "strip");
    };
}

pub struct Made {
    /// In the target folder, where the next run makes it anew.
    folder: PathBuf,
    /// What the command said.
    said: String,
}

/// The package of the binary under test.
pub fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
        let _ = std::fs::remove_dir_all(&folder); // of an earlier run, maybe of another version
        let mut release = xtask();
        release.args(["release", "--twice", "--binary"]).arg(cluster::tepal()).arg("--to").arg(&folder);
        let said = run_within(&mut release, MAKING).succeeded();
        Made { folder, said }
    })
}

/// The project's own commands: as built already, or by cargo.
fn xtask() -> Command {
    let tests = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = tests.parent().expect("the root").to_owned();
    let mut xtask = match std::env::var_os("XTASK") {
        Some(built) => Command::new(built),
        None => command("cargo", ["run", "--quiet", "--release", "--package", "xtask", "--"]),
    };
    xtask.env("CARGO_MANIFEST_DIR", root.join("crates/xtask")).current_dir(root);
    xtask
}

impl Made {
    pub fn package(&self) -> PathBuf {
        let files = std::fs::read_dir(&self.folder).expect("our own folder").flatten().map(|entry| entry.path());
        let mut packages = files.filter(|file| file.extension().is_some_and(|extension| extension == "deb"));
        packages.next().expect("a package")
    }

    /// The same under an earlier version's number, quickly compressed.
    pub fn earlier(&self, version: &str, folder: &Path) -> PathBuf {
        let unpacked = folder.join("unpacked");
        run(command("dpkg-deb", ["--raw-extract"]).arg(self.package()).arg(&unpacked)).succeeded();
        let control = unpacked.join("DEBIAN/control");
        let text = std::fs::read_to_string(&control).expect("a package has it");
        let line = |line: &str| {
            if line.starts_with("Version: ") { format!("Version: {version}\n") } else { format!("{line}\n") }
        };
        std::fs::write(&control, text.lines().map(line).collect::<String>()).expect("our own folder");
        let package = folder.join("earlier.deb");
        run(command("dpkg-deb", ["--root-owner-group", "-Zgzip", "-z1", "--build"]).arg(&unpacked).arg(&package))
            .succeeded();
        package
    }
}

#[test]
fn a_package_made_twice_is_the_same_and_has_all_that_an_operator_looks_for() {
    need_packages!();
    let made = made();
    assert!(made.said.contains("made twice: 4 files are the same, byte for byte"), "{}", made.said);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    run(command("dpkg-deb", ["--extract"]).arg(made.package()).arg(folder.path())).succeeded();
    let at = |path: &str| folder.path().join(path);
    for (path, word) in [
        ("usr/share/bash-completion/completions/tepal", "volume"),
        ("usr/share/zsh/vendor-completions/_tepal", "#compdef tepal"),
        ("usr/share/fish/vendor_completions.d/tepal.fish", "complete -c tepal"),
        ("usr/share/doc/tepal/copyright", "License: MIT or Apache-2.0"),
        ("usr/lib/sysusers.d/tepal.conf", "u tepal"),
        ("etc/tepal/tepal.toml", "#create"),
    ] {
        let text = std::fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(text.contains(word), "{path}");
    }
    for (path, word) in [
        ("usr/share/man/man1/tepal.1.gz", ".SH NAME"),
        ("usr/share/man/man1/tepal-volume-create.1.gz", "mirror:N"),
        ("usr/share/man/man1/tepal-serve.1.gz", "\\-\\-config"),
        ("usr/share/doc/tepal/changelog.Debian.gz", "tepal ("),
        ("usr/share/doc/tepal/changelog.gz", "# Changelog"),
    ] {
        let text = run(command("gzip", ["--decompress", "--stdout"]).arg(at(path))).succeeded();
        assert!(text.contains(word), "{path}: {text:.200}");
    }
    assert!(!at("usr/share/man/man1/tepal-attach-daemon.1.gz").exists(), "it's hidden");
}

#[test]
fn the_list_of_what_is_inside_names_each_library_with_its_licence() {
    need_packages!();
    let text = std::fs::read(made().folder.join("tepal.cdx.json")).expect("the release has it");
    let list: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((&list["bomFormat"], &list["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = list["components"].as_array().expect("a list");
    for component in components {
        let (purl, licence) = (component["purl"].as_str(), component["licenses"][0]["expression"].as_str());
        assert!(purl.is_some_and(|purl| purl.starts_with("pkg:")), "{component}");
        assert!(licence.is_some_and(|licence| licence != "NOASSERTION"), "{component}");
    }
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    for linked in ["tokio", "openraft", "libsqlite3-sys", "ring", "tepal-engine", "preact"] {
        assert!(has(linked), "{linked}");
    }
    for absent in ["proptest", "syn", "cc", "xtask", "tepal-sim", "vite"] {
        assert!(!has(absent), "{absent}");
    }
}

#[test]
fn the_service_exposes_little_of_the_machine() {
    need!("systemd-analyze");
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("packaging/debian/tepal.service");
    // It counts in tenths: the exposure is at most 3.0.
    let said =
        run(command("systemd-analyze", ["security", "--offline=true", "--threshold=30", "--no-pager"]).arg(&unit));
    assert!(said.succeeded().contains("Overall exposure level"));
}
