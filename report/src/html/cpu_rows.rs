//! The schedule in a few bytes per interval, a row of the timeline for each CPU.
//!
//! Each row is the number of its intervals and then, in the order of time, of each:
//!
//! 1. start, as the zigzag difference to the end before it,
//! 2. length,
//! 3. thread number * 8 + reason number,
//! 4. only if the reason is [`SEVERAL`]: how much of the length was busy, in parts of 255.
//!
//! All are LEB128 numbers but the last, a byte, and the whole is base64: a browser then builds typed arrays without an
//! object per interval. The decoder is `data.js`; the test below decodes in the same way.
//!
//! If there are more intervals than the page has room for, short ones that follow each other become one, in which several
//! threads ran. None is left out: what ran at all is at least one part of 255.

use super::base64::{Numbers, encode, encoded_length};
use super::chosen::Chosen;
use crate::ScheduleEntry;

/// Reasons are numbered in three bits; a seventh kind and later ones are shown as the last.
const REASONS: usize = 7;

/// The number of no reason: several intervals are one.
const SEVERAL: usize = 7;

/// The rows as text, and how coarse they are.
pub(super) struct CpuRows {
    pub(super) text: String,
    /// How many intervals there are in the page.
    pub(super) intervals: usize,
    /// The CPU of each row.
    pub(super) cpus: Vec<u32>,
    pub(super) reasons: Vec<String>,
    /// Intervals shorter than this were joined; 0 if none were.
    pub(super) grain_ns: u64,
}

impl CpuRows {
    /// Encodes `schedule` in at most `limit` characters if that can be: each row needs some.
    pub(super) fn of(schedule: &[ScheduleEntry], ids: &[u32], chosen: &Chosen<'_>, limit: usize) -> Self {
        let reasons = reasons(schedule);
        let mut cpus: Vec<u32> = ids.iter().copied().chain(schedule.iter().map(|entry| entry.cpu)).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut rows: Vec<Vec<&ScheduleEntry>> = vec![Vec::new(); cpus.len()];
        let mut last = (u32::MAX, 0);
        for entry in schedule {
            if last.0 != entry.cpu {
                last = (entry.cpu, cpus.binary_search(&entry.cpu).unwrap_or_default());
            }
            rows[last.1].push(entry);
        }
        let span = schedule.iter().map(|entry| entry.end_ns).max().unwrap_or(0);
        let mut grain_ns = 0;
        loop {
            let mut encoder =
                Encoder { numbers: Numbers::default(), intervals: 0, chosen, reasons: &reasons };
            rows.iter().for_each(|row| encoder.row(row, grain_ns));
            let Encoder { numbers, intervals, .. } = encoder;
            if encoded_length(numbers.0.len()) <= limit || grain_ns > span {
                return Self { text: encode(&numbers.0), intervals, cpus, reasons, grain_ns };
            }
            grain_ns = if grain_ns == 0 { (span >> 14).max(1) } else { grain_ns + grain_ns.div_ceil(2) };
        }
    }
}

/// The distinct reasons, in order of appearance.
fn reasons(schedule: &[ScheduleEntry]) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for entry in schedule {
        if !reasons.contains(&entry.reason) {
            if reasons.len() == REASONS - 1 {
                reasons.push("other".to_owned());
                break;
            }
            reasons.push(entry.reason.clone());
        }
    }
    reasons
}

struct Encoder<'a> {
    numbers: Numbers,
    intervals: usize,
    chosen: &'a Chosen<'a>,
    reasons: &'a [String],
}

impl Encoder<'_> {
    fn row(&mut self, row: &[&ScheduleEntry], grain_ns: u64) {
        let groups = groups(row, grain_ns);
        self.numbers.push(groups.len() as u64);
        self.intervals += groups.len();
        let mut before = 0;
        for group in groups {
            let (start_ns, end_ns) =
                (group[0].start_ns, group[group.len() - 1].end_ns.max(group[0].start_ns));
            self.numbers.push_difference(before, start_ns);
            self.numbers.push(end_ns - start_ns);
            before = end_ns;
            if let [one] = group {
                let reason = self.reasons.iter().position(|reason| *reason == one.reason);
                let who = u64::from(self.chosen.number(&one.thread).unwrap_or_default());
                self.numbers.push(who * 8 + reason.unwrap_or(REASONS - 1) as u64);
            } else {
                self.numbers.push(self.most_of(group) * 8 + SEVERAL as u64);
                let busy: u64 = group.iter().map(|entry| entry.end_ns.saturating_sub(entry.start_ns)).sum();
                let part = u128::from(busy) * 255 / u128::from((end_ns - start_ns).max(1));
                self.numbers.0.push(part.clamp(1, 255) as u8);
            }
        }
    }

    /// The number of the group of threads that had most of these intervals.
    fn most_of(&self, entries: &[&ScheduleEntry]) -> u64 {
        let mut had: Vec<(u32, u64)> = Vec::new();
        for entry in entries {
            let group = self.chosen.group(&entry.thread).unwrap_or_default();
            let time = entry.end_ns.saturating_sub(entry.start_ns);
            match had.iter_mut().find(|(known, _)| *known == group) {
                Some((_, sum)) => *sum += time,
                None => had.push((group, time)),
            }
        }
        had.into_iter()
            .max_by_key(|(group, time)| (*time, std::cmp::Reverse(*group)))
            .map_or(0, |(group, _)| group.into())
    }
}

