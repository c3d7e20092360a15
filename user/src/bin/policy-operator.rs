//! An operator: it starts the policy service, tells it what it wants, and looks at what comes of it. With `hostile` it looks at what
//! comes of services that crash, hang, are out of date or ask for what they may not.
//!
//! It is the thread that recovers the machine: no policy applies to it.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mainspring_user::caps::{self, PolicyChange, Process, Thread, ThreadOptions};
use mainspring_user::schema::PolicyState;
use mainspring_user::{CapError, arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;

fn main() -> i64 {
    let victim = caps::start("policy-victim", "", &[]).expect("within the quota");
    assert!(caps::comes_true(MS, || thread_of(&victim).is_some()), "it does not start");
    if caps::arguments() == "hostile" {
        crashes(&victim);
        hangs(&victim);
        is_out_of_date(&victim);
        treats_threads_that_end();
        asks_for_too_much(&victim);
        say!("policy-hostile: all=ok");
    } else {
        retunes(&victim);
        reloads(&victim);
        restarts(&victim);
        say!("policy: all=ok");
    }
    victim.kill().expect("a process that was made can be killed");
    victim.wait().expect("its end is told");
    victim.detach().expect("a handle can be dropped");
    // Nobody computes any more, and the CPU halts.
    caps::sleep(5 * MS).expect("within the quota");
    0
}

/// The slot of the thread of `process`.
fn thread_of(process: &Process) -> Option<u32> {
    (0..128).find(|slot| caps::thread_info(*slot, |info| info.get_process()) == Ok(process.slot()))
}

fn runtime(process: &Process) -> u64 {
    let slot = thread_of(process).expect("it lives");
    caps::thread_info(slot, |info| info.get_runtime_ns()).expect("it lives")
}

fn weight(process: &Process) -> u16 {
    let slot = thread_of(process).expect("it lives");
    caps::thread_info(slot, |info| info.get_weight()).expect("it lives")
}

/// What `process` gets of a CPU, in percent, over 300 ms.
fn share(process: &Process) -> u64 {
    let (before, began) = (runtime(process), caps::now());
    caps::sleep(300 * MS).expect("within the quota");
    (runtime(process) - before) * 100 / (caps::now() - began)
}

/// Threads that compute until they are told to stop.
struct Hogs {
    threads: Vec<Thread>,
    stop: Arc<AtomicBool>,
}

impl Hogs {
    fn start(count: u32) -> Self {
        Self::start_on(ThreadOptions::default().cpus, count)
    }

    /// As many threads that may use these CPUs, bit by bit.
    fn start_on(cpus: u64, count: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let stop = stop.clone();
            caps::spawn(ThreadOptions { cpus, ..ThreadOptions::default() }, move || {
                while !stop.load(Ordering::Relaxed) {
                    arch::spin(10_000);
                }
                0
            })
            .expect("within the quota")
        });
        Self { threads: threads.collect(), stop: stop.clone() }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            assert_eq!(thread.join(), Ok(0));
            thread.detach().expect("a handle can be dropped");
        }
    }
}

fn start_service(rules: &str) -> Process {
    let grants = ["console", "timer", "info", "policy-service", "serve:operator"];
    let instance = status().instance;
    let service = caps::start("policy", rules, &grants).expect("within the quota");
    assert!(caps::comes_true(MS, || status().state == PolicyState::Alive && status().instance != instance));
    service
}

fn status() -> caps::PolicyStatus {
    caps::policy_status().expect("anybody who has the capability may ask")
}

fn say_to_service(what: &str) -> String {
    let mut answer = [0; 256];
    let len = caps::call_endpoint_for(caps::need("call:operator"), what.as_bytes(), &mut answer, 5000 * MS);
    let len = len.expect("the service answers") as usize;
    String::from(core::str::from_utf8(&answer[..len]).unwrap_or("?"))
}

fn stop(service: Process) {
    assert_eq!(say_to_service("stop"), "ok");
    assert_eq!(service.wait(), Ok(0));
    service.detach().expect("a handle can be dropped");
}

