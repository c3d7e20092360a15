//! The schedule as a Perfetto trace with scheduler events, so that its tables of CPUs and thread states and its SQL work.
//!
//! A run is told as a Linux machine would tell it: `sched_switch` wherever a CPU turns from one thread to another or to idle,
//! `sched_waking` wherever a thread becomes ready again, by whom if that is known. Besides, each thread has a track with
//! slices for its waits and instants for its wakeups, which flows join; events of authority are instants; and there are
//! counters of the ready threads of each CPU and of the budget of each context.
//!
//! Field numbers are those of the published schema (`protos/perfetto/trace/perfetto_trace.proto`); the test reads the bytes
//! back by that schema and no code from here.
//!
//! Conserved: the `sched_switch` events of a CPU form one chain (each begins with the thread that the one before began), and
//! events of a CPU do not go back in time.

mod proto;

use crate::names::Names;
use crate::perfetto::NoSchedule;
use crate::{Event, Report, ScheduleEntry, StateEntry, ThreadState};
use proto::Message;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

/// The process that all threads are of.
const PROCESS: u64 = 1;
/// Thread numbers begin here: 0 is idle, and one that is its process's is a main thread.
const FIRST_THREAD: u64 = 2;
/// The packets of one writer.
const SEQUENCE: u64 = 1;
/// Events of one CPU in one packet.
const BUNDLE: usize = 1_000;
/// Tracks are named by number: of threads, counters of CPUs, counters of contexts, and one for all else.
const THREAD_TRACKS: u64 = 1 << 32;
const READY_TRACKS: u64 = 2 << 32;
const BUDGET_TRACKS: u64 = 3 << 32;
const MACHINE_TRACK: u64 = 4 << 32;

/// What the kernel calls the state of a thread that leaves its CPU.
mod prev_state {
    pub(super) const RUNNING: u64 = 0;
    pub(super) const INTERRUPTIBLE: u64 = 1;
    pub(super) const UNINTERRUPTIBLE: u64 = 2;
    pub(super) const DEAD: u64 = 16;
    pub(super) const PREEMPTED: u64 = 256;
}

/// Writes the schedule as a Perfetto trace.
///
/// # Errors
/// When `out` fails; and of kind [`io::ErrorKind::InvalidInput`], holding [`NoSchedule`], when the report has no
/// schedule. Nothing is written then.
pub fn perfetto_trace(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let schedule =
        report.schedule.as_deref().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, NoSchedule))?;
    let names = Names::of(report);
    let mut writer = Trace { out: BufWriter::new(out), names: &names, report };
    writer.describe()?;
    let lives = writer.lives();
    let wakings = wakings(&lives);
    writer.scheduler(schedule, &lives, &wakings)?;
    writer.waits(&lives, &wakings)?;
    writer.ready_counters(&lives)?;
    writer.events()?;
    writer.out.flush()
}

/// Something that a thread did: it ran if it has no state.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start_ns: u64,
    end_ns: u64,
    state: Option<ThreadState>,
    cpu: u32,
    by: Option<usize>,
}

impl Piece {
    /// Whether it waited for something else than a CPU.
    fn waits(&self) -> bool {
        self.state.is_some_and(|state| state.is_blocked() || state == ThreadState::Throttled)
    }
}

/// Every time that a thread becomes ready: when it arrives, and at the end of a wait, unless the run or its life ends there.
/// By time.
fn wakings(lives: &[Vec<Piece>]) -> Vec<Waking> {
    let mut wakings = Vec::new();
    for (thread, life) in lives.iter().enumerate() {
        for (at, piece) in life.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &life[before]);
            let follows = before.filter(|before| before.end_ns == piece.start_ns);
            if piece.waits() || follows.is_some_and(|before| !before.waits()) {
                continue;
            }
            let by = follows.and_then(|before| before.by);
            wakings.push(Waking { time_ns: piece.start_ns, thread, cpu: piece.cpu, by });
        }
    }
    wakings.sort_by_key(|waking| (waking.time_ns, waking.thread));
    wakings
}

/// A thread becomes ready.
#[derive(Clone, Copy, Debug)]
struct Waking {
    time_ns: u64,
    thread: usize,
    /// The CPU where it becomes ready.
    cpu: u32,
    by: Option<usize>,
}

