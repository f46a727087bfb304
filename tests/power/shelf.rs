//! A folder whose files are [`Media`]: drives, and disks for filesystems, that lose their power all at once. It's FUSE's, so
//! whoever writes to them is told nothing but the truth about what a flush has made stable.

use super::media::{Media, Operation};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// Inodes count from here.
const FIRST: u64 = 2;
const NO_TIME: Duration = Duration::ZERO;
const LARGEST: u32 = 1 << 20;

/// All that is on one power supply.
pub struct Shelf {
    files: Vec<(String, Mutex<Media>)>,
    power: Mutex<Power>,
}

enum Power {
    On,
    /// Nothing is answered: these are asked in vain.
    Off(Vec<Box<dyn FnOnce() + Send>>),
    /// Whoever asked is dead: all is answered so that it can go, and nothing is done.
    Dead,
}

impl Shelf {
    pub fn new(files: Vec<(String, Media)>) -> Arc<Self> {
        let files = files.into_iter().map(|(name, media)| (name, Mutex::new(media))).collect();
        Arc::new(Shelf { files, power: Mutex::new(Power::On) })
    }

    /// Shows the files in a folder, for as long as what this returns lives.
    pub fn show(self: &Arc<Self>, folder: &Path) -> io::Result<fuser::BackgroundSession> {
        *self.power() = Power::On;
        fuser::spawn_mount(Folder(self.clone()), folder, &Config::default())
    }

    pub fn media(&self, number: usize) -> MutexGuard<'_, Media> {
        self.files[number].1.lock().expect("nothing panics while it holds a medium")
    }

    /// The medium, if it can do this.
    fn able(&self, number: usize, operation: Operation) -> Result<MutexGuard<'_, Media>, Errno> {
        let media = self.media(number);
        if media.fails == Some(operation) { Err(Errno::EIO) } else { Ok(media) }
    }

    /// At one moment for all of them: what isn't stable is lost, as the seed says. How many had something to lose.
    pub fn lose_power(&self, seed: u64) -> usize {
        let mut power = self.power();
        *power = Power::Off(vec![]);
        let mut unflushed = 0;
        for number in 0..self.files.len() {
            let mut media = self.media(number);
            unflushed += usize::from(media.is_unflushed());
            media.lose_power(seed ^ ((number as u64) << 32));
        }
        unflushed
    }

    /// Call this when whoever used the files has been killed.
    pub fn let_go(&self) {
        if let Power::Off(waiting) = std::mem::replace(&mut *self.power(), Power::Dead) {
            waiting.into_iter().for_each(|answer| answer());
        }
    }

    fn power(&self) -> MutexGuard<'_, Power> {
        self.power.lock().expect("nothing panics while it holds the switch")
    }

    /// Does the work and answers if there is power. `dead` answers without the work.
    fn powered<R: Send + 'static>(&self, reply: R, work: impl FnOnce(R), dead: impl FnOnce(R) + Send + 'static) {
        match &mut *self.power() {
            Power::On => work(reply),
            Power::Off(waiting) => waiting.push(Box::new(move || dead(reply))),
            Power::Dead => dead(reply),
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            _ => (FileType::RegularFile, 0o600, self.media(self.number(inode)?).size()),
        };
        let since = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: since,
            mtime: since,
            ctime: since,
            crtime: since,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn number(&self, inode: INodeNo) -> Option<usize> {
        let number = usize::try_from(inode.0.checked_sub(FIRST)?).ok()?;
        (number < self.files.len()).then_some(number)
    }
}

struct Folder(Arc<Shelf>);

impl Folder {
    /// The number of an open file.
    fn opened(&self, inode: INodeNo) -> usize {
        self.0.number(inode).expect("the kernel opened it")
    }
}

impl Filesystem for Folder {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(LARGEST); // within the crate's limits
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO); // without it I/O is only slower
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = self.0.files.iter().position(|(file, _)| parent == INodeNo::ROOT && name == file.as_str());
        match number.and_then(|number| self.0.attributes(INodeNo(FIRST + number as u64))) {
            Some(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attributes(inode) {
            Some(attributes) => reply.attr(&NO_TIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Nothing is cached by this machine, which doesn't lose its power.
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), direct | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let number = self.opened(inode);
        let work = |reply: ReplyData| match self.0.able(number, Operation::Read) {
            Ok(media) => reply.data(media.read(offset, size as usize)),
            Err(errno) => reply.error(errno),
        };
        self.0.powered(reply, work, |reply| reply.error(Errno::EIO));
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (number, length) = (self.opened(inode), data.len() as u32);
        let work = |reply: ReplyWrite| match self
            .0
            .able(number, Operation::Write)
            .map(|mut media| media.write(offset, data))
        {
            Ok(true) => reply.written(length),
            Ok(false) => reply.error(Errno::ENOSPC),
            Err(errno) => reply.error(errno),
        };
        self.0.powered(reply, work, move |reply| reply.written(length));
    }

    fn fsync(&self, _request: &Request, inode: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        let number = self.opened(inode);
        let work = |reply: ReplyEmpty| match self.0.able(number, Operation::Flush).map(|mut media| media.flush()) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        };
        self.0.powered(reply, work, ReplyEmpty::ok);
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let number = self.opened(inode);
        let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        let write = |mut media: MutexGuard<'_, Media>| media.write(offset, &vec![0; length as usize]);
        let work = |reply: ReplyEmpty| match self.0.able(number, Operation::Write).map(|media| zeroes && write(media)) {
            Ok(true) => reply.ok(),
            Ok(false) => reply.error(Errno::EOPNOTSUPP),
            Err(errno) => reply.error(errno),
        };
        self.0.powered(reply, work, ReplyEmpty::ok);
    }
}