/// A workload whose mix changes: one hog for each CPU, then many. With the service the victim keeps its share; without, it does
/// not.
//= EVO:S7.owns
//= EVO:S7.config
fn retunes(victim: &Process) {
    let cpus = caps::usage().expect("usage can be read").cpus;
    let few = Hogs::start(cpus);
    let alone = share(victim);
    let many = Hogs::start(7 * cpus);
    let mut without = share(victim);
    // It takes a moment until all of them have begun.
    assert!(caps::comes_true(MS, || {
        without = share(victim);
        without < 25
    }));
    many.end();
    let before = weight(victim);
    let service = start_service("share policy-victim 40");
    let many = Hogs::start(7 * cpus);
    let mut with = 0;
    assert!(caps::comes_true(MS, || {
        with = share(victim);
        with >= 35
    }));
    assert!(with >= 2 * without, "{without} percent without a service, {with} with one");
    let raised = weight(victim);
    assert!(raised > before, "its weight is {raised}");
    let diagnosis = say_to_service("diagnose");
    assert!(!diagnosis.contains("retuned=0 "), "{diagnosis}");
    many.end();
    few.end();
    // It is alone, and needs no more than others.
    assert!(caps::comes_true(20 * MS, || weight(victim) < raised), "its weight stays at {raised}");
    stop(service);
    say!("policy: retuned=ok alone={alone} without={without} with={with} weight={raised}");
}

/// An operator's rules take the place of the manifest's, by epochs.
fn reloads(victim: &Process) {
    let service = start_service("weight policy-victim 100");
    assert!(caps::comes_true(MS, || weight(victim) == 100));
    let epoch = status().epoch;
    let refused = say_to_service(&format!("reload {epoch} weight policy-victim 500"));
    assert!(refused.starts_with("refused: epoch"), "{refused}");
    let refused = say_to_service(&format!("reload {} wait policy-victim 500", epoch + 1));
    assert!(refused.starts_with("refused: `wait"), "{refused}");
    assert_eq!(weight(victim), 100, "what was refused has changed something");
    let taken = say_to_service(&format!("reload {} weight policy-victim 200", epoch + 10));
    assert_eq!(taken, format!("ok epoch={}", epoch + 10));
    assert_eq!((weight(victim), status().epoch), (200, epoch + 10));
    let diagnosis = say_to_service("diagnose");
    assert!(diagnosis.starts_with("rules=1 epoch="), "{diagnosis}");
    say!("policy: reload=ok {diagnosis}");
    stop(service);
}

/// What a service has set stands when it is gone, and the next one goes on from there.
fn restarts(victim: &Process) {
    assert_eq!(status().state, PolicyState::Lost);
    assert_eq!(weight(victim), 200, "what it has set stands");
    let (epoch, service) = (status().epoch, start_service("weight policy-victim 150"));
    assert!(caps::comes_true(MS, || weight(victim) == 150));
    assert!(status().epoch > epoch, "epochs go on");
    let second = start_service("weight policy-victim 120");
    assert!(caps::comes_true(MS, || weight(victim) == 120));
    assert_eq!(service.wait(), Ok(0), "the first one is not in charge any more, and goes");
    service.detach().expect("a handle can be dropped");
    stop(second);
    say!("policy: restart=ok");
}

/// Whether `victim` computes. What a lone thread has run is charged when it stops: a rival on its CPU makes it stop.
fn gets_on(victim: &Process) -> bool {
    let slot = thread_of(victim).expect("it lives");
    let cpu = caps::thread_info(slot, |info| info.get_cpu()).expect("it lives");
    let (before, rival) = (runtime(victim), Hogs::start_on(1 << cpu, 1));
    let ran = caps::comes_true(5 * MS, || runtime(victim) > before);
    rival.end();
    ran
}

/// A service that has leased a CPU to a program ends by a panic: the lease ends, and everything goes on.
//= EVO:S7.fallback EVO:nongoal.user-programs
fn crashes(victim: &Process) {
    let cpu = caps::usage().expect("usage can be read").cpus - 1;
    let service = start_service(&format!("lease policy-victim {cpu}"));
    assert!(caps::comes_true(MS, || status().leased == 1 << cpu), "{:?}", status());
    assert!(caps::comes_true(MS, || {
        let slot = thread_of(victim).expect("it lives");
        caps::thread_info(slot, |info| info.get_cpu()) == Ok(cpu)
    }));
    let gone = caps::call_endpoint_for(caps::need("call:operator"), b"crash", &mut [0; 64], 5000 * MS);
    assert!(gone.is_err(), "a service that has ended answers nothing");
    assert_ne!(service.wait(), Ok(0));
    service.detach().expect("a handle can be dropped");
    assert_eq!((status().state, status().leased), (PolicyState::Lost, 0), "its lease has ended");
    assert!(gets_on(victim));
    say!("policy-hostile: crash=ok");
}

