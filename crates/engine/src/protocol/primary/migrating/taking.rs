//! How the target takes over all of a window, and each piece before anybody is served there.
//!
//! Memory has which pieces have been taken in this window. When all of the column's have, that is said until the window moves on.

use super::handed::Handed;
use super::handing::{Handing, What};
use crate::epochs::Epochs;
use crate::migration::Phase;
use crate::protocol::primary::clients_turn::{AtOnce, LONGEST_TURN, Served};
use crate::protocol::primary::{Blocks, Group, State};
use crate::servers::seat::Taken as Seated;
use crate::volume::MapMigration;
use crate::volume::migrating::{Held, Run};
use futures_util::future::{Either, join_all, select};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Tick, World};
use tepal_model::{BLOCK, IoError, MigrationStage, Segments, VolumeId};
use tepal_wire::message::{Answer, VolumeAnswer, VolumeFailure, VolumeRequest};

/// Blocks.
const PIECE: u64 = 16;
/// Pieces that are taken over at once in the background, at most.
const AT_ONCE: usize = 8;
/// Pieces that are under way for clients at once; the others of a long request follow them.
const MOST_UNDER_WAY: usize = 32;
/// The same with those that wait for nobody but the source, which keep no others from being begun.
const MOST_BEGUN: usize = 1024;
/// So long it's waited for to know where there's anything.
const KNOWN_SOON: Duration = Duration::from_millis(500);
/// A piece that takes longer is said to wait.
const LONG: Duration = Duration::from_secs(10);
/// Before the source is asked again that couldn't hand anything over; twice as long each time, up to so long.
pub(super) const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(320);
/// How often it's said that everything is taken over.
const SAY_AGAIN: Duration = Duration::from_secs(1);
/// Before a piece is tried again for which there was no room, or that can't be read.
const RETRY: Duration = Duration::from_secs(5);

/// Of this window, by pieces, each named by its first block.
#[derive(Debug, Default)]
pub(crate) struct TakeOver {
    taken: BTreeSet<u64>,
    /// Since when.
    under_way: BTreeMap<u64, Tick>,
    /// Those of them for which the source couldn't hand anything over when it was asked last.
    waiting: BTreeSet<u64>,
    /// One that wasn't begun since nobody leads its column at the source, and since when.
    passed_over: Option<(u64, Tick)>,
    /// Where there's anything to be taken over, once that is known.
    held: Option<Held>,
    /// Why it couldn't be, and when.
    refused: BTreeMap<u64, (IoError, Tick)>,
    /// Somebody takes over what is left, and says when it's all.
    walking: bool,
}

impl TakeOver {
    /// Nothing of another window is.
    pub fn begin_anew(&mut self) {
        *self = TakeOver { walking: self.walking, ..TakeOver::default() };
    }

    /// What keeps volumes from going on.
    pub fn obstacle(&self) -> Option<IoError> {
        self.refused.values().next().map(|(error, _)| error.clone())
    }

    /// What isn't taken over yet of some blocks of one chunk, which are fenced.
    pub fn missing(
        &self,
        (migration, column): (&MapMigration, usize),
        blocks: Blocks,
    ) -> impl Iterator<Item = u64> + '_ {
        let is_nothing = self.has_nothing_in(|| migration.chunk_of(column, blocks.first));
        let pieces = (!is_nothing).then(|| pieces(blocks)).into_iter().flatten();
        pieces.map(|piece| piece.first).filter(|piece| !self.taken.contains(piece))
    }

    /// Whether it's known that there's nothing to be taken over.
    fn has_nothing_in(&self, chunk: impl FnOnce() -> u64) -> bool {
        self.held.as_ref().is_some_and(|held| !held.contains(&chunk()))
    }

    /// The piece that has been under way, or passed over, for the longest, and since when.
    fn oldest(&self) -> Option<(u64, Tick)> {
        let under_way = self.under_way.iter().map(|(&piece, &since)| (piece, since));
        under_way.chain(self.passed_over).min_by_key(|(_, since)| since.0)
    }

    /// Whether whoever asks for a client is to take a piece over, from now on. Not all of them at once: many may be asked for.
    fn begin(&mut self, piece: u64, now: Tick) -> bool {
        let is_their_turn = self.under_way.len() - self.waiting.len() < MOST_UNDER_WAY;
        let begins = is_their_turn && self.under_way.len() < MOST_BEGUN && !self.under_way.contains_key(&piece);
        begins && self.under_way.insert(piece, now).is_none()
    }

    /// Whether others may be begun in its stead. It may be under way no more, if this is another window by now.
    fn note_waiting(&mut self, piece: u64) -> bool {
        self.under_way.contains_key(&piece) && self.waiting.insert(piece)
    }

    fn end(&mut self, piece: u64) {
        self.under_way.remove(&piece);
        self.waiting.remove(&piece);
        self.pass_no_more(piece);
    }

    fn pass_no_more(&mut self, piece: u64) {
        self.passed_over.take_if(|(passed, _)| *passed == piece);
    }
}

