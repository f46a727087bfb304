//! What was repaired, and what couldn't be, as events of the cluster: rot is to be noticed before the other copy's drive fails.

use crate::authority::MetadataAuthority;
use crate::observed::Observations;
use crate::world::ServerWorld;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_engine::{Engine, Volume};
use tepal_metadata::Command;
use tepal_model::VolumeId;
use tokio::time::{MissedTickBehavior, interval};

/// Many blocks that rot at a time are one event.
const EVERY: Duration = Duration::from_secs(5);

/// Blocks of one volume, as this server knows them.
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
    authority: MetadataAuthority,
    observations: Observations,
    told: BTreeMap<VolumeId, Known>,
}

impl DamageEvents {
    pub fn new(engine: Engine<ServerWorld>, authority: MetadataAuthority, observations: Observations) -> Self {
        DamageEvents { engine, authority, observations, told: BTreeMap::new() }
    }

    fn known(&self) -> impl Iterator<Item = (Volume<ServerWorld>, Known)> + use<'_> {
        self.engine.volumes().into_iter().map(|volume| {
            let damaged = self.observations.of(volume.id()).damaged().count() as u64;
            let known = Known { repaired: volume.repaired(), damaged };
            (volume, known)
        })
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
        let known: Vec<_> = self.known().collect();
        self.told.retain(|id, _| known.iter().any(|(volume, _)| volume.id() == *id));
        for (volume, known) in known {
            // What was recalled of a volume that is opened only now was told before.
            let fresh = Known { damaged: known.damaged, ..Known::default() };
            let told = *self.told.entry(volume.id()).or_insert(fresh);
            for text in known.news(told) {
                let (kind, subject) = ("volume".to_owned(), volume.spec().name);
                if let Err(error) = self.authority.propose(Command::RecordEvent { kind, subject, text }).await {
                    let volume = volume.spec().name;
                    tracing::warn!(volume, %error, "what became of damaged blocks isn't among the cluster's events");
                }
            }
            self.told.insert(volume.id(), known);
        }
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
