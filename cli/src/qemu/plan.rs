//! A workload as the words that the kernel's workload program reads.

use mainspring_abi::kernel::{ISLAND_NODES, RELEASE_NS};
use mainspring_abi::plan::{
    ISLAND_WORDS, LEASE_WORDS, MAGIC, NODE_WORDS, NONE, RING_WORDS, mode, operation, overrun,
};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy};
use mainspring_program::Coded;
use mainspring_workload::{
    Account, Calls, ContextSpec, ContextTarget, InterruptSpec, IslandSpec, LeaseMode, LeaseSpec, LeaseStart,
    Locks, MAX_THREADS, Network, Operation, Overrun, Residency, RingSpec, Start, Step, ThreadSpec,
    ThreadTarget, TimedOperation, Workload,
};
use std::fmt::Write;

/// Instances that one process of the kernel has room for, beside the thread that starts them.
const INSTANCES: usize = 100;
/// All of them together, and the processes: the kernel's tables, with room to spare.
const ALL_INSTANCES: usize = 400;
const PROCESSES: usize = 60;
const CPUS: usize = 16;
const ENDPOINTS: usize = 32;
/// Contexts of one process of the kernel, and of all together.
const CONTEXTS_EACH: usize = 8;
const CONTEXTS: usize = 64;
/// Islands, nodes of one, and leases of one process.
const ISLANDS: usize = 8;
const NODES: usize = ISLAND_NODES;
const LEASES_EACH: usize = 8;
/// Capabilities that a process begins with, beside those that every one has.
const GRANTS: usize = 17;
/// Changes that one update of the policy service may have.
const CHANGES: usize = 16;
/// Threads whose treatment the policy service may set.
const TREATED: usize = 64;

/// The boot manifest: how to schedule, and the program with its capabilities.
pub fn manifest(workload: &Workload, record_bytes: usize) -> String {
    let machine = &workload.machine;
    let policy = match machine.policy {
        Policy::Eevdf => "eevdf",
        Policy::Wfq => "wfq",
    };
    let mut manifest = format!(
        "policy {policy}\nquantum_ns {}\ntick_ns {}\nfloor_ppm {}\nrecord_bytes {record_bytes}\n",
        machine.quantum.get(),
        machine.tick.get(),
        machine.floor_ppm,
    );
    if let Some(policy) = &workload.policy {
        let _ = writeln!(manifest, "policy_slow_ns {}", policy.timeout.get().max(1));
    }
    for (number, endpoint) in workload.endpoints.iter().enumerate() {
        let donation = if endpoint.donation { "on" } else { "off" };
        let window = if endpoint.reorder { endpoint.window } else { 1 };
        let _ = writeln!(manifest, "endpoint {number} donation={donation} window={window}");
    }
    let layout = Layout::of(workload);
    for process in 0..layout.count() {
        let mut caps = String::from("console,timer,threads,control,park,policy,info");
        for grant in layout.grants(workload, process) {
            let _ = write!(caps, ",{grant}");
        }
        let _ = writeln!(manifest, "start workload {caps} data=plan -- {process}");
    }
    manifest
}

/// What the manifest says of a context. One that is spent under a lease is spent on the CPUs of that.
fn granted(workload: &Workload, number: usize) -> String {
    let spec = &workload.contexts[number];
    let mut text = format!("{}/{}", spec.budget.get(), spec.period.get());
    let _ = write!(text, ":deadline={}:criticality={}", spec.deadline.get(), spec.criticality);
    let _ = write!(text, ":priority={}:refills={}:depth={}", spec.priority, spec.refills, spec.depth);
    let leased = leased_to(workload, number);
    if spec.cpus.is_some() || leased.is_some() {
        let all = bits(&CpuSet::first(workload.machine.cpus));
        let own = spec.cpus.as_ref().map_or(all, bits);
        let _ = write!(text, ":cpus={}", own & leased.filter(|leased| own & leased != 0).unwrap_or(all));
    }
    match spec.overrun {
        Overrun::Throttle => {}
        Overrun::Notify => text.push_str(":overrun=notify"),
        Overrun::Fault => text.push_str(":overrun=fault"),
        Overrun::Shutdown => text.push_str(":overrun=shutdown"),
    }
    if let Some(endpoint) = spec.timeout_endpoint {
        let _ = write!(text, ":handler={endpoint}");
    }
    text
}

/// The CPUs on which a lease has a context spent, bit by bit.
fn leased_to(workload: &Workload, context: usize) -> Option<u64> {
    let spends = |lease: &&LeaseSpec| match lease.account {
        Account::Context(target) => target.context == context,
        Account::Ledger => workload.threads[lease.thread.thread].context == Some(context),
    };
    workload.leases.iter().find(spends).map(|lease| bits(&lease.cpus))
}

/// The table whose thread, or whose process's first thread, asks for a lease: that of the ring that is polled, if one is.
fn asker(workload: &Workload, lease: &LeaseSpec) -> usize {
    lease.ring.map_or(lease.thread.thread, |ring| workload.rings[ring].owner.thread)
}

