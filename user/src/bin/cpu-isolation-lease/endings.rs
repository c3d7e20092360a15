//! Every way in which a lease ends, and who hears of it.

use crate::{Busy, MS, info, mask, tickless};
use alloc::vec::Vec;
use mainspring_abi::kernel::ReceivedCall;
use mainspring_user::caps::{self, Lease, LeaseGrant, LeaseNotice, Session};
use mainspring_user::schema::LeaseEnd;
use mainspring_user::{CapError, arch, say};

const HEAD: usize = size_of::<ReceivedCall>();

/// Waits for what the revoke endpoint is told.
fn notice() -> LeaseNotice {
    let mut buffer = [0; 64];
    let head = caps::receive(caps::need("serve:e"), &mut buffer).expect("a notice comes");
    assert_eq!((head.call_id, head.len), (0, 32), "a notice is not answered");
    LeaseNotice::from_message(&buffer[HEAD..HEAD + 32]).expect("a notice says what it is about")
}

fn told_of(lease: Lease, end: LeaseEnd) {
    let told = notice();
    assert_eq!((told.id, told.generation, told.end), (lease.id, lease.generation, end));
    assert!(told.at_ns <= caps::now());
}

/// What the program does when it is started as another process.
pub fn as_child(arguments: &str) -> Option<i64> {
    let (what, cpu) = arguments.split_once(' ')?;
    let cpu = cpu.parse().ok()?;
    let (endpoint, cpus) = (caps::find("serve:e").unwrap_or(0), mask(cpu));
    let asked = LeaseGrant { cpus: &cpus, revoke_endpoint: endpoint, ..LeaseGrant::default() };
    match what {
        "exit" => {
            let _it_ends_with_this_process = caps::lease(&asked).expect("the CPU is free");
            Some(0)
        }
        "compute" => {
            let Ok(_it_ends_with_this_process) = caps::lease(&asked) else { return Some(2) };
            compute()
        }
        "insist" => {
            // The parent that looks whether the CPU is taken holds the CPU for that moment.
            let _it_ends_with_this_process = loop {
                match caps::lease(&asked) {
                    Err(CapError::Busy) => caps::sleep(MS / 10).expect("within the quota"),
                    got => break got.expect("the CPU is free but for the parent's looks"),
                }
            };
            compute()
        }
        _ => Some(1),
    }
}

fn compute() -> ! {
    loop {
        arch::spin(1000);
    }
}

fn start_child(what: &str, cpu: u32, grants: &[&str]) -> caps::Process {
    let mut arguments = alloc::string::String::from(what);
    arguments.push(' ');
    arguments.push(char::from(b'0' + cpu as u8));
    caps::start("cpu-isolation-lease", &arguments, grants).expect("within the quota")
}

/// The capabilities of a child whose lease ends unheard.
const UNHEARD: [&str; 5] = ["console", "timer", "threads", "control", "leases"];
/// Those of one whose lease's end is told.
const HEARD: [&str; 6] = ["console", "timer", "threads", "control", "leases", "serve:e"];

/// Revoke, release, replacement, expiry, the end of the lessee, of its process and of its session: each with its reason.
//= ARCH:lease.revoke EVO:gate.lease
//= ARCH:nohz.remote-ordering
pub fn each_reason(cpu: u32) {
    let (endpoint, cpus) = (caps::need("serve:e"), mask(cpu));
    let asked = LeaseGrant { cpus: &cpus, revoke_endpoint: endpoint, ..LeaseGrant::default() };
    let grant = |asked: LeaseGrant<'_>| caps::lease(&asked).expect("the CPU is free");

    let lease = grant(asked);
    lease.revoke().expect("it is live");
    told_of(lease, LeaseEnd::Revoked);
    lease.release().expect("what has ended can be forgotten");

    let lease = grant(asked);
    lease.release().expect("it is this process's");
    told_of(lease, LeaseEnd::Released);

    let lease = grant(asked);
    let next = grant(LeaseGrant { replaces: lease.cap, ..asked });
    told_of(lease, LeaseEnd::Superseded);
    assert_eq!(next.id, lease.id);
    assert!(next.generation > lease.generation);
    assert_eq!(info(lease).end, LeaseEnd::Gone, "its name is of an old generation");
    assert_eq!(lease.revoke(), Err(CapError::InvalidCapability));
    let stale = caps::lease(&LeaseGrant { replaces: lease.cap, thread: 0, ..asked });
    assert!(matches!(stale, Err(CapError::Busy | CapError::InvalidCapability)), "{stale:?}");
    lease.release().expect("a number can be given up");
    assert_eq!(info(next).end, LeaseEnd::Live);
    next.release().expect("it is this process's");
    told_of(next, LeaseEnd::Released);

    let lease = grant(LeaseGrant { lifetime_ns: 20 * MS, ..asked });
    // Nobody asks: the machine finds out by itself.
    told_of(lease, LeaseEnd::Expired);
    assert_eq!(info(lease).end, LeaseEnd::Expired);
    lease.release().expect("what has ended can be forgotten");

    let lessee = Busy::start(0);
    let lease = tickless(cpu, &lessee, asked);
    lessee.end();
    told_of(lease, LeaseEnd::Revoked);
    lease.release().expect("what has ended can be forgotten");

    for (what, killed) in [("exit", false), ("insist", true)] {
        let child = start_child(what, cpu, &HEARD);
        if killed {
            let taken = || caps::lease(&LeaseGrant { tickless: false, ..asked }).map(Lease::release).is_err();
            // Until the child has the CPU, this process gets it, and is told of each end.
            let mut ends = 0;
            assert!(caps::comes_true(MS, || {
                let is_taken = taken();
                ends += u32::from(!is_taken);
                is_taken
            }));
            (0..ends).for_each(|_| assert_eq!(notice().end, LeaseEnd::Released));
            child.kill().expect("a process that was made can be killed");
        }
        let code = child.wait().expect("its end is told");
        assert_eq!(code == 0, !killed);
        assert_eq!(notice().end, LeaseEnd::ProcessExit);
        child.detach().expect("a handle can be dropped");
    }

    let session = Session(caps::need("session"));
    let lease = grant(asked);
    session.logout().expect("it is live");
    told_of(lease, LeaseEnd::Logout);
    assert_eq!(info(lease).end, LeaseEnd::Gone);
    lease.release().expect("a number can be given up");
    assert_eq!(caps::lease(&asked), Err(CapError::InvalidCapability), "the session is over");
    say!("cpu-isolation-lease: endings=ok");
}

/// Leases come and go as fast as they can, of all CPUs but one, by several processes that are killed meanwhile.
pub fn storm(cpus: u32) {
    let children: Vec<_> =
        (0..6).map(|number| start_child("compute", 1 + number % (cpus - 1), &UNHEARD)).collect();
    caps::sleep(50 * MS).expect("within the quota");
    for child in children {
        let _it_may_have_been_refused = child.kill();
        let _code = child.wait().expect("its end is told");
        child.detach().expect("a handle can be dropped");
    }
    say!("cpu-isolation-lease: storm=ok");
}
