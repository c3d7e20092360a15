//! Contexts on one CPU: order, budgets to the nanosecond, refills, the floor, and loans.

mod rig;

use mainspring_abi::{ContextRef, Nanos, Policy};
use mainspring_sched::Floor;
use mainspring_sched::context::{Context, ContextSpec, LoanError, NoticeKind, Overrun};
use mainspring_sched::{
    AcceptError, BindRefusal, Config, Cpu, LendError, Seat, SeatError, State, Stop, Via, WaitKind,
};
use rig::{Rig, cpu_id, ms, only, us};

struct Bench {
    rig: Rig,
    /// How many contexts there are.
    contexts: u32,
}

impl Bench {
    fn with_floor(floor: Floor) -> Self {
        let mut rig = Rig::new(Policy::Eevdf);
        rig.cpu = Cpu::new(Config { floor, ..Config::new(cpu_id(0), Policy::Eevdf) });
        rig.cpu.reserve(64).expect("64 seats fit");
        Self { rig, contexts: 0 }
    }

    fn new() -> Self {
        Self::with_floor(Floor::NONE)
    }

    /// A context that no thread has.
    fn context(&mut self, spec: ContextSpec) -> Box<Context> {
        self.contexts += 1;
        Box::new(Context::new(ContextRef::new(self.contexts, 0), spec, self.rig.now))
    }

    /// A ready thread with a context of its own.
    fn grant(&mut self, spec: ContextSpec) -> (Seat, ContextRef) {
        let seat = self.rig.thread(64);
        let context = self.context(spec);
        let who = context.who();
        self.rig.cpu.bind(self.rig.now, seat, context).expect("it has none");
        (seat, who)
    }

    fn budget(&mut self, budget: u64, period: u64) -> Seat {
        self.grant(ContextSpec::new(ms(budget), ms(period))).0
    }

    fn used(&self, seat: Seat) -> Nanos {
        let context = self.rig.cpu.entity(seat).expect("it sits there").context().expect("it holds one");
        context.usage().used
    }

    /// Runs for `length` and gives which thread ran from when to when, in whole milliseconds.
    fn timeline(&mut self, length: u64) -> Vec<(u32, u64, u64)> {
        let start = self.rig.now;
        if self.rig.cpu.current().is_none() {
            self.rig.start();
        }
        let mut at = start;
        let mut segments: Vec<(u32, u64, u64)> = Vec::new();
        while at < start + ms(length) {
            let next = self.rig.cpu.next_timer().min(start + ms(length));
            if let Some(current) = self.rig.cpu.current() {
                let (from, to) = (at.get() / 1_000_000, next.get() / 1_000_000);
                match segments.last_mut() {
                    Some(last) if last.0 == current.thread().index() && last.2 == from => last.2 = to,
                    _ => segments.push((current.thread().index(), from, to)),
                }
            }
            at = next;
            self.rig.now = next;
            let _ = self.rig.cpu.timer(next);
            self.rig.cpu.verify().expect("the structure holds");
            let idle = self.rig.cpu.current().is_none();
            if idle && self.rig.cpu.queued() > 0 {
                self.rig.start();
            } else if !idle && self.rig.cpu.reschedule_wanted() {
                self.rig.preempt();
            }
        }
        segments.retain(|(_, from, to)| from < to);
        segments
    }
}

//= ARCH:ctx.throttle TICK:L5.enforce EVO:S4.eligible TICK:verify.realtime TICK:telemetry
#[test]
fn a_thread_runs_for_its_budget_and_waits_for_its_refill() {
    let mut bench = Bench::new();
    let hog = bench.rig.thread(64);
    let rt = bench.budget(2, 10);
    assert_eq!(
        bench.timeline(24),
        [(1, 0, 2), (0, 2, 10), (1, 10, 12), (0, 12, 20), (1, 20, 22), (0, 22, 24)]
    );
    assert_eq!(bench.rig.cpu.state(rt), Ok(State::Throttled));
    assert_eq!(bench.used(rt), ms(6), "to the nanosecond");
    assert_eq!(bench.rig.runtime(hog), ms(16));
    assert_eq!(bench.rig.cpu.telemetry().budgets_exhausted, 3);
    let context = bench.rig.cpu.entity(rt).expect("it sits there").context().expect("it holds one");
    assert_eq!((context.usage().overshoot_max, context.usage().misses), (Nanos::ZERO, 0));
    assert_eq!(context.notices().peek(NoticeKind::BudgetDepleted).map(|notice| notice.coalesced), Some(3));
}