/// The nodes of an island, each as a context table and an instance.
pub fn nodes<'w>(
    workload: &'w Workload,
    island: &'w IslandSpec,
) -> impl Iterator<Item = (usize, usize)> + 'w {
    island.nodes.iter().flat_map(|node| {
        let all = 0..workload.contexts[node.context].instances();
        let named = node.instance.map_or(all, |one| one as usize..one as usize + 1);
        named.map(|instance| (node.context, instance))
    })
}

/// The island that an instance of a context is a node of.
pub fn island_of(workload: &Workload, context: usize, instance: usize) -> Option<usize> {
    workload.islands.iter().position(|island| nodes(workload, island).any(|node| node == (context, instance)))
}

/// The lease under which the kernel polls, in the place of the threads of a table.
pub fn polled_by(workload: &Workload, table: usize) -> Option<&LeaseSpec> {
    let polls = |lease: &&LeaseSpec| lease.mode == LeaseMode::KernelSqpoll && lease.thread.thread == table;
    workload.leases.iter().find(polls)
}

/// How many processes of the kernel the workload takes.
pub fn process_count(workload: &Workload) -> usize {
    Layout::of(workload).count()
}

/// Which process of the kernel each table, context and session of the workload is in.
struct Layout {
    /// By table.
    threads: Vec<usize>,
    /// By context table.
    contexts: Vec<usize>,
    /// By session. `None` if no table is in it.
    sessions: Vec<Option<usize>>,
    /// By device, and of the network: who has the threads that it wakes, or leases its CPU, or the first.
    devices: Vec<usize>,
    network: usize,
}

impl Layout {
    /// The workload's own processes, but for tables that have something in common which a process of the kernel has to itself:
    /// memory, if their threads unpark, spawn, join or synchronise with each other; a context that both use; a session.
    fn of(workload: &Workload) -> Self {
        let mut threads: Vec<usize> = workload.threads.iter().map(|spec| spec.process).collect();
        let mut merge = |one: usize, other: usize| {
            let (gone, stays) = (threads[other], threads[one]);
            threads.iter_mut().filter(|process| **process == gone).for_each(|process| *process = stays);
        };
        let mut of_context = vec![None; workload.contexts.len()];
        let mut of_session = vec![None; workload.sessions.len()];
        let mut of_sync = vec![None; workload.sync.len()];
        for (table, spec) in workload.threads.iter().enumerate() {
            for step in &spec.program {
                match step {
                    Step::Unpark(whom) | Step::Join { target: whom, .. } => merge(table, whom.thread),
                    Step::Spawn(other) => merge(table, *other),
                    _ => {}
                }
                for object in step.sync_objects().into_iter().flatten() {
                    merge(*of_sync[object].get_or_insert(table), table);
                }
            }
            let stepped = spec.program.iter().filter_map(context_of);
            for context in spec.context.into_iter().chain(stepped) {
                merge(*of_context[context].get_or_insert(table), table);
            }
            if let Some(session) = spec.session {
                merge(*of_session[session].get_or_insert(table), table);
            }
            for step in &spec.program {
                if let Step::Lease(lease) | Step::Release(lease) = step {
                    merge(asker(workload, &workload.leases[*lease]), table);
                }
            }
        }
        for island in &workload.islands {
            let mut tables = island.nodes.iter().filter_map(|node| of_context[node.context]);
            if let Some(first) = tables.next() {
                tables.for_each(|table| merge(first, table));
            }
        }
        for lease in &workload.leases {
            let asks = asker(workload, lease);
            merge(asks, lease.thread.thread);
            if let Account::Context(target) = lease.account {
                merge(*of_context[target.context].get_or_insert(asks), asks);
            }
            // Threads that may run on its CPUs alone are made before it is asked for.
            for (table, spec) in workload.threads.iter().enumerate() {
                if spec.cpus.as_ref().is_some_and(|cpus| cpus.without(&lease.cpus).is_empty()) {
                    merge(asks, table);
                }
            }
        }
        // A driver on a CPU that is leased is made before that is asked for.
        let lessor = |cpu: usize| {
            let has = |lease: &&LeaseSpec| lease.cpus.iter().any(|leased| leased.index() == cpu);
            workload.leases.iter().find(has).map(|lease| asker(workload, lease))
        };
        let driven =
            |device: &InterruptSpec| device.wakes.map(|woken| woken.thread).or_else(|| lessor(device.cpu));
        for device in &workload.interrupts {
            if let (Some(woken), Some(asks)) = (device.wakes, lessor(device.cpu)) {
                merge(asks, woken.thread);
            }
        }
        // The service tells the kernel of threads by what its process knows of them.
        if let Some(policy) = &workload.policy {
            for at in &workload.operations {
                if let Operation::PolicyWeight { thread, .. } | Operation::PolicyProfile { thread, .. } =
                    at.operation
                {
                    merge(policy.service.thread, thread.thread);
                }
            }
        }
        // Numbered without gaps, in the order of the tables.
        let mut met = Vec::new();
        for one in &mut threads {
            let number = met.iter().position(|known| known == one).unwrap_or(met.len());
            if number == met.len() {
                met.push(*one);
            }
            *one = number;
        }
        let contexts = of_context.into_iter().map(|table| table.map_or(0, |table| threads[table])).collect();
        let sessions = of_session.into_iter().map(|table| table.map(|table| threads[table])).collect();
        let of = |table: Option<usize>| table.map_or(0, |table| threads[table]);
        let devices = workload.interrupts.iter().map(|device| of(driven(device))).collect();
        let network = of(workload.network.as_ref().and_then(|network| lessor(network.cpu)));
        Self { devices, network, threads, contexts, sessions }
    }

