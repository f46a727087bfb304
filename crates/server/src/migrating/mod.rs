//! Volumes that go from one map to another. Which chunks are on their way is agreed; the primaries of the target's columns take them
//! over, and say when they have; the server that leads the metadata has the window moved on then.
//!
//! How far it is, each server sees by itself: from window to window.

use crate::drives::Parts;
use crate::relay::Reports;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_metadata::{
    ColumnRecord, Command, DriveState, LONGEST_WINDOW, MapRecord, MigrationRecord, ProposeError, State,
};
use tepal_model::{MapId, MigrationStage};

/// How often it's looked at least.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// After a command that couldn't be agreed.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// A window that takes less is followed by one twice as large,
const SHORT: Duration = Duration::from_secs(1);
/// and one that takes more by one half as large.
const LONG: Duration = Duration::from_secs(10);
/// A window has at least one of so many parts of all chunks, if there are so many,
const FINEST: u64 = 100;
/// and at most one of so many; and never more than [`LONGEST_WINDOW`].
const COARSEST: u64 = 10;
/// Over how long its rate is measured.
const MEASURED: Duration = Duration::from_secs(30);
/// For so long what is missing isn't called an obstacle: servers are restarted.
const PATIENCE: Duration = Duration::from_secs(10);

/// How migrations go, as seen by this server. Clones are the same.
#[derive(Clone, Default)]
pub struct Migrations(Arc<Mutex<BTreeMap<MapId, Watched>>>);

struct Watched {
    /// Bytes of a chunk.
    chunk: u64,
    /// Its window and direction since when.
    window: ((u64, u64, bool), Instant),
    /// So many chunks had gone when; of one direction.
    gone: VecDeque<(Instant, u64)>,
    /// What is in its way since when.
    obstacles: Option<(Vec<String>, Instant)>,
    /// That has been told to people.
    is_told: bool,
}

impl Watched {
    fn new(record: &MigrationRecord, chunk: u64, now: Instant) -> Self {
        let (obstacles, is_told) = (None, false);
        let (window, gone) = ((window_of(record), now), VecDeque::from([(now, record.done)]));
        Watched { chunk, window, gone, obstacles, is_told }
    }

    fn look(&mut self, record: &MigrationRecord, obstacles: Vec<String>, now: Instant) {
        let window = window_of(record);
        if window.2 != self.window.0.2 {
            *self = Watched::new(record, self.chunk, now);
        } else if window != self.window.0 {
            self.window = (window, now);
            self.gone.push_back((now, record.done));
        }
        // One from before that time stays, from which the rate is measured.
        while self.gone.get(1).is_some_and(|(at, _)| now.duration_since(*at) > MEASURED) {
            self.gone.pop_front();
        }
        let since = self.obstacles.as_ref().map_or(now, |(_, since)| *since);
        self.obstacles = (!obstacles.is_empty()).then_some((obstacles, since));
    }

    /// In bytes a second.
    fn rate(&self, now: Instant) -> u64 {
        let Some((at, chunks)) = self.gone.front() else { return 0 };
        let gone = self.gone.back().map_or(0, |(_, last)| last.saturating_sub(*chunks));
        let seconds = now.duration_since(*at).as_secs_f64();
        if gone == 0 || seconds < 0.1 { 0 } else { ((gone * self.chunk) as f64 / seconds) as u64 }
    }

    /// What has been in its way for longer than it takes to restart a server.
    fn obstacles(&self, now: Instant) -> &[String] {
        match &self.obstacles {
            Some((obstacles, since)) if now.duration_since(*since) >= PATIENCE => obstacles,
            _ => &[],
        }
    }
}

/// How one migration goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes a second, lately.
    pub rate: u64,
    /// What is in its way, for people.
    pub obstacles: Vec<String>,
}

impl Migrations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MapId, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is now.
    pub fn progress(&self, id: MapId) -> Progress {
        let (now, watched) = (Instant::now(), self.lock());
        let watched = watched.get(&id);
        watched.map_or_else(Progress::default, |watched| Progress {
            rate: watched.rate(now),
            obstacles: watched.obstacles(now).to_vec(),
        })
    }

    fn look(&self, state: &State, now: Instant) {
        let mut all = self.lock();
        all.retain(|id, _| state.migrations.contains_key(id));
        for record in state.migrations.values() {
            let watched = all.entry(record.id).or_insert_with(|| Watched::new(record, state.chunk_of(record), now));
            watched.look(record, obstacles(state, record), now);
        }
    }

    /// For how long the window has been what it is.
    fn since(&self, record: &MigrationRecord, now: Instant) -> Duration {
        self.lock().get(&record.id).map_or(Duration::ZERO, |watched| now.duration_since(watched.window.1))
    }

    /// The obstacles of those that people haven't been told of; they are from now on.
    fn to_be_told(&self, now: Instant) -> Vec<(MapId, String)> {
        let mut told = Vec::new();
        for (id, watched) in self.lock().iter_mut() {
            let obstacles = watched.obstacles(now).join("; ");
            if !obstacles.is_empty() && !watched.is_told {
                told.push((*id, obstacles.clone()));
            }
            watched.is_told = !obstacles.is_empty();
        }
        told
    }
}

