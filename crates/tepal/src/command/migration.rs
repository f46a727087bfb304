//! `tepal volume relayout`, `flatten`, and what is done about volumes that are on their way.

use super::CommandError;
use super::volume::{VolumeError, gone};
use super::wait::{self, Left, Waited};
use crate::cli::Rate;
use crate::client::{Client, ClientError};
use crate::output::{self, Output, Progress};
use std::fmt;
use std::time::Duration;
use tepal_model::Layout;
use tepal_model::size::{Size, exact};
use tepal_server::api::types::{
    Between, Done, Flatten, Migration, MigrationInfo, MigrationState, Relayout, SetRate, VolumeInfo, path, route,
};

/// Another layout, another pool or both.
pub struct Destination {
    pub layout: Option<Layout>,
    pub pool: Option<String>,
    /// The only bytes that go there.
    pub range: Option<Between>,
}

impl Destination {
    fn is_reached(&self, volume: &VolumeInfo, came_back: bool) -> bool {
        if self.range.is_some() {
            return !came_back;
        }
        let is_laid_out = self.layout.as_ref().is_none_or(|layout| volume.layout == layout.to_string());
        is_laid_out && self.pool.as_ref().is_none_or(|pool| volume.pool == *pool)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.layout, &self.pool) {
            (Some(layout), Some(pool)) => write!(f, "{layout} in pool {pool}"),
            (Some(layout), None) => write!(f, "{layout}"),
            (None, pool) => write!(f, "pool {}", pool.as_deref().unwrap_or_default()),
        }
    }
}

pub fn relayout(
    client: &Client,
    output: Output,
    name: &str,
    to: &Destination,
    (rate, wait): (Option<u64>, bool),
) -> Result<(), CommandError> {
    let (layout, pool, range) = (to.layout.as_ref().map(Layout::to_string), to.pool.clone(), to.range);
    let request = Relayout { layout, pool, range, rate };
    let volume: VolumeInfo = client.post(&path(route::VOLUME_RELAYOUT, name), &request)?;
    let part = to.range.map_or(String::new(), |range| format!(" {}", between(&range)));
    if !wait {
        output.show(&volume, |_| format!("volume {name}{part} goes to {to} in the background; {}", commands(name)))?;
        return Ok(());
    }
    let (volume, came_back) = see_through(client, volume, &format!("{name}{part} to {to}"))?;
    if !to.is_reached(&volume, came_back) {
        return Err(VolumeError::CameBack { volume: name.to_owned(), layout: volume.layout }.into());
    }
    output.show(&volume, |volume| match &to.layout {
        Some(_) => format!("volume {}{part} has {to} now", volume.name),
        None => format!("volume {}{part} is in {to} now", volume.name),
    })?;
    Ok(())
}

pub fn flatten(
    client: &Client,
    output: Output,
    name: &str,
    (rate, wait): (Option<u64>, bool),
) -> Result<(), CommandError> {
    let volume: VolumeInfo = client.post(&path(route::VOLUME_FLATTEN, name), &Flatten { rate })?;
    if !wait {
        output.show(&volume, |_| format!("volume {name} is being flattened in the background; {}", commands(name)))?;
        return Ok(());
    }
    let (volume, came_back) = see_through(client, volume, &format!("flattening {name}"))?;
    if came_back {
        return Err(VolumeError::StillShares(name.to_owned()).into());
    }
    output.show(&volume, |volume| format!("volume {} shares no data with other volumes now", volume.name))?;
    Ok(())
}

pub fn cancel(client: &Client, output: Output, name: &str, wait: bool) -> Result<(), CommandError> {
    let volume: VolumeInfo = client.post(&path(route::VOLUME_CANCEL, name), &Done {})?;
    if volume.live.is_some() {
        output.show(&volume, |_| {
            format!(
                "the import of volume {name} is cancelled, and what isn't there can't be read: `tepal volume rm {name}` removes it, `tepal \
                 volume resume {name}` has the import go on after all"
            )
        })?;
        return Ok(());
    }
    if !wait {
        output.show(&volume, |_| format!("volume {name} goes back in the background; {SHOWN}"))?;
        return Ok(());
    }
    let (volume, _) = see_through(client, volume, &format!("{name} back"))?;
    output.show(&volume, |volume| format!("volume {} is as it was before: {}", volume.name, volume.layout))?;
    Ok(())
}

const SHOWN: &str = "`tepal volume migrations` shows how far it is";

fn commands(name: &str) -> String {
    format!("{SHOWN}, `tepal volume cancel {name}` calls it off")
}

/// The volume when it's there, and whether it was on its way back. An error if the user doesn't want to wait any more: what is to be
/// done afterwards would come too early.
fn see_through(client: &Client, volume: VolumeInfo, what: &str) -> Result<(VolumeInfo, bool), CommandError> {
    let (name, route) = (volume.name.clone(), path(route::VOLUME, &volume.by_id()));
    let (mut came_back, mut far) = (false, (0, 0));
    let left = |volume: &VolumeInfo| {
        let Some(migration) = &volume.migration else { return Ok(None) };
        came_back = migration.cancelled;
        let (done, total, mut obstacles) = (migration.done_bytes, migration.total_bytes, migration.reason.clone());
        far = (done, total);
        if migration.state == MigrationState::Paused {
            obstacles = vec![format!("it rests: `tepal volume resume {}` has it go on", volume.name)];
        }
        Ok(Some(Left { done, total, obstacles }))
    };
    let look = || client.get(&route);
    let waited = wait::until(Progress::new(what), volume, look, left);
    match waited.map_err(|error| gone(error, &name, "moved", far))? {
        Waited::Done(volume) => Ok((volume, came_back)),
        Waited::Interrupted(_) => {
            let commands = if came_back { SHOWN.to_owned() } else { commands(&name) };
            Err(VolumeError::Unfinished { volume: name, commands }.into())
        }
    }
}

