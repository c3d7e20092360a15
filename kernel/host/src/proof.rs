//! Proofs: a manifest, programs that try something in ring 3, and the lines that must come of it.

use crate::image::{self, Build};
use crate::network::{Complaint, Exercise, Network};
use crate::qemu::{Machine, Run, RunError, SUCCESS};
use mainspring_abi::frame::{CheckCounts, FrameError, Trailer};
use std::fmt::Write;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A proof.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    /// `make run-NAME` runs it.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The machines to run it on, by number of CPUs.
    pub cpus: &'static [u32],
    /// What the boot manifest starts: `start` or `serve`, the program, its capabilities, its argument.
    pub starts: &'static [(&'static str, &'static str, &'static str, &'static str)],
    /// Further lines of the boot manifest.
    pub settings: &'static str,
    /// Programs of the boot image.
    pub programs: &'static [&'static str],
    /// Texts that must all appear in the serial output, each in a line of its own.
    pub markers: &'static [&'static str],
    /// Whether time counts instructions.
    pub icount: bool,
    /// Seconds after which it has failed.
    pub seconds: u64,
}

/// A proof that did not hold.
#[derive(Debug)]
pub struct Failed {
    /// What did not hold, for people.
    pub what: String,
    /// All of the serial output.
    pub serial: Vec<String>,
}

impl From<RunError> for Failed {
    fn from(error: RunError) -> Self {
        Self { what: error.to_string(), serial: Vec::new() }
    }
}

/// Lines of the serial output that a failure shows.
const TAIL: usize = 40;

