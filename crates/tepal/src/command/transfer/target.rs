//! The volume that is written to: found once by its name or made, and known by its id from then on.

use super::writers::Writers;
use super::{HOLE, PIECE, TransferError, is_zero};
use crate::cli::ImportArguments;
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::command::hold::{Hold, HoldUse, random};
use crate::output;
use std::io::Write;
use std::time::{Duration, Instant};
use tepal_server::api::types::{
    CreateVolume, Done, FinishImport, MapRun, NoteImport, Range, ResizeVolume, VolumeInfo, ZeroRange, path, route,
};

/// Zeros in one request.
const ZEROS: u64 = 256 << 20;

/// So much of the input is written before it's made known that it needn't be written again: also no sooner than after so much data or time,
/// as most of a large disk may be holes.
const BETWEEN_NOTES: u64 = 1 << 30;
const DATA_BETWEEN_NOTES: u64 = 256 << 20;
const TIME_BETWEEN_NOTES: Duration = Duration::from_secs(1);

/// An import that was killed is known to have gone by then: servers take it to go on for five seconds.
const GONE_BY: Duration = Duration::from_secs(7);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// So often it's said that an import is finished, while the answers get lost.
const MOST_TRIES: u32 = 8;

pub struct Target<'a> {
    client: &'a Client,
    /// As it was called when it was found.
    pub name: String,
    /// Stands for its name.
    id: String,
    /// Bytes.
    pub size: u64,
    /// What the volume is incomplete by, until it's finished.
    import: u64,
    /// Of the volume, until then: no snapshot is made of what is incomplete.
    epoch: u64,
    /// Bytes of the input that it has.
    done: u64,
    /// Of them, those that were noted, when, and how much data was sent since.
    noted: u64,
    noted_at: Instant,
    data: u64,
    /// It was made for this, and reads as zeros wherever nothing was written.
    is_new: bool,
    /// It had a part of an import before.
    pub was_incomplete: bool,
    writers: Writers,
    _hold: Hold,
}

/// How large a volume is to be for what is on standard input.
#[derive(Clone, Copy)]
pub enum Wanted {
    /// A pipe doesn't say.
    Unknown,
    /// Bytes of an image: the volume may go on after its end.
    AtLeast(u64),
    Exactly(u64),
}

impl Wanted {
    fn size(self) -> Option<u64> {
        match self {
            Wanted::Unknown => None,
            // A volume's size is a multiple of 512.
            Wanted::AtLeast(length) | Wanted::Exactly(length) => Some(length.next_multiple_of(512)),
        }
    }
}

/// The volume with the size that is wanted: enlarged where that is needed, made shorter only where that was asked for.
pub fn resized(client: &Client, volume: VolumeInfo, wanted: Wanted, shrink: bool) -> Result<VolumeInfo, CommandError> {
    let Some(size) = wanted.size() else {
        return if shrink { Err(TransferError::ShrinkToWhat(volume.name).into()) } else { Ok(volume) };
    };
    let (found, grows) = (volume.size, volume.size < size);
    if found == size || (!grows && !shrink && matches!(wanted, Wanted::AtLeast(_))) {
        return Ok(volume);
    } else if !grows && !shrink {
        return Err(TransferError::TooLarge { name: volume.name, found: output::size(found), wanted: size }.into());
    }
    let asked = ResizeVolume { size, shrink: !grows, force: false, replica_of: None, import: None };
    let volume: VolumeInfo = client.post(&path(route::VOLUME_RESIZE, &volume.by_id()), &asked)?;
    let (name, became) = (&volume.name, if grows { "larger" } else { "smaller" });
    // Standard output is for the answer alone.
    let remark = format!("volume {name} was made {became}: {} instead of {}", output::size(size), output::size(found));
    let _ = writeln!(std::io::stderr(), "{remark}");
    Ok(volume)
}

/// The volume once no other import writes to it. One that goes on is an error, unless `force` has this one take its place: that one ends
/// with an error then, and nothing of it is written any more once this one has begun.
pub fn once_alone(client: &Client, volume: VolumeInfo, force: bool) -> Result<VolumeInfo, CommandError> {
    if force || volume.imports == 0 {
        return Ok(volume);
    }
    // Standard output is for the answer alone.
    let _ = writeln!(
        std::io::stderr(),
        "volume {} is in use, an import writes to it: this waits for {} s, by which one that was killed has gone",
        volume.name,
        GONE_BY.as_secs()
    );
    let end = Instant::now() + GONE_BY;
    loop {
        std::thread::sleep(LOOK_AGAIN);
        let volume: VolumeInfo = client.get(&path(route::VOLUME, &volume.by_id()))?;
        match volume.imports {
            0 => return Ok(volume),
            _ if Instant::now() > end => return Err(TransferError::Imported(volume.name).into()),
            _ => {}
        }
    }
}

/// What an import finds.
enum Found {
    /// Made for this import.
    New(VolumeInfo, u64),
    /// To be written from here on.
    Old(VolumeInfo, u64),
}

