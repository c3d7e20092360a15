//! CPU time as authority: contexts that the manifest grants, and those made from them; who may bind them, what they grant, and
//! what becomes of them.
#![no_std]
#![no_main]

extern crate alloc;

mod again;
mod donation;
mod dropped;
mod ends;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_abi::ring::{CapSqeV2, QosFlags};
use mainspring_user::caps::{self, Context, ContextInfo, Grant, Telemetry, Thread, ThreadOptions};
use mainspring_user::schema::{ContextEnd, DrainStatus, OverrunPolicy};
use mainspring_user::{CapError, arch, client, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

//= ARCH:proof.context ARCH:proof.notify EVO:gate.context
fn main() -> i64 {
    match caps::arguments() {
        "hold" => return hold(),
        "hold-a-copy" => return hold_a_copy(),
        "wait-for-refill" => return ends::wait_for_refill(),
        "leave-others-throttled" => return ends::leave_others_throttled(),
        "make-contexts" => return ends::make_contexts(),
        "serve-for-ever" => return donation::serve_for_ever(),
        "call-until-killed" => return donation::call_until_killed(),
        "call-once" => return dropped::call_once(),
        _ => {}
    }
    let (first, second) = (context("context:a"), context("context:b"));
    bootstrap(first, second);
    let made = create(first);
    bind_and_rebind(first, made);
    deplete(first);
    notices(second);
    ends_with_its_thread(made);
    ends::cases(first);
    again::cases(first);
    donation::cases(first, second);
    dropped::case(first);
    named_in_requests(first);
    revoke(made);
    counters();
    say!("scheduling-context: all=ok");
    0
}

fn context(name: &str) -> Context {
    Context(caps::need(name))
}

fn info(of: Context) -> ContextInfo {
    of.info().expect("the context is there")
}

/// Runs `job` on the CPU where the time of `of` is set aside.
fn on_its_cpu(of: Context, job: impl FnOnce() -> i64 + Send + 'static) -> Thread {
    let options = ThreadOptions { cpus: 1 << info(of).cpu, ..ThreadOptions::default() };
    caps::spawn(options, job).expect("within the quota")
}

fn ended(thread: Thread) -> i32 {
    let code = thread.join().expect("its end is told");
    thread.detach().expect("a handle can be dropped");
    code
}

/// Two contexts of the manifest are two.
//= ARCH:ctx.ids
//= TICK:L5.fields
fn bootstrap(first: Context, second: Context) {
    let (a, b) = (info(first), info(second));
    assert_ne!(a.id, b.id, "two contexts alias");
    assert_eq!((a.budget_ns, a.period_ns), (2 * MS, 20 * MS));
    assert_eq!((b.budget_ns, b.period_ns), (MS, 10 * MS));
    assert!(!a.budget_enforced && !a.bound, "nobody has bound it");
    say!("scheduling-context: bootstrap=ok first={} second={}", a.id, b.id);
}

const SMALL: Grant = Grant {
    budget_ns: MS,
    period_ns: 20 * MS,
    deadline_ns: 0,
    overrun: OverrunPolicy::Throttle,
    cpus: 0,
    depth: 0,
};

/// What is made from a context grants no more than it, and is refused where deadlines would not hold.
//= ARCH:ctx.create-bind
//= OWN:create.authority
fn create(from: Context) -> Context {
    let made = from.create(SMALL).expect("less than its creator has");
    assert!(info(made).id > info(from).id, "numbers never repeat");
    let more = Grant { budget_ns: 3 * MS, ..SMALL };
    assert_eq!(from.create(more), Err(CapError::Denied), "more than its creator has");
    assert_eq!(from.create(Grant { budget_ns: 0, ..SMALL }), Err(CapError::InvalidParameter));
    assert_eq!(from.create(Grant { period_ns: 0, ..SMALL }), Err(CapError::InvalidParameter));
    assert_eq!(Context(caps::need("timer")).unbind(), Err(CapError::NoSuchMethod), "no context at all");
    // As many as a process may have, and then no more.
    let mut others = 0;
    let refused = loop {
        match from.create(Grant { budget_ns: MS / 100, ..SMALL }) {
            Ok(other) => {
                other.revoke().expect("it is there");
                other.release().expect("it is this process's");
                others += 1;
                if others == 300 {
                    break None;
                }
            }
            Err(code) => break Some(code),
        }
    };
    assert_eq!(refused, None, "what is revoked makes room");
    // Each of these is less than its creator has. All of them together are more than the process was given.
    let rest = [(); 4].map(|()| from.create(SMALL).expect("the process may make five of these"));
    let more = from.create(Grant { budget_ns: MS / 5, ..SMALL });
    assert_eq!(more, Err(CapError::QuotaExceeded), "time is minted");
    for made in rest {
        made.revoke().expect("it is there");
    }
    say!("scheduling-context: create=ok adopted={}", info(made).id);
    made
}

/// A thread binds a context and gives it up for another; a thread has one, and a context has one.
//= ARCH:ctx.info
//= ARCH:ctx.release
fn bind_and_rebind(first: Context, made: Context) {
    let thread = on_its_cpu(first, move || {
        first.bind().expect("it is free");
        let now = info(first);
        assert!(now.bound && now.budget_enforced, "the budget of a bound context is enforced");
        assert_eq!(first.bind(), Err(CapError::Busy), "it is bound already");
        assert_eq!(made.unbind(), Err(CapError::NotFound), "it is bound to another");
        if info(made).cpu == now.cpu {
            assert_eq!(made.bind(), Err(CapError::Busy), "a thread has one context");
        }
        first.unbind().expect("it is bound");
        assert_eq!(first.unbind(), Err(CapError::NotFound));
        if info(made).cpu == now.cpu {
            made.bind().expect("it is free, and so is the thread");
            made.unbind().expect("it is bound");
        }
        first.bind().expect("it is free again");
        first.unbind().expect("it is bound");
        // A capability that is given up takes the binding to its own context along, and no other.
        let [one, other] = [(); 2].map(|()| first.create(SMALL).expect("less than its creator has"));
        if info(one).cpu == now.cpu {
            one.bind().expect("it is free");
            other.release().expect("it is this process's");
            assert!(info(one).bound, "another context was released");
            one.release().expect("it is this process's");
            first.bind().expect("the thread is free again");
            first.unbind().expect("it is bound");
        }
        0
    });
    assert_eq!(ended(thread), 0);
    let cpus = caps::usage().expect("usage can be read").cpus;
    if cpus > 1 {
        let elsewhere = (info(first).cpu + 1) % cpus;
        let options = ThreadOptions { cpus: 1 << elsewhere, ..ThreadOptions::default() };
        let thread = caps::spawn(options, move || i64::from(first.bind() != Err(CapError::Denied)));
        assert_eq!(ended(thread.expect("within the quota")), 0, "bound where its time is not set aside");
    }
    assert!(!info(first).bound);
    say!("scheduling-context: bind=ok rebind=ok");
}

/// A thread that never stops gets its budget in each period, beside one that has no context.
//= ARCH:notify.passive
//= ARCH:ctx.throttle
//= TICK:L5.enforce
//= EVO:S4.eligible
fn deplete(of: Context) {
    static STOP: AtomicBool = AtomicBool::new(false);
    static OTHERS: AtomicU64 = AtomicU64::new(0);
    let before = info(of);
    let other = on_its_cpu(of, || {
        while !STOP.load(Ordering::Relaxed) {
            arch::spin(1000);
            OTHERS.fetch_add(1, Ordering::Relaxed);
        }
        0
    });
    let thread = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        let began = caps::now();
        // More than one budget, so it was used up and refilled: a thread that is throttled gets no further.
        while info(of).used_ns - before.used_ns < 5 * before.budget_ns {
            arch::spin(1000);
        }
        let (ran, after) = (caps::now() - began, info(of));
        of.unbind().expect("it is bound");
        // What was used has come back once as much time has passed, and a late one is paid for by the next.
        let refilled = || info(of).remaining_ns == before.budget_ns;
        assert!(caps::comes_true(MS, refilled), "the budget is never whole again");
        // Each period has one budget, and the time that the timer was late each time it was used up.
        let depletions = after.depletions - before.depletions;
        let most = (ran / after.period_ns + 2) * after.budget_ns + depletions * after.overshoot_max_ns;
        let used = after.used_ns - before.used_ns;
        assert!(used <= most, "{used} ns used in {ran} ns, at most {most} allowed");
        assert!(depletions > 0, "it used five budgets, and none was used up");
        say!(
            "scheduling-context: depletion=ok dispatch_effect=budgetEnforced used_ns={used} in_ns={ran} \
             throttled_ns={} refilled_ns={} overshoot_max_ns={}",
            ran.saturating_sub(used),
            info(of).remaining_ns,
            after.overshoot_max_ns
        );
        0
    });
    assert_eq!(ended(thread), 0);
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(ended(other), 0);
    assert!(OTHERS.load(Ordering::Relaxed) > 0, "best effort never ran while the context was throttled");
    say!("scheduling-context: throttling=ok refill=ok");
}

