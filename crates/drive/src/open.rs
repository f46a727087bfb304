//! Making a drive, and opening one: label, header, map table, then the log.

use crate::drive::{Drive, Options, Shared};
use crate::error::OpenError;
use crate::geometry::{Geometry, HEADERS, LABEL_FIRST, default_log, default_state};
use crate::identity::label::{Label, LabelError, Role};
use crate::log::header::{Header, map_sum};
use crate::log::pace::Pace;
use crate::log::pending::Pending;
use crate::log::replay::{Found, LogReader, erase, write_unsure};
use crate::log::{Change, Position, Ring};
use crate::patience::read_patiently;
use crate::state::hidden::Hidden;
use crate::state::map::PhysicalMap;
use crate::state::marks::Marks;
use crate::state::requests::Requests;
use crate::state::space::Space;
use crate::state::{State, Turn};
use crate::table::sums::SumCache;
use crate::table::{self, TableKind};
use crate::world::{Device, DeviceError, Gather, World};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tepal_model::{BLOCK, Buffer, ClusterId, DriveId};

/// Who a new drive is.
#[derive(Clone, Debug)]
pub struct NewDrive {
    /// Whose drive it is to be.
    pub cluster: ClusterId,
    /// Its id, which no other drive of the cluster has or had.
    pub drive: DriveId,
    /// Name of its pool, at most 64 bytes; what is longer is cut.
    pub pool: String,
    /// Bytes of the drive's own log; by its size, if not said. Of no meaning if the log is on a device of its own.
    pub log_length: Option<u64>,
}

/// The id of the device that holds the log of a drive.
fn log_device_id(drive: DriveId) -> DriveId {
    DriveId(!drive.0)
}

/// Labels a device as a new, empty drive. Whatever was on it is lost; a device with a Tepal label is refused.
pub async fn format<D: Device>(device: &D, log_device: Option<&D>, new: NewDrive) -> Result<Label, OpenError> {
    refuse_labelled(device).await?;
    let own_log = match log_device {
        Some(log) => {
            refuse_labelled(log).await?;
            Geometry::log_device(log.size())?;
            None
        }
        None => Some(new.log_length.unwrap_or(default_log(device.size())) / BLOCK * BLOCK),
    };
    let state_length = default_state(device.size());
    let geometry = Geometry::new(device.size(), own_log, state_length)?;
    let start = Position { offset: 0, sequence: 1, previous: 0 };
    let header = Header { checkpoint: 1, cut: 0, tail: start, map_pages: 0, map_sum: map_sum(&[]) }.encode(new.drive);
    for offset in HEADERS {
        device.write(offset, Gather::from_iter([header.clone()])).await?;
    }
    for place in geometry.state_places() {
        zero(device, place..place + BLOCK).await?; // what another use has left there would count as a damaged copy
    }
    device.flush().await?;
    let role =
        own_log.map_or(Role::DataWithLogOn { log: log_device_id(new.drive) }, |log_length| Role::Data { log_length });
    let (cluster, drive, pool, size) = (new.cluster, new.drive, new.pool, geometry.size);
    let label =
        Label { cluster, drive, pool, generation: 1, size, role, doubtful: false, state_length, outgrown: Vec::new() };
    if let Some(log) = log_device {
        let role = Role::LogOf { drive: new.drive };
        let size = log.size() / BLOCK * BLOCK;
        Label { drive: log_device_id(new.drive), size, role, state_length: 0, ..label.clone() }.write(log).await?;
    }
    label.write(device).await?; // last: with it, the drive exists
    Ok(label)
}

/// How much is zeroed at each end, in bytes: all that tells what was on it.
const WIPED: u64 = 1 << 20;
/// So much in one write.
const WIPED_TOGETHER: u64 = 128 << 10;

/// Makes an empty device of a drive: it's nobody's, and what it held is lost. Without its headers it can't be opened any more, and
/// the labels go last: if this is cut off, whoever finds it still knows which drive it was.
pub async fn wipe<D: Device>(device: &D) -> Result<(), DeviceError> {
    for header in HEADERS {
        zero(device, header..header + BLOCK).await?;
    }
    device.flush().await?;
    // The device may have been lengthened since it was labelled, and the drive may have grown before.
    let sizes = Label::read(device).await.map_or_else(|_| Vec::new(), |label| label.all_sizes().collect());
    let lasts = sizes.into_iter().chain([device.size()]).map(Geometry::label_last);
    let labels: BTreeSet<u64> = lasts.chain([LABEL_FIRST]).collect();
    let size = device.size() / BLOCK * BLOCK;
    for end in [0..WIPED.min(size), size.saturating_sub(WIPED)..size] {
        let mut from = end.start;
        for &label in labels.range(end.clone()) {
            zero(device, from..label).await?;
            from = label + BLOCK;
        }
        zero(device, from..end.end).await?;
    }
    device.flush().await?;
    for label in labels {
        zero(device, label..label + BLOCK).await?;
    }
    device.flush().await
}

