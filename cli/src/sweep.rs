//! `mainspring sweep`: one workload with many seeds and settings, and which run was the worst.
//!
//! Runs are made by threads of this process, or by workers on other machines ([`remote`]).
//!
//! Conserved: a result is used again only for the same text of the workload, settings included, and the same seed. What is
//! printed is a function of the results, whatever the order in which they came.

mod remote;
pub mod runner;

use crate::args::{FailOn, ReportForm, SweepArgs};
use crate::expect;
use crate::failure::Failure;
use crate::input;
use crate::outfile::Target;
use crate::output::Output;
use crate::progress::Progress;
use mainspring_report::{Report, instant};
use mainspring_sim::Options;
use mainspring_workload::{Setting, Workload};
use remote::Remote;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// What is kept of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Result {
    seed: u64,
    digest: String,
    /// Expectations that did not hold.
    unmet: u64,
    misses: u64,
    first_miss_ns: Option<u64>,
    /// The greatest response of any thread, and whose.
    response_ns: u64,
    thread: String,
    /// The greatest latency from call to reply at any endpoint.
    call_ns: u64,
}

impl Result {
    fn of(workload: &Workload, fail_on: Option<FailOn>, report: &Report) -> Self {
        let unmet = expect::check(workload, report).iter().filter(|one| !one.held).count() as u64;
        let asked = u64::from(fail_on == Some(FailOn::Misses) && report.misses_total > 0);
        let responses = report.threads.iter().filter_map(|thread| {
            Some((thread.jobs.as_ref()?.response_ns.as_ref()?.max, thread.name.as_str()))
        });
        let (response_ns, thread) = responses.max_by_key(|(time, _)| *time).unwrap_or((0, ""));
        let calls = report.endpoints.iter().filter_map(|endpoint| Some(endpoint.latency_ns.as_ref()?.max));
        Self {
            seed: report.seed,
            digest: report.digest.clone(),
            unmet: unmet + asked,
            misses: report.misses_total,
            first_miss_ns: report.misses.first().map(|miss| miss.time_ns),
            response_ns,
            thread: thread.to_owned(),
            call_ns: calls.max().unwrap_or(0),
        }
    }

    fn line(&self, of: &str, settings: &str) -> Value {
        json!({
            "of": of,
            "settings": settings,
            "seed": self.seed,
            "digest": self.digest,
            "unmet": self.unmet,
            "misses": self.misses,
            "first_miss_ns": self.first_miss_ns,
            "response_ns": self.response_ns,
            "thread": self.thread,
            "call_ns": self.call_ns,
        })
    }

    fn read(line: &Value) -> Option<(String, Self)> {
        let number = |key: &str| line.get(key)?.as_u64();
        let text = |key: &str| Some(line.get(key)?.as_str()?.to_owned());
        let result = Self {
            seed: number("seed")?,
            digest: text("digest")?,
            unmet: number("unmet")?,
            misses: number("misses")?,
            first_miss_ns: number("first_miss_ns"),
            response_ns: number("response_ns")?,
            thread: text("thread")?,
            call_ns: number("call_ns")?,
        };
        Some((text("of")?, result))
    }

    /// The greater, the worse.
    fn badness(&self) -> (u64, u64, u64, u64) {
        (self.unmet, self.misses, self.response_ns, self.call_ns)
    }
}

/// The workload with one choice of every setting.
struct Variant {
    /// `machine.cpus=2`; empty if nothing varies.
    name: String,
    settings: Vec<Setting>,
    text: String,
    workload: Workload,
    fingerprint: String,
}

