//! The terminal while `top` has it: the alternate screen, keys without Enter, and all as it was when this is dropped.

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// Of a terminal that doesn't say.
const USUAL: (usize, usize) = (24, 80);
/// A signal is noticed by then.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

pub enum Key {
    End,
    Letter(char),
}

pub struct Screen {
    /// How the terminal was.
    before: libc::termios,
}

impl Screen {
    pub fn open() -> io::Result<Screen> {
        let mut now = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: the descriptor is open, and there's room for the answer.
        if unsafe { libc::tcgetattr(io::stdin().as_raw_fd(), now.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was filled in.
        let before = unsafe { now.assume_init() };
        let mut wanted = before;
        // Signals go on to come from keys.
        wanted.c_lflag &= !(libc::ICANON | libc::ECHO);
        set(&wanted)?;
        let screen = Screen { before };
        let mut out = io::stdout().lock();
        out.write_all(OPEN.as_bytes())?;
        out.flush()?;
        Ok(screen)
    }

    /// Lines and columns.
    pub fn size(&self) -> (usize, usize) {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is open, and there's room for the answer.
        let told = unsafe { libc::ioctl(io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
        match (told, size.ws_row, size.ws_col) {
            (0, rows @ 1.., columns @ 1..) => (rows.into(), columns.into()),
            _ => USUAL,
        }
    }

    /// In one write, so that nothing flickers.
    pub fn draw(&mut self, lines: impl Iterator<Item = impl AsRef<str>>) -> io::Result<()> {
        let lines: Vec<String> = lines.map(|line| format!("{}{CLEAR_LINE}", line.as_ref())).collect();
        let mut out = io::stdout().lock();
        write!(out, "{HOME}{}{CLEAR_BELOW}", lines.join("\r\n"))?;
        out.flush()
    }

    /// The next key within this time, or a bit less.
    pub fn key(&mut self, time: Duration) -> io::Result<Option<Key>> {
        let stdin = io::stdin();
        let millis = u16::try_from(time.min(LONGEST_WAIT).as_millis()).unwrap_or(0);
        let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut asked, PollTimeout::from(millis)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut keys = [0; 16];
        let length = stdin.lock().read(&mut keys)?;
        Ok(match keys[..length] {
            // The terminal has gone, or says that it ends.
            [] | [b'q' | b'Q' | 4, ..] => Some(Key::End),
            [key, ..] => Some(Key::Letter(char::from(key))),
        })
    }
}

fn set(wanted: &libc::termios) -> io::Result<()> {
    // SAFETY: the descriptor is open, and what is wanted lives.
    match unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSADRAIN, wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing any more.
        let mut out = io::stdout().lock();
        let _ = out.write_all(CLOSE.as_bytes()).and_then(|()| out.flush());
        let _ = set(&self.before);
    }
}
