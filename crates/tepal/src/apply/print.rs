//! What there is, in the forms that `tepal apply` reads.

use super::plan::Now;
use std::fmt::Write;
use tepal_model::DriveId;
use tepal_model::Layout;
use tepal_model::layout::plexes::{Plex, Plexes};
use tepal_model::schedule::period_text;
use tepal_model::size::exact;
use tepal_server::api::types::{DriveInfo, DriveUse, Limits, Rate, ScheduleInfo, VolumeInfo, WorkKind};

/// Bytes of a sector.
const SECTOR: u64 = 512;

fn called(now: &Now, id: DriveId) -> String {
    now.drives.iter().find(|drive| drive.id == id).map_or_else(|| id.to_string(), DriveInfo::called)
}

/// The drives that aren't on their way out.
fn there(now: &Now) -> impl Iterator<Item = &DriveInfo> {
    now.drives.iter().filter(|drive| drive.purpose != DriveUse::Removed)
}

/// A text in quotes, as both forms have it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// What a layout says beside its plexes, which neither form can say.
fn options(volume: &VolumeInfo) -> Option<&str> {
    volume.layout.split_once(';').map(|(_, options)| options).filter(|_| volume.layout.starts_with("plexes:"))
}

/// A remark on a volume that neither form can say as it is.
fn shorter(volume: &VolumeInfo, plexes: &Plexes) -> String {
    let (has, all) = (volume.size, plexes.size());
    match has < all {
        true => format!(
            "# volume {} has {} of its plexes' {}, which `tepal apply` gives it\n",
            volume.name,
            exact(has),
            exact(all)
        ),
        false => String::new(),
    }
}

/// In Vinum's own form, as its `printconfig` writes it: sizes in sectors.
pub fn vinum(now: &Now) -> String {
    let mut text = String::new();
    for drive in there(now) {
        let spare = if drive.purpose == DriveUse::Spare { " hotspare" } else { "" };
        let server = if now.server.is_none() { format!("{}:", drive.server) } else { String::new() };
        let device = format!("{server}{}", drive.path);
        let is_plain = !device.contains(|letter: char| letter.is_whitespace() || "\"'\\#".contains(letter));
        let device = if is_plain { device } else { quoted(&device) };
        let _ = writeln!(text, "drive {} device {device}{spare}", drive.called());
    }
    for volume in &now.volumes {
        if let Some(origin) = &volume.origin {
            let _ = writeln!(text, "# volume {} is a clone of {origin}, which no file can say", volume.name);
            continue;
        }
        let layout: Option<Layout> = volume.layout.parse().ok();
        match layout.as_ref().and_then(Layout::plexes) {
            Some(plexes) => {
                if let Some(options) = options(volume) {
                    let _ = writeln!(text, "# volume {} has {options} too, which stays as it is", volume.name);
                }
                text += &shorter(volume, plexes);
                vinum_volume(&mut text, now, (&volume.name, plexes));
            }
            None => {
                let _ =
                    writeln!(text, "# volume {} has layout {}, which only TOML can say", volume.name, volume.layout);
            }
        }
    }
    text
}

/// One volume in Vinum's own form; `None` if its layout names no plexes.
pub fn vinum_of(now: &Now, volume: &VolumeInfo) -> Option<String> {
    let layout: Layout = volume.layout.parse().ok()?;
    let mut text = String::new();
    vinum_volume(&mut text, now, (&volume.name, layout.plexes()?));
    Some(text)
}

fn vinum_volume(text: &mut String, now: &Now, (volume, plexes): (&str, &Plexes)) {
    let _ = writeln!(text, "volume {volume}");
    for (number, plex) in plexes.plexes().iter().enumerate() {
        let own = plex.name.clone().unwrap_or_else(|| format!("{volume}.p{number}"));
        let stripe = plex.organization.stripe();
        let size = stripe.map(|stripe| format!(" {}s", stripe / SECTOR)).unwrap_or_default();
        let organization = format!("{}{size}", plex.organization.word());
        let _ = writeln!(text, "plex name {own} org {organization} vol {volume}");
        for (disk, at) in plex.subdisks.iter().zip(0..) {
            let name = disk.name.clone().unwrap_or_else(|| format!("{own}.s{at}"));
            let (drive, length, offset) = (called(now, disk.drive), disk.length / SECTOR, disk.drive_offset / SECTOR);
            let place = stripe.map_or(disk.plex_offset, |stripe| stripe * at) / SECTOR;
            let _ = writeln!(
                text,
                "sd name {name} drive {drive} plex {own} len {length}s driveoffset {offset}s plexoffset {place}s"
            );
        }
    }
}

