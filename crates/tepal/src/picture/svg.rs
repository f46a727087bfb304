//! The picture as SVG, which any browser shows: nothing in it is loaded from elsewhere.

use super::{DrivePart, Scene, VolumePart};
use crate::output;
use std::fmt::Write;
use tepal_server::api::types::{PartState, PlexInfo, SubdiskInfo};

/// Of the whole picture, in pixels, as all that follows.
const WIDTH: u64 = 1000;
const EDGE: u64 = 20;
/// Height of a line of text.
const LINE: u64 = 18;
/// Of a plex in the figure of a volume: as high as a volume is long.
const PLEX_HEIGHT: u64 = 160;
/// No subdisk of a plex is lower than that: its name wouldn't fit.
const LOWEST: u64 = 20;
const PLEX_WIDTH: u64 = 220;
const GAP: u64 = 20;
const BAR_HEIGHT: u64 = 26;
/// So many letters fit into one hundred pixels.
const LETTERS: u64 = 14;

const HEAD: &str = "text { font: 12px sans-serif; fill: #1a1a1a } .head { font-weight: bold; font-size: 14px } \
                    rect { stroke: #333; stroke-width: 1 } .frame { fill: #f4f4f4 } .free { fill: #fff }";

pub fn svg(scene: &Scene) -> String {
    let mut drawing = Drawing { body: String::new(), at: EDGE };
    drawing.head("Volumes");
    scene.volumes.iter().for_each(|volume| drawing.volume(volume));
    drawing.head("Drives");
    scene.drives.iter().for_each(|drive| drawing.drive(drive));
    drawing.legend();
    let height = drawing.at + EDGE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\">\n<title>Volumes and drives of the cluster</title>\n<style>{HEAD}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\" stroke=\"none\" style=\"stroke:none\"/>\n{}</svg>\n",
        drawing.body
    )
}