/// A service that says nothing any more is slow, then lost: its lease ends though it still lives.
fn hangs(victim: &Process) {
    let cpu = caps::usage().expect("usage can be read").cpus - 1;
    let service = start_service(&format!("lease policy-victim {cpu}"));
    assert!(caps::comes_true(MS, || status().leased == 1 << cpu), "{:?}", status());
    let silent = caps::call_endpoint_for(caps::need("call:operator"), b"hang", &mut [0; 64], 50 * MS);
    assert_eq!(silent, Err(CapError::TimedOut));
    let mut slow = false;
    assert!(caps::comes_true(20 * MS, || {
        slow |= status().state == PolicyState::Slow;
        status().state == PolicyState::Lost
    }));
    assert!(slow, "a service that is silent is slow first");
    assert_eq!(status().leased, 0, "its lease has ended");
    assert!(gets_on(victim));
    service.kill().expect("a process that was made can be killed");
    service.wait().expect("its end is told");
    service.detach().expect("a handle can be dropped");
    say!("policy-hostile: hang=ok");
}

/// A process that is not in charge, and one whose epochs are old, change nothing.
fn is_out_of_date(victim: &Process) {
    let slot = thread_of(victim).expect("it lives");
    let change = [PolicyChange::treat(slot, victim.slot(), 77)];
    let service = start_service("weight policy-victim 90");
    assert!(caps::comes_true(MS, || weight(victim) == 90));
    let epoch = status().epoch;
    assert_eq!(caps::policy_submit(epoch + 1, &change), Err(CapError::Denied), "another is in charge");
    assert_eq!(caps::policy_heartbeat(), Err(CapError::Denied));
    assert_eq!((weight(victim), status().epoch), (90, epoch));
    // This process takes over, and says what is not new.
    assert!(caps::policy_start().expect("it has the capability").in_charge);
    for old in [0, 1, epoch] {
        assert_eq!(caps::policy_submit(old, &change), Err(CapError::Denied), "an old epoch");
    }
    assert_eq!(weight(victim), 90);
    assert!(caps::policy_submit(epoch + 1, &change).is_ok());
    assert_eq!(weight(victim), 77);
    assert_eq!(service.wait(), Ok(0), "the other finds that it is replaced");
    service.detach().expect("a handle can be dropped");
    say!("policy-hostile: out_of_date=ok");
}

/// Threads that end while the service treats them: nothing is kept of those that have ended. There is room for as many as it may treat,
/// which are these and the victim.
fn treats_threads_that_end() {
    const TREATED: usize = 63;
    const CHANGES: usize = 16;
    static END: AtomicU32 = AtomicU32::new(0);
    static ROUND: AtomicU32 = AtomicU32::new(0);
    let mut epoch = caps::policy_start().expect("it has the capability").epoch;
    let process_of = |thread: &Thread| caps::thread_info(thread.slot(), |info| info.get_process());
    let wait = || {
        while END.load(Ordering::Acquire) == 0 {
            let _ = caps::park(END.as_ptr() as u64, 0, 0);
        }
        0
    };
    let live: Vec<Thread> = (0..TREATED)
        .map(|_| caps::spawn(ThreadOptions::default(), wait).expect("within the quota"))
        .collect();
    let own = process_of(&live[0]).expect("it lives");
    let treat = |thread: &Thread| PolicyChange::treat(thread.slot(), own, 60);
    // The one that ends is looked at first, and the others after it, so that it has time to end meanwhile.
    let mut changes: Vec<_> = live[..CHANGES].iter().map(treat).collect();
    for round in 1..1500 {
        let ending = caps::spawn(ThreadOptions::default(), move || {
            while ROUND.load(Ordering::Acquire) < round {
                core::hint::spin_loop();
            }
            arch::spin(u64::from(round) % 100 * 50);
            0
        });
        let ending = ending.expect("within the quota");
        changes[0] = treat(&ending);
        ROUND.store(round, Ordering::Release);
        match caps::policy_submit(epoch + 1, &changes) {
            Ok(_) => epoch += 1,
            Err(code) => assert_eq!(code, CapError::NotFound, "it has ended"),
        }
        assert_eq!(ending.join(), Ok(0));
        ending.detach().expect("a handle can be dropped");
    }
    let changes: Vec<_> = live.iter().map(treat).collect();
    for changes in changes.chunks(CHANGES) {
        epoch += 1;
        caps::policy_submit(epoch, changes).expect("nothing is kept of threads that have ended");
    }
    END.store(1, Ordering::Release);
    for thread in live {
        let _ = caps::unpark(END.as_ptr() as u64, u32::MAX);
        assert_eq!(thread.join(), Ok(0));
        thread.detach().expect("a handle can be dropped");
    }
    say!("policy-hostile: threads_end=ok");
}

