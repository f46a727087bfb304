//! `cargo xtask bench import`: a sparse image of a virtual machine, imported beside `qemu-img convert` of it to a file in memory.

use super::report::{Circumstances, Report, head, verdicts};
use super::systems::{MEMORY, Scratch, Tepal};
use super::targets::{Bound, Target, median};
use crate::failure::Failure;
use crate::process;
use crate::workspace::{Workspace, answer};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What the image holds, in pieces at equal distances.
const SIZE_GIB: u64 = 1024;
const PIECES: u64 = 16;
const PIECE_MIB: u64 = 64;
const LIMIT: Duration = Duration::from_secs(120);
/// Beside `qemu-img convert`.
const TIMES: f64 = 1.2;

#[derive(Args)]
pub struct Options {
    /// How often each is done
    #[arg(long, default_value_t = 7)]
    reps: u32,
    /// A program that was built before
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Save nothing
    #[arg(long)]
    dry: bool,
    /// End with status 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

/// One after the other.
struct Pair {
    convert: Duration,
    import: Duration,
    /// Bytes that the volume takes.
    taken: u64,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => workspace.binary("tepal")?,
    };
    let (circumstances, scratch) = (Circumstances::here(), Scratch::new(Path::new(MEMORY))?);
    let (image, raw) = (scratch.file("image.qcow2"), scratch.file("image.raw"));
    make(&image)?;
    let tepal = Tepal::start(&program, &["--servers", "1", "--drives", "4"], "1G", &[])?;
    let mut pairs = Vec::new();
    for repetition in 1..=options.reps {
        let pair = both(&tepal, &image, &raw)?;
        println!(
            "{repetition}\tconvert {:.2} s\timport {:.2} s",
            pair.convert.as_secs_f64(),
            pair.import.as_secs_f64()
        );
        pairs.push(pair);
    }
    let of = |figure: fn(&Pair) -> f64| median(pairs.iter().map(figure).collect());
    let data = (PIECES * PIECE_MIB) << 20;
    let taken = pairs.iter().map(|pair| pair.taken as f64 / data as f64).fold(0.0, f64::max);
    let targets = vec![
        Target {
            what: "time of an import beside `qemu-img convert`, in the same repetition".into(),
            bound: Bound::AtMost(TIMES),
            measured: of(|pair| pair.import.as_secs_f64() / pair.convert.as_secs_f64()),
        },
        Target {
            what: "bytes that the volume takes, of those that the image has".into(),
            bound: Bound::AtMost(1.05),
            measured: Some(taken),
        },
    ];
    let mut text = head(&circumstances, "import", "A sparse image");
    text += &format!(
        "A qcow2 of {SIZE_GIB} GiB with {PIECES} pieces of {PIECE_MIB} MiB of data, in /dev/shm: `qemu-img convert` to a raw file in /dev/shm, and \
         `tepal volume import` to a new volume (`stripe`) of one server with four drives in /dev/shm, {} times in turn.\n\n",
        options.reps
    );
    text += &verdicts(&targets);
    text += "\n| seconds | median | of all |\n| --- | --- | --- |\n";
    for (name, figure) in [
        ("convert", (|pair| pair.convert.as_secs_f64()) as fn(&Pair) -> f64),
        ("import", |pair| pair.import.as_secs_f64()),
    ] {
        let all: Vec<String> = pairs.iter().map(|pair| format!("{:.2}", figure(pair))).collect();
        text += &format!("| {name} | {:.2} | {} |\n", of(figure).unwrap_or_default(), all.join(", "));
    }
    let report = Report { name: "import", text, files: Vec::new(), targets };
    report.publish(workspace, !options.dry, options.strict)
}

fn make(image: &Path) -> Result<(), Failure> {
    let size = format!("{SIZE_GIB}G");
    process::succeed(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(image).arg(size), LIMIT)?;
    let mut write = Command::new("qemu-io");
    write.args(["-f", "qcow2"]);
    for piece in 0..PIECES {
        let at = piece * (SIZE_GIB / PIECES);
        write.arg("-c").arg(format!("write -P {} {at}G {PIECE_MIB}M", piece + 1));
    }
    process::succeed(write.arg(image), LIMIT).map(drop)
}

fn both(tepal: &Tepal, image: &Path, raw: &Path) -> Result<Pair, Failure> {
    let _ = std::fs::remove_file(raw); // there is none the first time
    let began = Instant::now();
    process::succeed(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(image).arg(raw), LIMIT)?;
    let convert = began.elapsed();
    let from = image.to_string_lossy();
    let import = tepal.manage(&["volume", "import", "v", "--layout", "stripe", "--from", &from])?;
    let volume = tepal.ask(&["volume", "show", "v"])?;
    let taken = volume["allocated"].as_u64().ok_or(answer("volume show", "allocated"))?;
    tepal.manage(&["volume", "rm", "v"])?;
    Ok(Pair { convert, import, taken })
}
