//! A call on the caller's time: the context goes to the server and comes back, however the call ends.

use super::{MS, SMALL, context, ended, info, on_its_cpu};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mainspring_user::caps::{self, Context, Grant, Process, Short, Thread, ThreadOptions};
use mainspring_user::schema::OverrunPolicy;
use mainspring_user::{CapError, arch, client, say};

/// What a server does for a call, by its first byte.
const BURN: u8 = b'b';
const ANSWER_AND_BURN: u8 = b'a';
const CALL_ON: u8 = b'n';
const SLEEP: u8 = b's';
const WAIT: u8 = b'w';
const QUIT: u8 = b'q';
const THROW: u8 = b't';

/// More sleeps than a thread can have requests in flight.
const SLEEPS: usize = 20;
/// Lets a server go on that waits.
static RELEASE: AtomicBool = AtomicBool::new(false);
/// The server that was to serve is killed.
static GONE: AtomicBool = AtomicBool::new(false);
/// A server waits for that.
static HELD: AtomicBool = AtomicBool::new(false);
/// What a server burned after it had answered.
static BURNED_AFTER: AtomicBool = AtomicBool::new(false);
static SERVED_WITH: AtomicU64 = AtomicU64::new(0);

pub fn cases(first: Context, second: Context) {
    let servers = [start_server("serve:d", first), start_server("serve:e", first)];
    donate_and_return(first);
    donors(first);
    in_registers(first);
    asynchronous(first);
    exception(first);
    invalid_result(first);
    nested(first);
    blocking(first);
    own_context(first, second);
    timeout(first);
    donated_notice(first);
    fault_on_loan(first);
    revoked(first);
    server_killed(first);
    caller_killed(first);
    for (endpoint, server) in ["call:d", "call:e"].into_iter().zip(servers) {
        call(endpoint, QUIT).expect("a server answers before it ends");
        assert_eq!(ended(server), 0);
    }
}

/// What has been used of a context, the caller's own time until now included.
fn used(of: Context) -> u64 {
    caps::yield_now();
    info(of).used_ns
}

/// Computes, and says how much of that was charged to `of`.
fn burn(of: Context) -> u64 {
    let before = used(of);
    arch::spin(100_000);
    used(of) - before
}

/// Computes for a caller, and says how much of that was charged to `of`. A caller lends its context when it falls asleep, and
/// its server may have begun by then: the server goes on until it has spent something, if the caller has a context.
fn burn_on_loan(of: Context) -> u64 {
    for _ in 0..200 {
        let spent = burn(of);
        if spent > 0 || !info(of).bound {
            return spent;
        }
    }
    0
}

/// A server on the CPU of its callers' context: elsewhere it would be lent nothing for a call that came before it waited.
fn start_server(endpoint: &'static str, of: Context) -> Thread {
    on_its_cpu(of, move || serve(caps::need(endpoint), of))
}

fn serve(endpoint: u32, of: Context) -> i64 {
    let mut buffer = [0; 64];
    let mut received = caps::receive(endpoint, &mut buffer);
    loop {
        let request = match received {
            Ok(request) => request,
            // Its caller had withdrawn the call by the time of the answer.
            Err(CapError::Cancelled) => {
                received = caps::receive(endpoint, &mut buffer);
                continue;
            }
            Err(code) => panic!("a server could not answer: {code}"),
        };
        let what = buffer[16];
        let answer = match what {
            BURN | THROW => burn_on_loan(of),
            CALL_ON => call("call:e", BURN).unwrap_or_else(|error| u64::from(error.number()) << 32),
            // More often than requests can be in flight: nothing is left of one that may not wait.
            SLEEP => {
                let slept = (0..SLEEPS).map(|_| caps::sleep(MS)).fold(Ok(()), Result::and);
                slept.err().map_or(0, |error| u64::from(error.number()))
            }
            WAIT => {
                HELD.store(true, Ordering::Release);
                while !RELEASE.load(Ordering::Acquire) {
                    arch::spin(1000);
                }
                1
            }
            _ => 0,
        };
        let answer = answer.to_le_bytes();
        if what == THROW {
            let thrown = caps::throw_request(endpoint, request.call_id);
            client::wait(client::submit(thrown).expect("there is room")).expect("its caller waits");
            received = caps::receive(endpoint, &mut buffer);
            continue;
        }
        if what == QUIT || what == ANSWER_AND_BURN {
            let answered = caps::return_request(endpoint, request.call_id, &answer);
            client::wait(client::submit(answered).expect("there is room")).expect("its caller waits");
            if what == QUIT {
                return 0;
            }
            arch::spin(200_000);
            caps::yield_now();
            BURNED_AFTER.store(true, Ordering::Release);
            received = caps::receive(endpoint, &mut buffer);
            continue;
        }
        received = caps::answer_and_receive(endpoint, request.call_id, &answer, &mut buffer);
    }
}