pub(crate) async fn zero<D: Device>(device: &D, bytes: Range<u64>) -> Result<(), DeviceError> {
    let zeros = Buffer::zeroed(WIPED_TOGETHER as usize).freeze();
    let mut at = bytes.start;
    while at < bytes.end {
        let length = WIPED_TOGETHER.min(bytes.end - at);
        device.write(at, Gather::from_iter([zeros.slice(..length as usize)])).await?;
        at += length;
    }
    Ok(())
}

/// Writes the label of a drive that is taken into use with the generation that it has from now on, on its log's device too;
/// not if batch `known`, which was on the drive, isn't there any more. Says whether the drive is doubtful, as one whose
/// last label is missing is from then on: see [`Label::end_is_missing`] and [`Drive::believe`].
pub async fn raise<D: Device>(
    label: &Label,
    device: &D,
    log_device: Option<&D>,
    known: u64,
) -> Result<bool, OpenError> {
    let log = match label.role {
        Role::DataWithLogOn { log: wanted } => {
            let log = log_device.ok_or(OpenError::LogMissing { wanted })?;
            Some((log, read_log_label(log, wanted, label.drive, label.generation.saturating_sub(1)).await?))
        }
        Role::Data { .. } => None,
        Role::LogOf { .. } => return Err(OpenError::Role { found: label.role.to_string() }),
    };
    let found = newest_batch(label, device, log.as_ref().map(|(log, found)| (*log, found))).await?;
    if found.newest < known {
        let older = OpenError::Older { found: found.newest, known };
        return Err(found.unread.map_or(older, |offset| OpenError::LogUnread { sequence: found.newest + 1, offset }));
    }
    if let Some((log, found)) = log {
        Label { generation: label.generation, ..found }.write(log).await?;
    }
    let doubtful = label.doubtful || label.end_is_missing(device).await?;
    Label { doubtful, ..label.clone() }.write(device).await?;
    label.clear_left(device).await?;
    Ok(doubtful)
}

struct Newest {
    /// The newest batch that is whole.
    newest: u64,
    /// Where the one after it would be, if that can't be read.
    unread: Option<u64>,
}

async fn newest_batch<D: Device>(label: &Label, device: &D, log: Option<(&D, &Label)>) -> Result<Newest, OpenError> {
    let header = read_header(device, label.drive).await?.committed;
    let (log, start, length) = match (log, label.role) {
        (Some((log, found)), _) => {
            let (start, length) = Geometry::log_device(found.size)?;
            (log, start, length)
        }
        (None, Role::Data { .. }) => {
            let geometry = label.geometry()?;
            (device, geometry.log_start, geometry.log_length)
        }
        (None, role) => return Err(OpenError::Role { found: role.to_string() }),
    };
    let found = LogReader::new(log, label.drive, start, length).find(header.tail).await?;
    let newest = found.head.sequence.saturating_sub(1).max(header.cut);
    Ok(Newest { newest, unread: found.is_unread.then_some(start + found.head.offset) })
}

/// The label of a drive's log, if that is what the drive last used. A log that ends too early looks like one whose last
/// batch was torn: only its label tells that what was acknowledged is missing.
async fn read_log_label<D: Device>(log: &D, wanted: DriveId, drive: DriveId, newest: u64) -> Result<Label, OpenError> {
    let found = Label::read(log).await?;
    if found.drive != wanted || found.role != (Role::LogOf { drive }) {
        return Err(OpenError::LogForeign { wanted, found: found.drive });
    }
    if found.end_is_missing(log).await? {
        return Err(OpenError::LogCut { log: wanted });
    }
    match found.generation {
        generation if generation < newest => Err(OpenError::LogOlder { log: wanted, generation, newest }),
        _ => Ok(found),
    }
}

