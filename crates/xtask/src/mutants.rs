//! `cargo xtask mutants`: does the simulator notice what it's there to notice?
//!
//! Each `tests/mutants/NAME.patch` breaks one promise. It's applied to a copy of the tree, so that production code carries no
//! switch for it, and the simulator must refuse some history within the given number of seeds. The copy without a patch is
//! the control: there every history that caught a mutant must pass, or its failure would mean nothing. A patch that no
//! longer applies is a failure too: a mutant that isn't made isn't caught.
//!
//! Most of the time goes by building, so the copy has one target folder, in which only the simulator is built, with less
//! optimisation than what users get.

use crate::failure::Failure;
use crate::process;
use crate::sim::{self, Outcome};
use crate::workspace::{self, Workspace};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FOLDER: &str = "tests/mutants";
const QUICK: Duration = Duration::from_secs(60);
/// Characters of what is said of a mutant that was caught.
const LONGEST_VERDICT: usize = 160;
/// A mutant may hang instead of failing; that is noticed, and counts as caught.
const HANG: Duration = Duration::from_secs(15 * 60);
/// Most mutants fall soon, so the first rounds are short; (first seed, how many) doubles from here.
const FIRST_ROUND: u64 = 16;

#[derive(Args)]
pub struct Options {
    /// Within how many seeds each mutant must be caught
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Only mutants whose name contains this
    filter: Option<String>,
}

/// What became of one mutant, or of the control.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Survived,
    Caught { seeds: u64, said: String },
    NotMade(String),
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let patches = patches(&workspace.root.join(FOLDER), options.filter.as_deref())?;
    if patches.is_empty() {
        return Err(Failure::Usage("no mutants: tests/mutants/ has no *.patch of that name".into()));
    }
    let copy = Copy {
        workspace,
        folder: workspace.target.join("mutants/tree"),
        built: workspace.target.join("mutants/target"),
    };
    let mut rows = vec![["mutant", "seeds", "time", "verdict"].map(str::to_owned)];
    let mut wrong = 0;
    let mut control = FIRST_ROUND.min(options.seeds);
    for patch in patches.iter().map(Some).chain(std::iter::once(None)) {
        let name = patch.map_or("(none: the control)".into(), |patch| name_of(patch));
        let began = Instant::now();
        let limit = if patch.is_some() { options.seeds } else { control };
        let verdict = copy.mutate(patch.map(PathBuf::as_path), limit)?;
        let took = began.elapsed();
        let right = matches!((patch, &verdict), (None, Verdict::Survived) | (Some(_), Verdict::Caught { .. }));
        wrong += usize::from(!right);
        let row = row(&name, &verdict, limit, took, right);
        eprintln!("{}", row.join(", "));
        rows.push(row);
        if let Verdict::Caught { seeds, .. } = verdict {
            control = control.max(seeds);
        }
    }
    print!("{}", table(&rows));
    if wrong > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// Each patch that no longer applies to the tree, and what is said of it.
pub fn outdated(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let mut outdated = Vec::new();
    for patch in patches(&workspace.root.join(FOLDER), None)? {
        let checked = process::capture(apply(&workspace.root).arg("--check").arg(&patch), QUICK)?;
        if !checked.status.success() {
            outdated.push(format!("{FOLDER}/{}.patch: {}", name_of(&patch), first_line(&checked.output())));
        }
    }
    Ok(outdated)
}

/// The command that applies a patch, which comes last, to the tree in that folder.
fn apply(folder: &Path) -> Command {
    let mut git = Command::new("git");
    // A copy is no repository, and may lie inside one whose paths are not these.
    git.current_dir(folder).env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    git.args(["apply", "--recount", "-C1"]);
    git
}

