//! Overstaying is noticed: a thread that watches the workers, fires timers that no worker looks at, and calls spare workers.
//!
//! A task that does not check keeps its worker. The worker's other tasks wait, its timers do, and nothing that the worker does by itself
//! can change that. So a monitor looks from outside: at which task runs there, and at what that task's budget says. If neither has
//! changed for [`Watchdog::overstay`], the task overstays.
//!
//! What is conserved: a task is reported once for each time that it overstays. The monitor writes nothing that belongs to a worker or
//! to a task. A cancellation is asked for by the task's id, and is carried out by the task's own worker.

use crate::calls;
use crate::cx::TaskId;
use crate::io::readiness::Events;
use crate::protocol::watch::Watch;
use crate::runtime::{Inner, Runtime, Share};
use crate::spans;
use crate::task::TaskPtr;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How often the monitor looks while workers are busy, and timers are set or sockets are waited for: neither waits longer for a worker
/// to look up.
const LOOK_AT_TIMERS: Duration = Duration::from_millis(1);
/// Looks in a row that find no busy worker, before the monitor sleeps for good.
const IDLE_LOOKS: u32 = 16;
/// Reports that are kept until they are asked for.
const REPORTS: usize = 256;
/// The low bits of [`Share::running`] change with each turn.
pub(crate) const TURN_BITS: usize = 0x3f;

/// How tasks are watched that do not check ([`Config::watchdog`](crate::Config::watchdog)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// For how long a task may run without a check: 1 ms to 60 s.
    pub overstay: Duration,
    /// Worker threads beside the usual ones, which take over what others can have while a task overstays: tasks that have not
    /// started, and those that may move. At most 64. Not under `Config::fair_by_task`, where the other workers do that.
    pub spare_workers: usize,
    /// Whether a task that overstays is cancelled, at its next slow check.
    pub cancels: bool,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { overstay: Duration::from_millis(20), spare_workers: 0, cancels: false }
    }
}

/// A task that overstayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overstay {
    /// The task.
    pub task: TaskId,
    /// Its name, if it was given one.
    pub name: Option<&'static str>,
    /// The worker that it kept.
    pub worker: usize,
    /// How long it had run without a check when it was noticed.
    pub time: Duration,
    /// Whether it was told to end.
    pub cancelled: bool,
}

/// What the monitor and the workers share.
#[derive(Debug)]
pub(crate) struct Monitored {
    pub(crate) watch: Watch,
    pub(crate) spares: Spares,
    reports: Mutex<VecDeque<Overstay>>,
    /// Workers that a task keeps now.
    kept: AtomicUsize,
}

impl Monitored {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            watch: Watch::new(workers),
            spares: Spares::default(),
            reports: Mutex::default(),
            kept: AtomicUsize::new(0),
        }
    }

    /// Whether a worker is kept by a task that overstays.
    pub(crate) fn is_any_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn close(&self) {
        self.watch.close();
        self.spares.close();
    }
}

/// Spare workers that wait to be called.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    state: Mutex<Called>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Called {
    waiting: usize,
    called: usize,
    closed: bool,
}

impl Spares {
    /// A spare worker waits until it is called, or the runtime shuts down.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock().expect("no panic while it is held");
        state.waiting += 1;
        while state.called == 0 && !state.closed {
            state = self.bell.wait(state).expect("no panic while it is held");
        }
        state.called = state.called.saturating_sub(1);
        state.waiting -= 1;
    }

    /// Calls one that waits.
    fn call(&self) {
        let mut state = self.state.lock().expect("no panic while it is held");
        if state.called < state.waiting {
            state.called += 1;
            self.bell.notify_one();
        }
    }

    fn close(&self) {
        self.state.lock().expect("no panic while it is held").closed = true;
        self.bell.notify_all();
    }
}

/// What the monitor sees of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// The task and its turn.
    running: usize,
    looked_up_ns: u64,
    fuel: u32,
    reserve: u32,
}