/// Runs all, and prints what came of them.
pub fn sweep(args: &SweepArgs, output: Output) -> std::result::Result<(), Failure> {
    let variants = variants(args)?;
    let seeds = args.seeds.clone();
    let plot_to = plot_target(args)?;
    let known = args.save.as_deref().map_or_else(|| Ok(HashMap::new()), saved)?;
    let mut save = args.save.as_deref().map(open_to_append).transpose()?;
    let mut results: Vec<Vec<Option<Result>>> = variants
        .iter()
        .map(|variant| seeds.clone().map(|seed| known.get(&key(variant, seed)).cloned()).collect())
        .collect();
    let todo: Vec<(usize, usize)> = results
        .iter()
        .enumerate()
        .flat_map(|(v, row)| {
            row.iter().enumerate().filter(|(_, one)| one.is_none()).map(move |(s, _)| (v, s))
        })
        .collect();
    let name = input::name(&args.file);
    let reused = variants.len() * results.first().map_or(0, Vec::len) - todo.len();
    let mut progress = Progress::new("running", todo.len() as u64, output);
    let mut remote = match &args.nats {
        Some(url) => Some(Remote::start(url, &args.nats_options, &name, args.fail_on, &variants)?),
        None => None,
    };
    let done = |place: JobIndex, result: Result| {
        if let (Some(file), Some(path)) = (&mut save, &args.save) {
            let variant = &variants[place.0];
            writeln!(file, "{}", result.line(&variant.fingerprint, &variant.name))
                .map_err(|cause| Failure::Write { path: path.clone(), cause })?;
        }
        results[place.0][place.1] = Some(result);
        let done = results.iter().flatten().flatten().count() - reused;
        progress.at(done as u64, || format!("{done} of {} runs", todo.len()));
        Ok(())
    };
    match &mut remote {
        Some(remote) => {
            let again = |place: JobIndex| run_one(args, &name, &variants, place);
            remote.run_all(&variants, &todo, args.seeds.start, again, done)?;
        }
        None => run_all(args, &name, &variants, &todo, done)?,
    }
    drop(progress);
    let rows: Vec<(&Variant, Vec<Result>)> =
        variants.iter().zip(results.into_iter().map(|row| row.into_iter().flatten().collect())).collect();
    if let Some(folder) = &args.records {
        write_records(folder, &name, &rows, remote.as_mut(), output)?;
    }
    if let Some(remote) = remote {
        remote.end()?;
    }
    if let Some(target) = plot_to {
        let path = target.open()?.write(|file| file.write_all(plot(&name, &rows).as_bytes()))?;
        output.note(format_args!("wrote {}", path.display()));
    }
    match args.report {
        ReportForm::Json => {
            let shown = json!({ "workload": name, "reused": reused, "settings": rows.iter().map(summary).collect::<Vec<_>>() });
            output.line(format_args!("{shown:#}"))?;
        }
        ReportForm::Text => output.line(table(&name, reused, &rows))?,
    }
    let unmet: u64 = rows.iter().flat_map(|(_, results)| results).filter(|one| one.unmet > 0).count() as u64;
    if unmet == 0 { Ok(()) } else { Err(Failure::UnmetRuns { name, runs: unmet }) }
}

/// Where the plot goes. It replaces neither the workload nor the results.
fn plot_target(args: &SweepArgs) -> std::result::Result<Option<Target>, Failure> {
    let Some(path) = &args.plot else { return Ok(None) };
    let target = Target::resolve(path)?;
    let others = [(Some(&args.file), "the workload"), (args.save.as_ref(), "the file of --save")];
    for (other, by) in others {
        let other = other.and_then(|other| input::on_disk(other).canonicalize().ok());
        if other.is_some() && target.file() == other.as_deref() {
            return Err(Failure::Taken { option: "--plot", path: path.clone(), by });
        }
    }
    Ok(Some(target))
}

fn key(variant: &Variant, seed: u64) -> (String, u64) {
    (variant.fingerprint.clone(), seed)
}

