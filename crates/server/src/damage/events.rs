//! What was repaired, and what couldn't be, as events of the cluster: rot is to be noticed before the other copy's drive fails.

use crate::api_types::SnapshotName;
use crate::authority::MetadataAuthority;
use crate::observed::{DamageOf, Observations};
use crate::world::ServerWorld;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_engine::Engine;
use tepal_metadata::{Command, Metadata};
use tokio::time::{MissedTickBehavior, interval};

/// Many blocks that rot at a time are one event.
const EVERY: Duration = Duration::from_secs(5);

/// Blocks of one volume or snapshot, as this server knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    repaired: u64,
    damaged: u64,
}

impl Known {
    /// What is news after what was told before.
    fn news(self, told: Known) -> Vec<String> {
        let blocks = |count: u64, done: &str| match count {
            1 => format!("1 block {done}"),
            _ => format!("{count} blocks {done}"),
        };
        let repaired = self.repaired.saturating_sub(told.repaired);
        let mut news = Vec::new();
        if repaired > 0 {
            news.push(blocks(repaired, "damaged on one drive, and written again from another copy"));
        }
        if self.damaged > told.damaged {
            news.push(blocks(self.damaged, "damaged, and no other copy that is here is right"));
        }
        news
    }
}

/// Tells the cluster's log of events.
pub struct DamageEvents {
    engine: Engine<ServerWorld>,
    metadata: Metadata,
    authority: MetadataAuthority,
    observations: Observations,
    told: BTreeMap<DamageOf, Known>,
    /// What is recalled from before is known by then.
    has_begun: bool,
}

impl DamageEvents {
    pub fn new(
        engine: Engine<ServerWorld>,
        metadata: Metadata,
        authority: MetadataAuthority,
        observations: Observations,
    ) -> Self {
        DamageEvents { engine, metadata, authority, observations, told: BTreeMap::new(), has_begun: false }
    }

    /// Of all volumes, and of the snapshots that have any damage, by what they're called.
    fn known(&self) -> Vec<(DamageOf, (&'static str, String), Known)> {
        let state = self.metadata.state();
        let mut known = Vec::new();
        for volume in self.engine.volumes() {
            let (id, name, observed) = (volume.id(), volume.spec().name, self.observations.of(volume.id()));
            let damaged = |snapshot| observed.damaged(snapshot).count() as u64;
            let of_volume = Known { repaired: volume.repaired(), damaged: damaged(None) };
            known.push((DamageOf { volume: id, snapshot: None }, ("volume", name.clone()), of_volume));
            for epoch in observed.damaged_epochs() {
                let Some(snapshot) = state.snapshots_of(id).find(|snapshot| snapshot.epoch == epoch) else { continue };
                let called = SnapshotName { volume: name.clone(), snapshot: snapshot.name.clone() }.to_string();
                let of_snapshot = Known { repaired: 0, damaged: damaged(Some(epoch)) };
                known.push((DamageOf { volume: id, snapshot: Some(epoch) }, ("snapshot", called), of_snapshot));
            }
        }
        known
    }

    /// Until it's dropped.
    pub async fn keep(mut self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell().await;
        }
    }

    async fn tell(&mut self) {
        let known = self.known();
        self.told.retain(|whose, _| known.iter().any(|(known, ..)| known == whose));
        for (whose, (kind, subject), known) in known {
            // What was recalled of a volume that is opened only now was told before. A snapshot is met with its damage.
            let fresh = Known { damaged: known.damaged, ..Known::default() };
            let first = if whose.snapshot.is_some() && self.has_begun { Known::default() } else { fresh };
            let told = *self.told.entry(whose).or_insert(first);
            for text in known.news(told) {
                let (kind, subject) = (kind.to_owned(), subject.clone());
                let event = Command::RecordEvent { kind, subject: subject.clone(), text };
                if let Err(error) = self.authority.propose(event).await {
                    tracing::warn!(subject, %error, "what became of damaged blocks isn't among the cluster's events");
                }
            }
            self.told.insert(whose, known);
        }
        self.has_begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repair_is_told_once_and_damage_when_it_grows() {
        let known = |repaired, damaged| Known { repaired, damaged };
        assert!(known(3, 2).news(known(3, 2)).is_empty() && known(3, 0).news(known(3, 2)).is_empty());
        assert_eq!(
            known(4, 0).news(known(3, 0)),
            ["1 block damaged on one drive, and written again from another copy"]
        );
        let all = known(5, 2).news(known(3, 1));
        assert!(
            all.len() == 2 && all[0].starts_with("2 blocks") && all[1].starts_with("2 blocks damaged, and no other")
        );
    }
}