    fn count(&self) -> usize {
        self.threads.iter().max().map_or(1, |last| last + 1)
    }

    /// What the process is granted beside what each is: endpoints that its threads use, its contexts, its session.
    fn grants(&self, workload: &Workload, process: usize) -> Vec<String> {
        let tables = || workload.threads.iter().zip(&self.threads).filter(|(_, of)| **of == process);
        let uses = |is: &dyn Fn(&Step) -> bool| tables().any(|(spec, _)| spec.program.iter().any(is));
        let mut grants = Vec::new();
        for endpoint in 0..workload.endpoints.len() {
            let hears = |lease: &LeaseSpec| {
                self.threads[asker(workload, lease)] == process && lease.revoke_endpoint == Some(endpoint)
            };
            let calls = uses(&|step| matches!(step, Step::Call(call) if call.endpoint == endpoint));
            if calls || workload.leases.iter().any(hears) {
                grants.push(format!("call:{endpoint}"));
            }
            let closes = |at: &TimedOperation| {
                at.operation == Operation::CloseEndpoint(endpoint)
                    && self.of_server(workload, endpoint) == process
            };
            let serves = uses(&|step| matches!(step, Step::Recv { endpoint: at, .. } if *at == endpoint));
            if serves || workload.operations.iter().any(closes) {
                grants.push(format!("serve:{endpoint}"));
            }
        }
        for (number, spec) in workload.contexts.iter().enumerate() {
            let own = |instance: &usize| {
                self.contexts[number] == process && island_of(workload, number, *instance).is_none()
            };
            let instances = (0..spec.instances()).filter(own);
            grants.extend(
                instances
                    .map(|instance| format!("context:{number}.{instance}={}", granted(workload, number))),
            );
        }
        if workload.leases.iter().any(|lease| self.threads[asker(workload, lease)] == process) {
            grants.push("leases:any".to_owned());
        }
        let percent = self.islands_percent(workload, process);
        if percent > 0 {
            grants.extend([format!("islands:{percent}"), "memory".to_owned()]);
        }
        let more = self.adjusted_percent(workload, process);
        if more > 0 {
            grants.push(format!("time:{more}"));
        }
        if self.sessions.contains(&Some(process)) {
            grants.push("session".to_owned());
        }
        if let Some(policy) = &workload.policy {
            let of = |target: ThreadTarget| self.threads[target.thread] == process;
            let recovers = policy.recovery.is_some_and(of);
            if of(policy.service) || recovers {
                grants.push("policy-service".to_owned());
            }
            if recovers {
                grants.push("recovery".to_owned());
            }
        }
        grants
    }
}

impl Layout {
    /// The process that closes an endpoint: the first that serves it, or the first of all.
    fn of_server(&self, workload: &Workload, endpoint: usize) -> usize {
        let serves = |spec: &ThreadSpec| {
            spec.program.iter().any(|step| matches!(step, Step::Recv { endpoint: at, .. } if *at == endpoint))
        };
        workload.threads.iter().position(serves).map_or(0, |table| self.threads[table])
    }

    /// The process that has an island: that of its nodes.
    fn of_island(&self, island: &IslandSpec) -> usize {
        island.nodes.first().map_or(0, |node| self.contexts[node.context])
    }

    /// What the islands of a process need, in hundredths of a CPU; at most what the kernel grants.
    fn islands_percent(&self, workload: &Workload, process: usize) -> u64 {
        let own = workload.islands.iter().filter(|island| self.of_island(island) == process);
        let ppm = own.flat_map(|island| {
            nodes(workload, island).map(|(context, _)| {
                let ContextSpec { budget, period, deadline, .. } = &workload.contexts[context];
                let window = *period.min(deadline).min(&island.deadline);
                (1_000_000 * (budget.get() + RELEASE_NS)).div_ceil(window.get().max(1))
            })
        });
        ppm.sum::<u64>().div_ceil(10_000).min(100)
    }

    /// What operations may ask for beyond what the contexts of a process were granted, in hundredths of a CPU.
    fn adjusted_percent(&self, workload: &Workload, process: usize) -> u64 {
        let percent =
            |budget: Nanos, window: Nanos| (100 * (budget.get() + RELEASE_NS)).div_ceil(window.get().max(1));
        let asked = workload.operations.iter().map(|at| match at.operation {
            Operation::Adjust { context, budget, period } if self.contexts[context.context] == process => {
                let spec = &workload.contexts[context.context];
                let instances = if context.instance.is_some() { 1 } else { spec.instances() as u64 };
                let before = 100 * spec.budget.get() / spec.deadline.get().max(1);
                let window = spec.deadline.min(period).max(budget);
                instances * percent(budget, window).saturating_sub(before)
            }
            _ => 0,
        });
        asked.sum::<u64>().min(100)
    }
}