/// Splits a row: each interval of at least `grain_ns` alone, shorter ones with those that begin in the same grain.
fn groups<'e, 's>(row: &'e [&'s ScheduleEntry], grain_ns: u64) -> Vec<&'e [&'s ScheduleEntry]> {
    let short = |entry: &ScheduleEntry| entry.end_ns.saturating_sub(entry.start_ns) < grain_ns;
    let together = |a: &&ScheduleEntry, b: &&ScheduleEntry| {
        short(a) && short(b) && a.start_ns / grain_ns == b.start_ns / grain_ns
    };
    row.chunk_by(together).collect()
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;
    use crate::Report;
    use crate::names::Names;

    fn entry(cpu: u32, thread: &str, start_ns: u64, end_ns: u64, reason: &str) -> ScheduleEntry {
        ScheduleEntry { cpu, thread: thread.to_owned(), start_ns, end_ns, reason: reason.to_owned() }
    }

    /// CPU, thread, start, end, busy time in parts of 255 and reason.
    type Shown = (u32, String, u64, u64, u8, String);

    fn shown(schedule: &[ScheduleEntry], limit: usize) -> (Vec<Shown>, u64) {
        let report = Report { schedule: Some(schedule.to_vec()), ..Report::default() };
        let names = Names::of(&report);
        let chosen = Chosen::of(&report, &names, 1_000);
        let rows = CpuRows::of(schedule, &[], &chosen, limit);
        let mut bytes = decode::Bytes::of(&rows.text);
        let mut all = Vec::new();
        for &cpu in &rows.cpus {
            let mut before = 0_u64;
            for _ in 0..bytes.number() {
                let start = before.wrapping_add(bytes.difference());
                let end = start + bytes.number();
                before = end;
                let both = bytes.number();
                let (who, reason) = (chosen.names[(both / 8) as usize].clone(), (both % 8) as usize);
                let busy = if reason == SEVERAL { bytes.byte() } else { 255 };
                let reason = rows.reasons.get(reason).cloned().unwrap_or_default();
                all.push((cpu, who, start, end, busy, reason));
            }
        }
        assert!(bytes.is_empty());
        assert_eq!(all.len(), rows.intervals);
        (all, rows.grain_ns)
    }

    #[test]
    fn the_page_holds_every_interval_exactly() {
        let schedule = [
            entry(0, "a", 0, 3_000_000, "preempted"),
            entry(4095, "b.17", 0, 1, "blocked"),
            entry(1, "c", u64::from(u32::MAX) * 9, u64::from(u32::MAX) * 10, "yielded"),
            entry(0, "a", 3_000_017, 3_000_017, "end"),
            entry(0, "a", 1 << 62, (1 << 62) + 5, "exited"),
        ];
        for length in 0..=schedule.len() {
            let kept = &schedule[..length];
            let (mut all, grain) = shown(kept, usize::MAX);
            assert_eq!(grain, 0);
            all.sort_by_key(|row| (row.2, row.0));
            let mut expected: Vec<_> = kept
                .iter()
                .map(|e| (e.cpu, e.thread.clone(), e.start_ns, e.end_ns, 255, e.reason.clone()))
                .collect();
            expected.sort_by_key(|row| (row.2, row.0));
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn a_page_without_room_joins_short_intervals_and_loses_none() {
        let name = |i: u64| format!("crowd.{}", i % 7);
        let mut schedule: Vec<ScheduleEntry> =
            (0..20_000).map(|i| entry(0, &name(i), i * 100, i * 100 + 50, "blocked")).collect();
        schedule.push(entry(0, "long", 2_000_000, 9_000_000, "preempted"));
        schedule.push(entry(1, "short", 4_999_999, 5_000_000, "blocked"));
        let (all, grain) = shown(&schedule, 2_000);
        assert!(grain > 0);
        let busy: u64 = all.iter().map(|row| (row.3 - row.2) * u64::from(row.4) / 255).sum();
        let ran: u64 = schedule.iter().map(|e| e.end_ns - e.start_ns).sum();
        assert!(busy.abs_diff(ran) * 100 < ran, "{busy} of {ran}");
        assert!(all.contains(&(0, "long".to_owned(), 2_000_000, 9_000_000, 255, "preempted".to_owned())));
        assert!(all.contains(&(1, "short".to_owned(), 4_999_999, 5_000_000, 255, "blocked".to_owned())));
        assert!(all.iter().any(|row| row.1 == "crowd.*" && row.4 > 100 && row.4 < 150));
    }

    #[test]
    fn more_reasons_than_fit_are_shown_as_other() {
        let schedule: Vec<ScheduleEntry> =
            (0..12).map(|i| entry(0, "a", i, i + 1, &format!("r{i}"))).collect();
        let reasons = reasons(&schedule);
        assert_eq!(reasons.len(), REASONS);
        assert_eq!(reasons[REASONS - 1], "other");
        let (all, _) = shown(&schedule, usize::MAX);
        assert_eq!(all[11].5, "other");
    }
}
