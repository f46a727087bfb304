//! An image on standard input, as what is in it: data, and zeros, which aren't carried on. The holes of a file aren't even read.

use super::{PIECE, fill, is_zero};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io::{self, Read};

/// Bytes that are looked at while they are in the processor's cache.
const CHUNK: usize = 256 << 10;
/// Zeros that are told of at once, so that it's seen that it goes on.
pub const MOST_ZEROS: u64 = 1 << 30;

/// What an image holds, from its beginning to its end.
pub trait Content {
    fn next(&mut self, data: &mut Vec<u8>) -> io::Result<Found>;
}

pub struct Input<'a> {
    file: File,
    /// What was read of it already.
    beginning: &'a [u8],
    /// Where the next byte of a file is that isn't read yet, and where it ends. `None` of what can be read only once.
    place: Option<(u64, u64)>,
    chunk: Box<[u8]>,
    /// Bytes of the chunk that aren't told of yet.
    held: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// In the buffer that was given: at most a piece.
    Data,
    Zeros(u64),
    End,
}

impl<'a> Input<'a> {
    /// `place`: of a file, where its next byte is and where it ends, when the beginning was read.
    pub fn new(file: File, beginning: &'a [u8], place: Option<(u64, u64)>) -> Self {
        widen(&file);
        Input { file, beginning, place, chunk: vec![0; CHUNK].into(), held: 0 }
    }

    fn read(&mut self) -> io::Result<()> {
        let begun = self.beginning.len();
        self.held = fill(&mut (&mut self.beginning).chain(&self.file), &mut self.chunk)?;
        if let Some((at, _)) = &mut self.place {
            *at += (self.held - (begun - self.beginning.len())) as u64;
        }
        Ok(())
    }

    /// Goes on to where a file has data again, and says how far that is.
    fn skip_hole(&mut self) -> io::Result<u64> {
        let Some((at, end)) = self.place else { return Ok(0) };
        let Ok(from) = i64::try_from(at) else { return Ok(0) };
        let to = match lseek(&self.file, from, Whence::SeekData) {
            Ok(to) => u64::try_from(to).unwrap_or(at),
            // There is none, up to its end: that of now, if it has become shorter.
            Err(Errno::ENXIO) => self.file.metadata()?.len().min(end).max(at),
            // Not every filesystem knows its holes.
            Err(_) => at,
        };
        lseek(&self.file, i64::try_from(to).unwrap_or(from), Whence::SeekSet)?;
        self.place = Some((to, end));
        Ok(to - at)
    }

    fn go_back(&mut self, hole: u64) -> io::Result<()> {
        if let Some((at, _)) = &mut self.place {
            *at -= hole;
        }
        let Some((at, _)) = self.place else { return Ok(()) };
        lseek(&self.file, i64::try_from(at).unwrap_or(0), Whence::SeekSet)?;
        Ok(())
    }
}

impl Content for Input<'_> {
    fn next(&mut self, data: &mut Vec<u8>) -> io::Result<Found> {
        data.clear();
        let mut zeros = 0;
        loop {
            if self.held == 0 {
                let hole = if self.beginning.is_empty() { self.skip_hole()? } else { 0 };
                if hole > 0 && !data.is_empty() {
                    // It's found again.
                    self.go_back(hole)?;
                    return Ok(Found::Data);
                }
                zeros += hole;
                self.read()?;
            }
            let chunk = &self.chunk[..self.held];
            match is_zero(chunk) {
                _ if chunk.is_empty() && zeros > 0 => return Ok(Found::Zeros(zeros)),
                _ if chunk.is_empty() && data.is_empty() => return Ok(Found::End),
                true if !data.is_empty() => return Ok(Found::Data),
                false if zeros > 0 => return Ok(Found::Zeros(zeros)),
                true => zeros += chunk.len() as u64,
                false => data.extend(chunk),
            }
            self.held = 0;
            if data.len() as u64 + CHUNK as u64 > PIECE {
                return Ok(Found::Data);
            } else if zeros >= MOST_ZEROS {
                return Ok(Found::Zeros(zeros));
            }
        }
    }
}

/// A pipe holds more at a time, where it may.
pub fn widen(pipe: &File) {
    let _ = nix::fcntl::fcntl(pipe, nix::fcntl::FcntlArg::F_SETPIPE_SZ(1 << 20));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// All that is told, put together, and how many of its zeros weren't in data.
    fn told(mut input: Input<'_>) -> (Vec<u8>, u64) {
        let (mut bytes, mut data, mut zeros) = (Vec::new(), Vec::new(), 0);
        loop {
            match input.next(&mut data).expect("readable") {
                Found::Data => bytes.extend(&data),
                Found::Zeros(length) => {
                    zeros += length;
                    bytes.resize(bytes.len() + length as usize, 0);
                }
                Found::End => return (bytes, zeros),
            }
            assert!(data.len() as u64 <= PIECE);
        }
    }

    /// Twenty MiB: noise at both ends and in the middle, zeros around it.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0; (20 << 20) + 77];
        for at in [0, 8 << 20, 8 << 20 | 4096, (20 << 20) + 76] {
            bytes[at] = 1;
        }
        bytes[10 << 20..19 << 20].fill(7);
        bytes
    }

    #[test]
    fn what_is_told_of_a_pipe_is_all_that_is_in_it() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let writing = std::thread::spawn(move || writer.write_all(&image()[5..]).expect("a reader"));
        let (bytes, zeros) = told(Input::new(File::from(std::os::fd::OwnedFd::from(reader)), &image()[..5], None));
        writing.join().expect("no panic");
        assert!(bytes == image() && zeros > 9 << 20, "{zeros} zeros");
    }

    /// Story: a file was cut off while it was imported, and what it had had there was zeros in the volume, which was whole.
    #[test]
    fn what_was_cut_off_a_file_is_no_zeros() {
        let file = tempfile::NamedTempFile::new().expect("space");
        file.as_file().write_all_at(&image(), 0).expect("space");
        let mut input = Input::new(file.reopen().expect("there"), &[], Some((0, (20 << 20) + 77)));
        let mut data = Vec::new();
        assert_eq!(input.next(&mut data).expect("readable"), Found::Data);
        file.as_file().set_len(9 << 20).expect("shorter");
        let (rest, _) = told(input);
        assert_eq!(data.len() + rest.len(), 9 << 20);
    }

    #[test]
    fn what_is_told_of_a_sparse_file_is_all_that_is_in_it() {
        for written in [vec![0..1, 8 << 20..9 << 20, 10 << 20..19 << 20, 20 << 20..(20 << 20) + 77], vec![]] {
            let file = tempfile::NamedTempFile::new().expect("space");
            file.as_file().set_len((20 << 20) + 77).expect("space");
            let mut expected = vec![0; (20 << 20) + 77];
            for part in written {
                file.as_file().write_all_at(&image()[part.clone()], part.start as u64).expect("space");
                expected[part.clone()].copy_from_slice(&image()[part]);
            }
            let mut file = file.reopen().expect("there");
            let mut beginning = [0; 8];
            file.read_exact(&mut beginning).expect("so long it is");
            let (bytes, zeros) = told(Input::new(file, &beginning, Some((8, (20 << 20) + 77))));
            assert!(bytes == expected && zeros > 9 << 20, "{zeros} zeros");
        }
    }
}
