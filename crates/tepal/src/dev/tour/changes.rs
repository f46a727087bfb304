//! The steps of a tour in which the volume and the cluster change on purpose.

use super::pattern::{Found, Stamp};
use super::{AREA, Tour, TourError, VOLUME, Writer};
use crate::attach::nbd::NbdAddress;
use crate::cli::UpArguments;
use crate::dev::up;
use crate::disk::Disk;
use crate::output;
use std::time::Instant;
use tepal_model::{BLOCK, Layout};
use tepal_server::api::types::{
    CreateSnapshot, Done, DriveInfo, Relayout, SnapshotInfo, SnapshotName, VolumeInfo, path, route,
};

const SNAPSHOT: &str = "tour";
/// With so many servers none is added any more: a tour can be taken again and again.
const MOST_SERVERS: u32 = 5;

/// What a snapshot must hold: of each block a write that was begun before it was there, and none before the last that was answered when
/// it was asked for.
pub struct Kept {
    seed: u64,
    oldest: Vec<u64>,
    newest: Vec<u64>,
}

impl Kept {
    fn check(&self, block: usize, found: Found) -> Result<(), TourError> {
        let between = self.oldest[block]..=self.newest[block];
        match found {
            Found::Written(Stamp { seed, block: of, version })
                if seed == self.seed && of == block as u64 && between.contains(&version) =>
            {
                Ok(())
            }
            found => Err(TourError::Snapshot { offset: block as u64 * BLOCK, between, found }),
        }
    }
}

impl Tour<'_> {
    pub(super) fn take_a_snapshot(&mut self, writer: &Writer, seed: u64) -> Result<Kept, TourError> {
        self.remove_snapshot()?;
        self.go_on(writer)?;
        writer.forget_waits();
        let since = Instant::now();
        let oldest = writer.ended();
        let request = CreateSnapshot { volume: VOLUME.to_owned(), name: SNAPSHOT.to_owned() };
        let _: SnapshotInfo = self.client.post(route::SNAPSHOTS, &request)?;
        let newest = writer.begun();
        let took = since.elapsed().as_millis();
        self.go_on(writer)?;
        let wait = writer.longest_wait().as_millis();
        let text = format!(
            "snapshot {VOLUME}@{SNAPSHOT} made under the writer in {took} ms; no request waited over {wait} ms"
        );
        self.tell("snapshot", since, text)?;
        Ok(Kept { seed, oldest, newest })
    }

    /// The snapshot holds what the volume did then, whatever happened since. It's removed.
    pub(super) fn compare_snapshot(&mut self, kept: &Kept) -> Result<(), TourError> {
        let since = Instant::now();
        let address = NbdAddress::Unix(self.cluster.folder().socket());
        let disk = Disk::open_snapshot(&address, &name(), self.interrupt)?;
        self.read_area(&disk, |block, found| kept.check(block, found))?;
        drop(disk);
        self.remove_snapshot()?;
        let text =
            format!("{} of {VOLUME}@{SNAPSHOT} compared: each block is as it was at that moment", output::size(AREA));
        self.tell("rewind", since, text)
    }

    /// That of this tour, or of one that was broken off.
    fn remove_snapshot(&self) -> Result<(), TourError> {
        let route = path(route::SNAPSHOT, &name());
        match self.client.delete::<Done>(&format!("{route}?force=true")) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The volume goes to another layout, over all drives that there are by now: to extents of another size, or back.
    pub(super) fn give_another_layout(&mut self, writer: &Writer) -> Result<(), TourError> {
        let (since, before) = (Instant::now(), writer.answered());
        writer.forget_waits();
        let volume: VolumeInfo = self.client.get(&path(route::VOLUME, VOLUME))?;
        let is_first = volume.layout.parse::<Layout>() == self.layouts()[0].parse();
        let layout = self.layouts()[usize::from(is_first)].to_owned();
        let request = Relayout { layout: Some(layout.clone()), pool: None, range: None, rate: None };
        let _: VolumeInfo = self.client.post(&path(route::VOLUME_RELAYOUT, VOLUME), &request)?;
        let gone = || {
            let volume: VolumeInfo = self.client.get(&path(route::VOLUME, VOLUME))?;
            Ok(volume.migration.is_none().then_some(()))
        };
        self.until(|| format!("volume {VOLUME} to be {layout}"), gone)?;
        let (took, answered) = (since.elapsed().as_secs_f64(), writer.answered() - before);
        let wait = writer.longest_wait().as_millis();
        let text = format!(
            "volume {VOLUME} is {layout} now, snapshot and all, after {took:.1} s: {answered} reads and writes meanwhile, none waited over {wait} ms"
        );
        self.tell("relayout", since, text)
    }

    /// One more than there are, unless a tour has done so before.
    pub(super) fn add_a_server(&mut self, writer: &Writer) -> Result<(), TourError> {
        let servers = self.cluster.servers().len() as u32;
        if !(2..MOST_SERVERS).contains(&servers) {
            return Ok(());
        }
        let since = Instant::now();
        writer.forget_waits();
        let more = UpArguments { servers: Some(servers + 1), ..UpArguments::default() };
        self.cluster = up::bring_up(self.cluster.folder().named(), &more, self.interrupt)?.0;
        self.client = self.cluster.client()?;
        let drives: Vec<DriveInfo> = self.client.get(route::DRIVES)?;
        let added = self.cluster.servers().last().copied();
        let answered = self.go_on(writer)?;
        let wait = writer.longest_wait().as_millis();
        let text = format!(
            "a server more under the writer, {} with its drive: {} drives now; {answered} reads and writes went on, none waited over {wait} ms",
            added.map_or(String::new(), |server| server.to_string()),
            drives.len(),
        );
        self.tell("grow", since, text)
    }
}

fn name() -> String {
    SnapshotName { volume: VOLUME.to_owned(), snapshot: SNAPSHOT.to_owned() }.to_string()
}
