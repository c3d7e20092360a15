//! The schedule in a few bytes per interval.
//!
//! In the schedule's order, each interval is four LEB128 numbers, and the whole is base64:
//!
//! 1. start, as the zigzag difference to the start before it,
//! 2. length,
//! 3. CPU,
//! 4. thread number * 8 + reason number.
//!
//! Base64 and not a JSON array, because a browser then builds typed arrays without an object per interval. The
//! decoder is `data.js`; the test below decodes in the same way.

use crate::ScheduleEntry;
use crate::names::Names;
use std::io::{self, Write};

/// Reasons are numbered in three bits; a ninth kind and later ones are shown as the last.
const REASONS: usize = 8;

/// The distinct reasons, in order of appearance.
pub(super) fn reasons(schedule: &[ScheduleEntry]) -> Vec<&str> {
    let mut reasons: Vec<&str> = Vec::new();
    for entry in schedule {
        if !reasons.contains(&entry.reason.as_str()) {
            if reasons.len() == REASONS - 1 {
                reasons.push("other");
                break;
            }
            reasons.push(&entry.reason);
        }
    }
    reasons
}

/// Writes the intervals.
pub(super) fn write(
    schedule: &[ScheduleEntry],
    names: &Names<'_>,
    reasons: &[&str],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut sink = Base64 { out, pending: Vec::with_capacity(64) };
    let mut before = 0;
    for entry in schedule {
        let reason = reasons.iter().position(|reason| *reason == entry.reason).unwrap_or(REASONS - 1);
        sink.number(zigzag(entry.start_ns.wrapping_sub(before)))?;
        sink.number(entry.end_ns.saturating_sub(entry.start_ns))?;
        sink.number(u64::from(entry.cpu))?;
        sink.number((names.number(&entry.thread) * REASONS + reason) as u64)?;
        before = entry.start_ns;
    }
    sink.finish()
}

/// A difference modulo 2^64 as a number that is small when the difference is, either way.
fn zigzag(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

/// Encodes as the bytes come; holds fewer than three between calls.
struct Base64<'a> {
    out: &'a mut dyn Write,
    pending: Vec<u8>,
}

impl Base64<'_> {
    fn number(&mut self, mut n: u64) -> io::Result<()> {
        while n >= 0x80 {
            self.pending.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.pending.push(n as u8);
        let whole = self.pending.len() / 3 * 3;
        for group in self.pending[..whole].chunks_exact(3) {
            self.out.write_all(&quartet(group))?;
        }
        self.pending.drain(..whole);
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        if self.pending.is_empty() { Ok(()) } else { self.out.write_all(&quartet(&self.pending)) }
    }
}

/// One to three bytes as four characters, padded with `=`.
fn quartet(bytes: &[u8]) -> [u8; 4] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let at = |i: usize| u32::from(bytes.get(i).copied().unwrap_or(0));
    let bits = at(0) << 16 | at(1) << 8 | at(2);
    let symbol = |shift: u32| ALPHABET[(bits >> shift & 63) as usize];
    [
        symbol(18),
        symbol(12),
        if bytes.len() > 1 { symbol(6) } else { b'=' },
        if bytes.len() > 2 { symbol(0) } else { b'=' },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;

    fn entry(cpu: u32, thread: &str, start_ns: u64, end_ns: u64, reason: &str) -> ScheduleEntry {
        ScheduleEntry { cpu, thread: thread.to_owned(), start_ns, end_ns, reason: reason.to_owned() }
    }

    fn bytes(base64: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for group in base64.as_bytes().chunks(4) {
            let value = |c: u8| match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => 0,
            };
            let bits = group.iter().fold(0_u32, |bits, &c| bits << 6 | u32::from(value(c)));
            let kept = 3 - group.iter().filter(|&&c| c == b'=').count();
            bytes.extend(&bits.to_be_bytes()[1..1 + kept]);
        }
        bytes
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        let mut numbers = Vec::new();
        let (mut n, mut shift) = (0, 0);
        for byte in bytes {
            n |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                numbers.push(n);
                (n, shift) = (0, 0);
            }
        }
        numbers
    }

    fn decode(base64: &str, names: &[&str], reasons: &[&str]) -> Vec<ScheduleEntry> {
        let mut start_ns = 0_u64;
        numbers(&bytes(base64))
            .chunks(4)
            .map(|n| {
                start_ns = start_ns.wrapping_add((n[0] >> 1) ^ (n[0] & 1).wrapping_neg());
                let (thread, reason) = ((n[3] / 8) as usize, (n[3] % 8) as usize);
                entry(n[2] as u32, names[thread], start_ns, start_ns + n[1], reasons[reason])
            })
            .collect()
    }

    #[test]
    fn the_page_holds_every_interval_exactly() {
        let schedule = vec![
            entry(0, "a", 0, 3_000_000, "preempted"),
            entry(4095, "b.17", 0, 1, "blocked"),
            entry(1, "c", u64::from(u32::MAX) * 9, u64::from(u32::MAX) * 10, "yielded"),
            entry(0, "a", 17, 17, "end"),
            entry(0, "a", 1 << 62, (1 << 62) + 5, "exited"),
        ];
        let report = Report { schedule: Some(schedule.clone()), ..Report::default() };
        let names = Names::of(&report);
        for length in 0..=schedule.len() {
            let kept = &schedule[..length];
            let mut out = Vec::new();
            write(kept, &names, &reasons(kept), &mut out).expect("a vector takes everything");
            let base64 = String::from_utf8(out).expect("base64 is ASCII");
            assert_eq!(decode(&base64, names.list(), &reasons(kept)), kept);
        }
    }

    #[test]
    fn more_reasons_than_fit_are_shown_as_other() {
        let schedule: Vec<ScheduleEntry> =
            (0..12).map(|i| entry(0, "a", i, i + 1, &format!("r{i}"))).collect();
        let reasons = reasons(&schedule);
        assert_eq!(reasons.len(), REASONS);
        assert_eq!(reasons[REASONS - 1], "other");
    }
}