fn call(endpoint: &str, what: u8) -> Result<u64, CapError> {
    let mut answer = [0; 8];
    caps::call_endpoint(caps::need(endpoint), &[what], &mut answer)?;
    Ok(u64::from_le_bytes(answer))
}

/// Calls a server that waits: in registers, as soon as there is one.
fn call_waiting(endpoint: &str, what: u8) -> Result<u32, CapError> {
    loop {
        match call_direct(endpoint, what) {
            Err(CapError::NotDirect) => caps::yield_now(),
            outcome => return outcome,
        }
    }
}

fn call_direct(endpoint: &str, what: u8) -> Result<u32, CapError> {
    caps::call_direct(caps::need(endpoint), Short::number(u32::from(what))).map(Short::to_number)
}

/// What `call` answers on `of`, which its caller holds. A caller whose budget ends between its call and its sleep lends nothing, and
/// how fast the host is decides whether that happens: then it calls again.
fn on_loan<T>(of: Context, mut call: impl FnMut() -> T) -> T {
    for _ in 0..50 {
        let before = info(of).depletions;
        let answer = call();
        if info(of).depletions == before {
            return answer;
        }
    }
    call()
}

/// Runs `job` on the context `of`, on its CPU; the thread has the context when the job is done.
fn on_context(of: Context, job: impl FnOnce() -> i64 + Send + 'static) {
    let thread = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        let code = job();
        of.unbind().expect("the caller has its context back");
        code
    });
    assert_eq!(ended(thread), 0);
    assert!(!info(of).bound && !info(of).lent);
}

/// The server's time is charged to the caller's context from the call to the answer, and not after it.
//= ARCH:donation.admit
//= ARCH:donation.charge
//= EVO:S4.single-charge
fn donate_and_return(of: Context) {
    on_context(of, move || {
        for _ in 0..20 {
            let mine = burn(of);
            let served = call("call:d", BURN).expect("it is served");
            assert!(mine > 0 && served > 0, "{mine} ns by the caller and {served} ns by the server");
            SERVED_WITH.store(served, Ordering::Relaxed);
        }
        0
    });
    say!(
        "scheduling-context: endpoint_donation=ok endpoint_donation_server={}",
        SERVED_WITH.load(Ordering::Relaxed)
    );
    let free = call("call:d", BURN).expect("it is served");
    assert_eq!(free, 0, "a call without a context was charged to one");
    BURNED_AFTER.store(false, Ordering::Relaxed);
    on_context(of, move || {
        call("call:d", ANSWER_AND_BURN).expect("it is served");
        0
    });
    let after = info(of).used_ns;
    assert!(caps::comes_true(MS, || BURNED_AFTER.load(Ordering::Acquire)), "the server never went on");
    assert_eq!(info(of).used_ns, after, "a server that has answered spends its caller's time");
    say!("scheduling-context: endpoint_return=ok endpoint_donation_after={after}");
}

/// Computes on `of`, has its server compute for it, and says how long that took and what it cost: both are charged, whether the server
/// waited for the call or the call for the server.
fn donor(of: Context) -> (u64, u64) {
    static DONOR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    on_context(of, move || {
        let (began, before) = (caps::now(), used(of));
        let mine = burn(of);
        let served = on_loan(of, || call("call:d", BURN).expect("it is served"));
        let spent = used(of) - before;
        assert!(served > 0 && spent >= mine + served, "{spent} ns of {mine} ns and {served} ns");
        DONOR[0].store(caps::now() - began, Ordering::Relaxed);
        DONOR[1].store(spent, Ordering::Relaxed);
        0
    });
    (DONOR[0].load(Ordering::Relaxed), DONOR[1].load(Ordering::Relaxed))
}