/// A worker that has not changed, and since when.
#[derive(Clone, Copy, Debug)]
struct Still {
    sample: Sample,
    since_ns: u64,
    /// What its thread had used by then; `None` as long as it was seen once only.
    thread: Option<Thread>,
    is_kept: bool,
}

/// What the kernel says of a worker's thread. Nothing, if it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Thread {
    /// It runs, or waits for a CPU. Else it is blocked.
    is_runnable: bool,
    ran_ns: u64,
    /// How long it has waited for a CPU, up to when it last got one.
    waited_ns: u64,
}

/// Where the kernel says it. Open, since a look must cost little.
#[derive(Debug)]
struct ThreadFiles {
    times: File,
    state: File,
}

impl ThreadFiles {
    fn of(number: u64) -> Option<Self> {
        let open = |file| File::open(format!("/proc/self/task/{number}/{file}")).ok();
        Some(Self { times: open("schedstat")?, state: open("stat")? })
    }

    fn read(&self) -> Option<Thread> {
        let mut text = [0; 1024];
        let length = self.times.read_at(&mut text, 0).ok()?;
        let times = str::from_utf8(&text[..length]).ok()?;
        let mut times = times.split_whitespace().map_while(|time| time.parse().ok());
        let (ran_ns, waited_ns) = (times.next()?, times.next()?);
        let length = self.state.read_at(&mut text, 0).ok()?;
        // The name, in brackets, may have anything in it.
        let behind_name = text[..length].rsplit(|byte| *byte == b')').next()?;
        let state = behind_name.iter().find(|byte| !byte.is_ascii_whitespace())?;
        Some(Thread { is_runnable: *state == b'R', ran_ns, waited_ns })
    }
}

/// What the monitor knows of a worker.
#[derive(Debug, Default)]
struct Watched {
    still: Option<Still>,
    files: Option<ThreadFiles>,
}

/// What the monitor makes of a look at a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// Its task gets on, or it has none.
    Fine,
    /// It has not changed for a while, which may yet be all right.
    Still,
    /// The task overstays, for so long by now.
    Overstays(u64),
    /// It was judged so before.
    KnownToOverstay,
}

impl Still {
    /// Judges a new look. Time for which the host ran something else on the worker's CPU is not the task's: of a thread that
    /// could run, what it ran counts, and of one that is blocked, all but what it waited for a CPU.
    fn judge(&mut self, sample: Sample, now_ns: u64, thread: Option<Thread>, overstay_ns: u64) -> Judgement {
        if sample != self.sample {
            return Judgement::Fine;
        }
        let passed = now_ns.saturating_sub(self.since_ns);
        let before = self.thread.unwrap_or_default();
        let own = match thread {
            Some(thread) if thread.is_runnable => thread.ran_ns.saturating_sub(before.ran_ns).min(passed),
            Some(thread) => passed.saturating_sub(thread.waited_ns.saturating_sub(before.waited_ns)),
            None => passed,
        };
        if self.is_kept {
            Judgement::KnownToOverstay
        } else if own >= overstay_ns {
            self.is_kept = true;
            Judgement::Overstays(own)
        } else {
            Judgement::Still
        }
    }
}

