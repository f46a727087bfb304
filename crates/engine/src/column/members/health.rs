//! What a group lacks for being whole.

use super::{Member, NOT_MISSED, Presence, RegionState};
use crate::column::{Group, State};
use crate::volume::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError, MapId};

/// Within this time, a new primary hears from the drives that are up.
const HEARD_SOON: Duration = Duration::from_secs(1);

/// What groups of a volume lack, taken together.
#[derive(Default)]
pub(crate) struct Wanting {
    /// Failed drives: data that only these held is gone.
    pub lost: BTreeSet<DriveId>,
    /// Drives that requests can't do without.
    pub all: BTreeSet<DriveId>,
    /// Columns whose requests can't do without some drives either. But this server leads the columns only since just
    /// now, and may have to hear from the drives that are up first.
    pub heard_soon: BTreeSet<(MapId, usize)>,
    /// Drives that writes can't do without.
    pub writes: BTreeSet<DriveId>,
    /// How many copies are here of the data that has the fewest, of data that can be read and not written.
    pub fewest: Option<usize>,
    pub away: BTreeSet<DriveId>,
    pub failed: BTreeSet<DriveId>,
    /// Drives that are here, each with the number of its regions that are not up to date.
    pub behind: BTreeMap<DriveId, u64>,
    /// Regions whose copies may differ.
    pub comparing: u64,
    /// Why recovery waits.
    pub obstacle: Option<IoError>,
    /// Why some data on its way to another map stays where it is.
    pub stays: Option<IoError>,
    /// The servers that have yet to hand something over.
    pub not_handed_over: Option<String>,
}

/// What is lost of a column.
pub(crate) enum Lost {
    All,
    Regions(BTreeSet<u64>),
}

impl<W: World> Group<W> {
    pub fn add_wanting(&self, wanting: &mut Wanting) {
        let is_just_led = self.is_just_led();
        let (obstacle, stays, waits) = {
            let state = self.lock();
            let mut look = |region| self.look(wanting, &state, region, is_just_led);
            look(NOT_MISSED);
            let list = &state.members.list;
            // Where all drives are here, some drive has each region.
            if list.iter().any(|member| member.drive().is_none()) {
                let here = list.iter().filter(|member| member.drive().is_some());
                here.flat_map(|member| member.missed.regions()).for_each(look);
            }
            list.iter().for_each(|member| wanting.add(member));
            wanting.comparing += state.comparing();
            (state.jobs.obstacle.clone(), state.takeover.obstacle(), self.waits(&state))
        };
        let in_volume = |error| match self.map() {
            Some(map) => map.in_volume(self.shared.column.number, error),
            None => error,
        };
        wanting.obstacle = wanting.obstacle.take().or_else(|| obstacle.map(in_volume));
        wanting.stays = wanting.stays.take().or_else(|| stays.map(in_volume));
        wanting.not_handed_over = wanting.not_handed_over.take().or_else(|| self.waits_for(&waits?));
    }

    /// The data that only failed drives had: all of the column, or some of its regions.
    pub fn lost(&self) -> Lost {
        let state = self.lock();
        // What nobody missed has the most copies: if that is lost, all of it is, also where nothing is known to be written.
        if state.members.is_beyond_knowing() || state.members.clean(NOT_MISSED) == RegionState::Lost {
            return Lost::All;
        }
        let members = || state.members.list.iter();
        if !members().any(|member| matches!(member.presence, Presence::Failed)) {
            return Lost::Regions(BTreeSet::new());
        }
        let here = members().filter(|member| member.drive().is_some());
        let is_lost = |region: &u64| state.members.clean(*region) == RegionState::Lost;
        Lost::Regions(here.flat_map(|member| member.missed.regions()).filter(is_lost).collect())
    }

    fn map(&self) -> Option<Map<W>> {
        self.engine()?.map(self.shared.column.map)
    }

    /// Whether a copy that is up may not have been heard from yet.
    fn is_just_led(&self) -> bool {
        let since = self.shared.world.now().0.saturating_sub(self.shared.led_since.0);
        since < HEARD_SOON && self.map().is_some_and(|map| map.can_be_led(self.shared.column.number))
    }

    fn look(&self, wanting: &mut Wanting, state: &State<W>, region: u64, is_just_led: bool) {
        let members = &state.members;
        let is_failed = |member: &&Member<W>| matches!(member.presence, Presence::Failed);
        match members.clean(region) {
            RegionState::Clean(copies) => {
                let sure = members.sure(&copies);
                if sure < self.shared.min_copies {
                    wanting.fewest = Some(wanting.fewest.map_or(sure, |fewest| fewest.min(sure)));
                    let is_up = |member: &&Member<W>| member.drive().is_some() && member.is_current();
                    wanting.writes.extend(members.list.iter().filter(|member| !is_up(member)).map(|member| member.id));
                }
            }
            RegionState::Waiting => {
                let wanted = members.wanted(region).filter(|member| !is_failed(member));
                match is_just_led {
                    true => drop(wanting.heard_soon.insert((self.shared.column.map, self.shared.column.number))),
                    false => wanting.all.extend(wanted.map(|member| member.id)),
                }
            }
            RegionState::Lost => {
                // Of fragments, some are here, and are too few.
                let (failed, others): (Vec<_>, Vec<_>) = members.wanted(region).partition(is_failed);
                let lost = if failed.is_empty() { others } else { failed };
                wanting.lost.extend(lost.iter().map(|member| member.id));
            }
            RegionState::GivenUp => {
                let holds = |member: &&Member<W>| !member.joins() && !member.missed.contains(region);
                let here = members.list.iter().filter(holds).filter(|member| member.drive().is_some()).count();
                wanting.fewest = Some(wanting.fewest.map_or(here, |fewest| fewest.min(here)));
                wanting.writes.extend(members.list.iter().filter(is_failed).map(|member| member.id));
            }
        }
    }
}

impl<W: World> State<W> {
    /// Regions whose copies may differ, of which some copy is left.
    pub fn comparing(&self) -> u64 {
        let is_lost = |&&region: &&u64| self.members.clean(region) == RegionState::Lost;
        self.unsure.regions.iter().filter(|region| !is_lost(region)).count() as u64
    }
}

impl Wanting {
    fn add<W: World>(&mut self, member: &Member<W>) {
        match &member.presence {
            Presence::Here(_) if member.is_current() && member.missed.is_empty() => {}
            Presence::Here(_) => *self.behind.entry(member.id).or_default() += member.missed.len(),
            Presence::Unheard | Presence::Leaving | Presence::Missing => drop(self.away.insert(member.id)),
            Presence::Failed => drop(self.failed.insert(member.id)),
        }
    }
}
