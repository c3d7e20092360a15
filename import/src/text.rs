//! The text of ftrace, of `trace-cmd report` and of `perf script`.
//!
//! ```text
//!   <idle>-0     [001] d..2.  1640.587277: sched_switch: prev_comm=… prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=…
//!     perf 10118 [000]  1640.580826:       sched:sched_switch: prev_comm=perf prev_pid=10118 …
//! ```
//!
//! A line is one event. Lines of other events, comments and what else a recorder prints are passed over; an event of the scheduler
//! that is not written as above is an error with its line.

use crate::error::{ImportError, Position};
use crate::events::{Reader, Recording, Task, WakeEvent, Waker};

/// What stands before the name of an event.
struct Head<'a> {
    waker: Option<u32>,
    cpu: u32,
    /// The column of ftrace that tells interrupts; `perf script` has none.
    flags: Option<&'a str>,
    at: u64,
    name: &'a str,
    args: &'a str,
}

pub(crate) fn read(bytes: &[u8]) -> Result<Recording, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        let place = Position::Line(number + 1);
        if line.trim_start().starts_with('#') || line.trim().is_empty() {
            continue;
        }
        match head(line) {
            Some(head) => event(&head, place, &mut reader)?,
            None if line.contains("LOST") && line.contains("EVENTS") => reader.lost = true,
            None if line.contains("sched_switch:") || line.contains("sched_waking:") => {
                return Err(ImportError::Malformed {
                    place,
                    expected: "THREAD [CPU] TIME: EVENT: and its fields",
                });
            }
            None => {}
        }
    }
    reader.finish()
}

fn event(head: &Head<'_>, place: Position, reader: &mut Reader) -> Result<(), ImportError> {
    let which = match head.name {
        "sched_switch" => return switch(head, place, reader),
        "sched_waking" => WakeEvent::Waking,
        "sched_wakeup" => WakeEvent::Wakeup,
        "sched_wakeup_new" => WakeEvent::New,
        _ => return Ok(()),
    };
    let expected = "comm=NAME pid=N prio=N target_cpu=N";
    let who = woken(head.args, reader).ok_or(ImportError::Malformed { place, expected })?;
    let interrupted = |flags: &str| flags.chars().any(|flag| matches!(flag, 'h' | 'H' | 's' | 'z' | 'Z'));
    reader.knows_interrupts |= head.flags.is_some();
    let by = match (head.waker, head.flags) {
        (Some(0), _) => Waker::Interrupt,
        (_, Some(flags)) if interrupted(flags) => Waker::Interrupt,
        (Some(tid), _) => Waker::Thread(tid),
        (None, _) => Waker::Unknown,
    };
    reader.wake((head.at, head.cpu), place, which, who, by)
}

fn switch(head: &Head<'_>, place: Position, reader: &mut Reader) -> Result<(), ImportError> {
    let expected =
        "prev_comm=NAME prev_pid=N prev_prio=N prev_state=S ==> next_comm=NAME next_pid=N next_prio=N";
    let parsed = (|| {
        let (prev, next) = head.args.split_once(" ==> ")?;
        match keyed(prev, ["prev_comm=", " prev_pid=", " prev_prio=", " prev_state="]) {
            Some([comm, pid, prio, state]) => {
                let [next_comm, next_pid, next_prio, _] =
                    keyed(next, ["next_comm=", " next_pid=", " next_prio=", ""])?;
                let prev = reader.task(comm, pid.parse().ok()?, prio.parse().ok()?);
                let next = reader.task(next_comm, next_pid.parse().ok()?, next_prio.parse().ok()?);
                Some((prev, state.to_owned(), next))
            }
            None => {
                let (prev, state) = short(prev, reader)?;
                let (next, _) = short(next, reader)?;
                Some((prev, state, next))
            }
        }
    })();
    let (prev, state, next) = parsed.ok_or(ImportError::Malformed { place, expected })?;
    if !state.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(ImportError::Malformed { place, expected });
    }
    reader.switch((head.at, head.cpu), place, prev, &state, next)
}

/// The thread of `comm=NAME pid=N prio=N target_cpu=N`, or of `NAME:PID [PRIO] CPU:N`.
fn woken(args: &str, reader: &mut Reader) -> Option<Task> {
    let long = keyed(args, ["comm=", " pid=", " prio=", " "]);
    match long {
        Some([comm, pid, prio, _]) => Some(reader.task(comm, pid.parse().ok()?, prio.parse().ok()?)),
        None => short(args, reader).map(|(task, _)| task),
    }
}

/// The values between `keys`, which come in this order. A name may contain anything, so the later keys are looked for from the end.
fn keyed<'a>(text: &'a str, keys: [&str; 4]) -> Option<[&'a str; 4]> {
    let text = text.trim();
    let rest = text.strip_prefix(keys[0])?;
    let second = rest.rfind(keys[1])?;
    let (name, rest) = (&rest[..second], &rest[second + keys[1].len()..]);
    let (number, rest) = rest.split_once(keys[2])?;
    let (other, last) = if keys[3].is_empty() {
        (rest.split_whitespace().next()?, "")
    } else {
        rest.split_once(keys[3]).unwrap_or((rest, ""))
    };
    Some([name, number.trim(), other.trim(), last.trim()])
}

