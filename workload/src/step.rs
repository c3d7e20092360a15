//! The text of one step.

use crate::error::{Report, Reported};
use crate::grammar::{Phrase, Verb, find, verb};
use crate::source::At;
use crate::value::ENDLESS;
use crate::words::{Options, Words};
use crate::{Lateness, Span, Step};
use mainspring_abi::Nanos;
use std::ops::RangeInclusive;

/// A step whose names are not resolved yet.
#[derive(Clone, Debug)]
pub(crate) enum RawStep<'d> {
    /// A step without names.
    Plain(Step),
    /// `run NAME`, `sleep NAME`: the name of a distribution.
    RunDrawn(At<&'d str>),
    SleepDrawn(At<&'d str>),
    Unpark(At<&'d str>),
    Call(At<&'d str>, Options),
    Recv(At<&'d str>, Option<Span>),
    Spawn(At<&'d str>),
    Join(At<&'d str>, Option<Span>),
    Bind(At<&'d str>),
    Revoke(At<&'d str>),
    Drain(At<&'d str>),
    Lease(At<&'d str>),
    Release(At<&'d str>),
    Submit(At<&'d str>, u32, Options),
    Complete(At<&'d str>, u32, Options),
    Poll(At<&'d str>),
    Lock(At<&'d str>, Option<Span>),
    Unlock(At<&'d str>),
    Down(At<&'d str>, Option<Span>),
    Up(At<&'d str>),
    Barrier(At<&'d str>, Option<Span>),
    /// The condition, then the mutex.
    Wait(At<&'d str>, At<&'d str>, Option<Span>),
    Signal(At<&'d str>),
    Broadcast(At<&'d str>),
    /// The chance of its first way, in parts per million.
    Either(u32),
    /// The chance of the way that begins, or what is left.
    Or(Option<u32>),
}

type Read = for<'d> fn(&Words<'d>, &mut Report<'_>) -> Result<RawStep<'d>, Reported>;

/// What one step may submit or wait for.
const ENTRIES: RangeInclusive<u64> = 1..=4_096;

/// How often a phase may be repeated.
const ROUNDS: RangeInclusive<u64> = 1..=1_000_000_000;

const CALL: &str = "\"call ENDPOINT\", \"call ENDPOINT 5ms\" or \
    \"call ENDPOINT needs 300us deadline 2ms timeout 5ms drop\"";
const SUBMIT: &str = "\"submit RING 4\" or \"submit RING 4 deadline 2ms drop\"";
const COMPLETE: &str = "\"complete RING 4\" or \"complete RING 4 timeout 5ms\"";

const VERBS: [Verb<Read>; 38] = [
    verb("run", 1, 1, "\"run 300us\", \"run 1ms..4ms\" or \"run forever\"", run),
    verb("sleep", 1, 1, "\"sleep 16ms\" or \"sleep 1ms..4ms\"", |words, report| {
        match distribution(words, report) {
            Some(name) => name.map(RawStep::SleepDrawn),
            None => words.span(1, report).map(|span| RawStep::Plain(Step::Sleep(span))),
        }
    }),
    verb("every", 1, 1, "\"every 20ms\"", |words, report| {
        let period = words.fixed(1, "every", Nanos::new(1)..=Nanos::MAX, report);
        period.map(|period| RawStep::Plain(Step::Every(period)))
    }),
    verb("yield", 0, 0, "\"yield\"", |_, _| Ok(RawStep::Plain(Step::Yield))),
    verb("park", 0, 1, "\"park\" or \"park 5ms\"", |words, report| {
        words.timeout(1, report).map(|timeout| RawStep::Plain(Step::Park { timeout }))
    }),
    verb("unpark", 1, 1, "\"unpark NAME\"", |words, report| {
        words.name(1, "thread", report).map(RawStep::Unpark)
    }),
    verb("call", 1, 8, CALL, call),
    verb("recv", 1, 2, "\"recv ENDPOINT\" or \"recv ENDPOINT 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("endpoint", report)?;
        Ok(RawStep::Recv(name, timeout))
    }),
    verb("reply", 0, 0, "\"reply\"", |_, _| Ok(RawStep::Plain(Step::Reply))),
    verb("throw", 0, 0, "\"throw\"", |_, _| Ok(RawStep::Plain(Step::Throw))),
    verb("spawn", 1, 1, "\"spawn NAME\"", |words, report| {
        words.name(1, "thread", report).map(RawStep::Spawn)
    }),
    verb("join", 1, 2, "\"join NAME\" or \"join NAME 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("thread", report)?;
        Ok(RawStep::Join(name, timeout))
    }),
    verb("weight", 1, 1, "\"weight 128\"", |words, report| {
        words.weight(1, report).map(|weight| RawStep::Plain(Step::Weight(weight)))
    }),
    verb("alloc", 1, 1, "\"alloc 65536\", in bytes", |words, report| {
        let bytes = words.number(1, "the number of bytes", 1..=ENDLESS, report);
        bytes.map(|bytes| RawStep::Plain(Step::Alloc(bytes)))
    }),
    verb("syscall", 0, 0, "\"syscall\"", |_, _| Ok(RawStep::Plain(Step::Syscall))),
    verb("exit", 0, 0, "\"exit\"", |_, _| Ok(RawStep::Plain(Step::Exit))),
    verb("bind", 1, 1, "\"bind CONTEXT\"", |words, report| {
        words.name(1, "context", report).map(RawStep::Bind)
    }),
    verb("unbind", 0, 0, "\"unbind\"", |_, _| Ok(RawStep::Plain(Step::Unbind))),
    verb("revoke", 1, 1, "\"revoke CONTEXT\"", |words, report| {
        words.name(1, "context", report).map(RawStep::Revoke)
    }),
    verb("drain", 1, 1, "\"drain CONTEXT\"", |words, report| {
        words.name(1, "context", report).map(RawStep::Drain)
    }),
    verb("lease", 1, 1, "\"lease NAME\"", |words, report| words.name(1, "lease", report).map(RawStep::Lease)),
    verb("release", 1, 1, "\"release LEASE\"", |words, report| {
        words.name(1, "lease", report).map(RawStep::Release)
    }),
    verb("submit", 2, 5, SUBMIT, |words, report| {
        let (ring, entries) = ring_and_entries(words, report)?;
        let options = Options::read(words, 3, "submit", &["deadline", "drop", "late"], SUBMIT, report)?;
        Ok(RawStep::Submit(ring, entries, options))
    }),
    verb("complete", 2, 4, COMPLETE, |words, report| {
        let (ring, entries) = ring_and_entries(words, report)?;
        let options = Options::read(words, 3, "complete", &["timeout"], COMPLETE, report)?;
        Ok(RawStep::Complete(ring, entries, options))
    }),
    verb("poll", 1, 1, "\"poll RING\"", |words, report| words.name(1, "ring", report).map(RawStep::Poll)),
    verb("lock", 1, 2, "\"lock MUTEX\" or \"lock MUTEX 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("mutex", report)?;
        Ok(RawStep::Lock(name, timeout))
    }),
    verb("unlock", 1, 1, "\"unlock MUTEX\"", |words, report| {
        words.name(1, "mutex", report).map(RawStep::Unlock)
    }),
    verb("down", 1, 2, "\"down SEMAPHORE\" or \"down SEMAPHORE 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("semaphore", report)?;
        Ok(RawStep::Down(name, timeout))
    }),
    verb("up", 1, 1, "\"up SEMAPHORE\"", |words, report| words.name(1, "semaphore", report).map(RawStep::Up)),
    verb("barrier", 1, 2, "\"barrier NAME\" or \"barrier NAME 5ms\"", |words, report| {
        let (name, timeout) = words.name_and_timeout("barrier", report)?;
        Ok(RawStep::Barrier(name, timeout))
    }),
    verb("wait", 2, 3, "\"wait CONDITION MUTEX\" or \"wait CONDITION MUTEX 5ms\"", |words, report| {
        let (condition, mutex) = (words.name(1, "condition", report), words.name(2, "mutex", report));
        let timeout = words.timeout(3, report);
        Ok(RawStep::Wait(condition?, mutex?, timeout?))
    }),
    verb("signal", 1, 1, "\"signal CONDITION\"", |words, report| {
        words.name(1, "condition", report).map(RawStep::Signal)
    }),
    verb("broadcast", 1, 1, "\"broadcast CONDITION\"", |words, report| {
        words.name(1, "condition", report).map(RawStep::Broadcast)
    }),
    verb("repeat", 1, 1, "\"repeat 10\"", |words, report| {
        let times = words.number(1, "the number of rounds", ROUNDS, report);
        times.map(|times| RawStep::Plain(Step::Repeat { times, end: 0 }))
    }),
    verb("for", 1, 1, "\"for 200ms\" or \"for 100ms..300ms\"", |words, report| {
        words.span(1, report).map(|span| RawStep::Plain(Step::For { span, end: 0 }))
    }),
    verb("either", 1, 1, "\"either 70%\"", |words, report| {
        let chance = words.chance(1, report)?;
        Ok(RawStep::Either(chance.unwrap_or_default()))
    }),
    verb("or", 0, 1, "\"or 20%\" or \"or\"", |words, report| words.chance(1, report).map(RawStep::Or)),
    verb("end", 0, 0, "\"end\"", |_, _| Ok(RawStep::Plain(Step::End { first: None }))),
];

/// Reads a step.
pub(crate) fn step<'d>(text: At<&'d str>, report: &mut Report<'_>) -> Result<RawStep<'d>, Reported> {
    let words = Words::split(Phrase::Step, text);
    let verb = find(&words, 0, &VERBS, report)?;
    (verb.read)(&words, report)
}

fn run<'d>(words: &Words<'d>, report: &mut Report<'_>) -> Result<RawStep<'d>, Reported> {
    if words.word(1) == Some("forever") {
        return Ok(RawStep::Plain(Step::RunForever));
    }
    match distribution(words, report) {
        Some(name) => name.map(RawStep::RunDrawn),
        None => words.span(1, report).map(|span| RawStep::Plain(Step::Run(span))),
    }
}

/// The name of a distribution in place of a duration, which begins with a digit.
fn distribution<'d>(words: &Words<'d>, report: &mut Report<'_>) -> Option<Result<At<&'d str>, Reported>> {
    let word = words.word(1)?;
    let is_name = word.chars().all(|letter| letter.is_alphanumeric() || "_.-".contains(letter));
    (is_name && word.starts_with(|first: char| first.is_alphabetic()))
        .then(|| words.name(1, "distribution", report))
}

/// `call svc 5ms` is short for `call svc timeout 5ms`.
fn call<'d>(words: &Words<'d>, report: &mut Report<'_>) -> Result<RawStep<'d>, Reported> {
    const OPTIONS: [&str; 5] = ["needs", "deadline", "timeout", "drop", "late"];
    let name = words.name(1, "endpoint", report);
    let short = words.word(2).is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let timeout = if short { words.timeout(2, report) } else { Ok(None) };
    let mut options = Options { timeout: timeout?, ..Options::default() };
    options.read_from(words, if short { 3 } else { 2 }, "call", &OPTIONS, CALL, report)?;
    Ok(RawStep::Call(name?, options))
}

fn ring_and_entries<'d>(words: &Words<'d>, report: &mut Report<'_>) -> Result<(At<&'d str>, u32), Reported> {
    let (ring, entries) =
        (words.name(1, "ring", report), words.number(2, "the number of entries", ENTRIES, report));
    Ok((ring?, entries? as u32))
}

impl Options {
    /// What happens to what is late.
    pub fn lateness(&self) -> Lateness {
        self.late.unwrap_or_default()
    }
}
