//! The boot smoke: preemption, the ring, waits and their ends, calls with direct handoff, registers that survive.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_abi::ring::{CapSqeV2, CompletionStatus, QosFlags, SQE_AFTER_PREVIOUS};
use mainspring_user::caps::{self, Short, ThreadOptions};
use mainspring_user::schema::{ConsoleMethod, SchedulingPolicyMethod};
use mainspring_user::{CapError, arch, client, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

fn main() -> i64 {
    say!("smoke: hello from ring 3 at {} ns", caps::now());
    preemption();
    registers_survive();
    blocked_waits();
    ticks_serve();
    selectors();
    ring_fairness();
    request_deadlines();
    fs_base();
    calls();
    calls_in_registers();
    say!("smoke: all=ok");
    0
}

/// Two threads that never give the CPU up, on one CPU: both get on, because the timer stops them.
//= ARCH:proof.run-smoke ARCH:sat.blocks-preempts ARCH:sat.runnable-ns ARCH:inv.fs-switch
fn preemption() {
    let stop = Arc::new(AtomicBool::new(false));
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let preempted = Arc::new(AtomicU64::new(0));
    let hogs = [0, 1].map(|number| {
        let (stop, counts, preempted) = (stop.clone(), counts.clone(), preempted.clone());
        let options = ThreadOptions { cpus: 1, ..ThreadOptions::default() };
        caps::spawn(options, move || {
            while !stop.load(Ordering::Relaxed) {
                arch::spin(1000);
                counts[number].fetch_add(1, Ordering::Relaxed);
            }
            let account = caps::account().expect("a thread can read its account");
            preempted.fetch_add(account.preemptions, Ordering::Relaxed);
            assert!(account.runnable_ns > 0, "who was preempted has waited");
            7
        })
        .expect("two threads are within the quota")
    });
    caps::sleep(60 * MS).expect("one sleep is within the quota");
    let both = || counts.iter().all(|count| count.load(Ordering::Relaxed) > 0);
    assert!(caps::comes_true(10 * MS, both), "one of the two never ran");
    stop.store(true, Ordering::Relaxed);
    for hog in &hogs {
        assert_eq!(hog.join(), Ok(7));
    }
    let [a, b] = [0, 1].map(|number| counts[number].load(Ordering::Relaxed));
    let preempted = preempted.load(Ordering::Relaxed);
    assert!(a > 0 && b > 0 && preempted > 0, "{a} {b} {preempted}");
    say!("smoke: preemption=ok a={a} b={b} preemptions={preempted}");
}

/// Vector registers belong to the thread, whichever thread runs in between.
fn registers_survive() {
    let threads = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888_u64].map(|pattern| {
        let options = ThreadOptions { cpus: 1, ..ThreadOptions::default() };
        caps::spawn(options, move || i64::from(arch::set_vector(pattern) != pattern))
            .expect("within the quota")
    });
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0), "a register changed while another thread ran");
    }
    say!("smoke: registers=ok");
}

/// A wait ends by its timeout, by a completion, and not before.
//= ARCH:capenter ARCH:inv.capenter-wake ARCH:timer.sleep TICK:L1.deadline-waiter TICK:L1.clocksource
fn blocked_waits() {
    let before = caps::now();
    assert_eq!(client::enter(1, 5 * MS), Ok(0), "nothing was submitted, so nothing completes");
    assert!(caps::now() >= before + 5 * MS, "the timeout came early");
    let before = caps::now();
    caps::sleep_until(before + 5 * MS).expect("one sleep is within the quota");
    assert!(caps::now() >= before + 5 * MS, "the sleep ended early");
    let first = caps::begin_sleep(before + 20 * MS).expect("two sleeps are within the quota");
    let second = caps::begin_sleep(before + 10 * MS).expect("two sleeps are within the quota");
    assert_eq!(client::wait(second), Ok(0));
    let early = client::poll(first).expect("the ring is sound");
    if caps::now() < before + 20 * MS {
        assert_eq!(early, None, "the later one is not due yet");
    }
    if early.is_none() {
        assert_eq!(client::wait(first), Ok(0));
    }
    assert!(caps::now() >= before + 20 * MS, "the later one ended early");
    assert_eq!(client::enter(0, 0), Ok(0));
    say!("smoke: blocked_waits=ok");
}

