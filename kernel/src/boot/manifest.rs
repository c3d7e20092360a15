//! The boot manifest: which programs start with which capabilities, and how the machine schedules.
//!
//! ```text
//! # a comment
//! policy wfq                      or eevdf, the default
//! quantum_ns 3000000
//! tick_ns 10000000
//! floor_ppm 50000                 what best effort keeps beside contexts, in millionths of a CPU
//! timer pit                       or apic, the default
//! say idle                        when a CPU first idles, and after what
//! say switches                    each of them, if the kernel measures
//! one_message_of 3                arrives, of those between CPUs; the others are lost, to show what that does
//! policy_slow_ns 500000000        a policy service that is silent for so long is slow, and for ten times as long lost
//! record_bytes 4000000            per CPU; the flight record is written out at the end
//! endpoint store donation=off     its calls lend nothing; `window=4`: the earliest deadline of so many clients goes first;
//!                                 `realtime=on`: its path is made for deadlines, and calls that need that are taken
//! start smoke console,timer,info  a program and its capabilities; the machine waits for it and needs it to succeed
//! serve echo console,serve:echo   as start, but nobody waits for it
//! start run console data=plan -- any further text is the program's argument
//! ```
//!
//! Capabilities: console timer threads control processes park memory policy info, and for an endpoint of any name
//! `call:NAME` and `serve:NAME`. `context:NAME=BUDGET_NS/PERIOD_NS` is a scheduling context of the process's own; after a colon each
//! may follow `deadline=NS`, `criticality=N`, `priority=N`, `refills=N`, `depth=N`, `cpus=BITS`, `overrun=` with `notify`, `fault` or
//! `shutdown`, `handler=ENDPOINT`, which is told of its faults, and `serves=ENDPOINT`, whose calls are served on it by threads that have
//! no context. `time:PERCENT` lets
//! the process make contexts from its own for so much of one CPU; without it, the process has the contexts that it was given.
//! `device:1af4.1041` is the PCI device with this vendor and kind; a manifest that names a device that is not there makes no sense.
//! `session` begins a login session, which ends with the process. `session:NAME` begins one that the process holds and is not in: its
//! threads can enter it. `leases` lets the process lease CPUs, for computing and for rings that
//! the kernel polls; `leases:any` in every mode. `policy-service` lets it be the policy service; `recovery` keeps that service from
//! changing how the program's first thread is treated. `islands:PERCENT` lets it have realtime islands admitted, for so much of one CPU
//! in all (150 is all of one and half of another), those of the processes that it makes included.

use crate::arch::cpu::MAX_CPUS;
use crate::devices;
use crate::method::StartupContext;
use crate::object::caps::Object;
use crate::object::endpoint::{Conduct, ENDPOINTS, endpoint};
use crate::sched::contexts::{self, SESSIONS_EACH};
use crate::sched::per_cpu::Settings;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use mainspring_abi::kernel::STARTUP_CAPS;
use mainspring_abi::{Nanos, Policy};
use mainspring_sched::Floor;
use mainspring_sched::context::{ContextSpec, Overrun};
use spin::Mutex;

/// All CPUs that a machine can have, in percent of one.
const MOST_PERCENT: u16 = 100 * MAX_CPUS as u16;

/// What one line says.
#[expect(clippy::large_enum_variant, reason = "a line lives for a moment")]
pub enum Line<'a> {
    /// A setting.
    Set(SetFn),
    /// A program to start.
    Start(Start<'a>),
}

type SetFn = alloc::boxed::Box<dyn Fn(&mut Settings)>;

/// A program to start.
pub struct Start<'a> {
    /// Which.
    pub program: &'a str,
    /// Its capabilities.
    pub grants: heapless::Vec<(&'a str, Object), STARTUP_CAPS>,
    /// Contexts of its own.
    pub contexts: heapless::Vec<StartupContext<'a>, STARTUP_CAPS>,
    /// No policy applies to its first thread.
    pub recovery: bool,
    /// It begins a session, which it finds as `session`.
    pub session: bool,
    /// Sessions that it holds and is not in, by what it finds them under.
    pub held_sessions: heapless::Vec<&'a str, SESSIONS_EACH>,
    /// What contexts that it makes may have of one CPU, in percent.
    pub spare_percent: u64,
    /// A piece of the boot image that it can read.
    pub data: Option<&'a str>,
    /// Further text.
    pub arguments: &'a str,
    /// Whether the machine waits for it.
    pub awaited: bool,
}