struct Trace<'a, W: Write> {
    out: W,
    names: &'a Names<'a>,
    report: &'a Report,
}

impl<W: Write> Trace<'_, W> {
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut trace = Message::default();
        trace.inner(1, |packet| {
            packet.number(10, SEQUENCE);
            fill(packet);
        });
        self.out.write_all(trace.bytes())
    }

    /// The process and its threads, and the tracks.
    fn describe(&mut self) -> io::Result<()> {
        let (names, report) = (self.names, self.report);
        self.packet(|packet| {
            packet.number(13, 1);
            packet.inner(2, |tree| {
                tree.inner(1, |process| {
                    process.number(1, PROCESS).text(3, &report.config.workload);
                });
                for (number, name) in names.list().iter().enumerate() {
                    tree.inner(2, |thread| {
                        thread.number(1, tid(number)).text(2, name).number(3, PROCESS);
                    });
                }
            });
        })?;
        for (number, name) in names.list().iter().enumerate() {
            self.track(THREAD_TRACKS + number as u64, |track| {
                track.inner(4, |thread| {
                    thread.number(1, PROCESS).number(2, tid(number)).text(5, name);
                });
            })?;
        }
        let what = format!("{} on {}, digest {}", report.config.workload, report.machine, report.digest);
        self.track(MACHINE_TRACK, |track| {
            track.text(2, &what);
        })
    }

    fn track(&mut self, uuid: u64, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packet(|packet| {
            packet.inner(60, |track| {
                track.number(1, uuid);
                fill(track);
            });
        })
    }

    fn counter(&mut self, uuid: u64, name: &str, unit: u64) -> io::Result<()> {
        self.track(uuid, |track| {
            track.text(2, name);
            track.inner(8, |counter| {
                counter.number(3, unit);
            });
        })
    }

    fn track_event(
        &mut self,
        time_ns: u64,
        kind: u64,
        track: u64,
        fill: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        self.packet(|packet| {
            packet.number(8, time_ns);
            packet.inner(11, |event| {
                event.number(9, kind).number(11, track);
                fill(event);
            });
        })
    }

    /// What each thread did, by its number and then by time.
    fn lives(&self) -> Vec<Vec<Piece>> {
        let mut lives: Vec<Vec<Piece>> = vec![Vec::new(); self.names.list().len()];
        for entry in self.report.schedule.iter().flatten() {
            let ScheduleEntry { cpu, start_ns, end_ns, .. } = *entry;
            lives[self.names.number(&entry.thread)].push(Piece {
                start_ns,
                end_ns,
                state: None,
                cpu,
                by: None,
            });
        }
        if let Some(states) = &self.report.states {
            let number = |thread: u32| self.names.find(states.names.get(thread as usize)?);
            for entry in &states.entries {
                let Some(thread) = number(entry.thread) else { continue };
                let StateEntry { state, cpu, start_ns, end_ns, by, .. } = *entry;
                let by = by.and_then(number);
                lives[thread].push(Piece { start_ns, end_ns, state: Some(state), cpu, by });
            }
        }
        lives.iter_mut().for_each(|life| life.sort_by_key(|piece| (piece.start_ns, piece.end_ns)));
        lives
    }

    /// The events of each CPU: what its scheduler would have traced.
    fn scheduler(
        &mut self,
        schedule: &[ScheduleEntry],
        lives: &[Vec<Piece>],
        wakings: &[Waking],
    ) -> io::Result<()> {
        let mut cpus: BTreeMap<u32, CpuTrace> = BTreeMap::new();
        for entry in schedule {
            let thread = self.names.number(&entry.thread);
            cpus.entry(entry.cpu).or_default().run(entry, thread, leaves(entry, &lives[thread]));
        }
        for cpu in cpus.values_mut() {
            cpu.idle_from_here();
        }
        for waking in wakings {
            // A thread wakes others where it runs, or has just run.
            let of_waker = waking.by.and_then(|by| {
                let before = lives[by].partition_point(|piece| piece.start_ns < waking.time_ns);
                lives[by].get(before.checked_sub(1)?)
            });
            let at = of_waker.map_or(waking.cpu, |piece| piece.cpu);
            cpus.entry(at).or_default().wakings.push(*waking);
        }
        for (id, cpu) in cpus {
            let events = cpu.events();
            for bundle in events.chunks(BUNDLE) {
                let names = self.names;
                self.packet(|packet| {
                    packet.inner(1, |ftrace| {
                        ftrace.number(1, id.into());
                        for event in bundle {
                            ftrace.inner(2, |told| event.write(names, told));
                        }
                    });
                })?;
            }
        }
        Ok(())
    }

    /// Slices for what threads wait for, and instants that flows join for who woke whom.
    fn waits(&mut self, lives: &[Vec<Piece>], wakings: &[Waking]) -> io::Result<()> {
        for (thread, life) in lives.iter().enumerate() {
            let track = THREAD_TRACKS + thread as u64;
            for piece in life.iter().filter(|piece| piece.waits()) {
                self.track_event(piece.start_ns, 1, track, |event| {
                    event.text(22, "wait").text(23, piece.state.map_or("", ThreadState::name));
                })?;
                self.track_event(piece.end_ns, 2, track, |_| {})?;
            }
        }
        let names = self.names;
        for (flow, waking) in (1_u64..).zip(wakings.iter().filter(|waking| waking.by.is_some())) {
            let by = waking.by.unwrap_or_default();
            self.track_event(waking.time_ns, 3, THREAD_TRACKS + by as u64, |event| {
                event.text(22, "wakeup").text(23, &format!("wakes {}", names.list()[waking.thread]));
                event.fixed64(47, flow);
            })?;
            self.track_event(waking.time_ns, 3, THREAD_TRACKS + waking.thread as u64, |event| {
                event.text(22, "wakeup").text(23, &format!("woken by {}", names.list()[by]));
                event.fixed64(48, flow);
            })?;
        }
        Ok(())
    }

    /// How many threads are ready on each CPU.
    fn ready_counters(&mut self, lives: &[Vec<Piece>]) -> io::Result<()> {
        let mut steps: BTreeMap<u32, Vec<(u64, i64)>> = BTreeMap::new();
        for piece in lives.iter().flatten() {
            if piece.state == Some(ThreadState::Ready) {
                steps.entry(piece.cpu).or_default().extend([(piece.start_ns, 1), (piece.end_ns, -1)]);
            }
        }
        for (cpu, mut steps) in steps {
            let track = READY_TRACKS + u64::from(cpu);
            self.counter(track, &format!("CPU {cpu} ready threads"), 2)?;
            steps.sort_unstable();
            let mut ready = 0;
            for now in steps.chunk_by(|a, b| a.0 == b.0) {
                ready += now.iter().map(|(_, change)| change).sum::<i64>();
                self.track_event(now[0].0, 4, track, |event| {
                    event.number(30, ready.cast_unsigned());
                })?;
            }
        }
        Ok(())
    }

    /// What happened to authority at single instants, and the budgets that refills tell of.
    fn events(&mut self) -> io::Result<()> {
        let mut budgets: BTreeMap<&str, u64> = BTreeMap::new();
        let report = self.report;
        for event in report.events.iter().flatten() {
            let thread = event.thread.as_deref().and_then(|name| self.names.find(name));
            let track = thread.map_or(MACHINE_TRACK, |thread| THREAD_TRACKS + thread as u64);
            self.track_event(event.time_ns, 3, track, |told| annotate(event, told))?;
            if let (Some(context), Some(refills)) = (&event.context, &event.refills) {
                let next = BUDGET_TRACKS + budgets.len() as u64;
                let is_new = !budgets.contains_key(context.as_str());
                let track = *budgets.entry(context).or_insert(next);
                if is_new {
                    self.counter(track, &format!("budget of {context}"), 1)?;
                }
                let left: u64 =
                    refills.iter().filter(|(at, _)| *at <= event.time_ns).map(|(_, amount)| amount).sum();
                self.track_event(event.time_ns, 4, track, |told| {
                    told.number(30, left);
                })?;
            }
        }
        Ok(())
    }
}

