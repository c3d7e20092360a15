//! Decisions per second of the simulator, for machines of 64 CPUs and 1,000 threads that do different things, and what part
//! of them a flight record takes.
//!
//! Another program on the host can only slow a run down, so the best of the rounds is what the simulator does, and the
//! median is what it did. What a record costs is far less than what the host's speed varies by, and that lasts for seconds.
//! Therefore it is measured in short runs with and without, one right after the other, many times: the cost is the median
//! of the ratios, and the interval in which the true median lies with 95 % tells how far to trust it. It is judged with the
//! record written to a file; to nowhere, it leaves the system's share out.

use mainspring_abi::Nanos;
use mainspring_sim::{Options, run};
use mainspring_workload::{Workload, parse};
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// Whole runs of each mix before each measurement of a record, so that they are spread over all of the time.
const ROUNDS: usize = 4;
/// Short runs with and without a record, and which part of a whole run one is.
const PAIRS: usize = 151;
const SHORT: u64 = 4;

/// What must be reached: decisions per second, in millions.
const LEAST: f64 = 3.0;
/// What a record may take of them, in percent.
const RECORD_COST: f64 = 10.0;

/// The mix that is judged, which is a file of its own, and plainer ones.
const JUDGED: usize = 0;
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

/// What part of the speed a record takes, in percent.
struct Cost {
    median: f64,
    least: f64,
    most: f64,
}

impl Cost {
    /// Of pairs of speeds without and with.
    fn new(pairs: &[(f64, f64)]) -> Self {
        let mut costs: Vec<_> =
            pairs.iter().map(|(plain, recorded)| 100.0 * (1.0 - recorded / plain)).collect();
        costs.sort_by(f64::total_cmp);
        // How many of the costs are below the true median is binomial, whatever the noise is.
        let (middle, reach) = (costs.len() / 2, (0.98 * (costs.len() as f64).sqrt()).ceil() as usize);
        Self { median: costs[middle], least: costs[middle - reach], most: costs[middle + reach] }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1}% ({:.1} to {:.1})", self.median, self.least, self.most))
    }
}

struct Mix {
    name: &'static str,
    workload: Workload,
    speeds: Speeds,
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
        mixes.push(Mix { name, workload, speeds: Speeds::default() });
    }
    let mut costs = Vec::new();
    for at in 0..mixes.len() {
        eprintln!("{} of {}: {}", at + 1, mixes.len(), mixes[at].name);
        for _ in 0..ROUNDS {
            for Mix { workload, speeds, .. } in &mut mixes {
                speeds.0.push(speed(workload, Record::None)?);
            }
        }
        costs.push(record_cost(&mixes[at].workload)?);
    }
    println!("million decisions per second, 64 CPUs, 1,000 threads; what a record takes of them");
    println!("{:<16} {:>6} {:>8}   {:<22} to no file", "", "best", "median", "to a file");
    for (Mix { name, speeds, .. }, (to_file, to_nowhere)) in mixes.iter().zip(&costs) {
        let (best, median) = (speeds.best(), speeds.median());
        println!("{name:<16} {best:>6.2} {median:>8.2}   {to_file:<22} {to_nowhere}");
    }
    let (judged, (cost, _)) = (&mixes[JUDGED], &costs[JUDGED]);
    let (best, verdict) = (judged.speeds.best(), |holds: bool| if holds { "holds" } else { "MISSED" });
    let (fast, cheap) = (best >= LEAST, cost.median <= RECORD_COST);
    println!("{}: {best:.2} million per second (at least {LEAST}): {}", judged.name, verdict(fast));
    println!("{}: a record costs {cost} (at most {RECORD_COST}): {}", judged.name, verdict(cheap));
    Ok(fast && cheap)
}

/// What records cost that go to a file and to nowhere.
fn record_cost(whole: &Workload) -> Result<(Cost, Cost), Box<dyn Error>> {
    let mut workload = whole.clone();
    workload.machine.duration = Nanos::new(whole.machine.duration.get() / SHORT);
    let path = std::env::temp_dir().join(format!("mainspring-bench-sim-{}.msr", std::process::id()));
    let (mut to_file, mut to_nowhere) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let filed = speed(&workload, Record::To(&path))?;
        let plain = speed(&workload, Record::None)?;
        let discarded = speed(&workload, Record::Nowhere)?;
        to_file.push((plain, filed));
        to_nowhere.push((plain, discarded));
    }
    std::fs::remove_file(&path)?;
    Ok((Cost::new(&to_file), Cost::new(&to_nowhere)))
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