/// The context that a step names.
fn context_of(step: &Step) -> Option<usize> {
    match step {
        Step::Bind(target) | Step::Revoke(target) | Step::Drain(target) => Some(target.context),
        _ => None,
    }
}

/// The contexts, each as a table and an instance, in the order of their numbers on the kernel, which are those of the manifest.
pub fn contexts(workload: &Workload) -> Vec<(usize, usize)> {
    let layout = Layout::of(workload);
    let mut tables: Vec<usize> = (0..workload.contexts.len()).collect();
    tables.sort_by_key(|table| layout.contexts[*table]);
    let of = |table: usize| (0..workload.contexts[table].instances()).map(move |instance| (table, instance));
    tables.into_iter().flat_map(of).collect()
}

/// The session that a table is in although another one is in the same process of the kernel, which has one session.
pub fn second_session(workload: &Workload) -> Option<usize> {
    let layout = Layout::of(workload);
    workload.threads.iter().enumerate().find_map(|(table, spec)| {
        let others = workload.threads.iter().zip(&layout.threads);
        let differs = |other: &ThreadSpec| other.session != spec.session;
        let mixed = others.into_iter().any(|(other, of)| *of == layout.threads[table] && differs(other));
        (spec.session.is_some() && mixed).then_some(table)
    })
}