/// A caller whose server is with somebody else waits for it, and one whose server waits does not.
//= ARCH:proof.donation ARCH:proof.donation-values
fn donors(of: Context) {
    RELEASE.store(false, Ordering::Relaxed);
    HELD.store(false, Ordering::Relaxed);
    let other = caps::spawn(ThreadOptions::default(), || i64::from(call("call:d", WAIT) != Ok(1)));
    let other = other.expect("within the quota");
    assert!(caps::comes_true(MS, || HELD.load(Ordering::Acquire)), "the server never began");
    let release = caps::spawn(ThreadOptions::default(), move || {
        // The caller has its context, and is about to call.
        let bound = caps::comes_true(MS, || info(of).bound);
        let slept = caps::sleep(5 * MS);
        RELEASE.store(true, Ordering::Release);
        i64::from(!bound || slept.is_err())
    });
    let release = release.expect("within the quota");
    let (elapsed, after) = donor(of);
    assert_eq!((ended(other), ended(release)), (0, 0));
    say!(
        "scheduling-context: endpoint_donor_block=ok endpoint_donor_block_elapsed_ns={elapsed} endpoint_donor_block_after={after}"
    );
    let (elapsed, after) = donor(of);
    say!(
        "scheduling-context: endpoint_donor_fast=ok endpoint_donor_fast_elapsed_ns={elapsed} endpoint_donor_fast_after={after}"
    );
}

/// The same with the message in registers.
fn in_registers(of: Context) {
    on_context(of, move || {
        for _ in 0..20 {
            let served = call_waiting("call:d", BURN).expect("it is served");
            assert!(served > 0, "the server was on its own time");
        }
        0
    });
    say!("scheduling-context: endpoint_registers=ok");
}

/// A caller that does not wait for its call lends nothing: the call is served on the server's own time, and the caller goes on.
//= TICK:L6.async
fn asynchronous(of: Context) {
    RELEASE.store(false, Ordering::Relaxed);
    on_context(of, move || {
        let mut answer = [0; 8];
        let request = client::request(caps::need("call:d"), 0, &[WAIT], &mut answer);
        let ticket = client::submit(request).expect("there is room");
        for _ in 0..20 {
            let _ = client::enter(0, 0);
            assert!(!info(of).lent, "a caller that goes on has lent its context");
            arch::spin(1000);
        }
        RELEASE.store(true, Ordering::Release);
        while client::poll(ticket).is_ok_and(|answered| answered.is_none()) {
            caps::yield_now();
            let _ = client::enter(0, 0);
        }
        0
    });
    say!("scheduling-context: endpoint_asynchronous=ok");
}

/// A server that answers with an exception: the caller is told, and has its context back, less what the server spent.
//= TICK:L6.return-first
//= TICK:L6.partial-failure
fn exception(of: Context) {
    let before = info(of).used_ns;
    on_context(of, move || {
        for _ in 0..3 {
            assert_eq!(call("call:d", THROW), Err(CapError::Exception));
            let now = info(of);
            assert!(now.bound && !now.lent && now.budget_enforced, "the caller goes on without its context");
        }
        0
    });
    let spent = info(of).used_ns - before;
    assert!(spent > 0, "what a call spent that failed came back");
    say!("scheduling-context: endpoint_exception_return=ok endpoint_exception_return_after={spent}");
}

/// An answer that the caller has no room for ends the call, and the loan with it.
fn invalid_result(of: Context) {
    let before = info(of).used_ns;
    on_context(of, move || {
        let refused = caps::call_endpoint(caps::need("call:d"), &[BURN], &mut [0; 2]);
        i64::from(refused != Err(CapError::BadAddress))
    });
    let spent = info(of).used_ns - before;
    say!(
        "scheduling-context: endpoint_invalid_result=ok endpoint_invalid_return=ok endpoint_invalid_return_after={spent}"
    );
}

/// A server on its caller's time calls another one, which goes on with that time; as often as the context allows.
//= TICK:L6.nested
//= TICK:L6.depth
fn nested(of: Context) {
    let before = info(of).used_ns;
    on_context(of, move || {
        let served = on_loan(of, || call("call:d", CALL_ON).expect("it is served"));
        i64::from(!(1..1 << 32).contains(&served))
    });
    say!("scheduling-context: endpoint_nested=ok");
    let shallow = of.create(Grant { depth: 1, ..SMALL }).expect("less than its creator has");
    on_context(shallow, move || {
        let refused = on_loan(shallow, || call("call:d", CALL_ON).expect("the first of the two is served"));
        i64::from(refused != u64::from(CapError::DonationRefused.number()) << 32)
    });
    shallow.revoke().expect("it is there");
    let spent = info(of).used_ns - before;
    assert!(spent > 0, "calls of a server on its caller's time cost nothing");
    say!("scheduling-context: endpoint_nested_rejected=ok endpoint_nested_after={spent}");
}

