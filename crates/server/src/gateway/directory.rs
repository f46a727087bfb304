//! What servers say of volumes, drives and addresses, told to the engine and the links.

use crate::agreed::status_of;
use crate::api_types::{Directory, DirectoryColumn, DirectoryMap, DirectoryVolume, ENCRYPTED, RANGED};
use crate::data_links::Links;
use crate::data_threads::DataThreads;
use crate::world::ServerWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_engine::{Agreed, ClusterView, Engine, Laid, Migration, Placed, Places, Placing, VolumeSpec};
use tepal_model::{Layout, MapId, MigrationStage, Ranges, ServerId, VolumeId};
use tepal_placement::Geometry;
use tokio::sync::watch;

/// The latest directory, and those who act by it.
pub struct Followed {
    engine: Engine<ServerWorld>,
    links: Links,
    threads: Arc<DataThreads>,
    known: watch::Sender<Arc<Directory>>,
}

impl Followed {
    pub async fn begin(first: Directory, engine: Engine<ServerWorld>, links: Links, threads: Arc<DataThreads>) -> Self {
        let followed = Followed { engine, links, threads, known: watch::Sender::new(Arc::new(first)) };
        let first = followed.known.borrow().clone();
        followed.tell(&first, &first).await;
        followed
    }

    /// The latest one. What it names, the engine has.
    pub fn known(&self) -> watch::Receiver<Arc<Directory>> {
        self.known.subscribe()
    }

    /// An older one than what is known is of no use. So is that of another cluster.
    pub async fn follow(&self, directory: Directory) {
        let before = self.known.borrow().clone();
        if directory.cluster != before.cluster {
            tracing::error!(cluster = %directory.cluster, "a server that was asked is of another cluster");
        } else if directory.number > before.number {
            let now = Arc::new(directory);
            self.tell(&before, &now).await;
            self.known.send_replace(now);
        }
    }

    async fn tell(&self, before: &Directory, now: &Arc<Directory>) {
        self.tell_links(before, now);
        let (engine, now) = (self.engine.clone(), now.clone());
        // They stop after this.
        let _ = self.threads.run_on(0, move || async move { tell_engine(&engine, &now).await }).await;
    }

    fn tell_links(&self, before: &Directory, now: &Directory) {
        for server in &now.servers {
            match server.is_up {
                true => self.links.set_up(server.id, &server.address, &self.threads),
                false => self.links.set_down(server.id),
            }
        }
        let here: BTreeSet<ServerId> = now.servers.iter().map(|server| server.id).collect();
        let gone = before.servers.iter().filter(|server| !here.contains(&server.id));
        gone.for_each(|server| self.links.set_down(server.id));
    }
}

async fn tell_engine(engine: &Engine<ServerWorld>, now: &Directory) {
    engine.follow_from_outside(&Arc::new(cluster_view(now)));
    let volumes: BTreeMap<VolumeId, &DirectoryVolume> =
        now.volumes.iter().map(|volume| (VolumeId(volume.id), volume)).collect();
    for volume in engine.volumes() {
        match volumes.get(&volume.id()) {
            // Perhaps not the one that it was opened with: clones may have gone with it to another.
            None if volume.has_any_map_of(|map| now.volumes.iter().any(|other| has_map(other, map))) => {
                engine.remove_one_of_several(volume.id()).await;
            }
            None => engine.remove_volume(volume.id(), |_| false).await,
            Some(said) => volume.changed(&said.name, (said.size, said.is_replica), said.revision, None),
        }
    }
    for (id, said) in volumes {
        if engine.volume(id).is_some() {
            continue;
        }
        let opened = spec_of(said).map(|spec| engine.open_volume_among(spec).map(drop));
        match opened {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::error!(volume = said.name, %error, "a volume can't be served"),
            None => tracing::error!(volume = said.name, layout = said.layout, "a volume's layout isn't known here"),
        }
    }
}

