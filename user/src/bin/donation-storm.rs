//! Ten thousand calls on contexts, while callers and servers are killed, calls time out and are withdrawn, and contexts are
//! revoked. At the end every context is at rest, what each has used fits its periods, and nobody waits. The kernel that checks
//! itself looks after each step whether every context is in exactly one place.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use mainspring_random::{Random, Stream};
use mainspring_user::caps::{self, Context, Grant, Process, Short, ThreadOptions};
use mainspring_user::schema::{Access, OverrunPolicy};
use mainspring_user::{CapError, arch, client, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const CALLS: u64 = 10_000;
/// Half of them would be enough for a call each.
const MOST_STRIKES: u32 = 2 * CALLS as u32;
const CALLERS: usize = 4;
const SERVERS: usize = 3;
/// What each caller's context grants: 1 ms of 20.
const TIME: Grant = Grant {
    budget_ns: MS,
    period_ns: 20 * MS,
    deadline_ns: 0,
    overrun: OverrunPolicy::Notify,
    cpus: 0,
    depth: 0,
};
const GRANTS: [&str; 7] = ["console", "timer", "threads", "control", "park", "info", "memory"];

fn main() -> i64 {
    let arguments = caps::arguments();
    let (what, number) = arguments.split_once(' ').unwrap_or((arguments, "1"));
    let number = number.parse().expect("a number");
    match what {
        "call" => call(number),
        "serve" => serve("serve:d", number),
        "serve-on" => serve("serve:e", number),
        _ => storm(number),
    }
}

fn random(seed: u64, number: usize) -> Random {
    Random::new(seed, Stream::Thread(number))
}

/// How many calls have ended.
fn calls() -> &'static core::sync::atomic::AtomicU64 {
    arch::word(caps::map_object(caps::need("shared"), Access::Write).expect("it was granted"))
}

/// A caller: one call after the other, on the context that it was granted, until it is killed.
fn call(seed: u64) -> i64 {
    let (of, calls) = (Context(caps::need("context:mine")), calls());
    let Ok(info) = of.info() else { return 1 };
    let options = ThreadOptions { cpus: 1 << info.cpu, ..ThreadOptions::default() };
    let caller = caps::spawn(options, move || {
        let mut random = random(seed, 1);
        loop {
            // It is bound to this thread already, or it is gone and the calls go on without.
            let _ = of.bind();
            for _ in 0..20 {
                let outcome = one_call(&mut random);
                let fails = [CapError::TimedOut, CapError::PeerGone, CapError::Cancelled];
                assert!(outcome.is_ok() || fails.map(Err).contains(&outcome), "a call ended as {outcome:?}");
                calls.fetch_add(1, Ordering::Relaxed);
            }
            let _ = of.unbind();
        }
    });
    let _ = caller.expect("within the quota").join();
    0
}

fn one_call(random: &mut Random) -> Result<(), CapError> {
    let endpoint = caps::need("call:d");
    let what = if random.below(3) == 0 { b'n' } else { b'b' };
    let mut answer = [0; 8];
    match random.below(8) {
        0 => caps::call_short(endpoint, Short::number(u32::from(what))).map(|_| ()),
        1 => {
            let request = client::request(endpoint, 0, &[what], &mut answer);
            client::call_for(request, random.below(MS)).map(|_| ())
        }
        2 => {
            let ticket = client::submit(client::request(endpoint, 0, &[what], &mut answer))?;
            client::enter(0, 0)?;
            client::cancel(ticket).map(|_| ())
        }
        _ => caps::call_endpoint(endpoint, &[what], &mut answer).map(|_| ()),
    }
}

/// A server: two threads that serve until they are killed. One in a hundred calls is never answered.
fn serve(endpoint: &'static str, seed: u64) -> i64 {
    let other = caps::spawn(ThreadOptions::default(), move || serve_one(caps::need(endpoint), seed, 1));
    let _ = serve_one(caps::need(endpoint), seed, 2);
    let _ = other.expect("within the quota").join();
    0
}

fn serve_one(endpoint: u32, seed: u64, number: usize) -> i64 {
    let mut random = random(seed, number);
    let mut buffer = [0; 64];
    let mut received = caps::receive(endpoint, &mut buffer);
    loop {
        let Ok(request) = received else {
            received = caps::receive(endpoint, &mut buffer);
            continue;
        };
        arch::spin(random.below(2000));
        if buffer[16] == b'n' && caps::find("call:e").is_some() {
            let _ = caps::call_endpoint(caps::need("call:e"), b"b", &mut [0; 8]);
        }
        // A server on borrowed time may not sleep, and others may.
        if random.below(50) == 0 {
            let _ = caps::sleep(random.below(MS / 4));
        }
        received = if random.below(100) == 0 {
            caps::receive(endpoint, &mut buffer)
        } else {
            caps::answer_and_receive(endpoint, request.call_id, &[1; 8], &mut buffer)
        };
    }
}

/// Who is in the storm.
struct Storm {
    root: Context,
    shared: u32,
    random: Random,
    contexts: Vec<Context>,
    callers: Vec<Process>,
    servers: Vec<Process>,
    kills: u32,
    revokes: u32,
}

impl Storm {
    fn start_caller(&mut self, number: usize) -> Process {
        let granted = [
            ("shared", self.shared),
            ("call:d", caps::need("call:d")),
            ("context:mine", self.contexts[number].0),
        ];
        let arguments = format!("call {}", self.random.below(1 << 32));
        caps::start_with("donation-storm", &arguments, &GRANTS, &granted)
            .expect("the program is in the image")
    }

