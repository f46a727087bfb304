//! What has to be done for a cluster to be as a file wants it. A plan is made of what is wanted and what there is, and refused as a whole.

mod plexes;
mod schedules;
mod space;
#[cfg(test)]
mod tests;

use super::wanted::{Content, Wanted, WantedDrive, WantedSubdisk, WantedVolume, Wrong};
use crate::command::{limit, schedule};
use space::Space;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tepal_model::layout::plexes::{Plex, Plexes, Subdisk};
use tepal_model::layout::{Layout, Protection};
use tepal_model::size::{Size, exact};
use tepal_model::text::shown;
use tepal_model::{DriveId, ServerId};
use tepal_placement::explicit;
use tepal_server::api::types::{
    DriveInfo, DriveState, DriveUse, Limits, PoolInfo, ScheduleInfo, ScheduleRules, VolumeInfo,
};

/// The pool of drives and volumes that say none.
const DEFAULT_POOL: &str = "default";

/// What there is.
#[derive(Clone, Debug)]
pub struct Now {
    pub drives: Vec<DriveInfo>,
    pub pools: Vec<PoolInfo>,
    pub volumes: Vec<VolumeInfo>,
    pub schedules: Vec<ScheduleInfo>,
    pub servers: Vec<ServerId>,
    /// The only one, which has the devices of drives that don't say a server.
    pub server: Option<ServerId>,
}

/// One change, told as a line of a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreatePool {
        name: String,
        layout: Option<String>,
    },
    AddDrive {
        name: String,
        server: ServerId,
        path: String,
        pool: Option<String>,
        is_spare: bool,
    },
    NameDrive {
        id: DriveId,
        name: String,
    },
    SetUse {
        id: DriveId,
        name: String,
        to: DriveUse,
    },
    CreateVolume {
        name: String,
        size: u64,
        layout: Option<String>,
        pool: Option<String>,
        key: Option<String>,
        limits: Limits,
        told: String,
    },
    Limit {
        name: String,
        from: Limits,
        to: Limits,
    },
    Relayout {
        name: String,
        layout: String,
        told: (String, String),
    },
    Grow {
        name: String,
        from: u64,
        to: u64,
    },
    CreateSchedule {
        name: String,
        rules: ScheduleRules,
    },
    ChangeSchedule {
        name: String,
        rules: ScheduleRules,
        from: String,
    },
}

impl Step {
    /// Whether it adds something that volumes are planned with, and that can be taken out again.
    pub fn is_first(&self) -> bool {
        matches!(self, Step::CreatePool { .. } | Step::AddDrive { .. })
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
            Step::CreateVolume { name, size, key, limits, told, .. } => {
                let encrypted = key.as_ref().map_or(String::new(), |key| format!(", encrypted by key {key}"));
                let limited = if limits.is_none() { String::new() } else { format!(", {}", limit::said(limits)) };
                write!(f, "+ volume {name}: {}, {told}{encrypted}{limited}", Size(*size))
            }
            Step::Limit { name, from, to } => {
                write!(f, "~ volume {name}: {}, instead of {}", limit::said(to), limit::said(from))
            }
            Step::Relayout { name, told: (from, to), .. } => write!(f, "~ volume {name}: {to}, instead of {from}"),
            Step::CreateSchedule { name, rules } => write!(f, "+ schedule {name}: {}", schedule::told(rules)),
            Step::ChangeSchedule { name, rules, from } => {
                write!(f, "~ schedule {name}: {}, instead of {from}", schedule::told(rules))
            }
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
    /// The pools of those that new columns can come to, and why others can't have any.
    pools: BTreeMap<DriveId, Result<String, String>>,
}

impl Drives {
    fn id(&self, disk: &WantedSubdisk) -> Result<DriveId, Wrong> {
        self.ids.get(&disk.drive).copied().ok_or_else(|| {
            let text = format!("there is no drive {}, and this file doesn't define it", shown(&disk.drive));
            Wrong::new(disk.at, text)
        })
    }