fn cluster_view(directory: &Directory) -> ClusterView {
    let drives = directory.drives.iter().map(|drive| {
        let status = status_of(drive.state, drive.state_view, drive.left);
        (drive.id, Agreed { server: drive.server, status })
    });
    let own = directory.volumes.iter().map(|volume| (MapId(volume.map), &volume.columns));
    let ways = directory.volumes.iter().filter_map(|volume| volume.migration.as_ref());
    let other = ways.map(|way| (MapId(way.target), &way.columns));
    let of_ranges = || directory.volumes.iter().filter_map(|volume| volume.ranges.as_ref()).flat_map(|all| &all.maps);
    let ranged = of_ranges().map(|map| (MapId(map.map), &map.columns));
    let places = own.chain(other).chain(ranged).map(|(map, columns)| (map, Arc::new(places_of(columns)))).collect();
    let volumes = directory.volumes.iter().map(|volume| (VolumeId(volume.id), MapId(volume.map))).collect();
    let migrations = directory.volumes.iter().filter_map(migration_of);
    let migrations: BTreeMap<_, _> = migrations.map(|migration| (migration.source, Arc::new(migration))).collect();
    let of_targets = migrations.values().map(|migration| (migration.target, Arc::new(migration.to.clone())));
    let own = directory.volumes.iter().filter_map(|volume| Some((MapId(volume.map), Arc::new(laid_of(volume)?))));
    let ranged = of_ranges().filter_map(|map| Some((MapId(map.map), Arc::new(laid_of_map(map)?))));
    let laid = own.chain(of_targets).chain(ranged).collect();
    let several = |volume: &DirectoryVolume| {
        let ranges: Ranges = volume.ranges.as_ref()?.list.parse().ok()?;
        (ranges.count() > 1).then(|| (VolumeId(volume.id), Arc::new(ranges)))
    };
    let ranges = directory.volumes.iter().filter_map(several).collect();
    let (drives, epochs) = (drives.collect(), BTreeMap::new());
    ClusterView { view: directory.view, drives, epochs, places, volumes, ranges, laid, migrations }
}

fn laid_of_map(map: &DirectoryMap) -> Option<Laid> {
    laid(&map.layout, &map.columns, map.width, map.chunk)
}

/// `None` if it's of a form that isn't known here.
fn laid_of(volume: &DirectoryVolume) -> Option<Laid> {
    let layout = match &volume.key {
        None => Some(&*volume.layout),
        Some(_) => volume.layout.strip_prefix(ENCRYPTED),
    };
    let layout = match &volume.ranges {
        None => layout,
        Some(_) => layout.and_then(|layout| layout.strip_prefix(RANGED)),
    };
    laid(layout?, &volume.columns, volume.width, volume.chunk)
}

fn laid(layout: &str, columns: &[DirectoryColumn], width: u32, chunk: u32) -> Option<Laid> {
    let layout: Layout = layout.parse().ok()?;
    let geometry = Geometry::of_map(&layout, columns.len(), width, chunk)?;
    Some(Laid { layout, geometry })
}

fn has_map(volume: &DirectoryVolume, map: MapId) -> bool {
    let of_ranges = || volume.ranges.iter().flat_map(|ranges| &ranges.maps);
    volume.map == map.0
        || volume.migration.as_ref().is_some_and(|way| way.target == map.0)
        || of_ranges().any(|own| own.map == map.0)
}

/// `None` if the volume goes nowhere, or it's of a form that isn't known here.
fn migration_of(volume: &DirectoryVolume) -> Option<Migration> {
    let way = volume.migration.as_ref()?;
    let source = way.source.unwrap_or(volume.map);
    let from = match source == volume.map {
        true => laid_of(volume)?,
        false => laid_of_map(volume.ranges.as_ref()?.maps.iter().find(|map| map.map == source)?)?,
    };
    Some(Migration {
        source: MapId(source),
        target: MapId(way.target),
        from,
        first: way.first,
        ends: way.ends,
        to: laid(&way.layout, &way.columns, way.width, way.chunk)?,
        chunks: way.chunks,
        seed: way.seed,
        done: way.done,
        fence: way.fence,
        reversed: way.reversed,
        // Whether it rests is nothing to a gateway, which takes nothing over.
        stage: MigrationStage::Running,
        rate: None,
        leaves: way.leaves.map(VolumeId),
        since: way.since,
    })
}

fn places_of(columns: &[DirectoryColumn]) -> Places {
    let placed = |column: &DirectoryColumn| {
        let holders = column.holders.iter().map(|&(drive, since)| Placing { drive, since });
        Placed { holders: holders.collect(), joins: None, in_place_of: 0 }
    };
    Places::complete(columns.iter().map(placed).collect())
}

/// `None` if it's of a form that isn't known here.
fn spec_of(volume: &DirectoryVolume) -> Option<VolumeSpec> {
    let Laid { layout, geometry } = laid_of(volume)?;
    let is_encrypted = volume.key.is_some();
    Some(VolumeSpec {
        id: VolumeId(volume.id),
        name: volume.name.clone(),
        size: volume.size,
        layout,
        map: MapId(volume.map),
        geometry,
        places: Arc::new(places_of(&volume.columns)),
        revision: volume.revision,
        is_replica: volume.is_replica,
        is_encrypted,
        live: None,
        epochs: Arc::default(),
    })
}
