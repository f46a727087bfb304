//! `cargo xtask release`: Tepal as users get it, in `target/dist`: the binary without what debuggers need, Debian's package, the list
//! of what is inside, and what makes a container of it.
//!
//! The same commit and the same binary give the same bytes: times are the commit's, and whatever has an order is sorted.

mod binary;
mod contents;
mod debian;
mod inventory;
mod moment;
mod target;

use crate::failure::Failure;
use crate::workspace::{self, Workspace};
use clap::Args;
use moment::Moment;
use std::fs;
use std::path::{Path, PathBuf};
use target::Target;

#[derive(Args)]
pub struct Options {
    /// Make everything twice, and compare
    #[arg(long)]
    twice: bool,
    /// Package this binary, which runs here, instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    binary: Option<PathBuf>,
    /// Where everything goes [default: dist in the target folder]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// For which machines: x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu [default: this one's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// What everything is made from.
struct Parts<'a> {
    workspace: &'a Workspace,
    target: &'a Target,
    /// The binary to release, with all that debuggers need.
    built: &'a Path,
    /// One that runs on this machine and writes its own manual.
    runs_here: &'a Path,
    moment: &'a Moment,
    /// With Debian's revision.
    package_version: &'a str,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let target = Target::find(options.target.as_deref())?;
    target.need_tools()?;
    let (built, runs_here) = match &options.binary {
        Some(binary) => (binary.clone(), binary.clone()),
        None => build(workspace, &target)?,
    };
    let moment = Moment::of_last_commit(workspace)?;
    let metadata = workspace.metadata(&["--filter-platform", target.triple])?;
    let package_version = format!("{}-1", inventory::version_of(&metadata, "tepal")?);
    let parts = Parts {
        workspace,
        target: &target,
        built: &built,
        runs_here: &runs_here,
        moment: &moment,
        package_version: &package_version,
    };
    let folder = options.to.clone().unwrap_or_else(|| workspace.target.join("dist"));
    let made = make(&parts, &metadata, &folder)?;
    for file in &made {
        let size = fs::metadata(file).map_err(Failure::file(file))?.len();
        println!("{}: {} KiB", file.display(), size.div_ceil(1024));
    }
    if options.twice {
        let again = folder.join("again");
        let second = make(&parts, &metadata, &again)?;
        compare(&made, &second)?;
        fs::remove_dir_all(&again).map_err(Failure::file(&again))?;
        println!("made twice: {} files are the same, byte for byte", made.len());
    }
    Ok(())
}

/// Every file of the release, from its parts.
fn make(parts: &Parts, metadata: &serde_json::Value, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    let binary = folder.join("tepal");
    binary::strip(parts.built, &binary, parts.target)?;
    let inventory = folder.join("tepal.cdx.json");
    inventory::write(parts, metadata, &inventory)?;
    let container = folder.join("Containerfile");
    let source = parts.workspace.root.join("packaging/Containerfile");
    fs::copy(&source, &container).map_err(Failure::file(&source))?;
    let package = debian::make(parts, &binary, &inventory, folder)?;
    Ok(vec![binary, inventory, container, package])
}

/// The binary to release, and one that runs here: the same, unless it's for other machines.
fn build(workspace: &Workspace, target: &Target) -> Result<(PathBuf, PathBuf), Failure> {
    let runs_here = workspace::build_binary(&mut workspace.cargo(), "tepal")?;
    if target.is_this_machine {
        return Ok((runs_here.clone(), runs_here));
    }
    let mut cargo = workspace.cargo();
    target.link_with(&mut cargo);
    Ok((workspace::build_binary_for(&mut cargo, "tepal", Some(target.triple))?, runs_here))
}

fn compare(first: &[PathBuf], second: &[PathBuf]) -> Result<(), Failure> {
    for (one, other) in first.iter().zip(second) {
        let read = |file: &Path| fs::read(file).map_err(Failure::file(file));
        if read(one)? != read(other)? {
            let (one, other) = (one.display(), other.display());
            return Err(Failure::Usage(format!("made twice, and not the same: compare {one} with {other}")));
        }
    }
    Ok(())
}
