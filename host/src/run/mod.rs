//! A program under a grant, from the question whether it fits to the last trace of it.
//!
//! Three processes take part, all of the same executable:
//!
//! ```text
//! supervisor ─┬─ guardian   waits for the supervisor's end, and undoes the grant if the supervisor could not
//!             └─ launcher   waits until it has been put into its groups, then becomes the program
//! ```
//!
//! The order is what makes every end clean: block signals, decide under the registry's lock, write the entry, start the
//! guardian, make the groups, start the launcher, put it in its place, let it go. Whatever fails, [`Registry::end`]
//! undoes all of it. The supervisor passes signals on; it ends only when the program has.

mod guardian;
mod lateness;
mod launcher;
mod signals;

use crate::admission::{Claim, admit, beside_leases};
use crate::cgroup::{GroupSet, Hierarchies, Limits, Usage};
use crate::error::{HostError, MissingRight};
use crate::process::Identity;
use crate::registry::{self, Entry, Registry};
use crate::request::{Request, allowed_cpus};
use crate::{cpu_list, deadline};
use guardian::Guardian;
pub use lateness::Lateness;
use lateness::Sampler;
use launcher::Launcher;
use mainspring_abi::{CpuSet, Nanos};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use signals::{Event, Signals};
use std::ffi::OsString;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How long processes that outlive the program may take to end by themselves.
const GRACE: Duration = Duration::from_secs(1);

/// Plays the part of a helper process if this process was started as one. The first thing that `main` does.
#[must_use]
pub fn helper() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    match args.next()?.to_str()? {
        launcher::NAME => Some(launcher::play(args)),
        guardian::NAME => Some(guardian::play(args)),
        _ => None,
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// What a shell makes of it: the code, or 128 and the signal.
    #[must_use]
    pub fn status(self) -> u8 {
        let status = match self {
            Self::Code(code) => code & 0xff,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(status).unwrap_or(u8::MAX)
    }
}

/// What a program is using, while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since it was let go.
    pub elapsed: Duration,
    /// The counters so far.
    pub usage: Usage,
}

/// A watcher that wants to see samples.
pub struct Watch<'a> {
    /// How often.
    pub every: Duration,
    /// What to do with each.
    pub show: &'a mut dyn FnMut(&Sample),
}

/// What became of a program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// From its start to its end.
    pub wall: Duration,
    /// What it and its children used.
    pub usage: Usage,
    /// How many of its processes outlived it and were ended.
    pub outlived: usize,
    /// What was granted, and what enforced it.
    pub entry: Entry,
    /// Rights that were missing.
    pub missing: Vec<MissingRight>,
    /// How the first thread fared under its deadline, if it had one.
    pub lateness: Option<Lateness>,
}

/// Runs a program and its children under a grant.
///
/// # Errors
/// If the grant makes no sense, cannot be enforced or does not fit, or if the system fails. Nothing is left behind then.
pub fn run(request: &Request, program: &[OsString], watch: Option<Watch<'_>>) -> Result<Outcome, HostError> {
    let signals = Signals::block()?;
    let registry = Registry::open()?;
    let (entry, mut missing) = grant(&registry, request, program)?;
    let mut guardian = None;
    let ran = supervise(&registry, request, program, entry.clone(), &signals, watch, &mut guardian);
    let undone = registry.end(&entry);
    if let Some(guardian) = guardian {
        guardian.dismiss();
    }
    signals.restore();
    let ran = ran?;
    undone?;
    missing.extend(ran.missing);
    Ok(Outcome {
        ended: ran.ended,
        wall: ran.wall,
        usage: ran.usage,
        outlived: ran.outlived,
        entry: ran.entry,
        missing,
        lateness: ran.lateness,
    })
}

/// Decides, and writes the entry if the answer is yes.
fn grant(
    registry: &Registry,
    request: &Request,
    program: &[OsString],
) -> Result<(Entry, Vec<MissingRight>), HostError> {
    let allowed = allowed_cpus()?;
    request.check(&allowed)?;
    let failed = |what| move |cause| HostError::Process { what, cause };
    let owner = Identity::current().map_err(failed("reading /proc/self/stat"))?;
    let hierarchies = Hierarchies::discover().map_err(failed("reading /proc/self/mountinfo"))?;
    let mut entry = registry::blank(format!("{}-{}", owner.pid, owner.started_ticks), owner);
    let (groups, unplaced) = GroupSet::plan(&hierarchies, &request.controllers(), &entry.id);
    let mut missing: Vec<MissingRight> = unplaced
        .iter()
        .map(|(controller, why)| MissingRight {
            what: what_it_enforces(controller).to_owned(),
            why: why.to_string(),
            help: why.help().to_owned(),
        })
        .collect();
    missing.extend(deadline_right(request)?);
    if !missing.is_empty() && !request.best_effort {
        return Err(HostError::Rights(missing));
    }
    let reserved = request.deadline.is_some() && !missing.iter().any(|right| right.what == DEADLINE);
    entry.name.clone_from(&request.name);
    entry.command = program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    entry.budget_ns = request.budget.get();
    entry.period_ns = request.period.get();
    entry.deadline_ns = request.deadline.unwrap_or(request.period).get();
    entry.cpus = cpu_list(request.cpus.as_ref().unwrap_or(&allowed));
    entry.memory_bytes = request.memory_bytes;
    entry.enforced = enforced(request, &groups, reserved);
    entry.groups = groups;
    entry.exclusive = request.exclusive;
    let locked = registry.lock_swept()?;
    let live: Vec<Entry> = locked.entries()?.into_iter().chain(registry::granted_by_others()).collect();
    let granted: Vec<Claim> = live.iter().filter_map(Entry::claim).collect();
    if let Some(asked) = entry.claim() {
        let asked = Claim { name: entry.name.clone(), ..asked };
        let leases: Vec<(String, CpuSet)> = live.iter().filter_map(Entry::lease).collect();
        let (granted, asked) =
            beside_leases(&granted, &asked, &leases, request.exclusive).map_err(HostError::NotAdmitted)?;
        let homes = admit(&granted, &asked, &allowed);
        entry.homes = homes.map_err(HostError::NotAdmitted)?.iter().map(|cpu| cpu.index() as u32).collect();
    }
    locked.insert(&entry)?;
    Ok((entry, missing))
}

