//! Random programs: the passes change no result and no sum of charges, and text is read as it was written.

use super::{run_on, runtime};
use mainspring_janus::compile;
use mainspring_janus::testing::{random_loops, random_program, random_tasks};
use mainspring_qtjir::text::{parse, print};
use mainspring_qtjir::{Ended, FaultKind, Limits, Program, Quiet};

const LIMITS: Limits = Limits { ops: 500_000, memory: 1 << 26, spawn_count: 0, channel_ops: 0, syscalls: 0 };

//= SCHED:4.1.1a
#[test]
fn cheap_checks_charge_what_plain_checks_charge() {
    let (mut ended, mut stripped) = (0, 0);
    for seed in 0..400 {
        let source = if seed % 2 == 0 { random_program(seed, false) } else { random_loops(seed) };
        let module = compile(&source).unwrap_or_else(|mistakes| panic!("seed {seed}: {mistakes}\n{source}"));
        let text = print(&module);
        assert_eq!(print(&parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"))), text);
        let plain = Program::compile_plainly(module.clone()).unwrap();
        let cheap = Program::compile(module).unwrap();
        stripped += usize::from(print(cheap.module()).contains("Min_Unsigned"));
        let run = |program: &Program| program.run_alone("main", &[seed], LIMITS, &Quiet);
        match (run(&plain), run(&cheap)) {
            (Ok(one), Ok(other)) => {
                assert_eq!((one.value, one.ops), (other.value, other.ops), "seed {seed}\n{source}");
                ended += 1;
            }
            (Err(one), Err(other)) => {
                assert!(out_of_ops(&one) || one == other, "seed {seed}: {one}, {other}");
            }
            (one, other) => assert!(
                one.as_ref().is_err_and(out_of_ops) || other.as_ref().is_err_and(out_of_ops),
                "seed {seed}: {one:?}, {other:?}\n{source}"
            ),
        }
    }
    assert!(
        ended > 40 && stripped > 40,
        "{ended} ended, {stripped} had strips: the programs test too little"
    );
}

/// The passes may move where a budget's end is noticed.
fn out_of_ops(fault: &mainspring_qtjir::Fault) -> bool {
    matches!(&fault.kind, FaultKind::Trap(trap) if trap.to_string().contains("ran out"))
}

#[test]
fn programs_with_tasks_charge_the_same_on_any_number_of_workers() {
    let mut with_tasks = 0;
    for seed in 0..80 {
        let source = random_program(seed, true);
        let program = Program::compile(compile(&source).unwrap()).unwrap();
        let run = |workers: usize| {
            run_on(&runtime(workers), &program, &[seed], &Quiet)
                .map_err(|fault| (fault.code(), fault.to_string()))
        };
        let first = run(1);
        let has_tasks = first.as_ref().is_ok_and(|ended| ended.all_ops > ended.ops);
        with_tasks += usize::from(has_tasks);
        for workers in [2, 4, 8] {
            let ended = run(workers);
            if seed % 2 == 0 {
                assert!(first.is_ok(), "seed {seed}: {first:?}");
                assert_eq!(first, ended, "seed {seed}, {workers} workers\n{source}");
                continue;
            }
            // A failure stops its siblings where they are, so that they may be charged more or less. What it comes to is the same.
            let came_to = |ended: &Result<Ended, (i64, String)>| {
                ended.as_ref().map(|ended| ended.value).map_err(|fault| fault.0)
            };
            assert_eq!(
                came_to(&first),
                came_to(&ended),
                "seed {seed}, {workers} workers: {ended:?}\n{source}"
            );
        }
    }
    assert!(with_tasks > 10, "only {with_tasks} programs had tasks");
}

/// Programs of nurseries, channels and errors compile, and come to the same on any number of workers as long as nothing fails.
#[test]
fn programs_of_nurseries_and_channels_charge_the_same_on_any_number_of_workers() {
    let mut tasks = 0;
    for seed in (0..120).step_by(2) {
        let source = random_tasks(seed);
        let module = compile(&source).unwrap_or_else(|mistakes| panic!("seed {seed}: {mistakes}\n{source}"));
        let program = Program::compile(module).unwrap();
        let first = run_on(&runtime(1), &program, &[seed], &Quiet)
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}\n{source}"));
        for workers in [2, 8] {
            let ended = run_on(&runtime(workers), &program, &[seed], &Quiet);
            assert_eq!(ended.as_ref(), Ok(&first), "seed {seed}, {workers} workers\n{source}");
        }
        tasks += usize::from(first.all_ops > first.ops);
    }
    assert!(tasks > 40, "only {tasks} programs had tasks");
}
