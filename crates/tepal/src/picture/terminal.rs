//! The picture in a terminal: bars of characters, in colour where the terminal has some.

use super::{DrivePart, Scene, VolumePart, place};
use crate::output;
use std::fmt::Write;
use tepal_server::api::types::{PartState, PlexInfo, SubdiskInfo};

/// Characters of a bar.
const BAR: u64 = 40;

/// `colours`: whether states have colours besides their words.
pub fn terminal(scene: &Scene, colours: bool) -> String {
    let mut text = String::new();
    let pen = Pen { colours };
    let names = scene.volumes.iter().flat_map(names).map(|name| name.chars().count());
    let names = names.chain(scene.drives.iter().map(|drive| drive.name.chars().count() + 2)).max().unwrap_or(0);
    text += "volumes\n";
    for volume in &scene.volumes {
        pen.volume(&mut text, volume, names);
    }
    text += "drives\n";
    for drive in &scene.drives {
        pen.drive(&mut text, drive, names);
    }
    text += "bars: █ has it, ░ not usable now, ▒ taken turn by turn, · nothing\n";
    text
}

/// As they are drawn, with what they are moved in by.
fn names(volume: &VolumePart) -> Vec<String> {
    let plex = |plex: &PlexInfo| {
        let disks = plex.subdisks.iter().map(|disk| format!("      {}", disk.name));
        std::iter::once(format!("    {}", plex.name)).chain(disks).collect::<Vec<_>>()
    };
    std::iter::once(format!("  {}", volume.name)).chain(volume.plexes.iter().flat_map(plex)).collect()
}

struct Pen {
    colours: bool,
}

impl Pen {
    /// A text in the colour of a state.
    fn coloured(&self, state: PartState, text: &str) -> String {
        let colour = match state {
            PartState::Up => 32,
            PartState::Initializing => 34,
            PartState::Reviving => 36,
            PartState::Stale | PartState::Degraded => 33,
            PartState::Empty => 90,
            PartState::Down | PartState::Faulty => 31,
        };
        if self.colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn volume(&self, text: &mut String, volume: &VolumePart, names: usize) {
        let state = self.coloured(volume.state, &volume.state.to_string());
        let layout = match volume.plexes.is_empty() {
            true => format!(", {} on {}", volume.layout, volume.drives.join(" ")),
            false => String::new(),
        };
        let name = format!("  {}", volume.name);
        let _ = writeln!(text, "{name:names$}  {}, {state}{layout}", output::size(volume.size));
        for plex in &volume.plexes {
            let state = self.coloured(plex.state, &plex.state.to_string());
            let name = format!("    {}", plex.name);
            let _ = writeln!(text, "{name:names$}  {}, {}, {state}", plex.organized(), output::size(plex.size));
            for disk in &plex.subdisks {
                self.subdisk(text, (volume.size.max(plex.size), plex, disk), names);
            }
        }
    }

    fn subdisk(&self, text: &mut String, (size, plex, disk): (u64, &PlexInfo, &SubdiskInfo), names: usize) {
        let (from, to) = place(plex, disk);
        let drive = disk.drive_called();
        let has = match (disk.state < PartState::Empty, plex.stripe) {
            (false, _) => '░',
            (true, Some(_)) => '▒',
            (true, None) => '█',
        };
        let bar: String = (0..BAR).map(|at| if touches(at, size, (from, to)) { has } else { '·' }).collect();
        let name = format!("      {}", disk.name);
        let (bar, state) = (self.coloured(disk.state, &bar), self.coloured(disk.state, &disk.state.to_string()));
        let _ = writeln!(text, "{name:names$}  {bar}  on {drive}, {}, {state}", output::size(disk.length));
    }

    fn drive(&self, text: &mut String, drive: &DrivePart, names: usize) {
        let length = drive.length();
        let cell = |at: u64| {
            let is_there = |piece: &&super::Piece| touches(at, length, (piece.offset, piece.offset + piece.length));
            match drive.pieces.iter().find(is_there) {
                Some(piece) if piece.state < PartState::Empty => self.coloured(piece.state, "█"),
                Some(piece) => self.coloured(piece.state, "░"),
                None => "·".to_owned(),
            }
        };
        let bar: String = (0..BAR).map(cell).collect();
        let name = format!("  {}", drive.name);
        let state = self.coloured(drive.state, &drive.remark());
        let (used, capacity) = (output::size(drive.used), output::size(drive.capacity));
        let unnamed = match drive.pieces.is_empty() {
            true => String::new(),
            false => format!(", {} without subdisks", output::size(drive.unnamed())),
        };
        let _ = writeln!(text, "{name:names$}  {bar}  {}, {used} of {capacity} used{unnamed}, {state}", drive.place);
    }
}

/// Whether a character of a bar for so many bytes stands for any of a range.
fn touches(at: u64, size: u64, (from, to): (u64, u64)) -> bool {
    let edge = |at: u64| (u128::from(at) * u128::from(size.max(1)) / u128::from(BAR)) as u64;
    let (first, past) = (edge(at), edge(at + 1).max(edge(at) + 1));
    from < past && to > first
}

#[cfg(test)]
mod tests {
    use super::super::tests::scene;
    use super::*;

    #[test]
    fn bars_show_which_part_of_a_volume_a_subdisk_has() {
        let text = terminal(&scene(), false);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(line("v.p0.s1").contains(&"▒".repeat(40)), "{text}");
        assert!(line("v.p1.s0").contains(&format!("{}{}", "█".repeat(10), "·".repeat(30))), "{text}");
        assert!(line("v.p1.s1").contains(&format!("{}{}  on d, 12M, down", "·".repeat(10), "░".repeat(30))), "{text}");
        assert!(line("<other>").ends_with("64M, up, mirror:2 on a b"), "{text}");
        assert!(line("c ").contains(&format!("{}{}{}", "·".repeat(5), "█".repeat(5), "·".repeat(30))), "{text}");
        assert!(line("d ").ends_with("20M without subdisks, down; also <other>"), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(terminal(&scene(), true).contains("\u{1b}[31mdown\u{1b}[0m"));
    }
}