/// In TOML, everything.
pub fn toml(now: &Now) -> String {
    let mut text = String::new();
    for pool in &now.pools {
        let _ = writeln!(text, "[[pool]]\nname = {:?}", pool.name);
        if let Some(layout) = &pool.layout {
            let _ = writeln!(text, "layout = {layout:?}");
        }
        text.push('\n');
    }
    for drive in there(now) {
        let (name, server, pool) = (drive.called(), drive.server.to_string(), &drive.pool);
        let _ = writeln!(
            text,
            "[[drive]]\nname = {name:?}\ndevice = {}\nserver = {server:?}\npool = {pool:?}",
            quoted(&drive.path)
        );
        if drive.purpose == DriveUse::Spare {
            let _ = writeln!(text, "spare = true");
        }
        text.push('\n');
    }
    for volume in &now.volumes {
        if let Some(origin) = &volume.origin {
            let _ = writeln!(text, "# volume {} is a clone of {origin}, which no file can say\n", volume.name);
            continue;
        }
        if let Some(options) = options(volume) {
            let _ = writeln!(text, "# volume {} has {options} too, which stays as it is", volume.name);
        }
        let _ = writeln!(text, "[[volume]]\nname = {:?}\npool = {:?}", volume.name, volume.pool);
        if let Some(key) = &volume.key {
            let _ = writeln!(text, "key = {key:?}");
        }
        limits(&mut text, &volume.limits);
        let layout: Option<Layout> = volume.layout.parse().ok();
        match layout.as_ref().and_then(Layout::plexes) {
            Some(plexes) => {
                text += &shorter(volume, plexes);
                plexes.plexes().iter().for_each(|plex| toml_plex(&mut text, now, plex));
            }
            None => {
                let _ = writeln!(text, "size = {:?}\nlayout = {:?}", exact(volume.size), volume.layout);
            }
        }
        text.push('\n');
    }
    now.schedules.iter().for_each(|schedule| toml_schedule(&mut text, schedule));
    text
}

fn toml_schedule(text: &mut String, ScheduleInfo { name, rules, .. }: &ScheduleInfo) {
    let mut facts = vec![("name", name.clone())];
    facts.extend(rules.volume.iter().map(|volume| ("snapshot", volume.clone())));
    facts.extend(rules.pool.iter().map(|pool| ("pool", pool.clone())));
    facts.extend(rules.every_s.map(|every| ("every", period_text(every))));
    facts.extend(rules.at.map(|at| ("at", at.to_string())));
    facts.extend(rules.zone.map(|zone| ("timezone", zone.to_string())));
    facts.extend(rules.keep.map(|keep| ("keep", keep.to_string())));
    facts.extend(rules.within_s.map(|within| ("within", period_text(within))));
    let _ = writeln!(text, "[[schedule]]");
    for (what, said) in facts {
        let _ = writeln!(text, "{what} = {said:?}");
    }
    if rules.work == WorkKind::Scrubs {
        let _ = writeln!(text, "scrub = true");
    }
    text.push('\n');
}

fn toml_plex(text: &mut String, now: &Now, plex: &Plex) {
    let _ = writeln!(text, "[[volume.plex]]");
    if let Some(name) = &plex.name {
        let _ = writeln!(text, "name = {name:?}");
    }
    let _ = writeln!(text, "organization = {:?}", plex.organization.word());
    if let Some(stripe) = plex.organization.stripe() {
        let _ = writeln!(text, "stripe = {:?}", exact(stripe));
    }
    let _ = writeln!(text, "subdisk = [");
    for disk in &plex.subdisks {
        let name = disk.name.as_ref().map_or_else(String::new, |name| format!("name = {name:?}, "));
        let (drive, length, offset) = (called(now, disk.drive), exact(disk.length), exact(disk.drive_offset));
        let place = match plex.organization.stripe() {
            None => format!(", plex_offset = {:?}", exact(disk.plex_offset)),
            Some(_) => String::new(),
        };
        let _ =
            writeln!(text, "  {{ {name}drive = {drive:?}, length = {length:?}, drive_offset = {offset:?}{place} }},");
    }
    let _ = writeln!(text, "]");
}
fn limits(text: &mut String, limits: &Limits) {
    for (name, rate, is_bytes) in [("iops", limits.iops, false), ("bandwidth", limits.bandwidth, true)] {
        let Some(Rate { per_second, burst }) = rate else { continue };
        let said = |number: u64| if is_bytes { format!("{:?}", exact(number)) } else { number.to_string() };
        let _ = writeln!(text, "{name} = {}", said(per_second));
        if burst > 0 {
            let _ = writeln!(text, "{name}_burst = {}", said(burst));
        }
    }
}
