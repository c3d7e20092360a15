//! Rings that the kernel polls: a thread submits and reaps without entering the kernel, on a CPU that its poller has to itself and
//! that has no tick. Then the same with a ring that lies, a poller that is not paid for ever, and ends at any moment.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::kernel::{FOREVER, RING_ARENA};
use mainspring_abi::ring::{CapCqe, CapSqe, CapSqeV2, op, word};
use mainspring_user::caps::{self, Context, Lease, LeaseGrant, Thread, ThreadOptions};
use mainspring_user::client::{self, Ticket};
use mainspring_user::schema::{
    LeaseEnd, LeaseMode, NamedRing, Obligation, SystemInfoMethod, ThreadControlMethod, TimerMethod,
};
use mainspring_user::{CapError, arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

fn main() -> i64 {
    match caps::arguments() {
        "scribble" => return scribble(),
        "leave" => return leave(),
        _ => {}
    }
    let cpu = caps::usage().expect("usage can be read").cpus - 1;
    refusals(cpu);
    served_without_entering(cpu);
    producer_wakes(cpu);
    without_a_tick(cpu);
    paid_by_a_context();
    stops(cpu);
    counters(cpu);
    hostile();
    say!("sqpoll-nohz: all=ok");
    0
}

fn polled(cpus: &[u8]) -> LeaseGrant<'_> {
    LeaseGrant { cpus, mode: LeaseMode::KernelSqpoll, ring: NamedRing::CallerThread, ..LeaseGrant::default() }
}

fn request(op: u16, cap: u32, method: u16) -> CapSqeV2 {
    CapSqeV2::from_v1(CapSqe { op, cap_id: cap, method_id: method, ..CapSqe::default() })
}

/// Looks until the completion of `ticket` is there, without entering the kernel.
fn look_for(ticket: Ticket) -> CapCqe {
    loop {
        if let Some(cqe) = client::poll(ticket).expect("a ring of one's own") {
            return cqe;
        }
        arch::spin(10);
    }
}

/// Submits a request to the poller, wakes it if it sleeps, and looks until the completion is there. How often it was woken.
fn carry_out(request: CapSqeV2, wakes: &mut u32) -> CapCqe {
    let (ticket, asleep) = client::submit_to_poller(request).expect("there is room");
    if asleep {
        *wakes += 1;
        client::enter(0, 0).expect("a ring of one's own");
    }
    look_for(ticket)
}

/// Runs `job` on a thread whose ring is polled, under a lease that this thread has as well.
fn on_polled_ring(
    cpu: u32,
    asked: LeaseGrant<'_>,
    job: impl FnOnce() -> i64 + Send + 'static,
) -> (Thread, Lease) {
    let made = Arc::new([const { AtomicU32::new(0) }; 3]);
    let (theirs, cpus) = (made.clone(), [1u8 << cpu]);
    let (account, spin, latency) = (asked.account, asked.allow_busy_spin, asked.max_revocation_latency_ns);
    let thread = caps::spawn(ThreadOptions::default(), move || {
        let asked = LeaseGrant {
            account,
            allow_busy_spin: spin,
            max_revocation_latency_ns: latency,
            ..polled(&cpus)
        };
        let lease = caps::lease(&asked).expect("the CPU is free");
        theirs[1].store(lease.id as u32, Ordering::Relaxed);
        theirs[2].store(lease.generation as u32, Ordering::Relaxed);
        theirs[0].store(lease.cap, Ordering::Release);
        job()
    });
    let thread = thread.expect("within the quota");
    assert!(caps::comes_true(MS, || made[0].load(Ordering::Acquire) != 0), "it was not granted");
    let read = |at: usize| made[at].load(Ordering::Acquire);
    (thread, Lease { cap: read(0), id: u64::from(read(1)), generation: u64::from(read(2)) })
}

fn ended(thread: Thread) {
    assert_eq!(thread.join(), Ok(0));
    thread.detach().expect("a handle can be dropped");
}