/// `NAME:PID [PRIO] REST`.
fn short(text: &str, reader: &mut Reader) -> Option<(Task, String)> {
    let text = text.trim();
    let (before, rest) = text.rsplit_once(" [")?;
    let (prio, rest) = rest.split_once(']')?;
    let (comm, pid) = before.rsplit_once(':')?;
    let task = reader.task(comm.trim(), pid.trim().parse().ok()?, prio.trim().parse().ok()?);
    Some((task, rest.trim().to_owned()))
}

/// Splits a line at the first `[CPU]` that a time and an event follow.
fn head(line: &str) -> Option<Head<'_>> {
    line.match_indices('[').find_map(|(open, _)| {
        let (cpu, rest) = line[open + 1..].split_once(']')?;
        let cpu =
            cpu.parse().ok().filter(|_| cpu.len() >= 2 && cpu.bytes().all(|byte| byte.is_ascii_digit()))?;
        let rest = rest.trim_start();
        let (first, after) = rest.split_once(char::is_whitespace)?;
        let (flags, time, after) = match time(first) {
            Some(at) => (None, at, after),
            None => {
                let (second, after) = after.trim_start().split_once(char::is_whitespace)?;
                (Some(first), time(second)?, after)
            }
        };
        let (name, args) = after.trim_start().split_once(char::is_whitespace)?;
        let name = name.strip_suffix(':')?;
        let name = name.strip_prefix("sched:").unwrap_or(name);
        Some(Head { waker: tid(&line[..open]), cpu, flags, at: time, name, args })
    })
}

/// The number of the thread before the CPU: `NAME-N`, `NAME-N (GROUP)`, `NAME N`, `NAME GROUP/N`.
fn tid(before: &str) -> Option<u32> {
    let before = before.trim_end();
    let before =
        before.rsplit_once('(').filter(|_| before.ends_with(')')).map_or(before, |(name, _)| name.trim_end());
    let digits = before.bytes().rev().take_while(u8::is_ascii_digit).count();
    before[before.len() - digits..].parse().ok()
}

/// `SECONDS.FRACTION:` in nanoseconds.
fn time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let seconds: u64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<u64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Kind;

    const FTRACE: &str = "\
# tracer: nop
          <idle>-0       [001] d..2.  1640.000010: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a b next_pid=7 next_prio=120
             a b-7       [001] d.h3.  1640.000020: sched_waking: comm=x=y pid=9 prio=110 target_cpu=000
             a b-7       [001] d..2.  1640.000030: sched_switch: prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

    #[test]
    fn names_with_spaces_and_signs_are_read_and_interrupts_told_from_threads() {
        let found = read(FTRACE.as_bytes()).expect("a recording");
        assert_eq!(found.events.len(), 3);
        let Kind::Waking { who, by } = &found.events[1].kind else { panic!("{found:?}") };
        assert_eq!((&*who.comm, who.tid, who.prio, *by), ("x=y", 9, 110, Waker::Interrupt));
        assert!(found.knows_interrupts && found.has_wakeups);
        let by_thread = FTRACE.replace("d.h3.", "d..3.");
        let found = read(by_thread.as_bytes()).expect("a recording");
        assert!(matches!(found.events[1].kind, Kind::Waking { by: Waker::Thread(7), .. }));
    }

    #[test]
    fn the_short_form_of_trace_cmd_and_perf_is_read() {
        let text = "\
   a b  7/7  [001]  1640.000010: sched:sched_switch: a b:7 [120] R+ ==> c:d:9 [90]
   c:d  9 [001]  1640.000020123:       sched:sched_waking: a b:7 [120] CPU:000
";
        let found = read(text.as_bytes()).expect("a recording");
        let Kind::Switch { prev, next, runnable: true, .. } = &found.events[0].kind else {
            panic!("{found:?}")
        };
        assert_eq!((&*prev.comm, &*next.comm, next.prio), ("a b", "c:d", 90));
        assert_eq!(found.events[1].at, 1_640_000_020_123);
        assert!(!found.knows_interrupts);
    }

    #[test]
    fn what_is_not_written_so_is_an_error_with_its_line() {
        let at = |text: &str| read(text.as_bytes()).expect_err("malformed").to_string();
        assert!(
            at(&FTRACE.replace("prev_pid=7", "prev_pid=seven")).starts_with("line 4: expected prev_comm")
        );
        assert!(at(&FTRACE.replace("pid=9", "pid=")).starts_with("line 3: expected comm"));
        assert!(at(&FTRACE.replace("1640.000030", "1639.000030")).starts_with("line 4: time goes back"));
        assert!(
            at(&FTRACE.replace("[001] d..2.  1640.000030", "[1] x")).starts_with("line 4: expected THREAD")
        );
        assert!(at("nothing of the sort\n").starts_with("no sched_switch"));
        assert!(at("").starts_with("no sched_switch"));
    }
}
