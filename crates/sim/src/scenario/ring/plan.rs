//! What a run of the ring is to be: how many take part, what clients do, and how long it lasts.

use crate::random::Stream;
use crate::workload::Mix;
use std::ops::Range;
use std::time::Duration;
use tepal_codec::xts::SECTOR;
use tepal_engine::{Laid, Placed, Places, Placing, VolumeSpec};
use tepal_model::layout::plexes::{Organization, Plex, Plexes, Subdisk};
use tepal_model::layout::quorum::Quorum;
use tepal_model::layout::{MAX_EXTENT, Protection};
use tepal_model::{BLOCK, DriveId, Fragments, Layout, MapId, VolumeId};
use tepal_placement::{ColumnHolders, Geometry, explicit};

/// From where a volume is imported.
#[derive(Clone, Debug)]
pub struct Importing {
    /// Of the disk, in bytes.
    pub length: u64,
    /// Its holes are at multiples of it.
    pub grain: u64,
    /// Between two of its answers it's at most so long.
    pub pace: Duration,
}

pub struct Plan {
    pub servers: usize,
    /// So many of the servers agree, by majority; if none, whoever is there agrees alone, and more changes hands.
    pub voters: usize,
    /// Gateways that are no servers.
    pub gateways: usize,
    pub spec: VolumeSpec,
    pub mix: Mix,
    /// How many requests the clients of one process send in all, if it lives so long.
    pub requests: Range<u64>,
    /// Clients that have come to their end are followed by others.
    pub is_busy: bool,
    /// How many things go wrong.
    pub events: u64,
    /// Between two of them it's at most one of these.
    pub pauses: &'static [Duration],
    /// Servers and gateways stand still, links and drives are slow, and one drive's data decays in the end.
    pub has_faults: bool,
    /// Volumes are kept with erasure codes, at least at first.
    pub has_codes: bool,
    /// Volumes may be kept on drives that are named.
    pub has_plexes: bool,
    /// Again and again a clone goes to a map of its own.
    pub clones_leave: bool,
    /// Again and again a volume is rolled back.
    pub volumes_go_back: bool,
    /// Ranges of volumes go to layouts of their own.
    pub has_ranges: bool,
    /// Clients hold the volume, and it's taken from them again and again.
    pub is_held: bool,
    /// The volume is imported while it's used.
    pub import: Option<Importing>,
    /// Nobody leads the volume's columns.
    pub is_by_gateways: bool,
}

impl Plan {
    /// Two to five servers; all happens within a moment.
    pub fn short(random: &mut Stream) -> Self {
        let servers = random.between(2..6) as usize;
        let protection = match random.below(5) {
            0 => Protection::Stripe,
            1 if servers > 2 => Protection::Mirror { copies: 3 },
            _ => Protection::Mirror { copies: 2 },
        };
        let spec = spec(random, servers, protection);
        let mut mix = Mix::draw(random, spec.size / BLOCK * BLOCK);
        mix.clients = mix.clients.min(6);
        const PAUSES: [Duration; 3] = [Duration::from_micros(200), Duration::from_millis(3), Duration::from_millis(60)];
        Plan {
            servers,
            voters: 0,
            gateways: 0,
            spec,
            mix,
            requests: 5..120,
            is_busy: false,
            events: random.between(2..14),
            pauses: &PAUSES,
            has_faults: false,
            has_codes: false,
            has_plexes: false,
            clones_leave: false,
            volumes_go_back: false,
            has_ranges: false,
            is_held: false,
            import: None,
            is_by_gateways: false,
        }
    }

