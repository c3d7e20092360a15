//! Direct handoff: a preference that bypasses no check.

mod rig;

use mainspring_abi::{ContextRef, Nanos, Policy, ProcessId};
use mainspring_sched::context::{Context, ContextSpec, Overrun};
use mainspring_sched::{Decision, Handoff, Seat, SeatError, State, Stop, Timeout, WaitKind};
use rig::{Rig, ms, us};

/// A hog, a caller that runs, and a server that waits.
fn rig(policy: Policy) -> (Rig, mainspring_sched::Seat, mainspring_sched::Seat, mainspring_sched::Seat) {
    let mut rig = Rig::new(policy);
    let server = rig.thread(64);
    rig.start();
    rig.block();
    let caller = rig.thread(64);
    rig.start();
    let hog = rig.thread(64);
    (rig, hog, caller, server)
}

//= ARCH:direct-ipc
#[test]
fn the_target_runs_before_queued_work_when_the_caller_blocks() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let (mut rig, hog, caller, server) = rig(policy);
        rig.pass(us(10));
        assert_eq!(rig.cpu.hand_off(rig.now, server), Ok(Handoff::Direct(None)));
        assert_eq!(rig.cpu.state(server), Ok(State::Direct));
        assert_eq!(rig.resched(Stop::Blocked(WaitKind::Call, None)), Some(server));
        assert_eq!(rig.cpu.telemetry().handoffs, 1);
        assert_eq!(rig.cpu.state(hog), Ok(State::Queued));
        assert_eq!(rig.cpu.state(caller), Ok(State::Asleep(WaitKind::Call)));
    }
}

//= ARCH:direct-ipc
#[test]
fn the_target_gets_the_rest_of_the_callers_slice_and_no_more() {
    let (mut rig, _, _, server) = rig(Policy::Eevdf);
    rig.pass(ms(2));
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let Decision::Run(run) = rig.cpu.resched(rig.now, Stop::Blocked(WaitKind::Call, None)) else {
        panic!("the server is ready")
    };
    assert_eq!(
        (run.seat, run.slice_end),
        (server, ms(3)),
        "the caller's quantum began at 0 and ends at 3 ms"
    );
}

//= ARCH:direct-ipc ARCH:inv.direct-ipc
#[test]
fn a_second_target_is_queued() {
    let mut rig = Rig::new(Policy::Eevdf);
    let (first, second) = (rig.thread(64), rig.thread(64));
    rig.start();
    rig.block();
    assert_eq!(rig.block(), None, "both wait");
    rig.pass(ms(10));
    let caller = rig.thread(64);
    assert_eq!(rig.start(), Some(caller));
    assert_eq!(rig.cpu.hand_off(rig.now, first), Ok(Handoff::Direct(None)));
    assert_eq!(rig.cpu.hand_off(rig.now, first).err(), Some(SeatError::WrongState(State::Direct)));
    assert!(matches!(rig.cpu.hand_off(rig.now, second), Ok(Handoff::Queued(_))));
    assert_eq!((rig.cpu.state(first), rig.cpu.state(second)), (Ok(State::Direct), Ok(State::Queued)));
    rig.pass(us(10));
    assert_eq!(rig.resched(Stop::Blocked(WaitKind::Call, None)), Some(first), "the first goes first");
}

//= ARCH:inv.direct-ipc ARCH:direct-ipc
#[test]
fn a_target_ahead_of_its_share_gets_what_is_left_of_its_own_request() {
    let mut rig = Rig::new(Policy::Eevdf);
    let server = rig.thread(8);
    assert_eq!(rig.start(), Some(server));
    let (hog, caller) = (rig.thread(64), rig.thread(64));
    rig.pass(ms(3)).block();
    assert_eq!(rig.cpu.current(), Some(hog));
    rig.pass(ms(3)).preempt();
    assert_eq!(rig.cpu.current(), Some(caller));
    let lag = rig.cpu.lag(rig.now, server).expect("live").magnitude();
    assert!(lag > ms(2), "the server owes nearly its whole request");
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let Decision::Run(run) = rig.cpu.resched(rig.now, Stop::Blocked(WaitKind::Call, None)) else {
        panic!("the server is ready")
    };
    assert_eq!((run.seat, run.slice_end), (server, rig.now + (ms(3) - lag)));
    assert_eq!(rig.cpu.state(hog), Ok(State::Queued));
}

