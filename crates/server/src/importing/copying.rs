//! Copying what a volume is imported from, in order: holes are left out, and so is what clients have written by then.
//!
//! Invariant: what is said to be there for good is on stable media, and all before it.

use super::Known;
use crate::drives::Parts;
use crate::volumes::{NotServed, Volumes};
use crate::world::ServerWorld;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tepal_engine::Volume;
use tepal_metadata::{
    Command, LiveCommand, LiveRecord, LiveStage, ProposeError, Refusal, Versioned, VolumeRecord, volume_tag,
};
use tepal_model::{BLOCK, IoError, VolumeId};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often it's looked at least whether something is to be copied.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// After something that went wrong.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Bytes that are copied between two looks at the state.
const ROUND: u64 = 64 << 20;
/// Bytes that are copied at once, and how many of these.
const PIECE: u64 = 1 << 20;
const AT_ONCE: usize = 4;
/// Zeros of that length, at multiples of it, aren't written.
const HOLE: usize = 64 << 10;
/// How far it's agreed on is said as often.
const BETWEEN_NOTES: Duration = Duration::from_secs(1);
/// While clients use the volume here, one piece is copied at a time, and after each it rests for so many times as long as that took, at
/// most for that long.
const RESTS: u32 = 8;
const LONGEST_REST: Duration = Duration::from_millis(500);

