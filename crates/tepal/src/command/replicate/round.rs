//! Rounds: what has changed is found, kept as a snapshot, sent, and kept there under the same name.

use super::link::{Link, Side, now_ms};
use super::pace::Pace;
use super::plan::{ZEROS, noted};
use super::sending::{Meter, Sending};
use super::{CommandError, ReplicateError};
use crate::client::{Client, ClientError};
use crate::command::hold::{Hold, HoldUse, random};
use crate::output;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tepal_server::api::types::{
    CreateSnapshot, Done, Incomplete, NoteReplica, Range, Receive, Received, Replication, ReplicationRole,
    ResizeVolume, SnapshotInfo, SnapshotRemoval, VolumeInfo, ZeroRange, path, route,
};

/// Another replication that was killed is known to have gone by then.
const GONE_BY: Duration = Duration::from_secs(7);
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// So often it's said that a snapshot was received, while the answers get lost.
const MOST_TRIES: u32 = 8;

/// How a round ended that was whole.
#[derive(Debug, Serialize)]
pub struct Ended {
    /// The newest snapshot that both have.
    pub snapshot: String,
    /// When the source held it, in milliseconds since 1970.
    pub as_of_unix_ms: u64,
    /// Whether there was anything to send.
    pub changed: bool,
    /// It went on with a round that was cut off.
    pub resumed: bool,
    /// Of the volume, where it went on.
    pub from: u64,
    /// To the other cluster.
    pub sent_bytes: u64,
    pub milliseconds: u64,
}

impl Ended {
    pub fn said(&self) -> String {
        let (time, seconds) = (output::time(self.as_of_unix_ms), self.milliseconds as f64 / 1000.0);
        if !self.changed {
            return format!("{time} UTC: nothing has changed since {} ({seconds:.1} s)", self.snapshot);
        }
        let rate = output::rate(self.sent_bytes, Duration::from_millis(self.milliseconds));
        let how = match self.resumed {
            true => format!(", gone on with at {}", output::size(self.from)),
            false => String::new(),
        };
        let sent = output::size(self.sent_bytes);
        format!("{time} UTC: {} is there, {sent} sent in {seconds:.1} s ({rate}){how}", self.snapshot)
    }
}

/// What is told to the clusters.
#[derive(Clone)]
struct News(Arc<Mutex<Replication>>);

impl News {
    fn set(&self, change: impl FnOnce(&mut Replication)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn told(
        &self,
        role: ReplicationRole,
        other: String,
        meter: Arc<Meter>,
    ) -> impl Fn() -> Option<Replication> + use<> {
        let (news, before) = (self.clone(), Mutex::new((Instant::now(), 0)));
        move || {
            let mut said = news.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = meter.sent.load(Ordering::Relaxed);
            let seconds = before.0.elapsed().as_secs_f64().max(0.001);
            said.bytes_per_second = (sent.saturating_sub(before.1) as f64 / seconds) as u64;
            *before = (Instant::now(), sent);
            if let Some(round) = &mut said.round {
                round.offset = round.offset.max(meter.reached.load(Ordering::Relaxed));
            }
            Some(Replication { role, other: other.clone(), ..said })
        }
    }
}

pub struct Rounds {
    link: Link,
    pace: Pace,
    rate: Option<u64>,
    keep: usize,
    news: News,
    meter: Arc<Meter>,
    /// Tells the source's cluster.
    _hold: Hold,
}

impl Rounds {
    pub fn new(link: Link, rate: Option<u64>, keep: usize, every: Duration) -> Self {
        let meter = Arc::new(Meter::default());
        let as_of_unix_ms = link.target.volume.replica.as_ref().map_or(0, |replica| replica.as_of_unix_ms);
        let news = News(Arc::new(Mutex::new(Replication {
            volume_id: 0,
            role: ReplicationRole::Source,
            other: String::new(),
            as_of_unix_ms,
            lag_bytes: None,
            every_ms: every.as_millis() as u64,
            round: None,
            bytes_per_second: 0,
            error: None,
        })));
        let told = news.told(ReplicationRole::Source, link.target.called(), meter.clone());
        let _hold = Hold::with_news(&link.source.client, link.source.volume.by_id(), HoldUse::Replicate, told);
        Rounds { link, pace: Pace::new(rate), rate, keep, news, meter, _hold }
    }

