//! What a configuration file wants, whatever its form: nothing is looked up yet.

use std::collections::BTreeMap;
use std::fmt;
use tepal_model::layout::plexes::Organization;
use tepal_model::{Layout, ServerId};
use tepal_server::api::types::{Limits, ScheduleRules};

/// A place in the file, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What is wrong with the file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {text}")]
pub struct Wrong {
    pub at: At,
    pub text: String,
}

impl Wrong {
    pub fn new(at: At, text: impl Into<String>) -> Self {
        Wrong { at, text: text.into() }
    }
}

/// All of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub pools: Vec<WantedPool>,
    pub drives: Vec<WantedDrive>,
    pub volumes: Vec<WantedVolume>,
    pub schedules: Vec<WantedSchedule>,
    /// What is taken otherwise than it's written.
    pub notes: Vec<Wrong>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPool {
    pub at: At,
    pub name: String,
    pub layout: Option<Layout>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedDrive {
    pub at: At,
    pub name: String,
    /// An absolute path.
    pub device: String,
    /// The only one, or the one that is asked, if it isn't said.
    pub server: Option<ServerId>,
    pub pool: Option<String>,
    pub is_spare: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedVolume {
    pub at: At,
    pub name: String,
    pub pool: Option<String>,
    /// Of an encrypted volume: what the key is called that wraps its own.
    pub key: Option<String>,
    /// How much may be asked for of it. What isn't said stays as it is.
    pub limits: Limits,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSchedule {
    pub at: At,
    pub name: String,
    pub rules: ScheduleRules,
}

/// How a volume's data is to lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Wherever the layout has it.
    Anywhere { size: u64, layout: Option<Layout> },
    /// Where the subdisks are.
    Plexes(Vec<WantedPlex>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPlex {
    pub at: At,
    pub name: Option<String>,
    pub organization: Organization,
    pub subdisks: Vec<WantedSubdisk>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSubdisk {
    pub at: At,
    pub name: Option<String>,
    /// A drive's name, or its id.
    pub drive: String,
    /// The largest free piece of the drive, if not said.
    pub length: Option<u64>,
    /// Any that is free, if not said.
    pub drive_offset: Option<u64>,
    /// Where the one before ends, if not said.
    pub plex_offset: Option<u64>,
}

impl Wanted {
    /// Refuses what is defined twice.
    pub fn check_names(&self) -> Result<(), Wrong> {
        let drives = self.drives.iter().map(|drive| ("drive", &drive.name, drive.at));
        let pools = self.pools.iter().map(|pool| ("pool", &pool.name, pool.at));
        let volumes = self.volumes.iter().map(|volume| ("volume", &volume.name, volume.at));
        let mut seen = BTreeMap::new();
        let schedules = self.schedules.iter().map(|schedule| ("schedule", &schedule.name, schedule.at));
        for (what, name, at) in drives.chain(pools).chain(volumes).chain(schedules) {
            if let Some(before) = seen.insert((what, name), at) {
                return Err(Wrong::new(at, format!("{what} {name} is defined already, on {before}")));
            }
        }
        Ok(())
    }
}