/// Those that blocks touch.
pub(super) fn pieces(blocks: Blocks) -> impl Iterator<Item = Blocks> {
    (blocks.first / PIECE..blocks.end().div_ceil(PIECE)).map(|number| Blocks::new(number * PIECE, PIECE))
}

/// Who takes a piece over.
enum Claim {
    Taken,
    /// Whoever asks.
    Own,
    /// A client does, or nobody yet.
    Others,
}

/// Who waits for a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Client,
    /// It's not insisted on if its source is away.
    Nobody,
}

/// A piece that has waited to be taken over for long.
pub struct Waits {
    migration: Arc<MapMigration>,
    piece: u64,
}

/// Why something isn't taken over.
pub(super) enum NotTaken {
    /// It's to be tried again soon.
    Yet,
    Failed(IoError),
}

impl From<IoError> for NotTaken {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Stopping | IoError::Fenced => NotTaken::Yet,
            error => NotTaken::Failed(error),
        }
    }
}

impl<W: World> Group<W> {
    /// Returns when these blocks of a volume may be served here: what is to be taken over of them has been. `Fenced` if another map has
    /// them.
    pub async fn enter(&self, (volume, blocks): (VolumeId, Blocks)) -> Result<(), IoError> {
        if !self.shared.has_migrated.load(Ordering::Acquire) {
            return Ok(());
        }
        loop {
            let (change, migration, begun) = {
                let mut state = self.lock();
                state.serves()?;
                let Some(migration) = state.migration_of(volume)?.cloned() else { return Ok(()) };
                if !migration.serves(self.shared.column.number, blocks) {
                    return Err(IoError::Fenced);
                }
                let mut missing = BTreeSet::new();
                let number = self.shared.column.number;
                for (part, phase) in migration.phases(number, blocks) {
                    if phase == Phase::Fenced && migration.takes() {
                        missing.extend(state.takeover.missing((&migration, number), part));
                    }
                }
                if missing.is_empty() {
                    return Ok(());
                }
                let now = self.shared.world.now();
                let refused = missing.iter().find_map(|piece| state.takeover.refused.get(piece));
                if let Some((error, since)) = refused
                    && now.0.saturating_sub(since.0) < RETRY
                {
                    return Err(error.clone());
                }
                missing.retain(|&piece| state.takeover.begin(piece, now));
                (Group::next_change(&mut state), migration, missing)
            };
            for piece in begun {
                let (group, migration) = (self.for_what_has_begun(), migration.clone());
                self.shared.world.spawn(Box::pin(async move {
                    let _ = group.take_over(&migration, piece, For::Client).await; // whoever waits looks
                }));
            }
            self.wait(change).await?;
        }
    }

    /// Starts taking over what the group is to, if nobody does that already.
    pub fn start_taking_over(&self) {
        if !self.shared.has_migrated.load(Ordering::Acquire) {
            return;
        }
        {
            let mut state = self.lock();
            let takes = state.migration.as_ref().is_some_and(|migration| migration.takes());
            if !takes || state.removed || std::mem::replace(&mut state.takeover.walking, true) {
                return;
            }
        }
        let group = self.for_what_has_begun();
        self.shared.world.spawn(Box::pin(async move { group.take_over_all().await }));
    }

