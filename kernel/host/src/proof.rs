//! Proofs: a manifest, programs that try something in ring 3, and the lines that must come of it.

use crate::image;
use crate::qemu::{Machine, Run, RunError, SUCCESS};
use std::fmt::Write;
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
    /// The boot manifest.
    pub manifest: &'static str,
    /// Programs of the boot image.
    pub programs: &'static [&'static str],
    /// Texts that must all appear in the serial output, each in a line of its own.
    pub markers: &'static [&'static str],
    /// Seconds after which it has failed.
    pub seconds: u64,
}

/// Lines of the serial output that a failure shows.
const TAIL: usize = 40;

impl Proof {
    /// Runs it on one machine; `Err` says what did not hold, for people.
    pub fn run(&self, cpus: u32, watch: impl FnMut(&str)) -> Result<Run, String> {
        let machine = Machine { cpus, ..Machine::default() };
        let image = image::build(self.manifest, self.programs, &[]).map_err(|error| error.to_string())?;
        let run = machine
            .run(&image, Duration::from_secs(self.seconds), watch)
            .map_err(|error: RunError| error.to_string())?;
        match self.complaint(&run) {
            None => Ok(run),
            Some(what) => Err(self.explain(cpus, &run, &what)),
        }
    }

    /// What is wrong with a run.
    fn complaint(&self, run: &Run) -> Option<String> {
        let missing = self.markers.iter().find(|marker| !run.serial.iter().any(|line| line.contains(**marker)));
        match (run.code, missing) {
            (None, Some(marker)) => Some(format!("{} s passed without the marker `{marker}`", self.seconds)),
            (None, None) => Some(format!("{} s passed and the machine did not end", self.seconds)),
            (Some(SUCCESS), None) => None,
            (Some(SUCCESS), Some(marker)) => Some(format!("the marker `{marker}` is missing")),
            (Some(code), _) => Some(format!("the machine ended with code {code}, not {SUCCESS}")),
        }
    }

    fn explain(&self, cpus: u32, run: &Run, what: &str) -> String {
        let mut text = format!("{} on {cpus} CPUs: {what}\n", self.name);
        let from = run.serial.len().saturating_sub(TAIL);
        let _ = writeln!(text, "--- the last {} lines of the serial output", run.serial.len() - from);
        for line in &run.serial[from..] {
            let _ = writeln!(text, "  {line}");
        }
        let _ = write!(text, "--- again: make run-{} CPUS={cpus}", self.name);
        text
    }
}

/// All proofs.
pub const PROOFS: &[Proof] = &[Proof {
    name: "smoke",
    about: "boot, timer preemption, handoff, blocked waits, exit, clean halt",
    cpus: &[1],
    manifest: "start smoke console,timer,threads,control,park,info,policy\n",
    programs: &["smoke"],
    markers: &["smoke: hello from ring 3", "kernel: status=ok"],
    seconds: 20,
}];

/// The proof called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Proof> {
    PROOFS.iter().find(|proof| proof.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str], code: Option<i32>) -> Run {
        Run { serial: lines.iter().map(|line| (*line).to_owned()).collect(), code, took: Duration::ZERO }
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
    fn a_failure_shows_the_tail_and_how_to_repeat_it() {
        let text = PROOFS[0].explain(2, &run(&["last words"], None), "it hung");
        assert!(text.contains("last words") && text.contains("make run-smoke CPUS=2"), "{text}");
    }

    #[test]
    fn every_proof_names_programs_that_its_manifest_starts() {
        for proof in PROOFS {
            for line in proof.manifest.lines().filter(|line| line.starts_with("start ")) {
                let program = line.split_whitespace().nth(1).expect("a start line names a program");
                assert!(proof.programs.contains(&program), "{}: {program}", proof.name);
            }
        }
    }
}