/// What the workload takes of the kernel's tables: how many of what, and how many there are.
pub fn needs(workload: &Workload) -> [(usize, &'static str, usize); 13] {
    let layout = Layout::of(workload);
    let mut instances = vec![0; layout.count()];
    for (spec, process) in workload.threads.iter().zip(&layout.threads) {
        instances[*process] += spec.instances();
    }
    for process in layout.devices.iter().chain(workload.network.as_ref().map(|_| &layout.network)) {
        instances[*process] += 1;
    }
    let treated = |at: &TimedOperation| match at.operation {
        Operation::PolicyWeight { thread, .. } | Operation::PolicyProfile { thread, .. } => Some(thread),
        _ => None,
    };
    let named = |target: ThreadTarget| match target.instance {
        Some(_) => 1,
        None => workload.threads[target.thread].instances(),
    };
    let mut treated: Vec<ThreadTarget> = workload.operations.iter().filter_map(treated).collect();
    let changes = treated.iter().copied().map(named).max();
    treated.sort_unstable_by_key(|target| (target.thread, target.instance));
    treated.dedup();
    let all_treated = treated.into_iter().map(named).sum();
    let mut contexts = vec![0; layout.count()];
    for (number, (spec, process)) in workload.contexts.iter().zip(&layout.contexts).enumerate() {
        let plain = |instance: &usize| island_of(workload, number, *instance).is_none();
        contexts[*process] += (0..spec.instances()).filter(plain).count();
    }
    let nodes = workload.islands.iter().map(|island| nodes(workload, island).count());
    let mut leases = vec![0; layout.count()];
    for lease in &workload.leases {
        leases[layout.threads[asker(workload, lease)]] += 1;
    }
    let all_contexts = contexts.iter().sum();
    let grants = (0..layout.count()).map(|process| layout.grants(workload, process).len()).max();
    let most = instances.iter().max().copied().unwrap_or(0);
    [
        (workload.machine.cpus, "CPUs", CPUS),
        (workload.endpoints.len(), "endpoints", ENDPOINTS),
        (instances.len(), "processes", PROCESSES),
        (most, "threads in one process", INSTANCES),
        (instances.iter().sum(), "threads", ALL_INSTANCES),
        (contexts.into_iter().max().unwrap_or(0), "contexts in one process", CONTEXTS_EACH),
        (all_contexts, "contexts", CONTEXTS),
        (workload.islands.len(), "islands", ISLANDS),
        (nodes.max().unwrap_or(0), "nodes in one island", NODES),
        (leases.into_iter().max().unwrap_or(0), "leases in one process", LEASES_EACH),
        (grants.unwrap_or(0), "endpoints and contexts that one process uses", GRANTS),
        (changes.unwrap_or(0), "threads in one update of the policy service", CHANGES),
        (all_treated, "threads that the policy service treats", TREATED),
    ]
}

/// The plan of a workload that the kernel can do.
pub fn encode(workload: &Workload, seed: u64) -> Vec<u8> {
    let layout = Layout::of(workload);
    let machine = &workload.machine;
    let counts = [
        workload.threads.len(),
        workload.contexts.len(),
        workload.operations.len(),
        workload.leases.len(),
        workload.rings.len(),
        workload.islands.len(),
    ];
    let mut words = vec![MAGIC, machine.duration.get(), seed];
    words.extend(counts.map(|count| count as u64));
    for (spec, process) in workload.threads.iter().zip(&layout.threads) {
        table(spec, *process, &mut words);
    }
    for (spec, process) in workload.contexts.iter().zip(&layout.contexts) {
        words.extend([*process as u64, spec.instances() as u64]);
    }
    let serves = workload.policy.as_ref().map_or(0, |policy| layout.threads[policy.service.thread]);
    for at in &workload.operations {
        let named = |ContextTarget { context, instance }: ContextTarget| {
            (layout.contexts[context], [context as u64, instance.map_or(NONE, u64::from)])
        };
        let (process, what) = match at.operation {
            Operation::Revoke(context) => {
                let (process, [context, instance]) = named(context);
                (process, [operation::REVOKE, context, instance, 0, 0])
            }
            Operation::Adjust { context, budget, period } => {
                let (process, [context, instance]) = named(context);
                (process, [operation::ADJUST, context, instance, budget.get(), period.get()])
            }
            Operation::Logout(session) => {
                (layout.sessions[session].unwrap_or(0), [operation::LOGOUT, 0, 0, 0, 0])
            }
            Operation::Exit(whom) => {
                let [table, instance] = target(whom);
                (layout.threads[whom.thread], [operation::EXIT, table, instance, 0, 0])
            }
            Operation::RevokeLease(lease) => {
                let asks = asker(workload, &workload.leases[lease]);
                (layout.threads[asks], [operation::REVOKE_LEASE, lease as u64, 0, 0, 0])
            }
            Operation::LeaveIsland(island) => {
                let process = layout.of_island(&workload.islands[island]);
                (process, [operation::LEAVE, island as u64, 0, 0, 0])
            }
            Operation::CloseEndpoint(endpoint) => {
                (layout.of_server(workload, endpoint), [operation::CLOSE, endpoint as u64, 0, 0, 0])
            }
            Operation::PolicyWeight { thread, weight, epoch } => {
                let [table, instance] = target(thread);
                (serves, [operation::POLICY_WEIGHT, table, instance, weight.get().into(), epoch])
            }
            Operation::PolicyProfile { thread, latency, epoch } => {
                let [table, instance] = target(thread);
                (serves, [operation::POLICY_CLASS, table, instance, class(latency), epoch])
            }
            Operation::PolicyStalls => (serves, [operation::POLICY_STALLS, 0, 0, 0, 0]),
            Operation::PolicyDies => (serves, [operation::POLICY_DIES, 0, 0, 0, 0]),
        };
        words.extend([process as u64, at.time.get()]);
        words.extend(what);
    }
    for spec in &workload.leases {
        words.extend(lease(workload, &layout, spec));
    }
    words.extend(workload.rings.iter().flat_map(ring));
    for spec in &workload.islands {
        words.extend(island(workload, &layout, spec));
    }
    workload.distributions.iter().map(|spec| spec.kind.clone()).collect::<Vec<_>>().write(&mut words);
    workload.sync.iter().map(|spec| spec.kind).collect::<Vec<_>>().write(&mut words);
    words.push(workload.interrupts.len() as u64);
    for (number, (spec, process)) in workload.interrupts.iter().zip(&layout.devices).enumerate() {
        device(spec, *process, number, &mut words);
    }
    words.push(workload.network.is_some().into());
    if let Some(Network { cpu, every, work, budget, clock }) = &workload.network {
        words.extend([layout.network as u64, *cpu as u64, every.get(), work.get(), budget.get()]);
        words.extend([u64::from(*clock), machine.tick.get()]);
    }
    words.push(workload.policy.is_some().into());
    if let Some(policy) = &workload.policy {
        words.push(serves as u64);
        words.extend(target(policy.service));
        words.extend(policy.recovery.map_or([NONE; 2], target));
        words.push(policy.epoch);
    }
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The number of a latency class.
fn class(class: LatencyClass) -> u64 {
    match class {
        LatencyClass::Interactive => 0,
        LatencyClass::Normal => 1,
        LatencyClass::Batch => 2,
    }
}

fn device(spec: &InterruptSpec, process: usize, number: usize, words: &mut Vec<u64>) {
    words.extend([process as u64, spec.cpu as u64, spec.burst.into()]);
    words.extend(spec.wakes.map_or([NONE; 2], target));
    // Its draws are those of the simulator's device.
    words.push((number + MAX_THREADS) as u64);
    spec.every.write(words);
    spec.work.write(words);
}

fn table(spec: &ThreadSpec, process: usize, words: &mut Vec<u64>) {
    let (earliest, latest) = match spec.start {
        Start::At(span) => (span.min.get(), span.max.get()),
        Start::Spawned => (NONE, NONE),
    };
    words.extend([
        process as u64,
        spec.instances() as u64,
        u64::from(spec.weight.get()),
        class(spec.latency),
        spec.request.map_or(0, Nanos::get),
        spec.cpus.as_ref().map_or(0, bits),
        earliest,
        latest,
        spec.times.unwrap_or(NONE),
        spec.context.map_or(NONE, |context| context as u64),
    ]);
    spec.program.write(words);
}

fn lease(workload: &Workload, layout: &Layout, spec: &LeaseSpec) -> [u64; LEASE_WORDS] {
    let [table, instance] = target(spec.thread);
    let (context, of_context) = match spec.account {
        Account::Ledger => (NONE, NONE),
        Account::Context(target) => (target.context as u64, target.instance.map_or(NONE, u64::from)),
    };
    let mode = match spec.mode {
        LeaseMode::Compute => mode::COMPUTE,
        LeaseMode::Poller => mode::POLLER,
        LeaseMode::KernelSqpoll => mode::KERNEL_SQPOLL,
        LeaseMode::KernelWorker => mode::KERNEL_WORKER,
    };
    [
        layout.threads[asker(workload, spec)] as u64,
        table,
        instance,
        bits(&spec.cpus),
        mode,
        spec.ring.map_or(NONE, |ring| ring as u64),
        context,
        of_context,
        spec.max_revocation.get(),
        spec.lifetime.map_or(0, Nanos::get),
        spec.revoke_endpoint.map_or(NONE, |endpoint| endpoint as u64),
        spec.nohz.into(),
        match spec.start {
            LeaseStart::At(at) => at.get(),
            LeaseStart::Step => NONE,
        },
    ]
}

/// A page of the kernel.
const PAGE: u64 = 4096;

/// What an island says of its hot path that refuses it, bit by bit.
fn declared(spec: &IslandSpec) -> u64 {
    let normal = spec.memory.iter().any(|memory| memory.residency == Residency::Normal);
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    flag(spec.locks == Locks::Unbounded, overrun::UNBOUNDED_LOCKS)
        | flag(spec.calls == Calls::Blocking, overrun::BLOCKING_CALLS)
        | flag(normal, overrun::NORMAL_MEMORY)
}

fn island(workload: &Workload, layout: &Layout, spec: &IslandSpec) -> Vec<u64> {
    let pages = spec.memory.iter().map(|memory| memory.bytes.div_ceil(PAGE)).sum();
    let all: Vec<_> = nodes(workload, spec).collect();
    let head: [u64; ISLAND_WORDS] = [
        layout.of_island(spec) as u64,
        spec.start.get(),
        spec.period.get(),
        spec.deadline.get(),
        spec.cpus.as_ref().map_or(0, bits),
        match spec.overrun {
            Overrun::Throttle => overrun::THROTTLE,
            Overrun::Notify => overrun::NOTIFY,
            Overrun::Fault => overrun::FAULT,
            Overrun::Shutdown => overrun::SHUTDOWN,
        } | declared(spec) << overrun::DECLARED,
        pages,
        all.len() as u64,
    ];
    let node = |(context, instance): (usize, usize)| -> [u64; NODE_WORDS] {
        let grants = &workload.contexts[context];
        [
            context as u64,
            instance as u64,
            grants.budget.get(),
            grants.period.get(),
            grants.deadline.min(spec.deadline).get(),
            grants.cpus.as_ref().map_or(0, bits),
        ]
    };
    head.into_iter().chain(all.into_iter().flat_map(node)).collect()
}

fn ring(spec: &RingSpec) -> [u64; RING_WORDS] {
    let [table, instance] = target(spec.owner);
    [table, instance, spec.idle_spin.get()]
}

fn bits(cpus: &CpuSet) -> u64 {
    (0..CPUS)
        .filter(|cpu| CpuId::new(*cpu).is_ok_and(|cpu| cpus.contains(cpu)))
        .fold(0, |bits, cpu| bits | 1 << cpu)
}

fn target(target: ThreadTarget) -> [u64; 2] {
    [target.thread as u64, target.instance.map_or(NONE, u64::from)]
}

/// Whether the kernel's workload program plays the step.
pub fn plays(step: &Step) -> bool {
    !matches!(step, Step::Alloc(_) | Step::Syscall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::plan::{HEADER_WORDS, TABLE_WORDS};
    use mainspring_program::Words;

    fn workload(text: &str) -> Workload {
        mainspring_workload::parse("test.toml", text).expect("the test's workload is one")
    }

    /// The tables of a plan, each with its steps.
    fn tables<const N: usize>(plan: &[u64]) -> [([u64; TABLE_WORDS], Vec<Step>); N] {
        let mut words = Words::new(&plan[HEADER_WORDS..]);
        let table = |_| (words.take().expect("a table"), Coded::read(&mut words).expect("steps"));
        std::array::from_fn(table)
    }

    fn read(bytes: &[u8]) -> Vec<u64> {
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    }

    #[test]
    fn a_plan_has_a_table_per_thread_table_with_its_steps_as_they_are() {
        let workload = workload(
            r#"
            [machine]
            cpus = 2
            duration = "50ms"
            [[thread]]
            name = "a"
            count = 3
            weight = 128
            cpus = [1]
            program = ["run 1ms..2ms", "call shop 5ms", "unpark b", "yield"]
            [[thread]]
            name = "b"
            program = ["recv shop", "reply", "park"]
            "#,
        );
        let plan = read(&encode(&workload, 7));
        assert_eq!(plan[..HEADER_WORDS], [MAGIC, 50_000_000, 7, 2, 0, 0, 0, 0, 0]);
        let tables = tables::<2>(&plan);
        assert_eq!(tables[0].0, [0, 3, 128, 1, 0, 0b10, 0, 0, NONE, NONE]);
        assert_eq!(tables[0].1, workload.threads[0].program);
        assert_eq!(tables[1].1, workload.threads[1].program);
        assert!(manifest(&workload, 1000).contains("call:0,serve:0"));
    }

    #[test]
    fn processes_are_those_of_the_workload_but_for_threads_that_need_memory_in_common() {
        let workload = workload(
            r#"
            [[thread]]
            name = "alone"
            program = ["run 1ms", "call shop"]
            [[thread]]
            name = "a"
            process = "pair"
            program = ["run 1ms", "sleep 1ms"]
            [[thread]]
            name = "waker"
            program = ["unpark sleeper", "run 1ms"]
            [[thread]]
            name = "b"
            process = "pair"
            program = ["recv shop", "reply"]
            [[thread]]
            name = "sleeper"
            process = "bed"
            program = ["park", "run 1ms"]
            "#,
        );
        assert_eq!(Layout::of(&workload).threads, [0, 1, 2, 1, 2]);
        let manifest = manifest(&workload, 1000);
        let starts: Vec<_> = manifest.lines().filter(|line| line.starts_with("start ")).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts[1].ends_with("serve:0 data=plan -- 1"), "{manifest}");
        assert!(starts[2].ends_with("info data=plan -- 2"), "{manifest}");
        let plan = read(&encode(&workload, 7));
        assert_eq!(tables::<5>(&plan).map(|(table, _)| table[0]), [0, 1, 2, 1, 2]);
    }

    #[test]
    fn contexts_and_sessions_go_to_the_process_of_those_who_use_them() {
        let workload = workload(
            r#"
            [[session]]
            name = "alice"
            [[endpoint]]
            name = "shop"
            donation = false
            reorder = true
            window = 4
            [[context]]
            name = "late"
            budget = "1ms"
            period = "10ms"
            [[context]]
            name = "early"
            budget = "2ms"
            period = "20ms"
            deadline = "15ms"
            criticality = 1
            overrun = "notify"
            [[thread]]
            name = "a"
            session = "alice"
            context = "early"
            program = ["run 1ms", "call shop needs 1ms deadline 5ms drop", "every 20ms"]
            [[thread]]
            name = "b"
            context = "late"
            program = ["recv shop", "throw"]
            [[at]]
            time = "3ms"
            do = "revoke late"
            [[at]]
            time = "5ms"
            do = "logout alice"
            "#,
        );
        let manifest = manifest(&workload, 1000);
        assert!(manifest.contains("endpoint 0 donation=off window=4\n"), "{manifest}");
        let early = "context:1.0=2000000/20000000:deadline=15000000:criticality=1:priority=0:refills=8:depth=8:overrun=notify";
        assert!(manifest.contains(&format!("info,call:0,{early},session data=plan -- 0\n")), "{manifest}");
        assert!(manifest.contains("info,serve:0,context:0.0=1000000/10000000"), "{manifest}");
        assert_eq!(contexts(&workload), [(1, 0), (0, 0)], "in the order of the processes");
        let plan = read(&encode(&workload, 7));
        assert_eq!(plan[3..HEADER_WORDS], [2, 2, 2, 0, 0, 0]);
        // No distribution, nothing to wait at, no device, no network and no policy service stand last.
        let end = plan.len() - 5;
        assert_eq!(plan[end..], [0; 5]);
        assert_eq!(plan[end - 14..end - 7], [1, 3_000_000, operation::REVOKE, 0, NONE, 0, 0]);
        assert_eq!(plan[end - 7..end], [0, 5_000_000, operation::LOGOUT, 0, 0, 0, 0]);
    }

    #[test]
    fn a_policy_service_has_those_that_it_treats_in_its_process_and_a_device_those_that_it_wakes() {
        let workload = workload(
            r#"
            [[interrupt]]
            name = "nic"
            every = "1ms..3ms"
            burst = 4
            work = "15us"
            wakes = "server"
            [network]
            every = "1ms"
            work = "30us"
            [policy]
            service = "policyd"
            recovery = "shell"
            epoch = 5
            timeout = "50ms"
            [[thread]]
            name = "policyd"
            program = ["run 1ms", "every 20ms"]
            [[thread]]
            name = "server"
            program = ["park", "run 1ms"]
            [[thread]]
            name = "hog"
            program = ["run forever"]
            [[thread]]
            name = "shell"
            program = ["recv orders", "run 1us", "reply"]
            [[at]]
            time = "1ms"
            do = "policy weight hog 7 epoch 6"
            [[at]]
            time = "2ms"
            do = "policy dies"
            [[at]]
            time = "3ms"
            do = "close orders"
            "#,
        );
        let layout = Layout::of(&workload);
        assert_eq!(layout.threads, [0, 1, 0, 2]);
        assert_eq!((&layout.devices[..], layout.network), (&[1][..], 0));
        let manifest = manifest(&workload, 1000);
        assert!(manifest.contains("policy_slow_ns 50000000\n"), "{manifest}");
        assert!(manifest.contains("info,policy-service data=plan -- 0\n"), "{manifest}");
        assert!(manifest.contains("info,serve:0,policy-service,recovery data=plan -- 2\n"), "{manifest}");
        let plan = read(&encode(&workload, 7));
        let policy = [1, 0, 0, NONE, 3, NONE, 5];
        let network = [1, 0, 0, 1_000_000, 30_000, 50_000, 1, workload.machine.tick.get()];
        let device = [1, 1, 0, 4, 1, NONE, MAX_THREADS as u64, 0, 1_000_000, 3_000_000, 0, 15_000, 15_000];
        let tail: Vec<u64> = device.into_iter().chain(network).chain(policy).collect();
        assert_eq!(plan[plan.len() - tail.len()..], tail);
        let operations = &plan[plan.len() - tail.len() - 2 - 21..][..21];
        assert_eq!(operations[..7], [0, 1_000_000, operation::POLICY_WEIGHT, 2, NONE, 7, 6]);
        assert_eq!(operations[7..10], [0, 2_000_000, operation::POLICY_DIES]);
        assert_eq!(operations[14..18], [2, 3_000_000, operation::CLOSE, 0]);
        let many = "[policy]\nservice = \"s\"\n[[thread]]\nname = \"s\"\nprogram = [\"run 1ms\"]\n\
             [[thread]]\nname = \"a\"\ncount = 17\nprogram = [\"run 1ms\"]\n\
             [[at]]\ntime = \"1ms\"\ndo = \"policy weight a 2 epoch 2\"\n";
        let many = mainspring_workload::parse("test.toml", many).expect("the test's workload is one");
        assert!(needs(&many).contains(&(17, "threads in one update of the policy service", CHANGES)));
    }

    #[test]
    fn leases_rings_and_islands_go_to_the_process_that_asks_for_them() {
        let workload = workload(
            r#"
            [machine]
            cpus = 4
            [[ring]]
            name = "disk"
            owner = "app"
            sqpoll = true
            idle_spin = "1ms"
            [[lease]]
            name = "alone"
            cpus = [3]
            thread = "poller"
            mode = "kernel-sqpoll"
            ring = "disk"
            account = "ledger"
            [[context]]
            name = "servo"
            budget = "250us"
            period = "1ms"
            [[island]]
            name = "arm"
            period = "20ms"
            cpus = [0]
            nodes = ["servo"]
            memory = [{ name = "path", bytes = 5000 }]
            overrun = "shutdown"
            [[thread]]
            name = "other"
            program = ["run 1ms", "sleep 1ms"]
            [[thread]]
            name = "poller"
            cpus = [3]
            program = ["poll disk"]
            [[thread]]
            name = "app"
            program = ["submit disk 4 deadline 1ms drop", "complete disk 4 timeout 5ms", "sleep 1ms"]
            [[thread]]
            name = "servo"
            context = "servo"
            program = ["run 100us", "every 1ms"]
            [[thread]]
            name = "visitor"
            cpus = [3]
            start = "5ms"
            program = ["run 1ms", "sleep 1ms"]
            [[at]]
            time = "3ms"
            do = "revoke-lease alone"
            [[at]]
            time = "4ms"
            do = "leave arm"
            "#,
        );
        let layout = Layout::of(&workload);
        assert_eq!(
            layout.threads,
            [0, 1, 1, 2, 1],
            "who may run on the leased CPU alone is made by who leases it"
        );
        let manifest = manifest(&workload, 1000);
        assert!(manifest.contains("info,leases:any data=plan -- 1\n"), "{manifest}");
        assert!(manifest.contains("info,islands:26,memory data=plan -- 2\n"), "{manifest}");
        assert!(!manifest.contains("context:"), "the island's node is granted with the island: {manifest}");
        let plan = read(&encode(&workload, 7));
        assert_eq!(plan[3..HEADER_WORDS], [5, 1, 2, 1, 1, 1]);
        let end = plan.len() - 5;
        let island = [2, 0, 20_000_000, 20_000_000, 1, overrun::SHUTDOWN, 2, 1];
        assert_eq!(plan[end - NODE_WORDS - ISLAND_WORDS..end - NODE_WORDS], island);
        assert_eq!(plan[end - NODE_WORDS..end], [0, 0, 250_000, 1_000_000, 1_000_000, 0]);
        let before = end - NODE_WORDS - ISLAND_WORDS;
        assert_eq!(plan[before - RING_WORDS..before], [2, NONE, 1_000_000]);
        let lease = &plan[before - RING_WORDS - LEASE_WORDS..before - RING_WORDS];
        assert_eq!(lease[..7], [1, 1, NONE, 0b1000, mode::KERNEL_SQPOLL, 0, NONE]);
    }
}
