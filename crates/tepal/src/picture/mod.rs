//! A picture of the configuration, as the figures of Vinum's paper are (Lehey, FREENIX 1999): volumes with their plexes and subdisks, and
//! drives with what lies on them. What is drawn is put together here; `svg.rs` and `terminal.rs` draw it.

mod svg;
mod terminal;

pub use svg::svg;
pub use terminal::terminal;

use tepal_server::api::types::{DriveInfo, DriveUse, PartState, PlexInfo, PlexesInfo, SubdiskInfo, VolumeInfo};

/// All that is drawn.
pub struct Scene {
    volumes: Vec<VolumePart>,
    drives: Vec<DrivePart>,
}

struct VolumePart {
    name: String,
    state: PartState,
    size: u64,
    layout: String,
    /// Empty if its layout names no drives: then it lies on `drives`.
    plexes: Vec<PlexInfo>,
    drives: Vec<String>,
}

struct DrivePart {
    name: String,
    place: String,
    state: PartState,
    purpose: DriveUse,
    capacity: u64,
    used: u64,
    /// Subdisks, where they are on the drive.
    pieces: Vec<Piece>,
    /// Other volumes that have something there.
    others: Vec<String>,
}

/// A subdisk on its drive.
struct Piece {
    name: String,
    state: PartState,
    offset: u64,
    length: u64,
}

impl DrivePart {
    /// Bytes of it from its beginning that are drawn: subdisks reserve nothing, and may say places past its end.
    fn length(&self) -> u64 {
        let end = self.pieces.iter().map(|piece| piece.offset + piece.length).max().unwrap_or(0);
        self.capacity.max(end).max(1)
    }

    /// Bytes that no subdisk is on.
    fn unnamed(&self) -> u64 {
        self.capacity.saturating_sub(self.pieces.iter().map(|piece| piece.length).sum())
    }

    fn remark(&self) -> String {
        let purpose = match self.purpose {
            DriveUse::Active => String::new(),
            purpose => format!(", {purpose}"),
        };
        let others = match &self.others[..] {
            [] => String::new(),
            others => format!("; also {}", others.join(", ")),
        };
        format!("{}{purpose}{others}", self.state)
    }
}

/// Between which bytes of its volume a subdisk has some; with stripes, in its turn.
fn place(plex: &PlexInfo, disk: &SubdiskInfo) -> (u64, u64) {
    match plex.stripe {
        None => (disk.plex_offset, disk.plex_offset + disk.length),
        Some(_) => (0, plex.size),
    }
}

