//! Copies that move between drives. Which are to be moved is a function of what is agreed; the server that leads the metadata has the
//! moves begun, a few at a time, and whoever leads a column says when one is done.
//!
//! A drive that is drained or has failed is to hold nothing any more, and so is one that has been away for long: what it had is
//! made again on others from the copies that are left. For those that were lost, spares step in. Otherwise each drive is to
//! hold its fair share. Nothing is moved to where there's no room for it (`room.rs`), and a drive to which a move was called off
//! rests (`pauses.rs`).
//!
//! Of a volume that is on its way to another map nothing is moved only to even it out, for soon it's elsewhere; but what is on drives
//! that are short of room is, or the volume might wait for room that others have.

mod pauses;
mod room;
#[cfg(test)]
mod tests;

pub use room::{DriveSpace, Spaces, is_emptied, obstacles};

use crate::drives::Parts;
use pauses::Pauses;
use room::Room;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tepal_metadata::{
    Command, CopyStatus, DriveRecord, DriveState, DriveUse, HolderRecord, JoinRecord, MapRecord, MigrationRecord,
    ProposeError, ServerState, State,
};
use tepal_model::{DriveId, MapId, MigrationStage};
use tepal_placement::{Candidate, Move, moves};

/// How often it's looked at what has changed, at most.
const LOOK: Duration = Duration::from_millis(200);
/// And at least: drives that are away for long are no change of what is agreed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Copies that one drive gets at a time, and that one gives away.
const AT_ONCE: usize = 2;
/// How old what is known of drives' space may be.
const SPACES_LAST: Duration = Duration::from_secs(2);
/// One that isn't done after this time waits for something, and keeps no others from being begun.
const SLOW: Duration = Duration::from_secs(300);

/// One column's way to a drive.
type MoveId = (MapId, u32, DriveId);

/// What has come of moves while this server has led.
#[derive(Default)]
struct Moves {
    /// Since when they are under way.
    under_way: BTreeMap<MoveId, Instant>,
    pauses: Pauses,
    spaces: Spaces,
    /// When servers were asked for these.
    asked: Option<Instant>,
}

impl Moves {
    fn look(&mut self, state: &State, now: Instant) {
        let column = |(map, column, _): MoveId| state.maps.get(&map)?.columns.get(column as usize);
        let is_over = |id: MoveId| column(id).and_then(|record| record.joining).is_none_or(|join| join.to != id.2);
        for (id, _) in self.under_way.extract_if(.., |&id, _| is_over(id)) {
            match column(id) {
                Some(record) if record.is_held_by(id.2) => self.pauses.done(id.2),
                Some(_) => self.pauses.called_off(id.2, &self.spaces, now),
                None => {}
            }
        }
        for (map, column, join) in joins(state) {
            self.under_way.entry((map, column, join.to)).or_insert(now);
        }
        self.pauses.look(&self.spaces);
    }

    /// Whether a move helps a volume on its way that may wait for room.
    fn makes_room(&self, migration: &MigrationRecord, change: &Move) -> bool {
        let is_short = |drive: DriveId| self.spaces.get(&drive).map(DriveSpace::is_short);
        migration.stage == MigrationStage::Running
            && is_short(change.from) == Some(true)
            && is_short(change.to) == Some(false)
    }

    fn is_slow(&self, id: MoveId, now: Instant) -> bool {
        self.under_way.get(&id).is_some_and(|since| now.duration_since(*since) >= SLOW)
    }
}

/// Drives that are away.
struct Away {
    /// So long they are waited for.
    patience: Duration,
    /// Since when this server has known it, while it leads.
    since: BTreeMap<DriveId, Instant>,
}

impl Away {
    fn new(patience: Duration) -> Self {
        Away { patience, since: BTreeMap::new() }
    }

    /// Those that have been away for so long that they aren't waited for.
    fn look(&mut self, state: &State, now: Instant) -> BTreeSet<DriveId> {
        self.since.retain(|id, _| state.drives.get(id).is_some_and(is_away));
        for (&id, _) in state.drives.iter().filter(|(_, record)| is_away(record)) {
            self.since.entry(id).or_insert(now);
        }
        self.since.iter().filter(|(_, since)| now.duration_since(**since) >= self.patience).map(|(&id, _)| id).collect()
    }
}

/// All that are under way.
pub fn joins(state: &State) -> impl Iterator<Item = (MapId, u32, JoinRecord)> {
    state.maps.values().flat_map(|map| {
        let columns = map.columns.iter().enumerate();
        columns.filter_map(|(column, record)| Some((map.id, column as u32, record.joining?)))
    })
}

