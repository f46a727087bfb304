//! What a run is about, drawn from its seed.

use super::snapshots::MOST;
use crate::device::{Faults, Rate, SimDisk};
use crate::random::Stream;
use crate::scenario::bay::Bay;
use crate::workload::Mix;
use std::ops::Range;
use tepal_drive::Options;
use tepal_drive::geometry::{Geometry, HEADERS};
use tepal_model::layout::{Durability, Protection};
use tepal_model::{BLOCK, EXTENT, Layout};

/// What goes wrong besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    None,
    /// The volume is larger than the drives.
    Full,
    /// Any drives are pulled at any time, and put back.
    Pulled,
    /// One drive's blocks rot, its writes are lost or go astray, its reads fail.
    Corruption,
    /// One drive's write or flush fails.
    Broken,
}

/// Which part of the victim corruption strikes. Only one in a run: of two places that vouch for each other, such as data and
/// its checksum, one must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Struck {
    /// Data.
    Slots,
    /// Data; but what goes astray lands anywhere on the drive.
    SlotsAstray,
    /// Map and checksums.
    Tables,
    Log,
    /// Labels and headers.
    Labels,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub hazard: Hazard,
    pub layout: Layout,
    pub drives: usize,
    pub drive_size: u64,
    /// The volume's size at first, and at most.
    pub size: u64,
    pub options: Options,
    pub lives: u64,
    /// The drive that goes wrong.
    pub victim: usize,
    pub mix: Mix,
    pub struck: Struck,
    /// Bytes of the device that has a drive's log, if the drive hasn't.
    pub logs: Vec<Option<u64>>,
    /// The volume shrinks and grows.
    pub resized: bool,
    /// In the end the volume is removed.
    pub removed: bool,
    /// Snapshots come and go.
    pub snapshots: bool,
}

impl Plan {
    pub fn draw(random: &mut Stream) -> Self {
        use Hazard::{Broken, Corruption, Full, Pulled};
        let hazard = *random.pick(&[Hazard::None, Hazard::None, Full, Pulled, Pulled, Corruption, Broken]);
        let copies = *random.pick(&[1, 2, 2, 2, 3]);
        let protection = if copies == 1 { Protection::Stripe } else { Protection::Mirror { copies } };
        let mut layout = Layout::new(protection);
        layout.extent = *random.pick(&[4 << 10, 64 << 10, 64 << 10, 1 << 20]);
        if random.one_in(2) {
            layout.durability = Durability::Flush;
        }
        if matches!(hazard, Hazard::None | Pulled) && random.one_in(4) {
            layout.min_copies = copies;
        }
        let drives = usize::from(copies) + random.index(3);
        let mut drive_size = random.between(8..13) << 20;
        let room = (drive_size - (3 << 20)) * drives as u64 / u64::from(copies);
        let size = if hazard == Full { room + room / 2 } else { room.min(16 << 20) / 2 } / BLOCK * BLOCK;
        let snapshots = random.below(3) > 0;
        if snapshots && hazard != Full {
            // What was removed is given back in a while, or not before it's repaired.
            drive_size *= 2 * (1 + MOST as u64);
        }
        let mut mix = Mix::draw(random, size);
        if hazard == Full {
            mix.hot = size;
            mix.trim += 1;
        }
        let options = Options {
            sum_cache: *random.pick(&[16 << 10, 64 << 20]),
            pending: *random.pick(&[64 << 10, 1 << 20, 16 << 20]),
            discard: random.one_in(2),
            ..Options::default()
        };
        let (lives, victim) = (random.between(1..5), random.index(drives));
        let (struck, logs) = (Struck::Slots, vec![None; drives]);
        let (resized, removed) = (false, false);
        Plan {
            hazard,
            layout,
            drives,
            drive_size,
            size,
            options,
            lives,
            victim,
            mix,
            struck,
            logs,
            resized,
            removed,
            snapshots,
        }
    }

    /// With an operator, logs on devices of their own, and corruption anywhere on a drive.
    pub fn draw_operated(random: &mut Stream) -> Self {
        let mut plan = Plan::draw(random);
        use Struck::{Labels, Log, Slots, SlotsAstray, Tables};
        plan.struck = *random.pick(&[Slots, SlotsAstray, Tables, Tables, Log, Log, Labels]);
        if random.one_in(2) {
            let length = |_| if random.one_in(2) { Some(random.between(2..4) << 20) } else { None };
            plan.logs = (0..plan.drives).map(length).collect();
        }
        plan.mix.status = random.below(4) as u32;
        plan.resized = random.one_in(2);
        plan.removed = random.one_in(3);
        plan.snapshots &= !plan.resized; // what was cut off stays in them
        if plan.hazard == Hazard::None && random.one_in(2) {
            plan.hazard = Hazard::Corruption; // it has many places to strike
            plan.layout.min_copies = 1; // without the victim, writes would wait for ever
        }
        plan
    }

    pub fn mirrored(&self) -> bool {
        self.layout.fragments().count() > 1
    }

    /// Whether the victim may lose writes that it said were done. One copy can't tell those from what a power cut prevented;
    /// two can. Tables and headers are on a drive twice.
    pub fn needs_close(&self, lies: bool) -> bool {
        lies && !self.mirrored() && matches!(self.struck, Struck::Slots | Struck::SlotsAstray)
    }

    /// Has the victim corrupted from now on; with `lies` it also loses writes.
    pub fn corrupt(&self, bay: &Bay, geometry: &Geometry, lies: bool, random: &mut Stream) {
        let slots = slots_of(geometry);
        let (disk, within) = match self.struck {
            Struck::Slots | Struck::SlotsAstray => (&bay.disk, slots.clone()),
            Struck::Tables => (&bay.disk, geometry.map.offset(0, 0)..geometry.slots_start),
            Struck::Log => bay.log_place(geometry),
            Struck::Labels => (&bay.disk, HEADERS[0]..HEADERS[1] + BLOCK),
        };
        let lies = if lies { 3 } else { 0 };
        let faults = Faults {
            lost_write: rate(random, lies),
            misdirected_write: rate(random, lies),
            misdirected_read: rate(random, 3),
            read_error: rate(random, 3),
            within: within.clone(),
            astray: if self.struck == Struck::SlotsAstray { 0..disk.size() } else { 0..0 },
            ..Faults::default()
        };
        disk.set_faults(faults);
        for _ in 0..random.below(4) {
            match self.struck {
                Struck::Labels => self.rot_label(disk, random),
                _ => drop(disk.rot_somewhere(within.clone())),
            }
        }
    }

    fn rot_label(&self, disk: &SimDisk, random: &mut Stream) {
        let places = [0, HEADERS[0], HEADERS[1], Geometry::label_last(disk.size())];
        disk.rot(*random.pick(&places));
    }
}

pub fn rate(random: &mut Stream, most: u64) -> Rate {
    Rate::at_most(random.below(most + 1) as u32, *random.pick(&[2_000, 20_000, 200_000]))
}

fn slots_of(geometry: &Geometry) -> Range<u64> {
    geometry.slots_start..geometry.slots_start + u64::from(geometry.slots) * EXTENT
}
