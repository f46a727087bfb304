//! A simulated drive: time, cache, power and faults of a real one, from one seed.
//!
//! A [`SimDisk`] is the hardware: it outlives processes and belongs to the scenario. A [`SimDevice`] is the handle with
//! which one process has it open. Invariants:
//! 1. An operation that has begun goes on when its future is dropped, and when its process is killed ends at once with each
//!    sector old or new.
//! 2. A write under way may be seen, sector by sector, before it returns; never again unseen unless power is cut.
//! 3. Whatever goes wrong was asked for by the scenario, and is in the fault log.

mod faults;
mod media;
#[cfg(test)]
mod tests;

pub use faults::{Fault, FaultKind, FaultLog, Faults, Rate};
pub use media::{SECTOR, Survival};

use crate::executor::Core;
use crate::random::Stream;
use bytes::Bytes;
use faults::LogWatch;
use media::{ALL, Media, Sectors};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tepal_drive::world::{Device, DeviceError, Gather};
use tepal_model::{BLOCK, Buffer};

/// What a drive did, for assertions about how much work something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// A drive's contents, apart from any drive: for clones and old images.
#[derive(Clone)]
pub struct Image {
    pub size: u64,
    pub blocks: BTreeMap<u64, Bytes>,
}

/// A write whose answer isn't out yet.
struct Flight {
    offset: u64,
    blocks: Vec<Bytes>,
    /// Which sectors of each block are in the cache already.
    applied: Vec<Sectors>,
}

struct Disk {
    core: Rc<Core>,
    name: &'static str,
    size: u64,
    /// Handles of another attachment get [`DeviceError::Gone`].
    attachment: u64,
    /// Handles of this attachment have it too.
    opened: Rc<()>,
    plugged: bool,
    media: Media,
    flights: BTreeMap<u64, Flight>,
    operations: u64,
    random: Stream,
    faults: Faults,
    log: FaultLog,
    watch: LogWatch,
    counters: Counters,
}

/// The hardware. Clones are the same drive.
#[derive(Clone)]
pub struct SimDisk {
    disk: Rc<RefCell<Disk>>,
}

/// The drive as one process has it open.
#[derive(Clone)]
pub struct SimDevice {
    disk: Rc<RefCell<Disk>>,
    size: u64,
    attachment: u64,
    _opened: Rc<()>,
}

impl SimDisk {
    pub fn new(core: &Rc<Core>, name: &'static str, size: u64) -> Self {
        Self::from_image(core, name, &Image { size, blocks: BTreeMap::new() })
    }

    pub fn from_image(core: &Rc<Core>, name: &'static str, image: &Image) -> Self {
        let disk = Disk {
            core: core.clone(),
            name,
            size: image.size / BLOCK * BLOCK,
            attachment: 0,
            opened: Rc::default(),
            plugged: true,
            media: Media::from_image(&image.blocks),
            flights: BTreeMap::new(),
            operations: 0,
            random: core.fork(),
            faults: Faults::default(),
            log: FaultLog::default(),
            watch: LogWatch::default(),
            counters: Counters::default(),
        };
        SimDisk { disk: Rc::new(RefCell::new(disk)) }
    }

    /// Whether the process that runs has it open, or something is under way that changes what's on it.
    pub fn is_open(&self) -> bool {
        let disk = self.disk.borrow();
        Rc::strong_count(&disk.opened) > 1 || !disk.flights.is_empty()
    }

    /// Opens it, as a starting process does.
    pub fn open(&self) -> SimDevice {
        let disk = self.disk.borrow();
        let (size, attachment) = (disk.size, disk.attachment);
        SimDevice { disk: self.disk.clone(), size, attachment, _opened: disk.opened.clone() }
    }

