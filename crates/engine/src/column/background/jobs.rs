//! Background work of a group: settling busy marks, resolving unsure regions after a crash, catching up.

use super::Stuck;
use crate::column::flush::flush_all;
use crate::column::members::RegionState;
use crate::column::members::join::NO_ROOM;
use crate::column::pace::Pace;
use crate::column::{Group, State};
use crate::holder::Holder;
use futures_util::future::{join_all, select};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_drive::{Change, Mark, MarkKind};
use tepal_model::{DriveId, IoError};

/// How long a region stays marked busy after its last write, at least.
const SETTLE: Duration = Duration::from_secs(2);
/// With more busy regions than this, a region without a write under way is settled at once.
const MOST_BUSY: usize = 16 << 10;
/// With so few regions left, copies catch up without resting for clients: for a second or so.
const LITTLE: u64 = 64;
/// How long to wait after recovery met an obstacle, such as a full drive.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    CountStandIns,
    ListGivenUp,
    Resolve(u64),
    Note { at: usize },
    List { at: usize },
    CatchUp { at: usize, region: u64 },
}

impl<W: World> Group<W> {
    /// Starts settling busy marks, if no task does that already. The task ends when only unsure regions are busy.
    pub fn start_settling(&self) {
        let mut state = self.lock();
        if !state.jobs.settling && !state.busy.is_empty() {
            state.jobs.settling = true;
            let group = self.clone();
            self.shared.world.spawn(Box::pin(async move { group.settle_all().await }));
        }
    }

    async fn settle_all(self) {
        let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
        loop {
            self.shared.world.sleep(SETTLE).await;
            let (quiet, drives) = {
                let mut state = self.lock();
                let settled = |state: &State<W>| state.busy.keys().all(|region| state.unsure.regions.contains(region));
                if state.served.removed || settled(&state) {
                    state.jobs.settling = false;
                    return;
                }
                let many = state.busy.len() > MOST_BUSY;
                let is_quiet = |region: &u64, writes: u64| many || seen.get(region) == Some(&writes);
                let quiet: BTreeMap<u64, u64> = state
                    .busy
                    .iter()
                    .filter(|(region, busy)| busy.under_way == 0 && is_quiet(region, busy.writes))
                    .filter(|(region, _)| !state.unsure.regions.contains(region) && state.members.is_decided(**region))
                    .map(|(&region, busy)| (region, busy.writes))
                    .collect();
                seen = state.busy.iter().map(|(&region, busy)| (region, busy.writes)).collect();
                let drives: Vec<Holder<W>> = state.members.here().cloned().collect();
                (quiet, drives)
            };
            if quiet.is_empty() {
                continue;
            }
            // The marks may go only when every copy is stable.
            let lost = flush_all(drives).await;
            if lost.is_empty() {
                self.unmark_busy(&quiet).await;
            } else {
                self.lose(lost).await;
            }
        }
    }

    /// Queues the removal of the marks under the lock: a later write brings the marks again.
    async fn unmark_busy(&self, quiet: &BTreeMap<u64, u64>) {
        let mut done = Vec::new();
        {
            let mut state = self.lock();
            if state.served.removed {
                return;
            }
            let map = self.shared.column.map;
            let mut by_member: BTreeMap<usize, Vec<Change>> = BTreeMap::new();
            for (&region, &writes) in quiet {
                let same = state.busy.get(&region).is_some_and(|busy| busy.under_way == 0 && busy.writes == writes);
                // A drive may have returned with a mark meanwhile.
                let same = same && !state.unsure.regions.contains(&region);
                let Some(busy) = same.then(|| state.busy.remove(&region)).flatten() else { continue };
                for at in busy.marked {
                    let mark = Mark { map, region, kind: MarkKind::Busy };
                    by_member.entry(at).or_default().push(Change::Unmarked(mark));
                }
            }
            for (at, changes) in by_member {
                if let Some(drive) = state.members.list[at].drive() {
                    done.push(drive.record(changes, false));
                }
            }
        }
        join_all(done).await; // a mark too many only costs a comparison
    }

    /// Starts bringing copies up to date, if there's anything to do and no task does it already.
    pub fn start_recovery(&self) {
        self.shared.kept.tend(self);
        let mut state = self.lock();
        // Drives that are up are heard first: their knowledge decides.
        if !state.jobs.recovering && !state.members.has_unheard() {
            state.jobs.recovering = true;
            let group = self.clone();
            self.shared.world.spawn(Box::pin(async move { group.recover_all().await }));
        }
    }