    pub fn failed(&self, error: &CommandError) {
        let error = error.to_string();
        self.news.set(|news| (news.error, news.round) = (Some(error), None));
    }

    /// How much was written to the source since. Where that can't be found out now, it's left as it was.
    pub fn look(&self) {
        if let Some((base, _)) = self.link.common()
            && let Ok(bytes) = written_since(&self.link.source.client, &base)
        {
            self.news.set(|news| news.lag_bytes = Some(bytes));
        }
    }

    pub fn round(&mut self) -> Result<Ended, CommandError> {
        let began = Instant::now();
        let sent_before = self.meter.sent.load(Ordering::Relaxed);
        self.link.source.look()?;
        self.link.target.look()?;
        self.alone()?;
        let source = &self.link.source.volume;
        if source.incomplete.is_some() {
            return Err(ReplicateError::Incomplete(source.name.clone()).into());
        }
        let begun = self.link.target.volume.replica.as_ref().and_then(|replica| replica.receives);
        let (to, from, resumed) = match begun.map(|epoch| self.begun(epoch)).transpose()?.flatten() {
            Some((to, from)) => (to, from, true),
            None => {
                if let Some(unchanged) = self.unchanged(began)? {
                    return Ok(unchanged);
                }
                (self.take()?, 0, false)
            }
        };
        self.send(&to, from)?;
        self.link.source.look()?;
        self.link.target.look()?;
        self.tidy(&to);
        let as_of_unix_ms = to.created_unix_ms;
        let left = written_since(&self.link.source.client, &to).ok();
        self.news.set(|news| {
            (news.as_of_unix_ms, news.lag_bytes, news.round, news.error) = (as_of_unix_ms, left, None, None);
        });
        let sent_bytes = self.meter.sent.load(Ordering::Relaxed) - sent_before;
        let milliseconds = began.elapsed().as_millis() as u64;
        Ok(Ended { snapshot: to.name, as_of_unix_ms, changed: true, resumed, from, sent_bytes, milliseconds })
    }

    /// What was begun to be sent, and how far that is, if it can be gone on with. Else the replica holds its newest whole snapshot
    /// again, or nothing if it never had one; where the source has no snapshot of it any more, it stays as it is.
    fn begun(&mut self, epoch: u32) -> Result<Option<(SnapshotInfo, u64)>, CommandError> {
        let done = self.link.target.volume.incomplete.map_or(0, |incomplete| incomplete.done);
        // What is still to be sent is known only from the snapshot that the replica held when it was begun.
        let base = self.link.target.volume.replica.as_ref().and_then(|replica| replica.base);
        let is_base = self.link.common().map(|(_, there)| there.epoch) == base;
        if let Some(found) = self.link.source.snapshot_of_epoch(epoch).filter(|_| is_base) {
            return Ok(Some((found.clone(), done)));
        }
        match self.link.common() {
            Some((_, there)) => self.roll_back(&there)?,
            // What it holds then is said to be nothing in common, and stays.
            None if base.is_some() => {}
            None => self.clear(epoch)?,
        }
        Ok(None)
    }

    fn roll_back(&mut self, to: &SnapshotInfo) -> Result<(), CommandError> {
        let (target, of) = (&mut self.link.target, self.link.source.of());
        let path = format!("{}?force=true&replica_of={of}", path(route::SNAPSHOT_ROLLBACK, &to.by_id()));
        target.volume = target.client.post_repeatable(&path, &Done {})?;
        target.volume.incomplete = None; // if it's so again, another replication has begun since
        Ok(())
    }

    /// Of a first snapshot that is gone there is a part, which no other snapshot goes on from.
    fn clear(&mut self, epoch: u32) -> Result<(), CommandError> {
        let receive = self.receive(epoch, 0);
        let (client, volume) = (&self.link.target.client, &self.link.target.volume);
        let _: Done = client.post_repeatable(&path(route::VOLUME_RECEIVE, &volume.by_id()), &receive)?;
        let mut at = 0;
        while at < volume.size {
            let range = Range { offset: at, length: (volume.size - at).min(ZEROS) };
            let zero = ZeroRange { range, import: Some(receive.import) };
            let _: Done = client.post_repeatable(&path(route::VOLUME_ZERO, &volume.by_id()), &zero)?;
            at += range.length;
        }
        self.link.target.volume.incomplete = Some(Incomplete { import: receive.import, done: 0 });
        Ok(())
    }