    pub fn name(&self) -> &'static str {
        self.disk.borrow().name
    }

    pub fn size(&self) -> u64 {
        self.disk.borrow().size
    }

    /// Gives it more room, of zeros. Who has it open doesn't notice.
    pub fn enlarge(&self, size: u64) {
        let mut disk = self.disk.borrow_mut();
        assert!(size >= disk.size, "{size} of {}", disk.size);
        disk.size = size / BLOCK * BLOCK;
    }

    /// The process that had it open was killed: what it had under way ends, each sector old or new.
    pub fn process_killed(&self) {
        self.disk.borrow_mut().end_flights();
    }

    /// Power fails: of all that was not flushed, any part may survive.
    pub fn cut_power(&self) {
        let mut guard = self.disk.borrow_mut();
        let disk = &mut *guard;
        let survival = Survival::draw(&mut disk.random);
        disk.core.note(0x0ff, || format!("{}: power cut, surviving: {survival:?}", disk.name));
        disk.end_flights();
        disk.media.cut_power(survival, &mut disk.random);
    }

    /// Takes the drive away: like a power cut, and everything fails with [`DeviceError::Gone`] from now on.
    pub fn pull(&self) {
        self.cut_power();
        let mut disk = self.disk.borrow_mut();
        disk.plugged = false;
        disk.record(FaultKind::Pulled, 0, 0);
    }

    /// Puts it back. It must be opened again: handles from before stay dead.
    pub fn plug_in(&self) {
        self.disk.borrow_mut().plugged = true;
    }

    pub fn is_plugged(&self) -> bool {
        self.disk.borrow().plugged
    }

    /// Changes the bits of the block at `offset` at rest.
    pub fn rot(&self, offset: u64) {
        self.disk.borrow_mut().rot(offset / BLOCK);
    }

    /// Rots one of the blocks within these bytes that were ever written, and says where.
    pub fn rot_somewhere(&self, within: Range<u64>) -> Option<u64> {
        let mut disk = self.disk.borrow_mut();
        let disk = &mut *disk;
        let number = disk.media.any_written(within.start / BLOCK..within.end / BLOCK, &mut disk.random)?;
        disk.rot(number);
        Some(number * BLOCK)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.disk.borrow_mut().faults = faults;
    }

    /// No faults from now on; what is damaged stays damaged.
    pub fn heal(&self) {
        self.set_faults(Faults::default());
    }

    /// From now on these bytes count as the drive's log.
    pub fn watch_log(&self, within: Range<u64>) {
        self.disk.borrow_mut().watch.within = within;
    }

    /// Whether the end of its log was damaged so that it may look as if the power had been cut there.
    pub fn log_end_is_unsure(&self) -> bool {
        self.disk.borrow().watch.end_is_unsure()
    }

    pub fn fault_log(&self) -> FaultLog {
        self.disk.borrow().log.clone()
    }

    pub fn counters(&self) -> Counters {
        self.disk.borrow().counters
    }

    /// Its contents as they'd be read now.
    pub fn image(&self) -> Image {
        let disk = self.disk.borrow();
        Image { size: disk.size, blocks: disk.media.image() }
    }

    /// Replaces its contents, as `dd` does.
    pub fn restore(&self, image: &Image) {
        self.disk.borrow_mut().media = Media::from_image(&image.blocks);
    }
}

/// Mostly tens of microseconds, now and then milliseconds: so that operations overtake each other.
fn latency(random: &mut Stream, least: u64, most: u64, slowdown: u32) -> Duration {
    let micros = random.between(least..most) * if random.one_in(64) { 30 } else { 1 };
    Duration::from_nanos((micros * 1_000 + random.below(1_000)) * u64::from(slowdown.max(1)))
}

impl Disk {
    fn rot(&mut self, number: u64) {
        self.media.rot(number, &mut self.random);
        self.record(FaultKind::Rot, number * BLOCK, BLOCK);
    }

    fn record(&mut self, kind: FaultKind, offset: u64, length: u64) {
        self.core.note(offset ^ 0x707, || format!("{}: {kind:?} strikes at {offset}+{length}", self.name));
        self.log.record(self.core.now(), kind, offset, length);
        match kind {
            FaultKind::LostWrite | FaultKind::Rot => self.watch.damage(offset, length),
            FaultKind::MisdirectedWrite { landed } => {
                self.watch.damage(offset, length);
                self.watch.damage(landed, length);
            }
            _ => {}
        }
    }

    /// Where a misdirected operation of this length goes.
    fn elsewhere(&mut self, offset: u64, length: u64) -> u64 {
        let Range { start, end } = self.faults.elsewhere(self.size);
        let places = (end - start - length) / BLOCK + 1;
        let here = offset.saturating_sub(start) / BLOCK;
        let near = self.random.one_in(2);
        let place = if near { here + self.random.between(1..9) } else { self.random.below(places) } % places;
        start + if place == here { (place + 1) % places } else { place } * BLOCK
    }