//= TICK:telemetry
#[test]
fn a_deadline_that_passes_while_there_is_work_left_is_counted_once() {
    let mut bench = Bench::new();
    bench.budget(6, 10);
    bench.budget(6, 10);
    bench.timeline(10);
    assert_eq!(bench.rig.cpu.telemetry().realtime_overruns, 0, "6 and 4 of the 12 are done");
    bench.timeline(11);
    assert_eq!(bench.rig.cpu.telemetry().realtime_overruns, 1, "of the second, at 10 ms");
}

//= EVO:S4.single-charge
#[test]
fn an_interval_is_charged_to_the_context_or_to_the_share() {
    let mut bench = Bench::new();
    let hog = bench.rig.thread(64);
    let rt = bench.budget(2, 10);
    bench.timeline(20);
    let account = |seat| bench.rig.cpu.entity(seat).expect("it sits there").account().virtual_runtime();
    assert_eq!(account(rt), Nanos::ZERO, "time on a context is no share");
    assert_eq!(account(hog), ms(16));
    assert_eq!(bench.rig.cpu.charged_time(), ms(20));
}

/// Zircon: (period, capacity, start): A (10,5,0) and B (5,1,1) at time 0: A runs, and is preempted at 1.
//= TICK:verify.realtime
#[test]
fn zircon_an_earlier_deadline_preempts() {
    let mut bench = Bench::new();
    bench.grant(ContextSpec { deadline: ms(10), ..ContextSpec::new(ms(5), ms(10)) });
    bench.rig.start();
    bench.rig.pass(ms(1));
    bench.budget(1, 5);
    assert!(bench.rig.cpu.reschedule_wanted());
    bench.rig.preempt();
    assert_eq!(bench.timeline(5), [(1, 1, 2), (0, 2, 6)]);
}

/// Zircon: A (15,2,0) and B (10,5,5) at 5: equal finish at 15 goes to A, the earlier start, which is done at 7.
#[test]
fn zircon_an_equal_finish_goes_to_the_earlier_start() {
    let mut bench = Bench::new();
    // A has been ready since 0 behind a more urgent thread, which is done at 5.
    let first = bench.budget(5, 6);
    bench.budget(2, 15);
    bench.rig.start();
    bench.rig.now = ms(5);
    bench.budget(5, 10);
    let _context = bench.rig.cpu.unbind(bench.rig.now, first).expect("it runs on one");
    bench.rig.resched(Stop::Blocked(WaitKind::Park, None));
    assert_eq!(bench.timeline(7), [(1, 5, 7), (2, 7, 12)]);
}

#[test]
fn a_higher_band_goes_first_whatever_its_deadline() {
    let mut bench = Bench::new();
    bench.budget(3, 10);
    bench.grant(ContextSpec { criticality: 1, ..ContextSpec::new(ms(4), ms(50)) });
    assert_eq!(bench.timeline(7), [(1, 0, 4), (0, 4, 7)]);
}

#[test]
fn best_effort_keeps_its_floor_under_contexts_that_want_everything() {
    let mut bench = Bench::with_floor(Floor::DEFAULT);
    let hog = bench.rig.thread(64);
    bench.grant(ContextSpec { criticality: 255, ..ContextSpec::new(ms(200), ms(200)) });
    bench.timeline(1_000);
    let floor = bench.rig.runtime(hog);
    assert!(
        floor >= ms(45) && floor <= ms(50),
        "five percent of a second, less what is not due yet: {floor}"
    );
}

#[test]
fn without_a_floor_contexts_may_have_it_all() {
    let mut bench = Bench::new();
    let hog = bench.rig.thread(64);
    bench.budget(10, 10);
    bench.timeline(100);
    assert_eq!(bench.rig.runtime(hog), Nanos::ZERO);
}

