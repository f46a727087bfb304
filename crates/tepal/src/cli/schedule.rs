//! What is done again and again.

use super::value;
use clap::{ArgGroup, Args, Subcommand};
use tepal_model::schedule::{Ahead, Keep, TimeOfDay};

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Have snapshots made at equal distances, and those that aren't kept any more removed; or have volumes scrubbed in time
    #[command(
        after_help = "Examples:\n  tepal schedule create daily --snapshot v0 --every 1d --at 02:30 --keep daily=7,weekly=4,monthly=12\n  \
        tepal schedule create hourly --pool default --every 1h\n  tepal schedule create scrubs --scrub --within 30d\n\n\
        A snapshot is called by its schedule and its time: v0@daily-2026-11-29T02-30Z. The cluster runs schedules itself, whichever \
        servers are there. Times that have passed while none was are made up for once, and told."
    )]
    Create(CreateScheduleArguments),
    /// Change when a schedule is run, or what it keeps
    Set(SetScheduleArguments),
    /// List schedules: when each is next, what it missed and what went wrong
    Ls,
    /// Show one schedule
    Show {
        /// The schedule's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Have a schedule rest; times that pass meanwhile aren't missed
    Pause {
        /// The schedule's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Have a schedule that rests go on
    Resume {
        /// The schedule's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Run a schedule now, beside its times
    Run {
        /// The schedule's name
        #[arg(value_parser = value::name)]
        name: String,
    },
    /// Remove a schedule; its snapshots stay
    Rm {
        /// The schedule's name
        #[arg(value_parser = value::name)]
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["snapshot", "pool", "scrub"]).required(true).multiple(true))]
pub struct CreateScheduleArguments {
    /// The schedule's name: 1 to 100 of A-Z a-z 0-9 . _ -
    #[arg(value_parser = value::name)]
    pub name: String,
    /// Make snapshots of this volume
    #[arg(long, value_name = "VOLUME", value_parser = value::name, conflicts_with_all = ["pool", "scrub"])]
    pub snapshot: Option<String>,
    /// Make snapshots of each volume of this pool; with --scrub, scrub these
    #[arg(long, value_name = "POOL", value_parser = value::name)]
    pub pool: Option<String>,
    /// Scrub volumes, all of them if no pool is said
    #[arg(long, conflicts_with_all = ["every", "at", "timezone", "keep"])]
    pub scrub: bool,
    /// From one snapshot to the next, as 15m, 1h, 1d or 1w: from 1s to 366d
    #[arg(long, value_name = "TIME", value_parser = value::every, required_unless_present = "scrub")]
    pub every: Option<u64>,
    /// No volume stays unscrubbed for longer, as 7d: from 10s to 3660d; 30d, if not said
    #[arg(long, value_name = "TIME", value_parser = value::within, conflicts_with = "every")]
    pub within: Option<u64>,
    #[command(flatten)]
    pub times: TimesArguments,
}

#[derive(Debug, Args)]
pub struct SetScheduleArguments {
    /// The schedule's name
    #[arg(value_parser = value::name)]
    pub name: String,
    /// From one snapshot to the next
    #[arg(long, value_name = "TIME", value_parser = value::every)]
    pub every: Option<u64>,
    /// No volume stays unscrubbed for longer
    #[arg(long, value_name = "TIME", value_parser = value::within)]
    pub within: Option<u64>,
    #[command(flatten)]
    pub times: TimesArguments,
}

#[derive(Debug, Args)]
pub struct TimesArguments {
    /// One of the times of the day; where a day isn't a multiple of the distance, of a Monday. Midnight, if not said
    #[arg(long, value_name = "HH:MM[:SS]")]
    pub at: Option<TimeOfDay>,
    /// How far local time is ahead of UTC, as +02:00: always the same, in summer too. UTC, if not said
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    pub timezone: Option<Ahead>,
    /// How many snapshots of a volume stay: the newest, and one of each of so many hours, days and so on
    #[arg(long, value_name = "last=N,hourly=N,daily=N,weekly=N,monthly=N,yearly=N")]
    pub keep: Option<Keep>,
}