/// The words of a state stand beside its colour: not everybody sees colours.
fn colour(state: PartState) -> &'static str {
    match state {
        PartState::Up => "#b7e1b5",
        PartState::Initializing => "#bcd4f2",
        PartState::Reviving => "#b8e6ea",
        PartState::Stale => "#f3dfa2",
        PartState::Degraded => "#f6cf9c",
        PartState::Empty => "#dddddd",
        PartState::Down => "#f2b5b0",
        PartState::Faulty => "#d98880",
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A text that fits into so many pixels.
fn fitting(text: &str, width: u64) -> String {
    let most = (width * LETTERS / 100) as usize;
    match text.chars().count() <= most {
        true => text.to_owned(),
        false if most < 2 => String::new(),
        false => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// Where something is drawn: left, top, width and height.
type Place = (u64, u64, u64, u64);

struct Drawing {
    body: String,
    /// The first row that is free.
    at: u64,
}

impl Drawing {
    fn head(&mut self, text: &str) {
        self.at += LINE;
        let _ = writeln!(self.body, "<text class=\"head\" x=\"{EDGE}\" y=\"{}\">{}</text>", self.at, escaped(text));
        self.at += LINE / 2;
    }

    fn line(&mut self, left: u64, text: &str) {
        self.at += LINE;
        let text = escaped(&fitting(text, WIDTH - EDGE - left));
        let _ = writeln!(self.body, "<text x=\"{left}\" y=\"{}\">{text}</text>", self.at - 4);
    }

    /// A box with a text in it, and a longer one for who points at it.
    fn tile(&mut self, (x, y, width, height): Place, fill: &str, (text, title): (&str, &str)) {
        let _ = writeln!(
            self.body,
            "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>",
            escaped(title)
        );
        let text = fitting(text, width.saturating_sub(8));
        if !text.is_empty() && height >= LINE - 4 {
            let (x, y) = (x + 4, y + height / 2 + 4);
            let _ = writeln!(self.body, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(&text));
        }
        self.body += "</g>\n";
    }

    fn volume(&mut self, volume: &VolumePart) {
        let size = output::size(volume.size);
        if volume.plexes.is_empty() {
            let drives = volume.drives.join(" ");
            let text = format!("{}: {size}, {}, {} on {drives}", volume.name, volume.state, volume.layout);
            let place = (EDGE, self.at + 4, WIDTH - 2 * EDGE, BAR_HEIGHT);
            self.tile(place, colour(volume.state), (&text, &text));
            self.at += BAR_HEIGHT + GAP / 2;
            return;
        }
        self.line(EDGE, &format!("{}: {size}, {}", volume.name, volume.state));
        let longest = volume.plexes.iter().map(|plex| plex.size).max().unwrap_or(1).max(volume.size).max(1);
        let in_row = ((WIDTH - 2 * EDGE) / (PLEX_WIDTH + GAP)).max(1);
        for row in volume.plexes.chunks(in_row as usize) {
            let top = self.at + 2 * LINE;
            let mut bottom = top;
            for (plex, column) in row.iter().zip(0..) {
                let left = EDGE + column * (PLEX_WIDTH + GAP);
                self.at = top - 2 * LINE;
                self.line(left, &fitting(&plex.name, PLEX_WIDTH));
                self.line(left, &format!("{}, {}", plex.organized(), plex.state));
                bottom = bottom.max(self.plex((left, top), plex, longest));
            }
            self.at = bottom + GAP / 2;
        }
    }

    /// The subdisks of a plex: one below the other where they follow each other, side by side where stripes go round. Returns where it
    /// ends.
    fn plex(&mut self, (left, top): (u64, u64), plex: &PlexInfo, longest: u64) -> u64 {
        let scaled = |bytes: u64| (u128::from(bytes) * u128::from(PLEX_HEIGHT) / u128::from(longest)) as u64;
        let count = plex.subdisks.len() as u64;
        let mut at = top;
        for (disk, number) in plex.subdisks.iter().zip(0..) {
            let place = match plex.stripe {
                Some(_) => {
                    let (from, to) = (PLEX_WIDTH * number / count, PLEX_WIDTH * (number + 1) / count);
                    (left + from, top, (to - from).max(1), scaled(plex.size).max(LOWEST))
                }
                None => {
                    // What lies lower is pushed down by what needs room for its name.
                    let y = at.max(top + scaled(disk.plex_offset));
                    (left, y, PLEX_WIDTH, scaled(disk.length).max(LOWEST))
                }
            };
            at = place.1 + place.3;
            let drive = disk.drive_called();
            let state = if disk.state == PartState::Up { String::new() } else { format!(", {}", disk.state) };
            let text = match plex.stripe {
                Some(_) => format!("{drive}{state}"),
                None => format!("{} on {drive}: {}{state}", short(plex, disk), output::size(disk.length)),
            };
            let title = format!("{}: {} on {drive}, {}", disk.name, output::size(disk.length), disk.state);
            self.tile(place, colour(disk.state), (&text, &title));
        }
        at
    }

    fn drive(&mut self, drive: &DrivePart) {
        let used = format!("{} of {} used", output::size(drive.used), output::size(drive.capacity));
        self.line(EDGE, &format!("{}: {}, {used}, {}", drive.name, drive.place, drive.remark()));
        let (width, length, top) = (WIDTH - 2 * EDGE, drive.length(), self.at + 2);
        let x = |byte: u64| EDGE + (u128::from(byte) * u128::from(width) / u128::from(length)) as u64;
        let title = format!("{}: {} without subdisks", drive.name, output::size(drive.unnamed()));
        self.tile((EDGE, top, width, BAR_HEIGHT), "#fff", ("", &title));
        for piece in &drive.pieces {
            let (from, to) = (x(piece.offset), x(piece.offset + piece.length));
            let title = format!("{}: {}, {}", piece.name, output::size(piece.length), piece.state);
            self.tile((from, top, (to - from).max(2), BAR_HEIGHT), colour(piece.state), (&piece.name, &title));
        }
        // What is really taken, wherever it is: subdisks are filled as they are written to.
        let taken = x(drive.used.min(length)) - EDGE;
        let _ = writeln!(
            self.body,
            "<rect x=\"{EDGE}\" y=\"{}\" width=\"{taken}\" height=\"4\" fill=\"#555\"/>",
            top + BAR_HEIGHT
        );
        self.at = top + BAR_HEIGHT + 8;
    }

    fn legend(&mut self) {
        self.head("States");
        let all = [
            PartState::Up,
            PartState::Initializing,
            PartState::Reviving,
            PartState::Stale,
            PartState::Empty,
            PartState::Degraded,
            PartState::Down,
            PartState::Faulty,
        ];
        for (state, number) in all.into_iter().zip(0..) {
            let text = state.to_string();
            self.tile((EDGE + number * 116, self.at, 108, BAR_HEIGHT), colour(state), (&text, &text));
        }
        self.at += BAR_HEIGHT + 4;
        self.line(EDGE, "The dark line below a drive is what is taken of it, wherever that lies.");
    }
}

/// A subdisk's name without that of its plex.
fn short<'a>(plex: &PlexInfo, disk: &'a SubdiskInfo) -> &'a str {
    disk.name.strip_prefix(&plex.name).and_then(|rest| rest.strip_prefix('.')).unwrap_or(&disk.name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::scene;
    use super::*;

    #[test]
    fn names_are_texts_whatever_is_in_them() {
        let drawn = svg(&scene());
        assert!(drawn.contains("&lt;other&gt;") && !drawn.contains("<other>"), "{drawn}");
    }

    #[test]
    fn each_subdisk_has_a_box_in_its_plex_and_one_on_its_drive() {
        let drawn = svg(&scene());
        for name in ["v.p0.s0", "v.p0.s1", "v.p1.s0", "v.p1.s1"] {
            assert_eq!(drawn.matches(&format!("<title>{name}: ")).count(), 2, "{name}");
        }
        let boxes = drawn.matches("<g>").count();
        assert_eq!((boxes, drawn.matches("</g>").count()), (4 + 4 + 1 + 4 + 8, boxes));
    }

    #[test]
    fn texts_are_cut_to_the_width_they_have() {
        assert_eq!(fitting("abcdef", 100), "abcdef");
        assert_eq!(fitting(&"a".repeat(20), 100).chars().count(), 14);
        assert_eq!(fitting("abcdef", 10), "");
    }
}