/// What a poller is not granted for.
//= TICK:nongoal.process-ring
//= ARCH:nohz.refuse
fn refusals(cpu: u32) {
    let (one, two) = ([1u8 << cpu], [3u8 << (cpu - 1)]);
    let refused = |asked: LeaseGrant<'_>| caps::lease(&asked).map(|_| ()).expect_err("it is refused");
    let without = LeaseGrant { ring: NamedRing::None, ..polled(&one) };
    assert_eq!(refused(without), CapError::InvalidParameter, "it names no ring");
    assert_eq!(refused(polled(&two)), CapError::InvalidParameter, "a poller has one CPU");
    let other = LeaseGrant { mode: LeaseMode::Compute, ..polled(&one) };
    assert_eq!(refused(other), CapError::Denied, "a ring that nobody polls");
    let another = caps::spawn(ThreadOptions::default(), || 0).expect("within the quota");
    let of_another = LeaseGrant { thread: another.cap(), ..polled(&one) };
    let why = refused(of_another);
    assert!(matches!(why, CapError::InvalidParameter | CapError::PeerGone), "the caller's own ring: {why:?}");
    ended(another);
    let threads = caps::usage().expect("usage can be read").threads;
    assert_eq!(threads, 1, "a poller that was refused is still there");
    say!("sqpoll-nohz: refusals=ok");
}

/// Hundreds of requests are carried out while their thread never enters the kernel, but to wake a poller that sleeps.
//= ARCH:sqpoll.start
//= ARCH:sqpoll.batch
//= TICK:L2.modes
//= TICK:L2.ownership
//= TICK:nongoal.second-consumer
fn served_without_entering(cpu: u32) {
    let looked = Arc::new(AtomicU32::new(0));
    let theirs = looked.clone();
    let (thread, lease) =
        on_polled_ring(cpu, LeaseGrant { allow_busy_spin: true, ..LeaseGrant::default() }, move || {
            let (mut wakes, timer) = (0, caps::need("timer"));
            let mut now = [0u8; 32];
            for _ in 0..200 {
                assert_eq!(carry_out(request(op::NOP, 0, 0), &mut wakes).error, 0);
                let ask = client::request(timer, TimerMethod::Now as u16, &[], &mut now);
                assert_eq!(carry_out(ask, &mut wakes).error, 0);
            }
            // A burst, longer than a batch, in order.
            let tickets: alloc::vec::Vec<_> = (0..16)
                .map(|_| client::submit_to_poller(request(op::NOP, 0, 0)).expect("there is room").0)
                .collect();
            tickets.into_iter().for_each(|ticket| assert_eq!(look_for(ticket).error, 0));
            assert!(wakes < 400, "each request had to wake the poller");
            // What needs the thread's own CPU is refused, and nothing has happened.
            let control = caps::need("control");
            let refused =
                carry_out(request(op::CALL, control, ThreadControlMethod::Yield as u16), &mut wakes);
            // If the poller slept, this thread's own entry carried it out.
            let code = client::outcome(&refused);
            assert!(matches!(code, Err(CapError::NotPolled) | Ok(_)), "{code:?}");
            // The lease ends with its thread.
            while theirs.load(Ordering::Acquire) == 0 {
                arch::spin(1000);
            }
            0
        });
    assert_eq!(lease.info().expect("it is there").mode, LeaseMode::KernelSqpoll);
    looked.store(1, Ordering::Release);
    ended(thread);
    assert!(
        caps::comes_true(MS, || lease.info().is_ok_and(|info| info.end != LeaseEnd::Live)),
        "its thread ended"
    );
    lease.release().expect("what has ended can be forgotten");
    say!("sqpoll-nohz: served=ok");
}

