//! The fuzzer of the kernel's system calls: programs that call everything with anything, beside an honest neighbour, on the
//! kernel that checks itself. A failure says how to repeat it.

use crate::image::{self, Build};
use crate::network::Network;
use crate::proof::lost_memory;
use crate::qemu::{Machine, Run, RunError, SUCCESS};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One run of the fuzzer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fuzz {
    /// What the calls depend on.
    pub seed: u64,
    /// How many there are to be.
    pub calls: u64,
    /// How many CPUs the machine has.
    pub cpus: u32,
    /// Whether time counts instructions, on one CPU: the whole run repeats.
    pub replay: bool,
    /// Whether there is a network card, whose driver is fuzzed too.
    ///
    /// Each driver begins and ends by moving the card's registers in and out of the machine's memory. QEMU before 8.2 may crash
    /// when one of its threads does that while another reaches any register, of an interrupt controller say. So the CPUs of a
    /// machine with a card take turns on one thread, and only some runs have one.
    pub card: bool,
    /// Which kernel.
    pub build: Build,
}

const PROGRAMS: &[&str] = &["fuzz", "fuzz-neighbour"];
/// The neighbour's own context, and as much time as its servers have.
const NEIGHBOUR: &str = "console,timer,threads,control,park,memory,info,call:public,serve:public,serve:judge,\
     call:own,serve:own,context:own=1000000/20000000,time:12";
/// What fuzzers get of contexts is made from one.
const BOSS: &str = "console,timer,threads,control,processes,park,memory,policy,info,call:free,serve:free,call:public,call:judge,leases,\
     islands:5,policy-service,context:root=2000000/20000000,time:20";
/// The network card, for a machine that has one.
const CARD: &str = "device:1af4.1041";
/// Whoever lodges begins a session. They end before the boss begins to count.
const LODGER: &str = "console,timer,threads,control,processes,park,memory,policy,info,call:free,serve:free,call:public,\
     session,context:a=200000/20000000,context:b=20000/60000000000,time:5";
const LODGERS: u64 = 3;
/// Texts that must all appear in the serial output.
const MARKERS: &[&str] = &["fuzz: nothing_is_missing=ok", "neighbour: unharmed=ok", "kernel: status=ok"];
/// The marker of a run of [`ENOUGH_CALLS`]: each method was asked for.
const EVERY_METHOD: &str = "fuzz: every_method=ok";
/// So many calls that the least likely method is among them.
const ENOUGH_CALLS: u64 = 200_000;
/// Lines of the serial output that a failure shows.
const TAIL: usize = 30;

