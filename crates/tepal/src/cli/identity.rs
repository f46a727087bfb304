//! `tepal identity`, and rights on volumes.

use super::value;
use super::{Limit, LimitsArguments};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tepal_server::api::types::Role;

/// How long a certificate counts, in days, if nothing else is said.
const DAYS: u32 = 365;

#[derive(Debug, Subcommand)]
pub enum IdentityCommand {
    /// Make somebody known to the cluster: a key, and a certificate of it
    #[command(
        after_help = "The private key is made on this machine and doesn't leave it. Without --to, certificate, key and the \
        authority's certificate are printed, in this order.\n\n\
        Examples:\n  tepal identity create web1 --to /etc/tepal/web1\n  \
        tepal volume grant v0 write web1\n  \
        qemu-img info --object tls-creds-x509,id=t,dir=/etc/tepal/web1,endpoint=client --image-opts \\\n    \
        driver=nbd,host=10.0.0.1,port=10809,export=v0,tls-creds=t"
    )]
    Create(CreateIdentityArguments),
    /// List the identities, with what they may do by their own names
    Ls,
    /// Give an identity another key and certificate; those that it had count too, until the next time
    Renew {
        /// Its name
        #[arg(value_parser = value::name)]
        name: String,
        #[command(flatten)]
        files: FilesArguments,
    },
    /// Hold what a host asks for to so much a second, of each server; without options, show the limits
    #[command(after_help = "Requests past a limit wait, in order. Connections past theirs are refused.\n\n\
        Examples:\n  tepal identity limit web1 --iops 2000 --connections 16\n  tepal identity limit web1 --iops none")]
    Limit {
        /// Its name
        #[arg(value_parser = value::name)]
        name: String,
        #[command(flatten)]
        limits: LimitsArguments,
        /// NBD connections to a server at a time, or none for as many as it likes
        #[arg(long, value_name = "COUNT", value_parser = value::limit)]
        connections: Option<Limit>,
    },
    /// Have an identity count no more: connections of it may do nothing from then on
    Revoke {
        /// Its name
        #[arg(value_parser = value::name)]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct CreateIdentityArguments {
    /// Its name, which must be new
    #[arg(value_parser = value::name)]
    pub name: String,
    /// For a machine that uses volumes, those that are granted to it; this is what it's for if nothing is said
    #[arg(long)]
    pub host: bool,
    /// For a person or program that may do everything
    #[arg(long, conflicts_with = "host")]
    pub operator: bool,
    /// For a server that is to join: `tepal serve --identity` reads the folder
    #[arg(long, conflicts_with_all = ["host", "operator"])]
    pub server: bool,
    /// A group that it belongs to. May be given again
    #[arg(long = "group", value_name = "GROUP", value_parser = value::name)]
    pub groups: Vec<String>,
    #[command(flatten)]
    pub files: FilesArguments,
}

impl CreateIdentityArguments {
    pub fn role(&self) -> Role {
        match (self.operator, self.server) {
            (true, _) => Role::Operator,
            (_, true) => Role::Server,
            (false, false) => Role::Host,
        }
    }
}

#[derive(Debug, Args)]
pub struct FilesArguments {
    /// Write client-cert.pem, client-key.pem and ca-cert.pem to this folder, as QEMU, libnbd and nbd-client read them
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// How many days the certificate counts
    #[arg(long, value_name = "N", default_value_t = DAYS)]
    pub days: u32,
}