/// A thread that never enters the kernel by itself: the tick serves its ring and ends its sleep all the same. Two of the
/// requests would never end if the tick had the scheduler's lock or the serial line's in hand: they take those themselves.
//= ARCH:x86.timer-path ARCH:inv.ring-no-lock
fn ticks_serve() {
    let due = caps::now() + 5 * MS;
    let sleep = caps::begin_sleep(due).expect("one sleep is within the quota");
    let nop = client::submit(CapSqeV2::nop(0)).expect("the ring has room");
    let mut account = [0; 256];
    let snapshot = SchedulingPolicyMethod::Snapshot as u16;
    let snapshot = client::request(caps::need("policy"), snapshot, &[], &mut account);
    let snapshot = client::submit(snapshot).expect("the ring has room");
    let text = b"smoke: printed by a tick\n";
    let print = client::request(caps::need("console"), ConsoleMethod::Write as u16, text, &mut []);
    let print = client::submit(print).expect("the ring has room");
    let comes = |ticket| {
        (0..100_000).any(|_| {
            arch::spin(100_000);
            client::poll(ticket).expect("the ring is sound").is_some_and(|cqe| cqe.error() == Ok(None))
        })
    };
    assert!(comes(nop), "no tick has served the ring");
    assert!(comes(snapshot), "no tick has read the account");
    assert!(comes(print), "no tick has printed");
    assert!(comes(sleep), "no tick has ended the sleep");
    assert!(caps::now() >= due, "the sleep ended early");
    say!("smoke: ticks_serve=ok");
}

/// User code and data segments, after a system call and after an interrupt that had the whole state restored.
//= ARCH:iretq
fn selectors() {
    assert_eq!(client::enter(0, 0), Ok(0));
    assert_eq!(arch::selectors(), (0x23, 0x1b));
    let before = caps::cpu_counters(0).expect("CPU 0 exists").timer_interrupts;
    let interrupted = (0..1_000).any(|_| {
        for _ in 0..100 {
            arch::spin(10_000);
            assert_eq!(arch::selectors(), (0x23, 0x1b));
        }
        caps::cpu_counters(0).expect("CPU 0 exists").timer_interrupts > before
    });
    assert!(interrupted, "no timer interrupt came");
    say!("smoke: selectors=ok");
}

/// A thread that floods its ring gets its completions, and no more of the CPU than one that computes. Both enter the kernel
/// by system calls and by interrupts in turns, each into its own context.
//= ARCH:ring.per-thread ARCH:inv.kernel-stack ARCH:acct.thread-inputs
fn ring_fairness() {
    let stop = Arc::new(AtomicBool::new(false));
    let runtimes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let threads = [0, 1].map(|number| {
        let (stop, runtimes) = (stop.clone(), runtimes.clone());
        let options = ThreadOptions { cpus: 1, ..ThreadOptions::default() };
        caps::spawn(options, move || {
            let mut done = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let account = caps::account().expect("a thread can read its account");
                runtimes[number].store(account.runtime_ns, Ordering::Relaxed);
                if number == 0 {
                    let tickets =
                        [(); 16].map(|()| client::submit(CapSqeV2::nop(0)).expect("the ring has room"));
                    client::enter(16, u64::MAX).expect("an honest ring is served");
                    for ticket in tickets {
                        assert_eq!(client::wait(ticket), Ok(0));
                        done += 1;
                    }
                } else {
                    arch::spin(20_000);
                }
            }
            i64::from(number == 0 && done == 0)
        })
        .expect("within the quota")
    });
    caps::sleep(150 * MS).expect("within the quota");
    let read = || [0, 1].map(|number| runtimes[number].load(Ordering::Relaxed));
    let alike = || {
        let [flood, compute] = read();
        flood > 0 && flood < 2 * compute && compute < 2 * flood
    };
    let fair = caps::comes_true(100 * MS, alike);
    let [flood, compute] = read();
    stop.store(true, Ordering::Relaxed);
    for thread in &threads {
        assert_eq!(thread.join(), Ok(0));
    }
    assert!(fair, "flood {flood} ns, compute {compute} ns");
    say!("smoke: ring_fairness=ok flood_ns={flood} compute_ns={compute}");
}

