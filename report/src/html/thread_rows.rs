//! What each thread did, in a few bytes per interval, a row of the timeline for each thread that is shown one by one.
//!
//! Each row is the number of its intervals and then, in the order of time, of each:
//!
//! 1. start, as the zigzag difference to the end before it,
//! 2. length,
//! 3. CPU * 16 + kind: 0 if it ran, 1 and up for the states of [`ThreadState::ALL`], [`MIXED`] for several in one,
//! 4. if it ran, the number of the reason; if it was blocked, the number of the thread that ended that plus one, or 0; if
//!    it is mixed, three bytes: how much of the length it ran, was ready, and was throttled, in parts of 255.
//!
//! If there are more intervals than the page has room for, short ones that follow each other become a mixed one. If even
//! that is too much, the last threads have no row.

use super::base64::{Numbers, encode, encoded_length};
use super::chosen::Chosen;
use crate::{Report, ThreadState};

const RAN: u8 = 0;
/// The kind of several intervals in one.
const MIXED: u8 = 15;
const _: () = assert!(ThreadState::ALL.len() < MIXED as usize);

/// The rows as text, and how coarse they are.
pub(super) struct ThreadRows {
    pub(super) text: String,
    /// How many threads have a row: the first ones.
    pub(super) rows: usize,
    pub(super) intervals: usize,
    /// Intervals shorter than this were joined; 0 if none were.
    pub(super) grain_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    start_ns: u64,
    end_ns: u64,
    cpu: u32,
    kind: u8,
    /// The reason, or the thread that ended it plus one.
    detail: u32,
}

impl ThreadRows {
    /// Encodes what the chosen threads did in at most `limit` characters.
    pub(super) fn of(report: &Report, chosen: &Chosen<'_>, reasons: &[String], limit: usize) -> Self {
        let rows = intervals(report, chosen, reasons);
        let span = rows.iter().flatten().map(|interval| interval.end_ns).max().unwrap_or(0);
        let mut grain_ns = 0;
        loop {
            let mut numbers = Numbers::default();
            let (mut kept, mut intervals) = (0, 0);
            let last_try = grain_ns > (span >> 6).max(64);
            for row in &rows {
                let before = numbers.0.len();
                let added = encode_row(row, grain_ns, &mut numbers);
                if encoded_length(numbers.0.len()) > limit {
                    numbers.0.truncate(before);
                    break;
                }
                intervals += added;
                kept += 1;
            }
            if kept == rows.len() || last_try {
                return Self { text: encode(&numbers.0), rows: kept, intervals, grain_ns };
            }
            grain_ns = if grain_ns == 0 { (span >> 14).max(1) } else { grain_ns + grain_ns.div_ceil(2) };
        }
    }
}

/// The intervals of each chosen thread, by time.
fn intervals(report: &Report, chosen: &Chosen<'_>, reasons: &[String]) -> Vec<Vec<Interval>> {
    let mut rows: Vec<Vec<Interval>> = vec![Vec::new(); chosen.first_group];
    for entry in report.schedule.iter().flatten() {
        let Some(number) = chosen.number(&entry.thread).filter(|number| chosen.is_thread(*number)) else {
            continue;
        };
        let last = reasons.len().saturating_sub(1);
        let reason = reasons.iter().position(|reason| *reason == entry.reason).unwrap_or(last);
        rows[number as usize].push(Interval {
            start_ns: entry.start_ns,
            end_ns: entry.end_ns.max(entry.start_ns),
            cpu: entry.cpu,
            kind: RAN,
            detail: reason as u32,
        });
    }
    if let Some(states) = &report.states {
        let number_of: Vec<Option<u32>> = states.names.iter().map(|name| chosen.number(name)).collect();
        let thread = |number: u32| number_of.get(number as usize).copied().flatten();
        let shown = |number: u32| thread(number).filter(|number| chosen.is_thread(*number));
        for entry in &states.entries {
            let Some(number) = shown(entry.thread) else { continue };
            rows[number as usize].push(Interval {
                start_ns: entry.start_ns,
                end_ns: entry.end_ns.max(entry.start_ns),
                cpu: entry.cpu,
                kind: 1 + entry.state as u8,
                detail: entry.by.and_then(thread).map_or(0, |by| by + 1),
            });
        }
    }
    rows.iter_mut().for_each(|row| row.sort_by_key(|interval| (interval.start_ns, interval.end_ns)));
    rows
}