    async fn take_over_all(self) {
        let mut at_once = AtOnce::of(AT_ONCE);
        loop {
            let migration = {
                let mut state = self.lock();
                let migration = state.migration.clone().filter(|migration| migration.takes() && !state.removed);
                let Some(migration) = migration else {
                    state.takeover.walking = false;
                    return;
                };
                migration
            };
            self.wait_for_what_is_held(&migration).await;
            let pause = match self.take_over_window(&migration, &mut at_once).await {
                true => {
                    self.say_taken(&migration).await;
                    SAY_AGAIN
                }
                false => self.rest_before_the_others(&migration),
            };
            let change = {
                let mut state = self.lock();
                let is_still =
                    state.migration.as_ref().is_some_and(|now| Arc::ptr_eq(now, &migration)) && !state.removed;
                is_still.then(|| Group::next_change(&mut state))
            };
            let Some(mut change) = change else { continue };
            // Others ring too.
            let mut rest = Box::pin(self.shared.world.sleep(pause));
            while let Either::Left((_, still)) = select(change, rest).await {
                let mut state = self.lock();
                if !state.migration.as_ref().is_some_and(|now| Arc::ptr_eq(now, &migration)) || state.removed {
                    break;
                }
                (change, rest) = (Group::next_change(&mut state), still);
            }
        }
    }

    /// Pieces that are under way for clients are over soon.
    fn rest_before_the_others(&self, migration: &MapMigration) -> Duration {
        let takeover = &self.lock().takeover;
        match migration.agreed.stage {
            MigrationStage::Running if takeover.refused.is_empty() && takeover.passed_over.is_some() => LONGEST_TURN,
            MigrationStage::Running if takeover.refused.is_empty() => SOON,
            _ => RETRY,
        }
    }

    /// Where there's nothing, nothing need be asked for piece by piece; if it isn't known soon, it is.
    async fn wait_for_what_is_held(&self, migration: &Arc<MapMigration>) {
        let map = self.engine().and_then(|engine| engine.map(self.shared.column.map));
        if let Some(held) = map.and_then(|map| map.held(migration)) {
            return self.hear_what_is_held(migration, &held);
        }
        let mut rest = Box::pin(self.shared.world.sleep(KNOWN_SOON));
        loop {
            let change = {
                let mut state = self.lock();
                let waits = state.takeover.held.is_none() && !state.removed;
                let is_window = state.migration.as_ref().is_some_and(|now| now.is_same_window(migration));
                (waits && is_window).then(|| Group::next_change(&mut state))
            };
            let Some(change) = change else { return };
            match select(change, rest).await {
                Either::Left((_, still)) => rest = still,
                Either::Right(_) => return,
            }
        }
    }

    pub fn hear_what_is_held(&self, migration: &MapMigration, held: &Held) {
        {
            let mut state = self.lock();
            if state.migration.as_ref().is_some_and(|now| now.is_same_window(migration)) {
                state.takeover.held = Some(held.clone());
            }
        }
        self.wake();
    }

    /// The chunks of the window of which one of the source's columns may have anything; `None` if it can't say.
    pub async fn ask_what_is_held(&self, migration: &MapMigration, column: usize) -> Option<Vec<u64>> {
        let epochs = self.lock().epochs.clone();
        match self.ask_source(migration, column, (What::Holding, Blocks::new(0, 0)), &epochs).await {
            Ok((VolumeAnswer::Holding { chunks }, _)) => Some(chunks),
            _ => None,
        }
    }

    async fn say_taken(&self, migration: &MapMigration) {
        let Some(engine) = self.engine() else { return };
        let agreed = &migration.agreed;
        engine.shared.authority.taken_over(agreed.target, self.shared.column.number, agreed.since).await;
    }

    /// Whether all of the column's pieces have been taken over.
    async fn take_over_window(&self, migration: &Arc<MapMigration>, at_once: &mut AtOnce) -> bool {
        let number = self.shared.column.number;
        let mut pace = (self.served_of(migration), at_once);
        let mut is_all = true;
        let mut some: Vec<u64> = Vec::new();
        for (_, blocks) in migration.window(number) {
            let missing: Vec<u64> = self.lock().takeover.missing((migration, number), blocks).collect();
            for piece in missing {
                if !self.is_window(migration) {
                    // What was begun comes to its end, for clients may wait for it.
                    self.take_over_some(migration, &mut some, &mut pace).await;
                    return false;
                }
                match self.claim(migration, piece) {
                    Claim::Taken => {}
                    Claim::Own => some.push(piece),
                    Claim::Others => is_all &= some.contains(&piece),
                }
                if some.len() >= pace.1.now() {
                    is_all &= self.take_over_some(migration, &mut some, &mut pace).await;
                }
            }
        }
        is_all &= self.take_over_some(migration, &mut some, &mut pace).await;
        is_all && self.is_window(migration)
    }

