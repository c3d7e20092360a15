//! What valid files mean.

use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, Weight};
use mainspring_workload::{
    Call, Costs, EndpointSpec, Faults, Network, Span, Start, Step, TaskBudget, ThreadTarget, Workload, parse,
};
use proptest::prelude::*;

fn valid(text: &str) -> Workload {
    parse("test.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn fixed(time: Nanos) -> Span {
    Span { min: time, max: time }
}

fn cpus(cpus: &[usize]) -> Option<CpuSet> {
    Some(cpus.iter().map(|cpu| CpuId::new(*cpu).expect("test CPUs exist")).collect())
}

#[test]
fn the_example_of_the_manual_reads_as_it_looks() {
    let workload = valid(
        r#"
        [machine]
        cpus = 2
        policy = "wfq"
        quantum = "3ms"
        tick = "10ms"
        duration = "1s"

        [costs]
        switch = "1us"
        ipi = "2us"

        [[thread]]
        name = "hog"
        weight = 128
        program = ["run forever"]

        [[thread]]
        name = "editor"
        latency = "interactive"
        start = "5ms"
        program = ["run 300us", "sleep 16ms"]

        [[thread]]
        name = "batch"
        count = 8
        weight = 32
        cpus = [1]
        request = "6ms"
        program = ["run 1ms..4ms", "yield"]
        times = 9
        "#,
    );
    let machine = &workload.machine;
    assert_eq!((machine.cpus, machine.policy, machine.duration), (2, Policy::Wfq, ms(1000)));
    assert_eq!((machine.waiters, machine.waiters_per_process), (10, 10));
    let costs = Costs { switch: Nanos::from_micros(1), ipi: Nanos::from_micros(2), ..Costs::default() };
    assert_eq!(workload.costs, costs);
    assert_eq!(workload.processes, ["hog", "editor", "batch"]);

    let [hog, editor, batch] = &workload.threads[..] else { panic!("three tables") };
    assert_eq!((hog.weight, &hog.program[..]), (Weight::new(128).expect("valid"), &[Step::RunForever][..]));
    assert_eq!(
        (hog.count, hog.start.clone(), hog.instance_name(0)),
        (None, Start::At(fixed(ms(0))), "hog".into())
    );
    assert_eq!((editor.latency, editor.start.clone()), (LatencyClass::Interactive, Start::At(fixed(ms(5)))));
    assert_eq!(editor.program, [Step::Run(fixed(Nanos::from_micros(300))), Step::Sleep(fixed(ms(16)))]);
    assert_eq!((batch.count, batch.request, batch.cpus), (Some(8), Some(ms(6)), cpus(&[1])));
    assert_eq!(batch.program, [Step::Run(Span { min: ms(1), max: ms(4) }), Step::Yield]);
    assert_eq!((batch.times, batch.instance_name(3)), (Some(9), "batch.3".into()));
}

#[test]
fn what_is_left_out_has_its_default() {
    let workload = valid("[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]");
    let machine = &workload.machine;
    assert_eq!((machine.cpus, machine.policy), (1, Policy::Eevdf));
    assert_eq!((machine.quantum, machine.tick, machine.duration), (ms(3), ms(10), ms(1000)));
    assert_eq!((machine.waiters, machine.waiters_per_process), (1, 1));
    assert_eq!(
        (workload.costs, workload.faults, workload.network),
        (Costs::default(), Faults::default(), None)
    );
    let thread = &workload.threads[0];
    assert_eq!((thread.weight, thread.latency), (Weight::DEFAULT, LatencyClass::Normal));
    assert_eq!((thread.request, thread.cpus, thread.times), (None, None, None));
}

#[test]
fn every_step_reads() {
    let workload = valid(
        r#"
        [[thread]]
        name = "all"
        program = ["run 1ms", "sleep 0..1ms", "every 20ms", "yield", "park", "park 5ms", "unpark batch",
            "unpark batch.1", "call svc", "call svc 5ms", "recv svc", "recv svc 1ms..2ms", "reply", "spawn kid",
            "join kid", "join batch.0 5ms", "weight 128", "exit"]
        [[thread]]
        name = "batch"
        count = 2
        program = ["run 1ms"]
        [[thread]]
        name = "kid"
        start = "spawn"
        program = ["run 1ms"]
        times = 1
        "#,
    );
    let target = |thread, instance| ThreadTarget { thread, instance };
    let five = Some(fixed(ms(5)));
    assert_eq!(workload.endpoints, [EndpointSpec::named("svc")]);
    assert_eq!(workload.threads[2].start, Start::Spawned);
    let expected = [
        Step::Run(fixed(ms(1))),
        Step::Sleep(Span { min: Nanos::ZERO, max: ms(1) }),
        Step::Every(ms(20)),
        Step::Yield,
        Step::Park { timeout: None },
        Step::Park { timeout: five },
        Step::Unpark(target(1, None)),
        Step::Unpark(target(1, Some(1))),
        Step::Call(Call::plain(0, None)),
        Step::Call(Call::plain(0, five)),
        Step::Recv { endpoint: 0, timeout: None },
        Step::Recv { endpoint: 0, timeout: Some(Span { min: ms(1), max: ms(2) }) },
        Step::Reply,
        Step::Spawn(2),
        Step::Join { target: target(2, None), timeout: None },
        Step::Join { target: target(1, Some(0)), timeout: five },
        Step::Weight(Weight::new(128).expect("valid")),
        Step::Exit,
    ];
    assert_eq!(workload.threads[0].program, expected);
}

#[test]
fn faults_are_chances_in_parts_per_million_and_times() {
    let faults = r#"
        [faults]
        late_reschedule = { chance = "1%", by = "2ms" }
        lost_reschedule = "0.1%"
        late_timer = { chance = "100%", by = "1ms" }
        stall = { chance = "0.0001%", for = "5ms" }
        burst_every = "100ms"
        exit_every = "50ms"
    "#;
    let expected = Faults {
        late_reschedule_ppm: 10_000,
        late_reschedule_by: ms(2),
        lost_reschedule_ppm: 1_000,
        late_timer_ppm: 1_000_000,
        late_timer_by: ms(1),
        stall_ppm: 1,
        stall_for: ms(5),
        burst_every: ms(100),
        exit_every: ms(50),
    };
    assert_eq!(valid(faults).faults, expected);
}

#[test]
fn the_network_has_defaults_but_for_its_period() {
    let workload = valid("[machine]\ncpus = 2\n[network]\nevery = \"1ms\"\ncpu = 1");
    let network =
        Network { cpu: 1, every: ms(1), work: Nanos::ZERO, budget: Nanos::from_micros(50), clock: true };
    assert_eq!(workload.network, Some(network));
}

#[test]
fn masks_may_be_lists_or_ranges() {
    for (text, expected) in [
        ("[0, 2]", &[0, 2][..]),
        ("\"0-3,8\"", &[0, 1, 2, 3, 8]),
        ("\"9\"", &[9]),
        ("\"1, 4 - 5\"", &[1, 4, 5]),
    ] {
        let file =
            format!("machine.cpus = 10\n[[thread]]\nname = \"a\"\ncpus = {text}\nprogram = [\"run 1ms\"]");
        assert_eq!(valid(&file).threads[0].cpus, cpus(expected), "{text}");
    }
}

#[test]
fn threads_share_a_process_by_name() {
    let thread = |name: &str, process: &str| {
        format!("[[thread]]\nname = \"{name}\"\n{process}\nprogram = [\"run 1ms\"]\n")
    };
    let workload =
        valid(&[thread("a", ""), thread("b", "process = \"a\""), thread("c", "process = \"z\"")].concat());
    assert_eq!(workload.processes, ["a", "z"]);
    assert_eq!(workload.threads.iter().map(|thread| thread.process).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn a_name_with_a_dot_is_taken_whole_before_it_is_split() {
    let workload = valid(
        r#"
        [[thread]]
        name = "a.1"
        program = ["run 1ms"]
        [[thread]]
        name = "a"
        count = 1
        program = ["run 1ms", "unpark a.1", "unpark a.0"]
        "#,
    );
    let unparked = |n: usize| match workload.threads[1].program[n] {
        Step::Unpark(target) => target,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(unparked(1), ThreadTarget { thread: 0, instance: None });
    assert_eq!(unparked(2), ThreadTarget { thread: 1, instance: Some(0) });
}

fn any_step() -> impl Strategy<Value = (String, Step)> {
    let time = || (0..5_000_u64, 0..5_000_u64).prop_map(|(min, more)| (min, min + more));
    let span = |(min, max)| Span { min: Nanos::from_micros(min), max: Nanos::from_micros(max) };
    prop_oneof![
        time().prop_map(move |t| (format!("run {}us..{}us", t.0, t.1), Step::Run(span(t)))),
        time().prop_map(move |t| (format!("  sleep\t{}us..{}us ", t.0, t.1), Step::Sleep(span(t)))),
        time().prop_map(move |t| {
            (format!("park {}\u{b5}s..{}us", t.0, t.1), Step::Park { timeout: Some(span(t)) })
        }),
        (1..5_000_u64).prop_map(|us| (format!("every {us}us"), Step::Every(Nanos::from_micros(us)))),
        (1..=65_535_u64)
            .prop_map(|w| (format!("weight {w}"), Step::Weight(Weight::new(w).expect("in range")))),
        Just(("yield".into(), Step::Yield)),
        Just(("park".into(), Step::Park { timeout: None })),
    ]
}

proptest! {
    #[test]
    fn any_program_reads_back_as_it_was_written(steps in prop::collection::vec(any_step(), 0..30)) {
        let texts: Vec<String> = steps.iter().map(|(text, _)| format!("'{text}'")).collect();
        let program = [&texts[..], &["'run forever'".into()]].concat().join(", ");
        let workload = valid(&format!("[[thread]]\nname = \"a\"\nprogram = [{program}]"));
        let expected: Vec<Step> = steps.into_iter().map(|(_, step)| step).chain([Step::RunForever]).collect();
        prop_assert_eq!(&workload.threads[0].program, &expected);
    }
}

#[test]
fn a_steps_verb_is_its_first_word() {
    let steps = [
        "run 1ms",
        "run forever",
        "sleep 1ms",
        "every 1ms",
        "yield",
        "park",
        "unpark a",
        "call e",
        "recv e",
        "reply",
        "throw",
        "spawn kid",
        "join kid",
        "weight 3",
        "alloc 1",
        "syscall",
        "bind c",
        "unbind",
        "revoke c",
        "drain c",
        "lease l",
        "release l",
        "submit r 1",
        "complete r 1",
        "poll r",
        "repeat 2",
        "for 1ms",
        "either 5%",
        "exit",
    ];
    for text in steps {
        let is_phase = ["repeat", "for", "either"].iter().any(|verb| text.starts_with(verb));
        let rest = if is_phase { ", \"run 1us\", \"end\"" } else { "" };
        let workload = valid(&format!(
            "[[thread]]\nname = \"a\"\nbudget = {{ memory = 9 }}\nprogram = [\"run 1ms\", \"recv e\", \"call e\", \"spawn kid\", \"{text}\"{rest}]\n\
             [[thread]]\nname = \"kid\"\nstart = \"spawn\"\nprogram = [\"run 1ms\"]\ntimes = 1\n\
             [[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[lease]]\nname = \"l\"\ncpus = [1]\nthread = \"a\"\naccount = \"c\"\n\
             [[ring]]\nname = \"r\"\nowner = \"a\"\n[machine]\ncpus = 2\n"
        ));
        assert_eq!(Some(workload.threads[0].program[4].verb()), text.split(' ').next());
    }
}

#[test]
fn budgets_and_places_are_as_the_file_has_them() {
    let text = "[machine]\ncpus = 2\n\n[[thread]]\nname = \"a\"\nbudget = { ops = 7, memory = 9 }\nprogram = [\n  \
                \"alloc 3\",\n  \"syscall\",\n]\n[[session]]\nname = \"r\"\n[[thread]]\nname = \"b\"\nprogram = [\"run 1ms\"]\n";
    let workload = valid(text);
    let budget = TaskBudget { ops: Some(7), memory: Some(9), ..TaskBudget::default() };
    assert_eq!(workload.threads[0].budget, Some(budget));
    assert_eq!(workload.threads[0].program, [Step::Alloc(3), Step::Syscall]);
    assert_eq!(workload.threads[1].budget, None);
    let places = &workload.places;
    assert_eq!((places.thread(0), places.thread(1), places.thread(2)), (Some(4), Some(13), None));
    assert_eq!((places.step(0, 0), places.step(0, 1), places.step(0, 2)), (Some(8), Some(9), None));
    assert_eq!((places.table("session"), places.table("context")), (Some(11), None));
}