/// Every combination of the settings.
fn variants(args: &SweepArgs) -> std::result::Result<Vec<Variant>, Failure> {
    let text = input::text(&args.file).map_err(|error| Failure::Load(vec![error]))?;
    let common = args.overrides.settings();
    let mut choices: Vec<Vec<Setting>> = vec![Vec::new()];
    for set in &args.set {
        let values = values(&set.value);
        choices = choices
            .iter()
            .flat_map(|chosen| {
                values.iter().map(move |value| {
                    let one = Setting { key: set.key.clone(), value: value.clone() };
                    chosen.iter().cloned().chain([one]).collect()
                })
            })
            .collect();
    }
    choices
        .into_iter()
        .map(|chosen| {
            let name = chosen.iter().map(Setting::to_string).collect::<Vec<_>>().join(" ");
            let settings: Vec<Setting> = common.iter().cloned().chain(chosen).collect();
            let (text, workload) = input::workload_of(&args.file, &text, &settings)?;
            let fingerprint = fingerprint(&text, args.fail_on);
            Ok(Variant { name, settings, text, workload, fingerprint })
        })
        .collect()
}

/// Values between commas, except within brackets or quotes.
fn values(list: &str) -> Vec<String> {
    let (mut values, mut depth, mut quoted) = (vec![String::new()], 0_u32, false);
    for c in list.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        match values.last_mut() {
            Some(last) if c != ',' || depth > 0 || quoted => last.push(c),
            _ => values.push(String::new()),
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

/// Tells a workload from others: FNV-1a of its text, and of what else a result depends on.
fn fingerprint(text: &str, fail_on: Option<FailOn>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let bytes = text.bytes().chain(format!("\0{version}\0{fail_on:?}").into_bytes());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    format!("{hash:016x}")
}

/// The results of a file, by workload and seed. A line that was cut off, when a sweep was stopped, is no result. A line that no
/// sweep wrote means that the file is another one, to which nothing should be appended.
fn saved(path: &Path) -> std::result::Result<HashMap<(String, u64), Result>, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(cause) => return Err(Failure::Write { path: path.into(), cause }),
    };
    let mut found = HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        match serde_json::from_str(line) {
            Ok(value) => match Result::read(&value) {
                Some((of, result)) => found.insert((of, result.seed), result),
                None => return Err(Failure::NotResults { path: path.into(), line: number }),
            },
            Err(_) if line.is_empty() || line.starts_with('{') => None,
            Err(_) => return Err(Failure::NotResults { path: path.into(), line: number }),
        };
    }
    Ok(found)
}

fn open_to_append(path: &Path) -> std::result::Result<File, Failure> {
    let failed = |cause| Failure::Write { path: path.into(), cause };
    let cut = fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|last| *last != b'\n'));
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    if cut {
        file.write_all(b"\n").map_err(failed)?;
    }
    Ok(file)
}

type JobIndex = (usize, usize);

/// Runs what is to be done on all cores, and hands every result over as it comes.
fn run_all(
    args: &SweepArgs,
    name: &str,
    variants: &[Variant],
    todo: &[JobIndex],
    mut done: impl FnMut(JobIndex, Result) -> std::result::Result<(), Failure>,
) -> std::result::Result<(), Failure> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let workers = args.jobs.map_or(cores, usize::from).min(todo.len().max(1));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..workers {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(&place) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run_one(args, name, variants, place);
                    let failed = result.is_err();
                    // No receiver is left after the first failure.
                    if sender.send((place, result)).is_err() || failed {
                        next.store(todo.len(), Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().try_for_each(|(place, result)| done(place, result?))
    })
}

fn run_one(
    args: &SweepArgs,
    name: &str,
    variants: &[Variant],
    place: JobIndex,
) -> std::result::Result<Result, Failure> {
    let workload = &variants[place.0].workload;
    let seed = args.seeds.start + place.1 as u64;
    let run = mainspring_sim::run(name, workload, Options { seed, ..Options::default() });
    let result = run.map(|report| Result::of(workload, args.fail_on, &report));
    result.map_err(|error| Failure::Run { name: name.to_owned(), seed, error })
}