/// What all servers say of their drives' space.
pub trait Survey: Send + Sync + 'static {
    /// Of those that answer.
    fn spaces(&self) -> impl Future<Output = Spaces> + Send;
}

/// Until the server stops. What drives have that are away for so long is made again on others.
pub async fn keep_even(parts: Parts, survey: impl Survey, replace_after: Duration) {
    let mut changes = parts.metadata.watch();
    let look_again = LOOK_AGAIN.min(replace_after);
    let (mut away, mut known) = (Away::new(replace_after), Moves::default());
    loop {
        tokio::time::sleep(LOOK).await;
        if let Ok(Err(_)) = tokio::time::timeout(look_again, changes.changed()).await {
            return;
        }
        let state = changes.borrow_and_update().clone();
        if parts.metadata.leader() != Some(parts.metadata.server()) {
            (away, known) = (Away::new(replace_after), Moves::default());
            continue;
        }
        let mut now = Instant::now();
        let gone = away.look(&state, now);
        known.look(&state, now);
        let is_old = known.asked.is_none_or(|asked| now.duration_since(asked) >= SPACES_LAST);
        if is_old && asks_for_spaces(&state, &gone, (&known, now)) {
            known.spaces = survey.spaces().await;
            now = Instant::now();
            known.asked = Some(now);
            known.look(&state, now);
        }
        for command in next(&state, &gone, (&known, now)) {
            match parts.authority.propose(command.clone()).await {
                Ok(_) => {}
                Err(ProposeError::Refused(refusal)) => tracing::debug!(?command, %refusal, "a copy isn't moved"),
                Err(error) => {
                    tracing::warn!(%error, "copies can't be moved now");
                    break;
                }
            }
        }
    }
}

fn is_away(record: &std::sync::Arc<DriveRecord>) -> bool {
    matches!(record.state, DriveState::Missing | DriveState::Behind | DriveState::Offline)
}

/// What to do now, where drives that are away have been so for too long.
fn next(state: &State, gone: &BTreeSet<DriveId>, known: (&Moves, Instant)) -> Vec<Command> {
    let mut commands = spares_step_in(state, gone);
    if commands.is_empty() {
        commands = spares_are_named(state, gone);
    }
    if commands.is_empty() {
        commands = hopeless_moves(state, gone);
        for pool in state.pools.keys() {
            commands.extend(moves_of(state, pool, gone, known));
        }
    }
    commands
}

/// Whether what is done next depends on drives' space.
fn asks_for_spaces(state: &State, gone: &BTreeSet<DriveId>, known: (&Moves, Instant)) -> bool {
    state.migrations.values().any(|record| record.stage == MigrationStage::Running)
        || !next(state, gone, known).is_empty()
}

/// Whether a drive that is up may get copies, or keep those that it has.
fn is_to_hold(state: &State, record: &DriveRecord, gone: &BTreeSet<DriveId>) -> bool {
    let is_drained = state.servers.get(&record.server).is_some_and(|server| server.draining);
    let is_lost = record.state == DriveState::Failed || gone.contains(&record.id);
    record.purpose == DriveUse::Active && !is_drained && !is_lost
}

/// For each drive that was lost with copies, one that waits for that. For those that were removed, one did when that was agreed.
fn spares_step_in(state: &State, gone: &BTreeSet<DriveId>) -> Vec<Command> {
    let is_lost = |record: &DriveRecord| record.state == DriveState::Failed || gone.contains(&record.id);
    let lost = state.drives.values().filter(|record| record.purpose == DriveUse::Active && is_lost(record));
    let lost = lost.filter(|record| state.may_be_replaced(record.id));
    let mut taken = BTreeSet::new();
    let mut commands = Vec::new();
    for record in lost {
        let Some(spare) = state.spare_for(record, &taken) else { continue };
        taken.insert(spare);
        // In this order: what is done only half is done once more.
        commands.push(Command::SetDriveUse { id: spare, to: DriveUse::Active });
        commands.push(Command::SetDriveUse { id: record.id, to: DriveUse::Draining });
    }
    commands
}

