//! `mainspring`: runs workload files, and replays and explains what was recorded.
//!
//! Each command is a module with one function, which prints its result and returns a [`Failure`] otherwise. Nothing
//! but [`output`] touches the terminal, and nothing but `main` decides the exit code.

mod admit;
mod args;
mod boot;
mod check;
mod cluster;
mod completions;
mod cpu_records;
mod deliver;
mod diff;
mod expect;
mod explain;
mod failure;
mod host;
mod import;
mod input;
mod jan;
mod junit;
mod linux;
mod live;
mod machine_run;
mod man;
mod outfile;
mod output;
mod progress;
mod qemu;
mod refuse;
mod replay;
mod report;
mod run;
mod signals;
mod sweep;
mod top;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A helper process of `exec` is this program under another name, and has no command line of ours.
    if let Some(code) = mainspring_host::run::helper() {
        return code;
    }
    let Cli { command, color, quiet } = Cli::parse();
    let output = Output::new(color, quiet);
    // `exec` passes signals on to its program, and other programs that this one becomes must not begin with signals blocked.
    if !matches!(command, Command::Exec(_) | Command::Worker(_) | Command::Cluster(_)) {
        signals::watch();
    }
    match execute(&command, output) {
        Ok(code) => code,
        Err(failure) => {
            output.complain(&failure);
            failure.exit_code()
        }
    }
}

fn execute(command: &Command, output: Output) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Exec(args) => return host::exec::exec(args, output),
        Command::Worker(args) => Err(cluster::become_worker(&args.words)),
        Command::Cluster(args) => Err(cluster::become_it(args.words.iter().cloned())),
        Command::SweepRunner => sweep::runner::run(),
        Command::Ps(args) => host::ps::ps(args, output),
        Command::Run(args) => run::run(args, output),
        Command::Sweep(args) => sweep::sweep(args, output),
        Command::Admit(args) => admit::admit(args, output),
        Command::Check(args) => check::check(args, output),
        Command::Report(args) => report::report(args, output),
        Command::Diff(args) => diff::diff(args, output),
        Command::Replay(args) => replay::replay(args, output),
        Command::Explain(args) => explain::explain(args, output),
        Command::Import(args) => import::import(args, output),
        Command::Top(args) => top::top(args, output),
        Command::Doctor(args) => host::doctor::doctor(args, output),
        Command::Jan(args) => jan::jan(args, output),
        Command::Boot(args) => boot::boot(args, output),
        Command::Man(args) => man::man(args, output),
        Command::Completions(args) => completions::completions(args, output),
    };
    done.map(|()| ExitCode::SUCCESS)
}