    /// Where nothing was written since the newest snapshot that both have, only that is noted. Before anything else is sent, the
    /// replica has to hold that snapshot.
    fn unchanged(&mut self, began: Instant) -> Result<Option<Ended>, CommandError> {
        let Link { source, target } = &self.link;
        let (name, there, volume) = (target.volume.name.clone(), target.there(), source.volume.name.clone());
        let base = target.volume.replica.as_ref().and_then(|replica| replica.base);
        let Some((here, copy)) = self.link.common() else {
            return match base {
                Some(_) => Err(ReplicateError::NoCommon { name, there, volume }.into()),
                None => Ok(None),
            };
        };
        if base.is_some_and(|base| base != copy.epoch) {
            self.roll_back(&copy)?;
        }
        let as_of_unix_ms = now_ms();
        let bytes = written_since(&self.link.source.client, &here)?;
        let Link { source, target } = &self.link;
        let is_as_it_was = target.volume.size == copy.size && written_since(&target.client, &copy)? == 0;
        if target.volume.incomplete.is_none() && !is_as_it_was {
            let (base, own) = (copy.full_name().to_string(), source.client.servers().join(","));
            self.link.target.look()?;
            if self.link.target.volume.incomplete.is_some() {
                return Err(ReplicateError::Running { name, there }.into()); // which has begun since
            }
            return Err(ReplicateError::Changed { name, there, base, own, volume }.into());
        }
        if bytes > 0 || source.volume.size != here.size {
            self.news.set(|news| news.lag_bytes = Some(bytes));
            return Ok(None);
        }
        let note = NoteReplica { of: source.of(), as_of_unix_ms };
        let _: Done = target.client.post_repeatable(&path(route::VOLUME_REPLICA, &target.volume.by_id()), &note)?;
        self.news.set(|news| (news.as_of_unix_ms, news.lag_bytes, news.error) = (as_of_unix_ms, Some(0), None));
        let milliseconds = began.elapsed().as_millis() as u64;
        let (snapshot, changed, resumed) = (here.name, false, false);
        Ok(Some(Ended { snapshot, as_of_unix_ms, changed, resumed, from: 0, sent_bytes: 0, milliseconds }))
    }

    fn take(&self) -> Result<SnapshotInfo, ClientError> {
        let source = &self.link.source;
        let request = CreateSnapshot { volume: source.volume.by_id(), name: self.link.name_now() };
        source.client.create(route::SNAPSHOTS, &request)
    }

    /// Once nobody else writes to the replica.
    fn alone(&mut self) -> Result<(), CommandError> {
        let end = Instant::now() + GONE_BY;
        while self.link.target.volume.imports > 0 {
            if Instant::now() > end {
                let (name, there) = (self.link.target.volume.name.clone(), self.link.target.there());
                return Err(ReplicateError::Running { name, there }.into());
            }
            std::thread::sleep(LOOK_AGAIN);
            self.link.target.look()?;
        }
        self.link.check()
    }

    /// How it begins to write to the replica, as that was last looked at.
    fn receive(&self, epoch: u32, done: u64) -> Receive {
        let volume = &self.link.target.volume;
        let base = volume.replica.as_ref().and_then(|replica| replica.base);
        let before = volume.incomplete.map(|incomplete| incomplete.import);
        Receive { of: self.link.source.of(), import: number(), base, before, epoch, done }
    }

