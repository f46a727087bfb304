//! Vinum's configuration file: `drive`, `volume`, `plex` and `sd` lines, as its paper has them (Lehey, FREENIX 1999) and as `vinum(8)` and
//! gvinum took them; [the table](../../../../../docs/operating/vinum.md) says where they differ.

mod words;

use super::wanted::{At, Content, Wanted, WantedDrive, WantedPlex, WantedSubdisk, WantedVolume, Wrong};
use std::collections::BTreeMap;
use tepal_model::layout::plexes::Organization;
use tepal_model::size::{BLOCK, exact};
use tepal_model::text::{NAME_RULE, is_name, shown};
use tepal_server::api::types::Limits;
use words::{Word, size, words};

/// Reads all of a file.
pub fn parse(text: &str) -> Result<Wanted, Wrong> {
    let mut reader = Reader::default();
    for (line, number) in text.lines().zip(1..) {
        let words = words(line, number)?;
        let end = At { line: number, column: line.chars().count() + 1 };
        if let Some((first, rest)) = words.split_first() {
            reader.line(first, Line { words: rest, end })?;
        }
    }
    reader.finish()
}

/// What is left of a line.
struct Line<'a> {
    words: &'a [Word],
    /// Where a word that is missing would be.
    end: At,
}

impl<'a> Line<'a> {
    fn next(&mut self) -> Option<&'a Word> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn value(&mut self, of: &Word) -> Result<&'a Word, Wrong> {
        self.next().ok_or_else(|| Wrong::new(self.end, format!("'{}' wants something after it", of.text)))
    }

    fn size(&mut self, of: &Word) -> Result<u64, Wrong> {
        size(self.value(of)?)
    }

    fn name(&mut self, of: &Word) -> Result<String, Wrong> {
        name(self.value(of)?)
    }

    /// A value that says nothing here.
    fn skip(&mut self, of: &Word) -> Result<(), Wrong> {
        self.value(of).map(drop)
    }
}

fn name(word: &Word) -> Result<String, Wrong> {
    match is_name(&word.text) {
        true => Ok(word.text.clone()),
        false => Err(Wrong::new(word.at, format!("name '{}': {NAME_RULE}", shown(&word.text)))),
    }
}

fn unknown(word: &Word, of: &str, known: &str) -> Wrong {
    Wrong::new(word.at, format!("'{}' isn't known in a {of} line: known are {known}", shown(&word.text)))
}

/// A plex, and the volume that it's of.
struct OfVolume {
    volume: String,
    plex: WantedPlex,
}

#[derive(Default)]
struct Reader {
    wanted: Wanted,
    /// In the order of their lines.
    plexes: Vec<OfVolume>,
    /// The drive, volume and plex that a line without one goes on with.
    last_drive: Option<String>,
    last_volume: Option<String>,
    last_plex: Option<usize>,
}

impl Reader {
    fn line(&mut self, first: &Word, line: Line<'_>) -> Result<(), Wrong> {
        match &*first.text {
            "drive" => self.drive(first, line),
            "volume" | "vol" => self.volume(first, line),
            "plex" => self.plex(first, line),
            "sd" | "subdisk" => self.subdisk(first, line),
            _ => {
                let text = format!("'{}': a line begins with drive, volume, plex or sd", shown(&first.text));
                Err(Wrong::new(first.at, text))
            }
        }
    }

    fn note(&mut self, at: At, text: impl Into<String>) {
        self.wanted.notes.push(Wrong::new(at, text));
    }