    async fn recover_all(self) {
        // Jobs that met an obstacle are tried again only after all other jobs.
        let mut postponed: BTreeSet<Job> = BTreeSet::new();
        let mut pace = Pace::of(self.served(), 1);
        loop {
            let job = {
                let mut state = self.lock();
                let job = if state.served.removed { None } else { Self::next_job(&state, &postponed) };
                state.jobs.recovering = job.is_some() || (!postponed.is_empty() && !state.served.removed);
                if !state.jobs.recovering {
                    break;
                }
                job
            };
            let began = self.shared.world.now();
            let outcome = match job {
                None => {
                    self.settle_members();
                    let change = Group::next_change(&mut self.lock());
                    select(Box::pin(self.shared.world.sleep(RETRY)), change).await;
                    postponed.clear();
                    continue;
                }
                Some(Job::CountStandIns) => {
                    self.count_stand_ins().await;
                    Ok(())
                }
                Some(Job::ListGivenUp) => self.list_given_up().await,
                Some(Job::Resolve(region)) => self.resolve(region).await,
                Some(Job::Note { at }) => self.note(at).await,
                Some(Job::List { at }) => self.list(at).await,
                Some(Job::CatchUp { at, region }) => self.catch_up(at, region).await,
            };
            match outcome {
                Ok(()) | Err(Stuck::Failed(IoError::Fenced)) => {
                    if postponed.is_empty() {
                        self.lock().jobs.obstacle = None;
                    }
                    match job {
                        Some(Job::CatchUp { .. }) => {
                            let (now, is_urgent) = (self.served(), self.is_soon_safe());
                            self.rest_for_clients(&mut pace, now, began, is_urgent).await;
                        }
                        _ => self.settle_members(),
                    }
                    self.shared.world.give_way().await;
                }
                Err(stuck) => {
                    if let Stuck::Failed(error) = stuck {
                        self.met(error, job);
                    }
                    postponed.extend(job);
                    self.shared.world.give_way().await;
                }
            }
        }
        self.start_settling();
        self.settle_members();
    }

    /// Notes an obstacle that keeps a drive from being brought up to date.
    fn met(&self, error: IoError, job: Option<Job>) {
        let joins = self.lock().members.list.iter().position(|member| member.joins());
        match (job, joins) {
            (Some(Job::CatchUp { at, .. }), Some(joins)) if error == IoError::OutOfSpace && at == joins => {
                self.give_up_joining(at, NO_ROOM);
            }
            _ => self.lock().jobs.obstacle = Some(error),
        }
    }

    /// Whether little is left to do until as many copies as the layout has are up to date. While a copy only moves from
    /// one drive to another, that many are up to date all the time.
    fn is_soon_safe(&self) -> bool {
        let state = self.lock();
        // An absent drive catches up with nothing now.
        let here = || state.members.list.iter().filter(|member| member.drive().is_some());
        let missed = |joins| here().filter(move |member| member.joins() == joins).map(|member| member.missed.len());
        match missed(false).sum() {
            0 => missed(true).sum::<u64>() == 0,
            left => left <= LITTLE,
        }
    }

    /// Has members that know what they miss count as up again.
    fn settle_members(&self) {
        self.tell_noted();
        self.tell_joined();
        let behind: Vec<DriveId> = {
            let state = self.lock();
            let behind = state.members.list.iter().filter(|member| member.drive().is_some() && member.is_behind());
            behind.map(|member| member.id).collect()
        };
        if let Some(engine) = self.engine() {
            behind.into_iter().for_each(|id| engine.settle_if_known(id));
        }
    }

    fn next_job(state: &State<W>, postponed: &BTreeSet<Job>) -> Option<Job> {
        if state.members.stand_ins().next().is_some() && !state.jobs.counting {
            return Some(Job::CountStandIns);
        }
        if !state.has_listed_given_up() && !postponed.contains(&Job::ListGivenUp) {
            return Some(Job::ListGivenUp);
        }
        let possible =
            |region: u64| matches!(state.members.clean(region), RegionState::Clean(_) | RegionState::GivenUp);
        let now = |region: u64, job: Job| !postponed.contains(&job) && possible(region);
        if let Some(&region) = state.unsure.regions.iter().find(|&&region| now(region, Job::Resolve(region))) {
            return Some(Job::Resolve(region));
        }
        let here = || state.members.list.iter().enumerate().filter(|(_, member)| member.drive().is_some());
        let mut missing = here().filter(|(_, member)| !member.noted).map(|(at, _)| Job::Note { at });
        if let Some(note) = missing.find(|note| !postponed.contains(note)) {
            return Some(note);
        }
        let mut unlisted = here().filter(|(_, member)| member.missed.is_unlisted()).map(|(at, _)| Job::List { at });
        if let Some(list) = unlisted.find(|list| !postponed.contains(list)) {
            return Some(list);
        }
        here().find_map(|(at, member)| {
            let catch_up = |region: u64| Job::CatchUp { at, region };
            let region = member.missed.regions().find(|&region| now(region, catch_up(region)))?;
            Some(catch_up(region))
        })
    }
}
