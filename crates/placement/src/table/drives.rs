//! Drives by position, in order of their ids, and what fails together with them.

use super::Table;
use crate::Candidate;
use std::collections::{BTreeMap, BTreeSet};
use tepal_model::layout::FailureDomain;
use tepal_model::{DriveId, ServerId};

pub struct Drives {
    ids: Vec<DriveId>,
    /// 0 of those that shall hold nothing.
    capacities: Vec<u64>,
    servers: Vec<u32>,
    sites: Vec<u32>,
}

impl Drives {
    /// The candidates, and who holds something without being one: each of these is on a server and at a site of its own.
    pub fn new(candidates: &[Candidate<'_>], tables: &[Table]) -> Drives {
        let known: BTreeMap<DriveId, &Candidate<'_>> = candidates.iter().map(|drive| (drive.drive, drive)).collect();
        let holders = tables.iter().flat_map(|table| table.columns.iter().flatten().copied());
        let ids: BTreeSet<DriveId> = known.keys().copied().chain(holders).collect();
        let mut servers: BTreeMap<ServerId, u32> = BTreeMap::new();
        let mut sites: BTreeMap<(Option<&str>, Option<ServerId>), u32> = BTreeMap::new();
        let mut drives = Drives { ids: Vec::new(), capacities: Vec::new(), servers: Vec::new(), sites: Vec::new() };
        let alone = candidates.len() as u32;
        for id in ids {
            let position = drives.ids.len() as u32;
            let (mut server, mut site) = (alone + position, alone + position);
            if let Some(drive) = known.get(&id) {
                let next = servers.len() as u32;
                server = *servers.entry(drive.server).or_insert(next);
                let (next, without) = (sites.len() as u32, drive.site.is_none().then_some(drive.server));
                site = *sites.entry((drive.site, without)).or_insert(next);
            }
            drives.ids.push(id);
            drives.capacities.push(known.get(&id).map_or(0, |drive| drive.capacity));
            drives.servers.push(server);
            drives.sites.push(site);
        }
        drives
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn id(&self, position: u32) -> DriveId {
        self.ids[position as usize]
    }

    /// Of a drive that is a candidate or a holder.
    pub fn position(&self, id: DriveId) -> u32 {
        self.ids.binary_search(&id).expect("it's one of these") as u32
    }

    pub fn capacity(&self, position: u32) -> u64 {
        self.capacities[position as usize]
    }

    pub fn server(&self, position: u32) -> u32 {
        self.servers[position as usize]
    }

    /// The number of the domain that a drive is in.
    pub fn domain(&self, kind: FailureDomain, position: u32) -> u32 {
        match kind {
            FailureDomain::Drive => position,
            FailureDomain::Server => self.servers[position as usize],
            FailureDomain::Site => self.sites[position as usize],
        }
    }

    /// Of those that may hold something.
    pub fn used(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ids.len() as u32).filter(|drive| self.capacity(*drive) > 0)
    }
}