    /// Puts into the cache those sectors of a flight's blocks that `choose` picks and that aren't there yet.
    fn apply(&mut self, id: u64, mut choose: impl FnMut(u64, &mut Stream) -> Sectors) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        for (index, data) in flight.blocks.iter().enumerate() {
            let number = flight.offset / BLOCK + index as u64;
            let sectors = choose(number, &mut self.random) & !flight.applied[index];
            flight.applied[index] |= sectors;
            self.media.write(number, data.clone(), sectors);
        }
    }

    /// Every write under way ends now, each sector old or new.
    fn end_flights(&mut self) {
        let mut ids: Vec<u64> = self.flights.keys().copied().collect();
        while !ids.is_empty() {
            let id = ids.swap_remove(self.random.index(ids.len()));
            let share = self.random.below(4);
            self.apply(id, |_, random| match share {
                0 => 0,
                1 => ALL,
                _ => random.draw() as Sectors,
            });
            self.flights.remove(&id);
        }
        // Answers that still come are for a process, or an attachment, that is no more.
        self.attachment += 1;
        self.opened = Rc::default();
    }

    fn gone(&self) -> DeviceError {
        DeviceError::Gone(format!("{} was unplugged or reopened", self.name))
    }

    fn finish_read(&mut self, offset: u64, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        let length = buffer.len() as u64;
        let unreadable = self.faults.unreadable.iter().any(|bad| bad.start < offset + length && offset < bad.end);
        if unreadable || self.faults.read_error.strikes(&mut self.random) {
            self.record(FaultKind::ReadError, offset, length);
            return Err(failed("read", offset));
        }
        let mut from = offset;
        if self.faults.fits_elsewhere(length, self.size) && self.faults.misdirected_read.strikes(&mut self.random) {
            from = self.elsewhere(offset, length);
            self.record(FaultKind::MisdirectedRead { from }, offset, length);
        }
        let blocks = from / BLOCK..(from + length) / BLOCK;
        let overlapping = |flight: &Flight| {
            flight.offset / BLOCK < blocks.end && blocks.start < flight.offset / BLOCK + flight.blocks.len() as u64
        };
        let ids: Vec<u64> = self.flights.iter().filter(|(_, flight)| overlapping(flight)).map(|(&id, _)| id).collect();
        for id in ids {
            self.apply(id, |number, random| if blocks.contains(&number) { random.draw() as Sectors } else { 0 });
        }
        for (piece, number) in buffer.chunks_mut(BLOCK as usize).zip(blocks) {
            self.media.copy(number, piece);
        }
        self.counters.reads += 1;
        self.counters.bytes_read += length;
        Ok(buffer)
    }

    fn finish_write(&mut self, id: u64, discard: bool) -> Result<(), DeviceError> {
        let Some(flight) = self.flights.get(&id) else { return Err(self.gone()) };
        let (offset, length) = (flight.offset, flight.blocks.len() as u64 * BLOCK);
        let outcome = match discard {
            false => self.store(id, offset, length),
            true => {
                self.apply(id, |_, _| ALL);
                self.log.rewritten(offset, length); // nobody needs what was there
                Ok(())
            }
        };
        self.flights.remove(&id);
        outcome
    }

    fn store(&mut self, id: u64, offset: u64, length: u64) -> Result<(), DeviceError> {
        if self.faults.write_error.strikes(&mut self.random) {
            self.apply(id, |_, random| random.draw() as Sectors);
            self.record(FaultKind::WriteError, offset, length);
            return Err(failed("write", offset));
        }
        self.counters.writes += 1;
        self.counters.bytes_written += length;
        let exposed = self.faults.may_strike(offset, length);
        if exposed && self.faults.lost_write.strikes(&mut self.random) {
            self.record(FaultKind::LostWrite, offset, length);
            return Ok(());
        }
        let fits = self.faults.fits_elsewhere(length, self.size);
        if exposed && fits && self.faults.misdirected_write.strikes(&mut self.random) {
            let landed = self.elsewhere(offset, length);
            if let Some(flight) = self.flights.get_mut(&id) {
                flight.offset = landed;
                flight.applied.fill(0);
            }
            self.apply(id, |_, _| ALL);
            self.record(FaultKind::MisdirectedWrite { landed }, offset, length);
            return Ok(());
        }
        self.apply(id, |_, _| ALL);
        self.log.rewritten(offset, length);
        self.watch.wrote(offset, length, self.media.mark());
        self.faults.unreadable.retain(|bad| !(offset <= bad.start && bad.end <= offset + length));
        Ok(())
    }

    fn finish_flush(&mut self, mark: u64) -> Result<(), DeviceError> {
        if self.faults.flush_error.strikes(&mut self.random) {
            self.media.fail_flush(&mut self.random);
            self.record(FaultKind::FlushError, 0, 0);
            return Err(failed("flush", 0));
        }
        self.media.flush(mark);
        self.watch.flushed(mark);
        self.counters.flushes += 1;
        Ok(())
    }

    /// What discarded blocks read as from now on.
    fn discarded(&mut self, number: u64) -> Bytes {
        match self.random.below(3) {
            0 => self.media.read(number),
            1 => Bytes::from_static(&[0; BLOCK as usize]),
            _ => {
                let mut garbage = Buffer::take(BLOCK as usize);
                garbage.fill(self.random.draw() as u8);
                garbage.freeze()
            }
        }
    }
}

