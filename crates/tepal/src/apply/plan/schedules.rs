//! What has to be done for schedules to be as a file wants them. Those that it doesn't name stay as they are.

use super::{Now, Plan, Step};
use crate::apply::wanted::{Wanted, WantedSchedule, Wrong};
use crate::command::schedule;
use tepal_model::schedule::SCRUBS_WITHIN;
use tepal_model::text::shown;
use tepal_server::api::types::{DEFAULT_KEEP, ScheduleRules, WorkKind};

impl Plan {
    pub(super) fn schedules(&mut self, wanted: &Wanted, now: &Now) -> Result<(), Wrong> {
        for schedule in &wanted.schedules {
            check(schedule, wanted, now)?;
            let (name, rules) = (schedule.name.clone(), full(&schedule.rules));
            match now.schedules.iter().find(|known| known.name == name) {
                None => self.steps.push(Step::CreateSchedule { name, rules }),
                Some(known) if full(&known.rules) == rules => {}
                Some(known) => {
                    let is_about = |rules: &ScheduleRules| (rules.work, rules.volume.clone(), rules.pool.clone());
                    let from = schedule::told(&known.rules);
                    if is_about(&known.rules) != is_about(&rules) {
                        let text =
                            format!("schedule {name} is of {from}: remove it first, or give this one another name");
                        return Err(Wrong::new(schedule.at, text));
                    }
                    self.steps.push(Step::ChangeSchedule { name, rules, from });
                }
            }
        }
        Ok(())
    }
}

/// What it's about has to be there, or to be made.
fn check(schedule: &WantedSchedule, wanted: &Wanted, now: &Now) -> Result<(), Wrong> {
    let volumes: Vec<&str> =
        now.volumes.iter().map(|it| &*it.name).chain(wanted.volumes.iter().map(|it| &*it.name)).collect();
    let pools: Vec<&str> =
        now.pools.iter().map(|it| &*it.name).chain(wanted.pools.iter().map(|it| &*it.name)).collect();
    let missing = |named: &Option<String>, there: &[&str]| named.clone().filter(|name| !there.contains(&&**name));
    let volume = missing(&schedule.rules.volume, &volumes).map(|name| ("volume", name));
    match volume.or(missing(&schedule.rules.pool, &pools).map(|name| ("pool", name))) {
        None => Ok(()),
        Some((what, name)) => {
            let text = format!("there is no {what} {}, and this file doesn't make it", shown(&name));
            Err(Wrong::new(schedule.at, text))
        }
    }
}

/// With what isn't said.
fn full(rules: &ScheduleRules) -> ScheduleRules {
    match rules.work {
        WorkKind::Snapshots => ScheduleRules {
            at: rules.at.or_else(|| Some(Default::default())),
            zone: rules.zone.or_else(|| Some(Default::default())),
            keep: rules.keep.or(Some(DEFAULT_KEEP)),
            ..rules.clone()
        },
        WorkKind::Scrubs => ScheduleRules { within_s: rules.within_s.or(Some(SCRUBS_WITHIN)), ..rules.clone() },
    }
}
