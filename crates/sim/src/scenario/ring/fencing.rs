//! Clients that hold the volume, each as of a number, until another takes it from them: docs/durability.md, promise 4.

use super::Ring;
use super::node::Node;
use crate::executor::{SCENARIO, Sleep};
use crate::scenario::server::ServedVolume;
use crate::workload::{Holder, VolumeUnderTest, Workload};
use crate::world::SimWorld;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tepal_engine::{Run, Volume};
use tepal_model::{IoError, Segments};

/// How often it's looked whether all act by a view.
const LOOK: Duration = Duration::from_micros(900);

/// Those that hold the volume, or held it, by their numbers.
pub type Holders = Rc<RefCell<Vec<(u64, Rc<Holder>)>>>;

/// The volume as one holder's, as a server's front-end has it (`server/nbd/disk.rs`).
pub struct HeldVolume {
    volume: Volume<SimWorld>,
    /// As its server knows it.
    now: Rc<Cell<u64>>,
    number: u64,
}

impl HeldVolume {
    pub fn of(node: &Node) -> Self {
        let (volume, now) = (node.volume.clone(), node.holder.clone());
        HeldVolume { volume, number: now.get(), now }
    }

    fn may(&self) -> Result<(), IoError> {
        if self.now.get() == self.number { Ok(()) } else { Err(IoError::Fenced) }
    }

    async fn change<F: Future<Output = Result<(), IoError>>>(
        &self,
        change: impl Fn(ServedVolume) -> F,
    ) -> Result<(), IoError> {
        loop {
            // In this order: the number changes before the revision does.
            let revision = self.volume.revision();
            self.may()?;
            match change(ServedVolume::of(self.volume.as_of(revision))).await {
                Err(IoError::Fenced) if self.volume.revision() != revision => {}
                Ok(()) => return self.may(),
                failed => return failed,
            }
        }
    }
}

impl VolumeUnderTest for HeldVolume {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.may()?;
        self.volume.read(offset, length).await
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let write = |volume: ServedVolume| {
            let data = data.clone();
            async move { volume.write(offset, data, fua).await }
        };
        self.change(write).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.may()?;
        self.volume.flush().await
    }

    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.change(|volume| async move { volume.trim(offset, length, fua).await }).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.change(|volume| async move { volume.write_zeroes(offset, length, fua).await }).await
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.may()?;
        ServedVolume::of(self.volume.clone()).block_status(offset, length, limit).await
    }
}

impl Ring {
    /// Clients that hold the volume as of what that machine knows.
    pub(super) fn begin_to_hold(&mut self, node: &Node) -> Workload {
        let (held, holder) = (Rc::new(HeldVolume::of(node)), Rc::<Holder>::default());
        let (number, council, shortest) = (held.number, self.council.clone(), self.shortest.clone());
        self.holders.borrow_mut().push((number, holder.clone()));
        if number < self.fenced.get() {
            holder.fence(); // its machine hasn't heard of that yet
        }
        let may_fail = Rc::new(move |error: &IoError, _, offset, length| match error {
            IoError::OutOfRange { .. } => offset + length > shortest.get(),
            IoError::Fenced => number < council.holder(),
            _ => false,
        });
        let workload = Workload::new(&self.core, self.checker.clone(), self.plan.mix.clone(), may_fail).held_by(holder);
        workload.start(&node.world, &held, self.random.between(self.plan.requests.clone()));
        workload
    }

    /// The volume is taken from whoever holds it. Once all act by that, nothing more of theirs is done.
    pub(super) fn volume_is_taken(&mut self) {
        let Some((number, view)) = self.council.take_volume() else { return };
        self.core.note(number, || format!("the volume is taken, for the time number {number}"));
        let (core, council, checker) = (self.core.clone(), self.council.clone(), self.checker.clone());
        let (holders, fenced) = (self.holders.clone(), self.fenced.clone());
        let taken = async move {
            while !council.all_act_by(view) {
                Sleep::until(&core, core.now() + LOOK).await;
            }
            core.note(number, || format!("all act by it that the volume was taken for the time number {number}"));
            fenced.set(fenced.get().max(number));
            for (_, holder) in holders.borrow_mut().extract_if(.., |(of, _)| *of < number) {
                checker.borrow_mut().fenced(&holder.fence());
            }
        };
        self.core.spawn(SCENARIO, "take", Box::pin(taken));
    }
}