/// Events coalesce in the context's cells until they are drained; a thread can wait for the first.
//= ARCH:notify.coalesce
//= ARCH:notify.waiter
//= ARCH:notify.slots
fn notices(of: Context) {
    let _ = of.drain().expect("the context is there");
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let waiter = caps::spawn(ThreadOptions::default(), move || {
        of.wait().expect("something happens");
        i64::from(of.drain().map(|drained| drained.depleted > 0) != Ok(true))
    });
    let waiter = waiter.expect("within the quota");
    let spinner = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        while !told.load(Ordering::Relaxed) {
            arch::spin(1000);
        }
        of.unbind().expect("it is bound");
        0
    });
    assert_eq!(ended(waiter), 0, "who waited was not told");
    say!("scheduling-context: notification_wait=ok");
    let depletions = info(of).depletions;
    assert!(caps::comes_true(MS, || info(of).depletions >= depletions + 4), "it is not used up any more");
    stop.store(true, Ordering::Relaxed);
    assert_eq!(ended(spinner), 0);
    let drained = of.drain().expect("the context is there");
    assert!(drained.depleted >= 4, "{drained:?}: four events were told as fewer");
    assert_eq!(drained.status, DrainStatus::Ok);
    assert_eq!(of.drain().map(|again| (again.depleted, again.missed)), Ok((0, 0)), "drained twice");
    say!("scheduling-context: notification_coalescing=ok coalesced={}", drained.depleted);
}