    /// Three to seven servers and some gateways, over seconds: long enough for marks to be taken back while clients go on.
    pub fn long(random: &mut Stream) -> Self {
        let servers = random.between(3..8) as usize;
        let mirrors = [Protection::Mirror { copies: 2 }, Protection::Mirror { copies: 3 }];
        let protections = [Protection::Chained, mirrors[0].clone(), mirrors[1].clone(), Protection::Stripe];
        let protection = random.pick(&protections).clone();
        let mut spec = spec(random, servers, protection);
        // Of several regions in each column: what is known of one says nothing of another.
        spec.size = random.between(2..servers as u64 * 3) << 20;
        let mut mix = Mix::draw(random, spec.size);
        mix.hot = mix.hot.max(*random.pick(&[16 << 10, 1 << 20, 4 << 20])).min(spec.size);
        mix.clients = mix.clients.min(4);
        mix.longest = mix.longest.min(256 << 10);
        mix.pause = *random.pick(&[Duration::from_millis(1), Duration::from_millis(30), Duration::from_millis(300)]);
        const PAUSES: [Duration; 5] = [
            Duration::from_millis(1),
            Duration::from_millis(10),
            Duration::from_millis(40),
            Duration::from_millis(150),
            Duration::from_millis(3_000),
        ];
        Plan {
            servers,
            voters: *random.pick(&[0, 3, if servers < 5 { 3 } else { 5 }]),
            gateways: random.below(3) as usize,
            spec,
            mix,
            requests: 10..60,
            is_busy: true,
            events: random.between(6..24),
            pauses: &PAUSES,
            has_faults: true,
            has_codes: false,
            has_plexes: false,
            clones_leave: false,
            volumes_go_back: random.one_in(4),
            has_ranges: false,
            is_held: false,
            import: None,
            is_by_gateways: false,
        }
    }

    /// As [`Plan::short`], with an erasure code.
    pub fn stripes(random: &mut Stream) -> Self {
        let mut plan = Plan { has_codes: true, ..Plan::short(random) };
        plan.servers = random.between(3..7) as usize;
        let protection = erasure(random, plan.servers);
        plan.spec = spec(random, plan.servers, protection);
        plan.mix = Mix::draw(random, plan.spec.size / BLOCK * BLOCK);
        plan.mix.clients = plan.mix.clients.min(6);
        plan
    }

    /// As [`Plan::long`], with an erasure code.
    pub fn long_stripes(random: &mut Stream) -> Self {
        let mut plan = Plan { has_codes: true, ..Plan::long(random) };
        let size = plan.spec.size;
        let protection = erasure(random, plan.servers);
        plan.spec = VolumeSpec { size, ..spec(random, plan.servers, protection) };
        plan.clones_leave = random.one_in(4);
        plan
    }

    /// As [`Plan::long`], with plexes of named drives, from which volumes go to other layouts and back.
    pub fn plexes(random: &mut Stream) -> Self {
        let mut plan = Plan { has_plexes: true, ..Plan::long(random) };
        let protection = plexes(random, plan.servers, 1);
        plan.spec = VolumeSpec { size: plan.spec.size, ..spec(random, plan.servers, protection) };
        plan
    }

    pub fn leaving(random: &mut Stream) -> Self {
        let mut plan = Plan { clones_leave: true, ..Plan::long(random) };
        plan.mix.status = random.below(6) as u32;
        plan
    }

    /// As [`Plan::long`], with clients that hold the volume, which is taken from them again and again.
    pub fn fencing(random: &mut Stream) -> Self {
        Plan { is_held: true, ..Plan::long(random) }
    }

    /// As [`Plan::long`], of a volume that is imported while it's used, encrypted or not.
    pub fn imported(random: &mut Stream) -> Self {
        let mut plan = Plan { gateways: 0, ..Plan::long(random) };
        plan.spec.is_encrypted = random.one_in(4);
        if plan.spec.is_encrypted {
            plan.mix.sector = SECTOR as u64;
        }
        if random.one_in(2) {
            plan.spec.size -= random.between(1..300) * SECTOR as u64;
        }
        plan.mix.unaligned_per_million = *random.pick(&[50_000, 300_000, 700_000]);
        plan.mix.hot = plan.mix.hot.min(plan.spec.size);
        plan.mix.reach = plan.spec.size;
        plan.mix.status = random.below(6) as u32;
        let shorter = if random.one_in(2) { 0 } else { random.skewed(1 << 20) / SECTOR as u64 * SECTOR as u64 };
        let paces = [300, 3_000, 20_000, 60_000].map(Duration::from_micros);
        let (length, grain) = (plan.spec.size - shorter, *random.pick(&[512, 4 << 10, 24 << 10, 256 << 10]));
        plan.import = Some(Importing { length, grain, pace: *random.pick(&paces) });
        plan
    }

