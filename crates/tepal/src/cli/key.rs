//! `tepal key`.

use super::value;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Draw a key that wraps those of encrypted volumes, and write it to a file that only its owner may read
    #[command(
        after_help = "Copy the file to the same folder of every server and gateway that should read and write such volumes, and keep \
        another copy elsewhere: without the key nobody ever reads them again. The cluster doesn't have it.\n\n\
        Examples:\n  tepal key create main --keys /etc/tepal/keys\n  \
        tepal serve --keys /etc/tepal/keys --config /etc/tepal/tepal.toml\n  \
        tepal volume create v0 --size 10G --key main"
    )]
    Create {
        /// What the key is called: 1 to 128 of A-Z a-z 0-9 . _ -
        #[arg(value_parser = value::name)]
        name: String,
        /// The folder, which is made if it isn't there
        #[arg(long, value_name = "DIR")]
        keys: PathBuf,
    },
    /// List the keys of a folder, and where each comes from: a file, a passphrase or a command. None is shown
    Ls {
        /// The folder
        #[arg(long, value_name = "DIR")]
        keys: PathBuf,
    },
}
