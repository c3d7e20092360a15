//! `mainspring sweep-runner`: makes runs of sweeps for a worker, which writes jobs to standard input and reads results.
//!
//! Conserved: a result belongs to the text, the settings and the version that its fingerprint stands for. A worker that computes
//! another fingerprint does not run the job.

use super::{Result, fingerprint};
use crate::args::FailOn;
use crate::failure::Failure;
use mainspring_sim::{Options, RunError};
use mainspring_workload::{Workload, parse};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufWriter, Write as _};

/// A workload that jobs name.
struct Known {
    name: String,
    fail_on: Option<FailOn>,
    workload: Workload,
}

/// Answers each line until standard input ends.
pub fn run() -> std::result::Result<(), Failure> {
    let mut known: HashMap<String, Known> = HashMap::new();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        // Its worker has gone.
        let Ok(line) = line else { return Ok(()) };
        let ask: Value = serde_json::from_str(&line).unwrap_or_default();
        let reply = match (ask.get("workload"), ask.get("run")) {
            (Some(workload), _) => match learn(workload) {
                Ok((of, one)) => {
                    known.insert(of.clone(), one);
                    json!({ "ready": of })
                }
                Err(why) => json!({ "refused": why }),
            },
            (None, Some(job)) => answer(&known, job),
            _ => json!({ "refused": "a line that is neither a workload nor a job" }),
        };
        writeln!(out, "{reply}").and_then(|()| out.flush()).map_err(Failure::Print)?;
    }
    Ok(())
}

fn learn(given: &Value) -> std::result::Result<(String, Known), String> {
    let text = |key: &str| given.get(key).and_then(Value::as_str).ok_or_else(|| format!("no {key}"));
    let (of, name, source) = (text("of")?, text("name")?, text("text")?);
    let fail_on = match given.get("fail_on").and_then(Value::as_str) {
        None => None,
        Some("misses") => Some(FailOn::Misses),
        Some(other) => return Err(format!("{name}: this version knows no --fail-on {other}")),
    };
    if fingerprint(source, fail_on) != of {
        let version = env!("CARGO_PKG_VERSION");
        return Err(format!("{name}: its sweep is of another version of mainspring than {version}"));
    }
    let workload = parse(name, source).map_err(|_| format!("{name}: no workload to this version"))?;
    Ok((of.to_owned(), Known { name: name.to_owned(), fail_on, workload }))
}

fn answer(known: &HashMap<String, Known>, job: &Value) -> Value {
    let of = job.get("of").and_then(Value::as_str).unwrap_or_default();
    let seed = job.get("seed").and_then(Value::as_u64).unwrap_or_default();
    let came = match known.get(of) {
        None => json!({ "failed": "a job of a workload that is not known here" }),
        Some(one) => match result(one, seed, job.get("to").and_then(Value::as_str)) {
            Ok(result) => json!({ "line": result.line(of, "") }),
            Err(error) => json!({ "failed": error.to_string() }),
        },
    };
    let record = job.get("record").and_then(Value::as_bool).unwrap_or_default();
    json!({ "done": { "of": of, "seed": seed, "record": record, "came": came } })
}

fn result(one: &Known, seed: u64, to: Option<&str>) -> std::result::Result<Result, RunError> {
    let mut record =
        to.map(|to| File::create(to).map(BufWriter::new)).transpose().map_err(RunError::Record)?;
    let options = Options {
        seed,
        record: record.as_mut().map(|writer| Box::new(writer) as Box<dyn io::Write + '_>),
        ..Options::default()
    };
    let report = mainspring_sim::run(&one.name, &one.workload, options)?;
    record.map_or(Ok(()), |mut writer| writer.flush()).map_err(RunError::Record)?;
    Ok(Result::of(&one.workload, one.fail_on, &report))
}
