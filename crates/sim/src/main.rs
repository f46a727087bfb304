//! `sim`: runs scenarios for many seeds, or replays one.

use std::process::ExitCode;

fn main() -> ExitCode {
    tepal_sim::command::main()
}