    fn claim(&self, migration: &MapMigration, piece: u64) -> Claim {
        let now = self.shared.world.now();
        // Not under the lock: whoever has that of the engine, which this asks for, takes this one too.
        let has_source = self.has_source(migration, piece);
        let state = &mut *self.lock();
        if !state.migration.as_ref().is_some_and(|now| now.is_same_window(migration)) {
            return Claim::Others; // of what is to be taken over by now, nobody would end it
        }
        let takeover = &mut state.takeover;
        if takeover.taken.contains(&piece) {
            return Claim::Taken;
        }
        if migration.agreed.stage != MigrationStage::Running || takeover.under_way.contains_key(&piece) {
            return Claim::Others;
        }
        if !has_source {
            takeover.passed_over.get_or_insert((piece, now));
            return Claim::Others;
        }
        takeover.pass_no_more(piece);
        takeover.under_way.insert(piece, now);
        Claim::Own
    }

    /// Whether all that a piece comes from is led by somebody.
    fn has_source(&self, migration: &MapMigration, piece: u64) -> bool {
        let Some(source) = self.engine().and_then(|engine| engine.map(migration.agreed.source)) else { return false };
        let runs = migration.fenced(self.shared.column.number, Blocks::new(piece, PIECE));
        let is_led = |column: usize| source.seats().get(column).is_some_and(|seat| !seat.now().is_vacant());
        runs.iter().all(|run| is_led(run.column))
    }

    async fn take_over_some(
        &self,
        migration: &Arc<MapMigration>,
        some: &mut Vec<u64>,
        (served, at_once): &mut (Served, &mut AtOnce),
    ) -> bool {
        let began = self.shared.world.now();
        let taken = join_all(some.drain(..).map(|piece| self.take_over(migration, piece, For::Nobody))).await;
        let bytes: u64 = taken.iter().flatten().sum();
        if bytes > 0 {
            let (now, took) = (self.served_of(migration), self.shared.world.now().0.saturating_sub(began.0));
            let are_clients_served = self.give_clients_their_turn(served, now, began, false).await;
            at_once.learn(took, are_clients_served);
            self.keep_to_rate(migration, bytes).await;
        }
        self.shared.world.give_way().await;
        taken.iter().all(Option::is_some)
    }

    /// Clients of what has gone, and of what has not.
    fn served_of(&self, migration: &MapMigration) -> Served {
        let source = self.engine().and_then(|engine| engine.map(migration.agreed.source));
        source.map_or_else(|| self.served(), |source| self.served_with(&source))
    }

    /// So many bytes were taken over. A rate that is set meanwhile is kept to soon.
    async fn keep_to_rate(&self, migration: &MapMigration, bytes: u64) {
        let began = self.shared.world.now();
        // Each column has its part.
        let shared_out = bytes.saturating_mul(migration.busy_columns()).saturating_mul(1_000_000);
        while self.is_window(migration) {
            let Some(rate) = self.lock().migration.as_ref().and_then(|now| now.agreed.rate) else { return };
            let due = Duration::from_micros(shared_out / rate.max(1));
            let waited = self.shared.world.now().0.saturating_sub(began.0);
            if waited >= due {
                return;
            }
            self.shared.world.sleep((due - waited).min(LONGEST_TURN)).await;
        }
    }

    /// Whether it's still this window that is to be taken over, here.
    pub(super) fn is_window(&self, migration: &MapMigration) -> bool {
        let state = self.lock();
        state.migration.as_ref().is_some_and(|now| now.is_same_window(migration) && now.takes()) && !state.removed
    }