/// The number by which the kernel knows this thread; 0 if it does not say.
pub(crate) fn this_thread() -> u64 {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

impl Share {
    fn sample(&self) -> Option<Sample> {
        let running = self.running.load(Ordering::Relaxed);
        let task = TaskPtr::from_raw(std::ptr::with_exposed_provenance(running & !TURN_BITS))?;
        Some(Sample {
            running,
            looked_up_ns: self.looked_up_ns(),
            fuel: task.fuel.load(Ordering::Relaxed),
            reserve: task.reserve.load(Ordering::Relaxed),
        })
    }
}

/// Watches the workers of a runtime until that shuts down.
pub(crate) fn run(rt: &Inner, settings: Watchdog) {
    let watch = &rt.monitored.watch;
    let mut watched: Vec<Watched> = rt.shares.iter().map(|_| Watched::default()).collect();
    let mut idle_looks = 0;
    let overstay_ns = u64::try_from(settings.overstay.as_nanos()).unwrap_or(u64::MAX);
    let mut events = Events::default();
    while !watch.is_closed() {
        rt.tend_timers();
        let now_ns = rt.timers.now_ns();
        if rt.io.readiness.is_look_due(now_ns, LOOK_AT_TIMERS.as_nanos() as u64) {
            rt.io.readiness.look(&mut events, now_ns);
        }
        for (worker, watched) in watched.iter_mut().enumerate() {
            look(rt, settings, overstay_ns, worker, watched);
        }
        idle_looks = if watch.is_any_busy() { 0 } else { idle_looks + 1 };
        if idle_looks > IDLE_LOOKS {
            watch.park();
            idle_looks = 0;
            continue;
        }
        // As long as all get on, half of what a task may stay is soon enough to find one that does not.
        let is_any_still =
            watched.iter().any(|watched| watched.still.is_some_and(|still| still.thread.is_some()));
        let pause = settings.overstay / if is_any_still { 4 } else { 2 };
        let looks_on = rt.timers.has_entries() || rt.io.readiness.is_unattended();
        watch.sleep(if looks_on { pause.min(LOOK_AT_TIMERS) } else { pause });
    }
}

fn look(rt: &Inner, settings: Watchdog, overstay_ns: u64, worker: usize, watched: &mut Watched) {
    let Watched { still, files } = watched;
    let share = &rt.shares[worker];
    let now_ns = rt.timers.now_ns();
    let sample = if rt.monitored.watch.is_busy(worker) { share.sample() } else { None };
    let Some(sample) = sample else { return release(rt, still) };
    let Some(known) = still.as_mut().filter(|known| known.sample == sample) else {
        release(rt, still);
        *still = Some(Still { sample, since_ns: now_ns, thread: None, is_kept: false });
        return;
    };
    if files.is_none() {
        *files = ThreadFiles::of(share.thread.load(Ordering::Relaxed));
    }
    let thread = files.as_ref().and_then(ThreadFiles::read);
    if known.thread.is_none() {
        // Only now: most tasks get on, and the kernel need not be asked for them.
        known.since_ns = now_ns;
        known.thread = Some(thread.unwrap_or_default());
        return;
    }
    match known.judge(sample, now_ns, thread, overstay_ns) {
        Judgement::Fine => release(rt, still),
        Judgement::Still => {}
        Judgement::Overstays(own_ns) => {
            rt.monitored.kept.fetch_add(1, Ordering::Relaxed);
            report(rt, settings, worker, sample, own_ns);
            rt.take_from_tenants(worker);
            rt.monitored.spares.call();
            // Workers that sleep look at what this one has.
            rt.idle_workers.published();
        }
        Judgement::KnownToOverstay => {
            rt.take_from_tenants(worker);
            if !rt.global.is_empty() || !share.stealer.is_empty() {
                rt.monitored.spares.call();
            }
        }
    }
}

/// The worker gets on.
fn release(rt: &Inner, still: &mut Option<Still>) {
    if still.take().is_some_and(|still| still.is_kept) {
        rt.monitored.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

fn report(rt: &Inner, settings: Watchdog, worker: usize, sample: Sample, own_ns: u64) {
    let share = &rt.shares[worker];
    let Some(task) = TaskPtr::from_raw(std::ptr::with_exposed_provenance(sample.running & !TURN_BITS)) else {
        return;
    };
    let id = task.id.load(Ordering::Relaxed);
    let name = rt.labels.name(id);
    if share.sample() != Some(sample) {
        // It went on while we looked: the id may be another task's.
        return;
    }
    share.overstays.fetch_add(1, Ordering::Relaxed);
    if settings.cancels {
        share.to_cancel.store(id, Ordering::Relaxed);
    }
    let time = Duration::from_nanos(own_ns);
    let overstay = Overstay { task: TaskId(id), name, worker, time, cancelled: settings.cancels };
    let mut reports = rt.monitored.reports.lock().expect("no panic while it is held");
    if reports.len() == REPORTS {
        reports.pop_front();
    }
    reports.push_back(overstay);
    drop(reports);
    spans::event(|| {
        tracing::warn!(
            target: "mainspring",
            task = id,
            name = name.unwrap_or(""),
            worker,
            ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            "overstays: it has not checked; check more often, or use Cx::blocking",
        );
    });
}

impl Runtime {
    /// The tasks that have overstayed since this was last asked: the last 256 of them. How many there were in all is in
    /// [`WorkerStats::overstays`](crate::WorkerStats::overstays).
    pub fn take_overstays(&self) -> Vec<Overstay> {
        calls::count_poll();
        let mut reports = self.inner().monitored.reports.lock().expect("no panic while it is held");
        reports.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sample(fuel: u32) -> Sample {
        Sample { running: 0x1000, looked_up_ns: 5, fuel, reserve: 7 }
    }

    fn still() -> Still {
        let thread = Thread { is_runnable: true, ran_ns: 1000, waited_ns: 100 };
        Still { sample: sample(3), since_ns: 0, thread: Some(thread), is_kept: false }
    }

    /// A thread that has run and waited for so long since.
    fn thread(is_runnable: bool, ran_ns: u64, waited_ns: u64) -> Option<Thread> {
        Some(Thread { is_runnable, ran_ns: 1000 + ran_ns, waited_ns: 100 + waited_ns })
    }

    #[test]
    fn a_task_overstays_once_and_only_if_nothing_changed() {
        let mut seen = still();
        let ran = |ms| thread(true, ms * MS, 0);
        assert_eq!(seen.judge(sample(3), 9 * MS, ran(9), 10 * MS), Judgement::Still);
        assert_eq!(seen.judge(sample(3), 10 * MS, ran(10), 10 * MS), Judgement::Overstays(10 * MS));
        assert_eq!(seen.judge(sample(3), 11 * MS, ran(11), 10 * MS), Judgement::KnownToOverstay);
        assert_eq!(seen.judge(sample(2), 12 * MS, ran(12), 10 * MS), Judgement::Fine, "a check");
        let turn = Sample { running: 0x1001, ..sample(3) };
        assert_eq!(still().judge(turn, 90 * MS, ran(90), 10 * MS), Judgement::Fine, "another turn");
        let looked = Sample { looked_up_ns: 6, ..sample(3) };
        assert_eq!(still().judge(looked, 90 * MS, ran(90), 10 * MS), Judgement::Fine, "a look up");
        let slice = Sample { reserve: 6, ..sample(3) };
        assert_eq!(still().judge(slice, 90 * MS, ran(90), 10 * MS), Judgement::Fine, "the next slice");
    }

    #[test]
    fn time_that_the_host_took_is_not_the_tasks() {
        let judge = |thread| still().judge(sample(3), 50 * MS, thread, 10 * MS);
        assert_eq!(judge(thread(true, 5 * MS, 0)), Judgement::Still, "it waits for a CPU");
        assert_eq!(judge(thread(true, 15 * MS, 0)), Judgement::Overstays(15 * MS));
        assert_eq!(judge(thread(false, 0, 45 * MS)), Judgement::Still, "it has just blocked");
        assert_eq!(judge(thread(false, 0, 20 * MS)), Judgement::Overstays(30 * MS), "it is blocked");
        assert_eq!(judge(None), Judgement::Overstays(50 * MS), "a kernel that says nothing");
    }

    #[test]
    fn the_kernel_tells_what_this_thread_has_used() {
        let thread =
            ThreadFiles::of(this_thread()).and_then(|files| files.read()).expect("Linux has both files");
        assert!(thread.is_runnable);
    }
}
