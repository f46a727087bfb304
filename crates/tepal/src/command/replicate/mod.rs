//! `tepal replicate`: a volume's snapshots to another cluster, again and again.
//!
//! This is a client of two clusters. What it must not forget is agreed on at the other one: of what its volume is a replica, and how much
//! of which snapshot is there. So whoever comes after one that was killed goes on where that was.

mod demote;
mod link;
mod listing;
mod pace;
mod plan;
mod round;
mod sending;

use super::CommandError;
use crate::cli::{Global, ReplicateArguments, ReplicateCommand};
use crate::client::ClientError;
use crate::locate;
use crate::output::{self, Outcome, Output};
pub use link::now_ms;

use link::{Link, NewReplica};
use round::{Ended, Rounds};
use std::io::Write;
use std::time::{Duration, Instant};
use tepal_server::api::types::{CopyOf, Done, VolumeInfo, path, route};

#[derive(Debug, thiserror::Error)]
pub enum ReplicateError {
    #[error(
        "volume '{name}' of {there} was a replica of {source_name} and isn't any more: it was promoted, and may have been written to since. \
         Nothing is sent. If that one is in use now, let this one follow it: `tepal replicate demote {volume} --source {address}`; if \
         not, let that one follow this one again: there, `tepal replicate demote {name} --source {own} --source-volume {volume}`"
    )]
    Promoted { name: String, there: String, source_name: String, volume: String, address: String, own: String },
    #[error("volume '{name}' of {there} is there already, and is no replica: name another one by --as")]
    Taken { name: String, there: String },
    #[error("volume '{name}' of {there} is a replica of {source_name}: name another one by --as")]
    OfOther { name: String, there: String, source_name: String },
    #[error(
        "volume '{name}' of {there} and volume '{volume}' have no snapshot in common any more, so that what differs isn't known: nothing is \
         changed. Send it to a new replica by --as"
    )]
    NoCommon { name: String, there: String, volume: String },
    #[error(
        "volume '{name}' of {there} has changed since its snapshot '{base}', and not by replication: nothing is sent. To keep that, \
         `tepal replicate promote {name}` there; to give it up, `tepal snapshot rollback {base}` after that, and `tepal replicate demote {name} \
         --source {own} --source-volume {volume}` there"
    )]
    Changed { name: String, there: String, base: String, own: String, volume: String },
    #[error(
        "volume '{name}' of {there} is written to by another replication: this one would be in its way. Stop either"
    )]
    Running { name: String, there: String },
    #[error("volume '{0}' is incomplete, an import of it hasn't come to its end: nothing of it is sent until then")]
    Incomplete(String),
    #[error(
        "volume '{0}' is encrypted, and its replica wouldn't be: name a key that servers there have by --key, or say --plain if that is \
         meant"
    )]
    Plain(String),
    #[error("volume '{0}' would be a replica of itself: name another cluster, or another volume by --as")]
    Itself(String),
    #[error("{there} doesn't take what is sent: {error}")]
    Unwritten { there: String, error: ClientError },
    #[error("snapshot '{what}' gave {found} bytes where {wanted} were asked for")]
    Short { what: String, wanted: u64, found: u64 },
    #[error(
        "volume '{name}' has {bytes} that {source_name} lacks: what was written since their common snapshot '{base}'. It stays as it \
         is. To give that up, use --discard; to keep it, `tepal snapshot create` and `tepal volume clone` it first"
    )]
    WouldLose { name: String, source_name: String, base: String, bytes: String },
    #[error(
        "volume '{name}' and volume '{source_name}' have no snapshot in common: it stays as it is. Send '{source_name}' to a new replica by \
         `tepal replicate --as`"
    )]
    NothingShared { name: String, source_name: String },
    #[error("volume '{0}' is itself a replica: promote it first")]
    SourceIsReplica(String),
}

impl ReplicateError {
    /// Whether another try comes to the same.
    fn is_final(&self) -> bool {
        use ReplicateError::{Changed, Itself, NoCommon, OfOther, Plain, Promoted, Running, Taken};
        matches!(
            self,
            Promoted { .. }
                | Taken { .. }
                | OfOther { .. }
                | NoCommon { .. }
                | Changed { .. }
                | Running { .. }
                | Itself(_)
                | Plain(_)
        )
    }
}

