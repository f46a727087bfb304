//! What has to be done for a cluster to be as a file wants it. A plan is made of what is wanted and what there is, and refused as a whole.

mod plexes;
mod space;
#[cfg(test)]
mod tests;

use super::wanted::{Content, Wanted, WantedDrive, WantedSubdisk, WantedVolume, Wrong};
use space::Space;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tepal_model::layout::plexes::{Organization, Plex, Plexes};
use tepal_model::layout::{Layout, Protection};
use tepal_model::size::{Size, exact};
use tepal_model::text::shown;
use tepal_model::{DriveId, ServerId};
use tepal_placement::explicit;
use tepal_server::api::types::{DriveInfo, DriveUse, PoolInfo, VolumeInfo};

/// What there is.
#[derive(Clone, Debug)]
pub struct Now {
    pub drives: Vec<DriveInfo>,
    pub pools: Vec<PoolInfo>,
    pub volumes: Vec<VolumeInfo>,
    /// Which has the devices of drives that don't say a server.
    pub server: ServerId,
}

/// One change, told as a line of a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreatePool { name: String, layout: Option<String> },
    AddDrive { name: String, server: ServerId, path: String, pool: Option<String>, is_spare: bool },
    NameDrive { id: DriveId, name: String },
    SetUse { id: DriveId, name: String, to: DriveUse },
    CreateVolume { name: String, size: u64, layout: Option<String>, pool: Option<String>, told: String },
    Relayout { name: String, layout: String, told: (String, String) },
    Grow { name: String, from: u64, to: u64 },
}

impl Step {
    /// Whether volumes can only be planned when it's done.
    pub fn is_of_drives(&self) -> bool {
        matches!(self, Step::CreatePool { .. } | Step::AddDrive { .. } | Step::NameDrive { .. } | Step::SetUse { .. })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CreatePool { name, layout: None } => write!(f, "+ pool {name}"),
            Step::CreatePool { name, layout: Some(layout) } => write!(f, "+ pool {name}: {layout}"),
            Step::AddDrive { name, server, path, is_spare, .. } => {
                write!(f, "+ drive {name}: {path} of {server}{}", if *is_spare { ", a spare" } else { "" })
            }
            Step::NameDrive { id, name } => write!(f, "~ drive {id} is called {name}"),
            Step::SetUse { name, to, .. } => write!(f, "~ drive {name}: {to}"),
            Step::CreateVolume { name, size, told, .. } => write!(f, "+ volume {name}: {}, {told}", Size(*size)),
            Step::Relayout { name, told: (from, to), .. } => write!(f, "~ volume {name}: {to}, instead of {from}"),
            Step::Grow { name, from, to } => write!(f, "~ volume {name}: {} instead of {}", Size(*to), Size(*from)),
        }
    }
}

/// What to do, in order, and what is taken otherwise than it's written.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub notes: Vec<Wrong>,
    /// Volumes that are on their way to what is wanted already.
    pub under_way: Vec<String>,
}

/// The drives by what a file calls them.
pub struct Drives {
    ids: BTreeMap<String, DriveId>,
    names: BTreeMap<DriveId, String>,
}

impl Drives {
    fn id(&self, disk: &WantedSubdisk) -> Result<DriveId, Wrong> {
        self.ids.get(&disk.drive).copied().ok_or_else(|| {
            let text = format!("there is no drive {}, and this file doesn't define it", shown(&disk.drive));
            Wrong::new(disk.at, text)
        })
    }

    /// Where plexes have the same drive below each other, it has one copy: as with Vinum, its loss is the loss of all of them.
    fn shared(&self, plexes: &Plexes) -> Option<String> {
        let (_, columns) = explicit(plexes).ok()?;
        let most = columns.iter().map(|holders| holders.len()).max()?;
        let fewer = columns.iter().filter(|holders| holders.len() < most).count();
        (fewer > 0).then(|| {
            let all = columns.len();
            format!("of {all} combinations of subdisks, {fewer} have fewer than {most} drives: a plex is shorter there, or two have the same drive")
        })
    }

