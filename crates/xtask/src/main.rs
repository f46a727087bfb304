//! The project's own commands, run as `cargo xtask COMMAND`: `check`, `test`, `sim`, `mutants`, `release`, `book` and `bench`.
//!
//! What is a rule of the project is checked by `check`, not remembered. Every command ends with status 0 (all was right),
//! 1 (something was not, and was named) or 2 (wrong usage).

mod bench;
mod book;
mod check;
mod failure;
mod mutants;
mod process;
mod release;
mod sim;
mod test;
mod workspace;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;
use workspace::Workspace;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Formatting, lints, the dependency law, tidiness, licences and documentation
    Check(check::Options),
    /// Every test that this machine can run: units, real clients, and a number of simulated histories
    Test(test::Options),
    /// Simulated histories: many seeds, or one again
    Sim(sim::Options),
    /// Deliberately broken copies, each of which the simulator must catch
    Mutants(mutants::Options),
    /// Tepal as users get it: the stripped binary, Debian's package, the list of what is inside
    Release(release::Options),
    /// The documentation as a site
    Book(book::Options),
    /// Benchmarks; tables and plots go to bench/results/
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = Workspace::find().and_then(|workspace| match &arguments.command {
        Command::Check(options) => check::run(&workspace, options),
        Command::Test(options) => test::run(&workspace, options),
        Command::Sim(options) => sim::run(&workspace, options),
        Command::Mutants(options) => mutants::run(&workspace, options),
        Command::Release(options) => release::run(&workspace, options),
        Command::Book(options) => book::run(&workspace, options),
        Command::Bench { bench } => bench::run(&workspace, bench),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Reported) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