    /// Refuses plexes that can't be made of these drives. What is said of some of them.
    fn check(&self, plexes: &Plexes, pool: &str) -> Result<Option<String>, String> {
        for drive in plexes.drives() {
            let name = &self.names[&drive];
            match &self.pools[&drive] {
                Err(why) => return Err(format!("drive {name} {why}")),
                Ok(other) if other != pool => return Err(format!("drive {name} is in pool {other}, not in {pool}")),
                Ok(_) => {}
            }
        }
        let (_, columns) = explicit(plexes).map_err(|error| error.to_string())?;
        let most = columns.iter().map(|holders| holders.len()).max().unwrap_or(0);
        let fewer = columns.iter().filter(|holders| holders.len() < most).count();
        // As with Vinum: the loss of a drive is the loss of all copies that it has.
        Ok((fewer > 0).then(|| {
            let all = columns.len();
            format!(
                "of {all} combinations of subdisks, {fewer} are on fewer than {most} drives: a plex is shorter there, or two have \
                 the same drive"
            )
        }))
    }

    /// A layout with the names of drives in place of their ids.
    fn tell(&self, layout: &Layout) -> String {
        let Some(plexes) = layout.plexes() else { return layout.to_string() };
        plexes.plexes().iter().map(|plex| self.tell_plex(plex)).collect::<Vec<_>>().join(" | ")
    }

    fn tell_plex(&self, plex: &Plex) -> String {
        let stripe = plex.organization.stripe().map(|stripe| format!(" {}", exact(stripe))).unwrap_or_default();
        let organization = format!("{}{stripe}", plex.organization.word());
        let disk = |disk: &Subdisk| {
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
        let of_drives = wanted.drives.iter().map(|drive| (drive.at, &drive.pool));
        let of_volumes = wanted.volumes.iter().map(|volume| (volume.at, &volume.pool));
        for (at, pool) in of_drives.chain(of_volumes) {
            let is_there = |pool: &&String| {
                now.pools.iter().any(|it| it.name == **pool) || wanted.pools.iter().any(|it| it.name == **pool)
            };
            if let Some(pool) = pool.as_ref().filter(|pool| !is_there(pool)) {
                return Err(Wrong::new(at, format!("there is no pool {}, and this file doesn't make it", shown(pool))));
            }
        }
        let (drives, mut space) = plan.drives(wanted, now)?;
        let before = now.volumes.iter().filter_map(|volume| Some((&*volume.name, layout_of(volume)?)));
        let before: BTreeMap<&str, Layout> = before.collect();
        // Clones have their origin's, and what a volume goes away from is taken until it's there.
        let from = now.volumes.iter().filter_map(|volume| volume.layout.parse::<Layout>().ok());
        let mut taken: Vec<Subdisk> = Vec::new();
        // Where a volume's own subdisks overlap, the ones that it goes to are those that it's to have.
        for layout in before.values().cloned().chain(from) {
            for disk in layout.plexes().into_iter().flat_map(Plexes::subdisks) {
                if space.has(disk) {
                    space.take(disk);
                }
                taken.push(disk.clone());
            }
        }
        let (known, new): (Vec<_>, Vec<_>) =
            wanted.volumes.iter().partition(|volume| before.contains_key(&*volume.name));
        for volume in known {
            plan.volume(volume, (now, before.get(&*volume.name)), (&drives, &mut space))?;
        }
        // What others leave is theirs until they have left.
        taken.iter().for_each(|disk| space.take(disk));
        for volume in new {
            plan.volume(volume, (now, None), (&drives, &mut space))?;
        }
        plan.schedules(wanted, now)?;
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
        let mut drives = Drives { ids: BTreeMap::new(), names: BTreeMap::new(), pools: BTreeMap::new() };
        let mut space = Space::default();
        for drive in &now.drives {
            let pool = match (drive.state, drive.purpose) {
                (DriveState::Up, DriveUse::Active) => Ok(drive.pool.clone()),
                (DriveState::Up, purpose) => Err(format!("is {purpose}")),
                (state, _) => Err(format!("is {state}")),
            };
            drives.pools.insert(drive.id, pool);
            let name = drive.called();
            drives.ids.insert(drive.id.to_string(), drive.id);
            drives.ids.insert(name.clone(), drive.id);
            drives.names.insert(drive.id, name);
            space.add_drive(drive.id, Some(drive.capacity));
        }
        for (number, drive) in wanted.drives.iter().enumerate() {
            let known = self.drive(drive, now)?;
            let id = known.unwrap_or(DriveId(u64::MAX - number as u64)); // stands for it until it's added
            if known.is_none() {
                space.add_drive(id, None);
                drives.pools.insert(id, Ok(drive.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned())));
            }
            if drive.is_spare {
                drives.pools.insert(id, Err("is a spare".to_owned()));
            }
            drives.ids.insert(drive.name.clone(), id);
            drives.names.insert(id, drive.name.clone());
        }
        Ok((drives, space))
    }