/// Random, never 0.
fn new_import() -> u64 {
    (random() >> 1).max(1)
}

impl<'a> Target<'a> {
    /// One that is there, and is incomplete from now on.
    pub fn of(client: &'a Client, volume: VolumeInfo) -> Result<Self, TransferError> {
        Self::begin(client, Found::Old(volume, 0))
    }

    /// The volume that there is, or a new one, which is incomplete from now on.
    pub fn find_or_make(client: &'a Client, arguments: ImportArguments, wanted: Wanted) -> Result<Self, CommandError> {
        let ImportArguments { name, size, layout, pool, key, resume, shrink, force, .. } = arguments;
        let found = match client.get::<VolumeInfo>(&path(route::VOLUME, &name)) {
            Ok(volume) => {
                // Of a pipe it says how long that is to be.
                let is_said = size.is_some() && !matches!(wanted, Wanted::Unknown);
                let options = [
                    (is_said, "--size"),
                    (layout.is_some(), "--layout"),
                    (pool.is_some(), "--pool"),
                    (key.is_some(), "--key"),
                ];
                if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
                    let size = output::size(volume.size);
                    return Err(TransferError::Exists { name, size, option }.into());
                }
                let volume = once_alone(client, volume, force)?;
                let done = match volume.incomplete {
                    Some(begun) if resume => begun.done,
                    None if resume => return Err(TransferError::Whole(name).into()),
                    _ => 0,
                };
                let wanted = size.map_or(wanted, Wanted::AtLeast);
                Found::Old(resized(client, volume, wanted, shrink)?, done)
            }
            Err(error) if error.is_not_found() && !resume => {
                let Some(size) = size.or(wanted.size()) else { return Err(TransferError::SizeUnknown(name).into()) };
                let layout = layout.map(|layout| layout.to_string());
                let import = new_import();
                let request = CreateVolume { name, size, layout, pool, key, plain: false, import: Some(import) };
                Found::New(client.create(route::VOLUMES, &request)?, import)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self::begin(client, found)?)
    }

    fn begin(client: &'a Client, found: Found) -> Result<Self, TransferError> {
        let (volume, done, import, is_new) = match found {
            Found::New(volume, import) => (volume, 0, import, true),
            Found::Old(volume, done) => (volume, done, new_import(), false),
        };
        let id = volume.by_id();
        let _hold = Hold::begin(client, id.clone(), HoldUse::Import);
        let was_incomplete = volume.incomplete.is_some() && !is_new;
        let (name, size, epoch) = (volume.name, volume.size, volume.epoch);
        let (noted, noted_at, data) = (done, Instant::now(), 0);
        let mut target = Target {
            client,
            name,
            id,
            size,
            import,
            epoch,
            done,
            noted,
            noted_at,
            data,
            is_new,
            was_incomplete,
            writers: Writers::new(),
            _hold,
        };
        if !is_new {
            target.epoch = target.note()?.epoch;
        }
        Ok(target)
    }

    /// Bytes from the beginning of the input that are there already.
    pub fn resumed_at(&self) -> u64 {
        self.noted
    }

    /// So many bytes from the beginning of the input are written.
    pub fn reached(&mut self, done: u64) -> Result<(), TransferError> {
        let is_due = self.data >= DATA_BETWEEN_NOTES || self.noted_at.elapsed() >= TIME_BETWEEN_NOTES;
        if is_due && done >= self.noted + BETWEEN_NOTES {
            self.flush()?;
            (self.noted, self.noted_at, self.data) = (done, Instant::now(), 0);
            self.note()?;
        }
        Ok(())
    }

    fn note(&self) -> Result<VolumeInfo, TransferError> {
        let note = NoteImport { import: self.import, done: self.noted };
        let noted = self.client.post_repeatable(&path(route::VOLUME_IMPORT, &self.id), &note);
        noted.map_err(|error| self.unwritten(error))
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        let settled = self.writers.settle();
        self.note_written(settled)?;
        let flush = format!("{}?import={}", path(route::VOLUME_FLUSH, &self.id), self.import);
        let flushed = self.client.post_repeatable(&flush, &Done {});
        self.count(flushed, 0)
    }

