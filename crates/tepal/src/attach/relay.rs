//! Between the kernel's NBD client and ours. The kernel has one end of a socket pair, which stays whole for as long as
//! this process lives, so it never notices that a server went away; our client resends what that one didn't answer.

use super::nbd::client::{Client, Done};
use super::nbd::range::{self, Longest};
use super::nbd::wire::{self, Flags, Operation, REQUEST_SIZE, RequestHeader};
use bytes::Bytes;
use nix::errno::Errno;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What the kernel is told that the volume can do. Its requests map one to one onto ours, also TRIM (of which the
/// kernel, unlike the loop driver, expects no zeros).
const PASSED_ON: Flags = Flags(
    Flags::HAS_FLAGS.0 | Flags::FLUSH.0 | Flags::FUA.0 | Flags::TRIM.0 | Flags::WRITE_ZEROES.0 | Flags::READ_ONLY.0,
);

pub fn flags(of_export: Flags, read_only: bool) -> Flags {
    let flags = of_export.and(PASSED_ON).or(Flags::HAS_FLAGS);
    if read_only { flags.or(Flags::READ_ONLY) } else { flags }
}

/// Serves the kernel on `ours` until it lets go of its end; then calls `ended`.
pub fn serve(client: Arc<Client>, ours: UnixStream, ended: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let answers = Arc::new(Mutex::new(ours.try_clone()?));
    thread::Builder::new().name("kernel-nbd".into()).spawn(move || {
        match take_requests(&client, ours, &answers) {
            Ok(()) => {}
            Err(error) => tracing::error!("the kernel's NBD client: {error}"),
        }
        ended();
    })?;
    Ok(())
}

fn take_requests(client: &Client, mut requests: UnixStream, answers: &Arc<Mutex<UnixStream>>) -> io::Result<()> {
    loop {
        let mut header = [0; REQUEST_SIZE];
        match requests.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let header =
            RequestHeader::decode(&header).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let RequestHeader { offset, length, .. } = header;
        let fua = header.flags & wire::command_flag::FUA != 0;
        let done = answer(Arc::clone(answers), header.cookie);
        match header.kind {
            wire::command::READ => client.submit(Operation::Read { offset, length }, done),
            wire::command::WRITE => {
                let mut data = Vec::with_capacity(length as usize);
                (&mut requests).take(u64::from(length)).read_to_end(&mut data)?;
                if data.len() < length as usize {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                client.submit(Operation::Write { offset, data: Bytes::from(data), fua }, done);
            }
            wire::command::FLUSH => client.submit(Operation::Flush, done),
            wire::command::TRIM => {
                let piece = move |offset, length| Operation::Trim { offset, length, fua };
                range::submit(client, (offset, length.into()), Longest::Request, piece, done);
            }
            wire::command::WRITE_ZEROES => {
                let no_hole = header.flags & wire::command_flag::NO_HOLE != 0;
                let piece = move |offset, length| Operation::WriteZeroes { offset, length, no_hole, fua };
                let longest = if no_hole { Longest::Maximum } else { Longest::Request };
                range::submit(client, (offset, length.into()), longest, piece, done);
            }
            wire::command::DISC => return Ok(()),
            _ => done(Err(Errno::EINVAL)),
        }
    }
}

/// Tells the kernel. It has a thread that only reads answers, so this waits for nothing but that.
fn answer(answers: Arc<Mutex<UnixStream>>, cookie: u64) -> Done {
    Box::new(move |answer| {
        let (error, data) = match answer {
            Ok(data) => (0, data),
            Err(error) => (error as u32, &[][..]),
        };
        let header = wire::simple_reply(error, cookie);
        let mut stream = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slices = [IoSlice::new(&header), IoSlice::new(data)];
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match stream.write_vectored(left) {
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return, // the kernel let go of the device, and with it of the request
            }
        }
    })
}