//= ARCH:direct-ipc
#[test]
fn a_target_without_a_slice_to_run_on_is_queued() {
    let (mut rig, hog, caller, server) = rig(Policy::Eevdf);
    rig.pass(ms(3));
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let next = rig.resched(Stop::Blocked(WaitKind::Call, None));
    assert_ne!(next, Some(caller));
    assert_eq!(rig.cpu.telemetry().handoffs_queued, 1, "the caller's slice was over when it called");
    assert!([Some(hog), Some(server)].contains(&next), "the queue has decided");
}

//= ARCH:inv.direct-ipc ARCH:inv.exit-clean
#[test]
fn a_target_that_dies_leaves_no_stale_preference() {
    let (mut rig, hog, _, server) = rig(Policy::Eevdf);
    let _ = rig.cpu.hand_off(rig.now, server).expect("asleep");
    let _ = rig.cpu.remove(rig.now, server).expect("a direct target can be removed");
    assert_eq!(rig.block(), Some(hog));
    assert_eq!(rig.cpu.hand_off(rig.now, server).err(), Some(SeatError::Stale));
}

//= EVO:gate.fairness
#[test]
fn a_pair_that_hands_the_cpu_to_and_fro_starves_nobody() {
    for policy in [Policy::Eevdf, Policy::Wfq] {
        let (mut rig, hog, caller, server) = rig(policy);
        let (mut a, mut b) = (caller, server);
        while rig.now < Nanos::from_secs(1) {
            rig.pass(us(50));
            let _ = rig.cpu.timer(rig.now);
            if rig.cpu.reschedule_wanted() {
                rig.preempt();
            }
            while rig.cpu.current() == Some(hog) {
                rig.now = rig.cpu.next_timer();
                let _ = rig.cpu.timer(rig.now);
                if rig.cpu.reschedule_wanted() {
                    rig.preempt();
                }
            }
            if rig.cpu.current() == Some(a) {
                let _ = rig.cpu.hand_off(rig.now, b).expect("the partner waits");
                rig.resched(Stop::Blocked(WaitKind::Call, None));
                std::mem::swap(&mut a, &mut b);
            }
        }
        let share = rig.runtime(hog).get() as f64 / rig.now.get() as f64;
        assert!(share > 0.30, "{policy:?}: a third is the hog's due against two, it got {share:.3}");
    }
}

/// Everything that can be seen of a CPU.
fn seen(rig: &Rig) -> String {
    let cpu = &rig.cpu;
    cpu.verify().expect("the core keeps its promises");
    let entities: Vec<_> = cpu.threads().iter().map(|view| format!("{:?}", cpu.entity(view.seat))).collect();
    let clock = (cpu.virtual_clock(), cpu.load(), cpu.charged_time(), cpu.next_timer(), cpu.next_deadline());
    format!("{:?} {entities:?} {:?} {clock:?} {:?}", cpu.threads(), cpu.telemetry(), cpu.reschedule_wanted())
}

struct Dice(u64);

impl Dice {
    fn draw(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % bound
    }
}

/// Hands the CPU to `next` and waits for `timeout`, in two steps or in one; whether it could be one.
fn switch(rig: &mut Rig, next: Seat, timeout: Option<Nanos>, directly: bool) -> bool {
    let timeout = timeout.map(|length| {
        let permit = rig.quota.take(ProcessId::new(0)).expect("the rig's quota is ample");
        Timeout { deadline: rig.now + length, user_data: 7, permit }
    });
    let timeout = if directly {
        match rig.cpu.switch_directly(rig.now, next, WaitKind::Call, timeout) {
            Ok((run, permit)) => {
                assert_eq!(rig.cpu.current(), Some(run.seat));
                permit.into_iter().for_each(|permit| rig.quota.give_back(permit));
                return true;
            }
            Err(timeout) => timeout,
        }
    } else {
        timeout
    };
    let permit = match rig.cpu.hand_off(rig.now, next).expect("asleep") {
        Handoff::Direct(permit) => permit,
        Handoff::Queued(woken) => woken.permit,
    };
    permit.into_iter().for_each(|permit| rig.quota.give_back(permit));
    let _ = rig.resched(Stop::Blocked(WaitKind::Call, timeout));
    false
}