/// A server on its caller's time may not sleep.
//= TICK:L6.blocking
fn blocking(of: Context) {
    on_context(of, move || {
        let refused = on_loan(of, || call("call:d", SLEEP).expect("it is served"));
        i64::from(refused != u64::from(CapError::BorrowedTime.number()))
    });
    assert_eq!(call("call:d", SLEEP), Ok(0), "a server on its own time may sleep");
    say!("scheduling-context: endpoint_blocking_rejected=ok");
}

/// A server that has a context serves on that.
fn own_context(of: Context, servers: Context) {
    let server = on_its_cpu(servers, move || {
        servers.bind().expect("it is free");
        let code = serve(caps::need("serve:k"), of);
        servers.unbind().expect("it has kept its own");
        code
    });
    on_context(of, move || {
        let charged = call("call:k", BURN).expect("it is served");
        i64::from(charged != 0)
    });
    call("call:k", QUIT).expect("a server answers before it ends");
    assert_eq!(ended(server), 0);
    say!("scheduling-context: endpoint_own_context=ok");
}

/// A call that takes too long is withdrawn, and the caller has its context back while the server goes on.
//= TICK:L6.timeout
fn timeout(of: Context) {
    RELEASE.store(false, Ordering::Relaxed);
    let _ = of.drain().expect("the context is there");
    on_context(of, move || {
        let mut answer = [0; 8];
        let request = client::request(caps::need("call:d"), 0, &[WAIT], &mut answer);
        i64::from(client::call_for(request, 3 * MS) != Err(CapError::TimedOut))
    });
    let drained = of.drain().expect("the context is there");
    assert!(drained.missed > 0, "nobody was told that the call took too long");
    RELEASE.store(true, Ordering::Release);
    assert_eq!(call("call:d", BURN), Ok(0), "the server goes on on its own time");
    say!("scheduling-context: endpoint_timeout=ok deadline_notification=ok");
}

/// Whether `of`, whose holder calls, is lent soon. A server that runs on another CPU when it receives is lent nothing.
fn is_soon_lent(of: Context) -> bool {
    for _ in 0..100 {
        if info(of).lent {
            return true;
        }
        caps::sleep(MS / 4).expect("within the quota");
    }
    false
}

/// A context that is used up by a server says that it was on loan. A server that runs on another CPU when the caller falls asleep is
/// lent nothing: then the caller calls once more.
fn donated_notice(of: Context) {
    let made =
        of.create(Grant { overrun: OverrunPolicy::Notify, ..SMALL }).expect("less than its creator has");
    let mut told = None;
    for _ in 0..50 {
        RELEASE.store(false, Ordering::Relaxed);
        let caller = on_its_cpu(made, move || {
            made.bind().expect("it is free");
            assert_eq!(call("call:d", WAIT), Ok(1), "the call goes on");
            made.unbind().expect("the caller has its context back");
            0
        });
        if is_soon_lent(made) {
            let before = info(made).depletions;
            assert!(caps::comes_true(MS, || info(made).depletions > before), "its server does not use it up");
            told = Some(made.drain().expect("the context is there"));
        }
        RELEASE.store(true, Ordering::Release);
        assert_eq!(ended(caller), 0);
        if told.is_some() {
            break;
        }
    }
    let drained = told.expect("it was never lent");
    assert!(drained.depleted > 0 && drained.donated, "{drained:?}");
    made.revoke().expect("it is there");
    RELEASE.store(false, Ordering::Relaxed);
    say!("scheduling-context: endpoint_donated_notification=ok");
}

/// A server that uses a loan up whose policy is a fault goes on: the thread that ends is the one whose context it is.
fn fault_on_loan(of: Context) {
    let made =
        of.create(Grant { overrun: OverrunPolicy::Fault, ..SMALL }).expect("less than its creator has");
    let used_up = || info(made).depletions > 0;
    let mut tries = 0;
    while !used_up() {
        tries += 1;
        assert!(tries < 50, "its server never used it up");
        RELEASE.store(false, Ordering::Relaxed);
        let caller = on_its_cpu(made, move || {
            made.bind().expect("it is free");
            let _ = call("call:d", WAIT);
            made.unbind().expect("the caller has its context back");
            0
        });
        for _ in 0..100 {
            if used_up() {
                break;
            }
            caps::sleep(MS / 4).expect("within the quota");
        }
        let due = if used_up() { -1000 } else { 0 };
        RELEASE.store(true, Ordering::Release);
        assert_eq!(ended(caller), due, "the fault is another's");
    }
    assert_eq!(call("call:d", b'-'), Ok(0), "the server goes on");
    assert!(!info(made).bound && !info(made).lent, "nobody has it any more");
    made.revoke().expect("it is there");
    RELEASE.store(false, Ordering::Relaxed);
    say!("scheduling-context: endpoint_fault=ok");
}

