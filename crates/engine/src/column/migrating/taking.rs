//! How the target takes over all of a window, and each piece before the piece is served.
//!
//! When all of the column's pieces have been taken over, the group says so until the window moves on.

use super::handed::Handed;
use super::takeover::PIECE;
use crate::column::pace::{LONGEST_REST, Pace, Served};
use crate::column::patience::DRIVES_WAIT;
use crate::column::{Blocks, Group, State};
use crate::migration::Phase;
use crate::servers::seat::Seated;
use crate::volume::MapMigration;
use crate::volume::migrating::Held;
use futures_util::future::{Either, join_all, select};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, MigrationStage, VolumeId};

/// Pieces that are taken over at once in the background, at most.
const AT_ONCE: usize = 8;
/// For so long a column waits to learn which chunks hold anything.
const KNOWN_SOON: Duration = Duration::from_millis(500);
/// A piece that takes longer is reported as waiting.
const LONG: Duration = Duration::from_secs(10);
/// The pause before asking a source again that couldn't hand anything over. It doubles each time, up to [`LATER`].
pub(super) const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(320);
/// How often a group says that everything is taken over.
const SAY_AGAIN: Duration = Duration::from_secs(1);
/// The pause before a piece is tried again that had no room, or can't be read.
const RETRY: Duration = Duration::from_secs(5);

/// Which task takes a piece over.
enum Claim {
    Taken,
    /// The caller.
    Own,
    /// A client's task, or none yet.
    Others,
}

/// For whom a piece is taken over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Client,
    /// Background work: it doesn't insist if the source is away.
    Nobody,
}

/// A piece that has waited for long to be taken over.
pub struct Waits {
    migration: Arc<MapMigration>,
    piece: u64,
}

/// Why a piece isn't taken over.
pub(super) enum NotTaken {
    /// The piece has to be tried again soon.
    Yet,
    Failed(IoError),
}

impl NotTaken {
    /// The same, with a damaged or lost block of a source's column by its place in the column that takes it.
    pub(super) fn of_own_column(self, migration: &MapMigration, source: usize) -> Self {
        match self {
            NotTaken::Failed(IoError::Damaged { offset, length }) => {
                NotTaken::Failed(IoError::Damaged { offset: migration.own_place(source, offset), length })
            }
            // What is lost behind it may be of other extents here.
            NotTaken::Failed(IoError::Lost { offset, .. }) => {
                NotTaken::Failed(IoError::Lost { offset: migration.own_place(source, offset), length: BLOCK })
            }
            other => other,
        }
    }
}

impl From<IoError> for NotTaken {
    fn from(error: IoError) -> Self {
        match error {
            IoError::NotNow | IoError::Stopping | IoError::Unsure | IoError::Fenced => NotTaken::Yet,
            error => NotTaken::Failed(error),
        }
    }
}

impl<W: World> Group<W> {
    /// Returns when these blocks of a volume may be served here: all of their pieces have been taken over. `Fenced` if
    /// another map has the blocks. The request has no place in the queue yet. So another server's request waits here
    /// for a moment in all, however much changes meanwhile: otherwise it would have its turn after requests that came
    /// later.
    pub async fn enter(&self, (volume, blocks): (VolumeId, Blocks)) -> Result<(), IoError> {
        if !self.shared.has_migrated.load(Ordering::Acquire) {
            return Ok(());
        }
        let since = self.shared.world.now();
        loop {
            let (change, migration, begun) = {
                let mut state = self.lock();
                state.serves()?;
                let Some(migration) = state.migration_of(volume)?.cloned() else {
                    return state.has_blocks(&self.shared.column, blocks);
                };
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
                let (group, migration) = (self.patient(), migration.clone());
                self.shared.world.spawn(Box::pin(async move {
                    let _ = group.take_over(&migration, piece, For::Client).await; // the waiting request looks itself
                }));
            }
            let _ = self.wait_for(change, self.time_left(DRIVES_WAIT, since)).await?; // as in [`Group::wait`]
        }
    }

    /// Starts taking over the window's pieces, if no task does that already.
    pub fn start_taking_over(&self) {
        if !self.shared.has_migrated.load(Ordering::Acquire) {
            return;
        }
        {
            let mut state = self.lock();
            let takes = state.migration.as_ref().is_some_and(|migration| migration.takes());
            if !takes || state.served.removed || std::mem::replace(&mut state.takeover.walking, true) {
                return;
            }
        }
        let group = self.patient();
        self.shared.world.spawn(Box::pin(async move { group.take_over_all().await }));
    }