//= ARCH:direct-ipc ARCH:inv.direct-ipc
#[test]
fn a_direct_switch_is_the_long_way_in_one_go() {
    let (mut direct_ones, mut beside_contexts) = (0, 0);
    for seed in 0u64..1200 {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let policy = if seed % 2 == 0 { Policy::Eevdf } else { Policy::Wfq };
        let mut rigs = [Rig::new(policy), Rig::new(policy)];
        let weights: Vec<u64> = (0..2 + dice.draw(4)).map(|_| 1 + dice.draw(200)).collect();
        let seats: Vec<Seat> = weights
            .iter()
            .map(|weight| {
                let [one, other] = &mut rigs;
                let seat = one.thread(*weight);
                assert_eq!(seat, other.thread(*weight));
                seat
            })
            .collect();
        // In half of the worlds one thread has a context: it sleeps, waits for a refill, or runs like the others.
        let on_context = (seed % 4 > 1).then_some(seats[0]);
        for rig in rigs.iter_mut().filter(|_| on_context.is_some()) {
            let overrun = if seed % 8 > 5 { Overrun::Notify } else { Overrun::Throttle };
            let spec = ContextSpec { overrun, ..ContextSpec::new(us(400), us(3_000)) };
            let context = Box::new(Context::new(ContextRef::new(1, 0), spec, rig.now));
            let _ = rig.cpu.bind(rig.now, seats[0], context).expect("it has none");
        }
        for step in 0..60 {
            let passes = if dice.draw(4) == 0 { us(dice.draw(9_000)) } else { Nanos::new(dice.draw(40_000)) };
            let (choice, timeout) = (dice.draw(10), dice.draw(3));
            let target = seats[dice.draw(seats.len() as u64) as usize];
            let timeout = (timeout == 0).then_some(us(1 + timeout * 500));
            for (number, rig) in rigs.iter_mut().enumerate() {
                rig.pass(passes);
                if on_context.is_some() && rig.cpu.next_timer() <= rig.now {
                    let _ = rig.cpu.timer(rig.now);
                }
                while let Some(expired) = rig.cpu.expire(rig.now) {
                    expired.woken.permit.into_iter().for_each(|permit| rig.quota.give_back(permit));
                }
                let asleep = matches!(rig.cpu.state(target), Ok(State::Asleep(_)));
                match (rig.cpu.current(), choice) {
                    (None, _) => drop(rig.start()),
                    (Some(_), 0) => drop(rig.preempt()),
                    (Some(_), 1) => drop(rig.block()),
                    (Some(_), _) if asleep => {
                        let directly = u32::from(switch(rig, target, timeout, number == 1));
                        direct_ones += directly;
                        beside_contexts += if on_context.is_some() { directly } else { 0 };
                    }
                    (Some(_), _) => drop(rig.resched(Stop::Yielded)),
                }
            }
            assert_eq!(seen(&rigs[0]), seen(&rigs[1]), "seed {seed}, step {step}");
        }
    }
    assert!(direct_ones > 2_000, "{direct_ones} went directly");
    assert!(beside_contexts > 500, "{beside_contexts} of them beside a context");
}

#[test]
fn a_switch_that_cannot_go_directly_changes_nothing() {
    let (mut rig, hog, caller, server) = rig(Policy::Eevdf);
    rig.pass(ms(3));
    let before = seen(&rig);
    let mut refused = |now, seat| rig.cpu.switch_directly(now, seat, WaitKind::Call, None) == Err(None);
    assert!(refused(ms(3), server), "the caller's slice is over");
    assert!(refused(ms(1), hog), "it does not wait");
    assert!(refused(ms(1), caller), "it runs itself");
    assert!(refused(ms(1), Seat::from_parts(40, server.thread())), "nobody sits there");
    assert_eq!(seen(&rig), before);
}