    /// The same for a piece that an earlier import may have written: what is there already stays.
    pub fn write_unless_there(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TransferError> {
        self.in_order(offset)?;
        let data = path(route::VOLUME_DATA, &self.id);
        let asked = format!("{data}?offset={offset}&length={}", bytes.len());
        let found = self.client.get_bytes(&asked).map_err(|error| self.unwritten(error))?;
        if found != bytes {
            return self.write(offset, bytes);
        }
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// As [`Target::write`], of a buffer that may be taken: another one is left in its place then, of any content.
    pub fn write_taking(&mut self, offset: u64, bytes: &mut Vec<u8>) -> Result<(), TransferError> {
        if bytes.chunks(HOLE).any(is_zero) {
            return self.write(offset, bytes);
        }
        let (length, place) = (bytes.len() as u64, self.place(offset));
        let written = self.writers.take(self.client, offset, place, bytes);
        self.note_written(written)?;
        self.data += length;
        Ok(())
    }

    /// Where a piece is sent.
    fn place(&self, offset: u64) -> String {
        format!("{}?offset={offset}&import={}", path(route::VOLUME_DATA, &self.id), self.import)
    }

    /// Writes a piece: its zeros as zeros, the rest as data.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TransferError> {
        let zeros: Vec<bool> = bytes.chunks(HOLE).map(is_zero).collect();
        let mut chunk = 0;
        while chunk < zeros.len() {
            let same = zeros[chunk..].iter().take_while(|zero| **zero == zeros[chunk]).count();
            let (from, to) = (chunk * HOLE, ((chunk + same) * HOLE).min(bytes.len()));
            let at = offset + from as u64;
            match zeros[chunk] {
                true => self.zero(at, (to - from) as u64)?,
                false => {
                    let place = self.place(at);
                    let written = self.writers.write(self.client, at, place, &bytes[from..to]);
                    self.note_written(written)?;
                    self.data += (to - from) as u64;
                }
            }
            chunk += same;
        }
        Ok(())
    }

    /// What reads as zeros already stays as it is. Not where another import was under way: a write of it may be about to land there, and a
    /// zero that is written lands behind that.
    pub fn zero(&mut self, offset: u64, length: u64) -> Result<(), TransferError> {
        if self.is_new {
            self.done += length;
            return Ok(());
        }
        self.in_order(offset)?;
        if self.was_incomplete {
            return self.free(offset, length);
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            if end - at <= PIECE {
                self.free(at, end - at)?;
                return Ok(());
            }
            let map = format!("{}?offset={at}&length={}", path(route::VOLUME_MAP, &self.id), end - at);
            let runs: Vec<MapRun> = self.client.get(&map).map_err(|error| self.unwritten(error))?;
            if runs.is_empty() {
                return self.free(at, end - at);
            }
            for run in runs {
                let length = run.length.min(end - at);
                match run.mapped {
                    true => self.free(at, length)?,
                    false => self.done += length,
                }
                at += length;
            }
        }
        Ok(())
    }

    fn free(&mut self, offset: u64, length: u64) -> Result<(), TransferError> {
        self.in_order(offset)?;
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let range = Range { offset: at, length: (end - at).min(ZEROS) };
            let request = ZeroRange { range, import: Some(self.import) };
            let written = self.client.post_repeatable(&path(route::VOLUME_ZERO, &self.id), &request);
            self.count(written, range.length)?;
            at += range.length;
        }
        Ok(())
    }

    /// What was written is on stable media, and all that this volume was to hold.
    pub fn finish(&mut self) -> Result<VolumeInfo, TransferError> {
        self.flush()?;
        let finish = FinishImport { import: self.import };
        let mut tries = 0;
        loop {
            tries += 1;
            match self.client.post::<VolumeInfo>(&path(route::VOLUME_IMPORTED, &self.id), &finish) {
                Ok(volume) => return Ok(volume),
                Err(error) if error.is_no_answer() && tries < MOST_TRIES => {
                    let now = self.client.get::<VolumeInfo>(&path(route::VOLUME, &self.id));
                    let now = now.map_err(|error| self.unwritten(error))?;
                    match now.incomplete {
                        Some(own) if own.import == self.import => {}
                        // It was done, and only the answer got lost. A rollback would have begun another epoch.
                        None if now.epoch == self.epoch => return Ok(now),
                        _ => return Err(self.unwritten(error)),
                    }
                }
                Err(error) => return Err(self.unwritten(error)),
            }
        }
    }

    /// What was given before, and has bytes from there on, is written.
    fn in_order(&mut self, offset: u64) -> Result<(), TransferError> {
        let settled = self.writers.settle_before(offset);
        self.note_written(settled)
    }

    fn note_written(&mut self, written: Result<u64, ClientError>) -> Result<(), TransferError> {
        self.done += written.map_err(|error| self.unwritten(error))?;
        Ok(())
    }

    fn count(&mut self, written: Result<Done, ClientError>, length: u64) -> Result<(), TransferError> {
        let Done {} = written.map_err(|error| self.unwritten(error))?;
        self.done += length;
        Ok(())
    }

    fn unwritten(&self, error: ClientError) -> TransferError {
        let (name, done) = (self.name.clone(), output::size(self.done));
        match error {
            error if error.is_not_found() => TransferError::TargetGone { name, done },
            // By a rollback, a resize or another import.
            error if error.is_conflict() => TransferError::Overtaken { name, done, error: error.into() },
            error => TransferError::Unwritten { name, done, error },
        }
    }

    /// Its name as it is now, and what it was called if that's another one.
    pub fn as_called_in(&self, now: &VolumeInfo) -> String {
        match now.name == self.name {
            true => now.name.clone(),
            false => format!("{}, which was called {} when this began", now.name, self.name),
        }
    }
}