    /// The last of the servers serves those of the others who call on.
    fn start_server(&mut self, number: usize) -> Process {
        let seed = self.random.below(1 << 32);
        let (what, endpoint) = if number + 1 == SERVERS { ("serve-on", "e") } else { ("serve", "d") };
        let mut granted =
            Vec::from([(format!("serve:{endpoint}"), caps::need(&format!("serve:{endpoint}")))]);
        if endpoint == "d" {
            granted.push(("call:e".into(), caps::need("call:e")));
        }
        let granted: Vec<_> = granted.iter().map(|(name, cap)| (name.as_str(), *cap)).collect();
        caps::start_with("donation-storm", &format!("{what} {seed}"), &GRANTS, &granted)
            .expect("the program is in the image")
    }

    /// Something happens to somebody.
    fn strike(&mut self) {
        let number = self.random.below(CALLERS as u64) as usize;
        match self.random.below(4) {
            0 => {
                let next = self.start_caller(number);
                end(core::mem::replace(&mut self.callers[number], next));
                self.kills += 1;
            }
            1 | 2 => {
                let number = number % SERVERS;
                let next = self.start_server(number);
                end(core::mem::replace(&mut self.servers[number], next));
                self.kills += 1;
            }
            _ => {
                self.contexts[number].revoke().expect("it is there");
                self.contexts[number].release().expect("it is this process's");
                self.contexts[number] = self.root.create(TIME).expect("there is room for as many as before");
                let next = self.start_caller(number);
                end(core::mem::replace(&mut self.callers[number], next));
                self.revokes += 1;
            }
        }
    }
}

fn end(process: Process) {
    process.kill().expect("a handle can kill");
    let code = process.wait().expect("its end is told");
    assert_eq!(code, -3000, "a program of the storm ended by itself");
    process.detach().expect("a handle can be dropped");
}

//= OWN:context.one-place
//= OWN:donation.exits
//= ARCH:donation.cancel
fn storm(seed: u64) -> i64 {
    let before = caps::usage().expect("usage can be read");
    let (root, began) = (Context(caps::need("context:root")), caps::now());
    let shared = caps::create_object(1).expect("a page is within the quota");
    let calls = arch::word(caps::map_object(shared, Access::Write).expect("it is this process's"));
    let contexts = (0..CALLERS).map(|_| root.create(TIME).expect("within what the root has")).collect();
    let (callers, servers) = (Vec::new(), Vec::new());
    let mut storm =
        Storm { root, shared, random: random(seed, 0), contexts, callers, servers, kills: 0, revokes: 0 };
    for number in 0..SERVERS {
        let server = storm.start_server(number);
        storm.servers.push(server);
    }
    for number in 0..CALLERS {
        let caller = storm.start_caller(number);
        storm.callers.push(caller);
    }
    let (mut seen, mut strikes) = (0, 0);
    while seen < CALLS {
        caps::sleep(storm.random.below(8 * MS)).expect("within the quota");
        storm.strike();
        strikes += 1;
        seen = calls.load(Ordering::Relaxed);
        assert!(strikes < MOST_STRIKES, "nobody is served any more: {seen} calls");
    }
    for process in storm.callers.drain(..).chain(storm.servers.drain(..)) {
        end(process);
    }
    let ran = caps::now() - began;
    // What servers without a context serve on, if the endpoints have one: it is at rest as those of the callers are.
    if let Some(own) = caps::find("context:own").map(Context) {
        let used = own.info().expect("the context is there").used_ns;
        assert!(used > 0, "no call was served on the endpoints' own context");
        say!("donation-storm: passive_servers=ok");
        storm.contexts.push(own);
    }
    for of in &storm.contexts {
        let info = of.info().expect("the context is there");
        assert!(!info.bound && !info.lent && !info.stale, "a context is with somebody who is gone: {info:?}");
        let most = (ran / info.period_ns + 2) * info.budget_ns + info.depletions * info.overshoot_max_ns;
        assert!(info.used_ns <= most, "{} ns used in {ran} ns, at most {most} allowed", info.used_ns);
    }
    // Each can be had and used again: nothing of the storm is left on it.
    for of in storm.contexts.drain(..) {
        let options =
            ThreadOptions { cpus: 1 << of.info().expect("it is there").cpu, ..ThreadOptions::default() };
        let thread = caps::spawn(options, move || of.bind().and_then(|()| of.unbind()).map_or(1, |()| 0));
        let thread = thread.expect("within the quota");
        assert_eq!(thread.join(), Ok(0), "a context at rest cannot be bound");
        thread.detach().expect("a handle can be dropped");
        of.revoke().expect("it is there");
    }
    let rests =
        || caps::usage().is_ok_and(|now| (now.threads, now.processes) == (before.threads, before.processes));
    assert!(caps::comes_true(MS, rests), "somebody waits who should be gone");
    // All CPUs idle: the kernel that checks itself wants to look at that too.
    caps::sleep(MS).expect("a timer was granted");
    say!("donation-storm: calls={seen} strikes={strikes} kills={} revokes={}", storm.kills, storm.revokes);
    say!("donation-storm: one_place=ok budgets=ok nobody_waits=ok");
    0
}
