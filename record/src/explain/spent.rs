//! How a thread spent some of its time: running, ready while others ran, throttled, or blocked.

use super::ExplainError;
use crate::replay::Replay;
use mainspring_abi::Nanos;
use mainspring_report::instant;
use mainspring_sched::{Cpu, State, WaitKind};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

/// How many of the threads that ran instead are named.
const RIVALS_SHOWN: usize = 6;

/// How a thread spent the time from one instant to another.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// Its name.
    pub thread: String,
    /// From when.
    pub from: Nanos,
    /// Until when.
    pub to: Nanos,
    /// It had a CPU.
    pub running: Nanos,
    /// It could have run and did not.
    pub ready: Nanos,
    /// The threads that had its CPU meanwhile, and for how long.
    pub rivals: BTreeMap<String, Nanos>,
    /// Its context was used up.
    pub throttled: Nanos,
    /// It waited for something else, by what.
    pub blocked: BTreeMap<&'static str, Nanos>,
    /// It did not live.
    pub absent: Nanos,
}

impl Spent {
    /// How the thread named `thread` spent the time from `from` to `to`.
    pub(super) fn of(input: impl Read, thread: &str, from: Nanos, to: Nanos) -> Result<Self, ExplainError> {
        let mut replay = Replay::new(input)?;
        let names = replay.header().threads.clone();
        let index = super::index_of(&names, thread)?;
        let mut spent = Self { thread: thread.to_owned(), from, to, ..Self::default() };
        let mut since = from;
        while let Some(next) = replay.peek_time()? {
            if next > since {
                let until = next.min(to);
                spent.add(&replay.replayer.cpus, index, until - since.min(until), &names);
                since = since.max(until);
            }
            if next >= to {
                break;
            }
            let _ = replay.step()?;
        }
        replay.check_rest()?;
        let end = replay.ended_at().unwrap_or(to);
        if from >= end {
            return Err(ExplainError::AfterEnd { end });
        }
        spent.to = to.min(end);
        spent.add(&replay.replayer.cpus, index, spent.to - since.min(spent.to), &names);
        Ok(spent)
    }

    /// The CPUs are as they are for `time`.
    fn add(&mut self, cpus: &[Cpu], index: u32, time: Nanos, names: &[String]) {
        if time.is_zero() {
            return;
        }
        let at = cpus.iter().find_map(|cpu| {
            let threads = cpu.threads();
            let state = threads.iter().find(|view| view.thread.index() == index)?.state;
            Some((cpu, state))
        });
        match at {
            None => self.absent += time,
            Some((_, State::Running)) => self.running += time,
            Some((_, State::Throttled)) => self.throttled += time,
            Some((_, State::Asleep(kind))) => *self.blocked.entry(wait(kind)).or_default() += time,
            Some((cpu, State::Queued | State::Direct | State::Held)) => {
                self.ready += time;
                let running = cpu.current().map(|seat| seat.thread().index() as usize);
                let rival = running.and_then(|running| names.get(running));
                let rival = rival.map_or_else(|| "(idle)".to_owned(), Clone::clone);
                *self.rivals.entry(rival).or_default() += time;
            }
        }
    }
}

/// What a thread waits for, in a word.
pub(super) fn wait(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::Sleep => "sleep",
        WaitKind::Park => "park",
        WaitKind::Call => "call",
        WaitKind::Receive => "receive",
        WaitKind::Join => "join",
        WaitKind::Ring => "ring",
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Nanos| instant(time.get());
        let Self { thread, from, to, .. } = self;
        writeln!(f, "{thread} from {} to {}, {} in all", time(*from), time(*to), time(*to - *from))?;
        if !self.running.is_zero() {
            writeln!(f, "  ran for {}", time(self.running))?;
        }
        if !self.ready.is_zero() {
            let mut rivals: Vec<(&String, &Nanos)> = self.rivals.iter().collect();
            rivals.sort_by_key(|(name, time)| (std::cmp::Reverse(**time), *name));
            let shown = rivals.iter().take(RIVALS_SHOWN);
            let shown: Vec<String> = shown.map(|(name, ran)| format!("{name} {}", time(**ran))).collect();
            let more = rivals.len().saturating_sub(RIVALS_SHOWN);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            writeln!(
                f,
                "  was ready for {}, while its CPU ran {}{more}",
                time(self.ready),
                shown.join(", ")
            )?;
        }
        if !self.throttled.is_zero() {
            writeln!(f, "  was throttled for {}: its context was used up", time(self.throttled))?;
        }
        for (what, blocked) in &self.blocked {
            writeln!(f, "  was blocked for {} ({what})", time(*blocked))?;
        }
        if !self.absent.is_zero() {
            writeln!(f, "  did not live for {}", time(self.absent))?;
        }
        Ok(())
    }
}