/// A poller with nothing to do announces that it sleeps; a producer sees that and wakes it. `cap_enter` waits for completions and
/// drains no more than a batch.
//= ARCH:sqpoll.cycle
//= ARCH:sqpoll.capenter-wake
//= TICK:L2.wake-protocol
//= TICK:L2.wake-producer
fn producer_wakes(cpu: u32) {
    let info = caps::need("info");
    let (thread, lease) = on_polled_ring(cpu, LeaseGrant::default(), move || {
        for _ in 0..50 {
            // It sleeps after each: nothing lets it spin.
            let mut wakes = 0;
            let slept = caps::comes_true(MS / 10, || {
                carry_out(request(op::NOP, 0, 0), &mut wakes);
                wakes > 0
            });
            assert!(slept, "the poller never sleeps");
        }
        // More than a batch, and a wait for all of them.
        let tickets: alloc::vec::Vec<_> = (0..12)
            .map(|_| client::submit_to_poller(request(op::NOP, 0, 0)).expect("there is room").0)
            .collect();
        for ticket in tickets {
            while client::poll(ticket).expect("a ring of one's own").is_none() {
                client::enter(1, FOREVER).expect("it waits");
            }
        }
        // One that fills a stretch leaves the one behind it in its batch for the next. All are there when the poller wakes.
        for _ in 0..20 {
            let mut memory = [[0u8; 256]; 4];
            let pairs = memory.iter_mut().flat_map(|room| {
                let heavy = client::request(info, SystemInfoMethod::Memory as u16, &[], room);
                [heavy, request(op::NOP, 0, 0)]
            });
            let tickets: alloc::vec::Vec<_> = [request(op::NOP, 0, 0); 2]
                .into_iter()
                .chain(pairs)
                .map(|request| client::submit_to_poller(request).expect("there is room").0)
                .collect();
            // This thread carries the first two out itself, and waits for the poller to do the others.
            client::enter(tickets.len() as u32, FOREVER).expect("it waits");
            for ticket in tickets {
                let done = client::poll(ticket).expect("a ring of one's own");
                assert_eq!(done.map(|cqe| cqe.error), Some(0));
            }
        }
        // Timed waits and sleeps come back to a polled ring as well.
        caps::sleep(5 * MS).expect("within the quota");
        0
    });
    ended(thread);
    lease.release().expect("it is this process's");
    say!("sqpoll-nohz: producer_wake=ok");
}

/// The poller's CPU has no tick while it serves and looks for more, and the window is the poller's own.
//= ARCH:proof.sqpoll-nohz
//= ARCH:nohz.admit-sqpoll
//= TICK:L2.cpu-conditions
fn without_a_tick(cpu: u32) {
    let stop = Arc::new(AtomicU32::new(0));
    let rounds = Arc::new(AtomicU32::new(0));
    let (theirs, counts) = (stop.clone(), rounds.clone());
    let spinning = LeaseGrant { allow_busy_spin: true, ..LeaseGrant::default() };
    let (thread, lease) = on_polled_ring(cpu, spinning, move || {
        let mut wakes = 0;
        while theirs.load(Ordering::Relaxed) == 0 {
            carry_out(request(op::NOP, 0, 0), &mut wakes);
            counts.fetch_add(1, Ordering::Relaxed);
        }
        0
    });
    let info = || lease.info().expect("it is there");
    assert!(caps::comes_true(MS, || info().tickless_since_ns != 0), "{:?}", lease.preflight());
    let label = |of| lease.preflight().map(|found| alloc::string::String::from(found.label(of)));
    let seen =
        caps::comes_true(MS, || label(Obligation::SqConsumer).as_deref() == Ok("blocked-sqpoll-owner"));
    assert!(seen, "{:?}", lease.preflight());
    assert!(caps::comes_true(MS, || label(Obligation::SoleRunnable).as_deref()
        == Ok("exactly-one-runnable-poller")));
    let mut served = 0;
    let quiet = caps::comes_true(MS, || {
        let (before, carried) = (info(), rounds.load(Ordering::Relaxed));
        caps::sleep(100 * MS).expect("within the quota");
        served = rounds.load(Ordering::Relaxed) - carried;
        info().ticks == before.ticks && served > 0
    });
    assert!(quiet, "{:?}", info().exits);
    stop.store(1, Ordering::Relaxed);
    ended(thread);
    lease.release().expect("it is this process's");
    say!("sqpoll-nohz: tickless=ok ticks=0 served={served}");
}

/// What a poller uses is charged to the context that its lease names, and ends where that does.
fn paid_by_a_context() {
    let context = Context(caps::need("context:a"));
    let home = context.info().expect("it is there").cpu;
    let asked = LeaseGrant { account: context.0, allow_busy_spin: true, ..LeaseGrant::default() };
    let stop = Arc::new(AtomicU32::new(0));
    let theirs = stop.clone();
    let before = context.info().expect("it is there").used_ns;
    let (thread, lease) = on_polled_ring(home, asked, move || {
        let mut wakes = 0;
        while theirs.load(Ordering::Relaxed) == 0 {
            carry_out(request(op::NOP, 0, 0), &mut wakes);
        }
        0
    });
    // It looks for more until its budget is used up, and is bound all the while.
    let charged =
        || context.info().is_ok_and(|info| info.bound && info.used_ns > before && info.depletions > 0);
    assert!(caps::comes_true(MS, charged), "{:?}", context.info());
    stop.store(1, Ordering::Relaxed);
    ended(thread);
    let info = context.info().expect("it is there");
    assert!(
        caps::comes_true(MS, || !context.info().expect("it is there").bound),
        "the poller ended with its lease"
    );
    lease.release().expect("it is this process's");
    say!("sqpoll-nohz: charged=ok used={} depletions={}", info.used_ns, info.depletions);
}