const DEADLINE: &str = "the deadline of the first thread";

fn what_it_enforces(controller: &str) -> &'static str {
    match controller {
        "cpuset" => "the CPUs of the tree",
        "memory" => "the memory of the tree",
        _ => "the budget of the tree",
    }
}

/// Whether a deadline can be had at all. The kernel's admission of this one is asked when there is a thread for it.
fn deadline_right(request: &Request) -> Result<Option<MissingRight>, HostError> {
    if request.deadline.is_none() {
        return Ok(None);
    }
    match deadline::probe() {
        Ok(()) => Ok(None),
        Err(cause) if cause.raw_os_error() == Some(nix::errno::Errno::EBUSY as i32) => {
            Err(HostError::Deadline(cause))
        }
        Err(cause) => {
            let (why, help) = crate::doctor::deadline_refusal(&cause);
            Ok(Some(MissingRight { what: DEADLINE.to_owned(), why, help: help.to_owned() }))
        }
    }
}

fn enforced(request: &Request, groups: &GroupSet, reserved: bool) -> Vec<String> {
    let means = [
        (reserved, "deadline"),
        (groups.governs("cpu"), "quota"),
        (groups.governs("cpuset"), "cpuset"),
        (groups.governs("cpuset") && request.exclusive, "exclusive"),
        (request.cpus.is_some() && !groups.governs("cpuset"), "affinity"),
        (groups.governs("memory"), "memory"),
    ];
    means.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()).collect()
}

struct Ran {
    ended: Ended,
    wall: Duration,
    usage: Usage,
    outlived: usize,
    entry: Entry,
    missing: Vec<MissingRight>,
    lateness: Option<Lateness>,
}

/// Starts the program in its place, and stays with it to its end.
fn supervise(
    registry: &Registry,
    request: &Request,
    program: &[OsString],
    mut entry: Entry,
    signals: &Signals,
    watch: Option<Watch<'_>>,
    guardian: &mut Option<Guardian>,
) -> Result<Ran, HostError> {
    if !entry.groups.tracks() {
        // Orphans then become children of this process: they are reaped and counted here.
        let _ = set_child_subreaper(true);
    }
    let started = guardian.insert(Guardian::start(registry, &entry.id)?);
    entry.guardian = Some(started.identity()?);
    registry.lock()?.write(&entry)?;
    entry.groups.create(&limits(request))?;
    let mut missing = Vec::new();
    if request.exclusive
        && entry.groups.governs("cpuset")
        && let Err(error) = entry.groups.keep_others_off()
    {
        let right = MissingRight {
            what: "the CPUs to itself".to_owned(),
            why: format!("{}: {}", error.path.display(), error.cause),
            help: "choose CPUs that no other cpuset has, or leave out --exclusive".to_owned(),
        };
        if !request.best_effort {
            return Err(HostError::Rights(vec![right]));
        }
        missing.push(right);
        entry.exclusive = false;
        entry.enforced.retain(|means| means != "exclusive");
        registry.lock()?.write(&entry)?;
    }
    let launcher = Launcher::start(program, &entry.id, signals.mask())?;
    entry.groups.enter(launcher.pid())?;
    if let Some(cpus) = request.cpus.filter(|_| entry.enforced.iter().any(|means| means == "affinity")) {
        launcher.pin(&cpus)?;
    }
    if let Some(reservation) = request.reservation()
        && entry.enforced.iter().any(|means| means == "deadline")
    {
        deadline::reserve(launcher.pid(), &reservation).map_err(HostError::Deadline)?;
    }
    let begun = Instant::now();
    let pid = launcher.let_go()?;
    let reserved = entry.enforced.iter().any(|means| means == "deadline");
    let mut sampler = reserved.then(|| Sampler::new(pid, request.budget, request.period));
    let ended = stay(pid, &entry, signals, (watch, sampler.as_mut()), begun)?;
    let wall = begun.elapsed();
    let outlived = end_the_rest(&entry, signals);
    let lateness = sampler.map(|sampler| sampler.found());
    Ok(Ran { ended, wall, usage: usage_at_end(&entry), outlived, entry, missing, lateness })
}

