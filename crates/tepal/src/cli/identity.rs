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
    /// The authorities that sign certificates: the cluster's own, and those of others
    #[command(subcommand)]
    Ca(AuthorityCommand),
    /// Have an identity count no more: connections of it may do nothing from then on
    Revoke {
        /// Its name
        #[arg(value_parser = value::name)]
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// List the authorities
    Ls,
    /// Make another authority for the cluster, which is trusted beside the present one
    #[command(
        after_help = "Then renew the identities (`tepal identity renew`), with which they know both, and end with `tepal identity ca \
        finish`. Until then nobody is refused."
    )]
    Rotate,
    /// Have the new authority take the place: servers get certificates of it, and the earlier one isn't trusted any more
    #[command(
        after_help = "Identities that weren't renewed since `rotate` are refused from then on. No connection that is open ends."
    )]
    Finish,
    /// Let an authority of others say who people are; never who is a server
    #[command(after_help = "Whom it certifies is nobody here before an identity says so:\n  \
        tepal identity ca add corp corp-ca.pem\n  tepal identity create ann --operator --authority corp --subject 'Ann Example'")]
    Add {
        /// What it's called here
        #[arg(value_parser = value::name)]
        name: String,
        /// Its certificate, as PEM
        file: PathBuf,
    },
    /// Trust an authority of others no more: the identities that it certifies are revoked
    Rm {
        /// What it's called here
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
    /// It has its certificate from this authority of others: nothing is made here
    #[arg(long, value_name = "NAME", value_parser = value::name, requires = "subject", conflicts_with_all = ["to", "server", "addresses"])]
    pub authority: Option<String>,
    /// The common name of the subject of its certificate
    #[arg(long, value_name = "TEXT", requires = "authority")]
    pub subject: Option<String>,
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
    /// A name or address by which clients find a gateway on this host, which serves them over TLS then. May be given again
    #[arg(long = "address", value_name = "NAME")]
    pub addresses: Vec<String>,
}