    fn send(&mut self, to: &SnapshotInfo, from: u64) -> Result<(), CommandError> {
        let base = self.link.common().map(|(here, _)| here);
        let Link { source, target } = &self.link;
        self.meter.reached.store(from, Ordering::Relaxed);
        self.news.set(|news| news.round = Some(Range { offset: from, length: to.size }));
        let told = self.news.told(ReplicationRole::Replica, source.called(), self.meter.clone());
        let replica = target.volume.by_id();
        let _hold = Hold::with_news(&target.client, replica.clone(), HoldUse::Import, told);
        let held = |snapshot: &SnapshotInfo| Hold::begin(&source.client, snapshot.by_id(), HoldUse::Export);
        let _holds = (held(to), base.as_ref().map(held));
        let receive = self.receive(to.epoch, from);
        let _: Done = target.client.post_repeatable(&path(route::VOLUME_RECEIVE, &replica), &receive)?;
        if target.volume.size != to.size {
            let (shrink, import) = (target.volume.size > to.size, Some(receive.import));
            let asked = ResizeVolume { size: to.size, shrink, force: true, replica_of: Some(receive.of), import };
            let _: VolumeInfo = target.client.post_repeatable(&path(route::VOLUME_RESIZE, &replica), &asked)?;
        }
        let sending = Sending {
            source: &source.client,
            target: &target.client,
            base: base.as_ref(),
            to,
            there: target.there(),
            replica: &replica,
            receive,
            pace: &self.pace,
            rate: self.rate,
            meter: &self.meter,
        };
        sending.run()?;
        sending.flush()?;
        Ok(self.received(to, receive.import)?)
    }

    fn received(&self, to: &SnapshotInfo, import: u64) -> Result<(), ClientError> {
        let (client, replica) = (&self.link.target.client, self.link.target.volume.by_id());
        let received = Received { import, snapshot: to.name.clone(), taken_unix_ms: to.created_unix_ms };
        let mut tries = 0;
        loop {
            tries += 1;
            match client.post::<SnapshotInfo>(&path(route::VOLUME_RECEIVED, &replica), &received) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_no_answer() && tries < MOST_TRIES => {
                    let now: VolumeInfo = client.get(&path(route::VOLUME, &replica))?;
                    let of = self.link.source.of();
                    let is_it =
                        |it: &SnapshotInfo| it.copy_of.is_some_and(|copy| (copy.of, copy.epoch) == (of, to.epoch));
                    if now.incomplete.is_none() && now.snapshots.iter().any(is_it) {
                        return Ok(()); // only the answer got lost
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Of the snapshots that were made for this, the newest stays on both sides, and as many as were asked for. What is in use stays until
    /// the next round.
    fn tidy(&self, newest: &SnapshotInfo) {
        let (prefix, of) = (self.link.prefix(), self.link.source.of());
        for (side, query) in [(&self.link.source, String::new()), (&self.link.target, format!("&replica_of={of}"))] {
            let is_replica = !query.is_empty();
            for snapshot in surplus(side, &prefix, &newest.name, self.keep) {
                // The replica may have been the source, with a snapshot that never arrived: nobody else has that.
                if is_replica && snapshot.copy_of.is_none_or(|copy| copy.of != of) {
                    continue;
                }
                let path = format!("{}?force=false{query}", path(route::SNAPSHOT, &snapshot.by_id()));
                if let Err(error) = side.client.delete::<SnapshotRemoval>(&path)
                    && !error.is_not_found()
                {
                    let _ = writeln!(std::io::stderr(), "snapshot {} stays for now: {error}", snapshot.full_name());
                }
            }
        }
    }
}

/// Those of our own that are older than the newest, but for so many.
fn surplus<'a>(side: &'a Side, prefix: &str, newest: &str, keep: usize) -> Vec<&'a SnapshotInfo> {
    let own = side.volume.snapshots.iter().filter(|it| it.name.starts_with(prefix) && it.name != newest);
    let mut own: Vec<&SnapshotInfo> = own.collect();
    own.sort_by_key(|snapshot| snapshot.epoch);
    own.truncate(own.len().saturating_sub(keep));
    own
}

/// About so many bytes, without reading them.
pub fn written_since(client: &Client, base: &SnapshotInfo) -> Result<u64, ClientError> {
    let (mut bytes, mut next) = (0, Some(0));
    while let Some(from) = next {
        let page = noted(client, base, None, from)?;
        bytes += page.runs.iter().map(|run| run.length).sum::<u64>();
        next = page.next;
    }
    Ok(bytes)
}

/// Random, below 2^63 and not 0.
fn number() -> u64 {
    (random() >> 1).max(1)
}
