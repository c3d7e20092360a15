//! The worst requests that a program can make, for the kernel that measures: for each it says how long its longest stretch
//! with interrupts off was, and what it did in it.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use mainspring_abi::kernel::{ISLAND_NODES, MAPPINGS, MAX_MESSAGE, MOST_WOKEN, ReceivedCall, SQ_ENTRIES};
use mainspring_abi::ring::{CapSqeV2, QosFlags};
use mainspring_user::caps::{
    self, Context, Grant, IslandNode, IslandSpec, PolicyChange, Session, Thread, ThreadOptions,
};
use mainspring_user::schema::{Access, OverrunPolicy, ParkSpaceMethod};
use mainspring_user::{CapError, client, say};

mainspring_user::program!(main);

/// What stands before a message that is received.
const HEAD: usize = size_of::<ReceivedCall>();
const MS: u64 = 1_000_000;
/// The largest request.
const MOST: u32 = 8192;
/// The longest line that the console takes at once.
const LINE: usize = 256;
/// The most changes in an update of the policy service.
const CHANGES: u32 = 16;
/// The most threads that a policy service may treat.
const TREATED: u32 = 64;
/// The most threads of a process.
const THREADS: u32 = 128;
/// Processes that call, calls that each may have at an endpoint, and calls that can be received there.
const CALLERS: usize = 24;
const CALLS: u32 = 16;
const RECEIVED: u32 = 64;
/// How soon such a call is late.
const LATE: u64 = 200 * MS;
const GRANTS: &[&str] = &["console", "timer", "threads", "control", "park", "memory", "info", "processes"];

/// Makes this program as large as none of the others is.
static LARGE: [AtomicU8; 8 << 20] = [const { AtomicU8::new(0) }; 8 << 20];

//= OWN:kernel.irq-off
fn main() -> i64 {
    LARGE[0].store(1, Ordering::Relaxed);
    match caps::arguments() {
        "" => {}
        "full" => return full(),
        "crowd" => return crowd(false),
        "crowd leaves" => return crowd(true),
        "sleepers" => return sleepers(),
        "woken" => return woken_early(),
        "maker" => return maker(),
        "faults" => return faults(),
        "late" => return late(),
        _ => return 0,
    }
    islands();
    contexts();
    pages();
    objects();
    rings();
    messages();
    late_calls();
    servers_at_fault();
    case("spawn", || process("at once", 0));
    case("spawn-killed", || process("maker", 3 * MS));
    case("kill-full", || process("full", 400 * MS));
    case("exit-full", || process("full", 0));
    case("kill-crowd", || process("crowd", 400 * MS));
    case("exit-crowd", || process("crowd leaves", 0));
    case("timers", || process("sleepers", 0));
    case("woken-early", || process("woken", 400 * MS));
    case("fault", || {
        let child = caps::start("bench-longest", "faults", GRANTS).expect("in the image");
        assert_eq!(child.wait(), Ok(-1014), "a page fault");
        child.detach().expect("a handle can be dropped");
    });
    policy();
    logout();
    say!("bench: longest=done");
    0
}

/// Does `work`, whose longest stretch the kernel says by this name.
fn case(name: &str, work: impl FnOnce()) {
    caps::begin_case(name).expect("this kernel measures");
    work();
    caps::begin_case("").expect("this kernel measures");
}

fn pages() {
    let mut at = 0;
    case("map", || at = caps::map(MOST, Access::Write).expect("within the quota"));
    case("protect", || caps::protect(at, MOST, Access::Read).expect("the pages are ours"));
    // The last page is missing: everything that was claimed is let go of again.
    caps::unmap(at + 4096 * u64::from(MOST - 1), 1).expect("the page is ours");
    case("unmap-refused", || assert_eq!(caps::unmap(at, MOST), Err(CapError::BadAddress)));
    case("protect-refused", || {
        assert_eq!(caps::protect(at, MOST, Access::Write), Err(CapError::BadAddress));
    });
    case("map-refused", || assert_eq!(caps::map_at(at, MOST, Access::Write), Err(CapError::BadAddress)));
    case("unmap", || caps::unmap(at, MOST - 1).expect("the pages are ours"));
}

fn objects() {
    let (mut object, mut at) = (0, 0);
    case("object-create", || object = caps::create_object(MOST).expect("within the quota"));
    case("object-map", || at = caps::map_object(object, Access::Write).expect("the object is ours"));
    case("object-unmap", || caps::unmap_object(at).expect("it is mapped"));
}

