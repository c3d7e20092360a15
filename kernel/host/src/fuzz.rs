//! The fuzzer of the kernel's system calls: programs that call everything with anything, beside an honest neighbour, on the
//! kernel that checks itself. A failure says how to repeat it.

use crate::image::{self, Build};
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
    /// Which kernel.
    pub build: Build,
}

const PROGRAMS: &[&str] = &["fuzz", "fuzz-neighbour"];
const NEIGHBOUR: &str = "console,timer,threads,control,park,memory,info,call:public,serve:public,serve:judge";
const BOSS: &str = "console,timer,threads,control,processes,park,memory,policy,info,call:free,serve:free,call:public,call:judge";
/// Texts that must all appear in the serial output.
const MARKERS: &[&str] = &["fuzz: nothing_is_missing=ok", "neighbour: unharmed=ok", "kernel: status=ok"];
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
        format!("start fuzz-neighbour {NEIGHBOUR}\nstart fuzz {BOSS} -- boss {} {}\n", self.seed, self.calls)
    }

    /// How long it may take: a machine that stands still has failed.
    fn deadline(&self) -> Duration {
        Duration::from_secs(120 + self.calls / 500)
    }

    /// Runs it; how it went, or what did not hold and how to repeat it.
    pub fn run(&self, watch: impl FnMut(&str)) -> Result<Run, (String, Vec<String>)> {
        let refused = |error: RunError| (error.to_string(), Vec::new());
        let cpus = if self.replay { 1 } else { self.cpus };
        let machine = Machine { cpus, icount: self.replay, build: self.build, ..Machine::default() };
        let image = image::build(&self.manifest(), PROGRAMS, &[]).map_err(|error| refused(error.into()))?;
        let run = machine.run(&image, self.deadline(), watch).map_err(refused)?;
        match complaint(&run) {
            None => Ok(run),
            Some(what) => Err((self.explain(&run, &what), run.serial)),
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
        if self.build == Build::Plain {
            text.push_str(" PLAIN=1");
        }
        text
    }
}

/// What is wrong with a run: the first complaint on the serial line, or the first marker that is missing there.
fn complaint(run: &Run) -> Option<String> {
    let said = |what: &str| run.serial.iter().find(|line| line.contains(what)).cloned();
    if let Some(line) = said("PANIC").or_else(|| said(" HARM ")).or_else(|| said(" LEAK ")) {
        return Some(line);
    }
    match run.code {
        None => Some("its time passed, and the machine did not end".to_owned()),
        Some(SUCCESS) => {
            let missing = MARKERS.iter().find(|marker| said(marker).is_none())?;
            Some(format!("the marker `{missing}` is missing"))
        }
        Some(code) => Some(format!("the machine ended with code {code}, not {SUCCESS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUZZ: Fuzz = Fuzz { seed: 7, calls: 1000, cpus: 4, replay: false, build: Build::Checked };

    fn run(lines: &[&str], code: Option<i32>) -> Run {
        let serial = lines.iter().map(|line| (*line).to_owned()).collect();
        Run { serial, used_ns: Vec::new(), code, took: Duration::ZERO, console: Vec::new() }
    }

    #[test]
    fn a_run_is_good_only_with_every_marker_a_good_end_and_no_complaint() {
        let good = MARKERS.to_vec();
        assert_eq!(complaint(&run(&good, Some(SUCCESS))), None);
        assert!(complaint(&run(&good[1..], Some(SUCCESS))).is_some());
        assert!(complaint(&run(&good, Some(3))).is_some());
        assert!(complaint(&run(&good, None)).is_some());
        for bad in ["PANIC cpu=1: x", "neighbour: HARM x", "fuzz: LEAK before x"] {
            let lines: Vec<&str> = [bad].into_iter().chain(good.iter().copied()).collect();
            assert_eq!(complaint(&run(&lines, Some(SUCCESS))).as_deref(), Some(bad));
        }
    }

    #[test]
    fn a_failure_says_how_to_repeat_it() {
        let text = FUZZ.explain(&run(&["last words"], None), "it hung");
        assert!(text.contains("last words"), "{text}");
        assert!(text.contains("make fuzz-kernel SEED=7 CPUS=4 CALLS=1000"), "{text}");
        let replay = Fuzz { replay: true, build: Build::Plain, ..FUZZ };
        assert!(replay.command().ends_with(" REPLAY=1 PLAIN=1"));
    }
}
