//! An image whose data lies in its file as it is: `qemu-img map` says where, and the file is read there. Nothing goes through `qemu-nbd`.

use super::PIECE;
use super::input::{Content, Found, MOST_ZEROS};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Bytes that are read at once.
const READ: u64 = PIECE / 2;
/// Of a line of the map, and of an error.
const LONGEST_LINE: u64 = 64 << 10;

/// A line of the map.
#[derive(Debug, Deserialize)]
struct Run {
    start: u64,
    length: u64,
    zero: bool,
    /// Where it is in the file, if it's there.
    offset: Option<u64>,
    /// How many files lie above the one that has it.
    depth: u64,
}

pub struct Mapped {
    file: File,
    size: u64,
    child: Child,
    map: BufReader<ChildStdout>,
    /// What comes next.
    at: u64,
    run: Option<Run>,
}

impl Mapped {
    pub fn open(path: &Path, format: &str, size: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut command = Command::new("qemu-img");
        command.args(["map", "--output=json", "-f", format]).arg(path);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let map = child.stdout.take().ok_or_else(|| io::Error::other("qemu-img has no output"))?;
        Ok(Mapped { file, size, child, map: BufReader::new(map), at: 0, run: None })
    }

    /// What the map says of the byte that comes next.
    fn run(&mut self) -> io::Result<(u64, Option<u64>)> {
        if self.run.as_ref().is_none_or(|run| run.start + run.length <= self.at) {
            let run = self.line()?;
            if run.start != self.at || run.length == 0 || run.start.checked_add(run.length).is_none() {
                return Err(self.wrong("qemu-img's map has a gap"));
            }
            self.run = Some(run);
        }
        let Some(run) = &self.run else { return Err(self.wrong("there is no map")) };
        let (within, left) = (self.at - run.start, (run.start + run.length).min(self.size) - self.at);
        match (run.zero, run.offset) {
            (true, _) => Ok((left, None)),
            (false, Some(offset)) if run.depth == 0 => Ok((left, Some(offset + within))),
            (false, _) => Err(self.wrong("it isn't in the file as it is")),
        }
    }

    fn line(&mut self) -> io::Result<Run> {
        let mut line = String::new();
        if (&mut self.map).take(LONGEST_LINE).read_line(&mut line)? == 0 {
            let mut said = String::new();
            if let Some(errors) = self.child.stderr.as_mut() {
                errors.take(LONGEST_LINE).read_to_string(&mut said)?;
            }
            return Err(self.wrong(&super::image_file::of_interest(&said)));
        }
        let line = line.trim().trim_start_matches('[').trim_end_matches([']', ',']);
        serde_json::from_str(line).map_err(|error| self.wrong(&format!("qemu-img's map isn't understood: {error}")))
    }

    fn wrong(&self, what: &str) -> io::Error {
        io::Error::other(format!("the image can't be read at byte {}: {what}", self.at))
    }
}

impl Content for Mapped {
    fn next(&mut self, data: &mut Vec<u8>) -> io::Result<Found> {
        let mut zeros = 0;
        while self.at < self.size {
            match self.run()? {
                (length, None) => {
                    let length = length.min(MOST_ZEROS - zeros);
                    (self.at, zeros) = (self.at + length, zeros + length);
                    if zeros == MOST_ZEROS {
                        break;
                    }
                }
                _ if zeros > 0 => break,
                (length, Some(offset)) => {
                    // What is in the buffer is written over.
                    data.resize(length.min(READ) as usize, 0);
                    self.file.read_exact_at(data, offset).map_err(|error| self.wrong(&error.to_string()))?;
                    self.at += data.len() as u64;
                    return Ok(Found::Data);
                }
            }
        }
        Ok(if zeros > 0 { Found::Zeros(zeros) } else { Found::End })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}