/// Contexts that are hard to decide about, as many as there can be, refused at the end; then all are revoked at once.
fn contexts() {
    let from = Context(caps::need("context:a"));
    let grant = |number: u64| {
        let budget_ns = 40_000 - number;
        let (period_ns, overrun) = (MS + 7 * number + 1, OverrunPolicy::Throttle);
        // As urgent as a grant of this creator may be.
        Grant { budget_ns, period_ns, deadline_ns: 10 * budget_ns, overrun, cpus: 0, depth: 1 }
    };
    let mut made = Vec::new();
    case("context-create", || {
        for number in 0..40 {
            // Refused at the end.
            made.extend(from.create(grant(number)));
        }
    });
    let maker = caps::spawn(ThreadOptions::default(), move || {
        from.bind().expect("it is free");
        i64::from(from.revoke().is_err())
    });
    case("context-revoke", || assert_eq!(maker.expect("within the quota").join(), Ok(0)));
    for one in made {
        one.revoke().expect("it is there");
        one.release().expect("it is this process's");
    }
}

/// An island with as many nodes as there can be, each with a period and a deadline of its own, is admitted, adjusted, refused and left.
fn islands() {
    fn spec(nodes: &[IslandNode]) -> IslandSpec<'_> {
        IslandSpec { period_ns: 20 * MS, nodes, ..IslandSpec::default() }
    }
    let of = |budget_ns: u64, deadline_ns: u64| -> [IslandNode; ISLAND_NODES] {
        core::array::from_fn(|number| {
            let number = number as u64;
            let (period_ns, deadline_ns) = (MS + 7 * number + 1, deadline_ns - number);
            IslandNode { budget_ns: budget_ns - number, period_ns, deadline_ns, cpus: 1 }
        })
    };
    let admit = |nodes: &[IslandNode]| caps::admit_island("islands:90", &spec(nodes));
    let mut island = None;
    case("island-admit", || island = Some(admit(&of(90_000, 560_000)).expect("it fits")));
    let island = island.expect("it fits");
    case("island-adjust", || island.adjust(&spec(&of(90_000, 557_000))).expect("it fits"));
    case("island-refused", || {
        let refused = island.adjust(&spec(&of(160_000, 950_000)));
        assert_eq!(refused, Err(CapError::RealtimeAdmissionDenied), "it is more than there is");
    });
    case("island-leave", || island.leave().expect("it is there"));
}

/// An update of the policy service with as many changes as it may have.
fn policy() {
    let changes: Vec<_> = (0..CHANGES).map(|key| PolicyChange::profile(key, 1024 + u64::from(key))).collect();
    case("policy-update", || {
        let status = caps::policy_start().expect("nobody else is");
        caps::policy_submit(status.epoch + 1, &changes).expect("within what boot allows");
    });
    let threads = TreatedThreads::start();
    let treat = |thread: &Thread| PolicyChange::treat(thread.slot(), own_process(thread), 100);
    let changes: Vec<_> = threads.0.iter().map(treat).collect();
    case("policy-treat", || {
        for changes in changes.chunks(CHANGES as usize) {
            let epoch = caps::policy_status().expect("this process is in charge").epoch;
            caps::policy_submit(epoch + 1, changes).expect("within what boot allows");
        }
    });
    case("policy-thread-ends", || threads.end());
}

fn own_process(thread: &Thread) -> u32 {
    caps::thread_info(thread.slot(), |info| info.get_process()).expect("it lives")
}

/// As many threads as a policy service may treat.
struct TreatedThreads(Vec<Thread>);

static TREATED_END: AtomicU32 = AtomicU32::new(0);

impl TreatedThreads {
    fn start() -> Self {
        let wait = || {
            while TREATED_END.load(Ordering::Acquire) == 0 {
                let _ = caps::park(TREATED_END.as_ptr() as u64, 0, 0);
            }
            0
        };
        let start = |_| caps::spawn(ThreadOptions::default(), wait).expect("within the quota");
        Self((0..TREATED).map(start).collect())
    }

    fn end(self) {
        TREATED_END.store(1, Ordering::Release);
        // So many are woken at a time.
        for _ in 0..TREATED {
            let _ = caps::unpark(TREATED_END.as_ptr() as u64, u32::MAX);
        }
        for thread in self.0 {
            assert_eq!(thread.join(), Ok(0));
            thread.detach().expect("a handle can be dropped");
        }
    }
}

/// A session ends, with as many contexts as one process can have.
fn logout() {
    let from = Context(caps::need("context:b"));
    let mut made = 0;
    let grant = |number| Grant {
        budget_ns: 10_000,
        period_ns: 20 * MS + number,
        deadline_ns: 0,
        overrun: OverrunPolicy::Throttle,
        cpus: 0,
        depth: 1,
    };
    while from.create(grant(made)).is_ok() {
        made += 1;
    }
    assert!(made > 4, "only {made} contexts were made");
    let mut ended = (0, 0);
    case("logout", || ended = Session(caps::need("session")).logout().expect("it is this process's"));
    assert!(u64::from(ended.0) > made, "{ended:?}");
}

