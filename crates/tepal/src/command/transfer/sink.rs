//! Where an export goes, with holes where that can have some.

use super::input::widen;
use super::{HOLE, is_zero};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;

/// In a regular file that is empty from here on, zeros are skipped; anything else gets them.
pub struct Sink {
    file: File,
    way: Way,
    is_pipe: bool,
}

enum Way {
    Stream,
    /// The end so far is a hole that the file's length doesn't cover yet.
    Sparse {
        pending: u64,
    },
}

impl Sink {
    pub fn new(mut file: File) -> Self {
        let at_the_end = |file: &mut File| -> io::Result<bool> {
            let found = file.metadata()?;
            // With O_APPEND, writes go to the end wherever one seeks.
            let flags = nix::fcntl::fcntl(&*file, nix::fcntl::FcntlArg::F_GETFL)?;
            let appends = flags & nix::libc::O_APPEND != 0;
            Ok(found.is_file() && !appends && file.stream_position()? >= found.len())
        };
        let way = if at_the_end(&mut file).unwrap_or(false) { Way::Sparse { pending: 0 } } else { Way::Stream };
        let is_pipe = file.metadata().is_ok_and(|found| found.file_type().is_fifo());
        if is_pipe {
            widen(&file);
        }
        Sink { file, way, is_pipe }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Way::Sparse { .. } = self.way else { return self.file.write_all(bytes) };
        for piece in bytes.chunks(HOLE) {
            if is_zero(piece) {
                self.skip(piece.len() as u64)?;
            } else {
                self.settle()?;
                self.file.write_all(piece)?;
            }
        }
        Ok(())
    }

    pub fn skip(&mut self, length: u64) -> io::Result<()> {
        match &mut self.way {
            Way::Sparse { pending } => *pending += length,
            Way::Stream => {
                let mut left = length;
                while left > 0 {
                    left -= self.some_zeros(left)?;
                }
            }
        }
        Ok(())
    }

    /// Into a pipe go the same few pages again and again, which nobody has to copy.
    fn some_zeros(&mut self, most: u64) -> io::Result<u64> {
        static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
        let zeros = &ZEROS[..most.min(ZEROS.len() as u64) as usize];
        if self.is_pipe {
            let pages = nix::libc::iovec { iov_base: zeros.as_ptr().cast_mut().cast(), iov_len: zeros.len() };
            // Safety: the pages never change, and are there as long as the process.
            let taken = unsafe { nix::libc::vmsplice(self.file.as_raw_fd(), &pages, 1, 0) };
            match u64::try_from(taken) {
                Ok(taken) if taken > 0 => return Ok(taken),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => return Ok(0),
                _ => self.is_pipe = false,
            }
        }
        self.file.write_all(zeros)?;
        Ok(zeros.len() as u64)
    }

    fn settle(&mut self) -> io::Result<()> {
        if let Way::Sparse { pending } = &mut self.way
            && let Ok(forward) = i64::try_from(std::mem::take(pending))
            && forward > 0
        {
            self.file.seek(SeekFrom::Current(forward))?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.settle()?;
        if let Way::Sparse { .. } = self.way {
            let end = self.file.stream_position()?;
            if self.file.metadata()?.len() < end {
                self.file.set_len(end)?;
            }
        }
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    /// Two megabytes of holes around one piece of data, with a zero byte where a hole can't be.
    fn put(sink: &mut Sink) -> Vec<u8> {
        let mut bytes = vec![0; 3 * HOLE];
        bytes[HOLE + 5] = 9;
        sink.skip(1 << 20).expect("space");
        sink.write(&bytes).expect("space");
        sink.skip(1 << 20).expect("space");
        [vec![0; 1 << 20], bytes, vec![0; 1 << 20]].concat()
    }

    #[test]
    fn holes_stay_holes_in_an_empty_file() {
        let file = tempfile::NamedTempFile::new().expect("space");
        let mut sink = Sink::new(file.reopen().expect("there"));
        let expected = put(&mut sink);
        sink.finish().expect("space");
        assert_eq!(std::fs::read(file.path()).expect("there"), expected);
        assert!(file.as_file().metadata().expect("there").blocks() * 512 < 1 << 20);
    }

    #[test]
    fn in_a_file_that_has_bytes_already_holes_are_written_as_zeros() {
        let mut file = tempfile::NamedTempFile::new().expect("space");
        file.write_all(&vec![0xff; 4 << 20]).expect("space");
        let mut sink = Sink::new(file.reopen().expect("there"));
        let expected = put(&mut sink);
        sink.finish().expect("space");
        assert_eq!(std::fs::read(file.path()).expect("there")[..expected.len()], expected);
    }

    #[test]
    fn a_pipe_gets_every_zero() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let reading = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        let mut sink = Sink::new(File::from(std::os::fd::OwnedFd::from(writer)));
        let expected = put(&mut sink);
        sink.finish().expect("a reader");
        assert_eq!(reading.join().expect("no panic").expect("readable"), expected);
    }
}
