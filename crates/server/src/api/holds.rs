//! Commands of many requests that read a snapshot or a volume, or write to one: as long as they say that they go on, that is in use, as by
//! an NBD client.
//!
//! What is held is known to the server that was told, for a few seconds: a command that was killed holds nothing, and nothing of it is
//! agreed on. By itself a hold keeps nothing from happening: who removes, cuts off or rolls back asks for it.

use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{Done, Hold, HoldUse, HoldsKnown, Replication, SourceName, route};
use super::{Shared, snapshots, volumes};
use crate::nbd::exports::Wanted;
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_model::{Epoch, VolumeId};

/// After that silence a command counts as gone. They are heard every second.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// Commands that are known at a time; of more, those that were silent for the longest aren't.
const MOST: usize = 4096;

/// Within that time a command that goes on has said so to a server that was started, or to another one if its server is gone.
const HEARD_WITHIN: Duration = Duration::from_millis(2500);

pub struct Holds {
    all: Mutex<BTreeMap<u64, Held>>,
    since: Instant,
}

impl Default for Holds {
    fn default() -> Self {
        Holds { all: Mutex::default(), since: Instant::now() }
    }
}

struct Held {
    at: Instant,
    what: (VolumeId, Option<Epoch>),
    by: HoldUse,
    replication: Option<Replication>,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Held>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, id: u64, what: (VolumeId, Option<Epoch>), (by, replication): (HoldUse, Option<Replication>)) {
        let mut all = self.lock();
        all.retain(|_, held| held.at.elapsed() < GONE_AFTER);
        if by == HoldUse::Ended {
            all.remove(&id);
            return;
        }
        all.insert(id, Held { at: Instant::now(), what, by, replication });
        if all.len() > MOST {
            let silent = all.iter().min_by_key(|(_, held)| held.at).map(|(&id, _)| id);
            silent.and_then(|id| all.remove(&id));
        }
    }

    /// Whether each command that goes on has had the time to say so.
    pub fn are_known(&self) -> bool {
        self.since.elapsed() >= HEARD_WITHIN
    }

    fn replications(&self) -> Vec<Replication> {
        let all = self.lock();
        let heard = all.values().filter(|held| held.at.elapsed() < GONE_AFTER);
        heard.filter_map(|held| held.replication.clone()).collect()
    }

    /// How many commands hold the volume itself, or its snapshot of that epoch, for this.
    pub fn count(&self, volume: VolumeId, snapshot: Option<Epoch>, by: HoldUse) -> u64 {
        let is_meant =
            |held: &&Held| held.at.elapsed() < GONE_AFTER && held.what == (volume, snapshot) && held.by == by;
        self.lock().values().filter(is_meant).count() as u64
    }
}

/// Begins a hold, goes on with it, or ends it.
pub async fn hold(
    State(context): State<Shared>,
    Input(Hold { id, of, by, replication }): Input<Hold>,
) -> Result<Json<Done>, Failure> {
    let of_snapshot = match Wanted::of(&of) {
        Some(Wanted::Id(_, epoch)) => epoch.is_some(),
        Some(Wanted::Name(name)) => matches!(name, SourceName::Snapshot(_)),
        None => false,
    };
    let what = match of_snapshot {
        true => {
            let (volume, snapshot) = snapshots::record(&context, &Named(of).snapshot()?).await?;
            (volume.id, Some(snapshot.epoch))
        }
        false => (volumes::record(&context, &of).await?.id, None),
    };
    let replication = replication.map(|said| Replication { volume_id: what.0.0, ..said });
    context.holds.hear(id, what, (by, replication));
    Ok(Json(Done {}))
}

/// Those that go on, as they said last, by whichever server.
pub async fn replications(State(context): State<Shared>, scope: Scope) -> Json<Vec<Replication>> {
    let mut all = context.holds.replications();
    if scope == Scope::Cluster {
        let others = context.ask_others::<Vec<Replication>>(route::REPLICATIONS).await;
        all.extend(others.into_iter().filter_map(|(_, said)| said).flatten());
    }
    Json(all)
}

/// Whether this server knows of all that is held here.
pub async fn known(State(context): State<Shared>) -> Json<HoldsKnown> {
    Json(HoldsKnown { known: context.holds.are_known() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_of_one_thing_until_it_ends() {
        let holds = Holds::default();
        let (volume, snapshot) = ((VolumeId(1), None), (VolumeId(1), Some(3)));
        holds.hear(7, volume, (HoldUse::Import, None));
        holds.hear(7, volume, (HoldUse::Import, None));
        holds.hear(8, snapshot, (HoldUse::Export, None));
        let count = |(volume, snapshot), by| holds.count(volume, snapshot, by);
        assert_eq!((count(volume, HoldUse::Import), count(volume, HoldUse::Export)), (1, 0));
        assert_eq!((count(snapshot, HoldUse::Export), count((VolumeId(2), None), HoldUse::Import)), (1, 0));
        holds.hear(7, volume, (HoldUse::Ended, None));
        assert_eq!(count(volume, HoldUse::Import), 0);
    }

    #[test]
    fn who_is_silent_holds_nothing_any_more() {
        let holds = Holds::default();
        holds.hear(7, (VolumeId(1), None), (HoldUse::Import, None));
        let long_ago = Instant::now().checked_sub(GONE_AFTER).expect("the machine has been up for that long");
        holds.lock().get_mut(&7).expect("heard").at = long_ago;
        assert_eq!(holds.count(VolumeId(1), None, HoldUse::Import), 0);
        holds.hear(8, (VolumeId(1), None), (HoldUse::Export, None));
        assert_eq!(holds.lock().len(), 1);
    }
}
