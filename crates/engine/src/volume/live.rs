//! A volume that is used while it's imported: what no drive holds yet is read where the volume comes from.
//!
//! A volume begins as one of which no drive holds anything. Some server copies all of the *old place* into it, block by block, in order,
//! and only where no drive holds a block yet; up to which byte that is done is agreed. Whoever is asked to read beyond asks first which
//! blocks are held, reads those here, and has the others from the old place.
//!
//! Invariants:
//! 1. The old place never changes.
//! 2. While the import goes on, a block that is held stays held: zeros are written, and nothing is discarded. So what was once seen here is
//!    never seen as the old place has it again, and who knows less of the progress reads the same.
//! 3. A block is held with all of its bytes: a write of a part comes after the block was copied.
//! 4. All that goes by whether a block is held, or by how much is copied, is done as of a revision of the volume's record in which that
//!    was so. The end of the import is another revision, and so is an operator's word that what was lost is given up: it's copied from the
//!    beginning on then. Nobody takes a block for one that isn't copied that was discarded after the end, or one for a hole that was lost.

use super::operation::Fill;
use super::read_write::MOMENT;
use super::{Run, Volume, Within};
use crate::servers::reach::Undone;
use bytes::Bytes;
use futures_util::future::join_all;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, IoError, Segments};

/// Runs of blocks that are asked about at once.
const RUNS: usize = 1024;

/// What is answered later.
pub type Later<T> = Pin<Box<dyn Future<Output = Result<T, IoError>> + Send>>;

/// A handle of one revision, and the import that goes on in it.
type Imported<W> = (Volume<W>, Arc<Live>);

/// Where a volume comes from. What it has never changes.
pub trait OldPlace: Send + Sync + 'static {
    /// These bytes; zeros past its end. Waits while it can't be reached. [`IoError::Fenced`] once nobody may read there any more.
    fn read(&self, bytes: Range<u64>) -> Later<Bytes>;

    /// The lengths of runs of these bytes, and whether they are nothing but zeros. Waits as a read does.
    fn zeros(&self, bytes: Range<u64>) -> Later<Vec<(u64, bool)>>;
}

/// Bytes from the volume's beginning on that are copied, as agreed; it may be more by now.
#[derive(Clone, Copy, Debug)]
struct Copied {
    /// Of the volume's record: in a later one it may be less.
    revision: u64,
    bytes: u64,
}

/// The import of one volume, as known here.
pub struct Live {
    old_place: Box<dyn OldPlace>,
    copied: Mutex<Copied>,
    /// Counts what clients ask for here.
    requests: AtomicU64,
}

impl Live {
    /// An import that has come so far, by this revision of the volume's record.
    pub fn new(old_place: Box<dyn OldPlace>, revision: u64, copied: u64) -> Self {
        let copied = Mutex::new(Copied { revision, bytes: copied });
        Live { old_place, copied, requests: AtomicU64::new(0) }
    }

    /// Where it comes from.
    pub fn old_place(&self) -> &dyn OldPlace {
        &*self.old_place
    }

    /// It has come so far, as is agreed in this revision of the volume's record. What is said of an earlier one doesn't count.
    pub fn is_copied(&self, revision: u64, bytes: u64) {
        let mut known = self.copied.lock().expect("nothing panics while it holds it");
        let bytes = if revision == known.revision { bytes.max(known.bytes) } else { bytes };
        if revision >= known.revision {
            *known = Copied { revision, bytes };
        }
    }

    /// How many requests of clients this server has begun: whoever copies lets them go first.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn copied(&self) -> u64 {
        self.copied.lock().expect("nothing panics while it holds it").bytes
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("copied", &self.copied).finish_non_exhaustive()
    }
}

impl PartialEq for Live {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Live {}

/// Whether a volume is imported now.
pub(super) struct Importing {
    is: AtomicBool,
    now: Mutex<Option<Arc<Live>>>,
}

impl Importing {
    pub fn new(live: Option<Arc<Live>>) -> Self {
        Importing { is: AtomicBool::new(live.is_some()), now: Mutex::new(live) }
    }
}

impl<W: World> Volume<W> {
    /// The import that goes on, as far as is known here.
    pub fn live(&self) -> Option<Arc<Live>> {
        let importing = &self.shared.importing;
        match importing.is.load(Ordering::Acquire) {
            true => importing.now.lock().expect("nothing panics while it holds it").clone(),
            false => None,
        }
    }

