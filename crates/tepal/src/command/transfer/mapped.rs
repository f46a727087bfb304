//! An image whose data lies in its file as it is: `qemu-img map` says where, and the file is read there. Nothing goes through `qemu-nbd`.

use super::PIECE;
use super::input::{Content, Found, MOST_ZEROS};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
    /// Of a cluster of the image.
    cluster: u64,
    map: Box<dyn BufRead + Send>,
    /// Whoever writes the map.
    child: Option<Child>,
    /// What comes next.
    at: u64,
    run: Option<Run>,
}

impl Mapped {
    /// An image of `size` bytes, in clusters of so many.
    pub fn open(path: &Path, format: &str, (size, cluster): (u64, u64)) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut command = Command::new("qemu-img");
        command.args(["map", "--output=json", "-f", format]).arg(path);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let map = child.stdout.take().ok_or_else(|| io::Error::other("qemu-img has no output"))?;
        let mut mapped = Mapped::of(file, Box::new(BufReader::new(map)), (size, cluster));
        mapped.child = Some(child);
        Ok(mapped)
    }

    fn of(file: File, map: Box<dyn BufRead + Send>, (size, cluster): (u64, u64)) -> Self {
        Mapped { file, size, cluster, map, child: None, at: 0, run: None }
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
            if let Some(errors) = self.child.as_mut().and_then(|child| child.stderr.as_mut()) {
                errors.take(LONGEST_LINE).read_to_string(&mut said)?;
            }
            return Err(self.wrong(&super::image_file::of_interest(&said)));
        }
        let line = line.trim().trim_start_matches('[').trim_end_matches([']', ',']);
        serde_json::from_str(line).map_err(|error| self.wrong(&format!("qemu-img's map isn't understood: {error}")))
    }

    /// Of the file's last cluster only that need be there which was written: the rest is zeros.
    fn read(&self, data: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < data.len() {
            match self.file.read_at(&mut data[filled..], offset + filled as u64) {
                Ok(0) => {
                    let within = (offset + filled as u64) % self.cluster;
                    let rest = &mut data[filled..];
                    // A whole cluster, or more, that isn't there was cut off.
                    if within == 0 || rest.len() as u64 > self.cluster - within {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    rest.fill(0);
                    return Ok(());
                }
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
                    self.read(data, offset).map_err(|error| self.wrong(&error.to_string()))?;
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
        if let Some(child) = &mut self.child {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: u64 = 64 << 10;

    /// A line of a map.
    fn line(start: u64, length: u64, rest: &str) -> String {
        format!("{{ \"start\": {start}, \"length\": {length}, \"depth\": 0, \"present\": true, {rest}}}")
    }

    fn data(start: u64, length: u64, offset: u64) -> String {
        line(start, length, &format!("\"zero\": false, \"data\": true, \"offset\": {offset}"))
    }

    fn zeros(start: u64, length: u64) -> String {
        line(start, length, "\"zero\": true, \"data\": false")
    }

    /// An image of so many bytes that lies in a file of so many, which has no zeros.
    fn image(size: u64, length: u64, lines: &[String]) -> (Mapped, Vec<u8>) {
        let file: Vec<u8> = (0..length).map(|at| (at / 512 % 251) as u8 + 1).collect();
        let mut opened = tempfile::tempfile().expect("space");
        io::Write::write_all(&mut opened, &file).expect("space");
        let map = format!("[{}]\n", lines.join(",\n"));
        (Mapped::of(opened, Box::new(io::Cursor::new(map)), (size, CLUSTER)), file)
    }

    /// All that is told, put together, and how many of its zeros weren't in data.
    fn told(mut mapped: Mapped) -> io::Result<(Vec<u8>, u64)> {
        let (mut bytes, mut data, mut zeros) = (Vec::new(), Vec::new(), 0);
        loop {
            match mapped.next(&mut data)? {
                Found::Data => bytes.extend(&data),
                Found::Zeros(length) => {
                    zeros += length;
                    bytes.resize(bytes.len() + length as usize, 0);
                }
                Found::End => return Ok((bytes, zeros)),
            }
        }
    }

    #[test]
    fn data_is_read_where_it_lies_and_zeros_are_told() {
        let size = 6 * CLUSTER + 1536;
        let lines = [
            data(0, 2 * CLUSTER, 4 * CLUSTER),
            zeros(2 * CLUSTER, CLUSTER),
            zeros(3 * CLUSTER, CLUSTER),
            data(4 * CLUSTER, CLUSTER, CLUSTER),
            zeros(5 * CLUSTER, CLUSTER),
            data(6 * CLUSTER, 1536, 2 * CLUSTER),
        ];
        let (mapped, file) = image(size, 6 * CLUSTER, &lines);
        let mut expected = vec![0; size as usize];
        for (at, length, offset) in
            [(0, 2 * CLUSTER, 4 * CLUSTER), (4 * CLUSTER, CLUSTER, CLUSTER), (6 * CLUSTER, 1536, 2 * CLUSTER)]
        {
            expected[at as usize..(at + length) as usize]
                .copy_from_slice(&file[offset as usize..(offset + length) as usize]);
        }
        let (bytes, zeros) = told(mapped).expect("readable");
        assert!(bytes == expected && zeros == 3 * CLUSTER, "{zeros} zeros");
    }

    #[test]
    fn more_than_is_read_at_once_comes_in_pieces_and_many_zeros_too() {
        let (length, hole) = (2 * READ + CLUSTER, MOST_ZEROS + CLUSTER);
        let size = length + hole;
        let (mut mapped, file) = image(size, length, &[data(0, length, 0), zeros(length, hole)]);
        let (mut read, mut bytes) = (Vec::new(), Vec::<u8>::new());
        for expected in [READ, READ, CLUSTER] {
            assert_eq!(mapped.next(&mut read).expect("readable"), Found::Data);
            assert_eq!(read.len() as u64, expected);
            bytes.extend(&read);
        }
        assert!(bytes == file);
        for expected in [Found::Zeros(MOST_ZEROS), Found::Zeros(CLUSTER), Found::End] {
            assert_eq!(mapped.next(&mut read).expect("zeros"), expected);
        }
    }

    /// Story: an image whose last cluster had never been written to its end was refused, and QEMU reads it.
    #[test]
    fn a_last_cluster_that_ends_past_its_file_ends_with_zeros() {
        for length in [1, 512, CLUSTER - 1] {
            let (mapped, file) = image(2 * CLUSTER, 2 * CLUSTER + length, &[data(0, 2 * CLUSTER, CLUSTER)]);
            let mut expected = file[CLUSTER as usize..].to_vec();
            expected.resize(2 * CLUSTER as usize, 0);
            assert!(told(mapped).expect("it's valid").0 == expected, "{length} bytes of its last cluster");
        }
    }

    #[test]
    fn a_file_that_lacks_a_cluster_is_refused_at_its_byte() {
        for length in [CLUSTER, 2 * CLUSTER, 2 * CLUSTER - 512] {
            let (mapped, _) = image(2 * CLUSTER, length, &[data(0, 2 * CLUSTER, CLUSTER)]);
            let error = told(mapped).expect_err("it's cut off").to_string();
            assert!(error.contains("can't be read at byte 0"), "{error}");
        }
    }

    #[test]
    fn a_map_that_is_not_of_the_whole_file_is_refused() {
        let below = r#"{"start": 0, "length": 65536, "depth": 1, "zero": false, "offset": 0}"#.to_owned();
        let compressed = line(0, CLUSTER, "\"zero\": false, \"data\": true, \"compressed\": true");
        for (lines, what) in [
            (vec![below], "isn't in the file as it is"),
            (vec![compressed], "isn't in the file as it is"),
            (vec![zeros(0, CLUSTER / 2), zeros(CLUSTER, CLUSTER)], "has a gap"),
            (vec![zeros(0, 0)], "has a gap"),
            (vec![zeros(0, CLUSTER / 2)], "the tool says nothing"),
            (vec!["{".to_owned()], "isn't understood"),
        ] {
            let (mapped, _) = image(CLUSTER, CLUSTER, &lines);
            let error = told(mapped).expect_err("it's no map of it").to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
