//! A device that forgets what wasn't flushed, and takes its time if it's told to.

use crate::geometry::HEADERS;
use crate::world::{Device, DeviceError, Gather};
use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};
use tepal_model::Buffer;

/// Writes go to `now`; a flush copies it to `stable`; a power loss copies it back.
#[derive(Clone)]
pub struct TestDevice(pub Rc<RefCell<Platter>>);

pub struct Platter {
    pub now: Vec<u8>,
    pub stable: Vec<u8>,
    /// What differs between the two.
    pub unflushed: Vec<Range<usize>>,
    pub flush_fails: bool,
    /// Bytes that can't be read until they're written.
    pub unreadable: Vec<usize>,
    pub pace: Pace,
    /// How often a discard is asked until it's done.
    pub discard_takes: u32,
    /// The power goes at the write after so many, of which the first sector may be there.
    pub power_for: Option<(u32, Torn)>,
    /// The second header was written while other things weren't flushed.
    pub second_header_early: bool,
}

impl TestDevice {
    pub fn new(size: u64) -> Self {
        let blank = vec![0xa5; size as usize];
        TestDevice(Rc::new(RefCell::new(Platter {
            now: blank.clone(),
            stable: blank,
            unflushed: Vec::new(),
            flush_fails: false,
            unreadable: Vec::new(),
            pace: Pace::Prompt,
            discard_takes: 0,
            power_for: None,
            second_header_early: false,
        })))
    }
    /// The power is there again.
    pub fn lose_power(&self) {
        let mut platter = self.0.borrow_mut();
        platter.power_for = None;
        platter.now = platter.stable.clone();
    }

    fn put(&self, offset: u64, data: Gather) {
        let mut platter = self.0.borrow_mut();
        platter.second_header_early |= offset == HEADERS[1] && !platter.unflushed.is_empty();
        let mut at = offset as usize;
        for piece in data {
            platter.unreadable.retain(|bad| !(at..at + piece.len()).contains(bad));
            platter.now[at..at + piece.len()].copy_from_slice(&piece);
            platter.unflushed.push(at..at + piece.len());
            at += piece.len();
        }
    }

    /// Discarded bytes may read as anything. How many turns that takes.
    fn drop_bytes(&self, range: Range<usize>) -> u32 {
        let mut platter = self.0.borrow_mut();
        platter.now[range.clone()].fill(0xdd);
        platter.unflushed.push(range);
        platter.discard_takes
    }

    fn use_power(&self, at: usize, data: &Gather) -> Result<(), DeviceError> {
        let mut platter = self.0.borrow_mut();
        match &mut platter.power_for {
            None => return Ok(()),
            Some((writes, _)) if *writes > 1 => {
                *writes -= 1;
                return Ok(());
            }
            Some((writes, torn)) => {
                let is_torn = *writes == 1 && *torn == Torn::Yes;
                *writes = 0;
                if let Some(piece) = data.first().filter(|_| is_torn) {
                    platter.stable[at..at + 512].copy_from_slice(&piece[..512]);
                }
            }
        }
        Err(DeviceError::Gone("no power".to_owned()))
    }

    async fn take_time(&self) {
        let turns = match &mut self.0.borrow_mut().pace {
            Pace::Prompt => 0,
            Pace::Slow(turns) => *turns,
            Pace::Random(dice) => dice.roll(4) as u32,
        };
        let_others(turns).await;
    }

    /// Flips a bit in every block that holds exactly this.
    pub fn rot(&self, content: &[u8]) -> usize {
        let mut platter = self.0.borrow_mut();
        let rotten = platter.now.chunks_exact_mut(content.len()).filter(|chunk| *chunk == content);
        rotten.map(|chunk| chunk[100] ^= 1).count()
    }

    pub fn clone_deep(&self) -> Self {
        let platter = self.0.borrow();
        let copy = Platter {
            now: platter.now.clone(),
            stable: platter.stable.clone(),
            unflushed: platter.unflushed.clone(),
            flush_fails: false,
            unreadable: Vec::new(),
            pace: Pace::Prompt,
            discard_takes: 0,
            power_for: None,
            second_header_early: false,
        };
        TestDevice(Rc::new(RefCell::new(copy)))
    }
}

impl Device for TestDevice {
    fn size(&self) -> u64 {
        self.0.borrow().now.len() as u64
    }
    async fn read(&self, offset: u64, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        self.take_time().await;
        let at = offset as usize;
        let length = buffer.len();
        if self.0.borrow().unreadable.iter().any(|bad| (at..at + length).contains(bad)) {
            return Err(DeviceError::Failed { operation: "read", offset, reason: "no".to_owned() });
        }
        buffer.copy_from_slice(&self.0.borrow().now[at..at + length]);
        self.take_time().await;
        Ok(buffer)
    }
    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        self.take_time().await;
        self.use_power(offset as usize, &data)?;
        self.put(offset, data);
        self.take_time().await;
        Ok(())
    }
    async fn flush(&self) -> Result<(), DeviceError> {
        self.take_time().await;
        let mut platter = self.0.borrow_mut();
        if platter.power_for.is_some_and(|(writes, _)| writes == 0) {
            return Err(DeviceError::Gone("no power".to_owned()));
        }
        if platter.flush_fails {
            let reason = "no".to_owned();
            return Err(DeviceError::Failed { operation: "flush", offset: 0, reason });
        }
        let Platter { now, stable, unflushed, .. } = &mut *platter;
        unflushed.drain(..).for_each(|range| stable[range.clone()].copy_from_slice(&now[range]));
        Ok(())
    }
    async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let turns = self.drop_bytes(offset as usize..(offset + length) as usize);
        let_others(turns).await;
        Ok(())
    }
}

/// Whether the first sector of the write at which the power goes is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    Yes,
    No,
}

/// Lets others have so many turns.
pub async fn let_others(mut turns: u32) {
    let turn = move |context: &mut Context<'_>| {
        let Some(left) = turns.checked_sub(1) else { return Poll::Ready(()) };
        turns = left;
        context.waker().wake_by_ref();
        Poll::Pending
    };
    poll_fn(turn).await;
}

/// How many turns others have while the device does something.
#[derive(Clone, Copy)]
pub enum Pace {
    Prompt,
    Slow(u32),
    /// Some, or none.
    Random(Dice),
}

/// Numbers that follow from a seed.
#[derive(Clone, Copy)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}
