//! What may have changed since a snapshot, in random lives of a volume: all blocks that differ are named, and few
//! others.

use super::*;
use crate::Within;
use tepal_model::Lineage;
use tepal_sim::random::Stream;

/// The blocks that are written.
const BLOCKS: u64 = 40;

/// What a reader sees: for each block its byte, and the number of the change that wrote it.
#[derive(Clone)]
struct Seen {
    lineage: Lineage,
    blocks: Vec<(u8, u64)>,
}

struct Life {
    rig: Rig,
    random: Stream,
    volume: Seen,
    snapshots: Vec<Seen>,
    changes: u64,
    newest: u32,
    /// Drives that are away.
    away: Option<usize>,
}

impl Life {
    async fn new(world: SimWorld) -> Self {
        let random = Stream::new(world.core().draw());
        let rig = Rig::new(world, "mirror:2", 2).await;
        let volume = Seen { lineage: Lineage::default(), blocks: vec![(0, 0); BLOCKS as usize] };
        Life { rig, random, volume, snapshots: Vec::new(), changes: 0, newest: 1, away: None }
    }

    fn follow(&mut self) {
        let readers = self.snapshots.iter().chain([&self.volume]).map(|seen| seen.lineage.to_string());
        let readers: Vec<String> = readers.collect();
        self.rig.follow(&readers.iter().map(String::as_str).collect::<Vec<_>>());
    }

    async fn change(&mut self) {
        let first = self.random.below(BLOCKS);
        let count = 1 + self.random.below((BLOCKS - first).min(6));
        self.changes += 1;
        let byte = if self.random.one_in(3) { 0 } else { 1 + self.random.below(3) as u8 };
        match byte {
            0 => self.rig.volume.trim(first * BLOCK, count * BLOCK).await.unwrap(),
            byte => self.rig.write(first, byte, count as usize).await.unwrap(),
        }
        self.volume.blocks[first as usize..(first + count) as usize].fill((byte, self.changes));
    }

    fn take_snapshot(&mut self) {
        self.newest += 1;
        self.snapshots.push(self.volume.clone());
        self.volume.lineage = self.volume.lineage.with(self.newest).unwrap();
        self.follow();
    }

    fn roll_back(&mut self) {
        self.newest += 1;
        self.volume = self.random.pick(&self.snapshots).clone();
        self.volume.lineage = self.volume.lineage.with(self.newest).unwrap();
        self.follow();
    }

    fn remove_snapshot(&mut self) {
        let gone = self.random.index(self.snapshots.len());
        self.snapshots.remove(gone);
        self.follow();
    }

    async fn lose_or_bring_back(&mut self) {
        match self.away.take() {
            Some(drive) => {
                self.rig.bring_back(drive).await;
                self.rig.until_healthy().await;
            }
            None => {
                let drive = self.random.index(2);
                self.rig.lose(drive).await;
                self.away = Some(drive);
            }
        }
    }

    /// For each block, whether it may have changed between two moments; `None` is the volume as it is now.
    async fn changed(&self, from: &Seen, to: Option<&Seen>) -> Vec<bool> {
        let size = self.rig.volume.size();
        let older = self.rig.volume.snapshot(from.lineage.newest(), size);
        let (mut changed, end) = (Vec::new(), BLOCKS * BLOCK);
        while changed.len() < BLOCKS as usize {
            let at = changed.len() as u64 * BLOCK;
            let within = Within { offset: at, length: end - at, limit: 3 };
            let runs = match to {
                None => self.rig.volume.changed_since(&older, within).await,
                Some(to) => {
                    let newer = self.rig.volume.snapshot(to.lineage.newest(), size);
                    newer.changed_since(&older, within).await
                }
            };
            let of_run = |run: crate::Run| std::iter::repeat_n(run.mapped, (run.length / BLOCK) as usize);
            changed.extend(runs.unwrap().into_iter().flat_map(of_run));
        }
        changed
    }

    /// Expects that no block that differs is said to be the same. If all copies were written together, also that no
    /// untouched block is said to have changed.
    async fn expect(&self, is_exact: bool) {
        for (nth, from) in self.snapshots.iter().enumerate() {
            for to in self.snapshots.iter().map(Some).chain([None]) {
                let said = self.changed(from, to).await;
                let now = to.unwrap_or(&self.volume);
                for (block, said) in said.into_iter().enumerate() {
                    let (before, after) = (from.blocks[block], now.blocks[block]);
                    let what = format!("block {block} from snapshot {nth} to {}: {before:?}, {after:?}", now.lineage);
                    assert!(said || before.0 == after.0, "said to be the same: {what}");
                    assert!(!is_exact || !said || before.1 != after.1, "nobody has touched it: {what}");
                }
            }
        }
    }
}

#[test]
fn blocks_not_said_to_have_changed_are_the_same() {
    told(|world| async move {
        for are_drives_lost in [false, true] {
            let mut life = Life::new(SimWorld::boot(world.core(), "server")).await;
            for step in 0..60 {
                match life.random.below(12) {
                    0 | 1 => life.take_snapshot(),
                    2 if life.snapshots.len() > 3 => life.remove_snapshot(),
                    3 if !life.snapshots.is_empty() => life.roll_back(),
                    4 if are_drives_lost => life.lose_or_bring_back().await,
                    _ => life.change().await,
                }
                if step % 12 == 11 {
                    life.expect(!are_drives_lost).await;
                }
            }
            life.rig.world.sleep(Duration::from_secs(20)).await; // layers that nobody sees are given back
            life.expect(!are_drives_lost).await;
        }
    });
}

#[test]
fn changes_since_a_removed_snapshot_are_an_error() {
    told(|world| async move {
        let mut life = Life::new(world).await;
        life.change().await;
        life.take_snapshot();
        let snapshot = life.rig.volume.snapshot(1, BLOCKS * BLOCK);
        let within = Within { offset: 0, length: BLOCK, limit: 1 };
        assert!(life.rig.volume.changed_since(&snapshot, within).await.is_ok());
        life.remove_snapshot();
        let refused = life.rig.volume.changed_since(&snapshot, within).await;
        assert!(matches!(refused, Err(IoError::Unavailable { .. })), "{refused:?}");
    });
}
