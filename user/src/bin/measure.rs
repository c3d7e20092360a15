//! Parks with and without their time running out, and a process that ends with a thread still parked.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::kernel::RING_ARENA;
use mainspring_abi::ring::{CapCqe, CapSqeV2, word};
use mainspring_user::caps::{self, Thread, ThreadOptions};
use mainspring_user::{CapError, arch, say, schema};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

//= ARCH:proof.run-measure ARCH:inv.park ARCH:exit.process TICK:verify.sqpoll
fn main() -> i64 {
    let word = Arc::new(AtomicU32::new(0));
    let at = word.as_ptr() as u64;
    let mut latest = 0;
    for _ in 0..20 {
        let due = caps::now() + 1_000_000;
        assert_eq!(caps::park(at, 0, due), Err(CapError::TimedOut));
        let late = caps::now().checked_sub(due).expect("a park ended early");
        latest = latest.max(late);
    }
    say!("measure: park_timeout=ok worst_late_ns={latest}");
    let turns = 200;
    let other = word.clone();
    let partner = caps::spawn(ThreadOptions::default(), move || {
        let at = other.as_ptr() as u64;
        for turn in 0..turns {
            while other.load(Ordering::Acquire) <= 2 * turn {
                let _ = caps::park(at, 2 * turn, 0);
            }
            other.fetch_add(1, Ordering::AcqRel);
            let _ = caps::unpark(at, 1);
        }
        0
    });
    let partner = partner.expect("within the quota");
    let began = caps::now();
    for turn in 0..turns {
        word.fetch_add(1, Ordering::AcqRel);
        let _ = caps::unpark(at, 1);
        while word.load(Ordering::Acquire) < 2 * turn + 2 {
            let _ = caps::park(at, 2 * turn + 1, 0);
        }
    }
    assert_eq!(partner.join(), Ok(0));
    let round = (caps::now() - began) / u64::from(turns);
    say!("measure: park_resume=ok rounds={turns} round_ns={round}");
    let before = caps::usage().expect("usage can be read");
    let child = caps::start("child", "leave", &["park", "threads", "timer"]).expect("in the image");
    assert_eq!(child.wait(), Ok(0), "it ends by itself, parked thread and all");
    let buried = || caps::usage().is_ok_and(|usage| usage.processes == before.processes);
    assert!(caps::comes_true(2_000_000, buried), "the child was never buried");
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.threads, after.processes), (before.threads, before.processes));
    assert_eq!(after.free_frames, before.free_frames);
    say!("measure: exit_with_parked_thread=ok");
    accounts();
    own_policy();
    ticks_while_it_runs();
    begins_with_its_ring();
    measures_nothing();
    0
}

fn runtime_of(slot: u32) -> u64 {
    caps::thread_info(slot, |info| info.get_runtime_ns()).expect("the thread lives")
}

/// A thread's runtime rises while it runs, and stands still while it waits.
//= EVO:gate.accounting ARCH:inv.accounting
fn accounts() {
    let word = Arc::new(AtomicU32::new(0));
    let shared = word.clone();
    let thread = caps::spawn(ThreadOptions::default(), move || {
        let at = shared.as_ptr() as u64;
        while shared.load(Ordering::Acquire) == 0 {
            let _ = caps::park(at, 0, 0);
        }
        let mut last = 0;
        for _ in 0..50 {
            let now = caps::account().expect("the account can be read").runtime_ns;
            assert!(now >= last, "the runtime of a thread that runs falls");
            last = now;
            arch::spin(10_000);
            caps::yield_now();
        }
        shared.store(2, Ordering::Release);
        let _ = caps::unpark(at, 1);
        while shared.load(Ordering::Acquire) == 2 {
            let _ = caps::park(at, 2, 0);
        }
        0
    });
    let (thread, at) = (thread.expect("within the quota"), word.as_ptr() as u64);
    let parked = || {
        let asleep =
            |info: schema::thread_info::Reader<'_>| info.get_state() == Ok(schema::ThreadState::Asleep);
        caps::comes_true(MS, || caps::thread_info(thread.slot(), asleep).unwrap_or(false))
    };
    assert!(parked(), "it never waits");
    let before = runtime_of(thread.slot());
    for _ in 0..20 {
        caps::sleep(MS).expect("within the quota");
        assert_eq!(runtime_of(thread.slot()), before, "a thread is charged while it waits");
    }
    word.store(1, Ordering::Release);
    let _ = caps::unpark(at, 1);
    while word.load(Ordering::Acquire) == 1 {
        let _ = caps::park(at, 1, 0);
    }
    assert!(parked(), "it never waits again");
    let after = runtime_of(thread.slot());
    assert!(after > before, "a thread that has run was not charged");
    caps::sleep(5 * MS).expect("within the quota");
    assert_eq!(runtime_of(thread.slot()), after, "a thread is charged while it waits");
    word.store(3, Ordering::Release);
    let _ = caps::unpark(at, 1);
    assert_eq!(thread.join(), Ok(0));
    say!("measure: accounts=ok charged_ns={}", after - before);
}

