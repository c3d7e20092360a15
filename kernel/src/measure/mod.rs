//! What a measuring build counts, case by case (`make kernel-measured`): where time may have gone. Other builds count nothing.
//!
//! All of it is diagnostic: it is printed, and told to the program that asks for the end of a case. No decision
//! reads it.

mod segments;

use crate::arch::cpu::{self, MAX_CPUS};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use heapless::String;
use spin::Mutex;

pub use mainspring_schema::Counter;
pub use segments::{Holding, Segment, holding, within};

/// Whether this build counts.
pub const ON: bool = cfg!(feature = "measure");
/// How many counters there are.
pub const COUNTERS: usize = Counter::LockHoldCycles as usize + 1;
/// User instructions are sampled by the 64 bytes that they are in.
const SAMPLE_BYTES: u64 = 64;
const PLACES: usize = 64;
/// The most frequent ones are shown.
const SHOWN: usize = 4;

/// Counts of one CPU, on cache lines of their own.
#[repr(align(128))]
struct Row([AtomicU64; COUNTERS]);

static ROWS: [Row; MAX_CPUS] = [const { Row([const { AtomicU64::new(0) }; COUNTERS]) }; MAX_CPUS];
static CASE: Mutex<Case> =
    Mutex::new(Case { name: String::new(), before: [0; COUNTERS], places: [(0, 0); PLACES] });
static SAYS_SWITCHES: AtomicBool = AtomicBool::new(false);

/// The case under way.
struct Case {
    name: String<24>,
    before: [u64; COUNTERS],
    /// Where in user mode timer interrupts came, and how often.
    places: [(u64, u64); PLACES],
}

/// Counts `many` of something.
#[inline(always)]
pub fn add(what: Counter, many: u64) {
    if ON {
        ROWS[cpu::index()].0[what as usize].fetch_add(many, Ordering::Relaxed);
    }
}

/// Counts one of something.
#[inline(always)]
pub fn one(what: Counter) {
    add(what, 1);
}

/// A timer interrupt found a user thread at this address.
#[inline(always)]
pub fn sample(instruction: impl FnOnce() -> u64) {
    if ON {
        one(Counter::TimersInUserMode);
        let place = instruction() / SAMPLE_BYTES * SAMPLE_BYTES;
        let mut case = CASE.lock();
        let free = |(at, _): &&mut (u64, u64)| *at == place || *at == 0;
        match case.places.iter_mut().find(free) {
            Some((at, count)) => (*at, *count) = (place, *count + 1),
            None => one(Counter::SamplesLost),
        }
    }
}

/// Each switch to a thread is said on the serial line from now on.
pub fn say_switches() {
    SAYS_SWITCHES.store(true, Ordering::Relaxed);
}

/// Says a switch, where that was asked for.
#[inline(always)]
pub fn switched<T: fmt::Debug>(thread: impl FnOnce() -> T) {
    if ON {
        one(Counter::Switches);
        if SAYS_SWITCHES.load(Ordering::Relaxed) {
            crate::say!("sched: cpu={} runs {:?}", cpu::index(), thread());
        }
    }
}

fn totals() -> [u64; COUNTERS] {
    core::array::from_fn(|what| ROWS.iter().map(|row| row.0[what].load(Ordering::Relaxed)).sum())
}

/// What the case under way has come to so far.
pub fn counts() -> [u64; COUNTERS] {
    let (now, case) = (totals(), CASE.lock());
    core::array::from_fn(|what| now[what] - case.before[what])
}

/// Ends the case under way, says what it came to, and begins another.
pub fn begin_case(name: &str) {
    let now = totals();
    let mut case = CASE.lock();
    let next =
        Case { name: String::try_from(name).unwrap_or_default(), before: now, places: [(0, 0); PLACES] };
    let ended = core::mem::replace(&mut *case, next);
    drop(case);
    if !ended.name.is_empty() {
        print(&ended.name, &core::array::from_fn(|what| now[what] - ended.before[what]));
        print_places(&ended.name, ended.places);
    }
    end_stretches(&ended.name);
    // The time that the printing took is in no stretch.
    stretch_begins(Stretch::SystemCall);
}

/// Counts by name, in one line.
struct Line<'c>(&'c [u64; COUNTERS]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..)
            .zip(self.0)
            .filter_map(|(number, count)| Some((Counter::try_from(number).ok()?, count)))
            .try_for_each(|(what, count)| write!(f, " {what:?}={count}"))
    }
}

