//! From tables to a checked workload: the last stage, which sees all threads at once.

use crate::document::Document;
use crate::error::{Report, Reported};
use crate::names::{Interner, NameError, Names};
use crate::program::Program;
use crate::sections::{self, RawMachine};
use crate::thread::{AT_ONCE, RawThread};
use crate::value::ValueError;
use crate::{MAX_THREADS, Step, ThreadSpec, Workload, progress};
use toml::de::DeTable;

/// Reads and checks all tables; every problem of the file is reported before anything is given up.
pub(crate) fn workload<'d>(root: &'d DeTable<'d>, report: &mut Report<'_>) -> Result<Workload, Reported> {
    let document = Document::split(root, report);
    let machine = RawMachine::read(document.machine, report);
    let cpus = machine.as_ref().map_or(mainspring_abi::MAX_CPUS, RawMachine::cpus);
    let costs = document.costs.and_then(|table| sections::costs(table, report));
    let faults = document.faults.and_then(|table| sections::faults(table, report));
    let network = document.network.and_then(|table| sections::network(table, cpus, report));
    let tables = document.threads?;
    let threads: Vec<RawThread<'d>> =
        tables.into_iter().map(|table| RawThread::read(table, cpus, report)).collect();
    let instances = count_instances(&threads, report);

    let mut endpoints = Interner::default();
    let programs = check_programs(&threads, &mut endpoints, report);
    let mut processes = Interner::default();
    let specs: Vec<_> = threads
        .into_iter()
        .zip(programs)
        .map(|(thread, program)| spec(thread, program, &mut processes))
        .collect();
    Ok(Workload {
        machine: machine?.finish(instances?)?,
        costs: costs?,
        faults: faults?,
        network: network?,
        processes: processes.into_names(),
        endpoints: endpoints.into_names(),
        threads: specs.into_iter().collect::<Result<_, _>>()?,
    })
}

fn count_instances(threads: &[RawThread<'_>], report: &mut Report<'_>) -> Result<usize, Reported> {
    let mut total = 0_usize;
    for thread in threads {
        total = total.saturating_add(thread.instances());
        if total > MAX_THREADS {
            let count = thread.count.as_ref().ok().and_then(Option::as_ref);
            let at = count.map_or(&thread.at, |count| &count.at);
            return Err(report.push(at, ValueError::TooManyThreads { total }));
        }
    }
    Ok(total)
}

fn check_programs(
    threads: &[RawThread<'_>],
    endpoints: &mut Interner,
    report: &mut Report<'_>,
) -> Vec<Program> {
    let names = Names::collect(threads, report);
    let programs: Vec<Program> =
        threads.iter().map(|thread| Program::resolve(thread, &names, endpoints, report)).collect();
    for (own, program) in programs.iter().enumerate() {
        program.check(own, threads, report);
    }
    progress::check(threads, &programs, report);
    // A step that could not be read may be the very spawn or recv that would be missed.
    if programs.iter().all(|program| program.failed.is_none()) {
        check_spawned(threads, &programs, &names, report);
        check_received(&programs, endpoints, report);
    }
    programs
}

/// A thread that starts by being spawned must be spawned by one that starts.
fn check_spawned(
    threads: &[RawThread<'_>],
    programs: &[Program],
    names: &Names<'_, '_>,
    report: &mut Report<'_>,
) {
    let mut starts: Vec<bool> = threads.iter().map(|thread| !thread.is_spawned()).collect();
    let mut pending: Vec<usize> = (0..threads.len()).filter(|n| !threads[*n].is_spawned()).collect();
    while let Some(n) = pending.pop() {
        for step in programs.get(n).into_iter().flat_map(|program| &program.steps) {
            if let Step::Spawn(table) = step.value
                && let Some(start @ false) = starts.get_mut(table)
            {
                *start = true;
                pending.push(table);
            }
        }
    }
    for (n, thread) in threads.iter().enumerate().filter(|(n, _)| starts.get(*n) == Some(&false)) {
        let at = thread.name.as_ref().map_or(&thread.at, |name| &name.at);
        report.push(at, NameError::NeverSpawned { name: names.name(n) });
    }
}

/// A call must have somebody who could take it.
fn check_received(programs: &[Program], endpoints: &Interner, report: &mut Report<'_>) {
    let names = endpoints.names();
    let mut received = vec![false; names.len()];
    for step in programs.iter().flat_map(|program| &program.steps) {
        if let Step::Recv { endpoint, .. } = step.value
            && let Some(received) = received.get_mut(endpoint)
        {
            *received = true;
        }
    }
    for step in programs.iter().flat_map(|program| &program.steps) {
        if let Step::Call { endpoint, .. } = step.value
            && received.get(endpoint) == Some(&false)
            && let Some(name) = names.get(endpoint)
        {
            let known = names.iter().zip(&received).filter(|(_, received)| **received);
            let suggestion = report.guess(name, known.map(|(name, _)| name.as_str()));
            report.push(&step.at, NameError::NobodyReceives { endpoint: name.clone(), suggestion });
        }
    }
}

fn spec(thread: RawThread<'_>, program: Program, processes: &mut Interner) -> Result<ThreadSpec, Reported> {
    let name = thread.name?;
    let process = thread.process?.map_or(name.value, |process| process.value);
    if let Some(reported) = program.failed {
        return Err(reported);
    }
    Ok(ThreadSpec {
        name: name.value.into(),
        count: thread.count?.map(|count| count.value),
        process: processes.number(process),
        weight: thread.weight?.unwrap_or_default(),
        latency: thread.latency?.unwrap_or_default(),
        request: thread.request?,
        cpus: thread.cpus?,
        start: thread.start?.unwrap_or(AT_ONCE),
        program: program.steps.into_iter().map(|step| step.value).collect(),
        times: thread.times?,
    })
}