    fn drive(&mut self, first: &Word, mut line: Line<'_>) -> Result<(), Wrong> {
        let own = line.name(first)?;
        let (mut device, mut is_spare) = (None, false);
        while let Some(word) = line.next() {
            match &*word.text {
                "device" => device = Some(line.value(word)?),
                "hotspare" => is_spare = true,
                "state" => line.skip(word)?,
                _ => return Err(unknown(word, "drive", "device, hotspare, state")),
            }
        }
        let device =
            device.ok_or_else(|| Wrong::new(line.end, format!("drive {own} wants a device: device /dev/...")))?;
        let (server, path) = match device.text.split_once(':') {
            Some((server, path)) => (server.parse().ok(), path),
            None => (None, &*device.text),
        };
        if !path.starts_with('/') || (server.is_none() && path.len() < device.text.len()) {
            let text = format!("device '{}': it's an absolute path, as in /dev/sdb", shown(&device.text));
            return Err(Wrong::new(device.at, text));
        }
        for other in &self.wanted.drives {
            if other.name == own {
                return Err(Wrong::new(first.at, format!("drive {own} is defined already, on {}", other.at)));
            }
            if other.device == path && other.server == server {
                let text = format!("device {} is drive {}'s already, on {}", device.text, other.name, other.at);
                return Err(Wrong::new(device.at, text));
            }
        }
        self.last_drive = Some(own.clone());
        let device = path.to_owned();
        self.wanted.drives.push(WantedDrive { at: first.at, name: own, device, server, pool: None, is_spare });
        Ok(())
    }

    fn volume(&mut self, first: &Word, mut line: Line<'_>) -> Result<(), Wrong> {
        let own = line.name(first)?;
        while let Some(word) = line.next() {
            match &*word.text {
                // A volume begins as zeros, on which all of its plexes agree.
                "setupstate" => {}
                "state" => line.skip(word)?,
                "readpol" => {
                    if &*line.value(word)?.text == "prefer" {
                        line.skip(word)?;
                        self.note(word.at, "readpol: each read goes to the plex whose drive has least to do");
                    }
                }
                "plex" => {
                    let text = "a plex is put on a line of its own, after its volume's";
                    return Err(Wrong::new(word.at, text));
                }
                _ => return Err(unknown(word, "volume", "setupstate, readpol, state")),
            }
        }
        if let Some(other) = self.wanted.volumes.iter().find(|other| other.name == own) {
            return Err(Wrong::new(first.at, format!("volume {own} is defined already, on {}", other.at)));
        }
        (self.last_volume, self.last_plex) = (Some(own.clone()), None);
        let content = Content::Plexes(Vec::new());
        self.wanted.volumes.push(WantedVolume {
            at: first.at,
            name: own,
            pool: None,
            key: None,
            limits: Limits::default(),
            content,
        });
        Ok(())
    }

    fn plex(&mut self, first: &Word, mut line: Line<'_>) -> Result<(), Wrong> {
        let (mut own, mut volume, mut organization) = (None, self.last_volume.clone(), None);
        while let Some(word) = line.next() {
            match &*word.text {
                "name" => own = Some(line.name(word)?),
                "org" => organization = Some(self.organization(word, &mut line)?),
                "volume" | "vol" => {
                    let of = line.value(word)?;
                    if !self.wanted.volumes.iter().any(|volume| volume.name == of.text) {
                        let text =
                            format!("volume {}: its line is to come before those of its plexes", shown(&of.text));
                        return Err(Wrong::new(of.at, text));
                    }
                    volume = Some(of.text.clone());
                }
                "state" => line.skip(word)?,
                _ => return Err(unknown(word, "plex", "name, org, volume, state")),
            }
        }
        let organization = organization
            .ok_or_else(|| Wrong::new(line.end, "a plex wants org concat, org striped SIZE or org raid5 SIZE"))?;
        let volume = volume.ok_or_else(|| Wrong::new(first.at, "no volume line comes before this plex"))?;
        let named = |name: &String| self.plexes.iter().any(|other| other.plex.name.as_ref() == Some(name));
        if let Some(own) = own.as_ref().filter(|own| named(own)) {
            return Err(Wrong::new(first.at, format!("plex {own} is defined already")));
        }
        self.last_plex = Some(self.plexes.len());
        let plex = WantedPlex { at: first.at, name: own, organization, subdisks: Vec::new() };
        self.plexes.push(OfVolume { volume, plex });
        Ok(())
    }