    fn note_request(&self) {
        if let Some(live) = self.live() {
            live.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How far its import is, by a revision of its record that is about to be known here. `None`: all of it is here, if it ever was
    /// imported. Who holds the record calls this, so that nobody knows the one without the other.
    pub(super) fn has_come(&self, revision: u64, copied: Option<u64>) {
        let importing = &self.shared.importing;
        match copied {
            None => {
                importing.is.store(false, Ordering::Release);
                *importing.now.lock().expect("nothing panics while it holds it") = None;
            }
            Some(bytes) => self.live().iter().for_each(|live| live.is_copied(revision, bytes)),
        }
    }

    /// By this revision, known before it's looked whether the volume is imported, only that is asked which may be asked while it is.
    fn as_it_is_imported(&self) -> Result<Option<Imported<W>>, IoError> {
        if !self.is_current() || self.is_cut_off() {
            return Err(IoError::Fenced);
        }
        let revision = self.as_of.unwrap_or_else(|| self.revision());
        Ok(self.live().map(|live| (self.as_of(revision), live)))
    }

    /// Does something for as long as it's refused because the import has just ended, or another change of the record came in between.
    async fn while_imported<T>(
        &self,
        ordinarily: impl AsyncFn() -> Result<T, IoError>,
        imported: impl AsyncFn(&Volume<W>, &Live) -> Result<T, IoError>,
    ) -> Result<T, IoError> {
        loop {
            let Some((own, live)) = self.as_it_is_imported()? else { return ordinarily().await };
            match imported(&own, &live).await {
                Err(IoError::Fenced) => {}
                outcome => return outcome,
            }
            let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
            engine.world().sleep(MOMENT).await;
        }
    }

    /// As [`Volume::read`].
    pub(super) async fn read_live(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.note_request();
        let whole = offset..offset + length;
        let of_both = async |own: &Volume<W>, live: &Live| {
            let here = async |bytes: Range<u64>| own.read_at(bytes.start, bytes.end - bytes.start, None).await;
            let parts = match whole.end <= live.copied() {
                true => vec![(whole.clone(), true)],
                false => own.parts(live, whole.clone()).await?,
            };
            let read = async |(bytes, is_here): &(Range<u64>, bool)| match is_here {
                true => here(bytes.clone()).await,
                false => live.old_place.read(bytes.clone()).await.map(|bytes| Segments::from_iter([bytes])),
            };
            let mut all = Segments::new();
            for segments in join_all(parts.iter().map(read)).await {
                all.extend(segments?);
            }
            own.still(all)
        };
        self.while_imported(async || self.read_at(offset, length, None).await, of_both).await
    }

    /// What was found by this handle's revision, if that is still the latest.
    fn still<T>(&self, found: T) -> Result<T, IoError> {
        if self.is_current() { Ok(found) } else { Err(IoError::Fenced) }
    }

    /// The bytes in order, cut where they are here and where not. Bytes that are copied are here, though no drive may hold them.
    async fn parts(&self, live: &Live, bytes: Range<u64>) -> Result<Vec<(Range<u64>, bool)>, IoError> {
        let copied = live.copied();
        let mut parts: Vec<(Range<u64>, bool)> = Vec::new();
        let mut add = |bytes: Range<u64>, is_here: bool| match parts.last_mut() {
            _ if bytes.is_empty() => {}
            Some((last, same)) if *same == is_here => last.end = bytes.end,
            _ => parts.push((bytes, is_here)),
        };
        add(bytes.start..bytes.end.min(copied), true);
        let mut at = bytes.start.max(copied);
        // Drives hold whole blocks.
        let past = bytes.end.next_multiple_of(BLOCK).min(self.size());
        while at < bytes.end {
            let first = at / BLOCK * BLOCK;
            let within = Within { offset: first, length: past - first, limit: RUNS };
            let runs = self.status_of(within, None, None).await?;
            let mut from = first;
            for Run { length, mapped } in runs {
                add(from.max(at)..(from + length).min(bytes.end), mapped);
                from += length;
            }
            if from == first {
                return Err(IoError::Fenced); // the volume ends here by now
            }
            at = from;
        }
        Ok(parts)
    }

    /// Has bytes of the old place be the volume's where no drive holds anything. They are whole blocks, but for the volume's last one.
    pub async fn fill(&self, offset: u64, data: Bytes) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        let data = self.enciphered(offset, data)?;
        let map = self.map();
        let parts = map.striping().parts(offset, data.len() as u64);
        let fill = async |part: &crate::map::Part| {
            let gather: Gather = part.slices.iter().map(|slice| data.slice(slice.clone())).collect();
            match self.at_primary(map, part.column, &Fill { offset: part.offset, data: gather }, None).await {
                Ok(()) => Ok(()),
                Err(Undone::Io(error)) => Err(error),
                Err(Undone::Migrated(_)) => Err(IoError::Fenced), // it stays where it is until all of it is there
            }
        };
        join_all(parts.iter().map(fill)).await.into_iter().collect()
    }

    /// As [`Volume::write`]: of a block of which a part is written, the rest is copied first.
    pub(super) async fn write_live(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.note_request();
        let edges = self.edges(offset..offset + data.len() as u64);
        let ordinarily = async || self.write_as_ever(offset, data.clone(), fua).await;
        if edges.is_empty() {
            return ordinarily().await;
        }
        let behind_edges = async |own: &Volume<W>, live: &Live| {
            own.complete(live, &edges).await?;
            own.write_as_ever(offset, data.clone(), fua).await
        };
        self.while_imported(ordinarily, behind_edges).await
    }

    /// The blocks of which these bytes have a part only.
    fn edges(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let size = self.size();
        let is_part = |block: &Range<u64>| bytes.start > block.start || bytes.end < block.end;
        let block = |at: u64| at / BLOCK * BLOCK..(at / BLOCK * BLOCK + BLOCK).min(size);
        let mut edges = vec![block(bytes.start), block(bytes.end.max(1) - 1)];
        edges.dedup();
        edges.retain(is_part);
        edges
    }

    /// Copies blocks, so that the rest of them isn't taken for zeros when a part is written. What is written then is by the same revision.
    async fn complete(&self, live: &Live, edges: &[Range<u64>]) -> Result<(), IoError> {
        for edge in edges {
            for (bytes, is_here) in self.parts(live, edge.clone()).await? {
                if !is_here {
                    let data = live.old_place.read(bytes.clone()).await?;
                    self.fill(bytes.start, data).await?;
                }
            }
        }
        Ok(())
    }

    /// As [`Volume::write_zeroes`]: nothing is discarded, or what the old place has would be seen again. What reads as zeros stays.
    pub(super) async fn zero_live(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.note_request();
        let edges = self.edges(offset..offset + length);
        // Where it goes on if it has to begin anew: others may have written since to what is done.
        let undone = AtomicU64::new(offset);
        let zero = async |own: &Volume<W>, live: &Live| {
            own.complete(live, &edges).await?;
            if allocate {
                return own.zero_as_ever(offset, length, true).await;
            }
            for (bytes, is_here) in own.parts(live, undone.load(Ordering::Relaxed)..offset + length).await? {
                let mut at = bytes.start;
                while at < bytes.end {
                    // Lengths, and whether they are zeros already.
                    let runs: Vec<(u64, bool)> = match is_here {
                        true => {
                            let within = Within { offset: at, length: bytes.end - at, limit: RUNS };
                            let runs = own.status_of(within, None, None).await?;
                            runs.into_iter().map(|run| (run.length, !run.mapped)).collect()
                        }
                        false => in_blocks(at..bytes.end, live.old_place.zeros(at..bytes.end).await?),
                    };
                    for (length, is_zero) in runs {
                        let length = length.min(bytes.end - at);
                        if !is_zero {
                            own.zero_as_ever(at, length, true).await?;
                        }
                        at += length;
                        undone.store(at, Ordering::Relaxed);
                    }
                }
            }
            Ok(())
        };
        let ordinarily = async || {
            let from = undone.load(Ordering::Relaxed);
            if from == offset + length {
                Ok(())
            } else {
                self.zero_as_ever(from, offset + length - from, allocate).await
            }
        };
        self.while_imported(ordinarily, zero).await
    }

    /// All that isn't here yet may hold something.
    pub(super) async fn status_live(&self, within: Within) -> Result<Vec<Run>, IoError> {
        let Within { offset, length, limit } = within;
        let of_both = async |own: &Volume<W>, live: &Live| {
            let copied = live.copied();
            if offset >= copied {
                return Ok(vec![Run { length, mapped: true }]);
            }
            let end = (offset + length).min(copied);
            let mut runs = own.status_of(Within { offset, length: end - offset, limit }, None, None).await?;
            let is_all = runs.iter().map(|run| run.length).sum::<u64>() == end - offset;
            let rest = offset + length - end;
            let has_room = runs.len() < limit;
            match runs.last_mut() {
                Some(last) if is_all && last.mapped => last.length += rest,
                _ if is_all && rest > 0 && has_room => runs.push(Run { length: rest, mapped: true }),
                _ => {}
            }
            own.still(runs)
        };
        self.while_imported(async || self.status_of(within, None, None).await, of_both).await
    }
}

/// The same runs, but of whole blocks: what is done to a block is done to all of it, as somebody may write to it meanwhile. A block that
/// isn't all zeros counts as none. At least one run, unless nothing is asked for.
fn in_blocks(bytes: Range<u64>, runs: Vec<(u64, bool)>) -> Vec<(u64, bool)> {
    let (mut told, mut at, mut found) = (bytes.start, bytes.start, Vec::new());
    for (length, is_zero) in runs {
        let end = (at + length).min(bytes.end);
        if !is_zero && end > told {
            let first = told.max(at / BLOCK * BLOCK);
            let past = end.next_multiple_of(BLOCK).min(bytes.end);
            found.extend([(first - told, true), (past - first, false)]);
            told = past;
        }
        at = end;
    }
    // Of the last block, a part may not have been told.
    let end = if at == bytes.end { at } else { at / BLOCK * BLOCK };
    found.extend((end > told).then(|| (end - told, true)));
    found.retain(|(length, _)| *length > 0);
    if found.is_empty() && !bytes.is_empty() {
        let past = (bytes.start / BLOCK * BLOCK + BLOCK).min(bytes.end);
        found.push((past - bytes.start, false));
    }
    found
}

#[cfg(test)]
impl<W: World> Volume<W> {
    /// As if it had been opened so.
    pub(crate) fn imports(&self, live: Arc<Live>) {
        *self.shared.importing.now.lock().expect("nothing panics while it holds it") = Some(live);
        self.shared.importing.is.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: zeros that were written where the old place had half a block of them left a client's other half there, that came meanwhile.
    #[test]
    fn what_is_not_all_zeros_is_no_block_of_zeros() {
        let runs = |from: u64, to: u64, runs: &[(u64, bool)]| in_blocks(from..to, runs.to_vec());
        assert_eq!(runs(0, 8192, &[(8192, true)]), [(8192, true)]);
        assert_eq!(runs(0, 8192, &[(5000, true), (3192, false)]), [(4096, true), (4096, false)]);
        assert_eq!(runs(0, 12288, &[(512, true), (512, false), (11264, true)]), [(4096, false), (8192, true)]);
        assert_eq!(
            runs(0, 4096, &[(512, true), (512, false), (512, true), (512, false), (2048, true)]),
            [(4096, false)]
        );
        assert_eq!(runs(1000, 9000, &[(96, false), (7904, true)]), [(3096, false), (4904, true)]);
        assert_eq!(runs(0, 8192, &[(5000, true)]), [(4096, true)], "the rest isn't told");
        assert_eq!(runs(0, 8192, &[(100, true)]), [(4096, false)], "nothing is known of a block");
    }
}