/// Adds a row; how many intervals it has.
fn encode_row(row: &[Interval], grain_ns: u64, numbers: &mut Numbers) -> usize {
    let short = |interval: &Interval| interval.end_ns - interval.start_ns < grain_ns;
    let together =
        |a: &Interval, b: &Interval| short(a) && short(b) && a.start_ns / grain_ns == b.start_ns / grain_ns;
    let groups: Vec<&[Interval]> = row.chunk_by(together).collect();
    numbers.push(groups.len() as u64);
    let mut before = 0;
    for group in &groups {
        let (start_ns, end_ns) = (group[0].start_ns, group[group.len() - 1].end_ns);
        numbers.push_difference(before, start_ns);
        numbers.push(end_ns.saturating_sub(start_ns));
        before = end_ns.max(start_ns);
        let Interval { cpu, kind, detail, .. } = group[0];
        let is_one = group.len() == 1;
        numbers.push(u64::from(cpu) * 16 + u64::from(if is_one { kind } else { MIXED }));
        if !is_one {
            let ready = [1 + ThreadState::Ready as u8, 1 + ThreadState::Held as u8];
            let parts: [&[u8]; 3] = [&[RAN], &ready, &[1 + ThreadState::Throttled as u8]];
            numbers.0.extend(parts.map(|kinds| part(group, kinds, end_ns.saturating_sub(start_ns))));
        } else if kind == RAN || ThreadState::ALL[usize::from(kind) - 1].is_blocked() {
            numbers.push(detail.into());
        }
    }
    groups.len()
}

/// How much of `length` was spent in one of `kinds`, in parts of 255; at least one if any was.
fn part(group: &[Interval], kinds: &[u8], length: u64) -> u8 {
    let among = group.iter().filter(|interval| kinds.contains(&interval.kind));
    let spent: u64 = among.map(|interval| interval.end_ns - interval.start_ns).sum();
    if spent == 0 { 0 } else { (u128::from(spent) * 255 / u128::from(length.max(1))).clamp(1, 255) as u8 }
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;
    use crate::names::Names;
    use crate::{ScheduleEntry, StateEntry, States};

    fn report() -> Report {
        let ran = |start_ns, end_ns, reason: &str| ScheduleEntry {
            cpu: 3,
            thread: "a".to_owned(),
            start_ns,
            end_ns,
            reason: reason.to_owned(),
        };
        let state =
            |thread, state, start_ns, end_ns, by| StateEntry { thread, state, cpu: 3, start_ns, end_ns, by };
        Report {
            schedule: Some(vec![ran(10, 20, "blocked"), ran(45, 50, "end")]),
            states: Some(States {
                names: vec!["b".to_owned(), "a".to_owned()],
                entries: vec![
                    state(1, ThreadState::Ready, 5, 10, None),
                    state(1, ThreadState::Call, 20, 40, Some(0)),
                    state(1, ThreadState::Throttled, 40, 45, None),
                    state(0, ThreadState::Sleep, 0, 50, None),
                ],
            }),
            ..Report::default()
        }
    }

    /// Start, end, CPU, kind, and the detail or the parts.
    type Shown = (u64, u64, u64, u64, Vec<u64>);

    fn shown(limit: usize) -> Vec<Vec<Shown>> {
        let report = report();
        let names = Names::of(&report);
        let chosen = Chosen::of(&report, &names, 10);
        let reasons = ["blocked".to_owned(), "end".to_owned()];
        let rows = ThreadRows::of(&report, &chosen, &reasons, limit);
        let mut bytes = decode::Bytes::of(&rows.text);
        let mut all = Vec::new();
        for _ in 0..rows.rows {
            let mut before = 0_u64;
            let row = (0..bytes.number()).map(|_| {
                let start = before.wrapping_add(bytes.difference());
                let end = start + bytes.number();
                before = end;
                let both = bytes.number();
                let detail = match both % 16 {
                    15 => (0..3).map(|_| bytes.byte().into()).collect(),
                    1..=3 => Vec::new(),
                    _ => vec![bytes.number()],
                };
                (start, end, both / 16, both % 16, detail)
            });
            all.push(row.collect());
        }
        assert!(bytes.is_empty());
        all
    }

    #[test]
    fn the_page_holds_every_state_exactly_and_who_ended_it() {
        let a = vec![
            (5, 10, 3, 1, vec![]),
            (10, 20, 3, 0, vec![0]),
            (20, 40, 3, 7, vec![2]),
            (40, 45, 3, 3, vec![]),
            (45, 50, 3, 0, vec![1]),
        ];
        assert_eq!(shown(1_000), [a, vec![(0, 50, 3, 4, vec![0])]]);
    }

    #[test]
    fn a_page_without_room_joins_short_states_and_then_leaves_threads_out() {
        let joined = shown(20);
        assert!(joined[0].iter().any(|interval| interval.3 == 15), "{joined:?}");
        assert_eq!(shown(0), [] as [Vec<_>; 0]);
    }
}
