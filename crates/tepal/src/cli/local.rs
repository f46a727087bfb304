//! What runs on this machine: a server, attached volumes, benches.

use super::value;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tepal_model::Layout;
use tepal_server::api::types::SourceName;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tepal serve --config /etc/tepal.toml\n  tepal serve --data /var/lib/tepal --create home \
    --drive /dev/sdb --drive /dev/sdc --listen unix:/run/tepal.sock\n\nWhat is given here wins over what the file says."
)]
pub struct ServeArguments {
    /// A TOML file with the same settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder for the cluster's metadata, the token and the addresses
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// A drive to use: block device or file. May be given again. A blank one joins the cluster
    #[arg(long = "drive", value_name = "PATH")]
    pub drives: Vec<PathBuf>,
    /// Where NBD clients find the volumes: unix:PATH or IP:PORT. May be given again
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Where the admin API listens [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "IP:PORT")]
    pub api: Option<String>,
    /// The name of the cluster to make, if the data folder holds none
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub create: Option<String>,
    /// A server of the cluster to join, if the data folder holds none: its peers' address. May be given again
    #[arg(long, value_name = "ADDR")]
    pub join: Vec<String>,
    /// A file with what `tepal server token create` printed (-: standard input), by which this server joins if it hasn't yet
    #[arg(long, value_name = "FILE", conflicts_with = "create")]
    pub join_token: Option<PathBuf>,
    /// Where this server is: a name that all servers have which may be lost together with it. As before, if not said
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub site: Option<String>,
    /// Where other servers find this one: unix:PATH or IP:PORT [default: a socket in the data folder]
    #[arg(long, value_name = "ADDR")]
    pub peers: Option<String>,
    /// This server's id, as s1
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// The pool of drives that are added
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub pool: Option<String>,
    /// How long a drive may be away before its copies are made again elsewhere, as 90s or 24h, while this server leads: say the same to
    /// all [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub replace_after: Option<String>,
    /// Slow all drives to a model: hdd, sata-ssd, nvme, rz29, or read=100us,iops=5000,bandwidth=200M
    #[arg(long, value_name = "MODEL", value_parser = value::model)]
    pub emulate: Option<String>,
    /// Threads that carry data [default: one for each core]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub data_threads: Option<i64>,
    /// Where the log goes [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Let other machines reach this server without encryption: whoever reaches it can read and write every volume
    #[arg(long)]
    pub insecure: bool,
    /// Have NBD clients on loopback use TLS too
    #[arg(long)]
    pub require_tls: bool,
    /// A further name or address of this machine, for its certificate. May be given again
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// The folder of keys for encrypted volumes, as `tepal key create` makes them
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Leave the session of the starting process, so that neither Ctrl-C nor the terminal's end reaches this one.
    #[arg(long, hide = true)]
    pub own_session: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: tepal --cluster 10.0.0.1:7117,10.0.0.2:7117 gateway --listen unix:/run/tepal/nbd.sock\n\n\
    It reaches the servers at their --peers addresses, and asks those named by --cluster what there is: name several, \
    so that it finds one that is up."
)]
pub struct GatewayArguments {
    /// Leave the session of the starting process.
    #[arg(long, hide = true)]
    pub own_session: bool,
    /// Where NBD clients find the volumes: unix:PATH or IP:PORT. May be given again
    #[arg(long, value_name = "ADDR", required = true)]
    pub listen: Vec<String>,
    /// Threads that carry data [default: one for each core]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub data_threads: Option<i64>,
    /// Where the log goes [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Allow addresses that other machines can reach without TLS: whoever reaches them can read and write every volume
    #[arg(long)]
    pub insecure: bool,
    /// Want TLS of clients on loopback too. Where other machines reach the gateway, it's wanted in any case, and takes --identity
    #[arg(long, conflicts_with = "insecure")]
    pub require_tls: bool,
    /// The folder of keys for encrypted volumes, as `tepal key create` makes them: servers see ciphertext only then
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AttachArguments {
    /// The volume, or a snapshot of it, which allows no writes
    #[arg(value_name = "VOLUME[@SNAP]", required_unless_present = "list", value_parser = value::source)]
    pub volume: Option<SourceName>,
    /// Allow no writes
    #[arg(long)]
    pub read_only: bool,
    /// Even if the volume is incomplete, as an import of it hasn't come to its end
    #[arg(long)]
    pub force: bool,
    /// Have the volume for this machine alone, also after it's detached: `tepal volume fence` ends that. The holder's name is this
    /// machine's, if none is said
    #[arg(long, value_name = "HOLDER", num_args = 0..=1, require_equals = true, value_parser = value::name)]
    pub exclusive: Option<Option<String>>,
    /// With --exclusive: cut off whoever has it now
    #[arg(long, requires = "exclusive")]
    pub take_over: bool,
    /// List what is attached
    #[arg(long, conflicts_with_all = ["volume", "read_only", "method", "give_up_after"])]
    pub list: bool,
    /// How the kernel gets at it [default: by what this machine offers]
    #[arg(long)]
    pub method: Option<MethodName>,
    /// Have I/O fail that no server answers within this time, as 30s or 5m, rather than wait
    #[arg(long, value_name = "TIME", value_parser = value::patience)]
    pub give_up_after: Option<u64>,
    /// Where attachments are kept track of
    #[arg(long, value_name = "DIR", default_value = "/run/tepal")]
    pub run_folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodName {
    /// A loop device on a FUSE file
    Fuse,
    /// The kernel's own NBD client
    Nbd,
}

#[derive(Debug, Args)]
pub struct DetachArguments {
    /// A volume or snapshot, or a device such as /dev/loop0
    #[arg(value_name = "VOLUME[@SNAP]|DEVICE")]
    pub what: String,
    /// Even if the device is in use or its volume can't be reached: what has not reached the volume is lost, and whoever uses the
    /// device gets errors
    #[arg(long)]
    pub force: bool,
    /// Where attachments are kept track of
    #[arg(long, value_name = "DIR", default_value = "/run/tepal")]
    pub run_folder: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "A volume of its own is made for this, with the layout of VOLUME if one is named, and removed \
    afterwards. The raw drive is a file of its own beside a drive's. No volume that exists is written to.")]
pub struct BenchArguments {
    /// An existing volume whose layout and pool to try
    #[arg(value_name = "VOLUME", value_parser = value::name)]
    pub name: Option<String>,
    /// The layout to try
    #[arg(long, value_parser = value::layout, conflicts_with = "name", allow_hyphen_values = true)]
    pub layout: Option<Layout>,
    /// Seconds for each number
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// How much of the volume is used
    #[arg(long, default_value = "256M", value_parser = value::bench_size, allow_negative_numbers = true)]
    pub size: u64,
}
