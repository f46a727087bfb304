//! The workspace: where it is, what it consists of, and how its programs are built.

use crate::failure::Failure;
use crate::process;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A first build on a small machine is the longest that cargo is ever asked to do.
pub const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

pub struct Workspace {
    pub root: PathBuf,
    /// Where cargo puts what it builds.
    pub target: PathBuf,
}

/// A program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The folder of the crate it belongs to: its tests expect to run there.
    pub folder: PathBuf,
    /// The crate's target: a library, a binary, an integration test.
    pub name: String,
    pub kind: Kind,
    pub file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Binary,
    /// The tests inside a library or a binary.
    UnitTests,
    /// A file of a `tests` folder: it sees only what users see.
    IntegrationTests,
}

impl Workspace {
    pub fn find() -> Result<Workspace, Failure> {
        // As cargo says now: a target folder may be shared with another checkout, which has built this program.
        let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = here.ancestors().nth(2).unwrap_or(&here).to_owned();
        let mut workspace = Workspace { root, target: PathBuf::new() };
        let metadata = workspace.metadata(&["--no-deps"])?;
        let target = metadata["target_directory"].as_str();
        workspace.target = target.ok_or(answer("cargo metadata", "target_directory"))?.into();
        Ok(workspace)
    }

    /// Cargo, in the root of the workspace, with the environment of who runs us: what cargo adds for a program that it runs would have it
    /// build crates again whose build scripts look at that, as ring's does, and all that is built on them.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_of_a_run) {
                cargo.env_remove(name);
            }
        }
        cargo
    }

    pub fn metadata(&self, options: &[&str]) -> Result<Value, Failure> {
        let mut cargo = self.cargo();
        cargo.args(["metadata", "--format-version", "1"]).args(options);
        let answer = process::succeed(&mut cargo, BUILD_LIMIT)?;
        parse("cargo metadata", &answer.stdout)
    }

    /// Every file that is part of the project, relative to its root: committed, or about to be.
    pub fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::succeed(&mut git, Duration::from_secs(60))?.stdout;
        let mut files: Vec<PathBuf> = listed.split_terminator('\0').map(PathBuf::from).collect();
        files.retain(|file| self.root.join(file).symlink_metadata().is_ok()); // a deleted file is still in the index
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// Builds with the given arguments of cargo and gives the programs that came of it.
    /// The compiler's complaints go to standard error as it makes them.
    pub fn build(&self, arguments: &[&str]) -> Result<Vec<Program>, Failure> {
        build(self.cargo().args(arguments))
    }

    /// Where a program of another project is, if it's there: installed by [`Workspace::install`], or on this machine anyway.
    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        let ours = self.tools().join(name);
        if ours.is_file() { Some(ours) } else { process::find(name) }
    }

    /// The folder of programs that [`Workspace::install`] has installed.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools/bin")
    }

    /// Installs a program that is published as a crate of the same name, into the target folder.
    pub fn install(&self, name: &str) -> Result<PathBuf, Failure> {
        let (root, built) = (self.target.join("tools"), self.target.join("tools/build"));
        let mut cargo = self.cargo();
        cargo.args(["install", "--quiet", "--locked", name, "--root"]).arg(&root).env("CARGO_TARGET_DIR", &built);
        let installed = process::succeed(&mut cargo, BUILD_LIMIT);
        // The program is all that is wanted; what it was built from takes a gigabyte.
        let _ = std::fs::remove_dir_all(built);
        installed.map(|_| self.tools().join(name))
    }

    /// Builds one of the workspace's binaries.
    pub fn binary(&self, name: &str) -> Result<PathBuf, Failure> {
        build_binary(&mut self.cargo(), name)
    }
}

/// Whether cargo sets this variable for a program that it runs.
fn is_of_a_run(name: &str) -> bool {
    name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")
}

/// Builds one binary with a cargo that stands in the root of a workspace. Not by its package alone: then the dependencies
/// would be chosen other features than for the whole workspace, and be compiled twice.
pub fn build_binary(cargo: &mut Command, name: &str) -> Result<PathBuf, Failure> {
    build_binary_for(cargo, name, None)
}

/// The same, for other machines if there is a target.
pub fn build_binary_for(cargo: &mut Command, name: &str, target: Option<&str>) -> Result<PathBuf, Failure> {
    cargo.args(["build", "--release", "--quiet", "--workspace", "--bin", name]);
    cargo.args(target.iter().flat_map(|target| ["--target", target]));
    binary(&build(cargo)?, name)
}

/// Where one of these is.
pub fn binary(built: &[Program], name: &str) -> Result<PathBuf, Failure> {
    let is_it = |program: &&Program| program.kind == Kind::Binary && program.name == name;
    built.iter().find(is_it).map(|program| program.file.clone()).ok_or(answer("cargo build", "the binary"))
}

/// Runs a cargo command that builds, and gives the programs it built.
fn build(cargo: &mut Command) -> Result<Vec<Program>, Failure> {
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|source| Failure::Start { program: "cargo".into(), source })?;
    if !output.status.success() {
        return Err(Failure::Ended { command: "cargo".into(), status: output.status, output: String::new() });
    }
    programs(&String::from_utf8_lossy(&output.stdout))
}

pub fn parse(what: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|source| Failure::Json { what: what.into(), source })
}

pub fn answer(what: &str, missing: &'static str) -> Failure {
    Failure::Answer { what: what.into(), missing }
}

/// The executables in cargo's messages, which are one JSON document a line.
fn programs(messages: &str) -> Result<Vec<Program>, Failure> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message = parse("cargo's message", line)?;
        if let Some(file) = message["executable"].as_str() {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let manifest = text(&message["manifest_path"]).ok_or(answer("cargo's message", "manifest_path"))?;
            found.push(Program {
                folder: Path::new(&manifest).parent().unwrap_or(Path::new(".")).to_owned(),
                name: text(&message["target"]["name"]).ok_or(answer("cargo's message", "target.name"))?,
                kind: match (&message["profile"]["test"], &message["target"]["kind"][0]) {
                    (test, _) if *test != true => Kind::Binary,
                    (_, kind) if kind == "test" => Kind::IntegrationTests,
                    _ => Kind::UnitTests,
                },
                file: file.into(),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: the command for the tests built ring, and so all of ours that is above it, once more after `cargo run` had.
    #[test]
    fn cargo_is_called_without_what_it_sets_for_programs() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "tests are run as cargo does");
        let workspace = Workspace { root: "/".into(), target: PathBuf::new() };
        let cargo = workspace.cargo();
        let removed: Vec<_> = cargo.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(removed.contains(&std::ffi::OsStr::new("CARGO_MANIFEST_DIR")), "{removed:?}");
    }

    #[test]
    fn programs_are_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"name":"unit","kind":["lib"]},"profile":{"test":true},"executable":"/t/unit-1"}
{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"name":"library","kind":["lib"]},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"name":"integration","kind":["test"]},"profile":{"test":true},"executable":"/t/integration-1"}
{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"name":"binary","kind":["bin"]},"profile":{"test":false},"executable":"/t/binary-1"}
{"reason":"build-finished","success":true}
"#;
        let program = |name: &str, kind| Program {
            folder: "/p/a".into(),
            name: name.into(),
            kind,
            file: format!("/t/{name}-1").into(),
        };
        let found = programs(messages).unwrap();
        let expected = [
            program("unit", Kind::UnitTests),
            program("integration", Kind::IntegrationTests),
            program("binary", Kind::Binary),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn this_workspace_is_found() {
        let workspace = Workspace::find().unwrap();
        assert!(workspace.root.join("crates/xtask/Cargo.toml").is_file());
    }
}