/// The fair clock stands still while contexts run: two hogs share what is left, to the quantum.
#[test]
fn what_contexts_use_is_nobodys_share() {
    let mut bench = Bench::new();
    let (a, b) = (bench.rig.thread(64), bench.rig.thread(64));
    bench.budget(7, 10);
    bench.timeline(1_000);
    assert_eq!(bench.rig.runtime(a) + bench.rig.runtime(b), ms(300));
    let apart = bench.rig.runtime(a).max(bench.rig.runtime(b)) - ms(150);
    assert!(apart <= ms(3), "{apart} apart");
}

#[test]
fn a_context_that_only_notifies_lets_its_thread_go_on_without_it() {
    let mut bench = Bench::new();
    bench.rig.thread(64);
    let (rt, _) = bench.grant(ContextSpec { overrun: Overrun::Notify, ..ContextSpec::new(ms(2), ms(20)) });
    let segments = bench.timeline(20);
    assert_eq!(segments[0], (1, 0, 2));
    assert!(bench.rig.runtime(rt) > ms(8), "it has its share of the rest: {}", bench.rig.runtime(rt));
    assert_eq!(bench.used(rt), ms(2));
    assert_eq!(bench.rig.cpu.current(), Some(rt), "the refill makes it urgent again");
    assert!(bench.rig.cpu.runs_on_context());
    bench.timeline(2);
    assert_eq!(bench.used(rt), ms(4));
}

#[test]
fn a_sleeper_gets_no_two_budgets_back_to_back() {
    let mut bench = Bench::new();
    let rt = bench.budget(2, 10);
    bench.rig.start();
    bench.rig.sleep(ms(9));
    bench.rig.now = ms(9);
    let expired = bench.rig.cpu.expire(ms(9)).expect("due");
    bench.rig.quota.give_back(expired.woken.permit.expect("timed"));
    bench.rig.start();
    bench.timeline(9);
    assert_eq!(bench.used(rt), ms(2), "its next two milliseconds come at 19");
}

//= ARCH:ctx.generation
#[test]
fn a_binding_that_cannot_be_gives_the_context_back() {
    let mut bench = Bench::new();
    let (seat, who) = bench.grant(ContextSpec::new(ms(1), ms(10)));
    let second = bench.context(ContextSpec::new(ms(1), ms(10)));
    let refused = bench.rig.cpu.bind(ms(0), seat, second).expect_err("it has one");
    assert_eq!(refused.why, BindRefusal::Busy(who));
    let elsewhere = bench.context(ContextSpec { cpus: only(&[1]), ..ContextSpec::new(ms(1), ms(10)) });
    let free = bench.rig.thread(64);
    let refused = bench.rig.cpu.bind(ms(0), free, elsewhere).expect_err("another CPU's");
    assert_eq!(refused.why, BindRefusal::NotAllowed(cpu_id(0)));
    let stale = Seat::from_parts(seat.slot(), mainspring_abi::ThreadRef::new(99, 0));
    let refused = bench.rig.cpu.bind(ms(0), stale, refused.context).expect_err("nobody such");
    assert_eq!(refused.why, BindRefusal::Seat(SeatError::Stale));
    bench.rig.cpu.verify().expect("nothing has changed");
}

/// A caller with a context, a passive server, and a hog.
fn call_rig() -> (Bench, Seat, Seat, ContextRef) {
    let mut bench = Bench::new();
    let server = bench.rig.thread(64);
    bench.rig.start();
    bench.rig.resched(Stop::Blocked(WaitKind::Receive, None));
    bench.rig.thread(64);
    let (caller, who) = bench.grant(ContextSpec { depth: 2, ..ContextSpec::new(ms(5), ms(20)) });
    assert_eq!(bench.rig.start(), Some(caller));
    (bench, caller, server, who)
}

fn call(bench: &mut Bench, from: Seat, to: Seat) {
    let now = bench.rig.now;
    assert!(bench.rig.cpu.block_current(now, WaitKind::Call, None));
    let context = bench.rig.cpu.lend(now, from, to.thread()).expect("it has one to lend");
    bench.rig.cpu.bind(now, to, context).expect("a passive server");
    let _ = bench.rig.cpu.wake(now, to).expect("it waited");
    assert_eq!(bench.rig.start(), Some(to), "on the caller's time");
}