/// Why copying stops for now.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    NotServed(#[from] NotServed),
    #[error(transparent)]
    Threads(#[from] crate::data_threads::Stopped),
    #[error(transparent)]
    Metadata(#[from] ProposeError),
}

impl Stopped {
    fn is_of_another_record(&self) -> bool {
        use ProposeError::Refused;
        matches!(self, Stopped::Io(IoError::Fenced) | Stopped::Metadata(Refused(Refusal::OtherRevision { .. })))
    }
}

/// A copy under way, which ends with this.
struct Copying(JoinHandle<()>);

impl Drop for Copying {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Until the server stops.
pub async fn keep_copying(parts: Parts, volumes: Arc<Volumes>) {
    let mut changes = parts.metadata.watch();
    let mut copying: BTreeMap<VolumeId, Copying> = BTreeMap::new();
    loop {
        let state = changes.borrow_and_update().clone();
        let leads = parts.metadata.leader() == Some(parts.metadata.server());
        let runs = |record: &LiveRecord| leads && record.stage == LiveStage::Running;
        let wanted = |volume: &VolumeId| state.access.live_imports.get(volume).is_some_and(|record| runs(record));
        copying.retain(|volume, task| wanted(volume) && !task.0.is_finished());
        for record in state.access.live_imports.values().filter(|record| runs(record)) {
            copying.entry(record.volume).or_insert_with(|| {
                let copier = Copier::new(&parts, &volumes, record.volume);
                Copying(crate::tasks::spawn(copier.keep()))
            });
        }
        if let Ok(Err(_)) = timeout(LOOK_AGAIN, changes.changed()).await {
            return;
        }
    }
}

struct Copier {
    parts: Parts,
    volumes: Arc<Volumes>,
    id: VolumeId,
    /// As many requests of clients had been begun when a piece was copied last.
    seen: AtomicU64,
    /// Of one piece, while clients use the volume.
    turn: tokio::sync::Mutex<()>,
}

impl Copier {
    fn new(parts: &Parts, volumes: &Arc<Volumes>, id: VolumeId) -> Self {
        let (seen, turn) = (AtomicU64::new(0), tokio::sync::Mutex::default());
        Copier { parts: parts.clone(), volumes: volumes.clone(), id, seen, turn }
    }

    async fn keep(self) {
        while let Some((record, live)) = self.records() {
            let copied = self.copy(&record, live.done).await;
            match (copied, self.parts.imports.known(self.id)) {
                (Ok(()), _) => return,
                // The record has changed meanwhile.
                (Err(error), _) if error.is_of_another_record() => sleep(TRY_AGAIN / 10).await,
                (Err(_), None) => sleep(TRY_AGAIN / 10).await,
                (Err(error), Some(known)) => {
                    tracing::warn!(volume = record.name, %error, "a live import can't go on now");
                    known.note(Some(error.to_string()));
                    sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    fn records(&self) -> Option<(Arc<VolumeRecord>, Arc<LiveRecord>)> {
        let state = self.parts.metadata.state();
        let record = state.volumes.get(&self.id)?;
        Some((record.clone(), state.access.live_imports.get(&self.id)?.clone()))
    }

    async fn copy(&self, record: &VolumeRecord, done: u64) -> Result<(), Stopped> {
        let volume = self.volumes.unlocked(record).await?;
        let Some(known) = self.parts.imports.known(self.id) else { return Err(IoError::Fenced.into()) };
        let (volume, size) = (volume.as_of(record.revision), record.size);
        let (mut at, mut noted) = (done, Instant::now());
        while at < size {
            at = self.copy_some(&volume, &known, at..(at + ROUND).min(size)).await?;
            if at == size || noted.elapsed() >= BETWEEN_NOTES {
                self.flush(&volume).await?;
                self.note(record, at).await?;
                known.note(None);
                noted = Instant::now();
            }
        }
        self.parts.authority.propose(Command::Live(LiveCommand::Finish { volume: self.id })).await?;
        Ok(())
    }

    /// By this record: in a later one, some of what was copied may have been lost.
    async fn note(&self, record: &VolumeRecord, done: u64) -> Result<(), Stopped> {
        let command = Command::Live(LiveCommand::Note { volume: self.id, done });
        let thing = Versioned::Volume(self.id);
        let expected = vec![volume_tag(self.id, record.revision)];
        self.parts.authority.propose(Command::IfMatch { thing, expected, command: Box::new(command) }).await?;
        Ok(())
    }

    async fn flush(&self, volume: &Volume<ServerWorld>) -> Result<(), Stopped> {
        let volume = volume.clone();
        Ok(self.parts.threads.run_on(self.thread(), move || async move { volume.flush().await }).await??)
    }

    /// Volumes go round the threads.
    fn thread(&self) -> usize {
        self.id.0 as usize % self.parts.threads.count()
    }

    /// Copies some of these bytes: up to which one.
    async fn copy_some(&self, volume: &Volume<ServerWorld>, known: &Known, bytes: Range<u64>) -> Result<u64, Stopped> {
        let (mut at, mut pieces) = (bytes.start, Vec::new());
        // Of a hole more is passed over than would be copied.
        let far = volume.size();
        while at < bytes.end {
            let source = known.source.clone();
            let zeros = move || async move { source.zeros_in(at..far).await };
            for (length, is_zero) in self.parts.threads.run_while_awaited(self.thread(), zeros).await?? {
                let end = if is_zero { at + length } else { (at + length).min(bytes.end) };
                if !is_zero {
                    pieces.extend(pieces_of(at..end, far));
                }
                at = end;
                if at >= bytes.end {
                    break;
                }
            }
        }
        pieces.dedup();
        let copied = stream::iter(pieces).map(|piece| self.copy_piece(volume, known, piece)).buffer_unordered(AT_ONCE);
        copied.try_collect::<Vec<()>>().await?;
        // A block that has a hole's beginning has been copied; one that has its end comes next.
        Ok(if at >= far { far } else { at / BLOCK * BLOCK })
    }

    async fn copy_piece(&self, volume: &Volume<ServerWorld>, known: &Known, piece: Range<u64>) -> Result<(), Stopped> {
        let before = self.seen.load(Ordering::Relaxed);
        let _turn = match known.live.requests() == before {
            true => None,
            false => Some(self.turn.lock().await),
        };
        let began = Instant::now();
        self.write_piece(volume, known, piece).await?;
        let now = known.live.requests();
        if now != self.seen.swap(now, Ordering::Relaxed) {
            sleep((began.elapsed() * RESTS).min(LONGEST_REST)).await;
        }
        Ok(())
    }

    async fn write_piece(&self, volume: &Volume<ServerWorld>, known: &Known, piece: Range<u64>) -> Result<(), Stopped> {
        let (source, wanted) = (known.source.clone(), piece.clone());
        let read = move || async move { source.read_some(wanted).await };
        let data = self.parts.threads.run_while_awaited(self.thread(), read).await??;
        let mut from = 0;
        while from < data.len() {
            // Runs of what has something, without the holes between.
            let holds = |chunk: &[u8]| chunk.iter().any(|byte| *byte != 0);
            let empty = data[from..].chunks(HOLE).take_while(|chunk| !holds(chunk)).map(<[u8]>::len).sum::<usize>();
            from += empty;
            let length = data[from..].chunks(HOLE).take_while(|chunk| holds(chunk)).map(<[u8]>::len).sum::<usize>();
            if length > 0 {
                let (volume, offset, part) =
                    (volume.clone(), piece.start + from as u64, data.slice(from..from + length));
                let fill = move || async move { volume.fill(offset, part).await };
                self.parts.threads.run_on(self.thread(), fill).await??;
            }
            from += length;
        }
        Ok(())
    }
}

/// Whole blocks, at most [`PIECE`] each, that have all of these bytes.
fn pieces_of(bytes: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let first = bytes.start / BLOCK * BLOCK;
    let end = bytes.end.next_multiple_of(BLOCK).min(size);
    (first..end).step_by(PIECE as usize).map(move |at| at..(at + PIECE).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one piece of several")]
    fn pieces_are_whole_blocks_but_for_the_last_one() {
        let pieces = |bytes, size| pieces_of(bytes, size).collect::<Vec<_>>();
        assert_eq!(pieces(5000..5001, 1 << 30), [4096..8192]);
        assert_eq!(pieces(0..PIECE + 1, 1 << 30), [0..PIECE, PIECE..PIECE + BLOCK]);
        assert_eq!(pieces(8192..9000, 9216), [8192..9216]);
    }
}
