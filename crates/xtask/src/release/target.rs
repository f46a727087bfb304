//! The machines that a release is for, and the tools that it takes to build for them.

use crate::failure::Failure;
use crate::process;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Target {
    pub triple: &'static str,
    /// Debian's name of the architecture.
    pub debian: &'static str,
    /// The programs that link and strip for it.
    linker: &'static str,
    pub strip: &'static str,
    /// The package that has both.
    package: &'static str,
    pub is_this_machine: bool,
}

const X86: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";

impl Target {
    /// By its triple; that of this machine if none is said.
    pub fn find(triple: Option<&str>) -> Result<Target, Failure> {
        let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let triple = triple.unwrap_or(&here);
        let is_this_machine = triple == here;
        let target = |triple, debian, linker, strip, package| match is_this_machine {
            true => Target { triple, debian, linker: "cc", strip: "strip", package: "gcc binutils", is_this_machine },
            false => Target { triple, debian, linker, strip, package, is_this_machine },
        };
        match triple {
            X86 => Ok(target(X86, "amd64", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-strip", "gcc-x86-64-linux-gnu")),
            ARM => {
                Ok(target(ARM, "arm64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-strip", "gcc-aarch64-linux-gnu"))
            }
            other => Err(Failure::Usage(format!("no release is made for {other}: {X86} and {ARM} are known"))),
        }
    }

    /// All that is missing here, in one answer.
    pub fn need_tools(&self) -> Result<(), Failure> {
        let tools = [
            (self.linker, self.package),
            (self.strip, self.package),
            ("readelf", "binutils"),
            ("dpkg-deb", "dpkg"),
            ("gzip", "gzip"),
        ];
        let absent = tools.iter().filter(|(program, _)| process::find(program).is_none());
        let mut missing: Vec<String> =
            absent.map(|(program, package)| format!("{program} (apt-get install {package})")).collect();
        if !self.is_this_machine && !self.has_standard_library()? {
            missing.push(format!("Rust's standard library for it (rustup target add {})", self.triple));
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::Usage(format!("a release for {} needs what isn't here: {}", self.triple, missing.join(", "))))
    }

    fn has_standard_library(&self) -> Result<bool, Failure> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        rustc.args(["--print", "target-libdir", "--target", self.triple]);
        let folder = process::succeed(&mut rustc, LIMIT)?.stdout;
        Ok(PathBuf::from(folder.trim()).is_dir())
    }

    /// Has cargo, and the C code of crates, built with the tools for this target.
    pub fn link_with(&self, cargo: &mut Command) {
        let name = self.triple.replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), self.linker);
        cargo.env(format!("CC_{name}"), self.linker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_known_by_their_triple() {
        let cases = [(X86, "amd64"), (ARM, "arm64")];
        for (triple, debian) in cases {
            assert_eq!(Target::find(Some(triple)).unwrap().debian, debian);
        }
        let unknown = Target::find(Some("riscv64gc-unknown-linux-gnu"));
        assert!(unknown.err().unwrap().to_string().starts_with("no release is made for riscv64gc"));
    }

    #[test]
    fn what_is_missing_for_other_machines_is_named_with_its_package() {
        let target = Target {
            triple: ARM,
            debian: "arm64",
            linker: "no-such-linker",
            strip: "no-such-strip",
            package: "gcc-of-nowhere",
            is_this_machine: true,
        };
        let said = target.need_tools().unwrap_err().to_string();
        assert!(said.contains("no-such-linker (apt-get install gcc-of-nowhere), no-such-strip"), "{said}");
    }
}
