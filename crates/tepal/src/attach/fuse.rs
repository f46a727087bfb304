//! The volume as a file: a private folder with one file in it, on which a loop device is put.
//!
//! Invariants:
//! 1. Nothing is cached here: the file is opened for direct I/O, so neither a write nor a read of the loop device stays in
//!    FUSE's page cache, and an fsync has nothing to wait for but the volume's own flush.
//! 2. A hole that's punched reads as zeros afterwards. NBD's TRIM doesn't promise that, so it becomes WRITE_ZEROES
//!    (which lets the volume free the space). The loop driver uses one and the same call for "discard" and "zero".
//! 3. The threads that answer FUSE never touch the file or the device themselves, or they'd wait for each other.

use super::nbd::client::{Client, Done};
use super::nbd::range::{self, Longest};
use super::nbd::wire::{Flags, Operation};
use bytes::Bytes;
use fuser::{
    AccessFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session, SessionACL, WriteFlags,
};
use nix::mount::{MsFlags, mount};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

pub const DEVICE: &str = "/dev/fuse";
/// The name of the one file.
pub const FILE: &str = "volume";
const FILE_INODE: INodeNo = INodeNo(2);

/// Most bytes in one request. The kernel splits larger ones.
pub const REQUEST: u32 = 1 << 20;
/// Requests of the loop device under way at once; with [`REQUEST`] this bounds the memory used.
const IN_FLIGHT: u16 = 128;
/// Sizes change behind the kernel's back when a volume grows; attributes are rarely asked for, so they're never kept.
const NO_TIME: Duration = Duration::ZERO;
/// Threads that take requests from the kernel. More than two cores' worth only wait for the one socket.
const THREADS: usize = 2;

struct Folder {
    client: Arc<Client>,
    read_only: bool,
    since: SystemTime,
}

/// Mounts the folder at `mountpoint`, and serves it until it's unmounted; then calls `ended`.
pub fn serve(
    client: Arc<Client>,
    read_only: bool,
    mountpoint: &Path,
    ended: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    // Not mounted by the crate: it would also unmount by path, whatever is mounted there by then.
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let mut flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    flags.set(MsFlags::MS_RDONLY, read_only);
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions", device.as_raw_fd());
    mount(Some("tepal"), mountpoint, Some("fuse.tepal"), flags, Some(options.as_str()))?;
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let folder = Folder { client, read_only, since: SystemTime::now() };
    let session = Session::from_fd(folder, device.into(), SessionACL::Owner, config)?;
    thread::Builder::new().name("fuse".into()).spawn(move || {
        if let Err(error) = session.run() {
            tracing::error!("FUSE ended: {error}");
        }
        ended();
    })?;
    Ok(())
}

impl Folder {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let size = self.client.size();
        let (kind, perm, nlink, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o500, 2, 0),
            FILE_INODE => (FileType::RegularFile, if self.read_only { 0o400 } else { 0o600 }, 1, size),
            _ => return None,
        };
        let since = self.since;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: since,
            mtime: since,
            ctime: since,
            crtime: since,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Where a request ends if it's within the file.
    fn end(&self, offset: u64, length: u64) -> Option<u64> {
        offset.checked_add(length).filter(|&end| end <= self.client.size())
    }
}

fn empty_answer(reply: ReplyEmpty) -> Done {
    Box::new(move |answer| match answer {
        Ok(_) => reply.ok(),
        Err(error) => reply.error(Errno::from_i32(error as i32)),
    })
}

impl Filesystem for Folder {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The values are within the limits that the crate states, so it takes them.
        let _ = config.set_max_write(REQUEST);
        let _ = config.set_max_background(IN_FLIGHT);
        let _ = config.set_congestion_threshold(IN_FLIGHT);
        // Without this the loop device would have one request under way at a time.
        if config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).is_err() {
            tracing::warn!("this kernel's FUSE has no asynchronous direct I/O: the device will be slow");
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE_INODE).filter(|_| parent == INodeNo::ROOT && name == FILE) {
            Some(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&NO_TIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getxattr(&self, _request: &Request, _inode: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS); // the kernel doesn't ask again
    }

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        // The loop driver takes the block size as the granularity of discards.
        reply.statfs(self.client.size() / 4096, 0, 0, 1, 0, 4096, 255, 4096);
    }

    fn readdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [(INodeNo::ROOT, FileType::Directory, "."), (INodeNo::ROOT, FileType::Directory, "..")];
        let entries = entries.into_iter().chain([(FILE_INODE, FileType::RegularFile, FILE)]);
        for (next, (inode, kind, name)) in (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if inode != FILE_INODE {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), direct | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.client.size().saturating_sub(offset);
        let length = size.min(u32::try_from(left).unwrap_or(u32::MAX));
        if length == 0 {
            return reply.data(&[]);
        }
        let done = move |answer: Result<&[u8], nix::errno::Errno>| match answer {
            Ok(data) => reply.data(data),
            Err(error) => reply.error(Errno::from_i32(error as i32)),
        };
        self.client.submit(Operation::Read { offset, length }, Box::new(done));
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        if self.end(offset, data.len() as u64).is_none() {
            return reply.error(Errno::ENOSPC);
        }
        let length = data.len() as u32; // at most REQUEST
        let done = move |answer: Result<&[u8], nix::errno::Errno>| match answer {
            Ok(_) => reply.written(length),
            Err(error) => reply.error(Errno::from_i32(error as i32)),
        };
        let data = Bytes::copy_from_slice(data);
        self.client.submit(Operation::Write { offset, data, fua: false }, Box::new(done));
    }

    fn fsync(&self, _request: &Request, _inode: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        // A server without FLUSH says that its acknowledged writes need none. Never answer ENOSYS: the kernel would
        // stop asking.
        if self.read_only || !self.client.export().flags.has(Flags::FLUSH) {
            return reply.ok();
        }
        self.client.submit(Operation::Flush, empty_answer(reply));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let no_hole = match mode & !nix::libc::FALLOC_FL_KEEP_SIZE {
            nix::libc::FALLOC_FL_PUNCH_HOLE => false,
            nix::libc::FALLOC_FL_ZERO_RANGE => true,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        if !self.client.export().flags.has(Flags::WRITE_ZEROES) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if self.end(offset, length).is_none() {
            return reply.error(Errno::EINVAL);
        }
        let piece = move |offset, length| Operation::WriteZeroes { offset, length, no_hole, fua: false };
        let longest = if no_hole { Longest::Maximum } else { Longest::Request };
        range::submit(&self.client, (offset, length), longest, piece, empty_answer(reply));
    }
}
