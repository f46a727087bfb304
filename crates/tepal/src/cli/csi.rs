//! `tepal csi`.

use super::{MethodName, value};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tepal csi --cluster 10.0.0.1:7117,10.0.0.2:7117 --token-file /etc/tepal/token \
    --endpoint unix:///csi/csi.sock\n\nThe driver's name is csi.tepal. It keeps notes on filesystems that it has begun to make, \
    and nothing else. It may be killed and started again: devices and mounts stay.")]
pub struct CsiArguments {
    /// Where the orchestrator finds the driver, as unix:///PATH
    #[arg(long, value_name = "ADDR", value_parser = endpoint)]
    pub endpoint: PathBuf,
    /// A file with the cluster's token, rather than TEPAL_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Which of CSI's services it offers, besides the one that says who the driver is
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub services: Services,
    /// What this machine is called: as the holder of volumes, and as an identity with `--fence rights` [default: its host name]
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub node: Option<String>,
    /// How a machine is kept from writing to a volume that another one has by now; say the same everywhere
    #[arg(long, value_name = "HOW", default_value = "reservation")]
    pub fence: FenceName,
    /// The gateway of this machine, as unix:PATH, rather than a server: devices outlive the end of any server then
    #[arg(long, value_name = "ADDR", value_parser = socket)]
    pub gateway: Option<PathBuf>,
    /// The site that this machine is at, as servers have it
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub site: Option<String>,
    /// The server of the cluster that runs on this machine, as s1
    #[arg(long, value_name = "ID", value_parser = value::name)]
    pub server: Option<String>,
    /// How many volumes this machine may have; 0: as many as the orchestrator likes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub most_volumes: u32,
    /// How the kernel gets at volumes [default: by what this machine offers]
    #[arg(long)]
    pub method: Option<MethodName>,
    /// Have I/O fail that no server answers within this time, as 30s or 5m, rather than wait
    #[arg(long, value_name = "TIME", value_parser = value::patience)]
    pub give_up_after: Option<u64>,
    /// Where attachments are kept track of
    #[arg(long, value_name = "DIR", default_value = "/run/tepal")]
    pub run_folder: PathBuf,
    /// The command that starts the processes behind devices where they have to outlive the driver's container, as 'systemd-run --scope
    /// tepal': its last word is this program
    #[arg(long, value_name = "COMMAND", value_parser = words)]
    pub attach_by: Option<Words>,
}

/// Words of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

/// The driver's services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Services {
    /// Both
    All,
    /// Once for a cluster
    Controller,
    /// On each machine
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FenceName {
    /// A volume is reserved by the machine that has it; not by way of a gateway
    Reservation,
    /// A volume is granted to the machine that has it, whose name is that of an identity
    Rights,
    /// By the orchestrator's word alone
    None,
}

fn endpoint(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).map(PathBuf::from);
    path.filter(|path| path.is_absolute()).ok_or_else(|| format!("'{text}' is not a unix socket: write unix:///PATH"))
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or_else(|| format!("'{text}' is not a gateway's unix socket: write unix:PATH"))
}

fn words(text: &str) -> Result<Words, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("a command has at least one word".to_owned()) } else { Ok(Words(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_absolute_path_of_a_unix_socket() {
        for text in ["unix:///csi/csi.sock", "unix:/csi/csi.sock"] {
            assert_eq!(endpoint(text), Ok("/csi/csi.sock".into()), "{text}");
        }
        for text in ["/csi/csi.sock", "tcp://127.0.0.1:1", "unix://csi.sock", ""] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }
}