async fn refuse_labelled<D: Device>(device: &D) -> Result<(), OpenError> {
    match Label::read(device).await {
        Ok(label) => Err(OpenError::Labelled { cluster: label.cluster, drive: label.drive }),
        Err(LabelError::Missing | LabelError::Damaged | LabelError::CutShort { .. }) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

impl<W: World> Drive<W> {
    /// Opens a labelled drive. What the last stop left unfinished is finished, unless nothing may be written.
    pub async fn open(
        world: W,
        device: W::Device,
        log_device: Option<W::Device>,
        options: Options,
    ) -> Result<Self, OpenError> {
        let label = Label::read(&device).await?;
        let (geometry, log) = match label.role {
            Role::Data { .. } => (label.geometry()?, None),
            Role::DataWithLogOn { log: wanted } => {
                let log = log_device.ok_or(OpenError::LogMissing { wanted })?;
                let found = read_log_label(&log, wanted, label.drive, label.generation).await?;
                let (start, length) = Geometry::log_device(found.size)?;
                let mut geometry = label.geometry()?;
                geometry.log_length = length;
                (geometry, Some((log, start)))
            }
            Role::LogOf { .. } => return Err(OpenError::Role { found: label.role.to_string() }),
        };
        let header = read_header(&device, label.drive).await?;
        if header.committed.tail.offset > geometry.log_length {
            return Err(OpenError::Header);
        }
        let mut state = empty_state(&geometry, &options, header.committed);
        read_map(&device, label.drive, &geometry, header, &mut state).await?;
        let shared = Shared::new(world, device, log, label, geometry, options, state);
        let pages = replay(&shared, header.committed).await?;
        if let Some(unlike) = header.unlike.filter(|_| !shared.options.read_only) {
            finish_checkpoint(&shared, header.committed, unlike, &pages).await?;
        }
        Ok(Drive { shared: Arc::new(shared) })
    }
}

#[derive(Clone, Copy)]
struct Headers {
    committed: Header,
    /// Which of the two isn't the committed one, if any. The second: copy B of the last checkpoint wasn't finished. The
    /// first: the checkpoint after it was given up.
    unlike: Option<usize>,
}

async fn read_header<D: Device>(device: &D, drive: DriveId) -> Result<Headers, OpenError> {
    let mut found = [None, None];
    for (copy, offset) in HEADERS.into_iter().enumerate() {
        found[copy] = read_patiently(device, offset).await?.and_then(|page| Header::decode(&page, drive));
    }
    let newest = found.into_iter().flatten().max_by_key(|header| header.checkpoint);
    let committed = newest.ok_or(OpenError::Header)?;
    Ok(Headers { committed, unlike: found.iter().position(|header| *header != newest) })
}

fn empty_state(geometry: &Geometry, options: &Options, header: Header) -> State {
    State {
        map: PhysicalMap::default(),
        space: Space::new(geometry.slots),
        pending: Pending::default(),
        sums: SumCache::new(geometry.sums.clone(), options.sum_cache),
        marks: Marks::default(),
        requests: Requests::new(geometry.log_length),
        hidden: Hidden::new(geometry.log_length),
        ring: Ring { length: geometry.log_length, head: header.tail, tail: header.tail },
        batches: VecDeque::new(),
        queue: VecDeque::new(),
        flushes: Vec::new(),
        stuck_since: None,
        cut: None,
        committer: Turn::Idle,
        destager: Turn::Idle,
        destage_waiters: Vec::new(),
        checkpointer: Turn::Idle,
        checkpoint_waiters: Vec::new(),
        pace: Pace::default(),
        maintenance: Turn::Idle,
        applied: header.cut,
        durable: header.cut,
        slots_unflushed: true,
        freed: VecDeque::new(),
        trimmed: BTreeSet::new(),
        discarding: 0,
        discard_waiters: Vec::new(),
        in_flight: BTreeMap::new(),
        replacing: 0,
        destaging: BTreeSet::new(),
        joining: BTreeMap::new(),
        dirty_map_pages: BTreeSet::new(),
        map_versions: Vec::new(),
        checkpoint: header.checkpoint,
        dropped_tail: false,
        newest_found: header.cut,
        loss: None,
        closed: false,
        read_errors: 0,
        block_errors: 0,
    }
}

/// A page of the map table as one of its copies has it.
struct MapPage {
    checkpoint: u64,
    bytes: bytes::Bytes,
}

/// Loads the map table as the committed checkpoint wrote it.
async fn read_map<D: Device>(
    device: &D,
    drive: DriveId,
    geometry: &Geometry,
    headers: Headers,
    state: &mut State,
) -> Result<(), OpenError> {
    let header = headers.committed;
    if header.map_pages > geometry.map.pages {
        return Err(OpenError::Header);
    }
    let first = read_copy(device, drive, geometry, header, 0).await?;
    let versions = |pages: &[Option<MapPage>]| pages.iter().map(|p| p.as_ref().map(|p| p.checkpoint)).collect();
    let whole = |versions: &Option<Vec<u64>>| versions.as_deref().map(map_sum) == Some(header.map_sum);
    let mut chosen: Option<Vec<u64>> = versions(&first);
    let mut pages = first;
    if !whole(&chosen) {
        let second = read_copy(device, drive, geometry, header, 1).await?;
        for (number, (page, other)) in pages.iter_mut().zip(second).enumerate() {
            let newer = |other: &MapPage| page.as_ref().is_none_or(|page| page.checkpoint < other.checkpoint);
            if let Some(other) = other.filter(newer) {
                *page = Some(other);
                state.dirty_map_pages.insert(number as u32); // the first copy wants repair
            }
        }
        if let Some(page) = pages.iter().position(Option::is_none) {
            return Err(OpenError::MapPage { page: page as u32 });
        }
        chosen = versions(&pages);
        if !whole(&chosen) {
            return Err(OpenError::MapLost);
        }
    }
    for (number, page) in pages.iter().flatten().enumerate() {
        load_page(number as u32, &page.bytes, geometry, state)?;
    }
    state.map_versions = chosen.unwrap_or_default();
    Ok(())
}

/// One copy of all pages; `None` for those that are damaged or of a checkpoint that was never committed.
async fn read_copy<D: Device>(
    device: &D,
    drive: DriveId,
    geometry: &Geometry,
    header: Header,
    copy: usize,
) -> Result<Vec<Option<MapPage>>, OpenError> {
    const TOGETHER: u32 = 256;
    let mut pages = Vec::with_capacity(header.map_pages as usize);
    let mut next = 0;
    while next < header.map_pages {
        let start = next;
        let count = TOGETHER.min(header.map_pages.min(geometry.map.run_end(start)) - start);
        next += count;
        let length = count as usize * table::PAGE;
        let bytes = match device.read(geometry.map.offset(copy, start), Buffer::take(length)).await {
            Ok(bytes) => Some(bytes.freeze()),
            Err(DeviceError::Failed { .. }) => None,
            Err(gone) => return Err(gone.into()),
        };
        for number in start..start + count {
            let at = (number - start) as usize * table::PAGE;
            let page = match &bytes {
                Some(bytes) => Some(bytes.slice(at..at + table::PAGE)),
                None => read_page(device, geometry.map.offset(copy, number)).await?,
            };
            pages.push(page.and_then(|bytes| {
                let checkpoint = table::unseal(&bytes, TableKind::Map, drive, number)?;
                (checkpoint <= header.checkpoint).then_some(MapPage { checkpoint, bytes })
            }));
        }
    }
    Ok(pages)
}

/// A page by itself, after a read of many failed.
async fn read_page<D: Device>(device: &D, offset: u64) -> Result<Option<bytes::Bytes>, OpenError> {
    Ok(read_patiently(device, offset).await?.map(Buffer::freeze))
}

fn load_page(number: u32, bytes: &[u8], geometry: &Geometry, state: &mut State) -> Result<(), OpenError> {
    for slot in geometry.map.slots_of(number) {
        let at = geometry.map.at(slot);
        let Some(owner) = PhysicalMap::decode(&bytes[at..at + geometry.map.record]) else { continue };
        if slot >= geometry.slots || state.map.get(owner.key).is_some() || !state.space.take(slot) {
            return Err(OpenError::MapPage { page: number });
        }
        state.map.insert(owner.key, slot, owner.present);
    }
    Ok(())
}

/// Brings in what the log has. The pages of checksums that the last checkpoint wrote are the answer.
async fn replay<W: World>(shared: &Shared<W>, header: Header) -> Result<Vec<u32>, OpenError> {
    let (device, start) = shared.log();
    let geometry = &shared.geometry;
    let mut reader = LogReader::new(device, shared.label.drive, start, geometry.log_length);
    let mut found = reader.find(header.tail).await?;
    let offset_of = |slot, block| (slot < geometry.slots).then(|| geometry.block_offset(slot, block));
    let mut abandoned = reader.look_behind(&mut found).await?;
    abandoned.extend(found.drop_unwritten(&shared.device, header.cut, offset_of).await?);
    if found.head.sequence <= header.cut {
        return Err(found.no_end(start));
    }
    if !shared.options.read_only {
        // What was replayed is read from now on, so it must not be lost again.
        write_unsure(&found, header.cut, (device, start), &shared.device, offset_of).await?;
        erase(&abandoned, (device, start)).await?;
        shared.flush_slots().await?;
        shared.flush_log().await?;
    }
    let mut state = shared.lock();
    apply_all(&mut state, &found, header.cut, geometry)?;
    state.ring.head = found.head;
    state.batches = found.batches.iter().map(|(position, _)| *position).collect();
    state.applied = found.head.sequence - 1;
    state.durable = state.applied;
    state.dropped_tail = found.dropped;
    state.newest_found = state.applied;
    state.release_freed();
    let of_cut = found.batches.iter().filter(|(position, _)| position.sequence == header.cut);
    let pages = of_cut.flat_map(|(_, batch)| &batch.changes).filter_map(|change| match change {
        Change::SumPages { first, count } => Some(*first..first.saturating_add(*count).min(geometry.sums.pages)),
        _ => None,
    });
    Ok(pages.flatten().collect())
}

/// Writes what a checkpoint that was committed didn't get to: the second copy of its pages and of its header. Until then
/// the first copy is the only one, and must not be written over.
async fn finish_checkpoint<W: World>(
    shared: &Shared<W>,
    header: Header,
    unlike: usize,
    sum_pages: &[u32],
) -> Result<(), OpenError> {
    let (device, drive) = (&shared.device, shared.label.drive);
    let map_pages: Vec<u32> = {
        let state = shared.lock();
        let of_this = state.map_versions.iter().enumerate().filter(|(_, version)| **version == header.checkpoint);
        of_this.map(|(number, _)| number as u32).collect()
    };
    let sums = sum_pages.iter().map(|&number| (TableKind::Sums, number));
    let pages = map_pages.into_iter().map(|number| (TableKind::Map, number)).chain(sums);
    // With the first header unlike, the second copies are the whole ones.
    for (kind, number) in pages.filter(|_| unlike == 1) {
        let table = shared.geometry.table(kind);
        if let Some(page) = read_page(device, table.offset(0, number)).await?
            && table::unseal(&page, kind, drive, number) == Some(header.checkpoint)
        {
            device.write(table.offset(1, number), Gather::from_iter([page])).await?;
        }
    }
    shared.flush_slots().await?;
    device.write(HEADERS[unlike], Gather::from_iter([header.encode(drive)])).await?;
    Ok(shared.flush_slots().await?)
}

/// Up to the cut the map is known, and the log gives only what wasn't in its slot yet; from there on everything counts.
fn apply_all(state: &mut State, found: &Found, cut: u64, geometry: &Geometry) -> Result<(), OpenError> {
    let mut at_cut = false;
    for (position, batch) in &found.batches {
        if position.sequence > cut && !at_cut {
            forget_replaced(state);
            at_cut = true;
        }
        let mut payload_at = 0;
        for change in &batch.changes {
            let length = change.payload_blocks() as usize * BLOCK as usize;
            let payload = (length > 0).then(|| batch.payload.slice(payload_at..payload_at + length));
            payload_at += length;
            if let Change::Logged { key, slot, span, sums } | Change::Placed { key, slot, span, sums } = change {
                let owner = if *slot < geometry.slots { state.map.owner(*slot) } else { None };
                let contradicts = *slot >= geometry.slots
                    || (position.sequence > cut && owner.is_some_and(|owner| owner.key != *key))
                    || (position.sequence > cut
                        && matches!(change, Change::Logged { .. })
                        && state.map.get(*key).is_some_and(|(mapped, _)| mapped != *slot));
                if contradicts {
                    return Err(OpenError::LogContradicts { sequence: position.sequence });
                }
                if position.sequence <= cut {
                    state.pending.add(*slot, *key, *span, sums, position.sequence, payload.as_ref());
                    continue;
                }
            }
            if position.sequence > cut || change.is_of_notes() {
                state.apply(change, position.sequence, payload.as_ref(), geometry);
            }
        }
    }
    if !at_cut {
        forget_replaced(state);
    }
    Ok(())
}

/// Drops pending blocks that the map at the cut doesn't know: they were cleared, or their slot has another owner.
fn forget_replaced(state: &mut State) {
    for slot in state.pending.from(0, usize::MAX) {
        let Some(key) = state.pending.slot(slot).map(|pending| pending.key) else { continue };
        let present = state.map.owner(slot).filter(|owner| owner.key == key).map_or(0, |owner| owner.present);
        state.pending.forget(slot, !present);
    }
}