/// What deadlines and flags of a request do to it. A deadline is a time of the clock, and no distance from now: a moment ago is late.
//= TICK:L4.units TICK:L7.status
//= TICK:L4.drop-if-late TICK:L4.allow-late TICK:L4.no-blocking-path TICK:L4.query TICK:L4.sqe-v2 TICK:verify.realtime
fn request_deadlines() {
    assert_eq!(caps::ring_versions(), Ok((1, 2)));
    let submitted = |request: CapSqeV2| {
        let ticket = client::submit(request).expect("the ring has room");
        client::enter(1, u64::MAX).expect("an honest ring is served");
        client::poll(ticket).expect("the ring is sound").expect("it has completed")
    };
    let ask = |qos: QosFlags, deadline_ns: u64| {
        submitted(CapSqeV2 { deadline_ns, qos_flags: qos.bits(), ..CapSqeV2::nop(0) })
    };
    let late = ask(QosFlags::DROP_IF_LATE, 1);
    assert_eq!(late.error(), Ok(Some(CapError::DeadlineExpired)));
    assert_eq!(late.status(), Ok(CompletionStatus::NotStartedLate));
    let late = ask(QosFlags::ALLOW_LATE, 1);
    assert_eq!((late.error(), late.status()), (Ok(None), Ok(CompletionStatus::CompletedLate)));
    let blocking = client::request(caps::need("console"), 0, b"never printed\n", &mut []);
    let blocking = CapSqeV2 { qos_flags: QosFlags::NO_BLOCKING_PATH.bits(), ..blocking };
    let refused = submitted(blocking);
    assert_eq!(refused.error(), Ok(Some(CapError::RealtimeUnsafePath)));
    assert_eq!(refused.status(), Ok(CompletionStatus::Dropped));
    let late = ask(QosFlags::DROP_IF_LATE, caps::now() - 1);
    assert_eq!(late.status(), Ok(CompletionStatus::NotStartedLate));
    let timely = ask(QosFlags::DROP_IF_LATE, caps::now() + 3600 * 1000 * MS);
    assert_eq!((timely.error(), timely.status()), (Ok(None), Ok(CompletionStatus::Completed)));
    // The second depends on the first, which is too late; the third on the second. They may be found at once, or one by one.
    let mut dependent = CapSqeV2::nop(0);
    dependent.v1.flags = SQE_AFTER_PREVIOUS;
    let first = CapSqeV2 { deadline_ns: 1, qos_flags: QosFlags::DROP_IF_LATE.bits(), ..CapSqeV2::nop(0) };
    let chain = [first, dependent, dependent];
    let tickets = chain.map(|request| client::submit(request).expect("the ring has room"));
    client::enter(3, u64::MAX).expect("an honest ring is served");
    let at_once =
        tickets.map(|ticket| client::poll(ticket).expect("the ring is sound").expect("it has completed"));
    for [late, cancelled @ ..] in [at_once, chain.map(submitted)] {
        assert_eq!(late.status(), Ok(CompletionStatus::NotStartedLate));
        for cancelled in cancelled {
            assert_eq!(cancelled.error(), Ok(Some(CapError::DependencyFailed)));
            assert_eq!(cancelled.status(), Ok(CompletionStatus::DependencyCancelled));
        }
    }
    // What has not failed is relied on: a request, or a call that was handed over.
    let after = |step: &dyn Fn()| {
        assert_eq!(submitted(first).status(), Ok(CompletionStatus::NotStartedLate));
        step();
        assert_eq!(submitted(dependent).status(), Ok(CompletionStatus::Completed));
    };
    after(&|| assert_eq!(submitted(CapSqeV2::nop(0)).error(), Ok(None)));
    after(&|| {
        let called = caps::call_endpoint(caps::need("call:echo"), &[1, 0, 0, 0], &mut [0; 64]);
        assert_eq!(called, Ok(4));
    });
    say!("smoke: deadlines=ok");
}