fn tid(thread: usize) -> u64 {
    FIRST_THREAD + thread as u64
}

/// What an event says, as annotations.
fn annotate(event: &Event, told: &mut Message) {
    told.text(22, "event").text(23, &event.kind);
    let mut note = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            told.inner(4, |note| {
                note.text(10, name).text(6, &value);
            });
        }
    };
    note("cpu", event.cpu.map(|cpu| cpu.to_string()));
    note("context", event.context.clone());
    note("to", event.to.clone());
    note("lease", event.lease.clone());
    note("island", event.island.clone());
    note("ring", event.ring.clone());
    note("reason", event.reason.clone());
    note("count", event.count.map(|count| count.to_string()));
    note("amount_ns", event.amount_ns.map(|amount| amount.to_string()));
}

/// How the thread of `entry` leaves its CPU: as what it does next says, or if that is not known, as the reason says. A thread
/// that blocks and is woken in the same instant has not slept.
fn leaves(entry: &ScheduleEntry, life: &[Piece]) -> u64 {
    let next = life.partition_point(|piece| piece.start_ns < entry.end_ns);
    match life.get(next).filter(|piece| piece.start_ns == entry.end_ns) {
        Some(piece) if piece.state == Some(ThreadState::Throttled) => prev_state::UNINTERRUPTIBLE,
        Some(piece) if piece.waits() => prev_state::INTERRUPTIBLE,
        Some(_) if entry.reason == "preempted" => prev_state::PREEMPTED,
        Some(_) => prev_state::RUNNING,
        None => match entry.reason.as_str() {
            "blocked" => prev_state::INTERRUPTIBLE,
            "depleted" => prev_state::UNINTERRUPTIBLE,
            "exited" => prev_state::DEAD,
            "preempted" => prev_state::PREEMPTED,
            _ => prev_state::RUNNING,
        },
    }
}