/// This process is the service, and asks for what it may not: each is refused, nothing changes, and after sixteen in a row it is in
/// charge no longer.
//= ARCH:nohz.auto
fn asks_for_too_much(victim: &Process) {
    let (cpus, slot) = (caps::usage().expect("usage can be read").cpus, thread_of(victim).expect("it lives"));
    assert!(caps::policy_start().expect("it has the capability").in_charge);
    let own = (0..128).find(|slot| {
        caps::thread_info(*slot, |info| info.get_process()).is_ok_and(|process| process != victim.slot())
    });
    let own = own.expect("this thread has a slot");
    let of_own = caps::thread_info(own, |info| info.get_process()).expect("it lives");
    let all: Vec<PolicyChange> = (0..cpus).map(|cpu| PolicyChange::lease(victim.slot(), cpu, MS)).collect();
    let good = PolicyChange::treat(slot, victim.slot(), 60);
    let bad: [&[PolicyChange]; 9] = [
        &[PolicyChange::treat(slot, victim.slot(), 0)],
        &[PolicyChange::treat(slot, victim.slot(), 65_535)],
        &[good, PolicyChange::treat(slot, victim.slot(), u64::MAX)],
        &[PolicyChange::treat(own, of_own, 4096)],
        &[PolicyChange::floor(0)],
        &[PolicyChange::lease(victim.slot(), cpus - 1, 0)],
        &[PolicyChange::lease(victim.slot(), cpus - 1, u64::MAX)],
        &[PolicyChange::lease(victim.slot(), 200, MS)],
        &all,
    ];
    let (before, mut epoch) = (weight(victim), status().epoch);
    for changes in bad {
        epoch += 1;
        assert_eq!(caps::policy_submit(epoch, changes), Err(CapError::Denied), "{changes:?}");
        assert_eq!((weight(victim), status().leased), (before, 0), "{changes:?}");
    }
    assert_eq!(caps::policy_submit(epoch, &[good; 17]), Err(CapError::InvalidParameter), "too many changes");
    let nobody = PolicyChange::treat(slot, victim.slot() + 1, 60);
    assert_eq!(caps::policy_submit(epoch, &[nobody]), Err(CapError::NotFound), "no such thread");
    // A lease for a process that is not there is taken, and not granted.
    let empty = PolicyChange::lease(63, cpus - 1, MS);
    let status_after = caps::policy_submit(epoch + 1, &[empty]).expect("it is within the bounds");
    assert_eq!((status_after.not_granted, status_after.leased), (1, 0));
    for round in 0..16 {
        assert_eq!(caps::policy_submit(0, &[good]), Err(CapError::Denied), "{round}");
    }
    assert_eq!(status().state, PolicyState::Lost, "sixteen refusals in a row");
    assert_eq!(caps::policy_submit(epoch + 9, &[good]), Err(CapError::Denied), "it is cut off");
    assert!(gets_on(victim));
    // Another instance is heard.
    assert!(caps::policy_start().expect("it has the capability").in_charge);
    assert!(caps::policy_submit(epoch + 9, &[PolicyChange::profile(1, 64), good]).is_ok());
    assert_eq!(weight(victim), 60);
    say!("policy-hostile: bounds=ok refused={}", status().refused);
}
