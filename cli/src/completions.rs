//! `mainspring completions`.

use crate::args::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;

/// Prints a shell's completion script.
pub fn completions(args: &CompletionsArgs, output: Output) -> Result<(), Failure> {
    // Made in memory first: the generator panics when its reader goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "mainspring", &mut script);
    output.write(|stdout| stdout.write_all(&script))
}
