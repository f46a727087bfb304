//! What looks at a cluster and changes nothing.

use super::value;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Only what was asked for by this identity; `token` is whoever shows the token
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    /// Only of this kind: cluster, server, drive, pool, volume, snapshot, schedule or identity
    #[arg(long)]
    pub kind: Option<String>,
    /// Only what happened to this one: its name or id, as the list shows it
    #[arg(long)]
    pub subject: Option<String>,
    /// Only what happened within this time, as 30m or 1h
    #[arg(long, value_name = "TIME", value_parser = value::patience)]
    pub since: Option<u64>,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub limit: u64,
    /// Go on with what happens from now on, until Ctrl-C; with -o json, one document for each
    #[arg(long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "In a terminal: v, s, d show volumes, servers, drives; i, b, l sort by IOPS, bandwidth, latency; q ends it.\n\n\
    Without a terminal it prints one round, as with --once. A round takes a second, as it tells what happened in one."
)]
pub struct TopArguments {
    /// Print one round, and end
    #[arg(long)]
    pub once: bool,
    /// By what to sort
    #[arg(long, value_name = "WHAT", default_value = "iops")]
    pub by: Order,
    /// What to list
    #[arg(long, value_name = "WHAT", default_value = "volumes")]
    pub show: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Operations a second
    Iops,
    /// Bytes a second
    Bandwidth,
    /// How long an operation takes, on average
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// Requests of clients, by volume, at servers and gateways
    Volumes,
    /// Requests of clients, by the server where they are connected
    Servers,
    /// What servers ask of drives
    Drives,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show requests that take long, as they come, each with what it waited for
    #[command(
        after_help = "Examples:\n  tepal trace slow --over 20ms --volume v0\n  tepal trace slow --over 100ms --for 10m --out slow.json\n\n\
        The file is OpenTelemetry's (OTLP JSON): Jaeger shows it, OpenTelemetry's collector reads it. While nobody looks for slow \
        requests, servers note nothing of them."
    )]
    Slow(TraceSlowArguments),
}

#[derive(Debug, Args)]
pub struct TraceSlowArguments {
    /// Only requests that take longer, as 20ms or 1s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = value::milliseconds)]
    pub over: u64,
    /// Only requests to this volume
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    /// For how long; Ctrl-C ends it before
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = value::patience)]
    pub within: u64,
    /// Also write all of them to this file, as OpenTelemetry's collector reads it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