/// The lease is taken back: the ring is its thread's again, nothing that was accepted is lost or done twice, and what comes later
/// waits for an entry.
//= ARCH:sqpoll.stop-accepted
//= ARCH:nohz.rollback-sqpoll
//= ARCH:sq.generation
//= ARCH:cq.independent
fn stops(cpu: u32) {
    for spin in [false, true] {
        let stop = Arc::new(AtomicU32::new(0));
        let theirs = stop.clone();
        let asked = LeaseGrant { allow_busy_spin: spin, ..LeaseGrant::default() };
        let (thread, lease) = on_polled_ring(cpu, asked, move || {
            let (mut submitted, mut done, mut last) = (0u32, 0u32, None);
            while theirs.load(Ordering::Relaxed) == 0 {
                let (ticket, _) = client::submit_to_poller(request(op::NOP, 0, 0)).expect("there is room");
                submitted += 1;
                // Whoever takes it, poller or entry, completes it once.
                loop {
                    if client::poll(ticket).expect("a ring of one's own").is_some() {
                        done += 1;
                        break;
                    }
                    match client::enter(0, 0) {
                        Ok(_) | Err(CapError::Busy) => {}
                        Err(code) => panic!("{code:?}"),
                    }
                }
                last = Some(ticket);
            }
            // In syscall mode what nobody enters for is not taken.
            while client::enter(0, 0).is_err() {}
            let control = caps::need("control");
            let yields = || {
                let (ticket, _) =
                    client::submit_to_poller(request(op::CALL, control, 1)).expect("there is room");
                while client::enter(0, 0).is_err() {}
                look_for(ticket).error == 0
            };
            assert!(caps::comes_true(MS, yields), "the ring is still polled");
            assert!(last.is_some_and(|last| client::poll(last) == Ok(None)), "completed twice");
            i64::from(submitted != done)
        });
        caps::sleep(20 * MS).expect("within the quota");
        lease.revoke().expect("it is live");
        caps::sleep(20 * MS).expect("within the quota");
        stop.store(1, Ordering::Relaxed);
        ended(thread);
        assert_eq!(lease.info().expect("it says why").end, LeaseEnd::Revoked);
        lease.release().expect("what has ended can be forgotten");
    }
    assert!(
        caps::comes_true(MS, || caps::usage().expect("usage can be read").threads == 1),
        "a poller is left"
    );
    say!("sqpoll-nohz: stop=ok");
}