/// The child: holds a context that it was granted until it is killed.
fn hold() -> i64 {
    let of = context("context:held");
    let thread = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        loop {
            arch::spin(1000);
        }
    });
    let _ = thread.join();
    0
}

/// A context is at rest again when its thread ends, by itself or by a kill of its process.
fn ends_with_its_thread(made: Context) {
    let thread = on_its_cpu(made, move || made.bind().map_or(1, |()| 0));
    assert_eq!(ended(thread), 0);
    assert!(!info(made).bound, "its thread has ended");
    for _ in 0..3 {
        let grants = &["console", "timer", "threads", "control", "park", "info"];
        let child = caps::start_with("scheduling-context", "hold", grants, &[("context:held", made.0)]);
        let child = child.expect("the program is in the image");
        assert!(caps::comes_true(MS, || info(made).bound), "the child never bound it");
        child.kill().expect("a handle can kill");
        assert_eq!(child.wait(), Ok(-3000));
        child.detach().expect("a handle can be dropped");
        assert!(!info(made).bound, "its process has ended");
    }
    say!("scheduling-context: exit_returns=ok");
}

/// A request may repeat the context that pays for it, and never choose it: any other number is refused. One that names a context
/// that is used up is answered so, also if the thread goes on as best effort.
//= TICK:L5.no-mint
//= EVO:S4.deadline-not-budget
fn named_in_requests(of: Context) {
    let ask = |id, deadline_ns| {
        let request = CapSqeV2 { sched_ctx_id: id, deadline_ns, ..CapSqeV2::nop(0) };
        client::wait(client::submit(request)?)
    };
    let made =
        of.create(Grant { overrun: OverrunPolicy::Notify, ..SMALL }).expect("less than its creator has");
    let (own, other) = (info(made).id, info(of).id);
    assert_eq!(ask(own, 0), Err(CapError::InvalidCapability), "the thread has no context");
    let thread = on_its_cpu(made, move || {
        made.bind().expect("it is free");
        for forged in [other, own + 1, u32::MAX] {
            assert_eq!(
                ask(forged, 0),
                Err(CapError::InvalidCapability),
                "context {forged} is not the thread's"
            );
        }
        for expected in [Ok(0), Err(CapError::BudgetExhausted), Ok(0)] {
            // A deadline brings no time, however near it is.
            while (ask(own, 0), ask(own, caps::now() + MS)) != (expected, expected) {
                arch::spin(1000);
            }
        }
        made.unbind().expect("it is bound");
        0
    });
    assert_eq!(ended(thread), 0);
    made.revoke().expect("it is there");
    say!("scheduling-context: forged_ids=ok budget_exhausted=ok");
}

/// The child: has a copy of a capability that another process revokes. A name of an old generation is told so, and changes
/// nothing.
fn hold_a_copy() -> i64 {
    let of = context("context:held");
    while of.drain().map(|drained| drained.status) == Ok(DrainStatus::Ok) {
        let _ = of.wait();
    }
    let drained = of.drain().expect("an old name is answered");
    assert_eq!((drained.status, drained.reason), (DrainStatus::StaleGeneration, ContextEnd::None));
    let (gone, info) = (Err(CapError::InvalidCapability), info(of));
    assert!(
        info.stale && !info.budget_enforced && info.remaining_ns == 0,
        "an old name says that time is left"
    );
    assert_eq!(of.create(SMALL).map(|_| ()), gone);
    assert_eq!((of.bind(), of.unbind(), of.revoke(), of.wait()), (gone, gone, gone, gone));
    0
}