/// What the groups are told. Beside a deadline, the quota is for the other threads and processes: it holds them to the
/// same share, over a period that the controller takes, and claims nothing.
fn limits(request: &Request) -> Limits {
    const LONG: Nanos = Nanos::from_millis(100);
    let (budget, period) = match request.deadline {
        None => (request.budget, request.period),
        Some(_) => {
            let share = u128::from(request.budget.get()) * u128::from(LONG.get())
                / u128::from(request.period.get().max(1));
            let budget = Nanos::new(u64::try_from(share).unwrap_or(u64::MAX)).max(Nanos::from_millis(1));
            (budget, LONG)
        }
    };
    let claim = request.deadline.is_none();
    Limits { budget, period, claim, cpus: request.cpus, memory_bytes: request.memory_bytes }
}

/// Until the program ends: passes signals on, reaps, shows samples, and takes its own.
fn stay(
    pid: i32,
    entry: &Entry,
    signals: &Signals,
    (mut watch, mut sampler): (Option<Watch<'_>>, Option<&mut Sampler>),
    begun: Instant,
) -> Result<Ended, HostError> {
    let mut shown = watch.as_ref().map(|watch| begun + watch.every);
    let mut sampled = sampler.as_ref().map(|sampler| begun + sampler.every());
    loop {
        let next = shown.into_iter().chain(sampled).min();
        if let Some(ended) = signals::reap(pid) {
            return Ok(ended);
        }
        match signals.next(next)? {
            Event::PassOn(signal) => signals::send(pid, signal),
            Event::Child => {}
            Event::Due => {
                let now = Instant::now();
                if let Some(sampler) = sampler.as_deref_mut().filter(|_| sampled.is_some_and(|at| at <= now))
                {
                    sampler.look(now);
                    sampled = Some(Instant::now() + sampler.every());
                }
                if let Some(watch) = watch.as_mut().filter(|_| shown.is_some_and(|at| at <= now)) {
                    (watch.show)(&Sample { elapsed: begun.elapsed(), usage: entry.tree().usage() });
                    shown = Some(Instant::now() + watch.every);
                }
            }
        }
    }
}

/// Ends what outlived the program, politely first. Answers how many there were.
fn end_the_rest(entry: &Entry, signals: &Signals) -> usize {
    let outlived = entry.tree().processes().len();
    if outlived > 0 {
        entry.tree().terminate();
        let begun = Instant::now();
        while begun.elapsed() < GRACE && !entry.tree().processes().is_empty() {
            signals::reap_orphans();
            // An impatient user need not wait.
            if signals.is_pending() {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        // What does not end now is reported by `Registry::end`, which does the same again.
        let _ = entry.tree().kill();
    }
    signals::reap_orphans();
    outlived
}

/// The counters, or what the kernel adds up over ended children where there are none.
fn usage_at_end(entry: &Entry) -> Usage {
    let mut usage = entry.groups.usage();
    if usage.used_ns.is_none()
        && let Ok(children) = getrusage(UsageWho::RUSAGE_CHILDREN)
    {
        let used = children.user_time() + children.system_time();
        usage.used_ns = u64::try_from(used.num_microseconds()).ok().map(|us| us.saturating_mul(1_000));
    }
    usage.processes = None;
    usage
}

/// The CPUs of a request as the system's own type.
fn affinity(cpus: &CpuSet) -> nix::sched::CpuSet {
    let mut set = nix::sched::CpuSet::new();
    for cpu in cpus.iter() {
        // Beyond the system's largest set: `Request::check` has refused it.
        let _ = set.set(cpu.index());
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_what_a_shell_makes_of_it() {
        assert_eq!(Ended::Code(0).status(), 0);
        assert_eq!(Ended::Code(7).status(), 7);
        assert_eq!(Ended::Signal(9).status(), 137);
        assert_eq!(Ended::Signal(15).status(), 143);
    }

    #[test]
    fn beside_a_deadline_the_rest_is_held_to_the_same_share() {
        let request = Request {
            name: "test".into(),
            budget: Nanos::from_micros(2_000),
            period: Nanos::from_millis(10),
            deadline: Some(Nanos::from_millis(5)),
            cpus: None,
            exclusive: false,
            memory_bytes: None,
            best_effort: false,
        };
        let held = limits(&request);
        assert_eq!((held.budget, held.period), (Nanos::from_millis(20), Nanos::from_millis(100)));
        assert!(!held.claim);
        let tree = limits(&Request { deadline: None, ..request });
        assert_eq!((tree.budget, tree.period), (Nanos::from_millis(2), Nanos::from_millis(10)));
        assert!(tree.claim);
    }
}
