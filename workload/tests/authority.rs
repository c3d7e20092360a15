//! What valid tables of contexts, endpoints, leases, islands, sessions, rings, policy and operations mean.

use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Weight};
use mainspring_workload::{
    Account, Call, Calls, ContextSpec, ContextTarget, EndpointSpec, IslandSpec, Lateness, LeaseMode,
    LeaseSpec, LeaseStart, Locks, MemorySpec, Operation, Overrun, PolicySpec, Residency, RingSpec, Span,
    Step, ThreadTarget, Workload, parse,
};
use proptest::prelude::*;

fn valid(text: &str) -> Workload {
    parse("test.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

fn fixed(time: Nanos) -> Option<Span> {
    Some(Span { min: time, max: time })
}

fn cpus(cpus: &[usize]) -> CpuSet {
    cpus.iter().map(|cpu| CpuId::new(*cpu).expect("test CPUs exist")).collect()
}

fn thread(thread: usize) -> ThreadTarget {
    ThreadTarget { thread, instance: None }
}

fn context(context: usize) -> ContextTarget {
    ContextTarget { context, instance: None }
}

/// A file with something of every kind, whose threads are `worker`, `crowd.0` to `crowd.2` and `server`.
const ALL: &str = r#"
    [machine]
    cpus = 4
    floor = "0.5%"

    [policy]
    service = "server"
    recovery = "worker"
    epoch = 7
    timeout = "20ms"

    [[context]]
    name = "control"
    budget = "2ms"
    period = "10ms"
    deadline = "5ms"
    cpus = [1, 2]
    priority = 65535
    criticality = 255
    refills = 16
    overrun = "shutdown"
    depth = 1
    timeout_endpoint = "late"

    [[context]]
    name = "crowd"
    budget = "1ms"
    period = "4ms"

    [[context]]
    name = "spare"
    budget = "1us"
    period = "1us"
    process = "shop"

    [[context]]
    name = "serving"
    budget = "300us"
    period = "1ms"
    overrun = "fault"

    [[endpoint]]
    name = "svc"
    context = "serving"
    donation = false
    realtime_safe = false
    reorder = true
    window = 16

    [[session]]
    name = "alice"

    [[ring]]
    name = "disk"
    owner = "crowd.1"
    entries = 4096
    sqpoll = true
    idle_spin = "0"
    reorder = true
    window = 8
    cost = "3us"

    [[ring]]
    name = "plain"
    owner = "worker"

    [[lease]]
    name = "island-cpu"
    cpus = "3"
    thread = "crowd.1"
    mode = "kernel-sqpoll"
    ring = "disk"
    account = "ledger"
    max_revocation = "200us"
    lifetime = "2s"
    revoke_endpoint = "late"
    nohz = false
    start = "step"

    [[lease]]
    name = "default"
    cpus = [2]
    thread = "crowd.2"

    [[island]]
    name = "graph"
    period = "10ms"
    deadline = "8ms"
    cpus = [1]
    nodes = ["control", "crowd.2"]
    memory = [{ name = "buffers", bytes = 65536, residency = "secret" }, { name = "heap", bytes = 1 }]
    devices = ["dac"]
    rings = ["plain"]
    locks = "bounded"
    calls = "blocking"
    overrun = "notify"
    start = "3ms"

    [[thread]]
    name = "worker"
    context = "control"
    session = "alice"
    program = ["run 1ms", "bind spare", "unbind", "drain control", "revoke crowd.2", "revoke crowd", "lease island-cpu",
        "release island-cpu", "submit plain 4", "submit plain 1 deadline 2ms drop", "submit plain 1 late",
        "complete plain 4", "complete plain 1 timeout 1ms..2ms", "call svc needs 300us deadline 2ms timeout 5ms drop",
        "call svc 5ms late deadline 1ms", "call svc late"]

    [[thread]]
    name = "crowd"
    count = 3
    process = "shop"
    context = "crowd"
    program = ["run 1ms", "bind crowd", "drain crowd", "poll disk"]

    [[thread]]
    name = "server"
    program = ["recv svc", "run 100us", "throw", "recv late", "reply"]
"#;

#[test]
fn contexts_have_their_terms_and_an_instance_for_each_thread() {
    let workload = valid(ALL);
    assert_eq!(workload.machine.floor_ppm, 5_000);
    let [control, crowd, spare, serving] = &workload.contexts[..] else { panic!("four tables") };
    let late = workload.endpoints.iter().position(|endpoint| endpoint.name == "late");
    let expected = ContextSpec {
        name: "control".into(),
        count: None,
        budget: ms(2),
        period: ms(10),
        deadline: ms(5),
        cpus: Some(cpus(&[1, 2])),
        priority: 65_535,
        criticality: 255,
        refills: 16,
        overrun: Overrun::Shutdown,
        depth: 1,
        timeout_endpoint: late,
        process: None,
    };
    assert_eq!(*control, expected);
    let expected = ContextSpec {
        name: "crowd".into(),
        count: Some(3),
        budget: ms(1),
        period: ms(4),
        deadline: ms(4),
        cpus: None,
        priority: 0,
        criticality: 0,
        refills: 8,
        overrun: Overrun::Throttle,
        depth: 8,
        timeout_endpoint: None,
        process: None,
    };
    assert_eq!(*crowd, expected);
    assert_eq!((crowd.instances(), crowd.instance_name(2)), (3, "crowd.2".into()));
    assert_eq!((control.instances(), control.instance_name(0)), (1, "control".into()));
    assert_eq!(spare.process.map(|process| workload.processes[process].as_str()), Some("shop"));
    assert_eq!(serving.overrun, Overrun::Fault);
    let bound: Vec<_> = workload.threads.iter().map(|thread| (thread.context, thread.session)).collect();
    assert_eq!(bound, [(Some(0), Some(0)), (Some(1), None), (None, None)]);
    assert_eq!(workload.sessions, ["alice"]);
}

#[test]
fn endpoints_with_a_table_come_first_and_others_have_defaults() {
    let workload = valid(ALL);
    let svc = EndpointSpec {
        name: "svc".into(),
        context: Some(context(3)),
        donation: false,
        realtime_safe: false,
        reorder: true,
        window: 16,
    };
    assert_eq!(workload.endpoints, [svc, EndpointSpec::named("late")]);
    let plain = EndpointSpec::named("late");
    assert!(plain.donation && plain.realtime_safe && !plain.reorder && plain.context.is_none());
    assert_eq!(plain.window, 1);
}

#[test]
fn leases_name_one_thread_and_are_paid_by_its_context() {
    let workload = valid(ALL);
    let [sqpoll, default] = &workload.leases[..] else { panic!("two tables") };
    let expected = LeaseSpec {
        name: "island-cpu".into(),
        cpus: cpus(&[3]),
        thread: ThreadTarget { thread: 1, instance: Some(1) },
        mode: LeaseMode::KernelSqpoll,
        ring: Some(0),
        account: Account::Ledger,
        max_revocation: us(200),
        lifetime: Some(ms(2_000)),
        revoke_endpoint: Some(1),
        nohz: false,
        start: LeaseStart::Step,
    };
    assert_eq!(*sqpoll, expected);
    let expected = LeaseSpec {
        name: "default".into(),
        cpus: cpus(&[2]),
        thread: ThreadTarget { thread: 1, instance: Some(2) },
        mode: LeaseMode::Compute,
        ring: None,
        account: Account::Context(ContextTarget { context: 1, instance: Some(2) }),
        max_revocation: ms(1),
        lifetime: None,
        revoke_endpoint: None,
        nohz: true,
        start: LeaseStart::At(Nanos::ZERO),
    };
    assert_eq!(*default, expected);
}

#[test]
fn islands_rings_and_policy_read_as_they_look() {
    let workload = valid(ALL);
    let island = IslandSpec {
        name: "graph".into(),
        period: ms(10),
        deadline: ms(8),
        cpus: Some(cpus(&[1])),
        nodes: vec![context(0), ContextTarget { context: 1, instance: Some(2) }],
        memory: vec![
            MemorySpec { name: "buffers".into(), bytes: 65_536, residency: Residency::Secret },
            MemorySpec { name: "heap".into(), bytes: 1, residency: Residency::Pinned },
        ],
        devices: vec!["dac".into()],
        rings: vec![1],
        locks: Locks::Bounded,
        calls: Calls::Blocking,
        overrun: Overrun::Notify,
        start: ms(3),
    };
    assert_eq!(workload.islands, [island]);
    let disk = RingSpec {
        name: "disk".into(),
        owner: ThreadTarget { thread: 1, instance: Some(1) },
        entries: 4_096,
        sqpoll: true,
        idle_spin: Nanos::ZERO,
        cost: us(3),
        reorder: true,
        window: 8,
    };
    let plain = RingSpec {
        name: "plain".into(),
        owner: thread(0),
        entries: 64,
        sqpoll: false,
        idle_spin: us(50),
        cost: us(1),
        reorder: false,
        window: 1,
    };
    assert_eq!(workload.rings, [disk, plain]);
    let policy = PolicySpec { service: thread(2), recovery: Some(thread(0)), epoch: 7, timeout: ms(20) };
    assert_eq!(workload.policy, Some(policy));
}

#[test]
fn what_an_island_and_a_policy_leave_out_has_its_default() {
    let workload = valid(
        r#"
        [policy]
        service = "a"
        [[context]]
        name = "c"
        budget = "1ms"
        period = "5ms"
        [[island]]
        name = "i"
        period = "5ms"
        nodes = ["c"]
        [[thread]]
        name = "a"
        context = "c"
        program = ["run 1ms"]
        "#,
    );
    let island = IslandSpec {
        name: "i".into(),
        period: ms(5),
        deadline: ms(5),
        cpus: None,
        nodes: vec![context(0)],
        memory: Vec::new(),
        devices: Vec::new(),
        rings: Vec::new(),
        locks: Locks::None,
        calls: Calls::Donating,
        overrun: Overrun::Throttle,
        start: Nanos::ZERO,
    };
    assert_eq!((workload.machine.floor_ppm, workload.islands), (50_000, vec![island]));
    let policy = PolicySpec { service: thread(0), recovery: None, epoch: 1, timeout: ms(100) };
    assert_eq!(workload.policy, Some(policy));
}

#[test]
fn steps_on_contexts_leases_and_rings_read() {
    let workload = valid(ALL);
    let submit = |entries, deadline, late| Step::Submit { ring: 1, entries, deadline, late };
    let call = |timeout, needs, deadline, late| {
        Step::Call(Call { endpoint: 0, timeout: fixed(timeout), needs, deadline, late })
    };
    let expected = [
        Step::Bind(context(2)),
        Step::Unbind,
        Step::Drain(context(0)),
        Step::Revoke(ContextTarget { context: 1, instance: Some(2) }),
        Step::Revoke(context(1)),
        Step::Lease(0),
        Step::Release(0),
        submit(4, None, Lateness::Allow),
        submit(1, Some(ms(2)), Lateness::Drop),
        submit(1, None, Lateness::Allow),
        Step::Complete { ring: 1, entries: 4, timeout: None },
        Step::Complete { ring: 1, entries: 1, timeout: Some(Span { min: ms(1), max: ms(2) }) },
        call(ms(5), Some(us(300)), Some(ms(2)), Lateness::Drop),
        call(ms(5), None, Some(ms(1)), Lateness::Allow),
        Step::Call(Call::plain(0, None)),
    ];
    assert_eq!(workload.threads[0].program[1..], expected);
    let expected = [Step::Bind(context(1)), Step::Drain(context(1)), Step::Poll(0)];
    assert_eq!(workload.threads[1].program[1..], expected);
    assert_eq!(workload.threads[2].program[2], Step::Throw);
}

#[test]
fn operations_are_in_the_order_of_time_and_then_of_the_file() {
    let at = |time: &str, text: &str| format!("[[at]]\ntime = \"{time}\"\ndo = \"{text}\"\n");
    let operations = [
        at("9ms", "policy dies"),
        at("2ms", " revoke  control "),
        at("2ms", "revoke crowd.1"),
        at("2ms", "adjust control period 20ms budget 3ms"),
        at("3ms", "logout alice"),
        at("3ms", "exit crowd"),
        at("3ms", "exit crowd.1"),
        at("4ms", "revoke-lease default"),
        at("4ms", "leave graph"),
        at("4ms", "close svc"),
        at("0", "policy stalls"),
        at("5ms", "policy weight worker 65535 epoch 0"),
        at("5ms", "policy profile crowd.0 batch epoch 8"),
    ];
    let workload = valid(&(ALL.to_owned() + &operations.concat()));
    let crowd = |instance| ThreadTarget { thread: 1, instance: Some(instance) };
    let weight = Weight::new(65_535).expect("valid");
    let expected = [
        (0, Operation::PolicyStalls),
        (2, Operation::Revoke(context(0))),
        (2, Operation::Revoke(ContextTarget { context: 1, instance: Some(1) })),
        (2, Operation::Adjust { context: context(0), budget: ms(3), period: ms(20) }),
        (3, Operation::Logout(0)),
        (3, Operation::Exit(thread(1))),
        (3, Operation::Exit(crowd(1))),
        (4, Operation::RevokeLease(1)),
        (4, Operation::LeaveIsland(0)),
        (4, Operation::CloseEndpoint(0)),
        (5, Operation::PolicyWeight { thread: thread(0), weight, epoch: 0 }),
        (5, Operation::PolicyProfile { thread: crowd(0), latency: LatencyClass::Batch, epoch: 8 }),
        (9, Operation::PolicyDies),
    ];
    let found: Vec<_> = workload.operations.iter().map(|timed| (timed.time, timed.operation)).collect();
    assert_eq!(found, expected.map(|(time, operation)| (ms(time), operation)));
    assert_eq!(workload.operations[1].to_string(), "revoke  control at 2ms");
}

#[test]
fn a_count_of_one_stands_for_one() {
    let workload = valid(
        r#"
        [[context]]
        name = "c"
        budget = "1ms"
        period = "5ms"
        [[ring]]
        name = "r"
        owner = "a"
        [[lease]]
        name = "l"
        cpus = [0]
        thread = "a"
        account = "c"
        [[thread]]
        name = "a"
        count = 1
        context = "c"
        program = ["run 1ms"]
        "#,
    );
    let first = Some(0);
    assert_eq!(workload.rings[0].owner, ThreadTarget { thread: 0, instance: first });
    let account = Account::Context(ContextTarget { context: 0, instance: first });
    assert_eq!((workload.leases[0].thread.instance, workload.leases[0].account), (first, account));
}

fn option_texts() -> impl Strategy<Value = (Vec<String>, Call)> {
    let time = || prop::option::of(1..5_000_u64);
    let late = prop::option::of(any::<bool>());
    (time(), time(), time(), late).prop_map(|(needs, deadline, timeout, drop)| {
        let option = |name, time: Option<u64>| time.map(|time| format!("{name} {time}us"));
        let texts = [
            option("needs", needs),
            option("deadline", deadline),
            option("timeout", timeout),
            drop.map(|drop| if drop { "drop".into() } else { "late".into() }),
        ];
        let call = Call {
            endpoint: 0,
            timeout: timeout.and_then(|timeout| fixed(us(timeout))),
            needs: needs.map(us),
            deadline: deadline.map(us),
            late: if drop == Some(true) { Lateness::Drop } else { Lateness::Allow },
        };
        (texts.into_iter().flatten().collect(), call)
    })
}

proptest! {
    #[test]
    fn options_of_a_call_may_stand_in_any_order(
        (texts, call) in option_texts().prop_flat_map(|(texts, call)| (Just(texts).prop_shuffle(), Just(call)))
    ) {
        let text = format!(
            "[[thread]]\nname = 'a'\nprogram = ['run 1ms', 'call e {}']\n\
             [[thread]]\nname = 'b'\nprogram = ['recv e', 'run 1ms', 'reply']",
            texts.join(" ")
        );
        prop_assert_eq!(&valid(&text).threads[0].program[1], &Step::Call(call));
    }
}