fn reply(bench: &mut Bench, from: Seat, to: Seat) {
    let now = bench.rig.now;
    assert!(bench.rig.cpu.block_current(now, WaitKind::Receive, None));
    let mut context = bench.rig.cpu.unbind(now, from).expect("it works on a loan");
    assert_eq!(context.return_to(), Some(to.thread()));
    bench.rig.cpu.bind(now, to, context).expect("it is the donor");
    let _ = bench.rig.cpu.wake(now, to).expect("its context is back");
    assert_eq!(bench.rig.start(), Some(to));
}

//= ARCH:donation.charge ARCH:donation.donor-block TICK:L6.return-first TICK:verify.realtime
#[test]
fn a_server_works_on_the_callers_time_and_gives_back_what_is_left() {
    let (mut bench, caller, server, who) = call_rig();
    bench.rig.pass(ms(1));
    call(&mut bench, caller, server);
    assert_eq!(bench.rig.cpu.wake(bench.rig.now, caller), Err(SeatError::ContextAway(who)));
    assert_eq!(bench.rig.cpu.lend(bench.rig.now, caller, server.thread()), Err(LendError::NoContext));
    bench.rig.pass(ms(3));
    reply(&mut bench, server, caller);
    let context = bench.rig.cpu.entity(caller).expect("it sits there").context().expect("it is back");
    assert_eq!((context.usage().used, context.usage().donated), (ms(4), ms(3)));
    assert_eq!(context.refills().head().amount, ms(1), "spent stays spent");
    assert_eq!(context.deadline(), ms(20), "the job goes on, with the deadline it had");
    assert_eq!(bench.rig.runtime(server), ms(3));
    bench.rig.cpu.verify().expect("the structure holds");
}

//= TICK:L6.scope
#[test]
fn a_loan_carries_time_and_nothing_else() {
    let (mut bench, caller, server, who) = call_rig();
    let looks = |bench: &Bench, seat: Seat| {
        let entity = bench.rig.cpu.entity(seat).expect("it sits there");
        (entity.thread(), entity.process(), entity.weight(), entity.class(), entity.affinity().clone())
    };
    let before = (looks(&bench, caller), looks(&bench, server));
    call(&mut bench, caller, server);
    assert_eq!((looks(&bench, caller), looks(&bench, server)), before);
    let lent = bench.rig.cpu.entity(server).expect("it sits there").context().expect("it was lent");
    assert_eq!((lent.who(), lent.deadline()), (who, ms(20)));
}

#[test]
fn a_loan_runs_dry_in_the_server_and_is_refilled_there() {
    let (mut bench, caller, server, _) = call_rig();
    call(&mut bench, caller, server);
    bench.timeline(7);
    assert_eq!(bench.rig.cpu.state(server), Ok(State::Throttled));
    bench.rig.now = ms(20);
    let _ = bench.rig.cpu.timer(ms(20));
    assert_eq!(bench.rig.preempt(), Some(server));
}

//= TICK:L6.nested TICK:L6.depth TICK:L6.cycles TICK:telemetry
#[test]
fn a_loan_is_handed_on_as_deep_as_it_may_and_never_in_a_circle() {
    let (mut bench, caller, server, _) = call_rig();
    let (second, third) = (bench.rig.thread(64), bench.rig.thread(64));
    call(&mut bench, caller, server);
    for deeper in [second, third] {
        bench.rig.cpu.hold(bench.rig.now, deeper).expect("queued");
        let removed = bench.rig.cpu.remove(bench.rig.now, deeper).expect("held");
        let (seat, _) = bench.rig.cpu.accept(bench.rig.now, removed.entity, Via::Admit).expect("room");
        assert_eq!(seat, deeper);
    }
    assert!(bench.rig.cpu.block_current(bench.rig.now, WaitKind::Call, None));
    let back = bench.rig.cpu.lend(bench.rig.now, server, caller.thread());
    assert_eq!(back, Err(LendError::Loan(LoanError::Cycle(caller.thread()))));
    let context = bench.rig.cpu.lend(bench.rig.now, server, second.thread()).expect("two deep");
    bench.rig.cpu.bind(bench.rig.now, second, context).expect("it has none");
    assert_eq!(bench.rig.start(), Some(second));
    assert!(bench.rig.cpu.block_current(bench.rig.now, WaitKind::Call, None));
    let too_deep = bench.rig.cpu.lend(bench.rig.now, second, third.thread());
    assert_eq!(too_deep, Err(LendError::Loan(LoanError::TooDeep { limit: 2 })));
    assert_eq!(bench.rig.cpu.telemetry().donation_depth_max, 2);
    assert!(
        bench.rig.cpu.entity(second).expect("it sits there").context().is_some(),
        "refused, and unchanged"
    );
}

