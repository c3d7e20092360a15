//! What a machine that is not simulated leaves behind: a record of each of its cores, made into a file and a report.
//!
//! Everything in the report is computed from the record, by making each decision again. So a record that does not replay is
//! an error, and a report that is printed is also a replay without a difference.

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::input;
use mainspring_record::file::{Header, Recorder};
use mainspring_record::report::RecordReport;
use mainspring_record::verify::verify;
use mainspring_record::{Log, ReplayError};
use mainspring_report::Report;
use mainspring_workload::Workload;
use std::io::Write;
use std::time::Instant;

/// A run that is over.
pub struct Recorded<'a> {
    /// The machine's name in the report.
    pub machine: &'static str,
    pub args: &'a RunArgs,
    pub workload: &'a Workload,
    /// Seats that each core had.
    pub seats: usize,
    /// Names of the threads by their index.
    pub threads: Vec<String>,
    pub started: Instant,
}

/// What came of it.
pub struct Played {
    pub report: Report,
    /// What the checkers found, if they were asked.
    pub fault: Option<ReplayError>,
}

impl Recorded<'_> {
    /// Plays the record, writes it to `out`, and reports. Playing spends the events, so `read` is asked for them twice.
    pub fn report(
        self,
        read: impl Fn() -> Result<Log, Failure>,
        wrong: impl FnOnce(ReplayError) -> Failure,
        out: Option<&mut dyn Write>,
    ) -> Result<Played, Failure> {
        let machine = &self.workload.machine;
        let header = Header {
            workload: input::name(&self.args.file),
            seed: self.args.seed,
            cpus: machine.cpus,
            seats: self.seats,
            policy: machine.policy,
            quantum: machine.quantum,
            tick: machine.tick,
            floor_ppm: machine.floor_ppm,
            threads: self.threads,
        };
        let played = RecordReport::of(&header, read()?).map_err(wrong)?;
        if let Some(out) = out {
            let log = read()?;
            Recorder::new(Box::new(out), &header)
                .and_then(|recorder| log.write(recorder, &played.digest()))
                .map_err(|cause| Failure::Write {
                    path: self.args.record.clone().unwrap_or_default(),
                    cause,
                })?;
        }
        // The record is written by now: whoever is told of a fault has it.
        let fault = if self.args.verify { verify(&header, read()?).err() } else { None };
        Ok(Played { report: played.report(self.machine, &header, self.started.elapsed()), fault })
    }
}
