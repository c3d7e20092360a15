//! One script on two machines: without locks, and with a lock and an operating-system thread for each CPU.

mod machines;

use machines::host::Host;
use machines::script::{Action, Driven, Step, scripts, take};
use machines::virtual_machine::VirtualMachine;
use machines::{cpu, thread};
use mainspring_abi::{LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_driver::{Machine, Notified, placement};
use mainspring_record::file::Header;
use mainspring_record::verify::verify;
use mainspring_sched::flight::Log;
use mainspring_sched::{Affinity, Authority, Entity, Spec, State};
use proptest::prelude::*;
use std::sync::{Condvar, Mutex};

const CPUS: usize = 4;
const THREADS: u32 = 24;
const STEPS: usize = 300;

/// When step `number` of a script is taken.
fn time_of(number: usize) -> Nanos {
    Nanos::from_micros(100 * (number as u64 + 1))
}

/// Replays what all CPUs have recorded under the eyes of all checkers; how many events there were.
fn replay(logs: Vec<Log>) -> u64 {
    let header = Header {
        workload: "script".to_owned(),
        seed: 0,
        cpus: CPUS,
        seats: THREADS as usize,
        policy: Policy::Eevdf,
        quantum: Nanos::from_millis(3),
        tick: Nanos::from_millis(10),
        floor_ppm: mainspring_sched::Floor::DEFAULT.ppm(),
        threads: (0..THREADS).map(|index| format!("thread.{index}")).collect(),
    };
    let mut joined = mainspring_record::Log::default();
    for (index, log) in logs.into_iter().enumerate() {
        assert_eq!(log.lost(), 0, "the record has room for all events");
        let (records, end) = (log.records(), log.last());
        joined.add(cpu(index), &log.into_bytes(), records, end).expect("whole records");
    }
    verify(&header, joined).unwrap_or_else(|error| panic!("{error}"))
}

fn on_virtual_machine(script: &[Step]) -> Vec<Log> {
    let mut machine = VirtualMachine::new(CPUS, THREADS as usize);
    for (number, step) in script.iter().enumerate() {
        machine.now = time_of(number);
        machine.here = Some(cpu(step.cpu));
        take(&mut machine, cpu(step.cpu), step.action);
    }
    machine.take_logs()
}

/// Each CPU has a thread of the host, which takes the CPU's steps: each when all before it have been taken, if `in_turn`.
fn on_host(host: &Host, script: &[Step], in_turn: bool) {
    let (turn, next) = (Mutex::new(0), Condvar::new());
    std::thread::scope(|scope| {
        for index in 0..CPUS {
            let (turn, next) = (&turn, &next);
            scope.spawn(move || {
                let mut machine = host.seen_from(Some(cpu(index)));
                for (number, step) in script.iter().enumerate().filter(|(_, step)| step.cpu == index) {
                    if !in_turn {
                        take(&mut machine, cpu(index), step.action);
                        continue;
                    }
                    let mut taken = turn.lock().expect("no step panics");
                    while *taken != number {
                        taken = next.wait(taken).expect("no step panics");
                    }
                    host.set_time(time_of(number));
                    take(&mut machine, cpu(index), step.action);
                    *taken += 1;
                    next.notify_all();
                }
            });
        }
    });
}

/// Ends all threads of a machine whose CPUs have stopped, wherever they are; how many.
fn end_all(host: &Host) -> usize {
    let started = (0..THREADS).filter(|index| host.seen_from(None).home(thread(*index)).is_some());
    let started = started.count();
    for round in 0.. {
        let left = (0..THREADS).filter(|index| host.seen_from(None).home(thread(*index)).is_some());
        if left.count() == 0 {
            return started;
        }
        assert!(round < 3 * THREADS, "a thread is nowhere to be found, and has a home");
        // What is used up comes back.
        host.set_time(host.now() + Nanos::from_millis(10));
        for index in 0..CPUS {
            let mut machine = host.seen_from(Some(cpu(index)));
            take(&mut machine, cpu(index), Action::Exit);
            for caller in 0..THREADS {
                take(&mut machine, cpu(index), Action::EndCall { caller, end: 0 });
            }
        }
    }
    unreachable!("the rounds have no end")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// In one order of steps, locks and threads of the host change nothing: event by event both machines record the same.
    #[test]
    fn one_script_is_recorded_alike_by_both_machines(script in scripts(CPUS, THREADS, STEPS)) {
        let virtual_logs = on_virtual_machine(&script);
        let host = Host::new(CPUS, THREADS as usize);
        on_host(&host, &script, true);
        let host_logs = host.take_logs();
        for (on_virtual, on_host) in virtual_logs.iter().zip(&host_logs) {
            prop_assert_eq!(on_virtual.bytes(), on_host.bytes());
        }
        prop_assert_eq!(replay(virtual_logs), replay(host_logs));
    }

    /// In whatever order the host takes the steps, the records replay, and no thread is lost. Of the messages between CPUs some
    /// are lost.
    //= ARCH:inv.no-double-run
    #[test]
    fn cpus_that_run_at_once_lose_no_thread_and_their_records_replay(
        script in scripts(CPUS, THREADS, STEPS),
        one_arrives_of in 1u64..5,
    ) {
        let mut host = Host::new(CPUS, THREADS as usize);
        host.one_arrives_of = one_arrives_of;
        on_host(&host, &script, false);
        for index in 0..THREADS {
            let mut outside = host.seen_from(None);
            if let Some(home) = outside.home(thread(index)) {
                let seated = outside.with_cpu(home.cpu, |cpu| cpu.cpu().state(home.seat).is_ok());
                prop_assert!(seated, "thread {} is not where its home is", index);
            }
        }
        host.seen_from(None).with_contexts(|contexts, machine| contexts.verify(machine)).expect("one place each");
        end_all(&host);
        let (in_flight, rest) = host.seen_from(None).with_contexts(|contexts, machine| {
            let rest = contexts.names().all(|who| contexts.is_gone(who.id()) || contexts.is_free(who.id()));
            contexts.verify(machine).expect("one place each");
            (contexts.in_flight(), rest)
        });
        prop_assert_eq!((in_flight, rest), (0, true), "nobody is left to have a context");
        let leases = host.seen_from(None).with_leases(|leases, _| leases.live_count());
        prop_assert_eq!(leases, 0, "nobody is left to have a CPU to itself");
        let waits = host.seen_from(None).with_quota(|quota| quota.pending());
        prop_assert_eq!(waits, 0, "every wait that ended gave its permit back");
        prop_assert!(replay(host.take_logs()) > 0);
    }

    /// Whatever fails: CPUs are asked in their order until one is told, a CPU that was not told is not marked, and if
    /// no CPU was told every CPU was asked.
    //= OWN:driver.one
    #[test]
    fn a_failed_notification_is_followed_by_the_next(
        script in scripts(CPUS, THREADS, STEPS),
        fails in prop::collection::vec(any::<bool>(), 1..32),
    ) {
        let mut machine = VirtualMachine::new(CPUS, THREADS as usize);
        machine.fails = fails;
        for (number, step) in script.iter().enumerate() {
            let here = cpu(step.cpu);
            machine.now = time_of(number);
            machine.here = Some(here);
            machine.attempts.clear();
            let told: Vec<bool> = (0..CPUS).map(|index| machine.is_told(cpu(index))).collect();
            if let Action::Wake(index) = step.action {
                let _whether_it_slept = mainspring_driver::placement::wake(&mut machine, thread(index));
                check_attempts(&mut machine, &told, index)?;
            }
            take(&mut machine, here, step.action);
        }
    }
}

/// The server ends on CPU 1, and its caller has the context back on CPU 0, both at one moment: joined by time, the records show
/// the end first.
#[test]
fn a_context_comes_back_after_the_end_of_the_server_that_had_it() {
    let step = |cpu, action| Step { cpu, action };
    let script = [
        step(0, Action::Start { thread: 0, cpus: 0b01 }),
        step(1, Action::Start { thread: 1, cpus: 0b10 }),
        step(1, Action::Wait),
        step(0, Action::Grant { thread: 0, home: 0 }),
        step(0, Action::Call { server: 1, timeout: 0 }),
        step(1, Action::Look),
        step(1, Action::Exit),
        step(0, Action::EndCall { caller: 0, end: 0 }),
    ];
    assert!(replay(on_virtual_machine(&script)) > 0);
}

/// After a wake of `index`, before which `told` had been told: each CPU that should have been asked was.
fn check_attempts(machine: &mut VirtualMachine, told: &[bool], index: u32) -> Result<(), TestCaseError> {
    let sent: Vec<usize> =
        (0..machine.attempts.len()).filter(|number| machine.attempts[*number].1 == Notified::Sent).collect();
    prop_assert!(sent.len() <= 1 && sent.iter().all(|number| number + 1 == machine.attempts.len()));
    for (number, before) in told.iter().enumerate() {
        let sent = machine.attempts.contains(&(cpu(number), Notified::Sent));
        prop_assert_eq!(machine.is_told(cpu(number)), *before || sent);
    }
    let Some(home) = machine.home(thread(index)) else { return Ok(()) };
    // One with a context cannot go elsewhere.
    let affinity = machine.with_cpu(home.cpu, |cpu| {
        let movable = |entity: &Entity| *entity.authority() == Authority::BestEffort;
        let entity = cpu.cpu().entity(home.seat).ok().filter(|entity| movable(entity))?;
        (cpu.cpu().state(home.seat) == Ok(State::Queued)).then(|| entity.affinity().clone())
    });
    let (Some(affinity), true) = (affinity, sent.is_empty() && !machine.attempts.is_empty()) else {
        return Ok(());
    };
    let should_know = |machine: &VirtualMachine, number: usize| {
        let open = machine.is_idle(cpu(number)) && machine.may_enter(thread(index), cpu(number));
        number != home.cpu.index() && open && affinity.allows(cpu(number))
    };
    if machine.here.is_some_and(|here| should_know(machine, here.index())) {
        // It looks for itself, so no CPU after it is asked.
        return Ok(());
    }
    for number in 0..CPUS {
        let asked = machine.attempts.iter().any(|(asked, _)| asked.index() == number);
        prop_assert!(asked || !should_know(machine, number), "CPU {} idles and was not asked", number);
    }
    Ok(())
}

/// A machine gives the number of a thread that has ended to another one, which may ask for more or less at a time.
#[test]
fn the_number_of_an_ended_thread_is_anothers_with_a_request_of_its_own() {
    let mut machine = VirtualMachine::new(CPUS, THREADS as usize);
    machine.here = Some(cpu(0));
    for (generation, request) in [(0, Some(Nanos::from_millis(12))), (1, None)] {
        let spec = Spec {
            thread: ThreadRef::new(0, generation),
            process: ProcessId::new(0),
            weight: Weight::DEFAULT,
            class: LatencyClass::Normal,
            request,
            affinity: Affinity::Any,
        };
        machine.now += Nanos::from_millis(1);
        let started = placement::start(&mut machine, cpu(0), Entity::new(spec));
        assert!(started.is_ok());
        take(&mut machine, cpu(0), Action::Look);
        machine.now += Nanos::from_millis(1);
        take(&mut machine, cpu(0), Action::Exit);
    }
    assert!(replay(machine.take_logs()) > 0);
}