/// What a poller does, and what leaves a leased CPU, is in that CPU's counters, and in no other's.
//= TICK:telemetry.evidence TICK:telemetry EVO:gate.lease
fn counters(cpu: u32) {
    let read = |cpu| caps::telemetry(cpu).expect("the CPU is there");
    let busy = Arc::new(AtomicU32::new(0));
    // More than there are CPUs, so that some are on the one that is leased.
    let others: alloc::vec::Vec<_> = (0..8)
        .map(|_| {
            let busy = busy.clone();
            caps::spawn(ThreadOptions::default(), move || {
                while busy.load(Ordering::Relaxed) == 0 {
                    arch::spin(1000);
                }
                0
            })
            .expect("within the quota")
        })
        .collect();
    let is_there = |of: &Thread| caps::thread_info(of.slot(), |info| info.get_cpu()) == Ok(cpu);
    assert!(caps::comes_true(MS, || others.iter().any(is_there)), "nobody comes to the CPU");
    let (before, elsewhere, began) = (read(cpu), read(0), caps::now());
    let (requests, theirs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counts, stop) = (requests.clone(), theirs.clone());
    let (thread, lease) = on_polled_ring(cpu, LeaseGrant::default(), move || {
        let mut wakes = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            carry_out(request(op::NOP, 0, 0), &mut wakes);
            counts.fetch_add(1, Ordering::Relaxed);
        }
        0
    });
    let counted = || {
        let of = read(cpu);
        of.sqpoll_busy_ns > before.sqpoll_busy_ns
            && of.sqpoll_sleep_count > before.sqpoll_sleep_count
            && of.housekeeping_offload_count > before.housekeeping_offload_count
            && of.nohz_enter_lease.iter().sum::<u64>() > 0
            && of.ticks_suppressed_lease > 0
    };
    assert!(caps::comes_true(MS, counted), "{before:?} {:?}", read(cpu));
    theirs.store(1, Ordering::Relaxed);
    ended(thread);
    let of = read(cpu);
    let (polled, slept) =
        (of.sqpoll_busy_ns - before.sqpoll_busy_ns, of.sqpoll_sleep_count - before.sqpoll_sleep_count);
    assert!(polled <= caps::now() - began, "sqpoll_busy_ns: longer than there was time");
    // It sleeps once for each request at most, and once before the first and after the last.
    let requests = u64::from(requests.load(Ordering::Relaxed));
    assert!(slept <= requests + 2, "sqpoll_sleep_count: {slept} for {requests} requests");
    let (after, moved) = (read(0), of.housekeeping_offload_count - before.housekeeping_offload_count);
    assert_eq!(
        (after.sqpoll_busy_ns, after.sqpoll_sleep_count, after.housekeeping_offload_count),
        (elsewhere.sqpoll_busy_ns, elsewhere.sqpoll_sleep_count, elsewhere.housekeeping_offload_count),
        "counted on another CPU"
    );
    let (enters, exits): (u64, u64) =
        (of.nohz_enter_idle + of.nohz_enter_lease.iter().sum::<u64>(), of.nohz_exit.iter().sum());
    assert!(exits <= enters && enters <= exits + 1, "nohz_exit_count: {exits} of {enters}");
    busy.store(1, Ordering::Relaxed);
    others.into_iter().for_each(ended);
    lease.release().expect("what has ended can be forgotten");
    say!("sqpoll-nohz: counters=ok busy_ns={polled} sleeps={slept} offloads={moved}");
}

/// Processes whose rings lie, whose threads write into them while they are polled, and that are killed meanwhile.
fn hostile() {
    let grants = ["console", "timer", "threads", "control", "park", "info", "leases"];
    for round in 0..4 {
        let child = caps::start("sqpoll-nohz", "scribble", &grants).expect("within the quota");
        caps::sleep((30 + 40 * round) * MS).expect("within the quota");
        let _it_may_have_ended = child.kill();
        child.wait().expect("its end is told");
        child.detach().expect("a handle can be dropped");
    }
    let child = caps::start("sqpoll-nohz", "leave", &grants).expect("within the quota");
    assert_eq!(child.wait(), Ok(0), "a ring that was mended works again");
    child.detach().expect("a handle can be dropped");
    let alone = || caps::usage().is_ok_and(|usage| (usage.threads, usage.processes) == (1, 1));
    assert!(caps::comes_true(MS, alone), "something is left of them");
    say!("sqpoll-nohz: hostile=ok");
}

/// As a process of its own: a thread writes all over the ring while it is polled.
fn scribble() -> i64 {
    let cpus = [2u8];
    let lease = caps::lease(&LeaseGrant { allow_busy_spin: true, ..polled(&cpus) });
    if lease.is_err() {
        return 1;
    }
    let mut state = caps::now() | 1;
    loop {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state >> 8) as usize % 1024;
        arch::ring_word(RING_ARENA, at).store(state as u32, Ordering::Relaxed);
        if state.is_multiple_of(64) {
            let _ = client::enter(0, 0);
        }
    }
}

/// As a process of its own: nonsense in an index is consumed by nobody, and the ring works once it is mended; then the process ends
/// with its ring polled.
fn leave() -> i64 {
    let cpus = [2u8];
    let mut wakes = 0;
    caps::lease(&polled(&cpus)).expect("the CPU is free");
    assert_eq!(carry_out(request(op::NOP, 0, 0), &mut wakes).error, 0);
    let tail = arch::ring_word(RING_ARENA, word::SQ_TAIL);
    let before = tail.load(Ordering::Relaxed);
    tail.store(before.wrapping_add(1 << 20), Ordering::SeqCst);
    assert_eq!(client::enter(0, 0), Err(CapError::RingCorrupt), "nonsense is told");
    arch::spin(1_000_000);
    tail.store(before, Ordering::SeqCst);
    assert_eq!(carry_out(request(op::NOP, 0, 0), &mut wakes).error, 0);
    0
}
