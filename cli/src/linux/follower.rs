//! A run on Linux, followed while it goes on: the workers' records are read as they grow, and their decisions are made again.
//!
//! What is shown is thus what a record of the run shows when it is played back. A worker waits for the copy of at most a part of its
//! record, and for nothing else.

use super::stage::Stage;
use crate::live::Live;
use crate::machine_run::{header, instances};
use crate::output::Output;
use mainspring_abi::CpuId;
use mainspring_record::ReplayError;
use mainspring_record::follow::Following;
use mainspring_report::{ContextReport, EndpointReport, Report};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the run is looked at.
const EVERY: Duration = Duration::from_millis(100);

/// Shows a run until it is over.
pub fn follow(name: &str, stage: &Stage<'_>, live: &Live, over: &AtomicBool, output: Output) {
    if let Err(error) = try_to_follow(name, stage, live, over) {
        output.insist(format_args!("live: what is shown has stopped: {error}"));
    }
}

fn try_to_follow(name: &str, stage: &Stage<'_>, live: &Live, over: &AtomicBool) -> Result<(), ReplayError> {
    let threads: Vec<String> = instances(stage.workload).map(|(name, _)| name).collect();
    let machine = &stage.workload.machine;
    let header = header(name, stage.workload, stage.seed, threads.len(), threads);
    let mut following = Following::new(header, machine.duration)?;
    let mut read = vec![0; machine.cpus];
    while !over.load(Ordering::Relaxed) {
        let mut is_behind = false;
        // The same time for all: what one worker did later may have begun on another that was asked before.
        let asked = stage.runtime.record_time();
        for (worker, read) in read.iter_mut().enumerate() {
            // The record is closed: the run is over.
            let Some(part) = stage.runtime.record_part(worker, *read) else { return Ok(()) };
            *read += part.bytes.len();
            is_behind |= part.more;
            let cpu = CpuId::new(worker).expect("the workload names no CPU beyond the last");
            following.feed(cpu, asked, &part.bytes, part.more)?;
        }
        let mut frame = following.frame(stage.summary())?;
        frame.misses = stage.counts().iter().map(|counts| counts.misses).sum();
        live.show(frame);
        if !is_behind {
            std::thread::park_timeout(EVERY);
        }
    }
    Ok(())
}

impl Stage<'_> {
    /// What the workers' cores do not know: names, and where leases are.
    fn summary(&self) -> Report {
        let specs = self.workload.contexts.iter();
        let contexts = specs.flat_map(|spec| (0..spec.instances()).map(|n| spec.instance_name(n)));
        let endpoints = self.workload.endpoints.iter().enumerate();
        let threads: Vec<String> = instances(self.workload).map(|(name, _)| name).collect();
        Report {
            machine: "linux".to_owned(),
            contexts: contexts.map(|name| ContextReport { name, ..ContextReport::default() }).collect(),
            endpoints: endpoints
                .map(|(n, spec)| {
                    let (callers, servers) = self.workload.users_of(n);
                    EndpointReport { name: spec.name.clone(), callers, servers, ..EndpointReport::default() }
                })
                .collect(),
            leases: self.leases.reports(|instance| threads[instance].clone()),
            ..Report::default()
        }
    }
}
