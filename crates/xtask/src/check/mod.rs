//! `cargo xtask check`: what is a rule of the project is checked here.
//!
//! Every check runs, whatever the ones before it found; the cheap ones come first.

mod console;
mod law;
mod licences;
mod security;
mod tidy;

use crate::book::{self, Site};
use crate::failure::Failure;
use crate::process;
use crate::workspace::{BUILD_LIMIT, Workspace};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The advisory database is small; where it can't be reached, that shows at once or not at all.
const FETCH_LIMIT: Duration = Duration::from_secs(60);
const QUICK: Duration = Duration::from_secs(300);

#[derive(Args)]
pub struct Options {
    /// Run only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<Check>,
    /// Install cargo-deny into the target folder where it's missing (some four minutes on two cores)
    #[arg(long)]
    install: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Check {
    /// Each line of the threat model names tests that are there
    Security,
    /// Files: length, names, stray characters, links
    Tidy,
    /// Which crate sees which, and what the pure ones never reach
    Law,
    /// The same bans of real time, randomness, threads and I/O in every pure crate
    Bans,
    /// The console that the server embeds is what its sources build
    Console,
    /// The documentation's table of contents, and the links of its site
    Book,
    /// The breaks of the protocols that the simulator must notice still apply
    Mutants,
    /// cargo fmt
    Format,
    /// Licences, sources and advisories of what we depend on
    Deny,
    /// cargo clippy on everything, warnings are errors
    Lint,
    /// cargo doc, warnings are errors
    Docs,
}

/// What one check found.
enum Finding {
    Good,
    /// Good, as far as this machine could tell.
    Partly(String),
    Bad(String),
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for check in Check::value_variants() {
        if !options.only.is_empty() && !options.only.contains(check) {
            continue;
        }
        let name = check.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        let began = Instant::now();
        let finding = match check {
            Check::Security => security::breaches(workspace).map(verdict),
            Check::Tidy => tidiness(workspace),
            Check::Law => dependency_law(workspace),
            Check::Bans => same_bans(workspace),
            Check::Console => console::breaches(workspace).map(verdict),
            Check::Book => documentation_site(workspace),
            Check::Mutants => crate::mutants::outdated(workspace).map(verdict),
            Check::Format => format(workspace),
            Check::Deny => dependencies(workspace, options.install),
            Check::Lint => lint(workspace),
            Check::Docs => documentation(workspace),
        };
        let took = began.elapsed().as_secs_f32();
        match finding.unwrap_or_else(|failure| Finding::Bad(failure.to_string())) {
            Finding::Good => println!("check {name}: ok ({took:.1} s)"),
            Finding::Partly(what) => println!("check {name}: ok ({took:.1} s); {what}"),
            Finding::Bad(what) => {
                println!("check {name}: FAILED ({took:.1} s)\n{}\n", what.trim_end());
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    println!("check: FAILED: {}", failed.join(", "));
    Err(Failure::Reported)
}

fn verdict(breaches: Vec<String>) -> Finding {
    if breaches.is_empty() { Finding::Good } else { Finding::Bad(breaches.join("\n")) }
}

fn tidiness(workspace: &Workspace) -> Result<Finding, Failure> {
    let exists = |path: &Path| workspace.root.join(path).exists();
    let tree = tidy::Tree { root: workspace.root.to_string_lossy().into_owned(), exists: &exists };
    let mut breaches = Vec::new();
    for path in workspace.files()? {
        let file = workspace.root.join(&path);
        let bytes = if file.is_file() { std::fs::read(&file).map_err(Failure::file(&file))? } else { Vec::new() };
        if let Ok(text) = String::from_utf8(bytes) {
            breaches.extend(tidy::breaches(&path, &text, &tree));
        }
    }
    Ok(verdict(breaches))
}

/// The site's links where mdBook is installed; else only that each page is in the table of contents.
fn documentation_site(workspace: &Workspace) -> Result<Finding, Failure> {
    let unlisted = book::unlisted(workspace)?;
    Ok(match book::build(workspace, false)? {
        Site::Built { breaches } => verdict([unlisted, breaches].concat()),
        Site::NotBuilt(why) => match verdict(unlisted) {
            Finding::Good => Finding::Partly(format!("the site wasn't built: {why}")),
            other => other,
        },
    })
}

fn dependency_law(workspace: &Workspace) -> Result<Finding, Failure> {
    let metadata = workspace.metadata(&["--filter-platform", host()?.as_str()])?;
    Ok(verdict(law::breaches(&law::Graph::from_metadata(&metadata)?)))
}

/// clippy reads only the nearest `clippy.toml`: the pure crates' must exist, and be one and the same.
fn same_bans(workspace: &Workspace) -> Result<Finding, Failure> {
    let of = |name: &str| workspace.root.join("crates").join(name.trim_start_matches("tepal-"));
    let read = |file: PathBuf| std::fs::read_to_string(&file).map_err(Failure::file(&file));
    let bans = read(of("tepal-model").join("clippy.toml"))?;
    let mut breaches = Vec::new();
    for name in law::pure_crates().filter(|name| of(name).is_dir()) {
        match read(of(name).join("clippy.toml")) {
            Ok(own) if own == bans => {}
            Ok(_) => breaches.push(format!("{name}: its clippy.toml is not the one of tepal-model: link to it")),
            Err(failure) => breaches.push(format!("{name}: {failure}: link to the one of tepal-model")),
        }
    }
    Ok(verdict(breaches))
}

fn format(workspace: &Workspace) -> Result<Finding, Failure> {
    let checked = process::capture(workspace.cargo().args(["fmt", "--all", "--check", "--", "-l"]), QUICK)?;
    if checked.status.success() {
        return Ok(Finding::Good);
    }
    if let Some(missing) = missing_component(&checked.output(), "fmt", "rustfmt") {
        return Ok(Finding::Bad(missing));
    }
    Ok(Finding::Bad(format!("{}\nrun cargo fmt --all", checked.output().trim_end())))
}

fn lint(workspace: &Workspace) -> Result<Finding, Failure> {
    let mut cargo = workspace.cargo();
    cargo.args(["clippy", "--release", "--workspace", "--all-targets", "--keep-going", "--quiet", "--"]);
    let checked = process::capture(cargo.args(["-D", "warnings"]), BUILD_LIMIT)?;
    if checked.status.success() {
        return Ok(Finding::Good);
    }
    let missing = missing_component(&checked.output(), "clippy", "clippy");
    Ok(Finding::Bad(missing.unwrap_or_else(|| checked.output())))
}

fn documentation(workspace: &Workspace) -> Result<Finding, Failure> {
    let mut cargo = workspace.cargo();
    cargo.args(["doc", "--release", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    let built = process::capture(cargo.env("RUSTDOCFLAGS", "-D warnings"), BUILD_LIMIT)?;
    Ok(if built.status.success() { Finding::Good } else { Finding::Bad(built.output()) })
}

/// What to say where cargo doesn't know the command, which is a component of the toolchain.
fn missing_component(output: &str, command: &str, component: &str) -> Option<String> {
    let unknown = [format!("no such command: `{command}`"), format!("'cargo-{command}' is not installed")];
    let missing = unknown.iter().any(|words| output.contains(words));
    missing.then(|| format!("{component} is missing: rustup component add {component}"))
}

/// cargo-deny where it's installed, else our own look at licences and sources. Says which of them ran.
fn dependencies(workspace: &Workspace, install: bool) -> Result<Finding, Failure> {
    match cargo_deny(workspace, install) {
        Ok(program) => with_cargo_deny(workspace, &program),
        Err(why) => {
            let file = workspace.root.join("deny.toml");
            let text = std::fs::read_to_string(&file).map_err(Failure::file(&file))?;
            let metadata = workspace.metadata(&["--filter-platform", host()?.as_str()])?;
            let breaches = licences::breaches(&metadata, &licences::list_in_toml(&text, "allow"));
            Ok(match verdict(breaches) {
                Finding::Good => Finding::Partly(format!("licences and sources by xtask itself, no advisories: {why}")),
                other => other,
            })
        }
    }
}

/// Where cargo-deny is, installed first if that is wanted; or why it isn't there.
fn cargo_deny(workspace: &Workspace, install: bool) -> Result<PathBuf, String> {
    if let Some(program) = workspace.tool("cargo-deny") {
        return Ok(program);
    }
    if !install {
        return Err("cargo-deny is not installed (--install does that)".into());
    }
    println!("check deny: installing cargo-deny into the target folder");
    workspace.install("cargo-deny").map_err(|failure| {
        format!("cargo-deny could not be installed: {}", failure.to_string().lines().last().unwrap_or_default())
    })
}

fn with_cargo_deny(workspace: &Workspace, program: &Path) -> Result<Finding, Failure> {
    let check = |what: &[&str], limit| {
        let mut deny = Command::new(program);
        process::capture(deny.current_dir(&workspace.root).arg("check").args(what), limit)
    };
    let terms = check(&["--hide-inclusion-graph", "licenses", "bans", "sources"], QUICK)?;
    if !terms.status.success() {
        return Ok(Finding::Bad(terms.output()));
    }
    match check(&["--hide-inclusion-graph", "advisories"], FETCH_LIMIT) {
        Ok(checked) if checked.status.success() => Ok(Finding::Good),
        Ok(checked) if checked.output().contains("failed to fetch advisory database") => {
            let output = checked.output();
            let reason = output.lines().rev().find(|line| line.contains("fatal:")).unwrap_or("no reason given");
            Ok(Finding::Partly(format!("advisories skipped, their database can't be fetched ({reason})")))
        }
        Ok(checked) => Ok(Finding::Bad(checked.output())),
        Err(Failure::TooLong { .. }) => {
            Ok(Finding::Partly(format!("advisories skipped, no answer within {} s", FETCH_LIMIT.as_secs())))
        }
        Err(failure) => Err(failure),
    }
}

/// The platform that is compiled for: what only others need is not looked at.
fn host() -> Result<String, Failure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let version = process::succeed(Command::new(rustc).arg("-vV"), QUICK)?.stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or(crate::workspace::answer("rustc -vV", "host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_component_is_told_from_a_finding() {
        let cases = [
            ("error: no such command: `fmt`", true),
            ("error: 'cargo-fmt' is not installed for the toolchain 'stable'", true),
            ("Diff in src/main.rs:1", false),
        ];
        for (output, missing) in cases {
            assert_eq!(missing_component(output, "fmt", "rustfmt").is_some(), missing, "{output}");
        }
    }
}
