//! Debian's package. What is in it besides the binary and what the binary says of itself is in `packaging/debian`.

use super::contents::Contents;
use super::{Parts, binary};
use crate::failure::Failure;
use crate::process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Compressing the binary is most of it.
const LIMIT: Duration = Duration::from_secs(300);
const MAINTAINER: &str = "The Tepal developers <maintainers@tepal.example>";
/// (shell, where its completions belong)
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tepal"),
    ("zsh", "usr/share/zsh/vendor-completions/_tepal"),
    ("fish", "usr/share/fish/vendor_completions.d/tepal.fish"),
];
/// (file in packaging/debian, where it belongs)
const SETTINGS: [(&str, &str); 4] = [
    ("tepal.toml", "etc/tepal/tepal.toml"),
    ("tepal.service", "usr/lib/systemd/system/tepal.service"),
    ("tepal.sysusers", "usr/lib/sysusers.d/tepal.conf"),
    ("copyright", "usr/share/doc/tepal/copyright"),
];
const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];
const MANUAL: &str = "usr/share/man/man1";

/// Makes the package of a stripped binary in a folder.
pub fn make(parts: &Parts, stripped: &Path, inventory: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let (version, architecture) = (parts.package_version, parts.target.debian);
    let contents = Contents::empty(folder.join("package"))?;
    contents.copy(stripped, "usr/bin/tepal", 0o755)?;
    contents.copy(inventory, "usr/share/doc/tepal/sbom.cdx.json", 0o644)?;
    let packaging = parts.workspace.root.join("packaging/debian");
    for (file, place) in SETTINGS {
        contents.copy(&packaging.join(file), place, 0o644)?;
    }
    own_words(parts, &contents)?;
    changelogs(parts, &contents)?;
    let control = control(version, architecture, &binary::oldest_glibc(stripped)?, installed_kib(&contents)?);
    let sums = sums(&contents)?;
    contents.file("DEBIAN/control", 0o644, control.as_bytes())?;
    contents.file("DEBIAN/md5sums", 0o644, sums.as_bytes())?;
    contents.file("DEBIAN/conffiles", 0o644, b"/etc/tepal/tepal.toml\n")?;
    for script in SCRIPTS {
        contents.copy(&packaging.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    let package = folder.join(format!("tepal_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--threads-max=2", "--build"]).arg(&contents.root).arg(&package);
    process::succeed(dpkg.env("SOURCE_DATE_EPOCH", &parts.moment.epoch), LIMIT)?;
    fs::remove_dir_all(&contents.root).map_err(Failure::file(&contents.root))?;
    Ok(package)
}

/// Completions and manual pages, which the binary writes itself.
fn own_words(parts: &Parts, contents: &Contents) -> Result<(), Failure> {
    for (shell, place) in COMPLETIONS {
        let script = process::succeed(Command::new(parts.runs_here).args(["completions", shell]), LIMIT)?.stdout;
        contents.file(place, 0o644, script.as_bytes())?;
    }
    let manual = contents.folder(MANUAL)?;
    process::succeed(Command::new(parts.runs_here).arg("man").arg(&manual), LIMIT)?;
    let pages = fs::read_dir(&manual).map_err(Failure::file(&manual))?;
    let mut files = Vec::new();
    for page in pages {
        let page = page.map_err(Failure::file(&manual))?;
        let text = fs::read(page.path()).map_err(Failure::file(&page.path()))?;
        contents.file(&format!("{MANUAL}/{}", page.file_name().to_string_lossy()), 0o644, &text)?; // for its mode
        files.push(page.path());
    }
    contents.compress(&files)
}

fn changelogs(parts: &Parts, contents: &Contents) -> Result<(), Failure> {
    let ours = parts.workspace.root.join("CHANGELOG.md");
    let news = fs::read(&ours).map_err(Failure::file(&ours))?;
    contents.compressed("usr/share/doc/tepal/changelog", &news)?;
    let entry = format!(
        "tepal ({}) unstable; urgency=medium\n\n  * What is new in Tepal: changelog.gz.\n\n -- {MAINTAINER}  {}\n",
        parts.package_version, parts.moment.rfc2822
    );
    contents.compressed("usr/share/doc/tepal/changelog.Debian", entry.as_bytes())
}

fn control(version: &str, architecture: &str, glibc: &str, installed_kib: u64) -> String {
    format!(
        "Package: tepal
Version: {version}
Architecture: {architecture}
Maintainer: {MAINTAINER}
Installed-Size: {installed_kib}
Depends: libc6 (>= {glibc}), libgcc-s1 (>= 4.2), systemd | systemd-standalone-sysusers
Recommends: fuse3
Suggests: nbd-client, qemu-utils, sqlite3
Section: admin
Priority: optional
Description: virtual disks on the drives of ordinary machines
 Tepal turns the drives of one machine, or of several, into volumes: virtual
 disks that are created in a moment, checked to the last block, and mirrored so
 that they outlive a drive or a server. Any NBD client attaches them.
 .
 The package has the server, its service, and every command.
"
    )
}

fn installed_kib(contents: &Contents) -> Result<u64, Failure> {
    let size = |path: PathBuf| {
        let file = contents.root.join(path);
        fs::metadata(&file).map(|found| found.len().div_ceil(1024)).map_err(Failure::file(&file))
    };
    contents.files()?.into_iter().map(size).sum()
}

/// The checksums that `dpkg --verify` looks at. Of settings dpkg keeps its own.
fn sums(contents: &Contents) -> Result<String, Failure> {
    let mut sums = Command::new("md5sum");
    let files = contents.files()?;
    sums.current_dir(&contents.root).args(files.iter().filter(|file| !file.starts_with("etc")));
    Ok(process::succeed(&mut sums, LIMIT)?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_wants_the_glibc_that_the_binary_wants() {
        let control = control("0.1.0-1", "amd64", "2.34", 7);
        assert!(control.contains("\nDepends: libc6 (>= 2.34), "), "{control}");
        assert!(control.lines().all(|line| !line.trim().is_empty()), "an empty line ends it: {control}");
    }
}
