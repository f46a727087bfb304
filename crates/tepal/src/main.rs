//! `tepal`: the one binary. Server, gateway, development cluster, and every management command.

mod attach;
mod cli;
mod client;
mod command;
mod dev;
mod disk;
mod interrupt;
mod locate;
mod output;

use std::process::ExitCode;

/// A write makes and frees a dozen small things, often of many sizes at a time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(cli) => output::conclude(command::run(cli)),
        Err(usage) => usage.print(),
    }
}
