//! The kernel's NBD client, asked over generic netlink (`include/uapi/linux/nbd-netlink.h` of Linux).
//!
//! By hand, since it's three short messages: the crate for it only knows how to connect, and the general one polls.
//!
//! | message | length u32 | type u16 | flags u16 | sequence u32 | port u32 | command u8 | version u8 | 0 u16 | attributes |
//! | attribute | length u16, with these four bytes | type u16 | payload | zeros to a multiple of 4 |
//!
//! All numbers are in the machine's own order.

use super::nbd::wire::Flags;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, sendto, socket,
};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONTROL_FAMILY: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;
const NESTED: u16 = 1 << 15;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR: u16 = 2;

const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The kernel's NBD, if it's there.
pub struct KernelNbd {
    socket: OwnedFd,
    family: u16,
}

impl KernelNbd {
    /// `None` if the kernel has no NBD, or has not loaded it.
    pub fn find() -> io::Result<Option<KernelNbd>> {
        let kind = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, kind, SockProtocol::NetlinkGeneric)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let mut attributes = Vec::new();
        put(&mut attributes, FAMILY_NAME, b"nbd\0");
        let control = KernelNbd { socket, family: CONTROL_FAMILY };
        match control.ask(GET_FAMILY, &attributes) {
            Ok(answer) => {
                let id = find(&answer, FAMILY_ID).and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
                Ok(id.map(|family| KernelNbd { socket: control.socket, family }))
            }
            Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the kernel a socket to a server, and gets a device. There's no time limit on its requests.
    pub fn connect(&self, socket: BorrowedFd<'_>, size: u64, block: u32, flags: Flags) -> io::Result<PathBuf> {
        let mut descriptor = Vec::new();
        put(&mut descriptor, SOCKET_FD, &(socket.as_raw_fd() as u32).to_ne_bytes());
        let mut item = Vec::new();
        put(&mut item, SOCKET_ITEM | NESTED, &descriptor);
        let mut attributes = Vec::new();
        put(&mut attributes, SIZE_BYTES, &size.to_ne_bytes());
        put(&mut attributes, BLOCK_SIZE_BYTES, &u64::from(block).to_ne_bytes());
        put(&mut attributes, SERVER_FLAGS, &u64::from(flags.0).to_ne_bytes());
        put(&mut attributes, SOCKETS | NESTED, &item);
        let answer = self.ask(CONNECT, &attributes)?;
        let index = find(&answer, INDEX).and_then(|index| Some(u32::from_ne_bytes(index.try_into().ok()?)));
        let index = index.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel named no device"))?;
        Ok(PathBuf::from(format!("/dev/nbd{index}")))
    }

    pub fn grow(&self, device: &Path, size: u64) -> io::Result<()> {
        let mut attributes = index_of(device)?;
        put(&mut attributes, SIZE_BYTES, &size.to_ne_bytes());
        self.ask(RECONFIGURE, &attributes).map(drop)
    }

    /// Ends the device, and waits until it's free.
    pub fn disconnect(&self, device: &Path) -> io::Result<()> {
        self.ask(DISCONNECT, &index_of(device)?)?;
        let deadline = Instant::now() + RELEASE_LIMIT;
        while pid_of(device).is_some() {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "somebody keeps the device open"));
            }
            std::thread::sleep(Duration::from_millis(5)); // there's no way to wait for it
        }
        Ok(())
    }

    /// One request. Gives the attributes of the answer, which are none if the kernel only acknowledged.
    fn ask(&self, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        let message = message(self.family, command, attributes);
        sendto(self.socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut answer = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let received = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..received];
            while rest.len() >= HEADER {
                let length = u32_at(rest, 0) as usize;
                let Some(one) = rest.get(..length).filter(|one| one.len() >= HEADER) else { break };
                if u16_at(one, 4) == ERROR && one.len() >= HEADER + 4 {
                    // The last word on a request: 0 is the acknowledgement.
                    return match u32_at(one, HEADER) as i32 {
                        0 => Ok(answer),
                        error => Err(io::Error::from_raw_os_error(-error)),
                    };
                }
                if u16_at(one, 4) == self.family && one.len() >= HEADER + GENERIC_HEADER {
                    answer = one[HEADER + GENERIC_HEADER..].to_vec();
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
    }
}

/// The process that connected the device, while it's connected.
pub fn pid_of(device: &Path) -> Option<u32> {
    let folder = Path::new("/sys/block").join(device.file_name()?);
    fs::read_to_string(folder.join("pid")).ok()?.trim_end().parse().ok()
}

/// Asks for the kernel's module. That it can't be had shows when NBD is looked for.
pub fn load_module() {
    let programs = ["/sbin/modprobe", "/usr/sbin/modprobe"];
    if let Some(program) = programs.into_iter().find(|program| fs::exists(program).unwrap_or(false)) {
        let mut command = std::process::Command::new(program);
        let _ = command.args(["-q", "nbd"]).stderr(std::process::Stdio::null()).status();
    }
}

fn index_of(device: &Path) -> io::Result<Vec<u8>> {
    let name = device.file_name().and_then(|name| name.to_str());
    let index: u32 = name
        .and_then(|name| name.strip_prefix("nbd")?.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an NBD device"))?;
    let mut attributes = Vec::new();
    put(&mut attributes, INDEX, &index.to_ne_bytes());
    Ok(attributes)
}

fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + GENERIC_HEADER + attributes.len());
    bytes.extend_from_slice(&((HEADER + GENERIC_HEADER + attributes.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&family.to_ne_bytes());
    bytes.extend_from_slice(&(REQUEST | ACKNOWLEDGE).to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]); // one request at a time, so no sequence; the kernel fills in the port
    bytes.extend_from_slice(&[command, 1, 0, 0]);
    bytes.extend_from_slice(attributes);
    bytes
}

fn put(attributes: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    attributes.extend_from_slice(&((4 + payload.len()) as u16).to_ne_bytes());
    attributes.extend_from_slice(&kind.to_ne_bytes());
    attributes.extend_from_slice(payload);
    attributes.resize(attributes.len().next_multiple_of(4), 0);
}

fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while attributes.len() >= 4 {
        let length = u16_at(attributes, 0) as usize;
        let payload = attributes.get(4..length)?;
        if u16_at(attributes, 2) & !NESTED == kind {
            return Some(payload);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_again_whatever_their_length() {
        let mut attributes = Vec::new();
        put(&mut attributes, 7 | NESTED, b"abcde");
        put(&mut attributes, 3, b"");
        put(&mut attributes, INDEX, &9u32.to_ne_bytes());
        assert_eq!(find(&attributes, 7), Some(&b"abcde"[..]));
        assert_eq!(find(&attributes, 3), Some(&b""[..]));
        assert_eq!(find(&attributes, INDEX), Some(&9u32.to_ne_bytes()[..]));
        assert_eq!(find(&attributes, 4), None);
        for cut in 0..attributes.len() {
            assert_eq!(find(&attributes[..cut], INDEX), None);
        }
    }

    #[test]
    fn a_kernel_without_a_family_of_that_name_is_told_apart_from_an_error() {
        // Passes with and without NBD: what's tested is that the kernel takes our message and we take its answer.
        let found = KernelNbd::find().expect("generic netlink works for everybody");
        assert_eq!(found.is_some(), Path::new("/sys/module/nbd").exists());
    }
}
