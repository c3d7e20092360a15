//! `mainspring check`.

use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_workload::{ThreadSpec, Workload};

/// Checks every file, then tells all that is wrong with any of them.
pub fn check(args: &CheckArgs, output: Output) -> Result<(), Failure> {
    let mut bad = Vec::new();
    for path in &args.files {
        match input::workload(path) {
            Ok(workload) => {
                let name = input::name(path);
                output.line(format_args!("{name}: {}", summary(&workload)))?;
                for warning in workload.warnings() {
                    output.insist(format_args!("{name}: warning: {warning}"));
                }
            }
            Err(error) => bad.push(error),
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(Failure::Load(bad)) }
}

fn summary(workload: &Workload) -> String {
    let threads: usize = workload.threads.iter().map(ThreadSpec::instances).sum();
    let cpus = workload.machine.cpus;
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    format!("ok, {threads} thread{} on {cpus} CPU{}", plural(threads), plural(cpus))
}
