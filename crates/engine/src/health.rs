//! What a volume says of itself: whether all of it can be read and written, and what keeps it from being whole. Drives are
//! named by id only; who knows more of them finds the words.

use crate::column::members::health::Wanting;
use crate::protocol::Led;
use crate::servers::follow::{Agreed, DriveStatus};
use crate::servers::seat::Seated;
use crate::volume::{Map, Volume};
use std::collections::{BTreeMap, BTreeSet};
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError};

/// How a volume is. The lists aren't empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeHealth {
    /// All copies that the layout wants are here and up to date.
    Healthy,
    /// All data can be read and written, with fewer copies than the layout wants.
    Degraded(Vec<Trouble>),
    /// All drives are there, and copies are being brought up to date.
    Recovering(Vec<Trouble>),
    /// Some data can't be read or written now.
    Unavailable(Vec<Trouble>),
}

impl VolumeHealth {
    /// All that keeps it from being healthy, the worst first.
    pub fn troubles(&self) -> &[Trouble] {
        match self {
            VolumeHealth::Healthy => &[],
            VolumeHealth::Degraded(troubles)
            | VolumeHealth::Recovering(troubles)
            | VolumeHealth::Unavailable(troubles) => troubles,
        }
    }
}

/// One thing that keeps a volume from being healthy; the worst come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What only these drives held is gone: requests for it fail.
    Lost {
        /// Those that had copies of it.
        drives: Vec<DriveId>,
    },
    /// Reads and writes of what only these drives hold wait until they are back.
    AllWaits {
        /// Those that may return: which of them must, depends on what each holds.
        drives: Vec<DriveId>,
    },
    /// Writes wait, since the layout wants so many copies here; reads go on. One of these drives at least must come back.
    WritesWait {
        /// Copies that a write must reach.
        wanted: usize,
        /// Copies that are here, where they are fewest.
        here: usize,
        /// Those that aren't up.
        drives: Vec<DriveId>,
    },
    /// It's not here, and may return.
    Away {
        /// Which one: it's missing, leaving, or not heard of yet.
        drive: DriveId,
    },
    /// It's retired for good.
    Failed {
        /// Which one: it's to be removed, and the volume lacks its copies.
        drive: DriveId,
    },
    /// It's here, and this many of its regions are not up to date yet.
    Behind {
        /// Which one: it's being brought up to date.
        drive: DriveId,
        /// Each of [`tepal_model::REGION`] bytes. 0 if it isn't known yet what it misses.
        regions: u64,
    },
    /// Copies of so many regions are being compared: after a crash, or where a write was refused by some.
    Comparing {
        /// Each of [`tepal_model::REGION`] bytes.
        regions: u64,
    },
    /// Requests for so many of the volume's columns wait a moment, until a server leads them that has a copy which is up, and has heard
    /// what there is.
    LedAnew {
        /// How many.
        columns: usize,
    },
    /// What keeps a returned drive from catching up.
    Obstacle(String),
    /// A part of what is on its way to another map stays where it is: there's no room for it where it goes, or a block of it can't be
    /// read.
    Stays {
        /// Places are of the volume.
        error: IoError,
    },
    /// A part of what is on its way has been waited for for long.
    NotHandedOver {
        /// Who is to hand it over, for people.
        by: String,
    },
}

impl<W: World> Map<W> {
    /// Whether a copy of the column is up, as is agreed.
    pub(crate) fn can_be_led(&self, column: usize) -> bool {
        let Some((_, now)) = self.engine().and_then(|engine| engine.followed_state()) else { return false };
        let is_up = |drive| matches!(now.drives.get(&drive), Some(Agreed { status: DriveStatus::Up(_), .. }));
        self.placed(column).drives().any(is_up)
    }

    /// Whether all drives are gone for good that had the column, as is agreed: nobody leads it any more, and what it held is lost.
    pub(crate) fn is_lost(&self, column: usize) -> bool {
        let Some((_, now)) = self.engine().and_then(|engine| engine.followed_state()) else { return false };
        let is_gone = |drive| matches!(now.drives.get(&drive), Some(Agreed { status: DriveStatus::Retired(_), .. }));
        self.placed(column).holders.iter().all(|placing| is_gone(placing.drive))
    }
}