impl Proof {
    /// Runs it on one machine.
    pub fn run(&self, cpus: u32, build: Build, mut watch: impl FnMut(&str)) -> Result<Run, Failed> {
        let peer = Peer::of(self).map_err(RunError::Network)?;
        let network = peer.as_ref().map(|peer| peer.network.clone());
        let machine = Machine { cpus, build, icount: self.icount, network, ..Machine::default() };
        let image = image::build(&self.manifest(), self.programs, &[]).map_err(RunError::Build)?;
        let mut run = machine.run(&image, Duration::from_secs(self.seconds), |line| {
            peer.iter().for_each(|peer| peer.heard(line));
            watch(line);
        })?;
        let unmet = match peer.map_or(Ok(Vec::new()), Peer::found) {
            Ok(lines) => {
                lines.iter().for_each(|line| watch(line));
                run.serial.extend(lines);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        // A machine that ended badly says more than a host that could not reach it.
        let ended_badly = run.code.filter(|code| *code != SUCCESS).and_then(|_| self.complaint(&run));
        let complaint = ended_badly
            .or(unmet)
            .or_else(|| self.complaint(&run))
            .or_else(|| self.judge(build, cpus, run.trailer()));
        match complaint {
            None => Ok(run),
            Some(what) => Err(Failed { what: self.explain(cpus, build, &run, &what), serial: run.serial }),
        }
    }

    /// Whether it compares times or shares of CPUs: another proof beside it would be in what it sees.
    pub fn compares_times(&self) -> bool {
        self.icount || COMPARE_TIMES.contains(&self.name)
    }

    pub(crate) fn manifest(&self) -> String {
        let argument = |text: &str| if text.is_empty() { String::new() } else { format!(" -- {text}") };
        let line = |(how, program, caps, text): &(&str, &str, &str, &str)| {
            format!("{how} {program} {caps}{}\n", argument(text))
        };
        self.settings.lines().map(|line| format!("{line}\n")).chain(self.starts.iter().map(line)).collect()
    }

    /// What is wrong with what the kernel says at its end.
    fn judge(&self, build: Build, cpus: u32, trailer: Result<Trailer, FrameError>) -> Option<String> {
        lost_memory(trailer).or_else(|| {
            let trailer = trailer.ok()?;
            unchecked(build, cpus, &trailer).or_else(|| self.too_long(&trailer))
        })
    }

    /// Says so if interrupts were off for longer than they may. The counter counts instructions where time does.
    fn too_long(&self, trailer: &Trailer) -> Option<String> {
        let counts = trailer.longest_interrupts_off;
        (self.icount && counts > MOST_INSTRUCTIONS)
            .then(|| format!("interrupts were off for {counts} instructions, more than {MOST_INSTRUCTIONS}"))
    }

    /// What is wrong with a run.
    fn complaint(&self, run: &Run) -> Option<String> {
        let missing =
            self.markers.iter().find(|marker| !run.serial.iter().any(|line| line.contains(**marker)));
        match (run.code, missing) {
            (None, Some(marker)) => Some(format!("{} s passed without the marker `{marker}`", self.seconds)),
            (None, None) => Some(format!("{} s passed and the machine did not end", self.seconds)),
            (Some(SUCCESS), None) => beyond_limit(&run.serial),
            (Some(SUCCESS), Some(marker)) => Some(format!("the marker `{marker}` is missing")),
            (Some(code), _) if code < 0 => Some(format!("QEMU was ended by signal {}", -code)),
            (Some(code), _) => Some(format!("the machine ended with code {code}, not {SUCCESS}")),
        }
    }

    fn explain(&self, cpus: u32, build: Build, run: &Run, what: &str) -> String {
        let mut text = format!("{} on {cpus} CPUs: {what}\n", self.name);
        let from = run.serial.len().saturating_sub(TAIL);
        let _ = writeln!(text, "--- the last {} lines of the serial output", run.serial.len() - from);
        for line in &run.serial[from..] {
            let _ = writeln!(text, "  {line}");
        }
        let _ = write!(text, "--- again: make run-{} CPUS={cpus}", self.name);
        if build == Build::Checked {
            text.push_str(" CHECKED=1");
        }
        text
    }
}

/// What the host does beside a machine with a network card.
struct Peer {
    network: Network,
    ready: Sender<()>,
    exercise: JoinHandle<Result<Vec<String>, Complaint>>,
}

impl Peer {
    /// A proof whose programs are granted a device has a card, and a peer.
    fn of(proof: &Proof) -> io::Result<Option<Self>> {
        if !proof.starts.iter().any(|(_, _, caps, _)| caps.contains("device:")) {
            return Ok(None);
        }
        let network = Network::to(Exercise::TCP, Exercise::UDP)?;
        let (ready, told) = mpsc::channel();
        let exercise = Exercise::new(network.clone(), told);
        let icount = proof.icount;
        let run = move || if icount { exercise.bench() } else { exercise.run() };
        Ok(Some(Self { network, ready, exercise: thread::spawn(run) }))
    }

    /// The machine has said `line`. The exercise begins when there is a network process, and runs beside the machine.
    fn heard(&self, line: &str) {
        if line.contains("net-proof: ready") {
            // An exercise that has failed waits for nothing.
            let _ = self.ready.send(());
        }
    }

    /// What the exercise has found. The machine has ended.
    fn found(self) -> Result<Vec<String>, Complaint> {
        drop(self.ready);
        self.exercise.join().unwrap_or_else(|_| Err(Complaint::new("the host's side panicked")))
    }
}

/// Says so if the kernel did not come to its end, or lost memory on the way.
pub(crate) fn lost_memory(trailer: Result<Trailer, FrameError>) -> Option<String> {
    match trailer {
        Err(error) => Some(error.to_string()),
        Ok(Trailer { frames_lost: 0, heap_lost: 0, .. }) => None,
        Ok(Trailer { frames_lost, heap_lost, .. }) => {
            Some(format!("the kernel lost {frames_lost} frames of memory and {heap_lost} bytes of its heap"))
        }
    }
}

/// Says so if a run that was to check itself did not look at each of its invariants. A run may have no halt at all. A CPU that
/// counted a halt may not have looked yet when the machine ends.
fn unchecked(build: Build, cpus: u32, trailer: &Trailer) -> Option<String> {
    let CheckCounts { leaves, halts, services, requests, .. } = trailer.checks;
    let missing = [leaves, services, requests].contains(&0) || halts + u64::from(cpus) < trailer.idle_halts;
    (build == Build::Checked && missing)
        .then(|| "the kernel did not look at all of its invariants".to_owned())
}

const ALL: &str = "console,timer,threads,control,processes,park,memory,policy,info";
/// As `ALL`, and a tenth of the second CPU.
const IDLE_PATHS: &str =
    "console,timer,threads,control,processes,park,memory,policy,info,context:a=1000000/10000000:cpus=2";
/// Two contexts: 2 ms of 20, and 1 ms of 10. Contexts that the program makes have a quarter of a CPU in all.
const CONTEXTS: &str = "console,timer,threads,control,processes,park,info,call:d,serve:d,call:e,serve:e,call:k,serve:k,\
     context:a=2000000/20000000,context:b=1000000/10000000,time:26";

/// A control loop that has 3 ms of 10, and a player that has 4 ms of 10.
const INVERSION: &str = "console,timer,threads,control,park,policy,info,call:on,serve:on,call:off,serve:off,\
     context:control=3000000/10000000:criticality=1:priority=1,context:player=4000000/10000000:criticality=1";
const DEADLINES: &str = "console,timer,processes,park,info,call:ordered,serve:ordered,call:plain,serve:plain";

/// A session with two contexts.
const SESSION: &str = "console,timer,threads,control,park,info,session,call:d,serve:d,\
     context:a=2000000/20000000,context:b=1000000/10000000";
/// Two sessions that threads can enter, a context for each, and one that nobody uses.
const HELD_SESSIONS: &str = "console,timer,threads,control,park,session:alice,session:bob,\
     context:a=1000000/20000000,context:b=1000000/20000000,context:c=1000000/20000000";
/// One context that those of the storm are made from: a quarter of a CPU. They have a fifth of a CPU in all.
const STORM: &str = "console,timer,threads,control,processes,park,memory,info,call:d,serve:d,call:e,serve:e,\
     context:root=5000000/20000000,time:21";

/// The same with endpoints that have a context of their own.
const PASSIVE_STORM: &str = "console,timer,threads,control,processes,park,memory,info,call:d,serve:d,call:e,serve:e,\
     context:root=5000000/20000000,context:own=2000000/20000000:serves=d:serves=e,time:21";

/// Leases, a session that they end with, an endpoint that is told, and a context that pays.
const LEASES: &str = "console,timer,threads,control,processes,park,memory,policy,info,leases,session,call:e,serve:e,\
     context:a=2000000/20000000";

/// An operator, which is the thread that recovers the machine, and what it gives to the policy service.
const OPERATOR: &str =
    "console,timer,threads,control,processes,park,info,policy-service,recovery,call:operator,serve:operator";

const CONTAIN: &str = "console,timer,threads,control,processes,park,memory,policy,info,call:x,serve:x";

/// A card, and two fifths of a CPU for what drives it.
const NETWORK: &str = "console,timer,threads,control,processes,memory,info,device:1af4.1041,\
     context:net=8000000/20000000,serve:net0,serve:net1,serve:net2,call:net2";

/// Those of the proofs that compare times or shares.
const COMPARE_TIMES: &[&str] = &[
    "pit-tick",
    "measure",
    "thread-fairness",
    "thread-fairness-weight-change",
    "thread-scale",
    "idle",
    "inversion",
    "deadlines",
    "scheduler-cpu-isolation-lease",
    "network",
    "scheduler-generic-sqpoll-nohz",
    "policy",
    "policy-hostile",
];

/// All proofs.
pub const PROOFS: &[Proof] = &[
    Proof {
        name: "smoke",
        about: "boot, preemption, ring fairness, blocked waits, direct handoff, exit, clean halt",
        cpus: &[1],
        starts: &[
            ("serve", "echo", "console,serve:echo", ""),
            ("serve", "echo", "console,serve:direct", "direct"),
            ("start", "smoke", "console,timer,threads,control,park,info,policy,call:echo,call:direct", ""),
        ],
        settings: "",
        programs: &["smoke", "echo"],
        markers: &[
            "smoke: preemption=ok",
            "smoke: registers=ok",
            "smoke: blocked_waits=ok",
            "smoke: printed by a tick",
            "smoke: ticks_serve=ok",
            "smoke: selectors=ok",
            "smoke: ring_fairness=ok",
            "smoke: deadlines=ok",
            "smoke: fs_base=ok",
            "smoke: direct_ipc=ok",
            "smoke: direct_registers=ok",
            "exit: process=smoke code=0",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "calls",
        about: "calls and answers of all lengths, in memory and in registers, to bad buffers, given up, to servers that end",
        cpus: &[1, 2, 4],
        starts: &[("start", "calls", "console,timer,threads,control,park,info,processes,call:x,serve:x", "")],
        settings: "",
        programs: &["calls", "child"],
        markers: &[
            "calls: lengths=ok",
            "calls: buffers=ok",
            "calls: withdrawn_before=ok",
            "calls: withdrawn_after=ok",
            "calls: refused_in_registers=ok",
            "calls: registers_and_rings=ok",
            "calls: crowd=ok",
            "calls: abandoned=ok",
            "calls: killed_at_any_moment=ok",
            "calls: closed=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "spawn",
        about: "processes: wait, exit, kill; timer-smoke, timer-flood, thread-lifecycle",
        cpus: &[1, 2, 4],
        starts: &[("start", "spawn", ALL, "")],
        settings: "",
        programs: &["spawn", "child", "timer-smoke", "timer-flood", "thread-lifecycle"],
        markers: &[
            "timer-smoke: ok",
            "timer-flood: granted=64 refused=8",
            "thread-lifecycle: quota=ok",
            "thread-lifecycle: churn=ok",
            "thread-lifecycle: ok",
            "spawn: child=timer-smoke code=0",
            "spawn: killed_at_any_moment=ok",
            "spawn: makers_killed=ok",
            "spawn: child=timer-flood code=0",
            "spawn: child=thread-lifecycle code=0",
            "spawn: shared_memory=ok",
            "spawn: cleanup=ok",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "measure",
        about: "timed park and resume; a process that ends with a thread still parked",
        cpus: &[1, 2],
        starts: &[("start", "measure", ALL, "")],
        settings: "",
        programs: &["measure", "child"],
        markers: &[
            "measure: park_timeout=ok",
            "measure: park_resume=ok",
            "measure: exit_with_parked_thread=ok",
            "measure: accounts=ok",
            "measure: own_policy=ok",
            "measure: ticks_while_it_runs=ok",
            "measure: boot_info=ok",
            "measure: measures_nothing=ok",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "thread-fairness",
        about: "CPU shares follow weights",
        cpus: &[1],
        starts: &[("start", "fairness", ALL, "weights")],
        settings: "",
        programs: &["fairness"],
        markers: &["fairness: heavy weight=256", "fairness: shares=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "thread-fairness-weight-change",
        about: "a thread that changes its own weight gets the new share",
        cpus: &[1],
        starts: &[("start", "fairness", ALL, "change")],
        settings: "",
        programs: &["fairness"],
        markers: &["fairness: changed weight=128", "fairness: weight_change=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "thread-scale",
        about: "the same work by 1, 2 and 4 threads",
        cpus: &[2],
        starts: &[("start", "scale", ALL, "")],
        settings: "",
        programs: &["scale"],
        markers: &["scale: threads=1", "scale: threads=2", "done=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "smp",
        about: "1, 2, 4 and 8 CPUs: stealing, wakes across, shootdown, siblings",
        cpus: &[1, 2, 4, 8],
        starts: &[("start", "smp", ALL, "")],
        settings: "",
        programs: &["smp", "shooter"],
        markers: &[
            "smp: all_work=ok",
            "smp: wakes_across=ok",
            "smp: shootdown=ok",
            "smp: siblings=ok",
            "smp: all=ok",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "idle",
        about: "one idle second on four CPUs: no ticks, and waits on time",
        cpus: &[4],
        starts: &[("start", "smp", ALL, "idle")],
        settings: "",
        programs: &["smp", "shooter"],
        markers: &["smp: idle=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "idle-paths",
        about: "each way by which a CPU comes to idle, and what is served meanwhile; ticks come every 20 us",
        cpus: &[2],
        starts: &[("start", "idle-paths", IDLE_PATHS, "")],
        settings: "say idle\ntick_ns 20000",
        programs: &["idle-paths", "child"],
        markers: &[
            "idle_path=cooperative-cpl0 nohz_active=true timer_source=lapic",
            "idle_path=cpl0-dispatch-block",
            "sched: dispatch idle cpu=1 idle_path=cpl0-dispatch-exit",
            "sched: dispatch idle cpu=1 idle_path=cpl0-dispatch-timer",
            "sched: dispatch idle cpu=1 idle_path=cpl0-dispatch-message",
            "idle-paths: blocks=ok",
            "idle-paths: exits=ok",
            "idle-paths: throttled=ok",
            "idle-paths: killed=ok",
            "idle-paths: served_by_idle_cpus=ok",
            "idle-paths: served_by_ticks=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "pit-tick",
        about: "preemption, waits and sleeps with no timer but the PIT, on vector 32",
        cpus: &[1, 2],
        starts: &[("start", "smp", ALL, ""), ("start", "timer-smoke", "console,timer", "")],
        settings: "timer pit",
        programs: &["smp", "shooter", "timer-smoke"],
        markers: &["boot: timer=pit hz=1000", "timer-smoke: ok", "smp: all=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "hostile",
        about: "programs that do what they may not; each ends only itself",
        cpus: &[1, 2, 4, 8],
        starts: &[("start", "hostile", ALL, "")],
        settings: "",
        programs: &["hostile", "attack", "invade"],
        markers: &["hostile: neighbour_share=ok", "hostile: attacks=335 memory=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "lost-messages",
        about: "the proof smp with two of three messages between CPUs lost: each is sent again, or another CPU is told",
        cpus: &[2, 4],
        starts: &[("start", "smp", ALL, "")],
        settings: "one_message_of 3",
        programs: &["smp", "shooter"],
        markers: &["smp: wakes_across=ok", "smp: shootdown=ok", "smp: all=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "contain",
        about: "handles, flags, refusals, weights, shares of an endpoint and threads stay within their process",
        cpus: &[1, 2, 4, 8],
        starts: &[(
            "start",
            "contain",
            CONTAIN,
            "cases stale_handle entry_flags faults refusals weights endpoint_share races exhaustion many_threads \
             slots_change_hands selectors thread_hogs sleep_quota late_answers direct_flags waits_outlive_handles",
        )],
        settings: "",
        programs: &["contain"],
        markers: &[
            "contain: stale_handle=ok",
            "contain: entry_flags=ok",
            "contain: faults=ok",
            "contain: refusals=ok",
            "contain: weights=ok",
            "contain: endpoint_share=ok",
            "contain: races=ok",
            "contain: exhaustion=ok",
            "contain: many_threads=ok",
            "contain: slots_change_hands=ok",
            "contain: selectors=ok",
            "contain: thread_hogs=ok",
            "contain: sleep_quota=ok",
            "contain: late_answers=ok",
            "contain: direct_flags=ok",
            "contain: waits_outlive_handles=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "families",
        about: "however many processes a program and its descendants make, others have their guaranteed places",
        cpus: &[1, 4],
        starts: &[
            ("serve", "contain", "console,timer,processes,info,serve:family", "neighbour"),
            (
                "start",
                "contain",
                "console,timer,processes,info,call:x,serve:x,call:family",
                "cases process_hogs",
            ),
        ],
        settings: "",
        programs: &["contain"],
        markers: &["contain: process_hogs=ok", "hard_path_allocations=0", "kernel: status=ok"],
        icount: false,
        seconds: 120,
    },
    Proof {
        name: "scheduling-context",
        about: "CPU time as authority: contexts are granted, made, bound, used up, refilled, told of and revoked",
        cpus: &[1, 2, 4, 8],
        starts: &[("start", "scheduling-context", CONTEXTS, "")],
        settings: "",
        programs: &["scheduling-context"],
        markers: &[
            "scheduling-context: bootstrap=ok",
            "scheduling-context: create=ok",
            "scheduling-context: bind=ok rebind=ok",
            "scheduling-context: depletion=ok dispatch_effect=budgetEnforced",
            "scheduling-context: throttling=ok refill=ok",
            "scheduling-context: notification_wait=ok",
            "scheduling-context: notification_coalescing=ok",
            "scheduling-context: exit_returns=ok",
            "scheduling-context: killed_while_throttled=ok",
            "scheduling-context: left_while_throttled=ok",
            "scheduling-context: makers_end=ok",
            "scheduling-context: hard_grants=ok",
            "scheduling-context: made_again=ok",
            "scheduling-context: smaller_pieces=ok",
            "scheduling-context: endpoint_donation=ok endpoint_donation_server=",
            "scheduling-context: endpoint_return=ok endpoint_donation_after=",
            "scheduling-context: endpoint_donor_block=ok endpoint_donor_block_elapsed_ns=",
            "scheduling-context: endpoint_donor_fast=ok endpoint_donor_fast_elapsed_ns=",
            "scheduling-context: endpoint_registers=ok",
            "scheduling-context: endpoint_asynchronous=ok",
            "scheduling-context: endpoint_donated_notification=ok",
            "scheduling-context: endpoint_fault=ok",
            "scheduling-context: endpoint_exception_return=ok endpoint_exception_return_after=",
            "scheduling-context: endpoint_invalid_result=ok endpoint_invalid_return=ok endpoint_invalid_return_after=",
            "scheduling-context: endpoint_nested=ok",
            "scheduling-context: endpoint_nested_rejected=ok endpoint_nested_after=",
            "scheduling-context: endpoint_blocking_rejected=ok",
            "scheduling-context: endpoint_own_context=ok",
            "scheduling-context: endpoint_timeout=ok deadline_notification=ok",
            "scheduling-context: endpoint_revoked=ok",
            "scheduling-context: endpoint_server_killed=ok",
            "scheduling-context: endpoint_caller_killed=ok",
            "scheduling-context: endpoint_dropped=ok",
            "scheduling-context: forged_ids=ok budget_exhausted=ok",
            "scheduling-context: counters=ok",
            "scheduling-context: stale_notification=staleGeneration",
            "scheduling-context: revoke=ok revoke_notification=explicitRevoke",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 120,
    },
    Proof {
        name: "scheduler-cpu-isolation-lease",
        about: "CPUs to oneself: grant, info, preflight, every ending and who hears of it, no tick, exact accounts, rollback",
        cpus: &[4],
        starts: &[("start", "cpu-isolation-lease", LEASES, "")],
        settings: "say idle",
        programs: &["cpu-isolation-lease"],
        markers: &[
            "cpu-isolation: kernel-idle hlt",
            "idle_path=cooperative-cpl0 nohz_active=true timer_source=lapic",
            "cpu-isolation-lease: refusals=ok",
            "cpu-isolation-lease: grant=ok info=ok preflight=ok revoke=ok",
            "cpu-isolation-lease: accounts=exact",
            "cpu-isolation-lease: tickless=ok ticks=0",
            "cpu-isolation-lease: context=ok",
            "cpu-isolation-lease: others_stay_away=ok",
            "cpu-isolation-lease: sleepers_leave=ok",
            "cpu-isolation-lease: bound_here=ok",
            "cpu-isolation-lease: rollback=ok",
            "cpu-isolation-lease: remote=ok",
            "cpu-isolation-lease: storm=ok",
            "cpu-isolation-lease: endings=ok",
            "cpu-isolation-lease: all=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "scheduler-generic-sqpoll-nohz",
        about: "rings that the kernel polls: start, wake, bounded service without a tick, who pays, stop, hostile rings",
        cpus: &[4],
        starts: &[(
            "start",
            "sqpoll-nohz",
            "console,timer,threads,control,processes,park,memory,info,leases,context:a=2000000/20000000",
            "",
        )],
        settings: "",
        programs: &["sqpoll-nohz"],
        markers: &[
            "sqpoll-nohz: refusals=ok",
            "sqpoll-nohz: served=ok",
            "sqpoll-nohz: producer_wake=ok",
            "sqpoll-nohz: tickless=ok",
            "sqpoll-nohz: charged=ok",
            "sqpoll-nohz: stop=ok",
            "sqpoll-nohz: counters=ok",
            "sqpoll-nohz: hostile=ok",
            "sqpoll-nohz: all=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "realtime-island",
        about: "realtime islands: refused as a whole, admitted with memory that is there, overrun, adjusted, shut down, ended",
        cpus: &[2, 4],
        starts: &[(
            "start",
            "realtime-island",
            "console,timer,threads,control,processes,park,memory,info,islands:90,call:lent,serve:lent,call:slow,serve:slow,\
             call:told,serve:told,context:rival=1500000/20000000:deadline=9000000:cpus=1",
            "",
        )],
        settings: "endpoint slow donation=off\n",
        programs: &["realtime-island"],
        markers: &[
            "realtime-island: refusals=ok",
            "realtime-island: together=ok",
            "realtime-island: memory=ok",
            "realtime-island: admitted_again=ok",
            "realtime-island: admitted=ok",
            "realtime-island: bound=ok overrun=ok",
            "realtime-island: served=ok",
            "realtime-island: adjusted=ok",
            "realtime-island: left=ok",
            "realtime-island: shutdown=ok",
            "realtime-island: process_exit=ok",
            "realtime-island: all=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 120,
    },
    Proof {
        name: "policy",
        about: "a policy service retunes a workload whose mix changes, is told other rules, and is started again",
        cpus: &[1],
        starts: &[("start", "policy-operator", OPERATOR, "")],
        settings: "",
        programs: &["policy", "policy-operator", "policy-victim"],
        markers: &[
            "policy: retuned=ok",
            "policy: reload=ok",
            "policy: restart=ok",
            "policy: all=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "policy-hostile",
        about: "policy services that crash, hang, are out of date, or ask for what they may not",
        cpus: &[4],
        starts: &[("start", "policy-operator", OPERATOR, "hostile")],
        settings: "",
        programs: &["policy", "policy-operator", "policy-victim"],
        markers: &[
            "policy-hostile: crash=ok",
            "policy: lost reason=exited",
            "policy-hostile: hang=ok",
            "policy: lost reason=silent",
            "policy-hostile: out_of_date=ok",
            "policy-hostile: threads_end=ok",
            "policy-hostile: bounds=ok",
            "policy-hostile: all=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "inversion",
        about: "a control loop meets its deadlines through a server without time of its own, because its calls lend theirs",
        cpus: &[1],
        starts: &[("start", "inversion", INVERSION, "")],
        settings: "endpoint off donation=off",
        programs: &["inversion"],
        markers: &["inversion: donation_misses=0", "inversion: avoided=ok", "kernel: status=ok"],
        icount: true,
        seconds: 180,
    },
    Proof {
        name: "deadlines",
        about: "calls that wait at an endpoint: by deadline where that is allowed, and dropped when they are late",
        cpus: &[1, 2, 4],
        starts: &[("start", "deadlines", DEADLINES, "")],
        settings: "endpoint ordered window=4",
        programs: &["deadlines"],
        markers: &[
            "deadlines: order=ok",
            "deadlines: late=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 120,
    },
    Proof {
        name: "session-context",
        about: "a session ends: its contexts end with it, and one on loan ends when it comes back",
        cpus: &[1, 2, 4],
        starts: &[
            ("start", "session-context", SESSION, ""),
            ("start", "session-context", "console,timer,session", "leave"),
            ("start", "session-context", HELD_SESSIONS, "hold"),
        ],
        settings: "",
        programs: &["session-context"],
        markers: &[
            "session: logout stale_marked=1 donation_inflight_skipped=1",
            "session-context: stale=ok",
            "session-context: returned_then_released=ok",
            "session-context: held=ok",
            "session: logout stale_marked=0 donation_inflight_skipped=0",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 120,
    },
    Proof {
        name: "donation-storm",
        about: "calls on contexts while callers and servers are killed, calls end early, and contexts are revoked",
        cpus: &[1, 2, 4, 8],
        starts: &[("start", "donation-storm", STORM, "")],
        settings: "",
        programs: &["donation-storm"],
        markers: &[
            "donation-storm: one_place=ok budgets=ok nobody_waits=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 300,
    },
    Proof {
        name: "passive-servers",
        about: "the same where servers that have no context serve on that of their endpoint",
        cpus: &[1, 2, 4, 8],
        starts: &[("start", "donation-storm", PASSIVE_STORM, "")],
        settings: "",
        programs: &["donation-storm"],
        markers: &[
            "donation-storm: passive_servers=ok",
            "donation-storm: one_place=ok budgets=ok nobody_waits=ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 300,
    },
    Proof {
        name: "hostile-memory",
        about: "attacks on memory: refused mappings, page tables, objects, W^X, hogs; neighbours do not notice",
        cpus: &[1, 2, 4, 8],
        starts: &[("start", "hostile-memory", ALL, "")],
        settings: "",
        programs: &["hostile-memory", "attack-memory", "child"],
        markers: &["hostile-memory: attacks=21 memory=ok", "kernel: status=ok"],
        icount: false,
        seconds: 300,
    },
    Proof {
        name: "network",
        about: "a driver in ring 3: TCP from the host, a flood within its budget, no ticks for TCP's timers, a killed driver replaced",
        cpus: &[1, 4],
        starts: &[
            ("start", "net-proof", NETWORK, crate::network::GUEST),
            ("serve", "net-echo", "console,timer,threads,control,call:net0", "7"),
            ("serve", "net-status", "console,timer,info,call:net1", ""),
        ],
        settings: "",
        programs: &["net", "net-proof", "net-echo", "net-status"],
        markers: &[
            "net: up address=10.0.2.15/24",
            "net-proof: refusals=ok",
            "net-proof: one_driver=ok",
            "network: echo connections=64 at once",
            "network: status page, and wrong requests refused",
            "network: idle second ticks=0",
            "network: flood",
            "net-proof: restarting",
            "network: a driver that was killed is replaced",
            "net-proof: ok",
            "hard_path_allocations=0",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 400,
    },
];

/// What runs on the kernel that measures: cases, and what is counted in each.
pub const MEASURED: &[Proof] = &[
    Proof {
        name: "evidence",
        about: "what a kernel that measures counts, case by case, is what happened",
        cpus: &[2],
        starts: &[("start", "evidence", ALL, "")],
        settings: "",
        programs: &["evidence", "child"],
        markers: &[
            "measure: diagnostic case=registers Decisions=",
            "measure: diagnostic case=registers user_pc=0x",
            "measure: diagnostic case=memory Decisions=",
            "measure: diagnostic case=lines-apart Decisions=",
            "measure: diagnostic case=one-line Decisions=",
            "measure: diagnostic case=total Decisions=",
            "evidence: segments=ok",
            "evidence: wakes=ok",
            "evidence: switches=ok said=false",
            "evidence: all=ok",
            "kernel: status=ok",
        ],
        icount: false,
        seconds: 180,
    },
    Proof {
        name: "evidence-said",
        about: "the same, with each switch said on the serial line",
        cpus: &[2],
        starts: &[("start", "evidence", ALL, "said")],
        settings: "say switches",
        programs: &["evidence", "child"],
        markers: &["evidence: switches=ok said=true", "evidence: all=ok", "kernel: status=ok"],
        icount: false,
        seconds: 180,
    },
];

/// What `make bench-kernel` runs: figures instead of claims.
pub const BENCH: Proof = Proof {
    name: "bench",
    about: "instructions of the kernel's paths",
    cpus: &[1],
    starts: &[
        ("serve", "echo", "console,serve:echo", ""),
        ("serve", "echo", "console,serve:direct", "direct"),
        ("start", "bench", BENCH_CAPS, ""),
    ],
    settings: "",
    programs: &["bench", "echo", "child"],
    markers: &[
        "bench: endpoint_round_trip=",
        "bench: direct_round_trip=",
        "bench: done=ok",
        "kernel: status=ok",
    ],
    icount: true,
    seconds: 120,
};

/// The same with contexts: what they cost, and what they cost those who have none.
pub const BENCH_DONATION: Proof = Proof {
    name: "bench-donation",
    about: "instructions of calls on the caller's time, of depletion and refill",
    cpus: &[1],
    starts: &[
        ("serve", "echo", "console,serve:echo", ""),
        ("serve", "echo", "console,serve:direct", "direct"),
        ("start", "bench-donation", DONATION_CAPS, ""),
    ],
    settings: "",
    programs: &["bench-donation", "echo"],
    markers: &[
        "bench: context_bind_and_unbind=",
        "bench: endpoint_round_trip_beside_contexts=",
        "bench: direct_round_trip_beside_contexts=",
        "bench: endpoint_round_trip_donating=",
        "bench: direct_round_trip_donating=",
        "bench: refill_to_running=",
        "bench: depletion_to_throttled=",
        "bench: context_overshoot=",
        "bench: donation=ok",
        "kernel: status=ok",
    ],
    icount: true,
    seconds: 120,
};

/// What a request that does nothing costs with a poller, and without one.
pub const BENCH_SQPOLL: Proof = Proof {
    name: "bench-sqpoll",
    about: "instructions of a request that does nothing, entered and polled",
    cpus: &[2],
    starts: &[("start", "bench-sqpoll", "console,timer,threads,control,info,leases", "")],
    settings: "",
    programs: &["bench-sqpoll"],
    markers: &["bench: nop_entered=", "bench: nop_polled=", "bench: sqpoll=ok", "kernel: status=ok"],
    icount: true,
    seconds: 120,
};

/// What a flood of packets costs a client of the network process.
pub const BENCH_NETWORK: Proof = Proof {
    name: "bench-network",
    about: "how long calls to the network process take, with and without a flood",
    cpus: &[1],
    starts: &[
        ("start", "net-proof", BENCH_NETWORK_CAPS, crate::network::GUEST),
        ("serve", "net-echo", "console,timer,threads,control,call:net0", "7"),
        ("serve", "net-status", "console,timer,info,call:net1", ""),
        // The machine is never idle: the time that it counts would leap then, and the host's flood stay behind.
        ("serve", "policy-victim", "console", ""),
    ],
    settings: "",
    programs: &["net", "net-proof", "net-echo", "net-status", "policy-victim"],
    markers: &[
        "bench: network_call_p99=",
        "bench: network_call_p99_flooded=",
        "bench: network_call_p99_percent=",
        "kernel: status=ok",
    ],
    icount: true,
    seconds: 200,
};

/// The most that figures of the benchmarks may be: instructions, unless it says otherwise.
const LIMITS: &[(&str, u64)] = &[
    ("endpoint_round_trip", 2_500),
    ("direct_round_trip", 1_400),
    ("endpoint_round_trip_donating", 2_900),
    ("direct_round_trip_donating", 1_700),
    ("context_overshoot", 2_000),
    // Per cent of what an entry costs, and of what it is without a flood.
    ("nop_polled_percent", 60),
    ("network_call_p99_percent", 200),
];

/// The first figure of a benchmark that is beyond its limit.
fn beyond_limit(serial: &[String]) -> Option<String> {
    let figures = serial.iter().filter_map(|line| line.strip_prefix("bench: ")?.split_once('='));
    figures.into_iter().find_map(|(name, figure)| {
        let (_, limit) = LIMITS.iter().find(|(limited, _)| *limited == name)?;
        let figure = figure.trim().parse::<u64>().ok()?;
        (figure > *limit).then(|| format!("{name} is {figure}, and may be {limit}"))
    })
}

/// What `make bench-kernel` runs on the kernel that measures: for how long interrupts are off at most.
pub const LONGEST: Proof = Proof {
    name: "bench-longest",
    about: "the longest stretch with interrupts off, over the worst requests",
    cpus: &[1],
    starts: &[("start", "bench-longest", LONGEST_CAPS, "")],
    settings: "",
    programs: &["bench-longest"],
    markers: &[
        "bench: longest=done",
        "measure: diagnostic case=map interrupts_off=",
        "measure: diagnostic longest interrupts_off counts=",
        "kernel: status=ok",
    ],
    icount: true,
    seconds: 150,
};

/// Instructions for which interrupts may be off.
const MOST_INSTRUCTIONS: u64 = 100_000;

const LONGEST_CAPS: &str = "console,timer,threads,control,processes,park,memory,info,call:x,serve:x,session,policy-service,islands:90,\
     context:a=2000000/20000000,context:b=1000000/20000000,time:80";
/// Seven tenths of the CPU, so that the round trips never use it up.
const DONATION_CAPS: &str = "console,timer,threads,control,park,info,call:echo,call:direct,\
     context:a=70000000/100000000,time:20";
/// As for the proof, and a context for the client.
const BENCH_NETWORK_CAPS: &str = "console,timer,threads,control,processes,memory,info,device:1af4.1041,\
     context:net=8000000/20000000,context:victim=3000000/10000000,serve:net0,serve:net1,serve:net2,call:net2";
const BENCH_CAPS: &str = "console,timer,threads,control,processes,park,policy,info,call:echo,call:direct";

/// The proof called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Proof> {
    PROOFS
        .iter()
        .chain(MEASURED)
        .chain([&BENCH, &BENCH_DONATION, &BENCH_SQPOLL, &BENCH_NETWORK, &LONGEST])
        .find(|proof| proof.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str], code: Option<i32>) -> Run {
        Run {
            serial: lines.iter().map(|line| (*line).to_owned()).collect(),
            used_ns: Vec::new(),
            code,
            took: Duration::ZERO,
            console: Vec::new(),
        }
    }

    #[test]
    fn a_proof_holds_only_with_every_marker_and_a_good_end() {
        let proof = Proof { markers: &["one", "two"], ..PROOFS[0] };
        assert_eq!(proof.complaint(&run(&["x one", "two y"], Some(SUCCESS))), None);
        assert!(proof.complaint(&run(&["x one"], Some(SUCCESS))).is_some());
        assert!(proof.complaint(&run(&["one", "two"], Some(3))).is_some());
        assert!(proof.complaint(&run(&["one", "two"], None)).is_some());
    }

    #[test]
    fn a_figure_beyond_its_limit_fails_the_bench() {
        let proof = Proof { markers: &["bench: done=ok"], ..BENCH };
        let told =
            |figure| run(&[&format!("bench: direct_round_trip={figure}"), "bench: done=ok"], Some(SUCCESS));
        assert_eq!(proof.complaint(&told(1_400)), None);
        assert_eq!(
            proof.complaint(&told(1_401)).as_deref(),
            Some("direct_round_trip is 1401, and may be 1400")
        );
    }

    #[test]
    fn every_proof_that_compares_times_is_a_proof() {
        for name in COMPARE_TIMES {
            assert!(find(name).is_some_and(Proof::compares_times), "{name}");
        }
    }

    #[test]
    fn a_checked_run_has_looked_at_every_invariant() {
        let looked = CheckCounts { leaves: 9, halts: 5, services: 2, requests: 3, refusals: 0 };
        let judged = |build, idle_halts, checks| {
            unchecked(build, 2, &Trailer { idle_halts, checks, ..Trailer::default() })
        };
        assert_eq!(judged(Build::Checked, 5, looked), None);
        assert_eq!(judged(Build::Checked, 0, CheckCounts { halts: 0, ..looked }), None, "it never halted");
        assert_eq!(judged(Build::Checked, 7, looked), None, "both CPUs were about to look");
        assert!(judged(Build::Checked, 8, looked).is_some());
        assert!(judged(Build::Checked, 5, CheckCounts { leaves: 0, ..looked }).is_some());
        assert!(judged(Build::Checked, 5, CheckCounts { services: 0, ..looked }).is_some());
        assert!(judged(Build::Checked, 5, CheckCounts { requests: 0, ..looked }).is_some());
        assert_eq!(judged(Build::Plain, 8, CheckCounts::default()), None);
    }

    //= OWN:kernel.irq-off
    #[test]
    fn a_stretch_with_interrupts_off_for_too_long_fails_the_bench() {
        let longest = |counts| Trailer { longest_interrupts_off: counts, ..Trailer::default() };
        assert_eq!(LONGEST.judge(Build::Measured, 1, Ok(longest(MOST_INSTRUCTIONS))), None);
        assert!(LONGEST.judge(Build::Measured, 1, Ok(longest(MOST_INSTRUCTIONS + 1))).is_some());
        assert_eq!(PROOFS[0].judge(Build::Measured, 1, Ok(longest(u64::MAX))), None);
    }

    //= OWN:kernel.charge-all
    #[test]
    fn a_run_holds_only_if_all_memory_came_back() {
        assert_eq!(PROOFS[0].judge(Build::Plain, 1, Ok(Trailer::default())), None);
        let frames = Trailer { frames_lost: 1, ..Trailer::default() };
        let heap = Trailer { heap_lost: -8, ..Trailer::default() };
        assert!(PROOFS[0].judge(Build::Plain, 1, Ok(frames)).is_some());
        assert!(PROOFS[0].judge(Build::Plain, 1, Ok(heap)).is_some());
        assert!(PROOFS[0].judge(Build::Plain, 1, Err(FrameError::NoEnd)).is_some());
    }

    #[test]
    fn a_failure_shows_the_tail_and_how_to_repeat_it() {
        let text = PROOFS[0].explain(2, Build::Checked, &run(&["last words"], None), "it hung");
        assert!(text.contains("last words") && text.contains("make run-smoke CPUS=2 CHECKED=1"), "{text}");
    }

    #[test]
    fn every_proof_names_programs_that_its_manifest_starts() {
        for proof in PROOFS.iter().chain(MEASURED) {
            for (how, program, _, _) in proof.starts {
                assert!(["start", "serve"].contains(how), "{}: {how}", proof.name);
                assert!(proof.programs.contains(program), "{}: {program}", proof.name);
            }
        }
    }
}