    async fn take_over_all(self) {
        let mut pace = Pace::of(self.served(), AT_ONCE);
        loop {
            let migration = {
                let mut state = self.lock();
                let migration = state.migration.clone().filter(|migration| migration.takes() && !state.served.removed);
                let Some(migration) = migration else {
                    state.takeover.walking = false;
                    return;
                };
                migration
            };
            self.wait_for_what_is_held(&migration).await;
            let pause = match self.take_over_window(&migration, &mut pace).await {
                true => {
                    self.say_taken(&migration).await;
                    SAY_AGAIN
                }
                false => self.rest_before_the_others(&migration),
            };
            let change = {
                let mut state = self.lock();
                let is_still =
                    state.migration.as_ref().is_some_and(|now| Arc::ptr_eq(now, &migration)) && !state.served.removed;
                is_still.then(|| Group::next_change(&mut state))
            };
            let Some(mut change) = change else { continue };
            // The bell also rings for other changes.
            let mut rest = Box::pin(self.shared.world.sleep(pause));
            while let Either::Left((_, still)) = select(change, rest).await {
                let mut state = self.lock();
                if !state.migration.as_ref().is_some_and(|now| Arc::ptr_eq(now, &migration)) || state.served.removed {
                    break;
                }
                (change, rest) = (Group::next_change(&mut state), still);
            }
        }
    }

    /// How long to rest while other pieces are left: pieces that are under way for clients are over soon.
    fn rest_before_the_others(&self, migration: &MapMigration) -> Duration {
        let takeover = &self.lock().takeover;
        match migration.agreed.stage {
            MigrationStage::Running if takeover.refused.is_empty() && takeover.passed_over.is_some() => LONGEST_REST,
            MigrationStage::Running if takeover.refused.is_empty() => SOON,
            _ => RETRY,
        }
    }