impl Fuzz {
    /// A seed from the clock, for a run without a chosen one.
    #[must_use]
    pub fn any_seed() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs() << 20 & 0xffff_ffff
    }

    fn manifest(&self) -> String {
        let mut text = format!("start fuzz-neighbour {NEIGHBOUR}\n");
        for number in 0..LODGERS {
            let _ = writeln!(text, "start fuzz {LODGER} -- lodger {}", self.seed + number);
        }
        let card = if self.card { format!(",{CARD}") } else { String::new() };
        let _ = writeln!(text, "start fuzz {BOSS}{card} -- boss {} {}", self.seed, self.calls);
        text
    }

    /// How long it may take: a machine that stands still has failed.
    fn deadline(&self) -> Duration {
        Duration::from_secs(120 + self.calls / 500)
    }

    /// Runs it; how it went, or what did not hold and how to repeat it.
    pub fn run(&self, watch: impl FnMut(&str)) -> Result<Run, (String, Vec<String>)> {
        let refused = |error: RunError| (error.to_string(), Vec::new());
        let cpus = if self.replay { 1 } else { self.cpus };
        let machine = Machine {
            cpus,
            icount: self.replay,
            one_thread: self.card,
            build: self.build,
            // One that leads nowhere: the network is not fuzzed.
            network: self.card.then(Network::default),
            ..Machine::default()
        };
        let image = image::build(&self.manifest(), PROGRAMS, &[]).map_err(|error| refused(error.into()))?;
        let run = machine.run(&image, self.deadline(), watch).map_err(refused)?;
        match self.complaint(&run).or_else(|| lost_memory(run.trailer())) {
            None => Ok(run),
            Some(what) => Err((self.explain(&run, &what), run.serial)),
        }
    }

    /// What is wrong with a run: the first complaint on the serial line, or the first marker that is missing there.
    fn complaint(&self, run: &Run) -> Option<String> {
        let said = |what: &str| run.serial.iter().find(|line| line.contains(what)).cloned();
        if let Some(line) = said("PANIC").or_else(|| said(" HARM ")).or_else(|| said(" LEAK ")) {
            return Some(line);
        }
        match run.code {
            None => Some("its time passed, and the machine did not end".to_owned()),
            Some(SUCCESS) => {
                let all = (self.calls >= ENOUGH_CALLS).then_some(&EVERY_METHOD);
                let missing = MARKERS.iter().chain(all).find(|marker| said(marker).is_none())?;
                Some(format!("the marker `{missing}` is missing"))
            }
            Some(code) => Some(format!("the machine ended with code {code}, not {SUCCESS}")),
        }
    }

    fn explain(&self, run: &Run, what: &str) -> String {
        let mut text = format!("fuzz seed={} on {} CPUs: {what}\n", self.seed, self.cpus);
        let from = run.serial.len().saturating_sub(TAIL);
        let _ = writeln!(text, "--- the last {} lines of the serial output", run.serial.len() - from);
        for line in &run.serial[from..] {
            let _ = writeln!(text, "  {line}");
        }
        let _ = write!(text, "--- again: {}", self.command());
        text
    }

    /// The command that repeats it.
    #[must_use]
    pub fn command(&self) -> String {
        let mut text = format!("make fuzz-kernel SEED={} CPUS={} CALLS={}", self.seed, self.cpus, self.calls);
        if self.replay {
            text.push_str(" REPLAY=1");
        }
        if self.card {
            text.push_str(" CARD=1");
        }
        if self.build == Build::Plain {
            text.push_str(" PLAIN=1");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUZZ: Fuzz =
        Fuzz { seed: 7, calls: 1000, cpus: 4, replay: false, card: false, build: Build::Checked };

    fn run(lines: &[&str], code: Option<i32>) -> Run {
        let serial = lines.iter().map(|line| (*line).to_owned()).collect();
        Run { serial, used_ns: Vec::new(), code, took: Duration::ZERO, console: Vec::new() }
    }

    #[test]
    fn a_run_is_good_only_with_every_marker_a_good_end_and_no_complaint() {
        let good = MARKERS.to_vec();
        let complaint = |run| FUZZ.complaint(&run);
        assert_eq!(complaint(run(&good, Some(SUCCESS))), None);
        assert!(complaint(run(&good[1..], Some(SUCCESS))).is_some());
        assert!(complaint(run(&good, Some(3))).is_some());
        assert!(complaint(run(&good, None)).is_some());
        for bad in ["PANIC cpu=1: x", "neighbour: HARM x", "fuzz: LEAK before x"] {
            let lines: Vec<&str> = [bad].into_iter().chain(good.iter().copied()).collect();
            assert_eq!(complaint(run(&lines, Some(SUCCESS))).as_deref(), Some(bad));
        }
    }

    #[test]
    fn a_long_run_is_good_only_if_each_method_was_asked_for() {
        let long = Fuzz { calls: ENOUGH_CALLS, ..FUZZ };
        let some = MARKERS.to_vec();
        assert!(long.complaint(&run(&some, Some(SUCCESS))).is_some());
        let all: Vec<&str> = some.into_iter().chain([EVERY_METHOD]).collect();
        assert_eq!(long.complaint(&run(&all, Some(SUCCESS))), None);
    }

    #[test]
    fn a_failure_says_how_to_repeat_it() {
        let text = FUZZ.explain(&run(&["last words"], None), "it hung");
        assert!(text.contains("last words"), "{text}");
        assert!(text.contains("make fuzz-kernel SEED=7 CPUS=4 CALLS=1000"), "{text}");
        let replay = Fuzz { replay: true, card: true, build: Build::Plain, ..FUZZ };
        assert!(replay.command().ends_with(" REPLAY=1 CARD=1 PLAIN=1"));
    }
}