fn failed(operation: &'static str, offset: u64) -> DeviceError {
    DeviceError::Failed { operation, offset, reason: "simulated I/O error".to_owned() }
}

/// The answer to one operation, wherever its future has gone meanwhile.
struct Answer<T> {
    state: Rc<RefCell<(Option<T>, Option<Waker>)>>,
}

impl<T> Answer<T> {
    fn new() -> (Self, impl FnOnce(T)) {
        let state = Rc::new(RefCell::new((None, None)));
        let answer = Answer { state: state.clone() };
        let give = move |value| {
            let waker: Option<Waker> = {
                let mut state = state.borrow_mut();
                state.0 = Some(value);
                state.1.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        (answer, give)
    }
}

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.borrow_mut();
        match state.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl SimDevice {
    fn check(&self, what: &str, offset: u64, length: u64) {
        let aligned = offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        assert!(aligned && inside && length > 0, "{what} of {offset}+{length} on a device of {} bytes", self.size);
    }

    /// Runs `finish` on the drive after some microseconds, unless the drive or the process is gone by then.
    async fn later<T: 'static>(
        &self,
        least: u64,
        most: u64,
        finish: impl FnOnce(&mut Disk) -> Result<T, DeviceError> + 'static,
    ) -> Result<T, DeviceError> {
        let (answer, give) = Answer::new();
        let (core, after) = {
            let mut disk = self.disk.borrow_mut();
            let slowdown = disk.faults.slowdown;
            (disk.core.clone(), latency(&mut disk.random, least, most, slowdown))
        };
        let (shared, attachment) = (self.disk.clone(), self.attachment);
        core.at(core.now() + after, move || {
            let result = {
                let mut disk = shared.borrow_mut();
                if disk.plugged && disk.attachment == attachment { finish(&mut disk) } else { Err(disk.gone()) }
            };
            give(result);
        });
        answer.await
    }

    /// Whether it was neither unplugged nor lost its process since it was opened.
    pub fn is_live(&self) -> bool {
        let disk = self.disk.borrow();
        disk.plugged && disk.attachment == self.attachment
    }

    fn begin(&self, what: &'static str, offset: u64, length: u64) -> Result<(), DeviceError> {
        let disk = self.disk.borrow();
        let event = offset.rotate_left(20) ^ length ^ what.len() as u64;
        disk.core.note(event, || format!("{}: {what} {offset}+{length}", disk.name));
        if disk.plugged && disk.attachment == self.attachment { Ok(()) } else { Err(disk.gone()) }
    }

    fn take_off(&self, offset: u64, blocks: Vec<Bytes>) -> u64 {
        let mut disk = self.disk.borrow_mut();
        disk.operations += 1;
        let id = disk.operations;
        let applied = vec![0; blocks.len()];
        disk.flights.insert(id, Flight { offset, blocks, applied });
        id
    }
}

impl Device for SimDevice {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Result<Buffer, DeviceError> {
        self.check("read", offset, buffer.len() as u64);
        self.begin("read", offset, buffer.len() as u64)?;
        self.later(10, 120, move |disk| disk.finish_read(offset, buffer)).await
    }

    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        self.check("write", offset, length);
        assert!(data.iter().all(|piece| (piece.len() as u64).is_multiple_of(BLOCK)), "a piece is not whole blocks");
        self.begin("write", offset, length)?;
        let blocks = data.iter().flat_map(|piece| piece.chunks(BLOCK as usize)).map(Bytes::copy_from_slice).collect();
        let id = self.take_off(offset, blocks);
        self.later(10, 150, move |disk| disk.finish_write(id, false)).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.begin("flush", 0, 0)?;
        let mark = self.disk.borrow().media.mark();
        self.later(50, 400, move |disk| disk.finish_flush(mark)).await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check("discard", offset, length);
        self.begin("discard", offset, length)?;
        let blocks = {
            let mut disk = self.disk.borrow_mut();
            disk.counters.discards += 1;
            (offset / BLOCK..(offset + length) / BLOCK).map(|number| disk.discarded(number)).collect()
        };
        let id = self.take_off(offset, blocks);
        self.later(10, 60, move |disk| disk.finish_write(id, true)).await
    }
}