    /// A layout with the names of drives in place of their ids.
    fn tell(&self, layout: &Layout) -> String {
        let Some(plexes) = layout.plexes() else { return layout.to_string() };
        plexes.plexes().iter().map(|plex| self.tell_plex(plex)).collect::<Vec<_>>().join(" | ")
    }

    fn tell_plex(&self, plex: &Plex) -> String {
        let organization = match plex.organization {
            Organization::Concat => "concat".to_owned(),
            Organization::Striped { stripe } => format!("striped {}", exact(stripe)),
            Organization::Raid5 { stripe } => format!("raid5 {}", exact(stripe)),
        };
        let disk = |disk: &tepal_model::layout::plexes::Subdisk| {
            let name = self.names.get(&disk.drive).cloned().unwrap_or_else(|| disk.drive.to_string());
            format!("{name}:{}", exact(disk.length))
        };
        format!("{organization} ({})", plex.subdisks.iter().map(disk).collect::<Vec<_>>().join(", "))
    }
}

impl Plan {
    pub fn of(wanted: &Wanted, now: &Now) -> Result<Plan, Wrong> {
        let mut plan = Plan { notes: wanted.notes.clone(), ..Plan::default() };
        plan.pools(wanted, now)?;
        let (drives, mut space) = plan.drives(wanted, now)?;
        let before = now.volumes.iter().filter_map(|volume| Some((&*volume.name, layout_of(volume)?)));
        let before: BTreeMap<&str, Layout> = before.collect();
        for disk in before.values().filter_map(Layout::plexes).flat_map(Plexes::subdisks) {
            space.take(disk);
        }
        // What stays where it is comes first: what is new finds room beside it.
        let (known, new): (Vec<_>, Vec<_>) =
            wanted.volumes.iter().partition(|volume| before.contains_key(&*volume.name));
        for volume in known.into_iter().chain(new) {
            plan.volume(volume, (now, before.get(&*volume.name)), (&drives, &mut space))?;
        }
        Ok(plan)
    }

    fn pools(&mut self, wanted: &Wanted, now: &Now) -> Result<(), Wrong> {
        for pool in &wanted.pools {
            let layout = pool.layout.as_ref().map(ToString::to_string);
            match now.pools.iter().find(|known| known.name == pool.name) {
                None => self.steps.push(Step::CreatePool { name: pool.name.clone(), layout }),
                Some(known) if layout.is_none() || known.layout == layout => {}
                Some(known) => {
                    let has = known.layout.as_deref().unwrap_or("no layout");
                    let text = format!("pool {} has {has}, and a pool's layout can't be changed", pool.name);
                    return Err(Wrong::new(pool.at, text));
                }
            }
        }
        Ok(())
    }

    fn drives(&mut self, wanted: &Wanted, now: &Now) -> Result<(Drives, Space), Wrong> {
        let mut drives = Drives { ids: BTreeMap::new(), names: BTreeMap::new() };
        let mut space = Space::default();
        for drive in &now.drives {
            let name = drive.name.clone().unwrap_or_else(|| drive.id.to_string());
            drives.ids.insert(drive.id.to_string(), drive.id);
            drives.ids.insert(name.clone(), drive.id);
            drives.names.insert(drive.id, name);
            space.add_drive(drive.id, Some(drive.capacity));
        }
        for (number, drive) in wanted.drives.iter().enumerate() {
            let id = match self.drive(drive, now)? {
                Some(known) => known,
                None => {
                    let stand_in = DriveId(u64::MAX - number as u64); // until it's added
                    space.add_drive(stand_in, None);
                    stand_in
                }
            };
            drives.ids.insert(drive.name.clone(), id);
            drives.names.insert(id, drive.name.clone());
        }
        Ok((drives, space))
    }