/// A line that makes no sense.
#[derive(Debug)]
pub struct BadLine<'a> {
    number: usize,
    line: &'a str,
}

impl fmt::Display for BadLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} makes no sense: {}", self.number, self.line)
    }
}

/// The names of endpoints met so far; an endpoint's number is its place here.
static ENDPOINT_NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The lines that say something.
pub fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, BadLine<'_>>> {
    (1..).zip(text.lines()).filter_map(|(number, line)| {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        Some(parse(line).ok_or(BadLine { number, line }))
    })
}

fn parse(line: &str) -> Option<Line<'_>> {
    let (word, rest) = line.split_once(' ')?;
    let number = || rest.trim().parse::<u64>().ok().filter(|number| *number > 0);
    let set = |set: SetFn| Some(Line::Set(set));
    match word {
        "policy" => {
            let policy = match rest.trim() {
                "eevdf" => Policy::Eevdf,
                "wfq" => Policy::Wfq,
                _ => return None,
            };
            set(alloc::boxed::Box::new(move |settings| settings.policy = policy))
        }
        "quantum_ns" => {
            let value = Nanos::new(number()?);
            set(alloc::boxed::Box::new(move |settings| settings.quantum = value))
        }
        "tick_ns" => {
            let value = Nanos::new(number()?);
            set(alloc::boxed::Box::new(move |settings| settings.tick = value))
        }
        "floor_ppm" => {
            let floor = Floor::from_ppm(rest.trim().parse().ok()?).ok()?;
            set(alloc::boxed::Box::new(move |settings| settings.floor = floor))
        }
        "timer" => {
            let pit = match rest.trim() {
                "apic" => false,
                "pit" => true,
                _ => return None,
            };
            set(alloc::boxed::Box::new(move |settings| settings.pit = pit))
        }
        "say" if rest.trim() == "idle" => set(alloc::boxed::Box::new(|settings| settings.say_idle = true)),
        "say" if rest.trim() == "switches" => {
            set(alloc::boxed::Box::new(|settings| settings.say_switches = true))
        }
        "record_bytes" => {
            let value = usize::try_from(number()?).ok()?;
            set(alloc::boxed::Box::new(move |settings| settings.record_bytes = value))
        }
        "one_message_of" => {
            let value = u32::try_from(number()?).ok()?;
            set(alloc::boxed::Box::new(move |settings| settings.one_message_of = value))
        }
        "policy_slow_ns" => {
            let value = Nanos::new(number()?);
            set(alloc::boxed::Box::new(move |settings| settings.policy_slow_after = value))
        }
        "endpoint" => {
            let (number, how) = configured(rest)?;
            set(alloc::boxed::Box::new(move |_| endpoint(number).lock().configure(how)))
        }
        "start" | "serve" => start(rest, word == "start").map(Line::Start),
        _ => None,
    }
}

fn start(text: &str, awaited: bool) -> Option<Start<'_>> {
    let (head, arguments) = text.split_once(" -- ").unwrap_or((text, ""));
    let mut words = head.split_whitespace();
    let program = words.next()?;
    let (mut grants, mut contexts, mut session) = (heapless::Vec::new(), heapless::Vec::new(), false);
    let (mut recovery, mut held_sessions) = (false, heapless::Vec::new());
    let mut spare_percent = 0;
    for name in words.next()?.split(',') {
        if let Some(percent) = name.strip_prefix("time:") {
            spare_percent = percent.parse().ok().filter(|percent| *percent <= 100)?;
            continue;
        }
        match name.strip_prefix("context:").and_then(|_| name.split_once('=')) {
            Some((name, granted)) => contexts.push(context(name, granted)?).ok()?,
            None if name == "session" => session = true,
            None if name.starts_with("session:") => held_sessions.push(name).ok()?,
            None if name == "recovery" => recovery = true,
            None => grants.push((name, object(name)?)).ok()?,
        }
    }
    let data = match words.next() {
        Some(word) => Some(word.strip_prefix("data=")?),
        None => None,
    };
    Some(Start {
        program,
        grants,
        contexts,
        recovery,
        session,
        held_sessions,
        spare_percent,
        data,
        arguments,
        awaited,
    })
}

