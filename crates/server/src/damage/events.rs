//! What was repaired, and what couldn't be, as events of the cluster: a drive that rots is to be noticed before its neighbour fails.

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
            news.push(blocks(self.damaged, "damaged on every copy that is here"));
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
    /// What is known already was told before.
    pub fn new(engine: Engine<ServerWorld>, authority: MetadataAuthority, observations: Observations) -> Self {
        let mut events = DamageEvents { engine, authority, observations, told: BTreeMap::new() };
        events.told = events.known().map(|(volume, known)| (volume.id(), known)).collect();
        events
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
        let now = known.iter().map(|(volume, known)| (volume.id(), *known)).collect();
        let told = std::mem::replace(&mut self.told, now);
        for (volume, known) in known {
            for text in known.news(told.get(&volume.id()).copied().unwrap_or_default()) {
                let (kind, subject) = ("volume".to_owned(), volume.spec().name);
                if let Err(error) = self.authority.propose(Command::RecordEvent { kind, subject, text }).await {
                    tracing::warn!(volume = volume.spec().name, %error, "what became of damaged blocks isn't in the cluster's events");
                }
            }
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
            all.len() == 2 && all[0].starts_with("2 blocks") && all[1].starts_with("2 blocks damaged on every copy")
        );
    }
}