pub fn pause(client: &Client, output: Output, name: &str) -> Result<(), CommandError> {
    let text = format!("volume {name} rests on its way; `tepal volume resume {name}` has it go on");
    change(client, output, &path(route::VOLUME_PAUSE, name), &Done {}, &text)
}

pub fn resume(client: &Client, output: Output, name: &str) -> Result<(), CommandError> {
    change(client, output, &path(route::VOLUME_RESUME, name), &Done {}, &format!("volume {name} goes on"))
}

pub fn set_rate(client: &Client, output: Output, name: &str, Rate(rate): Rate) -> Result<(), CommandError> {
    let text = match rate {
        Some(rate) => format!("volume {name} goes on with at most {} a second", Size(rate)),
        None => format!("volume {name} goes on as fast as clients let it"),
    };
    change(client, output, &path(route::VOLUME_RATE, name), &SetRate { rate }, &text)
}

fn change(
    client: &Client,
    output: Output,
    path: &str,
    body: &impl serde::Serialize,
    text: &str,
) -> Result<(), CommandError> {
    let volume: Result<VolumeInfo, ClientError> = client.post(path, body);
    output.show(&volume?, |_| text.to_owned())?;
    Ok(())
}

pub fn list(client: &Client, output: Output) -> Result<(), CommandError> {
    let migrations: Vec<MigrationInfo> = client.get(route::MIGRATIONS)?;
    output.show(&migrations, |migrations| table(migrations))?;
    Ok(())
}

fn table(migrations: &[MigrationInfo]) -> String {
    let row = |info: &MigrationInfo| {
        let Migration { done_bytes, total_bytes, rate, seconds_left, reason, .. } = &info.migration;
        let by_itself = if info.migration.flattens { ", by itself" } else { "" };
        vec![
            info.migration
                .range
                .map_or_else(|| info.volume.clone(), |range| format!("{} {}", info.volume, between(&range))),
            info.from.clone(),
            destination(&info.migration) + by_itself,
            state(&info.migration).to_owned(),
            output::size(*done_bytes),
            output::size(*total_bytes),
            output::rate(*rate, Duration::from_secs(1)),
            seconds_left.map_or_else(String::new, left),
            reason.join("; "),
        ]
    };
    let columns = ["volume", "from", "to", "state", ">done", ">of", ">rate", ">left", "reason"];
    output::table(&columns, migrations.iter().map(row))
}

/// As one line of a volume's page.
pub fn line(migration: &Migration) -> String {
    let Migration { done_bytes, total_bytes, rate, seconds_left, .. } = migration;
    let mut line =
        format!("{}, {} of {} are there", state(migration), output::size(*done_bytes), output::size(*total_bytes));
    if !migration.flattens {
        let part = migration.range.map_or(String::new(), |range| format!("{} ", between(&range)));
        line = format!("{part}to {}: {line}", destination(migration));
    }
    if let Some(seconds) = seconds_left {
        line += &format!(", {}, {} left", output::rate(*rate, Duration::from_secs(1)), left(*seconds));
    }
    line
}

/// Bytes of a volume, as `--range` takes them.
pub fn between(Between { from, to }: &Between) -> String {
    format!("{}..{}", exact(*from), to.map_or(String::new(), exact))
}

fn destination(Migration { to, to_pool, .. }: &Migration) -> String {
    match to_pool {
        Some(pool) => format!("{to} in pool {pool}"),
        None => to.clone(),
    }
}

fn state(migration: &Migration) -> &'static str {
    match migration.state {
        MigrationState::Running if migration.cancelled => "coming back",
        MigrationState::Running => "running",
        MigrationState::Paused => "paused",
        MigrationState::Blocked => "blocked",
    }
}

/// A time in the unit that is read most easily.
fn left(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        7200..172_800 => format!("{} h", seconds.div_ceil(3600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_volume_is_fits_a_line() {
        let mut migration = Migration {
            to: "mirror:2".to_owned(),
            to_pool: None,
            range: None,
            done_bytes: 1 << 30,
            total_bytes: 4 << 30,
            rate: 1 << 20,
            seconds_left: Some(3072),
            state: MigrationState::Running,
            reason: vec![],
            lacks_room: false,
            full_drives: vec![],
            cancelled: false,
            flattens: false,
            most_rate: None,
        };
        assert_eq!(line(&migration), "to mirror:2: running, 1G of 4G are there, 1M/s, 52 min left");
        (migration.state, migration.seconds_left, migration.flattens) = (MigrationState::Paused, None, true);
        assert_eq!(line(&migration), "paused, 1G of 4G are there");
    }

    #[test]
    fn times_are_told_in_readable_units() {
        let told: Vec<String> = [0, 119, 120, 7199, 7200, 200_000].map(left).into();
        assert_eq!(told, ["0 s", "119 s", "2 min", "120 min", "2 h", "3 days"]);
    }
}