    /// How many bytes that were; `None` if it can't be now.
    async fn take_over(&self, migration: &Arc<MapMigration>, piece: u64, by: For) -> Option<u64> {
        let mut pause = SOON;
        loop {
            if !self.is_window(migration) {
                return None;
            }
            let outcome = self.try_to_take_over(migration, piece).await;
            let is_tried_again = || by == For::Client || self.has_source(migration, piece);
            if matches!(outcome, Err(NotTaken::Yet)) && is_tried_again() {
                if self.lock().takeover.note_waiting(piece) {
                    self.wake();
                }
                self.shared.world.sleep(pause).await;
                pause = (pause * 2).min(LATER);
                continue;
            }
            let taken = {
                let mut state = self.lock();
                if !state.migration.as_ref().is_some_and(|now| now.is_same_window(migration)) {
                    return None;
                }
                state.takeover.end(piece);
                state.takeover.refused.remove(&piece);
                match outcome {
                    Ok(bytes) => {
                        state.takeover.taken.insert(piece);
                        let now = self.shared.world.now();
                        state.copied += bytes;
                        state.copying.add(bytes, now);
                        Some(bytes)
                    }
                    Err(NotTaken::Failed(error)) => {
                        let (map, column) = (self.shared.column.map.0, self.shared.column.number);
                        tracing::warn!(map, column, piece, %error, "what a volume has can't go to another layout now");
                        state.takeover.refused.insert(piece, (error, self.shared.world.now()));
                        None
                    }
                    Err(NotTaken::Yet) => None,
                }
            };
            self.wake();
            return taken;
        }
    }

    async fn try_to_take_over(&self, migration: &Arc<MapMigration>, piece: u64) -> Result<u64, NotTaken> {
        let blocks = Blocks::new(piece, PIECE);
        let runs = migration.fenced(self.shared.column.number, blocks);
        let epochs = self.lock().epochs.clone();
        let asked = join_all(runs.iter().map(|run| self.handed_over(migration, run, &epochs))).await;
        let mut handed: Vec<Handed> =
            asked.into_iter().collect::<Result<Vec<_>, NotTaken>>()?.into_iter().flatten().collect();
        let holds = |handed: &Handed| !handed.lines.is_empty();
        if handed.iter().all(|handed| !holds(handed) && handed.requests.is_empty()) {
            // By what is agreed by now there may be something.
            let is_agreed = Arc::ptr_eq(&self.lock().epochs, &epochs);
            return if is_agreed { Ok(0) } else { Err(NotTaken::Yet) };
        }
        let mut turn = self.line_up(blocks).turn().await;
        let mut unknown = Vec::new();
        if handed.iter().any(|handed| handed.damaged().next().is_some()) {
            (turn, unknown) = self.check_what_is_damaged(turn, (migration, blocks), &handed, &epochs).await?;
        }
        if !self.is_window(migration) {
            return Err(NotTaken::Yet);
        }
        handed.extend(unknown);
        self.write_handed(turn, (migration, blocks), &handed, &epochs).await?;
        // What others see stays with them.
        let released = migration.released(&epochs);
        let is_left = |handed: &Handed| handed.lines.iter().any(|line| released.contains(&line.newest));
        let left = runs.iter().filter(|run| {
            handed.iter().any(|handed| is_left(handed) && (run.own.first..run.own.end()).contains(&handed.first))
        });
        for released in join_all(left.map(|run| self.released(migration, run, &epochs))).await {
            released?;
        }
        Ok(handed.iter().map(|handed| handed.blocks.len() as u64 * BLOCK).sum())
    }

    /// What the source has of a run, in as many answers as that takes.
    pub(super) async fn handed_over(
        &self,
        migration: &MapMigration,
        run: &Run,
        epochs: &Epochs,
    ) -> Result<Vec<Handed>, NotTaken> {
        let (mut all, mut done) = (Vec::new(), 0);
        while done < run.own.count {
            let left = Blocks::new(run.other.first + done, run.own.count - done);
            let asked = self.ask_source(migration, run.column, (What::HandOver, left), epochs).await;
            let (answer, data) = asked?;
            let VolumeAnswer::HandedOver { count, lines, requests } = answer else { return Err(NotTaken::Yet) };
            let count = u64::from(count).min(left.count);
            let data = tepal_model::buffer::join(&data);
            let handed = Handed::of(run.own.first + done, lines, requests, data).filter(|_| count > 0);
            all.push(handed.ok_or(NotTaken::Yet)?);
            done += count;
        }
        Ok(all)
    }