    /// Waits to learn which chunks hold anything: pieces of empty chunks needn't be asked for. If that isn't known
    /// soon, every piece is.
    async fn wait_for_what_is_held(&self, migration: &Arc<MapMigration>) {
        let map = self.engine().and_then(|engine| engine.map(self.shared.column.map));
        if let Some(held) = map.and_then(|map| map.held(migration)) {
            return self.hear_what_is_held(migration, &held);
        }
        let mut rest = Box::pin(self.shared.world.sleep(KNOWN_SOON));
        loop {
            let change = {
                let mut state = self.lock();
                let waits = state.takeover.held.is_none() && !state.served.removed;
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

    async fn say_taken(&self, migration: &MapMigration) {
        let Some(engine) = self.engine() else { return };
        let agreed = &migration.agreed;
        engine.shared.authority.taken_over(agreed.target, self.shared.column.number, agreed.since).await;
    }

    /// Whether all of the column's pieces have been taken over.
    async fn take_over_window(&self, migration: &Arc<MapMigration>, pace: &mut Pace) -> bool {
        let number = self.shared.column.number;
        pace.begin_at(self.served_of(migration));
        let mut is_all = true;
        let mut some: Vec<u64> = Vec::new();
        for (_, blocks) in migration.window(number) {
            let missing: Vec<u64> = self.lock().takeover.missing((migration, number), blocks).collect();
            for piece in missing {
                if !self.is_window(migration) {
                    // Pieces that were begun come to their end, for clients may wait for them.
                    self.take_over_some(migration, &mut some, pace).await;
                    return false;
                }
                match self.claim(migration, piece) {
                    Claim::Taken => {}
                    Claim::Own => some.push(piece),
                    Claim::Others => is_all &= some.contains(&piece),
                }
                if some.len() >= pace.at_once() {
                    is_all &= self.take_over_some(migration, &mut some, pace).await;
                }
            }
        }
        is_all &= self.take_over_some(migration, &mut some, pace).await;
        is_all && self.is_window(migration)
    }

    fn claim(&self, migration: &MapMigration, piece: u64) -> Claim {
        let now = self.shared.world.now();
        // Not under the group's lock: this takes the engine's, which is the outer lock.
        let has_source = self.has_source(migration, piece);
        let state = &mut *self.lock();
        if !state.migration.as_ref().is_some_and(|now| now.is_same_window(migration)) {
            return Claim::Others; // nobody would end a piece of another window
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

    /// Whether all source columns of a piece have a primary.
    fn has_source(&self, migration: &MapMigration, piece: u64) -> bool {
        let Some(source) = self.engine().and_then(|engine| engine.map(migration.agreed.source)) else { return false };
        let runs = migration.fenced(self.shared.column.number, Blocks::new(piece, PIECE));
        let is_led = |column: usize| source.seats().get(column).is_some_and(|seat| !seat.now().is_vacant());
        runs.iter().all(|run| is_led(run.column))
    }

    async fn take_over_some(&self, migration: &Arc<MapMigration>, some: &mut Vec<u64>, pace: &mut Pace) -> bool {
        let began = self.shared.world.now();
        let taken = join_all(some.drain(..).map(|piece| self.take_over(migration, piece, For::Nobody))).await;
        let bytes: u64 = taken.iter().flatten().sum();
        if bytes > 0 {
            self.rest_for_clients(pace, self.served_of(migration), began, false).await;
            self.keep_to_rate(migration, bytes).await;
        }
        self.shared.world.give_way().await;
        taken.iter().all(Option::is_some)
    }

    /// The clients' requests of both maps.
    fn served_of(&self, migration: &MapMigration) -> Served {
        let source = self.engine().and_then(|engine| engine.map(migration.agreed.source));
        source.map_or_else(|| self.served(), |source| self.served_with(&source))
    }

    /// Rests after so many bytes, to keep to the migration's rate. A changed rate is kept to soon.
    async fn keep_to_rate(&self, migration: &MapMigration, bytes: u64) {
        let began = self.shared.world.now();
        // Each column has its part of the rate.
        let shared_out = bytes.saturating_mul(migration.busy_columns()).saturating_mul(1_000_000);
        while self.is_window(migration) {
            let Some(rate) = self.lock().migration.as_ref().and_then(|now| now.agreed.rate) else { return };
            let due = Duration::from_micros(shared_out / rate.max(1));
            let waited = self.shared.world.now().0.saturating_sub(began.0);
            if waited >= due {
                return;
            }
            self.shared.world.sleep((due - waited).min(LONGEST_REST)).await;
        }
    }

    /// Whether this window is still to be taken over here.
    pub(super) fn is_window(&self, migration: &MapMigration) -> bool {
        let state = self.lock();
        state.migration.as_ref().is_some_and(|now| now.is_same_window(migration) && now.takes())
            && !state.served.removed
    }

    /// Takes a piece over. Returns its bytes; `None` if that isn't possible now.
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
                        state.jobs.copied += bytes;
                        state.jobs.copying.add(bytes, now);
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
        let epochs = self.lock().seen.epochs.clone();
        let asked = join_all(runs.iter().map(|run| self.handed_over(migration, run, &epochs))).await;
        let mut handed: Vec<Handed> =
            asked.into_iter().collect::<Result<Vec<_>, NotTaken>>()?.into_iter().flatten().collect();
        let holds = |handed: &Handed| !handed.lines.is_empty();
        if handed.iter().all(|handed| !holds(handed) && handed.requests.is_empty()) {
            // By the epochs that are agreed by now there may be something.
            let is_agreed = Arc::ptr_eq(&self.lock().seen.epochs, &epochs);
            return if is_agreed { Ok(0) } else { Err(NotTaken::Yet) };
        }
        self.shared.kept.gather(self, blocks).await?;
        let mut turn = self.line_up_unasked(blocks).turn().await;
        let mut unknown = Vec::new();
        if handed.iter().any(|handed| handed.damaged().next().is_some()) {
            (turn, unknown) = self.check_what_is_damaged(turn, (migration, blocks), &handed, &epochs).await?;
        }
        let is_gathered = self.shared.kept.is_gathered(self, blocks).await?;
        if !self.is_window(migration) || !is_gathered {
            return Err(NotTaken::Yet);
        }
        handed.extend(unknown);
        self.write_handed(turn, (migration, blocks), &handed, &epochs).await?;
        // Lines that others see stay with them.
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

    /// The piece that has waited for too long to be taken over.
    pub fn waits(&self, state: &State<W>) -> Option<Waits> {
        let migration = state.migration.as_ref().filter(|migration| migration.takes())?;
        let (piece, since) = state.takeover.oldest()?;
        let waited = self.shared.world.now().0.saturating_sub(since.0);
        (waited >= LONG).then(|| Waits { migration: migration.clone(), piece })
    }

    /// The servers that have to hand a piece over, for people.
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
}
