//! A disk in memory that remembers what it was asked, and fails and waits as a test tells it.

use crate::disk::{Exports, OpenError, Run, VirtualDisk};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tepal_model::{BLOCK, Buffer, IoError, MAX_REQUEST, Segments};
use tokio::sync::Semaphore;
use tokio_rustls::rustls::pki_types::CertificateDer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read(u64, u64),
    Write { offset: u64, length: u64, fua: bool },
    Flush,
    Trim { offset: u64, length: u64, fua: bool },
    Zeroes { offset: u64, length: u64, allocate: bool, fua: bool },
    Status(u64, u64),
}

/// When the disk gets to a request.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    AtOnce,
    /// After so many turns of others, fewer for each request: later ones overtake.
    Overtaking(u32),
    /// When the test lets it go.
    Held,
}

#[derive(Clone)]
pub struct TestDisk(Rc<Inner>);

struct Inner {
    size: Cell<u64>,
    bytes: RefCell<Vec<u8>>,
    mapped: RefCell<Vec<bool>>,
    read_only: Cell<bool>,
    pace: Cell<Pace>,
    turnstile: Semaphore,
    failure: RefCell<Option<IoError>>,
    calls: RefCell<Vec<Call>>,
    active: Cell<usize>,
    most_active: Cell<usize>,
}

/// Counts a request as active while it lives.
struct Active<'a>(&'a Inner);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

fn place(offset: u64, length: u64) -> std::ops::Range<usize> {
    offset as usize..(offset + length) as usize
}

impl TestDisk {
    /// Holes, all of it.
    pub fn new(size: u64) -> Self {
        Self::sparse(size, size)
    }

    /// Of `size` bytes, but only the first `backed` may be read or written.
    pub fn sparse(size: u64, backed: u64) -> Self {
        TestDisk(Rc::new(Inner {
            size: Cell::new(size),
            bytes: RefCell::new(vec![0; backed as usize]),
            mapped: RefCell::new(vec![false; size.div_ceil(BLOCK) as usize]),
            read_only: Cell::new(false),
            pace: Cell::new(Pace::AtOnce),
            turnstile: Semaphore::new(0),
            failure: RefCell::new(None),
            calls: RefCell::new(Vec::new()),
            active: Cell::new(0),
            most_active: Cell::new(0),
        }))
    }

    /// Bytes that tell where they are.
    pub fn patterned(size: u64) -> Self {
        let disk = Self::new(size);
        disk.0.bytes.borrow_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at as u64));
        disk.0.mapped.borrow_mut().fill(true);
        disk
    }

    pub fn read_only(self) -> Self {
        self.0.read_only.set(true);
        self
    }

    pub fn resize(&self, size: u64) {
        self.0.size.set(size);
    }

    pub fn pace(&self, pace: Pace) {
        self.0.pace.set(pace);
    }

    /// Lets so many held requests go, now or when they come.
    pub fn let_go(&self, count: usize) {
        self.0.turnstile.add_permits(count);
    }

    /// Every request from now on fails like this.
    pub fn fail(&self, failure: Option<IoError>) {
        self.0.failure.replace(failure);
    }

    pub fn map(&self, offset: u64, length: u64) {
        self.0.mapped.borrow_mut()[place(offset / BLOCK, length / BLOCK)].fill(true);
    }

    /// What it was asked since the last time.
    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.take()
    }

    pub fn contents(&self) -> Vec<u8> {
        self.0.bytes.borrow().clone()
    }

    pub fn active(&self) -> usize {
        self.0.active.get()
    }

    pub fn most_active(&self) -> usize {
        self.0.most_active.get()
    }

    /// Owners of this disk but the one that asks.
    pub fn users(&self) -> usize {
        Rc::strong_count(&self.0) - 1
    }

    async fn begin(&self, call: Call) -> Result<Active<'_>, IoError> {
        let inner = &*self.0;
        inner.calls.borrow_mut().push(call);
        inner.active.set(inner.active.get() + 1);
        inner.most_active.set(inner.most_active.get().max(inner.active.get()));
        let active = Active(inner);
        match inner.pace.get() {
            Pace::AtOnce => {}
            Pace::Overtaking(turns) => {
                inner.pace.set(Pace::Overtaking(if turns == 0 { 7 } else { turns - 1 }));
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Pace::Held => inner.turnstile.acquire().await.unwrap().forget(),
        }
        match &*inner.failure.borrow() {
            Some(failure) => Err(failure.clone()),
            None => Ok(active),
        }
    }

    fn fill(&self, offset: u64, length: u64, mapped: bool) {
        let whole = offset.div_ceil(BLOCK) as usize..((offset + length) / BLOCK) as usize;
        let backed = self.0.bytes.borrow().len() as u64;
        let end = (offset + length).min(backed).max(offset.min(backed));
        self.0.bytes.borrow_mut()[offset.min(backed) as usize..end as usize].fill(0);
        if whole.start < whole.end {
            self.0.mapped.borrow_mut()[whole].fill(mapped);
        }
    }
}