    async fn released(&self, migration: &MapMigration, run: &Run, epochs: &Epochs) -> Result<(), NotTaken> {
        match self.ask_source(migration, run.column, (What::Release, run.other), epochs).await? {
            (VolumeAnswer::Released, _) => Ok(()),
            _ => Err(NotTaken::Yet),
        }
    }

    /// What waits for too long to be taken over.
    pub fn waits(&self, state: &State<W>) -> Option<Waits> {
        let migration = state.migration.as_ref().filter(|migration| migration.takes())?;
        let (piece, since) = state.takeover.oldest()?;
        let waited = self.shared.world.now().0.saturating_sub(since.0);
        (waited >= LONG).then(|| Waits { migration: migration.clone(), piece })
    }

    /// Who is to hand it over, for people.
    pub fn waits_for(&self, Waits { migration, piece }: &Waits) -> Option<String> {
        let source = self.engine()?.map(migration.agreed.source)?;
        let columns =
            migration.fenced(self.shared.column.number, Blocks::new(*piece, PIECE)).into_iter().map(|run| run.column);
        let who = |column: usize| match source.seats().get(column)?.now() {
            Seated::Here(_) => match self.engine()?.followed_state() {
                Some((server, _)) => Some(format!("server {server}")),
                None => Some("this server".to_owned()),
            },
            Seated::There(server, _) => Some(format!("server {server}")),
            Seated::Vacant => Some("a server that isn't there".to_owned()),
        };
        let from: BTreeSet<String> = columns.filter_map(who).collect();
        Some(from.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Asks the primary of the source's column, once.
    async fn ask_source(
        &self,
        migration: &MapMigration,
        column: usize,
        (what, blocks): (What, Blocks),
        epochs: &Epochs,
    ) -> Result<(VolumeAnswer, Segments), NotTaken> {
        let engine = self.engine().ok_or(NotTaken::Yet)?;
        let map = engine.map(migration.agreed.source).ok_or(NotTaken::Yet)?;
        let seat = map.seats().get(column).ok_or(NotTaken::Yet)?;
        let (target, since) = (migration.agreed.target, migration.agreed.since);
        let handing = Handing { what, blocks, target, since, lines: epochs.lines_digest(migration.agreed.leaves) };
        let reply = match seat.now() {
            Seated::Here(group) => {
                let outcome = handing.at(&group.for_others()).await;
                if !map.may_tell(seat, &group).await {
                    return Err(NotTaken::Yet);
                }
                outcome?
            }
            Seated::There(server, view) => {
                let operation = handing.message();
                let request = VolumeRequest { volume: VolumeId(0), map: map.id(), column: column as u32, operation };
                self.answer_of(&engine, seat, (server, view), request).await.ok_or(NotTaken::Yet)?
            }
            Seated::Vacant => return Err(NotTaken::Yet),
        };
        match reply.answer {
            Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Io(error))) => Err(error.into()),
            Answer::Volume(VolumeAnswer::Failed(_)) => Err(NotTaken::Yet),
            Answer::Volume(answer) => Ok((answer, reply.payload.into_parts().0)),
            Answer::Metadata | Answer::Api | Answer::Drive(_) => Err(NotTaken::Yet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: pieces whose source was away filled all places, and what was to come from others was waited for as long.
    #[test]
    fn pieces_that_wait_for_their_source_keep_no_others_from_being_begun() {
        let (mut takeover, now) = (TakeOver::default(), Tick::default());
        let begun = |takeover: &mut TakeOver, from: u64| {
            (from..from + 40).filter(|piece| takeover.begin(piece * PIECE, now)).collect::<Vec<_>>()
        };
        let first = begun(&mut takeover, 0);
        assert_eq!((first.len(), begun(&mut takeover, 40)), (MOST_UNDER_WAY, vec![]));
        assert!(first.iter().all(|piece| takeover.note_waiting(piece * PIECE)));
        assert!(!takeover.note_waiting(1000 * PIECE), "of another window");
        let others = begun(&mut takeover, 40);
        assert_eq!(others.len(), MOST_UNDER_WAY);
        others.iter().chain(&first).for_each(|piece| takeover.end(piece * PIECE));
        assert!(takeover.oldest().is_none() && takeover.waiting.is_empty());
    }
}
