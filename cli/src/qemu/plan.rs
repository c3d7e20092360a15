//! A workload as the words that the kernel's workload program reads.

use super::layout::{self, Layout, asker, nodes};
use super::manifest::bits;
use mainspring_abi::plan::{
    ISLAND_WORDS, LEASE_WORDS, MAGIC, NODE_WORDS, NONE, RING_WORDS, mode, operation, overrun,
};
use mainspring_abi::{LatencyClass, Nanos};
use mainspring_program::Coded;
use mainspring_workload::{
    Account, Calls, ContextTarget, InterruptSpec, IslandSpec, LeaseMode, LeaseSpec, LeaseStart, Locks,
    MAX_THREADS, Network, Operation, Overrun, Residency, Start, Step, ThreadSpec, ThreadTarget, Workload,
};

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
        let default_of = spec.process.map_or(NONE, |process| process as u64);
        words.extend([*process as u64, spec.instances() as u64, default_of]);
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
                (layout.sessions[session].unwrap_or(0), [operation::LOGOUT, session as u64, 0, 0, 0])
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
    words.extend((0..workload.rings.len()).flat_map(|number| ring(workload, number)));
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
        spec.process as u64,
        spec.session.map_or(NONE, |session| session as u64),
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
        LeaseMode::KernelSqpoll if is_of_kernel_poller(workload, spec) => mode::KERNEL_SQPOLL,
        LeaseMode::Poller | LeaseMode::KernelSqpoll => mode::POLLER,
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
            layout::served_on(workload, (context, instance))
                .filter(|endpoint| layout::is_served(workload, *endpoint))
                .fold(0, |bits, endpoint| bits | 1 << endpoint),
        ]
    };
    head.into_iter().chain(all.into_iter().flat_map(node)).collect()
}

/// Whether the kernel polls under a lease; otherwise its thread does.
fn is_of_kernel_poller(workload: &Workload, lease: &LeaseSpec) -> bool {
    lease.ring.and_then(|ring| layout::kernel_poller(workload, ring)) == Some(lease.thread.thread)
}

fn ring(workload: &Workload, number: usize) -> [u64; RING_WORDS] {
    let spec = &workload.rings[number];
    let [table, instance] = target(spec.owner);
    [
        table,
        instance,
        spec.idle_spin.get(),
        layout::kernel_poller(workload, number).map_or(NONE, |table| table as u64),
        layout::is_polled_by_threads(workload, number).into(),
        spec.sqpoll.into(),
        spec.entries.into(),
        spec.cost.get(),
        if spec.reorder { spec.window.into() } else { 0 },
    ]
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
    use super::super::limits::needs;
    use super::super::manifest::{contexts, manifest};
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
        assert_eq!(tables[0].0, [0, 3, 128, 1, 0, 0b10, 0, 0, NONE, NONE, 0, NONE]);
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
        assert!(manifest.contains("endpoint 0 donation=off realtime=on window=4\n"), "{manifest}");
        let early = "context:1.0=2000000/20000000:deadline=15000000:criticality=1:priority=0:refills=8:depth=8:overrun=notify";
        assert!(manifest.contains(&format!("info,call:0,{early},session:0 data=plan -- 0\n")), "{manifest}");
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
        assert!(needs(&many).contains(&(17, "threads in one update of the policy service", 16)));
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
        assert_eq!(plan[end - NODE_WORDS..end], [0, 0, 250_000, 1_000_000, 1_000_000, 0, 0]);
        let before = end - NODE_WORDS - ISLAND_WORDS;
        assert_eq!(plan[before - RING_WORDS..before], [2, NONE, 1_000_000, 1, 0, 1, 64, 1000, 0]);
        let lease = &plan[before - RING_WORDS - LEASE_WORDS..before - RING_WORDS];
        assert_eq!(lease[..7], [1, 1, NONE, 0b1000, mode::KERNEL_SQPOLL, 0, NONE]);
    }

    #[test]
    fn a_node_is_told_the_endpoints_that_somebody_serves_on_it() {
        let workload = workload(
            r#"
            [[context]]
            name = "c"
            budget = "1ms"
            period = "10ms"
            [[island]]
            name = "i"
            period = "10ms"
            nodes = ["c"]
            [[endpoint]]
            name = "idle"
            context = "c"
            [[endpoint]]
            name = "busy"
            context = "c"
            [[thread]]
            name = "client"
            program = ["call busy", "sleep 1ms"]
            [[thread]]
            name = "server"
            program = ["recv busy", "reply"]
            "#,
        );
        let plan = read(&encode(&workload, 7));
        let end = plan.len() - 5;
        assert_eq!(plan[end - NODE_WORDS..end], [0, 0, 1_000_000, 10_000_000, 10_000_000, 0, 0b10]);
        let manifest = manifest(&workload, 1000);
        let of_island = manifest.lines().find(|line| line.contains("islands:")).expect("one may have it");
        assert!(of_island.contains("serve:1") && !of_island.contains("serve:0"), "{manifest}");
    }
}