//= ARCH:donation.cancel
#[test]
fn a_call_that_times_out_is_not_woken_before_its_context_is_back() {
    let (mut bench, caller, server, who) = call_rig();
    let now = bench.rig.now;
    let permit = bench.rig.quota.take(mainspring_abi::ProcessId::new(0)).expect("ample");
    let timeout = mainspring_sched::Timeout { deadline: ms(2), user_data: 7, permit };
    assert!(bench.rig.cpu.block_current(now, WaitKind::Call, Some(timeout)));
    let context = bench.rig.cpu.lend(bench.rig.now, caller, server.thread()).expect("it has one");
    bench.rig.cpu.bind(now, server, context).expect("passive");
    let _ = bench.rig.cpu.wake(now, server).expect("it waited");
    assert_eq!(bench.rig.start(), Some(server));
    bench.rig.now = ms(2);
    let _ = bench.rig.cpu.timer(ms(2));
    let expired = bench.rig.cpu.expire(ms(2)).expect("due");
    assert_eq!((expired.away, expired.woken.reschedule), (Some(who), false));
    assert_eq!(bench.rig.cpu.state(caller), Ok(State::Asleep(WaitKind::Call)), "not ready yet");
    assert_eq!(bench.rig.cpu.wake(ms(2), caller), Err(SeatError::ContextAway(who)));
    let mut context = bench.rig.cpu.unbind(ms(2), server).expect("it has the loan");
    assert!(context.cut(caller.thread()));
    bench.rig.cpu.bind(ms(2), caller, context).expect("it is the donor");
    let _ = bench.rig.cpu.wake(ms(2), caller).expect("its context is back");
    assert_eq!(bench.rig.preempt(), Some(caller));
    assert_eq!(bench.rig.cpu.state(server), Ok(State::Queued), "the server goes on as best effort");
    assert_eq!(bench.used(caller), ms(2), "what the server used stays used");
}

#[test]
fn a_loan_that_never_comes_back_is_written_off() {
    let (mut bench, caller, server, who) = call_rig();
    call(&mut bench, caller, server);
    let _gone = bench.rig.cpu.unbind(bench.rig.now, server).expect("it has the loan");
    assert_eq!(bench.rig.cpu.write_off(caller), Ok(who));
    let _ = bench.rig.cpu.wake(bench.rig.now, caller).expect("nothing is away any more");
    assert_eq!(bench.rig.cpu.entity(caller).expect("it sits there").context(), None);
}

#[test]
fn a_thread_takes_its_context_along_and_one_on_loan_stays() {
    let (mut bench, caller, server, who) = call_rig();
    call(&mut bench, caller, server);
    let donor = bench.rig.cpu.remove(bench.rig.now, caller).expect("asleep").entity;
    let refused = bench.rig.cpu.accept(bench.rig.now, donor, Via::Admit).expect_err("its context is away");
    assert_eq!(refused.why, AcceptError::ContextAway(who));
    let moved = bench.rig.cpu.exit_current(bench.rig.now).expect("the server runs");
    assert_eq!(moved.context().map(mainspring_sched::context::Context::who), Some(who));
    let (seat, _) = bench.rig.cpu.accept(bench.rig.now, moved, Via::Admit).expect("room");
    assert_eq!(bench.rig.start(), Some(seat), "still urgent");
    bench.rig.cpu.verify().expect("the structure holds");
}

