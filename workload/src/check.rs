//! From tables to a checked workload: the last stage, which sees all threads at once.

use crate::document::{Document, TableList};
use crate::error::{Report, Reported};
use crate::livelock::{self, Refusals};
use crate::names::{Interner, NameError, Names, Noun};
use crate::program::Program;
use crate::scope::{Contexts, Named, Scope, Sync};
use crate::sections::{self, RawMachine};
use crate::tables::{self, Known};
use crate::thread::{AT_ONCE, RawThread};
use crate::value::ValueError;
use crate::{Call, MAX_THREADS, Places, Step, ThreadSpec, Workload};
use toml::de::DeTable;

/// Reads and checks all tables; every problem of the file is reported before anything is given up.
pub(crate) fn workload<'d>(root: &'d DeTable<'d>, report: &mut Report<'_>) -> Result<Workload, Reported> {
    let document = Document::split(root, report);
    let machine = RawMachine::read(document.machine.clone(), report);
    let cpus = machine.as_ref().map_or(mainspring_abi::MAX_CPUS, RawMachine::cpus);
    let costs = document.costs.clone().and_then(|table| sections::costs(table, report));
    let faults = document.faults.clone().and_then(|table| sections::faults(table, report));
    let network = document.network.clone().and_then(|table| sections::network(table, cpus, report));
    let threads: Vec<RawThread<'d>> =
        document.threads.clone()?.into_iter().map(|table| RawThread::read(table, cpus, report)).collect();
    let instances = count_instances(&threads, report);
    let tables = table_lines(&document, report);

    let scope = scope(&threads, &document, report);
    let declared = Named::collect(Noun::Endpoint, document.endpoints, report);
    let mut endpoints = Interner::default();
    // Endpoints with a table come first, so that table `n` is endpoint `n`.
    for name in declared.tables.iter().filter_map(|table| table.name.as_ref().ok()) {
        endpoints.number(name.value);
    }
    let programs = check_programs(&threads, &scope, &mut endpoints, report);
    let unreadable = programs.iter().find_map(|program| program.failed);
    let mut processes = Interner::default();
    let specs: Vec<_> = threads
        .iter()
        .zip(&programs)
        .map(|(thread, program)| spec(thread, program, &scope, &mut processes, report))
        .collect();
    let specs = specs.into_iter().collect::<Result<Vec<_>, _>>();

    let received = received(&programs, &endpoints);
    let known = Known {
        scope: &scope,
        processes: &processes,
        endpoints: &endpoints,
        received: &received,
        unreadable,
        cpus,
    };
    let contexts = tables::contexts(&known, &threads, report);
    let endpoint_specs = tables::endpoints(&declared, &known, &threads, report);
    let rings = tables::rings(&known, report);
    let sync = tables::sync(&scope.sync, report);
    let distributions = tables::distributions(&scope.distributions, report);
    let named = Named::collect(Noun::Interrupt, document.interrupts, report);
    let interrupts = tables::interrupts(&named, &known, &distributions, report);
    let leases = tables::leases(&known, &specs, &rings, report);
    let islands = tables::islands(&known, report);
    let serves = !matches!(document.policy, Ok(None));
    let policy = document.policy.and_then(|table| tables::policy(table, &known, report));
    let operations = tables::operations(document.operations, serves, &known, report);
    let expectations = tables::expectations(document.expectations, &known, report);
    let sessions = scope.sessions.names();
    let refusals = Refusals::new(!scope.contexts.named.tables.is_empty(), &operations);
    livelock::check(&threads, &programs, &refusals, report);
    let line = |at: &std::ops::Range<usize>| report.line(at);
    let places = Places {
        steps: programs
            .iter()
            .map(|program| program.steps.iter().map(|step| line(&step.at)).collect())
            .collect(),
        threads: threads.iter().map(|thread| line(&thread.at)).collect(),
        tables,
    };
    Ok(Workload {
        places,
        machine: machine?.finish(instances?)?,
        costs: costs?,
        faults: faults?,
        network: network?,
        sessions: sessions?,
        endpoints: endpoint_specs?,
        threads: specs?,
        contexts: contexts?,
        leases: leases?,
        islands: islands?,
        rings: rings?,
        sync: sync?,
        distributions: distributions?,
        interrupts: interrupts?,
        policy: policy?,
        operations: operations?,
        expectations: expectations?,
        processes: processes.into_names(),
    })
}

/// The first line of each kind of table that not every machine can do.
fn table_lines(document: &Document<'_>, report: &Report<'_>) -> Vec<(&'static str, usize)> {
    let lists = [
        ("context", &document.contexts),
        ("endpoint", &document.endpoints),
        ("session", &document.sessions),
        ("lease", &document.leases),
        ("island", &document.islands),
        ("ring", &document.rings),
        ("mutex", &document.mutexes),
        ("interrupt", &document.interrupts),
        ("semaphore", &document.semaphores),
        ("barrier", &document.barriers),
        ("condition", &document.conditions),
        ("at", &document.operations),
    ];
    let first = |tables: &TableList<'_>| Some(tables.as_ref().ok()?.first()?.at.clone());
    let lists = lists.into_iter().filter_map(|(name, tables)| Some((name, first(tables)?)));
    let singles = [
        ("machine", &document.machine),
        ("network", &document.network),
        ("faults", &document.faults),
        ("policy", &document.policy),
    ];
    let singles = singles
        .into_iter()
        .filter_map(|(name, table)| Some((name, table.as_ref().ok()?.as_ref()?.at.clone())));
    lists.chain(singles).map(|(name, at)| (name, report.line(&at))).collect()
}

