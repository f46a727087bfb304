//! The configuration file in TOML: `[[pool]]`, `[[drive]]`, `[[volume]]` and `[[schedule]]`, for everything that Vinum's file can't say.

use super::wanted::{
    At, Content, Wanted, WantedDrive, WantedPlex, WantedPool, WantedSchedule, WantedSubdisk, WantedVolume, Wrong,
};
use crate::cli::value;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::fmt::Display;
use std::str::FromStr;
use tepal_model::ServerId;
use tepal_model::layout::plexes::Organization;
use tepal_model::schedule::ScheduleTextError;
use tepal_model::size::Size;
use tepal_model::text::{NAME_RULE, is_name, shown};
use tepal_server::api::types::{Limits, Rate, ScheduleRules, WorkKind};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    pool: Vec<Spanned<Pool>>,
    #[serde(default)]
    drive: Vec<Spanned<Drive>>,
    #[serde(default)]
    volume: Vec<Spanned<Volume>>,
    #[serde(default)]
    schedule: Vec<Spanned<Schedule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    #[serde(deserialize_with = "name")]
    name: String,
    layout: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drive {
    #[serde(deserialize_with = "name")]
    name: String,
    device: Spanned<String>,
    server: Option<Spanned<String>>,
    pool: Option<String>,
    #[serde(default)]
    spare: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Volume {
    #[serde(deserialize_with = "name")]
    name: String,
    #[serde(default, deserialize_with = "bytes")]
    size: Option<u64>,
    layout: Option<Spanned<String>>,
    pool: Option<String>,
    key: Option<String>,
    iops: Option<u64>,
    iops_burst: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    bandwidth: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    bandwidth_burst: Option<u64>,
    #[serde(default)]
    plex: Vec<Spanned<Plex>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plex {
    name: Option<String>,
    organization: Spanned<String>,
    #[serde(default, deserialize_with = "bytes")]
    stripe: Option<u64>,
    subdisk: Vec<Spanned<Subdisk>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subdisk {
    name: Option<String>,
    drive: String,
    #[serde(default, deserialize_with = "bytes")]
    length: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    drive_offset: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    plex_offset: Option<u64>,
}

/// Of snapshots, which say `snapshot` or `pool`, or of scrubs, which say `scrub = true`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Schedule {
    #[serde(deserialize_with = "name")]
    name: String,
    snapshot: Option<String>,
    pool: Option<String>,
    #[serde(default)]
    scrub: bool,
    every: Option<Spanned<String>>,
    at: Option<Spanned<String>>,
    timezone: Option<Spanned<String>>,
    keep: Option<Spanned<String>>,
    within: Option<Spanned<String>>,
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    match is_name(&name) {
        true => Ok(name),
        false => Err(D::Error::custom(format!("name '{}': {NAME_RULE}", shown(&name)))),
    }
}

/// A number of bytes, or a text such as `10G`.
/// Of a limit, if there is one.
fn rate(at: At, (what, limit): (&str, Option<u64>), burst: Option<u64>) -> Result<Option<Rate>, Wrong> {
    match (limit, burst) {
        (Some(per_second), burst) => Ok(Some(Rate { per_second, burst: burst.unwrap_or(0) })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Wrong::new(at, format!("{what}_burst is that of a limit: say {what} too"))),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Written::deserialize(deserializer)
        .map_err(|_| D::Error::custom("a size is a number of bytes, or a text such as \"10G\""))?
    {
        Written::Number(number) => Ok(Some(number)),
        Written::Text(text) => text.parse::<Size>().map(|size| Some(size.0)).map_err(D::Error::custom),
    }
}

/// Reads all of a file.
pub fn parse(text: &str) -> Result<Wanted, Wrong> {
    let places = Places(text);
    let file: File = toml::from_str(text)
        .map_err(|error| Wrong::new(places.at(error.span().map_or(0, |span| span.start)), error.message()))?;
    let mut wanted = Wanted::default();
    for pool in file.pool {
        let (at, pool) = (places.of(&pool), pool.into_inner());
        let layout = places.read(pool.layout)?;
        wanted.pools.push(WantedPool { at, name: pool.name, layout });
    }
    for drive in file.drive {
        let (at, drive) = (places.of(&drive), drive.into_inner());
        if !drive.device.get_ref().starts_with('/') {
            let text = format!("device '{}': it's an absolute path", shown(drive.device.get_ref()));
            return Err(Wrong::new(places.of(&drive.device), text));
        }
        let server: Option<ServerId> = places.read(drive.server)?;
        let (device, pool, is_spare) = (drive.device.into_inner(), drive.pool, drive.spare);
        wanted.drives.push(WantedDrive { at, name: drive.name, device, server, pool, is_spare });
    }
    for volume in file.volume {
        let (at, volume) = (places.of(&volume), volume.into_inner());
        let content = match (volume.size, volume.plex.is_empty()) {
            (Some(size), true) => Content::Anywhere { size, layout: places.read(volume.layout)? },
            (None, false) if volume.layout.is_none() => {
                Content::Plexes(volume.plex.into_iter().map(|plex| places.plex(plex)).collect::<Result<_, _>>()?)
            }
            _ => {
                let text =
                    format!("volume {} wants a size, and perhaps a layout; or plexes, which say both", volume.name);
                return Err(Wrong::new(at, text));
            }
        };
        let limits = Limits {
            iops: rate(at, ("iops", volume.iops), volume.iops_burst)?,
            bandwidth: rate(at, ("bandwidth", volume.bandwidth), volume.bandwidth_burst)?,
            connections: None,
        };
        let (name, pool, key) = (volume.name, volume.pool, volume.key);
        wanted.volumes.push(WantedVolume { at, name, pool, key, limits, content });
    }
    for schedule in file.schedule {
        let at = places.of(&schedule);
        wanted.schedules.push(places.schedule(at, schedule.into_inner())?);
    }
    wanted.check_names()?;
    Ok(wanted)
}

/// The text of a file, in which places are found.
struct Places<'a>(&'a str);

impl Places<'_> {
    fn at(&self, byte: usize) -> At {
        let before = self.0.get(..byte).unwrap_or(self.0);
        let line = before.rsplit('\n').next().unwrap_or_default();
        At { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }

    fn of<T>(&self, spanned: &Spanned<T>) -> At {
        self.at(spanned.span().start)
    }

    fn read<T: FromStr<Err: Display>>(&self, text: Option<Spanned<String>>) -> Result<Option<T>, Wrong> {
        let Some(text) = text else { return Ok(None) };
        let read = text.get_ref().parse().map_err(|error: T::Err| Wrong::new(self.of(&text), error.to_string()))?;
        Ok(Some(read))
    }

    fn schedule(&self, at: At, schedule: Schedule) -> Result<WantedSchedule, Wrong> {
        let time = |text: Option<Spanned<String>>, read: fn(&str) -> Result<u64, ScheduleTextError>| {
            let wrong = |text: &Spanned<String>, error: ScheduleTextError| Wrong::new(self.of(text), error.to_string());
            text.map(|text| read(text.get_ref()).map_err(|error| wrong(&text, error))).transpose()
        };
        let Schedule { name, snapshot: volume, pool, scrub, .. } = schedule;
        let (every_s, within_s) = (time(schedule.every, value::every)?, time(schedule.within, value::within)?);
        let (clock, zone) = (self.read(schedule.at)?, self.read(schedule.timezone)?);
        let keep = self.read(schedule.keep)?;
        let has_times = every_s.is_some() || clock.is_some() || zone.is_some() || keep.is_some();
        let makes_sense = match scrub {
            true => volume.is_none() && !has_times,
            false => volume.is_some() != pool.is_some() && every_s.is_some() && within_s.is_none(),
        };
        if !makes_sense {
            let text = format!(
                "schedule {name} wants every, and snapshot with a volume or a pool; or scrub = true, and perhaps within and a pool"
            );
            return Err(Wrong::new(at, text));
        }
        let work = if scrub { WorkKind::Scrubs } else { WorkKind::Snapshots };
        let rules = ScheduleRules { work, volume, pool, every_s, at: clock, zone, keep, within_s };
        Ok(WantedSchedule { at, name, rules })
    }

    fn plex(&self, plex: Spanned<Plex>) -> Result<WantedPlex, Wrong> {
        let (at, plex) = (self.of(&plex), plex.into_inner());
        let organization = match (&**plex.organization.get_ref(), plex.stripe) {
            ("concat", None) => Organization::Concat,
            ("striped", Some(stripe)) => Organization::Striped { stripe },
            ("raid5", Some(stripe)) => Organization::Raid5 { stripe },
            _ => {
                let text = "a plex is concat without a stripe, striped or raid5 with one";
                return Err(Wrong::new(self.of(&plex.organization), text));
            }
        };
        let subdisk = |disk: Spanned<Subdisk>| {
            let (at, disk) = (self.of(&disk), disk.into_inner());
            let Subdisk { name, drive, length, drive_offset, plex_offset } = disk;
            WantedSubdisk { at, name, drive, length: length.filter(|length| *length > 0), drive_offset, plex_offset }
        };
        if plex.subdisk.is_empty() {
            return Err(Wrong::new(at, "this plex has no subdisk"));
        }
        Ok(WantedPlex { at, name: plex.name, organization, subdisks: plex.subdisk.into_iter().map(subdisk).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_read() {
        let text = "[[pool]]\nname = \"fast\"\nlayout = \"mirror:2\"\n\n[[drive]]\nname = \"a\"\ndevice = \"/dev/sdb\"\nserver = \"s2\"\n\
            spare = true\n\n[[volume]]\nname = \"db\"\nsize = \"10G\"\nlayout = \"ec:4+2\"\npool = \"fast\"\n\n[[volume]]\nname = \"v\"\n\
            [[volume.plex]]\norganization = \"striped\"\nstripe = \"512K\"\nsubdisk = [{ drive = \"a\", length = 1048576 }, { drive = \"b\" }]\n";
        let wanted = parse(text).unwrap();
        assert_eq!((&*wanted.pools[0].name, &*wanted.drives[0].device), ("fast", "/dev/sdb"));
        assert_eq!((wanted.drives[0].server, wanted.drives[0].is_spare), (Some(ServerId(2)), true));
        let Content::Anywhere { size, layout } = &wanted.volumes[0].content else { panic!("{wanted:?}") };
        assert_eq!((*size, layout.as_ref().unwrap().to_string()), (10 << 30, "ec:4+2".to_owned()));
        let Content::Plexes(plexes) = &wanted.volumes[1].content else { panic!("{wanted:?}") };
        assert_eq!(plexes[0].organization, Organization::Striped { stripe: 512 << 10 });
        let lengths: Vec<_> = plexes[0].subdisks.iter().map(|disk| disk.length).collect();
        assert_eq!(lengths, [Some(1 << 20), None]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, said) in [
            ("[[volume]\n", 1, ""),
            ("[[volume]]\nname = \"v\"\nsize = \"x\"\n", 3, "not a size"),
            ("[[volume]]\nname = \"v\"\ncolour = 1\n", 3, "unknown field"),
            ("[[volume]]\nname = \"v/w\"\nsize = 512\n", 2, "use 1 to 128"),
            ("\n[[volume]]\nname = \"v\"\n", 2, "wants a size"),
            ("[[volume]]\nname = \"v\"\nsize = 1\nlayout = \"mirror:9\"\n", 4, "2 to 8"),
            ("[[drive]]\nname = \"a\"\ndevice = \"sdb\"\n", 3, "absolute"),
            ("[[volume]]\nname = \"v\"\nsize = 512\n[[volume]]\nname = \"v\"\nsize = 512\n", 4, "defined already"),
            ("[[volume]]\nname = \"v\"\n[[volume.plex]]\norganization = \"concat\"\nsubdisk = []\n", 3, "no subdisk"),
            ("[[schedule]]\nname = \"d\"\nsnapshot = \"v\"\n", 1, "wants every"),
            ("[[schedule]]\nname = \"d\"\nsnapshot = \"v\"\nevery = \"0s\"\n", 4, "from 1s to 366d"),
            ("[[schedule]]\nname = \"d\"\npool = \"p\"\nevery = \"1h\"\nat = \"25:00\"\n", 5, "not a time of the day"),
            ("[[schedule]]\nname = \"d\"\nscrub = true\nkeep = \"last=1\"\n", 1, "scrub = true"),
            (
                "[[schedule]]\nname = \"d\"\nscrub = true\n[[schedule]]\nname = \"d\"\nscrub = true\n",
                4,
                "defined already",
            ),
        ] {
            let wrong = parse(text).expect_err(text);
            assert!(wrong.at.line == line && wrong.text.contains(said), "{text}: {wrong}");
        }
    }
}