    fn organization(&mut self, of: &Word, line: &mut Line<'_>) -> Result<Organization, Wrong> {
        let word = line.value(of)?;
        let mut stripe = || {
            let at = line.words.first().map_or(line.end, |word| word.at);
            line.size(word).map(|stripe| (at, stripe))
        };
        let (at, stripe, is_raid5) = match &*word.text {
            "concat" => return Ok(Organization::Concat),
            "striped" => stripe().map(|(at, stripe)| (at, stripe, false))?,
            "raid5" => stripe().map(|(at, stripe)| (at, stripe, true))?,
            "raid4" => {
                return Err(Wrong::new(
                    word.at,
                    "raid4: use raid5, which has as much room and no drive that all writes meet",
                ));
            }
            _ => {
                return Err(Wrong::new(
                    word.at,
                    format!("'{}': a plex is concat, striped or raid5", shown(&word.text)),
                ));
            }
        };
        if stripe == 0 {
            return Err(Wrong::new(at, "a stripe has at least 4k"));
        }
        let whole = stripe.checked_next_multiple_of(BLOCK).ok_or_else(|| Wrong::new(at, "it's too large"))?;
        if whole != stripe {
            self.note(at, format!("stripes are whole blocks of 4K: {} is taken as {}", exact(stripe), exact(whole)));
        }
        Ok(match is_raid5 {
            true => Organization::Raid5 { stripe: whole },
            false => Organization::Striped { stripe: whole },
        })
    }

    fn subdisk(&mut self, first: &Word, mut line: Line<'_>) -> Result<(), Wrong> {
        let (mut own, mut length, mut drive, mut plex) = (None, None, self.last_drive.clone(), self.last_plex);
        let (mut drive_offset, mut plex_offset) = (None, None);
        while let Some(word) = line.next() {
            match &*word.text {
                "name" => own = Some(line.name(word)?),
                "length" | "len" | "size" => match line.words.first() {
                    Some(max) if max.text == "max" => drop(line.next()),
                    _ => length = Some(line.size(word)?).filter(|length| *length > 0),
                },
                "drive" => drive = Some(line.name(word)?),
                "plex" => {
                    let of = line.value(word)?;
                    let found = self.plex_called(&of.text);
                    plex = Some(found.ok_or_else(|| {
                        let text =
                            format!("plex {}: its line is to come before those of its subdisks", shown(&of.text));
                        Wrong::new(of.at, text)
                    })?);
                }
                "driveoffset" => drive_offset = Some(line.size(word)?),
                "plexoffset" => plex_offset = Some(line.size(word)?),
                "state" | "partition" => line.skip(word)?,
                "retryerrors" => {}
                _ => {
                    let known = "name, length, len, size, drive, plex, driveoffset, plexoffset, state, retryerrors";
                    return Err(unknown(word, "sd", known));
                }
            }
        }
        let plex = plex.ok_or_else(|| Wrong::new(first.at, "no plex line comes before this subdisk"))?;
        let drive = drive.ok_or_else(|| Wrong::new(line.end, "a subdisk wants a drive: drive NAME"))?;
        let subdisk = WantedSubdisk { at: first.at, name: own, drive, length, drive_offset, plex_offset };
        self.plexes[plex].plex.subdisks.push(subdisk);
        Ok(())
    }

    /// By its own name, or by its number in its volume, as in `myvol.p0`.
    fn plex_called(&self, name: &str) -> Option<usize> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        self.plexes.iter().position(|of| {
            let number = counts.entry(&of.volume).or_default();
            *number += 1;
            let by_number = || format!("{}.p{}", of.volume, *number - 1);
            of.plex.name.clone().unwrap_or_else(by_number) == name
        })
    }

    fn finish(self) -> Result<Wanted, Wrong> {
        let mut wanted = self.wanted;
        for of in self.plexes {
            let volume = wanted.volumes.iter_mut().find(|volume| volume.name == of.volume);
            if let Some(WantedVolume { content: Content::Plexes(plexes), .. }) = volume {
                plexes.push(of.plex);
            }
        }
        for volume in &wanted.volumes {
            if let Content::Plexes(plexes) = &volume.content {
                if plexes.is_empty() {
                    return Err(Wrong::new(volume.at, format!("volume {} has no plex", volume.name)));
                }
                if let Some(empty) = plexes.iter().find(|plex| plex.subdisks.is_empty()) {
                    return Err(Wrong::new(empty.at, "this plex has no subdisk"));
                }
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests;