/// After a round that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two looks at how much was written to the source.
const LOOK: Duration = Duration::from_secs(10);

pub fn run(global: &Global, output: Output, arguments: ReplicateArguments) -> Result<Outcome, CommandError> {
    match arguments.command {
        Some(ReplicateCommand::Ls { volume }) => listing::list(global, output, volume.as_deref()),
        Some(ReplicateCommand::Promote { volume, force }) => promote(global, output, &volume, force),
        Some(ReplicateCommand::Demote(arguments)) => demote::run(global, output, &arguments),
        None => replicate(global, output, arguments),
    }
}

fn replicate(global: &Global, output: Output, arguments: ReplicateArguments) -> Result<Outcome, CommandError> {
    let ReplicateArguments { volume, to, every, once, called, rate, keep, layout, pool, key, plain, .. } = arguments;
    let (volume, to) = (volume.unwrap_or_default(), to.unwrap_or_default());
    let called = called.unwrap_or_else(|| volume.clone());
    let source = locate::client(global)?.patient();
    let target = locate::other(&to)?.patient();
    let new = NewReplica { layout: layout.map(|it| it.to_string()), pool, key, plain };
    let link = Link::new((source, &volume), (target, &called), new)?;
    let every = Duration::from_millis(every);
    let mut rounds = Rounds::new(link, rate.0, keep, every);
    loop {
        let began = Instant::now();
        let pause = match rounds.round() {
            Ok(ended) => {
                output.show(&ended, Ended::said)?;
                match (ended.resumed, once) {
                    // What was gone on with may be old by now.
                    (true, _) => Duration::ZERO,
                    (false, true) => return Ok(Outcome::Done),
                    (false, false) => every.saturating_sub(began.elapsed()),
                }
            }
            Err(error) => {
                let is_final = matches!(&error, CommandError::Replicate(error) if error.is_final());
                if once || is_final {
                    return Err(error);
                }
                rounds.failed(&error);
                let _ = writeln!(std::io::stderr(), "a round failed, and another begins in a moment: {error}");
                AGAIN.min(every)
            }
        };
        let until = Instant::now() + pause;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left.min(LOOK));
            rounds.look();
        }
    }
}

fn promote(global: &Global, output: Output, name: &str, force: bool) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let before: VolumeInfo = client.get(&path(route::VOLUME, name))?;
    let promote = format!("{}?force={force}", path(route::VOLUME_PROMOTE, &before.by_id()));
    let now: VolumeInfo = client.post(&promote, &Done {})?;
    output.show(&now, |now| {
        let Some(replica) = &before.replica else { return format!("volume {} is an ordinary volume", now.name) };
        let source = &replica.called;
        // It may have waited for a round to end, of which what was asked before says nothing.
        let ended = newest_copy(now).filter(|copy| Some(copy.epoch) != newest_copy(&before).map(|copy| copy.epoch));
        let as_of_unix_ms = ended.map_or(replica.as_of_unix_ms, |copy| copy.taken_unix_ms);
        let holds = match (now.incomplete, as_of_unix_ms) {
            (Some(_), _) => format!("is incomplete: it has a part of {source}"),
            (None, 0) => "holds what it did before".to_owned(),
            (None, as_of) => format!(
                "holds what {source} did at {} UTC, {} s ago; what that was written since isn't in it",
                output::time(as_of),
                now_ms().saturating_sub(as_of) / 1000
            ),
        };
        let part = match (before.incomplete.filter(|_| ended.is_none()), now.incomplete) {
            (Some(part), None) => {
                format!("; {} of a newer snapshot, not all of it, were given up", output::size(part.done))
            }
            _ => String::new(),
        };
        format!("volume {} is promoted: it takes writes, and {holds}{part}", now.name)
    })?;
    Ok(Outcome::Done)
}

/// The original of the newest snapshot that replication has made.
fn newest_copy(volume: &VolumeInfo) -> Option<CopyOf> {
    let newest = volume.snapshots.iter().filter(|snapshot| snapshot.copy_of.is_some()).max_by_key(|it| it.epoch);
    newest.and_then(|snapshot| snapshot.copy_of)
}
