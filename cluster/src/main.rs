//! `mainspring-cluster`: what `mainspring` runs for all that needs a NATS server.

use clap::{Parser, Subcommand};
use mainspring_cluster::Error;
use mainspring_cluster::status::{StatusArgs, show};
use mainspring_cluster::sweep::dispatch::{DispatchArgs, dispatch};
use mainspring_cluster::sweep::worker::{WorkerArgs, work};
use std::process::ExitCode;

/// Mainspring on more than one machine, over NATS.
#[derive(Debug, Parser)]
#[command(name = "mainspring-cluster", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the server holds of nodes, actors, budgets, sweeps and grants.
    Status(StatusArgs),
    /// Run jobs of sweeps (`mainspring sweep --nats`), until it is stopped.
    Worker(WorkerArgs),
    /// Hand out the jobs of one sweep; `mainspring sweep --nats` talks to it.
    #[command(hide = true)]
    Dispatch(DispatchArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(execute(cli.command));
            // A read of standard input that nobody waits for any more would keep the process.
            runtime.shutdown_background();
            done
        }
        Err(cause) => Err(Error::Peer { who: "this host's threads", cause }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn execute(command: Command) -> Result<(), Error> {
    match command {
        Command::Status(args) => show(&args).await,
        Command::Worker(args) => work(&args).await,
        Command::Dispatch(args) => dispatch(&args).await,
    }
}