/// A ring full of requests: empty ones, and long lines.
fn rings() {
    let fill = |make: &dyn Fn(u32) -> CapSqeV2| {
        let tickets: Vec<_> = (0..SQ_ENTRIES).map(|at| client::submit(make(at)).expect("room")).collect();
        client::enter(SQ_ENTRIES, u64::MAX).expect("all complete");
        for ticket in tickets {
            client::wait(ticket).expect("it completes");
        }
    };
    case("ring-nops", || fill(&|_| CapSqeV2::nop(0)));
    let text = [b'.'; LINE];
    let console = caps::need("console");
    // More than are served in one stretch, and few enough for the reader of the serial line.
    case("ring-lines", || {
        fill(&|at| if at < 8 { client::request(console, 0, &text, &mut []) } else { CapSqeV2::nop(0) });
    });
}

fn messages() {
    let server = caps::spawn(ThreadOptions::default(), || {
        let (serve, mut buffer) = (caps::need("serve:x"), [0; HEAD + MAX_MESSAGE]);
        let call = caps::receive(serve, &mut buffer).expect("a call comes");
        client::carry_out(caps::return_request(serve, call.call_id, &buffer[HEAD..]))
            .expect("its caller waits");
        0
    })
    .expect("within the quota");
    let mut answer = [0; MAX_MESSAGE];
    case("message", || {
        let len = caps::call_endpoint(caps::need("call:x"), &[1; MAX_MESSAGE], &mut answer);
        assert_eq!(len, Ok(MAX_MESSAGE as u32), "the server answers");
    });
    assert_eq!(server.join(), Ok(0));
}

/// A server comes to an endpoint where as many calls wait as a family can make, each of which is too late to be of use.
fn late_calls() {
    let mut callers = Vec::new();
    while callers.len() < CALLERS
        && let Ok(child) =
            caps::start_with("bench-longest", "late", GRANTS, &[("call:x", caps::need("call:x"))])
    {
        callers.push(child);
    }
    assert!(callers.len() >= CALLERS / 2, "{} processes", callers.len());
    caps::sleep(2 * LATE).expect("within the quota");
    let mut buffer = [0; HEAD];
    case("late-calls", || {
        let nothing_comes = client::submit(caps::receive_request(caps::need("serve:x"), &mut buffer));
        assert_eq!(client::enter(0, 0), Ok(0));
        assert_eq!(client::cancel(nothing_comes.expect("room")), Err(CapError::Cancelled));
    });
    for child in callers {
        assert_eq!(child.wait(), Ok(0));
        child.detach().expect("a handle can be dropped");
    }
}

/// As many calls as one process may have at an endpoint, each of which is dropped when its turn comes too late.
fn late() -> i64 {
    let deadline_ns = caps::now() + LATE;
    let call = || CapSqeV2 {
        deadline_ns,
        qos_flags: QosFlags::DROP_IF_LATE.bits(),
        ..client::request(caps::need("call:x"), 0, &[], &mut [])
    };
    let calls: Vec<_> = (0..CALLS).map(|_| client::submit(call()).expect("room")).collect();
    client::enter(CALLS, u64::MAX).expect("all are dropped");
    let dropped = |call| client::wait(call) == Err(CapError::DeadlineExpired);
    i64::from(!calls.into_iter().all(dropped))
}

/// A call comes to an endpoint where as many receive as there is room for, none of which has room for the call.
fn servers_at_fault() {
    let serve = || {
        let mut buffer = [0; HEAD];
        let receives = (0..CALLS).map(|_| caps::receive_request(caps::need("serve:x"), &mut buffer));
        let receives: Vec<_> = receives.map(|one| client::submit(one).expect("room")).collect();
        client::enter(CALLS, u64::MAX).expect("all fail");
        let fails = |one| client::wait(one) == Err(CapError::BadAddress);
        i64::from(!receives.into_iter().all(fails))
    };
    let start = |_| caps::spawn(ThreadOptions::default(), serve).expect("within the quota");
    let servers: Vec<_> = (0..RECEIVED / CALLS).map(start).collect();
    caps::sleep(20 * MS).expect("within the quota");
    let from = Context(caps::need("context:b"));
    from.bind().expect("it is free");
    case("servers-at-fault", || {
        let nobody = caps::call_endpoint_for(caps::need("call:x"), &[1; 8], &mut [], MS);
        assert_eq!(nobody, Err(CapError::TimedOut));
    });
    from.unbind().expect("it is this thread's");
    for server in servers {
        assert_eq!(server.join(), Ok(0));
        server.detach().expect("a handle can be dropped");
    }
}

