//! Decisions per second of the simulator, for machines of 64 CPUs and 1,000 threads that do different things, with and
//! without a flight record.
//!
//! Rounds go over all of them in turn, so that a noisy moment hits them alike. Another program on the host can only slow a
//! round down, so the best of the rounds is what the simulator does, and the median is what it did. The cost of a record is
//! the median of the ratios within the rounds: to a file, which is what is judged, and to nowhere, which leaves the system's
//! share of it out.

use mainspring_sim::{Options, run};
use mainspring_workload::{Workload, parse};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

const ROUNDS: usize = 15;

/// What must be reached: decisions per second, in millions.
const LEAST: f64 = 3.0;
/// What a record may cost, as a part of the speed without.
const RECORD_COST: f64 = 0.10;

/// The mix that is judged, which is a file of its own, and the plainer ones beside it.
const MIXES: [(&str, &str); 4] = [
    ("run and sleep", include_str!("../../../workloads/speed.toml")),
    ("periodic", PERIODIC),
    ("run and yield", YIELD),
    ("hogs", HOGS),
];

const PERIODIC: &str = r#"
[machine]
cpus = 64
duration = "2s"
[[thread]]
name = "loop"
count = 1000
start = "0..4ms"
program = ["run 100us", "every 4ms"]
"#;

const YIELD: &str = r#"
[machine]
cpus = 64
duration = "500ms"
[[thread]]
name = "polite"
count = 1000
program = ["run 50us..150us", "yield"]
"#;

const HOGS: &str = r#"
[machine]
cpus = 64
quantum = "100us"
duration = "2s"
[[thread]]
name = "hog"
count = 1000
program = ["run forever"]
"#;

/// Speeds of the rounds so far, in million decisions per second.
#[derive(Default)]
struct Speeds(Vec<f64>);

impl Speeds {
    fn best(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

/// What part of the speed a record takes.
fn cost(plain: &Speeds, recorded: &Speeds) -> f64 {
    1.0 - Speeds(plain.0.iter().zip(&recorded.0).map(|(plain, recorded)| recorded / plain).collect()).median()
}

struct Mix {
    name: &'static str,
    workload: Workload,
    plain: Speeds,
    recorded: Speeds,
    discarded: Speeds,
}

/// Where the record goes.
#[derive(Clone, Copy)]
enum Record<'a> {
    None,
    To(&'a Path),
    Nowhere,
}

fn main() -> ExitCode {
    match table() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn table() -> Result<bool, Box<dyn Error>> {
    let mut mixes = Vec::new();
    for (name, text) in MIXES {
        let workload = parse(name, text).map_err(|errors| errors.to_string())?;
        let [plain, recorded, discarded] = Default::default();
        mixes.push(Mix { name, workload, plain, recorded, discarded });
    }
    let file = std::env::temp_dir().join(format!("mainspring-bench-sim-{}.msr", std::process::id()));
    for _ in 0..ROUNDS {
        for mix in &mut mixes {
            mix.plain.0.push(speed(&mix.workload, Record::None)?);
            mix.recorded.0.push(speed(&mix.workload, Record::To(&file))?);
            mix.discarded.0.push(speed(&mix.workload, Record::Nowhere)?);
        }
    }
    std::fs::remove_file(&file)?;
    println!("million decisions per second, 64 CPUs, 1,000 threads, {ROUNDS} rounds");
    println!(
        "{:<16} {:>8} {:>8} {:>14} {:>10} {:>10}",
        "", "best", "median", "recorded best", "cost", "no file"
    );
    for Mix { name, plain, recorded, discarded, .. } in &mixes {
        println!(
            "{name:<16} {:>8.2} {:>8.2} {:>14.2} {:>9.1}% {:>9.1}%",
            plain.best(),
            plain.median(),
            recorded.best(),
            cost(plain, recorded) * 100.0,
            cost(plain, discarded) * 100.0
        );
    }
    let judged = &mixes[0];
    let (best, cost) = (judged.plain.best(), cost(&judged.plain, &judged.recorded));
    let verdict = |holds: bool| if holds { "holds" } else { "MISSED" };
    println!("{}: {best:.2} million per second (at least {LEAST}): {}", judged.name, verdict(best >= LEAST));
    println!(
        "{}: a record costs {:.1} % (at most {:.0}): {}",
        judged.name,
        cost * 100.0,
        RECORD_COST * 100.0,
        verdict(cost <= RECORD_COST)
    );
    Ok(best >= LEAST && cost <= RECORD_COST)
}

fn speed(workload: &Workload, record: Record<'_>) -> Result<f64, Box<dyn Error>> {
    let record: Option<Box<dyn Write>> = match record {
        Record::None => None,
        Record::To(path) => Some(Box::new(BufWriter::new(File::create(path)?))),
        Record::Nowhere => Some(Box::new(std::io::sink())),
    };
    let options = Options { record, ..Options::default() };
    let report = run("bench", workload, options)?;
    Ok(report.decisions as f64 * 1e3 / report.wall_ns as f64)
}