impl Scene {
    pub fn new(drives: &[DriveInfo], volumes: &[VolumeInfo], plexes: Vec<PlexesInfo>) -> Self {
        let name_of =
            |id| drives.iter().find(|drive| drive.id == id).map_or_else(|| format!("{id}"), DriveInfo::called);
        let volume = |info: PlexesInfo| {
            let own = volumes.iter().find(|volume| volume.id == info.volume_id);
            let drives = own.map(|volume| volume.drives.iter().copied().map(name_of).collect()).unwrap_or_default();
            VolumePart {
                name: info.volume,
                state: info.state,
                size: info.size,
                layout: info.layout,
                plexes: info.plexes,
                drives,
            }
        };
        let volumes: Vec<VolumePart> = plexes.into_iter().map(volume).collect();
        let drive = |drive: &DriveInfo| {
            let name = drive.called();
            let here = volumes.iter().flat_map(|volume| &volume.plexes).flat_map(|plex| &plex.subdisks);
            let piece = |disk: &SubdiskInfo| Piece {
                name: disk.name.clone(),
                state: disk.state,
                offset: disk.drive_offset,
                length: disk.length,
            };
            let is_other = |volume: &&VolumePart| volume.plexes.is_empty() && volume.drives.contains(&name);
            DrivePart {
                place: format!("{}:{}", drive.server, drive.path),
                state: drive.state.into(),
                purpose: drive.purpose,
                capacity: drive.capacity,
                used: drive.used,
                pieces: here.filter(|disk| disk.drive == drive.id).map(piece).collect(),
                others: volumes.iter().filter(is_other).map(|volume| volume.name.clone()).collect(),
                name,
            }
        };
        let mut drives: Vec<DrivePart> = drives.iter().map(drive).collect();
        drives.sort_by(|one, other| one.name.cmp(&other.name));
        Scene { volumes, drives }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::DriveId;

    const MIB: u64 = 1 << 20;

    fn drive(at: u64, state: PartState) -> DrivePart {
        DrivePart {
            name: char::from(b'a' + at as u8).to_string(),
            place: format!("s1:/dev/sd{}", char::from(b'b' + at as u8)),
            state,
            purpose: DriveUse::Active,
            capacity: 32 * MIB,
            used: 4 * MIB,
            pieces: Vec::new(),
            others: vec!["<other>".to_owned()],
        }
    }

    /// A volume of a striped and a concatenated plex, and one of which only drives are known.
    pub fn scene() -> Scene {
        let disk = |name: &str, drive: u64, (offset, length, plex_offset), state| SubdiskInfo {
            name: name.to_owned(),
            drive: DriveId(drive),
            drive_name: Some(char::from(b'a' + drive as u8).to_string()),
            drive_offset: offset,
            length,
            plex_offset,
            state,
            stale: 0,
            filled: None,
        };
        let striped = PlexInfo {
            name: "v.p0".to_owned(),
            organization: "striped".to_owned(),
            stripe: Some(MIB),
            size: 16 * MIB,
            state: PartState::Up,
            comparing: 0,
            subdisks: vec![
                disk("v.p0.s0", 0, (0, 8 * MIB, 0), PartState::Up),
                disk("v.p0.s1", 1, (0, 8 * MIB, MIB), PartState::Up),
            ],
        };
        let concat = PlexInfo {
            name: "v.p1".to_owned(),
            organization: "concat".to_owned(),
            stripe: None,
            size: 16 * MIB,
            state: PartState::Degraded,
            comparing: 0,
            subdisks: vec![
                disk("v.p1.s0", 2, (4 * MIB, 4 * MIB, 0), PartState::Up),
                disk("v.p1.s1", 3, (0, 12 * MIB, 4 * MIB), PartState::Down),
            ],
        };
        let mut drives: Vec<DrivePart> = (0..4).map(|at| drive(at, PartState::Up)).collect();
        drives[3].state = PartState::Down;
        for disk in striped.subdisks.iter().chain(&concat.subdisks) {
            let SubdiskInfo { ref name, state, drive_offset: offset, length, .. } = *disk;
            drives[disk.drive.0 as usize].pieces.push(Piece { name: name.clone(), state, offset, length });
        }
        let volumes = vec![
            VolumePart {
                name: "v".to_owned(),
                state: PartState::Degraded,
                size: 16 * MIB,
                layout: "plexes:".to_owned(),
                plexes: vec![striped, concat],
                drives: ["a", "b", "c", "d"].map(ToOwned::to_owned).to_vec(),
            },
            VolumePart {
                name: "<other>".to_owned(),
                state: PartState::Up,
                size: 64 * MIB,
                layout: "mirror:2".to_owned(),
                plexes: Vec::new(),
                drives: ["a", "b"].map(ToOwned::to_owned).to_vec(),
            },
        ];
        Scene { volumes, drives }
    }

    #[test]
    fn a_drive_is_drawn_to_the_end_of_its_last_subdisk() {
        let mut scene = scene();
        assert_eq!((scene.drives[0].length(), scene.drives[0].unnamed()), (32 << 20, 24 << 20));
        scene.drives[0].pieces[0].offset = 30 << 20;
        assert_eq!(scene.drives[0].length(), 38 << 20);
    }
}
