//! How much may be asked for of volumes, and by identities.
//!
//! Invariant: limits are of a volume or an identity that is there, and go with it.

use super::Draft;
use crate::access::{Limited, LimitsRecord, Role};
use crate::command::{Command, Reply};
use crate::refusal::Refusal;
use crate::state_machine::access::AccessChange;
use std::sync::Arc;
use tepal_model::{Limits, Rate};

impl Draft {
    /// Of commands about limits; others are refused.
    pub(super) fn carry_out_of_limits(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::LimitVolume { volume, limits } => {
                if limits.connections.is_some() {
                    return Err(Refusal::ConnectionsOfVolume);
                }
                let record = self.volume(volume)?;
                self.limit(Limited::Volume(record.id), limits, ("volume", &record.name))
            }
            Command::LimitIdentity { name, limits } => {
                let record = self.identity(name)?;
                if record.role != Role::Host {
                    return Err(Refusal::LimitOfRole { name: name.clone(), role: record.role });
                }
                self.limit(Limited::Identity(record.name), limits, ("identity", name))
            }
            _ => Err(Refusal::NoAuthority),
        }
    }

    fn limit(&mut self, of: Limited, limits: &Limits, (kind, name): (&str, &str)) -> Result<Reply, Refusal> {
        limits.check().map_err(|error| Refusal::Limits(error.to_string()))?;
        if self.state.access.limits_of(&of) == *limits {
            return Ok(Reply::Done);
        }
        match limits.is_none() {
            true => self.drop_limits_of(&of),
            false => {
                let record = Arc::new(LimitsRecord { of: of.clone(), limits: *limits });
                self.access().limits.insert(of, record.clone());
                self.note(AccessChange::Limits(record));
            }
        }
        self.event(kind, name, told(limits));
        Ok(Reply::Done)
    }

    pub(super) fn drop_limits_of(&mut self, of: &Limited) {
        if self.state.access.limits.contains_key(of) {
            self.access().limits.remove(of);
            self.note(AccessChange::LimitsGone(of.clone()));
        }
    }
}

fn told(limits: &Limits) -> String {
    let rate = |rate: Option<Rate>, of: &str| {
        rate.map(|rate| format!("{} {of} a second, {} at once", rate.per_second, rate.bucket()))
    };
    let connections = limits.connections.map(|most| format!("{most} connections at a time"));
    let all = [rate(limits.iops, "requests"), rate(limits.bandwidth, "bytes"), connections];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "has no limits any more".to_owned() } else { format!("limited to {}", all.join(", ")) }
}