impl<W: World> Map<W> {
    /// What a quorum layout's columns want: requests wait where fewer drives are up than have to answer.
    fn add_wanting_of_nodes(&self, wanting: &mut Wanting) {
        let (Some(led), Some(engine)) = (self.by_gateways(), self.engine()) else { return };
        let needed = usize::from(led.quorum().thresholds().answers);
        for column in 0..self.columns() {
            let placed = self.placed(column);
            let away: Vec<DriveId> = placed.drives().filter(|drive| !engine.is_up(*drive)).collect();
            let here = placed.drives().count() - away.len();
            wanting.behind.extend(led.behind());
            for drive in away {
                match engine.may_return(drive) {
                    true => wanting.away.insert(drive),
                    false => wanting.failed.insert(drive),
                };
                if here < needed {
                    wanting.all.insert(drive);
                }
            }
        }
    }
}

impl<W: World> Volume<W> {
    /// Of the columns that this server leads, and of those that nobody leads. How the others are, their servers say.
    pub fn health(&self) -> VolumeHealth {
        let mut wanting = Wanting::default();
        let mut led_anew = 0;
        let maps = self.maps();
        for map in &maps {
            map.add_wanting_of_nodes(&mut wanting);
            for (column, seat) in map.seats().iter().enumerate() {
                match seat.now() {
                    Seated::Here(group) => group.add_wanting(&mut wanting),
                    Seated::There(..) => {} // that server says how it is
                    Seated::Vacant if map.can_be_led(column) => led_anew += 1,
                    Seated::Vacant if map.is_lost(column) => {
                        wanting.lost.extend(map.placed(column).holders.iter().map(|placing| placing.drive));
                    }
                    Seated::Vacant => wanting.all.extend(map.placed(column).drives()),
                }
            }
        }
        let ids = |drives: &BTreeSet<DriveId>| drives.iter().copied().collect();
        let mut troubles = Vec::new();
        if !wanting.lost.is_empty() {
            troubles.push(Trouble::Lost { drives: ids(&wanting.lost) });
        }
        if !wanting.all.is_empty() {
            troubles.push(Trouble::AllWaits { drives: ids(&wanting.all) });
        }
        if !wanting.writes.is_empty() {
            let wanted = self.groups().iter().map(|group| group.shared.min_copies).max().unwrap_or(0);
            let here = wanting.fewest.unwrap_or(0);
            troubles.push(Trouble::WritesWait { wanted, here, drives: ids(&wanting.writes) });
        }
        let works = troubles.is_empty();
        let all_here = wanting.away.is_empty() && wanting.failed.is_empty();
        let position: BTreeMap<DriveId, usize> = maps.iter().flat_map(|map| map.places().drives()).zip(0..).collect();
        let mut by_drive: Vec<(DriveId, Trouble)> = Vec::new();
        by_drive.extend(wanting.away.iter().map(|&drive| (drive, Trouble::Away { drive })));
        by_drive.extend(wanting.failed.iter().map(|&drive| (drive, Trouble::Failed { drive })));
        by_drive.extend(wanting.behind.iter().map(|(&drive, &regions)| (drive, Trouble::Behind { drive, regions })));
        by_drive.sort_by_key(|(drive, _)| position.get(drive).copied());
        troubles.extend(by_drive.into_iter().map(|(_, trouble)| trouble));
        if wanting.comparing > 0 {
            troubles.push(Trouble::Comparing { regions: wanting.comparing });
        }
        if led_anew + wanting.heard_soon.len() > 0 {
            troubles.push(Trouble::LedAnew { columns: led_anew + wanting.heard_soon.len() });
        }
        let text = |error| format!("recovery waits: {error}");
        troubles.extend(wanting.obstacle.map(text).map(Trouble::Obstacle));
        let lies = maps.iter().filter_map(Map::by_gateways).flat_map(Led::lies);
        let text =
            |(drive, times)| format!("drive {drive} has answered what can't be right, {times} times: its server lies");
        troubles.extend(lies.map(text).map(Trouble::Obstacle));
        troubles.extend(wanting.stays.map(|error| Trouble::Stays { error }));
        troubles.extend(wanting.not_handed_over.map(|by| Trouble::NotHandedOver { by }));
        match (works, all_here, troubles.is_empty()) {
            (false, ..) => VolumeHealth::Unavailable(troubles),
            (true, _, true) => VolumeHealth::Healthy,
            (true, true, false) => VolumeHealth::Recovering(troubles),
            (true, false, false) => VolumeHealth::Degraded(troubles),
        }
    }
}