/// For each drive that was lost and that layouts name, a spare which they name from then on.
fn spares_are_named(state: &State, gone: &BTreeSet<DriveId>) -> Vec<Command> {
    let is_lost = |record: &DriveRecord| record.state == DriveState::Failed || gone.contains(&record.id);
    let is_under_way = |id: DriveId| {
        let named = state.maps.values().filter(|map| map.layout.names(id));
        named.into_iter().any(|map| state.migration_about(map.id).is_some())
    };
    let lost = state.drives.values().filter(|record| is_lost(record) && state.may_be_named_otherwise(record.id));
    let mut taken = BTreeSet::new();
    let mut commands = Vec::new();
    for record in lost.filter(|record| !is_under_way(record.id)) {
        let Some(spare) = state.spare_for(record, &taken) else { continue };
        taken.insert(spare);
        commands.push(Command::ReplaceDrive { from: record.id, to: spare });
    }
    commands
}

/// The copies that layouts want elsewhere than they are, of these maps: since a layout names another drive for them.
fn named_moves(maps: &BTreeMap<MapId, &MapRecord>) -> Vec<(MapId, usize, DriveId, DriveId)> {
    let mut found = Vec::new();
    for (&id, map) in maps {
        let Some(plexes) = map.layout.plexes() else { continue };
        if map.columns.iter().flat_map(|column| &column.holders).all(|holder| map.layout.names(holder.drive)) {
            continue;
        }
        let Ok((_, wanted)) = tepal_placement::explicit(plexes) else { continue };
        for (column, (record, wanted)) in map.columns.iter().zip(&wanted).enumerate() {
            let leaves = record.holders.iter().map(|holder| holder.drive).find(|drive| !wanted.contains(drive));
            let comes = wanted.iter().copied().find(|drive| !record.is_held_by(*drive));
            found.extend(leaves.zip(comes).map(|(from, to)| (id, column, from, to)));
        }
    }
    found
}

/// Whether anybody may have what a column holds: else there's nothing to be moved.
fn is_left(state: &State, map: MapId, column: usize) -> bool {
    let is_failed = |id: DriveId| state.drives.get(&id).is_none_or(|record| record.state == DriveState::Failed);
    let holders = state.maps.get(&map).and_then(|map| map.columns.get(column)).map(|column| &column.holders);
    holders.is_some_and(|holders| !holders.iter().all(|holder| is_failed(holder.drive)))
}

/// Whether so much of a column is here that another drive can be given its part, or all that isn't here is given up. Else a move waits,
/// and takes no other one's turn.
fn has_enough(state: &State, map: MapId, column: usize, from: DriveId) -> bool {
    let Some(record) = state.maps.get(&map) else { return false };
    let is_here = |id: DriveId| {
        let drive = state.drives.get(&id);
        drive.is_some_and(|drive| matches!(drive.state, DriveState::Up | DriveState::Behind))
    };
    let holders = record.columns.get(column).map_or(&[][..], |column| &column.holders);
    if let Some(quorum) = record.layout.quorum() {
        // Meanwhile the word of the drive that leaves doesn't count.
        let others = holders.iter().filter(|holder| holder.drive != from && is_here(holder.drive));
        return others.count() >= usize::from(quorum.thresholds().answers);
    }
    let (complete, others): (Vec<&HolderRecord>, Vec<&HolderRecord>) =
        holders.iter().partition(|holder| holder.status.is_complete() && is_here(holder.drive));
    let are_given_up = || others.iter().all(|holder| matches!(holder.status, CopyStatus::GivenUp(_)));
    complete.len() >= usize::from(record.layout.fragments().data) || (!complete.is_empty() && are_given_up())
}

/// Calls moves off that can't come to their end.
fn hopeless_moves(state: &State, gone: &BTreeSet<DriveId>) -> Vec<Command> {
    let holds = |id: DriveId| state.drives.get(&id).is_some_and(|record| is_to_hold(state, record, gone));
    // Of a quorum layout, requests would wait as long as the move: the drive that leaves may be here, and its word doesn't count.
    let waits = |map: MapId, column: u32, from: DriveId| {
        let is_by_quorum = state.maps.get(&map).is_some_and(|record| record.layout.quorum().is_some());
        is_by_quorum && !has_enough(state, map, column as usize, from)
    };
    let hopeless = joins(state).filter(|&(map, column, join)| {
        !holds(join.to) || !is_left(state, map, column as usize) || waits(map, column, join.from)
    });
    let cancel = |(map, column, join): (MapId, u32, JoinRecord)| Command::CancelMove {
        map,
        column,
        to: join.to,
        since: join.since,
    };
    hopeless.map(cancel).collect()
}

/// Those of a pool's volumes.
fn maps_of<'a>(state: &'a State, pool: &str) -> BTreeMap<MapId, &'a MapRecord> {
    let maps = state.active_volumes().flat_map(|volume| state.maps_of(volume).map(move |map| (volume, map)));
    maps.filter(|(volume, map)| state.pool_of(volume, map) == pool).map(|(_, map)| (map.id, &**map)).collect()
}

