//! The schedule as a Chrome JSON trace, which the Perfetto UI opens.
//!
//! Two processes: "CPUs" has a track per CPU with the threads that ran there, "Threads" a track per thread with
//! the CPUs that it ran on. Every interval is one complete event on each of the two. What happened at one instant (a
//! refill, a donation, a lease) is an instant event on the CPU, else on the thread, else on everything. Both are
//! merged in the order of time, so timestamps do not decrease; they are microseconds with three decimals, hence exact.
//! Nothing but the name table is held in memory.

use crate::names::Names;
use crate::{Event, Report, ScheduleEntry};
use serde_json::json;
use std::fmt;
use std::io::{self, BufWriter, Write};

const CPUS_PID: u32 = 1;
const THREADS_PID: u32 = 2;
/// Tracks are numbered from here: the UI takes a track whose number is its process's for a main thread.
const FIRST_TRACK: u64 = 10;

/// The report has no schedule to draw: run again and ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSchedule;

impl fmt::Display for NoSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the report has no schedule, so there is nothing to trace; run with the schedule kept")
    }
}

impl std::error::Error for NoSchedule {}

/// Writes the schedule in the Chrome JSON trace event format.
///
/// # Errors
/// When `out` fails; and of kind [`io::ErrorKind::InvalidInput`], holding [`NoSchedule`], when the report has no
/// schedule. Nothing is written then.
pub fn perfetto(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let schedule =
        report.schedule.as_deref().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, NoSchedule))?;
    let tracks = Tracks::of(report);
    let mut out = BufWriter::new(out);
    head(report, &mut out)?;
    tracks.describe(&mut out)?;
    let mut instants = report.events.iter().flatten().peekable();
    for entry in schedule {
        while let Some(event) = instants.next_if(|event| event.time_ns <= entry.start_ns) {
            tracks.instant(event, &mut out)?;
        }
        tracks.interval(entry, &mut out)?;
    }
    instants.try_for_each(|event| tracks.instant(event, &mut out))?;
    out.write_all(b"\n]}\n")?;
    out.flush()
}

/// The facts of the run, and the opening of the event list. The seed is text: readers keep only 53 bits.
fn head(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let facts = json!({
        "machine": report.machine,
        "workload": report.config.workload,
        "policy": report.config.policy,
        "seed": report.seed.to_string(),
        "digest": report.digest,
    });
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{facts},\"traceEvents\":[")
}

/// Which track belongs to which CPU and thread.
struct Tracks<'a> {
    names: Names<'a>,
    /// The names as JSON strings, made once and not once per interval.
    quoted: Vec<String>,
    cpus: Vec<u32>,
    first_thread: u64,
}

impl<'a> Tracks<'a> {
    fn of(report: &'a Report) -> Self {
        let names = Names::of(report);
        let quoted = names.list().iter().map(|name| json!(name).to_string()).collect();
        let mut cpus: Vec<u32> = report.cpus.iter().map(|cpu| cpu.id).collect();
        cpus.extend(report.schedule.iter().flatten().map(|entry| entry.cpu));
        cpus.extend(report.events.iter().flatten().filter_map(|event| event.cpu));
        cpus.sort_unstable();
        cpus.dedup();
        // Distinct even across the processes: some importers key a track by its number alone.
        let first_thread = FIRST_TRACK + cpus.last().map_or(0, |&last| u64::from(last) + 1);
        Self { names, quoted, cpus, first_thread }
    }

    fn describe(&self, out: &mut dyn Write) -> io::Result<()> {
        // The first event has no comma before it.
        write!(out, "\n{}", metadata("process_name", CPUS_PID, 0, &json!({"name": "CPUs"})))?;
        write_event(out, &metadata("process_name", THREADS_PID, 0, &json!({"name": "Threads"})))?;
        for (pid, order) in [(CPUS_PID, 0), (THREADS_PID, 1)] {
            write_event(out, &metadata("process_sort_index", pid, 0, &json!({"sort_index": order})))?;
        }
        for &cpu in &self.cpus {
            let track = cpu_track(cpu);
            write_event(
                out,
                &metadata("thread_name", CPUS_PID, track, &json!({"name": format!("CPU {cpu}")})),
            )?;
            write_event(out, &metadata("thread_sort_index", CPUS_PID, track, &json!({"sort_index": cpu})))?;
        }
        for (number, name) in self.names.list().iter().enumerate() {
            let track = self.thread_track(number);
            write_event(out, &metadata("thread_name", THREADS_PID, track, &json!({"name": name})))?;
            write_event(
                out,
                &metadata("thread_sort_index", THREADS_PID, track, &json!({"sort_index": number})),
            )?;
        }
        Ok(())
    }

    fn interval(&self, entry: &ScheduleEntry, out: &mut dyn Write) -> io::Result<()> {
        let number = self.names.number(&entry.thread);
        let name = &self.quoted[number];
        let reason = json!(entry.reason);
        let start = Micros(entry.start_ns);
        let length = Micros(entry.end_ns.saturating_sub(entry.start_ns));
        let cpu = entry.cpu;
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":{CPUS_PID},\"tid\":{},\"ts\":{start},\"dur\":{length},\"name\":{name},\
             \"args\":{{\"reason\":{reason}}}}}",
            cpu_track(cpu)
        )?;
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":{THREADS_PID},\"tid\":{},\"ts\":{start},\"dur\":{length},\
             \"name\":\"CPU {cpu}\",\"args\":{{\"cpu\":{cpu},\"reason\":{reason}}}}}",
            self.thread_track(number)
        )
    }

    fn instant(&self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        let thread = event.thread.as_deref().and_then(|name| self.names.find(name));
        let (pid, track, scope) = match (event.cpu, thread) {
            (Some(cpu), _) => (CPUS_PID, cpu_track(cpu), "t"),
            (None, Some(number)) => (THREADS_PID, self.thread_track(number), "t"),
            (None, None) => (CPUS_PID, 0, "g"),
        };
        let mut facts = json!(event);
        if let Some(facts) = facts.as_object_mut() {
            facts.retain(|name, _| name != "time_ns" && name != "kind");
        }
        write!(
            out,
            ",\n{{\"ph\":\"i\",\"pid\":{pid},\"tid\":{track},\"ts\":{},\"s\":\"{scope}\",\"name\":{},\"args\":{facts}}}",
            Micros(event.time_ns),
            json!(event.kind)
        )
    }

    fn thread_track(&self, number: usize) -> u64 {
        self.first_thread + number as u64
    }
}

fn cpu_track(cpu: u32) -> u64 {
    FIRST_TRACK + u64::from(cpu)
}

fn metadata(kind: &str, pid: u32, tid: u64, args: &serde_json::Value) -> serde_json::Value {
    json!({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args})
}

fn write_event(out: &mut dyn Write, event: &serde_json::Value) -> io::Result<()> {
    write!(out, ",\n{event}")
}

/// Nanoseconds, printed as microseconds without going through a float.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}