    /// As [`Plan::long`], of a volume with a quorum layout. Where several gateways write parts of one block, one part may get lost: so
    /// clients write whole blocks.
    pub fn quorum(random: &mut Stream) -> Self {
        let mut plan = Plan { is_by_gateways: true, volumes_go_back: false, ..Plan::long(random) };
        let layouts =
            ["1/3,t=1,async", "1/3,t=1,async", "1/4,t=1,async", "2/4,t=1,async", "1/5,t=2,async", "3/5,t=1,async"];
        plan.servers = plan.servers.max(4);
        let fit: Vec<Quorum> = layouts.iter().filter_map(|layout| layout.parse().ok()).collect();
        let fit: Vec<Quorum> = fit.into_iter().filter(|of| usize::from(of.count()) <= plan.servers).collect();
        let protection = Protection::Quorum(*random.pick(&fit));
        plan.spec = VolumeSpec { size: plan.spec.size, ..spec(random, plan.servers, protection) };
        (plan.mix.unaligned_per_million, plan.mix.sector) = (0, BLOCK);
        plan
    }

    /// As [`Plan::long`], with copies or codes, of a volume whose ranges get layouts of their own, and come together again.
    pub fn ranges(random: &mut Stream) -> Self {
        let mut plan = if random.one_in(3) { Plan::long_stripes(random) } else { Plan::long(random) };
        plan.has_ranges = true;
        plan.clones_leave = false;
        plan.spec.size = random.between(8..28) << 20;
        plan.mix = Mix { hot: plan.spec.size, ..plan.mix };
        plan.mix.status = random.below(6) as u32;
        plan
    }

    /// As [`Plan::leaving`] or [`Plan::long_stripes`], of a volume that is encrypted: so are its clones.
    pub fn encrypted(random: &mut Stream) -> Self {
        let mut plan = if random.one_in(2) { Plan::leaving(random) } else { Plan::long_stripes(random) };
        plan.spec.is_encrypted = true;
        plan.mix.sector = SECTOR as u64;
        plan
    }

    /// What a drive holds at most of the volume.
    pub fn mebibytes_each(&self) -> u64 {
        if self.is_by_gateways {
            const LOGS: u64 = 24;
            return (self.spec.size * 2).div_ceil(1 << 20) + LOGS;
        }
        if self.has_faults {
            let in_place = if self.spec.layout.fragments().are_copies() { 1 } else { 2 };
            return (self.spec.size * in_place).div_ceil(1 << 20); // a copy of each column may come to be on one
        }
        let fragments = self.spec.layout.fragments();
        // The log has whole copies, on one member more than may be lost.
        let copies = u64::from(if fragments.are_copies() { fragments.count() } else { fragments.code + 3 });
        (self.spec.size * copies).div_ceil(self.servers as u64).div_ceil(1 << 20)
    }
}

/// How the data of volumes may lie, and where: with how many copies at least, and perhaps with an erasure code.
pub fn another(random: &mut Stream, servers: usize, copies: u8, (or_coded, or_named): (bool, bool)) -> (Laid, Places) {
    let mut protections = vec![Protection::Mirror { copies: 2 }, Protection::Chained];
    protections.extend((copies < 2).then_some(Protection::Stripe));
    protections.extend((servers > 2).then_some(Protection::Mirror { copies: 3 }));
    let protection = match or_coded && random.one_in(2) {
        true => erasure(random, servers),
        false if or_named && random.one_in(2) => plexes(random, servers, copies),
        false => random.pick(&protections).clone(),
    };
    let spec = spec(random, servers, protection);
    (Laid { layout: spec.layout, geometry: spec.geometry }, (*spec.places).clone())
}

/// An erasure code for which there are enough servers.
fn erasure(random: &mut Stream, servers: usize) -> Protection {
    let codes = [(2, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 2)];
    let fit: Vec<(u8, u8)> = codes.into_iter().filter(|(data, code)| usize::from(data + code) <= servers).collect();
    let (data, code) = *random.pick(&fit);
    Protection::Erasure(Fragments { data, code })
}

/// Longer than any volume, in bytes.
const PLEX: u64 = 64 << 20;
/// A run has little time for each.
const MOST_COLUMNS: usize = 40;