/// A context that is revoked is gone for everybody: its thread goes on as best effort, and all names of it are stale but the one
/// of who revoked it.
//= ARCH:ctx.generation
//= ARCH:notify.drain
//= OWN:create.authority
fn revoke(made: Context) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let thread = on_its_cpu(made, move || {
        made.bind().expect("it is free");
        while !STOP.load(Ordering::Relaxed) {
            arch::spin(1000);
        }
        i64::from(made.unbind() != Err(CapError::InvalidCapability))
    });
    assert!(caps::comes_true(MS, || info(made).bound), "it was never bound");
    let grants = &["console", "timer", "threads", "control", "park", "info"];
    let child = caps::start_with("scheduling-context", "hold-a-copy", grants, &[("context:held", made.0)]);
    let child = child.expect("the program is in the image");
    caps::sleep(2 * MS).expect("within the quota");
    made.revoke().expect("it is there");
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(ended(thread), 0);
    assert_eq!(child.wait(), Ok(0), "another holder of the name was not told of the end");
    child.detach().expect("a handle can be dropped");
    assert!(info(made).stale, "a context is gone and its name is not");
    assert_eq!(made.bind(), Err(CapError::InvalidCapability));
    assert_eq!(made.create(SMALL), Err(CapError::InvalidCapability));
    assert_eq!(made.revoke(), Err(CapError::InvalidCapability), "revoked twice");
    assert_eq!(made.wait(), Err(CapError::InvalidCapability));
    let drained = made.drain().expect("its end can be asked for");
    assert_eq!((drained.status, drained.reason), (DrainStatus::Revoked, ContextEnd::ExplicitRevoke));
    say!("scheduling-context: stale_notification=staleGeneration");
    say!("scheduling-context: revoke=ok revoke_notification=explicitRevoke");
}

/// All that the cases have done is in the counters of the CPUs, each where it belongs.
//= TICK:telemetry TICK:verify.realtime
fn counters() {
    // A request that is late and was to be dropped.
    let late = CapSqeV2 { deadline_ns: 1, qos_flags: QosFlags::DROP_IF_LATE.bits(), ..CapSqeV2::nop(0) };
    let before = sum(|of| of.deadline_expired_count);
    assert_eq!(client::carry_out(late), Err(CapError::DeadlineExpired));
    assert_eq!(sum(|of| of.deadline_expired_count), before + 1, "deadline_expired_count");
    caps::sleep(30 * MS).expect("within the quota");
    assert!(sum(|of| of.scheduler_tick_count) > 0, "scheduler_tick_count");
    assert!(sum(|of| of.ticks_suppressed_idle) > 0, "ticks_suppressed");
    assert!(sum(|of| of.nohz_enter_idle) > 0, "nohz_enter_count");
    let (exits, reasons) = (sum(|of| of.nohz_exit.iter().sum()), sum(|of| of.nohz_exit.len() as u64));
    assert!(exits > 0 && exits <= sum(|of| of.nohz_enter_idle), "nohz_exit_count: {exits}");
    assert_eq!(reasons, 16 * sum(|_| 1), "nohz_exit_count has another list of reasons");
    assert!(sum(|of| of.budget_exhausted_count) >= 10, "budget_exhausted_count");
    assert!(sum(|of| of.oneshot_deadline_miss_count) > 0, "oneshot_deadline_miss_count");
    let (overruns, exhausted) = (sum(|of| of.realtime_overrun_count), sum(|of| of.budget_exhausted_count));
    assert!(overruns < exhausted * 1000, "realtime_overrun_count: {overruns}");
    let deepest = (0..cpus()).map(|cpu| telemetry(cpu).donation_depth_max).max();
    assert_eq!(deepest, Some(2), "donation_depth_max: a server called another one, and no further");
    // No CPU is leased here.
    let leases = sum(|of| of.ticks_suppressed_lease + of.nohz_enter_lease.iter().sum::<u64>());
    assert_eq!(leases, 0, "ticks_suppressed{{mode=lease}}");
    let polled = sum(|of| of.sqpoll_busy_ns + of.sqpoll_sleep_count);
    assert_eq!(polled, 0, "sqpoll_busy_ns and sqpoll_sleep_count: no ring is polled here");
    assert_eq!(sum(|of| of.housekeeping_offload_count), 0, "housekeeping_offload_count");
    say!("scheduling-context: counters=ok");
}

fn cpus() -> u32 {
    caps::usage().expect("usage can be read").cpus
}

fn telemetry(cpu: u32) -> Telemetry {
    caps::telemetry(cpu).expect("the CPU is there")
}

fn sum(of: impl Fn(&Telemetry) -> u64) -> u64 {
    (0..cpus()).map(|cpu| of(&telemetry(cpu))).sum()
}