fn window_of(record: &MigrationRecord) -> (u64, u64, bool) {
    (record.done, record.fence, record.cancelled)
}

/// What keeps columns from being taken over, as far as that is agreed.
fn obstacles(state: &State, record: &MigrationRecord) -> Vec<String> {
    if record.stage == MigrationStage::Paused {
        return Vec::new();
    }
    let is_here = |column: &ColumnRecord| {
        let mut states = column.holders.iter().filter_map(|holder| state.drives.get(&holder.drive));
        states.any(|drive| matches!(drive.state, DriveState::Up | DriveState::Behind))
    };
    let away = |map: &MapRecord| {
        let away = map.columns.iter().filter(|column| !is_here(column));
        let mut drives: Vec<_> = away.flat_map(|column| column.holders.iter().map(|holder| holder.drive)).collect();
        drives.sort_unstable();
        drives.dedup();
        drives
    };
    let text = |(map, of): (MapId, &str)| {
        let drives = away(state.maps.get(&map)?);
        let named = drives.iter().take(4).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let more = if drives.len() > 4 { ", ..." } else { "" };
        (!drives.is_empty()).then(|| format!("no copy is here of some of {of}: drives {named}{more} are away"))
    };
    let parts = [(record.source, "what is to go"), (record.target, "where it goes to")];
    parts.into_iter().filter_map(text).collect()
}

/// Until the server stops.
pub async fn keep_going(parts: Parts, reports: Reports, migrations: Migrations) {
    let mut changes = parts.metadata.watch();
    loop {
        let state = changes.borrow_and_update().clone();
        let now = Instant::now();
        migrations.look(&state, now);
        let leads = parts.metadata.leader() == Some(parts.metadata.server());
        if leads {
            reports.keep(|map| state.migrations.values().any(|record| record.target == map));
            let commands = state
                .migrations
                .values()
                .filter_map(|record| next(&state, record, reports.count(record), migrations.since(record, now)));
            for command in commands.chain(remarks(&state, &migrations, now)) {
                match parts.authority.propose(command.clone()).await {
                    Ok(_) => {}
                    Err(ProposeError::Refused(refusal)) => tracing::debug!(?command, %refusal, "a window isn't moved"),
                    Err(error) => {
                        tracing::warn!(%error, "volumes can't go on to their new layout now");
                        tokio::time::sleep(TRY_AGAIN).await;
                        break;
                    }
                }
            }
        }
        let waited = async {
            tokio::select! {
                changed = changes.changed() => changed.is_ok(),
                () = reports.news() => true,
            }
        };
        if let Ok(false) = tokio::time::timeout(LOOK_AGAIN, waited).await {
            return;
        }
    }
}

/// What is to be agreed now, when so many of its columns have said that they have everything of the window, which has been as it
/// is for so long.
fn next(state: &State, record: &MigrationRecord, said: usize, lasted: Duration) -> Option<Command> {
    let columns = state.maps.get(&record.target)?.columns.len();
    // Of volumes that are being removed nothing is taken over any more.
    state.volumes_that_go(record).next()?;
    if said < columns {
        return None;
    }
    match record.stage {
        MigrationStage::Paused => None,
        MigrationStage::Running => {
            let to = (record.fence, (record.fence + length_of_next(record, lasted)).min(record.chunks));
            Some(Command::MoveWindow { id: record.id, since: record.since, to })
        }
    }
}

/// How many chunks the next window has.
fn length_of_next(record: &MigrationRecord, lasted: Duration) -> u64 {
    let length = record.fence - record.done;
    let wanted = match lasted {
        lasted if lasted < SHORT => length * 2,
        lasted if lasted > LONG => length / 2,
        _ => length,
    };
    let finest = (record.chunks / FINEST).clamp(1, LONGEST_WINDOW / (FINEST / COARSEST));
    wanted.clamp(finest, (record.chunks / COARSEST).clamp(1, LONGEST_WINDOW))
}

fn remarks(state: &State, migrations: &Migrations, now: Instant) -> Vec<Command> {
    let remark = |(id, obstacles): (MapId, String)| {
        let volume = state.volumes_that_go(state.migrations.get(&id)?).next()?;
        let text = format!("can't go on to its other layout: {obstacles}");
        Some(Command::RecordEvent { kind: "volume".to_owned(), subject: volume.name.clone(), text })
    };
    migrations.to_be_told(now).into_iter().filter_map(remark).collect()
}

#[cfg(test)]
mod tests;