/// Plexes of any organization, of which at least so many have each byte. Each has drives of its own.
fn plexes(random: &mut Stream, servers: usize, copies: u8) -> Protection {
    loop {
        let plexes = any_plexes(random, servers, copies);
        if explicit(&plexes).is_ok_and(|(geometry, _)| geometry.columns() <= MOST_COLUMNS) {
            return Protection::Plexes(plexes.into());
        }
    }
}

fn any_plexes(random: &mut Stream, servers: usize, copies: u8) -> Plexes {
    let count = random.between(u64::from(copies)..(servers as u64 + 1).min(4).max(u64::from(copies) + 1)) as usize;
    let mut taken = vec![0; servers + 1];
    let plexes = (0..count).map(|number| {
        let drives: Vec<usize> = (1..=servers).filter(|drive| drive % count == number).collect();
        // What plexes lack at their ends, others have.
        let length = if number < usize::from(copies) { PLEX } else { random.between(1..4_000) * BLOCK };
        let width = drives.len() as u64 * random.between(1..3);
        let (organization, lengths) = match random.one_in(2) {
            true => {
                let stripe = *random.pick(&[1, 3, 16, 256]) * BLOCK;
                let rows = length.div_ceil(stripe * width);
                (Organization::Striped { stripe }, vec![rows * stripe; width as usize])
            }
            false => {
                let mut lengths: Vec<u64> = (1..width).map(|_| random.between(1..700) * BLOCK).collect();
                lengths.push(length);
                (Organization::Concat, lengths)
            }
        };
        let is_concat = organization == Organization::Concat;
        let mut end = 0;
        let subdisk = |(at, length): (usize, u64)| {
            let drive = drives[at % drives.len()];
            let (drive_offset, plex_offset) = (taken[drive], if is_concat { end } else { 0 });
            (taken[drive], end) = (drive_offset + length, end + length);
            Subdisk { name: None, drive: DriveId(drive as u64), drive_offset, length, plex_offset }
        };
        Plex { name: None, organization, subdisks: lengths.into_iter().enumerate().map(subdisk).collect() }
    });
    Plexes::new(plexes.collect()).expect("no rule is broken")
}

fn spec(random: &mut Stream, servers: usize, protection: Protection) -> VolumeSpec {
    let mut layout = Layout::new(protection);
    layout.extent = match layout.fragments().are_copies() {
        _ if layout.plexes().is_some() => layout.extent,
        _ if layout.quorum().is_some() => *random.pick(&[4 << 10, 64 << 10, 1 << 20]),
        true => *random.pick(&[4 << 10, 64 << 10, 1 << 20, MAX_EXTENT]),
        false => layout.fragments().stripe() * *random.pick(&[1, 1, 2, 5]),
    };
    let (geometry, places) = match layout.plexes() {
        Some(plexes) => named(plexes),
        None => round(random, servers, &layout),
    };
    VolumeSpec {
        id: VolumeId(1),
        name: "v0".to_owned(),
        size: random.between(1..4) << 20,
        layout,
        map: MapId(9),
        geometry,
        places: places.into(),
        revision: 1,
        is_replica: false,
        is_encrypted: false,
        live: None,
        epochs: std::sync::Arc::default(),
    }
}

/// As the plexes say it.
fn named(plexes: &Plexes) -> (Geometry, Places) {
    let (geometry, columns) = explicit(plexes).expect("there are few combinations");
    let placed = |drives: &ColumnHolders| Placed {
        holders: drives.iter().map(|&drive| Placing { drive, since: 1 }).collect(),
        ..Placed::default()
    };
    (geometry, Places::complete(columns.iter().map(placed).collect()))
}

/// Round the drives of all servers.
fn round(random: &mut Stream, servers: usize, layout: &Layout) -> (Geometry, Places) {
    let drives: Vec<DriveId> = (1..=servers as u64).map(DriveId).collect();
    let once = Places::rotated(&drives, layout.fragments().count(), 1).expect("there is a drive for each copy");
    // Of more columns than drives, a drive has several.
    let sets = if layout.protection == Protection::Chained { 1 } else { random.between(1..4) as usize };
    let places = Places::complete(once.columns.iter().cycle().take(servers * sets).cloned().collect());
    let (columns, width, chunk) = ((servers * sets) as u32, servers as u32, *random.pick(&[1, 3, 16]));
    (Geometry::new(columns, width, chunk).expect("all sets are as wide"), places)
}