/// An endpoint's number, and how it is to pass calls on.
fn configured(text: &str) -> Option<(u32, Conduct)> {
    let mut words = text.split_whitespace();
    let number = endpoint_number(words.next()?)?;
    let mut how = Conduct::DEFAULT;
    for word in words {
        match word.split_once('=')? {
            ("donation", "on") => how.lends = true,
            ("donation", "off") => how.lends = false,
            ("realtime", "on") => how.realtime_safe = true,
            ("realtime", "off") => how.realtime_safe = false,
            ("window", number) => how.window = number.parse().ok()?,
            _ => return None,
        }
    }
    Some((number, how))
}

/// A budget and a period, in nanoseconds, and what differs from the usual: `2000000/10000000:deadline=8000000:criticality=1`.
fn context<'a>(name: &'a str, text: &'a str) -> Option<StartupContext<'a>> {
    let mut parts = text.split(':');
    let (budget, period) = parts.next()?.split_once('/')?;
    let mut spec = ContextSpec::new(Nanos::new(budget.parse().ok()?), Nanos::new(period.parse().ok()?));
    let (mut handler, mut serves) = (None, heapless::Vec::new());
    for part in parts {
        match part.split_once('=')? {
            ("deadline", ns) => spec.deadline = Nanos::new(ns.parse().ok()?),
            ("criticality", number) => spec.criticality = number.parse().ok()?,
            ("priority", number) => spec.priority = number.parse().ok()?,
            ("refills", number) => spec.refills = number.parse().ok()?,
            ("depth", number) => spec.depth = number.parse().ok()?,
            ("cpus", bits) => spec.cpus = contexts::cpus(bits.parse().ok()?),
            ("overrun", "notify") => spec.overrun = Overrun::Notify,
            ("overrun", "throttle") => spec.overrun = Overrun::Throttle,
            ("overrun", "fault") => spec.overrun = Overrun::Fault,
            ("overrun", "shutdown") => spec.overrun = Overrun::Shutdown,
            ("handler", endpoint) => handler = Some(endpoint_number(endpoint)?),
            ("serves", endpoint) => serves.push(endpoint_number(endpoint)?).ok()?,
            _ => return None,
        }
    }
    Some(StartupContext { name, spec, handler, serves })
}

fn object(name: &str) -> Option<Object> {
    Some(match name {
        "console" => Object::Console,
        "timer" => Object::Timer,
        "threads" => Object::ThreadSpawner,
        "control" => Object::ThreadControl,
        "processes" => Object::ProcessSpawner,
        "park" => Object::ParkSpace,
        "memory" => Object::VirtualMemory,
        "policy" => Object::SchedulingPolicy,
        "info" => Object::SystemInfo,
        "leases" => Object::CpuIsolation { any_mode: false },
        "policy-service" => Object::PolicyService,
        "leases:any" => Object::CpuIsolation { any_mode: true },
        _ => match name.split_once(':')? {
            ("call", endpoint) => Object::EndpointCall(endpoint_number(endpoint)?),
            ("serve", endpoint) => Object::EndpointServe(endpoint_number(endpoint)?),
            ("islands", percent) => Object::RealtimeIslands {
                percent: percent.parse().ok().filter(|percent| *percent <= MOST_PERCENT)?,
            },
            ("device", id) => {
                let (vendor, kind) = id.split_once('.')?;
                let number = |text| u16::from_str_radix(text, 16).ok();
                Object::Device(devices::find((number(vendor)?, number(kind)?))?)
            }
            _ => return None,
        },
    })
}

fn endpoint_number(name: &str) -> Option<u32> {
    let mut names = ENDPOINT_NAMES.lock();
    if let Some(at) = names.iter().position(|known| known == name) {
        return Some(at as u32);
    }
    if names.len() == ENDPOINTS {
        return None;
    }
    names.push(name.into());
    Some(names.len() as u32 - 1)
}