/// Weight and class are validated, are the calling thread's own, and are seen in its snapshot.
//= ARCH:policycap.methods ARCH:acct.thread-inputs
fn own_policy() {
    let word = Arc::new(AtomicU32::new(0));
    let shared = word.clone();
    let other = caps::spawn(ThreadOptions::default(), move || {
        let _ = caps::park(shared.as_ptr() as u64, 0, 0);
        0
    });
    let other = other.expect("within the quota");
    let weight_of = |slot| caps::thread_info(slot, |info| info.get_weight()).expect("the thread lives");
    let own = |what: &str| caps::account().expect(what).weight;
    assert_eq!((own("a snapshot"), weight_of(other.slot())), (64, 64), "the weight of a new thread");
    assert_eq!(caps::latency_class(), Ok(schema::LatencyClass::Normal), "the class of a new thread");
    for bad in [0, 65_536, u64::MAX] {
        assert_eq!(caps::set_weight(bad), Err(CapError::InvalidParameter), "a weight of {bad}");
    }
    assert_eq!(own("a snapshot"), 64, "a refusal has changed something");
    caps::set_weight(32).expect("a weight that there is");
    caps::set_latency_class(schema::LatencyClass::Batch).expect("a class that there is");
    assert_eq!((own("a snapshot"), weight_of(other.slot())), (32, 64), "another thread's weight was set");
    assert_eq!(caps::latency_class(), Ok(schema::LatencyClass::Batch));
    // Another's is set by its handle.
    for bad in [0, 65_536] {
        assert_eq!(caps::set_weight_of(&other, bad), Err(CapError::InvalidParameter), "a weight of {bad}");
    }
    caps::set_weight_of(&other, 200).expect("it lives");
    assert_eq!((own("a snapshot"), weight_of(other.slot())), (32, 200), "the weight of one thread was set");
    let nobody = Thread::from_cap(caps::need("timer"));
    assert_eq!(caps::set_weight_of(&nobody, 3), Err(CapError::InvalidCapability), "a clock has no weight");
    caps::set_latency_class(schema::LatencyClass::Normal).expect("a class that there is");
    caps::set_weight(64).expect("a weight that there is");
    word.store(1, Ordering::Release);
    let _ = caps::unpark(word.as_ptr() as u64, 1);
    assert_eq!(other.join(), Ok(0));
    assert_eq!(caps::set_weight_of(&other, 3), Err(CapError::PeerGone), "it has ended");
    say!("measure: own_policy=ok");
}

/// A CPU that runs one thread ticks, and so it does after it has idled without a tick.
//= TICK:L1.contention ARCH:tickless.restore
fn ticks_while_it_runs() {
    let ticks =
        || (0..caps::usage().map_or(1, |usage| usage.cpus)).map(|cpu| counters(cpu).ticks).sum::<u64>();
    let entered = || {
        (0..caps::usage().map_or(1, |usage| usage.cpus)).map(|cpu| counters(cpu).nohz_enter_idle).sum::<u64>()
    };
    for _ in 0..3 {
        let idle = entered();
        assert!(caps::comes_true(30 * MS, || entered() > idle), "a CPU that idles keeps its tick");
        let before = ticks();
        // The host may stop the CPU for any time, while its clock runs on: so it goes on until there is a tick.
        let ticked = (0..100_000).any(|_| {
            arch::spin(100_000);
            ticks() > before
        });
        assert!(ticked, "a CPU that runs a thread does not tick");
    }
    say!("measure: ticks_while_it_runs=ok");
}

fn counters(cpu: u32) -> caps::CpuCounters {
    caps::cpu_counters(cpu).expect("the CPU is there")
}

/// This kernel has nothing to measure with, and does all of the above without.
//= ARCH:measure.gate
fn measures_nothing() {
    let refused = caps::begin_case("nothing").err();
    assert_eq!(refused, Some(CapError::NoSuchMethod), "a kernel that is not built to measure counts a case");
    say!("measure: measures_nothing=ok");
}

/// A process finds where its first ring is and how its entries are laid out.
//= TICK:L4.bootinfo
fn begins_with_its_ring() {
    let info = arch::startup().ring;
    assert_eq!((info.ring_addr, info.ring_abi_version), (RING_ARENA, 2));
    assert_eq!(usize::from(info.sqe_size), size_of::<CapSqeV2>());
    assert_eq!(usize::from(info.cqe_size), size_of::<CapCqe>());
    assert_eq!(arch::ring_word(info.ring_addr, word::ABI_VERSION).load(Ordering::Relaxed), 2);
    say!("measure: boot_info=ok");
}