    /// `None` if it's to be added.
    fn drive(&mut self, drive: &WantedDrive, now: &Now) -> Result<Option<DriveId>, Wrong> {
        let server = drive.server.unwrap_or(now.server);
        let wrong = |text: String| Err(Wrong::new(drive.at, text));
        let is_it = |known: &&DriveInfo| known.path == drive.device && known.server == server;
        // What has no name is called by its id, also where it's printed.
        let is_called = |known: &&DriveInfo| match &known.name {
            Some(name) => *name == drive.name,
            None => known.id.to_string() == drive.name,
        };
        let (by_name, by_place) = (now.drives.iter().find(is_called), now.drives.iter().find(is_it));
        let (name, device) = (&drive.name, &drive.device);
        let known = match (by_name, by_place) {
            (None, None) => {
                let (name, path, pool) = (name.clone(), device.clone(), drive.pool.clone());
                self.steps.push(Step::AddDrive { name, server, path, pool, is_spare: drive.is_spare });
                return Ok(None);
            }
            (Some(known), Some(there)) if known.id == there.id => known,
            (Some(known), _) => {
                return wrong(format!("drive {name} is {} of {}, not {device} of {server}", known.path, known.server));
            }
            (None, Some(there)) => match &there.name {
                Some(other) => return wrong(format!("device {device} is drive {other}'s already")),
                None => {
                    self.steps.push(Step::NameDrive { id: there.id, name: name.clone() });
                    there
                }
            },
        };
        if let Some(pool) = drive.pool.as_ref().filter(|pool| **pool != known.pool) {
            return wrong(format!("drive {name} is in pool {}, and can't go to {pool}", known.pool));
        }
        if drive.is_spare && known.purpose == DriveUse::Active {
            self.steps.push(Step::SetUse { id: known.id, name: name.clone(), to: DriveUse::Spare });
        }
        Ok(Some(known.id))
    }

    fn volume(
        &mut self,
        wanted: &WantedVolume,
        (now, before): (&Now, Option<&Layout>),
        (drives, space): (&Drives, &mut Space),
    ) -> Result<(), Wrong> {
        let wrong = |text: String| Err(Wrong::new(wanted.at, text));
        let known = now.volumes.iter().find(|volume| volume.name == wanted.name);
        let (size, layout) = match &wanted.content {
            Content::Anywhere { size, layout } => (*size, layout.clone()),
            Content::Plexes(plexes) => {
                let had = before.and_then(Layout::plexes);
                let plexes = plexes::settle((wanted, plexes), had, (drives, space, &mut self.notes))?;
                if let Some(note) = drives.shared(&plexes) {
                    self.notes.push(Wrong::new(wanted.at, note));
                }
                let mut layout = Layout::new(Protection::Plexes(Arc::new(plexes.clone())));
                if let Some(before) = before {
                    layout.durability = before.durability;
                }
                (plexes.size(), Some(layout))
            }
        };
        let name = wanted.name.clone();
        let (Some(known), Some(before)) = (known, before) else {
            let told = layout.as_ref().map_or_else(|| "as its pool has it".to_owned(), |layout| drives.tell(layout));
            let (layout, pool) = (layout.map(|layout| layout.to_string()), wanted.pool.clone());
            self.steps.push(Step::CreateVolume { name, size, layout, pool, told });
            return Ok(());
        };
        if size < known.size {
            let (has, size) = (exact(known.size), exact(size));
            return wrong(format!(
                "volume {name} has {has}, and {size} would lose what is past them: `tepal volume resize {name} {size} --shrink` first"
            ));
        }
        match layout.filter(|layout| layout != before) {
            None if known.migration.is_some() => self.under_way.push(name.clone()),
            None => {}
            Some(_) if known.migration.is_some() => {
                return wrong(format!(
                    "volume {name} is on its way to another layout: `tepal volume migrations` tells of it"
                ));
            }
            Some(layout) => {
                let told = (drives.tell(before), drives.tell(&layout));
                self.steps.push(Step::Relayout { name: name.clone(), layout: layout.to_string(), told });
            }
        }
        if size > known.size {
            self.steps.push(Step::Grow { name, from: known.size, to: size });
        }
        Ok(())
    }
}

/// What a volume has, or is on its way to.
fn layout_of(volume: &VolumeInfo) -> Option<Layout> {
    let layout = volume.migration.as_ref().map_or(&volume.layout, |migration| &migration.to);
    layout.parse().ok()
}
