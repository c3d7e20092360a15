//! What a workload expects of its runs, compared with a run.

use mainspring_abi::Nanos;
use mainspring_report::{Expected, Report, ThreadReport, Worst, instant};
use mainspring_workload::{Condition, ContextTarget, Expectation, Quantile, Subject, ThreadTarget, Workload};

/// What came of each expectation of `workload`, in the order of the file.
pub fn check(workload: &Workload, report: &Report) -> Vec<Expected> {
    workload.expectations.iter().map(|expectation| one(workload, expectation, report)).collect()
}

/// What `--fail-on misses` asks for.
pub fn no_misses(report: &Report) -> Expected {
    Expected {
        what: "no misses".to_owned(),
        found: misses_of_run(report),
        held: report.misses_total == 0,
        line: None,
    }
}

fn misses_of_run(report: &Report) -> String {
    match report.misses.first() {
        None => format!("{} misses", report.misses_total),
        Some(first) => {
            let whose = first.context.as_ref().or(first.thread.as_ref()).map_or("", String::as_str);
            format!("{} misses, the first of {whose} at {}", report.misses_total, instant(first.time_ns))
        }
    }
}

/// Something that was found: in words, and whether it is as expected.
struct Found {
    text: String,
    held: bool,
}

fn one(workload: &Workload, expectation: &Expectation, report: &Report) -> Expected {
    let Expectation { subject, condition, line } = expectation;
    let found = match *subject {
        Subject::Run => of_run(*condition, report),
        Subject::Thread(target) => worst(threads(workload, target), |name| {
            let row = report.threads.iter().find(|row| row.name == name)?;
            Some(of_thread(*condition, row, report))
        }),
        Subject::Context(target) => worst(contexts(workload, target), |name| {
            let row = report.contexts.iter().find(|row| row.name == name)?;
            Some(at_most(*condition, row.misses))
        }),
        Subject::Endpoint(endpoint) => {
            let name = &workload.endpoints[endpoint].name;
            let row = report.endpoints.iter().find(|row| row.name == *name);
            let latency = row.and_then(|row| row.latency_ns.as_ref());
            of_time(*condition, latency, "no call was answered")
        }
    };
    Expected {
        what: format!("{}: {condition}", subject.name(workload)),
        found: found.text,
        held: found.held,
        line: Some(*line as u64),
    }
}

/// The first of `names` that is not as expected, or else the last.
fn worst(names: Vec<String>, of: impl Fn(&str) -> Option<Found>) -> Found {
    let several = names.len() > 1;
    let mut last = Found { text: "it is not in the report".to_owned(), held: false };
    for name in names {
        last = of(&name).unwrap_or(Found { text: "it is not in the report".to_owned(), held: false });
        if !last.held {
            if several {
                last.text = format!("{name}: {}", last.text);
            }
            return last;
        }
    }
    if several {
        last.text = format!("the last of them: {}", last.text);
    }
    last
}

fn threads(workload: &Workload, target: ThreadTarget) -> Vec<String> {
    let spec = &workload.threads[target.thread];
    match target.instance {
        Some(instance) => vec![spec.instance_name(instance as usize)],
        None => (0..spec.instances()).map(|n| spec.instance_name(n)).collect(),
    }
}

fn contexts(workload: &Workload, target: ContextTarget) -> Vec<String> {
    let spec = &workload.contexts[target.context];
    match target.instance {
        Some(instance) => vec![spec.instance_name(instance as usize)],
        None => (0..spec.instances()).map(|n| spec.instance_name(n)).collect(),
    }
}

fn at_most(condition: Condition, misses: u64) -> Found {
    let held = matches!(condition, Condition::Misses(most) if misses <= most);
    Found { text: format!("{misses} misses"), held }
}

fn of_run(condition: Condition, report: &Report) -> Found {
    match condition {
        Condition::TimerInterrupts(most) => {
            let interrupts: u64 = report.cpus.iter().map(|cpu| cpu.timer_interrupts).sum();
            Found { text: format!("{interrupts} timer interrupts"), held: interrupts <= most }
        }
        Condition::Misses(most) => Found { text: misses_of_run(report), held: report.misses_total <= most },
        _ => Found { text: "it is not of the run".to_owned(), held: false },
    }
}

fn of_thread(condition: Condition, row: &ThreadReport, report: &Report) -> Found {
    match condition {
        Condition::Misses(_) => {
            let mut found = at_most(condition, row.misses);
            if let Some(first) = row.jobs.as_ref().and_then(|jobs| jobs.first_miss_ns) {
                found.text += &format!(", the first at {}", instant(first));
            }
            found
        }
        Condition::Response(..) => {
            let response = row.jobs.as_ref().and_then(|jobs| jobs.response_ns.as_ref());
            of_time(condition, response, "no job ended")
        }
        Condition::Wake(..) => {
            let wake = &row.wake_latency_ns;
            let wake = Worst { p50: wake.p50, p99: wake.p99, max: wake.max, max_at_ns: 0 };
            of_time(condition, Some(&wake), "")
        }
        Condition::Share { min_ppm, max_ppm } => {
            let ppm = u128::from(row.runtime_ns) * 1_000_000 / u128::from(report.duration_ns.max(1));
            let held = (u128::from(min_ppm)..=u128::from(max_ppm)).contains(&ppm);
            Found { text: format!("share {}%", ppm as f64 / 10_000.0), held }
        }
        Condition::Lag(most) => {
            Found { text: format!("|lag| {}", instant(row.lag_max_ns)), held: row.lag_max_ns <= most.get() }
        }
        Condition::Call(..) | Condition::TimerInterrupts(_) => {
            Found { text: "it is not of a thread".to_owned(), held: false }
        }
    }
}

fn of_time(condition: Condition, times: Option<&Worst>, none: &str) -> Found {
    let (which, most): (Quantile, Nanos) = match condition {
        Condition::Response(which, most) | Condition::Wake(which, most) | Condition::Call(which, most) => {
            (which, most)
        }
        _ => return Found { text: "it is not a time".to_owned(), held: false },
    };
    let Some(times) = times else { return Found { text: none.to_owned(), held: false } };
    let time = match which {
        Quantile::P50 => times.p50,
        Quantile::P99 => times.p99,
        Quantile::Max => times.max,
    };
    let when = match (condition, which) {
        (Condition::Wake(..), _) | (_, Quantile::P50 | Quantile::P99) => String::new(),
        _ => format!(", begun at {}", instant(times.max_at_ns)),
    };
    Found { text: format!("{which} {}{when}", instant(time)), held: time <= most.get() }
}