/// A process of this program that does `how`, killed after so long or waited for.
fn process(how: &str, killed_after: u64) {
    let child = caps::start("bench-longest", how, GRANTS).expect("in the image");
    if killed_after > 0 {
        caps::sleep(killed_after).expect("within the quota");
        child.kill().expect("a handle can kill");
        assert_eq!(child.wait(), Ok(-3000), "{how}");
    } else {
        assert_eq!(child.wait(), Ok(0), "{how}");
    }
    child.detach().expect("a handle can be dropped");
}

/// As many pages as there can be, and then it stays a while.
fn full() -> i64 {
    let mut wish = MOST;
    while wish > 0 {
        if caps::map(wish, Access::Write).is_err() {
            wish /= 2;
        }
    }
    let _ = caps::sleep(600 * MS);
    0
}

/// As many threads as there can be, all parked; as many as can be are woken at once.
fn crowd(leaves: bool) -> i64 {
    static WORD: AtomicU32 = AtomicU32::new(0);
    static PARKED: AtomicU32 = AtomicU32::new(0);
    let at = WORD.as_ptr() as u64;
    let mut made = 0;
    while let Ok(thread) = caps::spawn(ThreadOptions::default(), move || {
        loop {
            PARKED.fetch_add(1, Ordering::AcqRel);
            let _ = caps::park(at, 0, 0);
        }
    }) {
        thread.detach().expect("a handle can be dropped");
        made += 1;
    }
    assert_eq!(made + 1, THREADS, "threads of a process");
    assert!(caps::comes_true(MS, || PARKED.load(Ordering::Acquire) >= made), "all park");
    let woken = caps::unpark(at, u32::MAX).expect("the word is ours");
    assert!(woken >= MOST_WOKEN, "{woken} of {made}");
    assert!(caps::comes_true(MS, || PARKED.load(Ordering::Acquire) >= 2 * made), "all park again");
    // And again, by requests of one ring: a message of one structure with two words.
    let words = [2 << 32, at, u64::from(MOST_WOKEN)].map(u64::to_le_bytes);
    let (wakes, method) = (made.div_ceil(MOST_WOKEN), ParkSpaceMethod::Wake as u16);
    let request = || client::request(caps::need("park"), method, words.as_flattened(), &mut []);
    let tickets: Vec<_> = (0..wakes).map(|_| client::submit(request()).expect("room")).collect();
    client::enter(wakes, u64::MAX).expect("all complete");
    let woken: u32 = tickets.into_iter().map(|ticket| client::wait(ticket).expect("the word is ours")).sum();
    assert!(woken >= MOST_WOKEN, "{woken} of {made} by requests of one ring");
    if !leaves {
        let _ = caps::sleep(10_000 * MS);
    }
    0
}

/// As many threads as there can be, all due at the same time, whatever they wait for.
fn sleepers() -> i64 {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let (at, due) = (WORD.as_ptr() as u64, caps::now() + 200 * MS);
    let mut made = Vec::new();
    while let Ok(thread) = caps::spawn(ThreadOptions::default(), move || {
        let _it_times_out = caps::park(at, 0, due);
        i64::from(caps::now() < due)
    }) {
        made.push(thread);
    }
    assert!(made.len() > 100, "{} threads", made.len());
    for thread in made {
        assert_eq!(thread.join(), Ok(0));
    }
    0
}

/// As many threads as there can be, whose parks are due at the same time while they wait for more than that: each is woken,
/// looks, and sleeps on. One that computes is in their way meanwhile, so that many are ready at once.
fn woken_early() -> i64 {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let (at, due) = (WORD.as_ptr() as u64, caps::now() + 200 * MS);
    let mut made = 0;
    while let Ok(thread) = caps::spawn(ThreadOptions::default(), move || {
        // A message of one structure with three words.
        let words = [3 << 32, at, 0, due].map(u64::to_le_bytes);
        let method = ParkSpaceMethod::Wait as u16;
        let request = client::request(caps::need("park"), method, words.as_flattened(), &mut []);
        let ticket = client::submit(request).expect("room");
        let _ = client::enter(2, u64::MAX);
        i64::from(client::wait(ticket).is_ok())
    }) {
        thread.detach().expect("a handle can be dropped");
        made += 1;
    }
    assert_eq!(made + 1, THREADS, "threads of a process");
    loop {
        mainspring_user::arch::spin(1000);
    }
}

/// Makes processes until it is killed in the middle of that.
fn maker() -> i64 {
    loop {
        if let Ok(child) = caps::start("bench-longest", "at once", &[]) {
            let _ = child.wait();
            let _ = child.detach();
        }
    }
}

/// Reads an address that is not mapped.
fn faults() -> i64 {
    mainspring_user::arch::word(MAPPINGS + (1 << 40)).load(Ordering::Relaxed) as i64
}