/// Writes the flight record of each row's worst run, made where the runs were.
fn write_records(
    folder: &Path,
    name: &str,
    rows: &[(&Variant, Vec<Result>)],
    mut remote: Option<&mut Remote>,
    output: Output,
) -> std::result::Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| Failure::Write { path, cause }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for (number, (variant, worst)) in
        rows.iter().enumerate().filter_map(|(n, row)| Some((n + 1, (row.0, worst(&row.1)?))))
    {
        let path = folder.join(format!("worst-{number}-seed-{}.msr", worst.seed));
        let digest = match &mut remote {
            Some(remote) => remote.record(&variant.fingerprint, worst.seed, &path)?,
            None => {
                let mut out = Target::resolve(&path)?.open()?;
                let mut file = BufWriter::new(out.writer());
                let options =
                    Options { seed: worst.seed, record: Some(Box::new(&mut file)), ..Options::default() };
                let run = mainspring_sim::run(name, &variant.workload, options);
                let error = |error| Failure::Run { name: name.to_owned(), seed: worst.seed, error };
                let report = run.map_err(error)?;
                file.flush().map_err(failed(&path))?;
                drop(file);
                out.finish()?;
                report.digest
            }
        };
        if digest != worst.digest {
            let why = format!("its record has the digest {digest}, its result {}", worst.digest);
            return Err(Failure::WorkerFailed { seed: worst.seed, why });
        }
        output.note(format_args!("wrote {}", path.display()));
    }
    Ok(())
}

fn worst(results: &[Result]) -> Option<&Result> {
    // The first of equally bad ones.
    results.iter().rev().max_by_key(|result| result.badness())
}

fn summary((variant, results): &(&Variant, Vec<Result>)) -> Value {
    let worst = worst(results);
    json!({
        "settings": variant.name,
        "runs": results.len(),
        "failed": results.iter().filter(|result| result.unmet > 0).count(),
        "with_misses": results.iter().filter(|result| result.misses > 0).count(),
        "misses": results.iter().map(|result| result.misses).sum::<u64>(),
        "worst": worst.map(|worst| worst.line(&variant.fingerprint, &variant.name)),
    })
}

/// The greatest responses of runs, from the least to the greatest.
fn responses(results: &[Result]) -> Vec<u64> {
    let mut times: Vec<u64> = results.iter().map(|result| result.response_ns.max(result.call_ns)).collect();
    times.sort_unstable();
    times
}

fn rank(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0)
}

fn table(name: &str, reused: usize, rows: &[(&Variant, Vec<Result>)]) -> String {
    let runs: usize = rows.iter().map(|(_, results)| results.len()).sum();
    let kept = if reused == 0 { String::new() } else { format!(", {reused} of them from before") };
    let mut text = format!("{name}: {runs} runs{kept}\n\n");
    let title = "settings";
    let width =
        rows.iter().map(|(variant, _)| variant.name.chars().count()).max().unwrap_or(0).max(title.len());
    let _ = writeln!(
        text,
        "{title:width$}  runs  failed  with misses  misses  longest wait p50        p99        max  worst seed"
    );
    for (variant, results) in rows {
        let times = responses(results);
        let count = |of: fn(&Result) -> bool| results.iter().filter(|result| of(result)).count();
        let shown = if variant.name.is_empty() { "-" } else { &variant.name };
        let _ = writeln!(
            text,
            "{shown:width$}  {:>4}  {:>6}  {:>11}  {:>6}  {:>16}  {:>9}  {:>9}  {:>10}  {}",
            results.len(),
            count(|result| result.unmet > 0),
            count(|result| result.misses > 0),
            results.iter().map(|result| result.misses).sum::<u64>(),
            Rounded(rank(&times, 50)).to_string(),
            Rounded(rank(&times, 99)).to_string(),
            Rounded(times.last().copied().unwrap_or(0)).to_string(),
            worst(results).map_or_else(String::new, |worst| worst.seed.to_string()),
            spark(&times),
        );
    }
    let all = rows.iter().filter_map(|(variant, results)| Some((variant, worst(results)?)));
    if let Some((variant, worst)) = all.rev().max_by_key(|(_, result)| result.badness()) {
        let set: String = variant
            .settings
            .iter()
            .map(|setting| format!(" --set {}", quoted(&setting.to_string())))
            .collect();
        let first =
            worst.first_miss_ns.map_or_else(String::new, |at| format!(", the first at {}", instant(at)));
        let longest = match worst.thread.as_str() {
            "" => String::new(),
            thread => format!("; longest response {} of {thread}", instant(worst.response_ns)),
        };
        let _ = writeln!(
            text,
            "\nthe worst: seed {}: {} miss{}{first}{longest}\n  mainspring run {} --seed {}{set}",
            worst.seed,
            worst.misses,
            if worst.misses == 1 { "" } else { "es" },
            quoted(name),
            worst.seed
        );
    }
    text
}