/// What one CPU did.
#[derive(Default)]
struct CpuTrace {
    switches: Vec<Switch>,
    /// The thread that has the CPU, until when, and how it will leave.
    current: Option<(usize, u64, u64)>,
    wakings: Vec<Waking>,
}

/// A CPU turns from one thread to another; `None` is idle.
#[derive(Clone, Copy)]
struct Switch {
    time_ns: u64,
    from: Option<usize>,
    prev_state: u64,
    to: Option<usize>,
}

/// Something that a scheduler traces.
enum Traced {
    Waking(Waking),
    Switch(Switch),
}

impl CpuTrace {
    fn run(&mut self, entry: &ScheduleEntry, thread: usize, leaves: u64) {
        if self.current.is_some_and(|(_, until, _)| until < entry.start_ns) {
            self.idle_from_here();
        }
        let (from, prev_state) =
            self.current.map_or((None, prev_state::RUNNING), |(from, _, state)| (Some(from), state));
        self.switches.push(Switch { time_ns: entry.start_ns, from, prev_state, to: Some(thread) });
        self.current = Some((thread, entry.end_ns, leaves));
    }

    fn idle_from_here(&mut self) {
        if let Some((from, time_ns, prev_state)) = self.current.take() {
            self.switches.push(Switch { time_ns, from: Some(from), prev_state, to: None });
        }
    }

    /// All by time; a thread becomes ready before it begins.
    fn events(self) -> Vec<Traced> {
        let mut events: Vec<(u64, u8, Traced)> = Vec::new();
        events.extend(self.wakings.into_iter().map(|one| (one.time_ns, 0, Traced::Waking(one))));
        events.extend(self.switches.into_iter().map(|one| (one.time_ns, 1, Traced::Switch(one))));
        events.sort_by_key(|(time, order, _)| (*time, *order));
        events.into_iter().map(|(_, _, event)| event).collect()
    }
}

impl Traced {
    fn write(&self, names: &Names<'_>, out: &mut Message) {
        const PRIORITY: u64 = 120;
        let name = |thread: Option<usize>| thread.map_or("swapper", |thread| names.list()[thread]);
        let pid = |thread: Option<usize>| thread.map_or(0, tid);
        match *self {
            Self::Waking(Waking { time_ns, thread, cpu, by }) => {
                out.number(1, time_ns).number(2, pid(by));
                out.inner(20, |waking| {
                    waking.text(1, name(Some(thread))).number(2, tid(thread)).number(3, PRIORITY);
                    waking.number(4, 1).number(5, cpu.into());
                });
            }
            Self::Switch(Switch { time_ns, from, prev_state, to }) => {
                out.number(1, time_ns).number(2, pid(from));
                out.inner(4, |switch| {
                    switch.text(1, name(from)).number(2, pid(from)).number(3, PRIORITY).number(4, prev_state);
                    switch.text(5, name(to)).number(6, pid(to)).number(7, PRIORITY);
                });
            }
        }
    }
}