pub fn pattern(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

pub fn patterns(offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length).map(pattern).collect()
}

impl VirtualDisk for TestDisk {
    fn size(&self) -> u64 {
        self.0.size.get()
    }

    fn read_only(&self) -> bool {
        self.0.read_only.get()
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        assert!(0 < length && length <= MAX_REQUEST);
        let _active = self.begin(Call::Read(offset, length)).await?;
        let bytes = self.0.bytes.borrow();
        // In pieces, as from several drives.
        let whole = &bytes[place(offset, length)];
        let (first, second) = whole.split_at(whole.len() / 3);
        Ok([first, second].into_iter().map(|part| Buffer::copy_of(part).freeze()).collect())
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let length = data.len() as u64;
        assert!(0 < length && length <= MAX_REQUEST);
        let _active = self.begin(Call::Write { offset, length, fua }).await?;
        self.0.bytes.borrow_mut()[place(offset, length)].copy_from_slice(&data);
        let touched = (offset / BLOCK) as usize..(offset + length).div_ceil(BLOCK) as usize;
        self.0.mapped.borrow_mut()[touched].fill(true);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.begin(Call::Flush).await.map(|_| ())
    }

    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        assert!(0 < length && length <= u64::from(u32::MAX));
        let _active = self.begin(Call::Trim { offset, length, fua }).await?;
        self.fill(offset, length, false);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, fua: bool) -> Result<(), IoError> {
        assert!(0 < length && length <= if allocate { MAX_REQUEST } else { u32::MAX.into() });
        let _active = self.begin(Call::Zeroes { offset, length, allocate, fua }).await?;
        self.fill(offset, length, allocate);
        Ok(())
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        assert!(0 < length && length <= MAX_REQUEST && limit > 0);
        let _active = self.begin(Call::Status(offset, length)).await?;
        let mapped = self.0.mapped.borrow();
        let mut runs: Vec<Run> = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let next = ((at / BLOCK + 1) * BLOCK).min(offset + length);
            let run = Run { length: next - at, mapped: mapped[(at / BLOCK) as usize] };
            let full = runs.len() == limit;
            match runs.last_mut() {
                Some(last) if last.mapped == run.mapped => last.length += run.length,
                _ if full => break,
                _ => runs.push(run),
            }
            at = next;
        }
        Ok(runs)
    }
}

#[derive(Clone, Default)]
pub struct TestExports {
    disks: BTreeMap<String, TestDisk>,
    pub opened: Rc<Cell<usize>>,
    /// The certificates that clients have shown.
    pub shown: Rc<RefCell<Vec<Vec<u8>>>>,
}

pub const UNAVAILABLE: &str = "away";

impl TestExports {
    pub fn of(disks: &[(&str, &TestDisk)]) -> Self {
        let disks = disks.iter().map(|(name, disk)| ((*name).to_owned(), (*disk).clone())).collect();
        TestExports { disks, ..TestExports::default() }
    }
}

impl Exports for TestExports {
    type Disk = TestDisk;

    fn names(&self) -> Vec<String> {
        self.disks.keys().cloned().collect()
    }

    fn shown_to(&self, certificates: &[CertificateDer<'static>]) -> Result<Self, OpenError> {
        self.shown.borrow_mut().push(certificates[0].to_vec());
        Ok(self.clone())
    }

    async fn open(&self, name: &str) -> Result<TestDisk, OpenError> {
        tokio::task::yield_now().await;
        self.opened.set(self.opened.get() + 1);
        if name == UNAVAILABLE {
            return Err(OpenError::Unavailable { name: name.to_owned(), reason: "both copies are down".to_owned() });
        }
        self.disks.get(name).cloned().ok_or_else(|| OpenError::Unknown(name.to_owned()))
    }
}