/// Gathers every name, so that the order of the tables does not matter.
fn scope<'t, 'd>(
    threads: &'t [RawThread<'d>],
    document: &Document<'d>,
    report: &mut Report<'_>,
) -> Scope<'t, 'd> {
    let mut named = |what, tables: &TableList<'d>| Named::collect(what, tables.clone(), report);
    let contexts = named(Noun::Context, &document.contexts);
    let (sessions, leases) = (named(Noun::Session, &document.sessions), named(Noun::Lease, &document.leases));
    let (islands, rings) = (named(Noun::Island, &document.islands), named(Noun::Ring, &document.rings));
    let sync = Sync {
        mutexes: named(Noun::Mutex, &document.mutexes),
        semaphores: named(Noun::Semaphore, &document.semaphores),
        barriers: named(Noun::Barrier, &document.barriers),
        conditions: named(Noun::Condition, &document.conditions),
    };
    let distributions = named(Noun::Distribution, &document.distributions);
    Scope {
        sync,
        distributions,
        threads: Names::collect(threads, report),
        contexts: Contexts::collect(contexts, threads, report),
        sessions,
        leases,
        islands,
        rings,
    }
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
    scope: &Scope<'_, '_>,
    endpoints: &mut Interner,
    report: &mut Report<'_>,
) -> Vec<Program> {
    let programs: Vec<Program> = threads
        .iter()
        .enumerate()
        .map(|(own, thread)| Program::resolve(own, thread, scope, endpoints, report))
        .collect();
    for (own, program) in programs.iter().enumerate() {
        program.check(own, threads, report);
    }
    // A step that could not be read may be the very spawn or recv that would be missed.
    if programs.iter().all(|program| program.failed.is_none()) {
        check_spawned(threads, &programs, &scope.threads, report);
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

/// The endpoints that a thread receives on, by number.
fn received(programs: &[Program], endpoints: &Interner) -> Vec<bool> {
    let mut received = vec![false; endpoints.names().len()];
    for step in programs.iter().flat_map(|program| &program.steps) {
        if let Step::Recv { endpoint, .. } = step.value
            && let Some(received) = received.get_mut(endpoint)
        {
            *received = true;
        }
    }
    received
}

/// A call must have a thread that could take it.
fn check_received(programs: &[Program], endpoints: &Interner, report: &mut Report<'_>) {
    let names = endpoints.names();
    let received = received(programs, endpoints);
    for step in programs.iter().flat_map(|program| &program.steps) {
        if let Step::Call(Call { endpoint, .. }) = step.value
            && received.get(endpoint) == Some(&false)
            && let Some(name) = names.get(endpoint)
        {
            let known = names.iter().zip(&received).filter(|(_, received)| **received);
            let suggestion = report.guess(name, known.map(|(name, _)| name.as_str()));
            report.push(&step.at, NameError::NobodyReceives { endpoint: name.clone(), suggestion });
        }
    }
}

fn spec(
    thread: &RawThread<'_>,
    program: &Program,
    scope: &Scope<'_, '_>,
    processes: &mut Interner,
    report: &mut Report<'_>,
) -> Result<ThreadSpec, Reported> {
    let context = thread
        .context
        .as_ref()
        .map_err(|reported| *reported)
        .and_then(|name| name.as_ref().map(|name| scope.contexts.named.find(name, report)).transpose());
    let session = thread
        .session
        .as_ref()
        .map_err(|reported| *reported)
        .and_then(|name| name.as_ref().map(|name| scope.sessions.find(name, report)).transpose());
    let name = thread.name.as_ref().map_err(|reported| *reported)?;
    let process = thread.process.as_ref().map_err(|reported| *reported)?;
    let process = processes.number(process.as_ref().map_or(name.value, |process| process.value));
    if let Some(reported) = program.failed {
        return Err(reported);
    }
    let count = thread.count.as_ref().map_err(|reported| *reported)?;
    Ok(ThreadSpec {
        name: name.value.into(),
        count: count.as_ref().map(|count| count.value),
        process,
        weight: thread.weight?.unwrap_or_default(),
        latency: thread.latency?.unwrap_or_default(),
        request: thread.request?,
        cpus: thread.cpus?,
        start: thread.start.as_ref().map_err(|reported| *reported)?.clone().unwrap_or(AT_ONCE),
        program: program.steps.iter().map(|step| step.value.clone()).collect(),
        times: thread.times?,
        context: context?,
        session: session?,
        budget: thread.budget?,
    })
}