fn row(name: &str, verdict: &Verdict, limit: u64, took: Duration, right: bool) -> [String; 4] {
    let (seeds, said) = match verdict {
        Verdict::Survived if right => (limit.to_string(), "passed".into()),
        Verdict::Survived => (limit.to_string(), "SURVIVED: nothing was noticed".into()),
        Verdict::Caught { seeds, said } if right => {
            // What differs may be long: the simulator tells all of it when it's asked for the seed.
            let beginning: String = said.chars().take(LONGEST_VERDICT).collect();
            (seeds.to_string(), format!("caught: {beginning}"))
        }
        Verdict::Caught { seeds, said } => (seeds.to_string(), format!("FAILED without any mutation: {said}")),
        Verdict::NotMade(why) => ("-".into(), format!("NOT MADE: {why}")),
    };
    [name.to_owned(), seeds, format!("{:.0} s", took.as_secs_f32()), said]
}

/// A copy of the tree, always in the same place, so that cargo compiles only what a patch touches.
struct Copy<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    built: PathBuf,
}

impl Copy<'_> {
    /// Makes the mutant and runs the simulator on it.
    fn mutate(&self, patch: Option<&Path>, seeds: u64) -> Result<Verdict, Failure> {
        self.restore()?;
        if let Some(patch) = patch {
            let applied = process::capture(apply(&self.folder).arg(patch), QUICK)?;
            if !applied.status.success() {
                return Ok(Verdict::NotMade(first_line(&applied.output())));
            }
        }
        let mut cargo = self.workspace.cargo();
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.built);
        cargo.envs([("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"), ("CARGO_PROFILE_RELEASE_DEBUG", "false")]);
        // Only what a patch touches is compiled, and little of the rest once more.
        cargo.envs([("CARGO_INCREMENTAL", "1"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64")]);
        let simulator = match workspace::build_binary(&mut cargo, "sim") {
            Ok(simulator) => simulator,
            Err(Failure::Ended { .. }) => return Ok(Verdict::NotMade("it doesn't compile".into())),
            Err(failure) => return Err(failure),
        };
        hunt(seeds, |first, seeds| sim::many(&simulator, first, seeds, HANG, &[]))
    }

    /// Makes the copy equal to the tree. A file that is the same is left alone, with its time of change.
    fn restore(&self) -> Result<(), Failure> {
        let wanted = self.workspace.files()?;
        for path in &wanted {
            copy(&self.workspace.root.join(path), &self.folder.join(path))?;
        }
        let wanted: BTreeSet<PathBuf> = wanted.into_iter().collect();
        for path in walk(&self.folder, Path::new(""))? {
            // cargo may have written a lock file of its own; the tree's is committed, and so among the wanted.
            if !wanted.contains(&path) {
                let file = self.folder.join(path);
                std::fs::remove_file(&file).map_err(Failure::file(&file))?;
            }
        }
        Ok(())
    }
}

/// Runs seeds in rounds of growing size until one fails or all have passed.
fn hunt(seeds: u64, mut round: impl FnMut(u64, u64) -> Result<Outcome, Failure>) -> Result<Verdict, Failure> {
    let mut first = 0;
    while first < seeds {
        let count = FIRST_ROUND.max(first).min(seeds - first);
        match round(first, count) {
            Ok(Outcome::Passed) => first += count,
            Ok(Outcome::Failed { seed, said }) => {
                let seeds = seed.map_or(first + count, |seed| seed + 1);
                return Ok(Verdict::Caught { seeds, said: verdict_line(&said) });
            }
            Err(Failure::TooLong { .. }) => {
                return Ok(Verdict::Caught { seeds: first + count, said: "it hangs".into() });
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(Verdict::Survived)
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let folder = to.parent().unwrap_or(to);
    std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    if from.is_symlink() {
        let target = std::fs::read_link(from).map_err(Failure::file(from))?;
        if std::fs::read_link(to).ok().as_ref() == Some(&target) {
            return Ok(());
        }
        let _ = std::fs::remove_file(to); // absent, mostly
        return std::os::unix::fs::symlink(&target, to).map_err(Failure::file(to));
    }
    let bytes = std::fs::read(from).map_err(Failure::file(from))?;
    if std::fs::read(to).ok().as_ref() != Some(&bytes) {
        std::fs::write(to, bytes).map_err(Failure::file(to))?;
    }
    Ok(())
}

/// Every file below `root`, relative to it.
fn walk(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let place = root.join(folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&place).map_err(Failure::file(&place))? {
        let entry = entry.map_err(Failure::file(&place))?;
        let path = folder.join(entry.file_name());
        match entry.file_type().map_err(Failure::file(&place))?.is_dir() {
            true => found.extend(walk(root, &path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

fn patches(folder: &Path, filter: Option<&str>) -> Result<Vec<PathBuf>, Failure> {
    let mut patches = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Failure::file(folder))? {
        let path = entry.map_err(Failure::file(folder))?.path();
        let wanted = filter.is_none_or(|filter| name_of(&path).contains(filter));
        if path.extension().is_some_and(|extension| extension == "patch") && wanted {
            patches.push(path);
        }
    }
    patches.sort();
    Ok(patches)
}

fn name_of(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn first_line(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given").trim().to_owned()
}

/// What the checker said, in a line: after the one that names the seed, and with its message where that is a panic's.
fn verdict_line(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| line.starts_with("seed ")).map(str::trim);
    match (lines.next(), lines.next()) {
        (Some(place), Some(message)) if place.ends_with(':') => format!("{place} {message}"),
        (Some(line), _) => line.to_owned(),
        (None, _) => first_line(said),
    }
}

/// Columns as wide as their widest cell, in characters.
fn table(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (w0, w1, w2) = (width(0), width(1), width(2));
    let line = |row: &[String; 4]| format!("{:w0$}  {:>w1$}  {:>w2$}  {}\n", row[0], row[1], row[2], row[3]);
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulator whose history of seed `bad` fails.
    fn failing_at(bad: u64) -> impl FnMut(u64, u64) -> Result<Outcome, Failure> {
        move |first, count| {
            Ok(match (first..first + count).contains(&bad) {
                true => Outcome::Failed { seed: Some(bad), said: format!("seed {bad} failed\nwrong bytes") },
                false => Outcome::Passed,
            })
        }
    }

    #[test]
    fn the_hunt_ends_at_the_first_failure_and_reaches_every_seed() {
        for bad in [0, 1, 15, 16, 500, 999] {
            let caught = Verdict::Caught { seeds: bad + 1, said: "wrong bytes".into() };
            assert_eq!(hunt(1000, failing_at(bad)).unwrap(), caught);
        }
        assert_eq!(hunt(1000, failing_at(1000)).unwrap(), Verdict::Survived);
    }

    #[test]
    fn a_mutant_that_hangs_is_caught() {
        let hangs = |_, _| Err(Failure::TooLong { what: "sim".into(), seconds: 1, output: String::new() });
        assert_eq!(hunt(100, hangs).unwrap(), Verdict::Caught { seeds: 16, said: "it hangs".into() });
    }

    #[test]
    fn a_control_that_fails_is_not_called_caught() {
        let caught = Verdict::Caught { seeds: 3, said: "seed 2: x".into() };
        let verdict = |verdict: &Verdict| row("name", verdict, 10, Duration::ZERO, false)[3].clone();
        assert!(verdict(&caught).starts_with("FAILED without any mutation"));
        assert!(verdict(&Verdict::Survived).starts_with("SURVIVED"));
    }

    #[test]
    fn the_verdict_is_what_the_checker_or_a_panic_said() {
        let cases = [
            ("seed 1 failed, scenario a\nblock 3 is old\nreplay: x", "block 3 is old"),
            ("seed 1 failed, scenario a\npanicked at a.rs:1:2:\nno slot\n  frame", "panicked at a.rs:1:2: no slot"),
            ("stack overflow", "stack overflow"),
            ("", "no reason given"),
        ];
        for (said, verdict) in cases {
            assert_eq!(verdict_line(said), verdict, "{said}");
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "10", "9 s", "x"], ["long", "1", "12 s", "y"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "a     10   9 s  x\nlong   1  12 s  y\n");
    }
}