/// A context that is revoked while it is lent is gone for both; the call goes on.
fn revoked(of: Context) {
    RELEASE.store(false, Ordering::Relaxed);
    let made = of.create(SMALL).expect("less than its creator has");
    let caller = on_its_cpu(made, move || {
        made.bind().expect("it is free");
        assert_eq!(call("call:d", WAIT), Ok(1), "the call goes on");
        i64::from(made.unbind() != Err(CapError::InvalidCapability))
    });
    assert!(caps::comes_true(MS / 4, || info(made).lent), "it was never lent");
    made.revoke().expect("it is there");
    RELEASE.store(true, Ordering::Release);
    assert_eq!(ended(caller), 0);
    say!("scheduling-context: endpoint_revoked=ok");
}

pub fn child(arguments: &str, granted: &[(&str, u32)]) -> Process {
    let grants = &["console", "timer", "threads", "control", "park", "info"];
    caps::start_with("scheduling-context", arguments, grants, granted).expect("the program is in the image")
}

pub fn killed(process: Process) {
    process.kill().expect("a handle can kill");
    assert_eq!(process.wait(), Ok(-3000));
    process.detach().expect("a handle can be dropped");
}

/// The child: receives a call and never answers. It has its caller's time, and nothing else of it: no number of a capability
/// means a context to it.
//= TICK:L6.scope
pub fn serve_for_ever() -> i64 {
    let _ = caps::receive(caps::need("serve:k"), &mut [0; 64]);
    for number in 0..64 {
        let any = Context(1 << 16 | number);
        assert!(any.revoke().is_err(), "a server has its caller's capability");
    }
    loop {
        arch::spin(1000);
    }
}

/// A server that is killed while it serves: the caller is told, and has its context back.
//= ARCH:donation.cancel
fn server_killed(of: Context) {
    let mut lent = 0;
    // A server that runs elsewhere when it receives serves on what it has, and is killed all the same.
    for _ in 0..20 {
        let server = child("serve-for-ever", &[("serve:k", caps::need("serve:k"))]);
        GONE.store(false, Ordering::Relaxed);
        let caller = on_its_cpu(of, move || {
            of.bind().expect("it is free");
            let outcome = loop {
                match call_direct("call:k", BURN) {
                    Err(CapError::NotDirect) if !GONE.load(Ordering::Acquire) => caps::yield_now(),
                    outcome => break outcome,
                }
            };
            // Where the host is slow, the server is killed before it receives.
            assert!(matches!(outcome, Err(CapError::PeerGone | CapError::NotDirect)), "{outcome:?}");
            of.unbind().expect("the caller has its context back");
            0
        });
        lent += u32::from(is_soon_lent(of));
        killed(server);
        GONE.store(true, Ordering::Release);
        assert_eq!(ended(caller), 0);
        if lent == 3 {
            break;
        }
    }
    assert_eq!(lent, 3, "it was lent too seldom");
    say!("scheduling-context: endpoint_server_killed=ok");
}

/// The child: calls on a context that it was granted, until it is killed.
pub fn call_until_killed() -> i64 {
    let of = context("context:held");
    let thread = on_its_cpu(of, move || {
        of.bind().expect("it is free");
        let _ = call("call:d", WAIT);
        0
    });
    let _ = thread.join();
    0
}

/// A caller that is killed while it is served: its context is at rest, and the server goes on.
//= OWN:donation.exits
fn caller_killed(of: Context) {
    for _ in 0..3 {
        RELEASE.store(false, Ordering::Relaxed);
        let granted = [("call:d", caps::need("call:d")), ("context:held", of.0)];
        let caller = child("call-until-killed", &granted);
        assert!(caps::comes_true(MS / 4, || info(of).lent), "it was never lent");
        killed(caller);
        assert!(!info(of).bound && !info(of).lent, "a context is still with who is gone");
        RELEASE.store(true, Ordering::Release);
        assert_eq!(call("call:d", BURN), Ok(0), "the server goes on on its own time");
    }
    say!("scheduling-context: endpoint_caller_killed=ok");
}