/// Whether the map's layout says on which drives everything lies: there it is to be.
fn is_named(map: &MapRecord) -> bool {
    map.layout.plexes().is_some()
}

/// The drives among which a pool's copies are moved.
fn candidates_of<'a>(
    state: &'a State,
    pool: &str,
    gone: &BTreeSet<DriveId>,
    maps: &BTreeMap<MapId, &MapRecord>,
) -> Vec<Candidate<'a>> {
    // Drives of other pools may hold something since before they were of one.
    let named: BTreeSet<DriveId> =
        maps.values().flat_map(|map| map.columns.iter().flat_map(|column| column.users())).collect();
    state
        .drives
        .values()
        .filter(|record| record.pool == pool || named.contains(&record.id))
        .filter_map(|record| {
            let server = state.servers.get(&record.server)?;
            // What is away and may return soon keeps what it has, and gets nothing.
            let holds = record.pool == pool && is_to_hold(state, record, gone);
            let capacity = if holds { record.capacity } else { 0 };
            Some(Candidate { drive: record.id, server: record.server, site: server.site.as_deref(), capacity })
        })
        .collect()
}

/// The moves to begin among the drives of a pool.
fn moves_of(state: &State, pool: &str, gone: &BTreeSet<DriveId>, (known, now): (&Moves, Instant)) -> Vec<Command> {
    let maps = maps_of(state, pool);
    let candidates = candidates_of(state, pool, gone, &maps);
    let mut room = Room::of(state, pool, gone, &known.spaces);
    let mut busy: BTreeMap<DriveId, usize> = BTreeMap::new();
    let goes_on = |&(map, column, join): &(MapId, u32, JoinRecord)| {
        has_enough(state, map, column as usize, join.from) && !known.is_slow((map, column, join.to), now)
    };
    for (.., join) in joins(state).filter(goes_on) {
        *busy.entry(join.to).or_default() += 1;
        *busy.entry(join.from).or_default() += 1;
    }
    let (ids, tables): (Vec<MapId>, Vec<_>) =
        maps.iter().filter(|(_, map)| !is_named(map)).map(|(id, map)| (*id, map.table())).unzip();
    let mut begun = BTreeSet::new();
    let mut commands = Vec::new();
    let even = moves(&tables, &candidates).into_iter().map(|change| (ids[change.table], change));
    let named =
        named_moves(&maps).into_iter().map(|(map, column, from, to)| (map, Move { table: 0, column, from, to }));
    for (map, change) in named.chain(even) {
        let column = change.column;
        let is_up = |id: DriveId| {
            let record = state.drives.get(&id).filter(|record| record.state == DriveState::Up);
            let server = record.and_then(|record| state.servers.get(&record.server));
            server.is_some_and(|server| server.state == ServerState::Up)
        };
        let is_free = |id: DriveId| busy.get(&id).is_none_or(|moves| *moves < AT_ONCE);
        let is_to_stay =
            !is_named(maps[&map]) && candidates.iter().any(|drive| drive.drive == change.from && drive.capacity > 0);
        if is_to_stay && state.migration_about(map).is_some_and(|record| !known.makes_room(record, &change)) {
            continue;
        }
        // Meanwhile the others can't afford as many that lie as at other times.
        let has_to_spare = maps[&map].layout.quorum().is_none_or(|quorum| quorum.faults() > quorum.liars());
        if is_to_stay && !has_to_spare {
            continue;
        }
        let is_under_way = maps[&map].columns[column].joining.is_some() || begun.contains(&(map, column));
        let may_give = is_free(change.from) || !is_up(change.from); // others have what one that is lost had
        let rests = known.pauses.holds(change.to, now);
        if is_under_way
            || !has_enough(state, map, column, change.from)
            || rests
            || !is_up(change.to)
            || !is_free(change.to)
            || !may_give
        {
            continue;
        }
        let holders = maps[&map].columns[column].holders.iter().map(|holder| holder.drive);
        let is_emptied = state.drives.get(&change.from).is_some_and(|record| is_emptied(state, record));
        if !room.take(holders, change.to, is_emptied) {
            continue;
        }
        begun.insert((map, column));
        *busy.entry(change.to).or_default() += 1;
        *busy.entry(change.from).or_default() += 1;
        commands.push(Command::BeginMove { map, column: column as u32, from: change.from, to: change.to });
    }
    commands
}