    /// `None` if it's to be added.
    fn drive(&mut self, drive: &WantedDrive, now: &Now) -> Result<Option<DriveId>, Wrong> {
        let wrong = |text: String| Err(Wrong::new(drive.at, text));
        // What has no name is called by its id, also where it's printed.
        let is_called = |known: &&DriveInfo| match &known.name {
            Some(name) => *name == drive.name,
            None => known.id.to_string() == drive.name,
        };
        let by_name = now.drives.iter().find(is_called);
        let server = drive.server.or(by_name.map(|known| known.server)).or(now.server);
        let Some(server) = server else {
            let text = format!(
                "device {}: several servers may have it: say which one, as in s2:{}",
                drive.device, drive.device
            );
            return Err(Wrong::new(drive.at, text));
        };
        let is_it = |known: &&DriveInfo| {
            known.path == drive.device && known.server == server && known.purpose != DriveUse::Removed
        };
        let by_place = now.drives.iter().find(is_it);
        let (name, device) = (&drive.name, &drive.device);
        if by_name.is_some_and(|known| known.purpose == DriveUse::Removed) {
            return wrong(format!(
                "drive {name} was removed, and volumes name it still: give the new one another name"
            ));
        }
        let known = match (by_name, by_place) {
            (None, None) => {
                if !now.servers.contains(&server) {
                    return wrong(format!("there is no server {server}, which is to have {device}"));
                }
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
            let names_it = |volume: &&VolumeInfo| {
                let layouts = [volume.layout.parse().ok(), layout_of(volume)];
                layouts.iter().flatten().any(|layout: &Layout| layout.names(known.id))
            };
            if let Some(volume) = now.volumes.iter().find(names_it) {
                return wrong(format!("drive {name} is to be a spare, and volume {} has subdisks on it", volume.name));
            }
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
        let mut is_final = true;
        let (size, layout) = match &wanted.content {
            Content::Anywhere { size, layout } => (*size, layout.clone()),
            Content::Plexes(plexes) => {
                let had = before.and_then(Layout::plexes);
                let settled = plexes::settle((wanted, plexes), had, (drives, space, &mut self.notes))?;
                is_final = settled.is_final;
                let pool = wanted.pool.as_deref().or(known.map(|known| &*known.pool)).unwrap_or(DEFAULT_POOL);
                if had != Some(&settled.plexes) {
                    let note = drives.check(&settled.plexes, pool);
                    let note = note.map_err(|text| Wrong::new(wanted.at, format!("volume {}: {text}", wanted.name)))?;
                    self.notes.extend(note.map(|note| Wrong::new(wanted.at, note)));
                }
                // Also where it has these plexes already: an earlier run may have ended before it grew.
                (settled.plexes.size(), Some(with_options_of(before, settled.plexes)))
            }
        };
        let name = wanted.name.clone();
        let (Some(known), Some(before)) = (known, before) else {
            let told = match &layout {
                Some(layout) if is_final => drives.tell(layout),
                Some(_) => "plexes with all that is free on drives that are added first".to_owned(),
                None => "as its pool has it".to_owned(),
            };
            let (layout, pool) = (layout.map(|layout| layout.to_string()), wanted.pool.clone());
            let (key, limits) = (wanted.key.clone(), wanted.limits);
            self.steps.push(Step::CreateVolume { name, size, layout, pool, key, limits, told });
            return Ok(());
        };
        if let Some(pool) = wanted.pool.as_ref().filter(|pool| **pool != known.pool) {
            return wrong(format!(
                "volume {name} is in pool {}: `tepal volume relayout {name} --pool {pool}` moves it",
                known.pool
            ));
        }
        check_key(wanted, known)?;
        self.steps.extend(limit(wanted, known));
        if size < known.size && is_final {
            let (has, size) = (exact(known.size), exact(size));
            return wrong(format!(
                "volume {name} has {has}, and {size} would lose what is past them: `tepal volume resize {name} {size} --shrink` first"
            ));
        }
        let before = &Layout { domain: before.domain.filter(|_| before.plexes().is_none()), ..before.clone() };
        match layout.filter(|layout| layout != before) {
            None if known.migration.is_some() => self.under_way.push(name.clone()),
            None => {}
            Some(_) if known.migration.is_some() => {
                return wrong(format!(
                    "volume {name} is on its way to another layout: `tepal volume migrations` tells of it"
                ));
            }
            Some(_) if known.ranges.len() > 1 => {
                return wrong(format!(
                    "volume {name} has ranges with layouts of their own (`tepal volume show {name}`), and a file says one layout: \
                     bring them to one (`tepal volume relayout {name} --range A..B --layout LAYOUT`), or leave the layout out"
                ));
            }
            Some(layout) => {
                let told = (drives.tell(before), drives.tell(&layout));
                self.steps.push(Step::Relayout { name: name.clone(), layout: layout.to_string(), told });
            }
        }
        if size > known.size && is_final {
            self.steps.push(Step::Grow { name, from: known.size, to: size });
        }
        Ok(())
    }
}

/// Plexes with all else as it was.
fn with_options_of(before: Option<&Layout>, plexes: Plexes) -> Layout {
    let mut layout = Layout::new(Protection::Plexes(Arc::new(plexes)));
    if let Some(before) = before {
        layout.durability = before.durability;
        let fragments = layout.fragments();
        if before.fragments().are_copies() == fragments.are_copies() {
            layout.min_copies = before.min_copies.clamp(fragments.data, fragments.count());
        }
    }
    layout
}

/// What a volume has, or is on its way to.
fn layout_of(volume: &VolumeInfo) -> Option<Layout> {
    let whole = volume.migration.as_ref().filter(|migration| migration.range.is_none());
    let layout = whole.map_or(&volume.layout, |migration| &migration.to);
    layout.parse().ok()
}

/// The step to limits that a file says; what it doesn't say stays.
fn limit(wanted: &WantedVolume, known: &VolumeInfo) -> Option<Step> {
    let (iops, bandwidth) =
        (wanted.limits.iops.or(known.limits.iops), wanted.limits.bandwidth.or(known.limits.bandwidth));
    let to = Limits { iops, bandwidth, ..known.limits };
    (to != known.limits).then(|| Step::Limit { name: wanted.name.clone(), from: known.limits, to })
}

/// A volume is encrypted from its creation on, or never.
fn check_key(wanted: &WantedVolume, known: &VolumeInfo) -> Result<(), Wrong> {
    let name = &wanted.name;
    let text = match (&wanted.key, &known.key) {
        (Some(key), Some(has)) if key != has => {
            format!("volume {name} has key {has}: `tepal volume rekey {name} {key}` has it wrapped anew")
        }
        (Some(_), None) => format!("volume {name} isn't encrypted: that is chosen when a volume is created"),
        _ => return Ok(()),
    };
    Err(Wrong::new(wanted.at, text))
}
