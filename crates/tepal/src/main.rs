//! `tepal`: the one binary. Server, gateway, development cluster, and every management command.

mod apply;
mod attach;
mod cli;
mod client;
mod command;
mod credentials;
mod dev;
mod difference_file;
mod disk;
mod interrupt;
mod locate;
mod output;
mod picture;
mod rbd_stream;

use nix::sys::signal::{SigHandler, Signal, signal};
use std::process::ExitCode;

/// A write makes and frees a dozen small things, often of many sizes at a time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    bear_file_limits();
    match cli::parse(std::env::args_os()) {
        Ok(cli) => output::conclude(command::run(cli)),
        Err(usage) => usage.print(),
    }
}

/// A file that may not grow any more (`ulimit -f`) is an error to whoever writes it, not a silent end of the process.
fn bear_file_limits() {
    // SAFETY: ignoring a signal runs no code when it comes.
    let ignored = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    ignored.expect("the signal exists");
}