/// A word of a command line, for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./=+:%@,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A time with three digits.
struct Rounded(u64);

impl std::fmt::Display for Rounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.0.checked_ilog10().map_or(1, |log| log + 1);
        let grain = 10_u64.pow(digits.saturating_sub(3));
        f.write_str(&instant(self.0.saturating_add(grain / 2) / grain * grain))
    }
}

/// The times from the least to the greatest, as a line of bars.
fn spark(sorted: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const WIDTH: usize = 16;
    let most = sorted.last().copied().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    (1..=WIDTH)
        .map(|n| rank(sorted, n * 100 / WIDTH))
        .map(|time| BARS[(u128::from(time) * 7 / u128::from(most)) as usize])
        .collect()
}

/// One curve per setting: how many percent of the runs had no longer wait than that.
fn plot(name: &str, rows: &[(&Variant, Vec<Result>)]) -> String {
    const COLOURS: [&str; 6] = ["#2f6fb5", "#c2571a", "#3d8f4e", "#8a4fb0", "#b8860b", "#5a6570"];
    let most = rows.iter().flat_map(|(_, results)| responses(results)).max().unwrap_or(0).max(1);
    let text = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{}: longest wait of each run</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <path d=\"M60 20V320H700\" fill=\"none\" stroke=\"#888\"/>\n",
        360 + 18 * rows.len(),
        text(name)
    );
    for percent in [0, 25, 50, 75, 100] {
        let x = 60.0 + 6.4 * f64::from(percent);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"336\" text-anchor=\"middle\">{percent}%</text>");
    }
    for part in 0..=4_u64 {
        let (y, time) = (320.0 - 75.0 * part as f64, most / 4 * part);
        let _ =
            writeln!(svg, "<text x=\"54\" y=\"{}\" text-anchor=\"end\">{}</text>", y + 4.0, Rounded(time));
    }
    for (number, (variant, results)) in rows.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let times = responses(results);
        let points: String = times
            .iter()
            .enumerate()
            .map(|(n, time)| {
                let x = 60.0 + 640.0 * (n + 1) as f64 / times.len() as f64;
                format!("{x:.1},{:.1} ", 320.0 - 300.0 * *time as f64 / most as f64)
            })
            .collect();
        let shown = if variant.name.is_empty() { name } else { &variant.name };
        let y = 358 + 18 * number;
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <rect x=\"60\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"78\" y=\"{y}\">{}</text>",
            y - 11,
            text(shown)
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_values_but_not_within_brackets_or_quotes() {
        assert_eq!(values("1,2, 4"), ["1", "2", "4"]);
        assert_eq!(values("[0,1],[2]"), ["[0,1]", "[2]"]);
        assert_eq!(values("\"a,b\",c"), ["\"a,b\"", "c"]);
    }

    #[test]
    fn the_worst_is_the_first_of_the_worst() {
        let result = |seed, misses| Result {
            seed,
            digest: String::new(),
            unmet: 0,
            misses,
            first_miss_ns: None,
            response_ns: 0,
            thread: String::new(),
            call_ns: 0,
        };
        let results = [result(1, 0), result(2, 3), result(3, 3), result(4, 1)];
        assert_eq!(worst(&results).map(|worst| worst.seed), Some(2));
    }
}
