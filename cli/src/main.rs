//! `mainspring`: runs workload files, and replays and explains what was recorded.
//!
//! Each command is a module with one function, which prints its result and returns a [`Failure`] otherwise. Nothing
//! but [`output`] touches the terminal, and nothing but `main` decides the exit code.

mod admit;
mod args;
mod boot;
mod check;
mod completions;
mod cpu_records;
mod explain;
mod failure;
mod input;
mod linux;
mod machine_run;
mod outfile;
mod output;
mod progress;
mod qemu;
mod refuse;
mod replay;
mod run;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Cli { command, color, quiet } = Cli::parse();
    let output = Output::new(color, quiet);
    match execute(&command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.complain(&failure);
            failure.exit_code()
        }
    }
}

fn execute(command: &Command, output: Output) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(args, output),
        Command::Admit(args) => admit::admit(args, output),
        Command::Check(args) => check::check(args, output),
        Command::Replay(args) => replay::replay(args, output),
        Command::Explain(args) => explain::explain(args, output),
        Command::Boot(args) => boot::boot(args, output),
        Command::Completions(args) => completions::completions(args, output),
    }
}