fn print(name: &str, counts: &[u64; COUNTERS]) {
    crate::say!("measure: diagnostic case={name}{}", Line(counts));
}

fn print_places(name: &str, mut places: [(u64, u64); PLACES]) {
    places.sort_unstable_by_key(|(_, count)| core::cmp::Reverse(*count));
    for (at, count) in places.iter().take(SHOWN).filter(|(_, count)| *count > 0) {
        crate::say!("measure: diagnostic case={name} user_pc={at:#x} samples={count}");
    }
}

/// Says what everything came to; the longest stretch with interrupts off, or 0 where nothing is measured.
pub fn report() -> u64 {
    if !ON {
        return 0;
    }
    begin_case("");
    print("total", &totals());
    print_stretches()
}

/// What a CPU does in a stretch with interrupts off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch {
    /// A system call, with its first requests.
    SystemCall,
    /// The timer, and what it preempts for.
    Timer,
    /// Another CPU's message.
    Message,
    /// A fault of a program.
    Fault,
    /// A pass of the idle loop.
    Idle,
    /// Further requests of a ring, or what comes after the last piece of long work.
    Requests,
    /// A piece of a change of pages.
    Pages,
    /// A piece of an object that is made.
    Object,
    /// A piece of a process that is made.
    Spawn,
    /// A piece of the end of a thread or process.
    End,
}

const STRETCHES: [Stretch; 10] = [
    Stretch::SystemCall,
    Stretch::Timer,
    Stretch::Message,
    Stretch::Fault,
    Stretch::Idle,
    Stretch::Requests,
    Stretch::Pages,
    Stretch::Object,
    Stretch::Spawn,
    Stretch::End,
];

/// When each CPU's stretch began, and what it is.
static BEGAN: [(AtomicU64, AtomicU64); MAX_CPUS] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MAX_CPUS];
/// The longest stretch of each kind, in the case under way and in those before.
static LONGEST: [AtomicU64; STRETCHES.len()] = [const { AtomicU64::new(0) }; STRETCHES.len()];
static LONGEST_BEFORE: [AtomicU64; STRETCHES.len()] = [const { AtomicU64::new(0) }; STRETCHES.len()];

/// A stretch with interrupts off begins.
#[inline(always)]
pub fn stretch_begins(what: Stretch) {
    if ON {
        let (began, kind) = &BEGAN[cpu::index()];
        kind.store(what as u64, Ordering::Relaxed);
        began.store(crate::arch::time_stamp(), Ordering::Relaxed);
    }
}

/// The stretch that is under way turns out to be this.
#[inline(always)]
pub fn stretch_is(what: Stretch) {
    if ON {
        BEGAN[cpu::index()].1.store(what as u64, Ordering::Relaxed);
    }
}

/// A stretch with interrupts off ends.
#[inline(always)]
pub fn stretch_ends() {
    if ON {
        let (began, kind) = &BEGAN[cpu::index()];
        let began = began.load(Ordering::Relaxed);
        if began != 0 {
            let took = crate::arch::time_stamp().saturating_sub(began);
            LONGEST[kind.load(Ordering::Relaxed) as usize].fetch_max(took, Ordering::Relaxed);
        }
    }
}

/// Says the longest stretch of the case that ends.
fn end_stretches(case: &str) {
    let longest = STRETCHES.map(|what| (LONGEST[what as usize].swap(0, Ordering::Relaxed), what));
    for (counts, what) in longest {
        LONGEST_BEFORE[what as usize].fetch_max(counts, Ordering::Relaxed);
    }
    if let Some((counts, what)) = longest.into_iter().max_by_key(|(counts, _)| *counts)
        && !case.is_empty()
    {
        crate::say!("measure: diagnostic case={case} interrupts_off={what:?} counts={counts}");
    }
}

/// Says the longest stretch of each kind, and of all; the last.
fn print_stretches() -> u64 {
    let mut longest = 0;
    for what in STRETCHES {
        let counts = LONGEST_BEFORE[what as usize].load(Ordering::Relaxed);
        crate::say!("measure: diagnostic case=total interrupts_off={what:?} counts={counts}");
        longest = longest.max(counts);
    }
    crate::say!("measure: diagnostic longest interrupts_off counts={longest}");
    longest
}
