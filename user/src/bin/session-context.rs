//! A session ends: its contexts end with it, and one that is on loan ends when it comes back. A process that holds sessions has threads
//! in each, and the end of one takes nothing from the others.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, Ordering};
use mainspring_user::caps::{self, Context, Grant, Session, Thread, ThreadOptions};
use mainspring_user::schema::{DrainStatus, OverrunPolicy};
use mainspring_user::{CapError, arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const SMALL: Grant = Grant {
    budget_ns: MS,
    period_ns: 20 * MS,
    deadline_ns: 0,
    overrun: OverrunPolicy::Throttle,
    cpus: 0,
    depth: 0,
};

static RELEASE: AtomicBool = AtomicBool::new(false);
static ANSWERED: AtomicBool = AtomicBool::new(false);

fn spawn(of: Context, job: impl FnOnce() -> i64 + Send + 'static) -> Thread {
    let cpu = of.info().expect("the context is there").cpu;
    caps::spawn(ThreadOptions { cpus: 1 << cpu, ..ThreadOptions::default() }, job).expect("within the quota")
}

/// Nothing can be done by a name of a session that has ended.
fn is_stale(of: Context) {
    let (gone, info) = (Err(CapError::InvalidCapability), of.info().expect("an old name is answered"));
    assert!(info.stale && !info.budget_enforced && info.remaining_ns == 0, "{info:?}");
    assert_eq!(of.bind(), gone);
    assert_eq!(of.create(SMALL).map(|_| ()), gone);
    assert_eq!(of.revoke(), gone);
    assert_eq!(of.drain().map(|drained| drained.status), Ok(DrainStatus::StaleGeneration));
}

//= ARCH:logout.revoke
//= ARCH:logout.donation-skip
//= ARCH:logout.hook
//= ARCH:proof.session
//= ARCH:donation.donor-block
fn main() -> i64 {
    match caps::arguments() {
        // The session that it has begun ends with it.
        "leave" => return 0,
        "hold" => return hold(),
        _ => {}
    }
    let (session, lent, idle) =
        (Session(caps::need("session")), Context(caps::need("context:a")), Context(caps::need("context:b")));
    let (number, live) = session.info().expect("the session is there");
    assert_eq!(
        session.enter(),
        Err(CapError::Denied),
        "a thread of a process that is in a session stays in that"
    );
    assert!(live, "a session that nobody has ended");
    let server = caps::spawn(ThreadOptions::default(), || {
        let (endpoint, mut buffer) = (caps::need("serve:d"), [0; 64]);
        let call = caps::receive(endpoint, &mut buffer).expect("a call comes");
        while !RELEASE.load(Ordering::Acquire) {
            arch::spin(1000);
        }
        let answer = caps::return_request(endpoint, call.call_id, &[1]);
        let answered = mainspring_user::client::submit(answer).and_then(mainspring_user::client::wait);
        i64::from(answered.is_err())
    });
    let caller = spawn(lent, move || {
        lent.bind().expect("it is free");
        let call = || caps::call_direct(caps::need("call:d"), caps::Short::number(1));
        let outcome = loop {
            match call() {
                Err(CapError::NotDirect) => caps::yield_now(),
                outcome => break outcome,
            }
        };
        ANSWERED.store(true, Ordering::Release);
        assert!(outcome.is_ok(), "a call that was under way is answered");
        // The time came back, and was released then.
        i64::from(lent.unbind() != Err(CapError::InvalidCapability))
    });
    let holder = spawn(idle, move || {
        idle.bind().expect("it is free");
        while !RELEASE.load(Ordering::Acquire) {
            arch::spin(1000);
        }
        i64::from(idle.unbind() != Err(CapError::InvalidCapability))
    });
    let ready = || lent.info().is_ok_and(|info| info.lent) && idle.info().is_ok_and(|info| info.bound);
    assert!(caps::comes_true(MS / 2, ready), "nothing is lent");
    let (stale_marked, skipped) = session.logout().expect("the session is live");
    say!("session-context: session={number} stale_marked={stale_marked} donation_inflight_skipped={skipped}");
    assert_eq!((stale_marked, skipped), (1, 1));
    assert_eq!(session.logout(), Err(CapError::InvalidCapability), "a session ends once");
    assert_eq!(session.info(), Ok((number, false)));
    for of in [lent, idle] {
        is_stale(of);
    }
    say!("session-context: stale=ok");
    caps::sleep(5 * MS).expect("within the quota");
    let info = lent.info().expect("an old name is answered");
    assert!(info.lent && !ANSWERED.load(Ordering::Acquire), "the donor went on before the answer");
    RELEASE.store(true, Ordering::Release);
    for thread in [server.expect("within the quota"), caller, holder] {
        assert_eq!(thread.join(), Ok(0));
        thread.detach().expect("a handle can be dropped");
    }
    let info = lent.info().expect("an old name is answered");
    assert!(!info.lent && !info.bound, "a context of an ended session came back and was kept");
    say!("session-context: returned_then_released=ok");
    0
}

/// Two sessions of one process, a thread and a context in each: the end of the first is the end of its thread's context alone.
//= ARCH:logout.revoke
fn hold() -> i64 {
    let sessions = ["session:alice", "session:bob"].map(|name| Session(caps::need(name)));
    let contexts = ["context:a", "context:b", "context:c"].map(|name| Context(caps::need(name)));
    let [first, second, idle] = contexts;
    let threads = [(sessions[0], first), (sessions[1], second)].map(|(session, of)| {
        spawn(of, move || {
            session.enter().expect("the session is live");
            of.bind().expect("it is free");
            while !RELEASE.load(Ordering::Acquire) {
                arch::spin(1000);
            }
            i64::from(of.unbind().is_err())
        })
    });
    let bound = || [first, second].iter().all(|of| of.info().is_ok_and(|info| info.bound));
    assert!(caps::comes_true(MS / 2, bound), "nobody is bound");
    let ended = sessions[0].logout().expect("the session is live");
    assert_eq!(ended, (1, 0), "the context of the thread that is in it, and no other");
    is_stale(first);
    for of in [second, idle] {
        let info = of.info().expect("the context is there");
        assert!(!info.stale, "a context of nobody in the session has ended with it");
    }
    assert_eq!(
        sessions[0].enter(),
        Err(CapError::InvalidCapability),
        "nobody enters a session that has ended"
    );
    RELEASE.store(true, Ordering::Release);
    let [of_first, of_second] = threads;
    assert_eq!(
        (of_first.join(), of_second.join()),
        (Ok(1), Ok(0)),
        "the first has nothing to give up any more"
    );
    for thread in [of_first, of_second] {
        thread.detach().expect("a handle can be dropped");
    }
    say!("session-context: held=ok");
    0
}