//= ARCH:nohz.accounting
#[test]
fn a_running_context_is_stopped_at_its_end_although_nobody_waits() {
    let mut bench = Bench::new();
    bench.budget(2, 50);
    bench.rig.start();
    assert_eq!(bench.rig.cpu.next_timer(), ms(2));
    bench.rig.pass(us(500));
    assert_eq!(bench.rig.cpu.next_timer(), ms(2));
    bench.timeline(3);
    assert_eq!(bench.rig.cpu.current(), None);
    let idle = bench.rig.cpu.enter_idle(bench.rig.now, &mainspring_sched::IdleConditions::default());
    assert_eq!(
        idle,
        mainspring_sched::IdleTick::Suppressed { wake_at: ms(50) },
        "one interrupt, at the refill"
    );
}

/// What best effort had while no context was there is not owed to it again.
#[test]
fn the_floor_does_not_pile_up_while_there_are_no_contexts() {
    let mut bench = Bench::with_floor(Floor::DEFAULT);
    let hogs = [bench.rig.thread(64), bench.rig.thread(64)];
    let (rt, _) = bench.grant(ContextSpec::new(ms(10), ms(10)));
    bench.timeline(20);
    let context = bench.rig.cpu.unbind(bench.rig.now, rt).expect("it holds one");
    bench.timeline(2_000);
    let before = hogs.map(|seat| bench.rig.runtime(seat));
    bench.rig.cpu.bind(bench.rig.now, rt, context).expect("it has none");
    bench.timeline(90);
    let after = hogs.map(|seat| bench.rig.runtime(seat));
    let had = after[0] + after[1] - before[0] - before[1];
    assert!(had <= ms(5), "{had} in less than a period");
}

/// Everything that can be seen of a CPU.
fn seen(bench: &Bench) -> String {
    let cpu = &bench.rig.cpu;
    let entities: Vec<_> = cpu.threads().iter().map(|view| format!("{:?}", cpu.entity(view.seat))).collect();
    format!(
        "{:?} {entities:?} {:?} {:?} {:?}",
        cpu.threads(),
        cpu.telemetry(),
        cpu.next_timer(),
        cpu.charged_time()
    )
}

/// The same calls and replies, the long way and directly.
#[test]
fn a_direct_call_is_the_long_way_in_one_go() {
    let mut direct_ones = 0;
    for seed in 0u64..400 {
        let ((mut long, caller, server, _), (mut direct, ..)) = (call_rig(), call_rig());
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |bound: u64| {
            dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (dice >> 33) % bound
        };
        for _ in 0..3 {
            let (work, service) = (us(draw(900)), us(draw(900)));
            for bench in [&mut long, &mut direct] {
                bench.rig.pass(work);
            }
            if long.rig.cpu.current() != Some(caller) {
                break;
            }
            call(&mut long, caller, server);
            let now = direct.rig.now;
            match direct.rig.cpu.call_directly(now, server, None) {
                Ok(run) => {
                    assert_eq!(run.seat, server);
                    direct_ones += 1;
                }
                Err(_) => call(&mut direct, caller, server),
            }
            assert_eq!(seen(&long), seen(&direct), "seed {seed}");
            for bench in [&mut long, &mut direct] {
                bench.rig.pass(service);
            }
            reply(&mut long, server, caller);
            let now = direct.rig.now;
            match direct.rig.cpu.reply_directly(now, caller, None) {
                Ok((run, permit)) => assert_eq!((run.seat, permit), (caller, None)),
                Err(_) => reply(&mut direct, server, caller),
            }
            assert_eq!(seen(&long), seen(&direct), "seed {seed}");
        }
    }
    assert!(direct_ones > 400, "{direct_ones} went directly");
}

#[test]
fn a_call_that_cannot_go_directly_changes_nothing() {
    let (mut bench, _, server, _) = call_rig();
    let before = seen(&bench);
    // A more urgent thread waits.
    bench.rig.now = ms(1);
    bench.budget(1, 2);
    let disturbed = seen(&bench);
    assert_ne!(before, disturbed);
    assert_eq!(bench.rig.cpu.call_directly(ms(1), server, None), Err(None));
    // Its budget is over.
    assert_eq!(bench.rig.cpu.call_directly(ms(5), server, None), Err(None));
    assert_eq!(bench.rig.cpu.reply_directly(ms(1), server, None), Err(None), "nobody waits for a reply");
    assert_eq!(seen(&bench), disturbed);
}