/// The FS base is the thread's own and never leaves user space.
//= ARCH:x86.fsbase ARCH:inv.fs-canonical
fn fs_base() {
    for bad in [0x8000_0000_0000, 0xffff_8000_0000_0000, u64::MAX] {
        assert_eq!(caps::set_fs_base(bad), Err(CapError::BadAddress));
    }
    say!("smoke: fs_base=ok");
}

/// Calls to a server in another address space, handed over directly.
//= ARCH:direct-ipc TICK:L4.propagate TICK:verify.sqpoll
fn calls() {
    let echo = caps::need("call:echo");
    let before = caps::cpu_counters(0).expect("CPU 0 exists");
    let mut answer = [0; 64];
    for round in 0..500_u32 {
        let len = caps::call_endpoint(echo, &round.to_le_bytes(), &mut answer).expect("the server answers");
        assert_eq!((len, &answer[..4]), (4, &(round + 1).to_le_bytes()[..]));
    }
    let with_deadline = CapSqeV2 {
        deadline_ns: 0x0123_4567_89ab_cdef,
        qos_flags: QosFlags::PROPAGATE_DEADLINE.bits(),
        ..client::request(echo, 0, b"when?", &mut answer)
    };
    assert_eq!(client::wait(client::submit(with_deadline).expect("room")), Ok(8));
    assert_eq!(answer[..8], 0x0123_4567_89ab_cdef_u64.to_le_bytes(), "the server sees the caller's deadline");
    let after = caps::cpu_counters(0).expect("CPU 0 exists");
    let (taken, queued) = (after.handoffs - before.handoffs, after.handoffs_queued - before.handoffs_queued);
    assert!(taken > 500, "{taken} handoffs taken, {queued} queued");
    say!("smoke: direct_ipc=ok handoffs={taken} queued={queued}");
}

/// The same with the message in registers: two handoffs a call, and no request of either side goes through its ring.
//= ARCH:direct-ipc
fn calls_in_registers() {
    let direct = caps::need("call:direct");
    let ready = || caps::call_direct(direct, Short::number(0)).is_ok();
    assert!(caps::comes_true(MS, ready), "the server never waited");
    let before = caps::cpu_counters(0).expect("CPU 0 exists");
    let mut by_ring = 0;
    for round in 0..500 {
        match caps::call_direct(direct, Short::number(round)) {
            Ok(answer) => assert_eq!(answer, Short::number(round + 1)),
            // A server that was stopped between its answer and its wait is not waiting yet.
            Err(error) => {
                assert_eq!(error, CapError::NotDirect);
                by_ring += 1;
                assert_eq!(caps::call_short(direct, Short::number(round)), Ok(Short::number(round + 1)));
            }
        }
    }
    let after = caps::cpu_counters(0).expect("CPU 0 exists");
    let (taken, queued) = (after.handoffs - before.handoffs, after.handoffs_queued - before.handoffs_queued);
    assert!(taken > 500, "{taken} handoffs taken, {queued} queued");
    say!("smoke: direct_registers=ok handoffs={taken} queued={queued} by_ring={by_ring}");
}
