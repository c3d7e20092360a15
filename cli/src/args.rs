//! What can be asked of the program. The comments here are the help that people read.

pub mod host;

use crate::jan;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mainspring_abi::Nanos;
use mainspring_report::instant;
use mainspring_workload::{DurationError, Setting, parse_duration};
use std::ffi::OsString;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

/// Headings of the help.
const COMMON: &str = "Common options";
const FILES: &str = "Files to write";
const CHANGES: &str = "Changes to the file";
const WORKERS: &str = "Workers on other machines";

const EXAMPLES: &str = "\
Examples:
  mainspring run workloads/tour.toml                     the report, in the terminal
  mainspring run workloads/tour.toml --html tour.html    and the timeline, as a web page
  mainspring run workloads/tour.toml --record tour.msr   and the record of every decision
  mainspring run workloads/tour.toml --on linux          the same file, on threads of this host
  mainspring run workloads/tour.toml --on qemu           the same file, on the kernel
  mainspring report tour.msr                             the report again, from the record
  mainspring diff tour.msr other.msr                     where do two runs part?
  mainspring replay tour.msr                             make the same decisions again
  mainspring explain tour.msr --thread editor --at 12.5ms
  mainspring sweep workloads/robot-control.toml --seeds 1..1000 --set machine.cpus=1,2,4
  mainspring top tour.msr                                play it back, moment by moment
  mainspring admit workloads/audio-graph.toml            will every deadline hold?
  mainspring exec --budget 20ms/100ms -- make            a fifth of a CPU for any program
  mainspring ps                                          what is granted on this host?
  mainspring doctor                                      what does this host allow?

Exit codes:
  0  all went well
  1  a replayed decision differs, two records differ, or a run broke a rule of the scheduler
  2  wrong usage or a bad file, or a file that cannot be read or written
  3  `mainspring admit` refuses the workload, or `mainspring exec` the program
  4  a run is not as its workload or `--fail-on` expects
  5  `mainspring admit` has nothing to admit: nothing is promised
  `mainspring exec` exits as its program does";

const RUN_EXAMPLES: &str = "\
Examples:
  mainspring run workloads/tour.toml --seed 7
  mainspring run workloads/tour.toml --html tour.html --trace tour.perfetto-trace
  mainspring run workloads/tour.toml --report json --schedule > tour-report.json
  mainspring run workloads/tour.toml --policy wfq --cpus 4 --set thread.editor.weight=128
  mainspring run workloads/robot-control.toml --fail-on misses --junit robot.xml
  mainspring run workloads/robot-control.toml --on linux --live --duration 60s

Exit codes:
  0  all went well
  1  the run broke a rule of the scheduler
  2  wrong usage or a bad file, or a file that cannot be read or written
  4  the run is not as the [[expect]] tables of its workload or `--fail-on` expect";

const SWEEP_EXAMPLES: &str = "\
Examples:
  mainspring sweep workloads/robot-control.toml --seeds 1..1000
  mainspring sweep workloads/robot-control.toml --seeds 1..100 --set machine.cpus=1,2,4
  mainspring sweep workloads/robot-control.toml --seeds 1..100000 --save robot.jsonl --plot robot.svg
  mainspring sweep workloads/robot-control.toml --seeds 1..100000 --nats nats://127.0.0.1:4222 --records worst

Exit codes:
  0  all went well
  2  wrong usage or a bad file, or a file that cannot be read or written
  4  a run is not as the [[expect]] tables of its workload or `--fail-on` expect";

const ADMIT_EXAMPLES: &str = "\
Examples:
  mainspring admit workloads/audio-graph.toml
  mainspring admit workloads/audio-graph.toml --report json

Exit codes:
  0  admitted
  2  wrong usage or a bad file
  3  refused
  5  nothing here has a context: nothing is promised";

const CHECK_EXAMPLES: &str = "\
Examples:
  mainspring check workloads/*.toml";

const REPLAY_EXAMPLES: &str = "\
Examples:
  mainspring run workloads/tour.toml --record tour.msr
  mainspring replay tour.msr";

const REPORT_EXAMPLES: &str = "\
Examples:
  mainspring run workloads/tour.toml --record tour.msr --quiet
  mainspring report tour.msr
  mainspring report tour.msr --html tour.html --trace tour.perfetto-trace";

const DIFF_EXAMPLES: &str = "\
Examples:
  mainspring run workloads/tour.toml --record a.msr --seed 1 --quiet
  mainspring run workloads/tour.toml --record b.msr --seed 2 --quiet
  mainspring diff a.msr b.msr

Exit codes:
  0  the same
  1  they differ, or a replayed decision does
  2  wrong usage, or a record that cannot be read";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  mainspring run workloads/tour.toml --record tour.msr
  mainspring explain tour.msr --thread editor --at 12.5ms
  mainspring explain tour.msr --thread batch.2 --between 300us 10ms
  mainspring explain tour.msr --worst editor
  mainspring run workloads/robot-control.toml --record robot.msr
  mainspring explain robot.msr --miss 1";

const IMPORT_EXAMPLES: &str = "\
Examples:
  perf sched record -- sleep 1                           records all CPUs for a second
  mainspring import perf.data -o second.toml             and that second as a workload
  mainspring import perf.data --compare                  Linux's schedule of it beside ours
  mainspring import trace.txt --between 100ms 300ms --compare
  mainspring import rt-app.json -o rt-app.toml

The text of ftrace (/sys/kernel/tracing/trace with the events sched_switch and sched_waking), of `trace-cmd report` and of
`perf script` is read as well; `-` is standard input.";

const MAN_EXAMPLES: &str = "\
Examples:
  mainspring man run | man -l -
  mainspring man --dir ~/.local/share/man/man1";

const TOP_EXAMPLES: &str = "\
Examples:
  mainspring run workloads/robot-control.toml --record robot.msr --quiet
  mainspring top robot.msr                              play it back, with keys
  mainspring top robot.msr --at 132ms --form text       that moment, as text
  mainspring top robot.msr --form prometheus            the end, for Prometheus
  mainspring run workloads/robot-control.toml --on linux --live --duration 60s
                                                        tells a page, and a socket to give to `top`
  mainspring top /run/user/1000/app.sock                a process that serves its runtime";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  mainspring completions bash > ~/.local/share/bash-completion/completions/mainspring
  mainspring completions zsh > ~/.zfunc/_mainspring
  mainspring completions fish > ~/.config/fish/completions/mainspring.fish";

/// CPU time as a capability: runs workload files on the scheduler and reports who got how much, when and why.
#[derive(Debug, Parser)]
#[command(name = "mainspring", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// When to use colour; `auto` means on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, help_heading = COMMON)]
    #[arg(value_enum, value_name = "WHEN", default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,

    /// Print results and errors only: no progress bar, and no word about files written.
    #[arg(short, long, global = true, help_heading = COMMON)]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload file and report what happened.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run a workload file with many seeds and settings, and say which run was the worst.
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Say whether every context of a workload file keeps its deadlines, and if not, who misses which.
    #[command(after_help = ADMIT_EXAMPLES)]
    Admit(AdmitArgs),
    /// Check workload files without running them, and list all that is wrong.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Report what happened in a recorded run, as `run` does.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Say where two recorded runs part, and what that did to shares, latencies and misses.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Make the decisions of a recorded run again, and stop at the first that differs.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Say why a thread of a recorded run ran, or did not run, at some time.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Make a workload file of what a Linux machine did: perf.data, text of perf script or ftrace, rt-app JSON.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Show what a recorded run, or a live runtime, does at each moment.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Run any program and its children under a budget of CPU time, and report what they used.
    #[command(after_help = host::EXEC_EXAMPLES)]
    Exec(host::ExecArgs),
    /// List what is granted on this host: to whom, how much, and what is used.
    #[command(after_help = host::PS_EXAMPLES)]
    Ps(host::PsArgs),
    /// Say what this host allows, and what to do about the rest.
    #[command(after_help = host::DOCTOR_EXAMPLES)]
    Doctor(host::DoctorArgs),
    /// Check, show and run programs of the Janus subset, in tasks with budgets.
    #[command(after_help = jan::EXAMPLES)]
    Jan(jan::JanArgs),
    /// Make runs of sweeps for other machines, over a NATS server, until it is stopped.
    #[command(disable_help_flag = true)]
    Worker(ClusterArgs),
    /// What needs a NATS server, done by `mainspring-cluster`.
    #[command(disable_help_flag = true)]
    Cluster(ClusterArgs),
    /// Make runs of sweeps for a worker.
    #[command(hide = true)]
    SweepRunner,
    /// Boot the kernel under QEMU with a console to look around in.
    Boot(BootArgs),
    /// Print the manual page of the program or of one command, or write them all into a folder.
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
    /// Print the completion script of a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
}

/// `mainspring run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The workload file, or `-` for standard input.
    pub file: PathBuf,

    /// The machine to run on: `sim` is the simulator, `linux` tasks on worker threads of this host, `qemu` the kernel
    /// (build it with `make kernel`).
    #[arg(long, value_enum, value_name = "MACHINE", default_value_t = Machine::Sim)]
    pub on: Machine,

    /// Where all chance comes from: the same file and seed make the same decisions.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed, allow_hyphen_values = true)]
    pub seed: u64,

    /// The report's form: a table for people, or JSON for programs.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = ReportForm::Text)]
    pub report: ReportForm,

    /// Put the schedule into the JSON report: what ran where, from when to when.
    #[arg(long)]
    pub schedule: bool,

    /// On the kernel, with one CPU: let time count instructions, one for each nanosecond. A busy host then changes nothing, and
    /// every run is the same.
    #[arg(long)]
    pub counted: bool,

    /// Check every event against independent books and an exact fluid schedule, and stop at the first that is wrong; on
    /// other machines than the simulator, in the record, once the run is over. Slow; debug builds always do it when they
    /// simulate.
    #[arg(long)]
    pub verify: bool,

    /// With `--on linux`: show the run while it goes on, as a page on this host's own address and on a socket for `mainspring
    /// top`. Both are told on standard error.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = loopback, default_missing_value = "127.0.0.1:0")]
    pub live: Option<SocketAddr>,

    /// Show every thread instance and every CPU in the text report, however many there are.
    #[arg(long)]
    pub expand: bool,

    /// Exit with code 4 if there was any of these.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,

    #[command(flatten)]
    pub overrides: Overrides,

    /// Change a value of the file for this run, such as machine.cpus=4 or context.camera.budget=8ms.
    #[arg(long, value_name = "KEY=VALUE", value_parser = Setting::parse, help_heading = CHANGES)]
    pub set: Vec<Setting>,

    /// Write the expectations and whether they held as a JUnit file.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub junit: Option<PathBuf>,

    /// Write the schedule as a trace that the Perfetto UI (ui.perfetto.dev) opens: scheduler events for its tables and its
    /// SQL, or, if the name ends in .json, intervals as Chrome's trace events.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub trace: Option<PathBuf>,

    /// Write a web page with the timeline and the tables; it needs no network.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub html: Option<PathBuf>,

    /// Write the flight record (.msr), for `mainspring replay` and `mainspring explain`.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub record: Option<PathBuf>,
}

/// Values of the file that are often changed.
#[derive(Debug, Args)]
pub struct Overrides {
    /// Run for this long instead.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = CHANGES)]
    pub duration: Option<Nanos>,

    /// Run on this many CPUs instead.
    #[arg(long, value_name = "N", value_parser = cpus, allow_hyphen_values = true, help_heading = CHANGES)]
    pub cpus: Option<u32>,

    /// Schedule best effort by this policy instead: eevdf or wfq.
    #[arg(long, value_name = "NAME", help_heading = CHANGES)]
    pub policy: Option<String>,
}

impl Overrides {
    /// The same, as settings.
    pub fn settings(&self) -> Vec<Setting> {
        let one =
            |key: &str, value: Option<String>| Some(Setting { key: format!("machine.{key}"), value: value? });
        [
            one("duration", self.duration.map(|duration| instant(duration.get()))),
            one("cpus", self.cpus.map(|cpus| cpus.to_string())),
            one("policy", self.policy.clone()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// `mainspring sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The workload file, or `-` for standard input. It runs on the simulator.
    pub file: PathBuf,

    /// The seeds, first and last: 1..1000.
    #[arg(long, value_name = "A..B", value_parser = seeds, default_value = "0..9")]
    pub seeds: Range<u64>,

    /// Try each of these values of the file: machine.cpus=1,2,4. With several options, each combination.
    #[arg(long, value_name = "KEY=VALUES", value_parser = Setting::parse, help_heading = CHANGES)]
    pub set: Vec<Setting>,

    #[command(flatten)]
    pub overrides: Overrides,

    /// A run fails if there was any of these.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,

    /// How many runs at once; as many as there are cores if left out.
    #[arg(long, value_name = "N", value_parser = jobs, allow_hyphen_values = true, conflicts_with = "nats")]
    pub jobs: Option<u16>,

    /// Let workers make the runs (`mainspring worker --nats URL`, on any machine), over this NATS server: nats://HOST:PORT. Needs
    /// `mainspring-cluster` beside this program or on the PATH.
    #[arg(long, value_name = "URL", help_heading = WORKERS)]
    pub nats: Option<String>,

    /// A word for `mainspring-cluster`, such as --nats-option=--creds=FILE; `mainspring cluster dispatch --help` lists them. May be
    /// repeated.
    #[arg(long = "nats-option", value_name = "WORD", requires = "nats", allow_hyphen_values = true, help_heading = WORKERS)]
    pub nats_options: Vec<String>,

    /// The form of the result: a table for people, or JSON for programs.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = ReportForm::Text)]
    pub report: ReportForm,

    /// Append each result to this file, and do not run again what it has: a sweep that was stopped goes on.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub save: Option<PathBuf>,

    /// Write the flight record of the worst run of each row into this folder.
    #[arg(long, value_name = "DIR", value_parser = out_path(), help_heading = FILES)]
    pub records: Option<PathBuf>,

    /// Write a plot (SVG) of the longest wait of each run.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub plot: Option<PathBuf>,
}

/// Words for `mainspring-cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Words for `mainspring-cluster`; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

/// `mainspring admit`.
#[derive(Debug, Args)]
pub struct AdmitArgs {
    /// The workload file, or `-` for standard input.
    pub file: PathBuf,

    /// The verdict's form: tables for people, or JSON for programs.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = ReportForm::Text)]
    pub report: ReportForm,

    #[command(flatten)]
    pub overrides: Overrides,

    /// Change a value of the file: `thread.NAME.weight=128`, `context.NAME.budget=2ms`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = Setting::parse, help_heading = CHANGES)]
    pub set: Vec<Setting>,

    /// Compute the worst response of every context, however many there are. Without it, of at most 64.
    #[arg(long)]
    pub responses: bool,
}

/// `mainspring import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The recording, or `-` for standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where the workload goes; standard output without it.
    #[arg(short, long, value_name = "OUT.toml", value_parser = out_path(), help_heading = FILES)]
    pub output: Option<PathBuf>,

    /// Run the workload in the simulator and show Linux's own schedule beside ours, in place of the workload.
    #[arg(long)]
    pub compare: bool,

    /// Take only the part between two times since the beginning of the recording.
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], value_parser = time, allow_hyphen_values = true)]
    pub between: Option<Vec<Nanos>>,

    /// How many threads `--compare` shows: those that used most CPU time.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = rows, allow_hyphen_values = true, requires = "compare")]
    pub threads: usize,

    /// The seed of the simulated run.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed, allow_hyphen_values = true, requires = "compare")]
    pub seed: u64,
}

/// `mainspring check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The workload files, or `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `mainspring report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The flight record, or `-` for standard input.
    #[arg(value_name = "FILE.msr")]
    pub record: PathBuf,

    /// The report's form: a table for people, or JSON for programs.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = ReportForm::Text)]
    pub report: ReportForm,

    /// Put the schedule into the JSON report: what ran where, from when to when.
    #[arg(long)]
    pub schedule: bool,

    /// Show every thread instance and every CPU in the text report, however many there are.
    #[arg(long)]
    pub expand: bool,

    /// Write the schedule as a trace that the Perfetto UI (ui.perfetto.dev) opens: scheduler events for its tables and its
    /// SQL, or, if the name ends in .json, intervals as Chrome's trace events.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub trace: Option<PathBuf>,

    /// Write a web page with the timeline and the tables; it needs no network.
    #[arg(long, value_name = "OUT", value_parser = out_path(), help_heading = FILES)]
    pub html: Option<PathBuf>,
}

/// `mainspring top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// A flight record, or the Unix socket of a run with `--live` or of a process that serves its runtime.
    #[arg(value_name = "FILE.msr|SOCKET")]
    pub source: PathBuf,

    /// Begin at this time of a record, and stand still.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub at: Option<Nanos>,

    /// How fast a record is played: 1 is as fast as it was.
    #[arg(long, value_name = "X", value_parser = speed, default_value = "0.1")]
    pub speed: f64,

    /// Print one frame in this form and end; into a pipe, that is what happens anyway.
    #[arg(long, value_enum, value_name = "FORM")]
    pub form: Option<TopForm>,
}

/// How one frame is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopForm {
    /// A table for people.
    Text,
    /// JSON for programs, in one line.
    Json,
    /// What Prometheus reads.
    Prometheus,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1e-6..=1_000.0).contains(&speed) => Ok(speed),
        _ => Err("write a number from 0.000001 to 1000".to_owned()),
    }
}

/// `mainspring diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The first flight record.
    #[arg(value_name = "A.msr")]
    pub a: PathBuf,

    /// The second.
    #[arg(value_name = "B.msr")]
    pub b: PathBuf,
}

/// `mainspring replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The flight record, or `-` for standard input.
    #[arg(value_name = "FILE.msr")]
    pub record: PathBuf,

    /// Also check every event against independent books and an exact fluid schedule. Needs memory for the whole record.
    #[arg(long)]
    pub verify: bool,
}

/// `mainspring explain`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").args(["at", "between"]))]
#[command(group = clap::ArgGroup::new("which").args(["thread", "miss", "worst"]).required(true))]
pub struct ExplainArgs {
    /// The flight record, or `-` for standard input.
    #[arg(value_name = "FILE.msr")]
    pub record: PathBuf,

    /// The thread, by the name of its instance: `editor`, or `batch.2` where the file has a `count`.
    #[arg(long, value_name = "NAME", requires = "when")]
    pub thread: Option<String>,

    /// Why did it run, or not run, at this time since the run began, such as 12.5ms?
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, requires = "thread")]
    pub at: Option<Nanos>,

    /// What did it do between two times?
    #[arg(long, value_names = ["FROM", "TO"], num_args = 2, value_parser = time, allow_hyphen_values = true, requires = "thread")]
    pub between: Vec<Nanos>,

    /// Why was this deadline missed? The first is 1; the JSON report numbers them.
    #[arg(long, value_name = "N", value_parser = miss, allow_hyphen_values = true)]
    pub miss: Option<u64>,

    /// What held up the longest job of this thread?
    #[arg(long, value_name = "THREAD")]
    pub worst: Option<String>,
}

/// `mainspring boot`.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// How many CPUs.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = kernel_cpus, allow_hyphen_values = true)]
    pub cpus: u32,

    /// With a network card: TCP echo, and a status page of the kernel's counters, at ports of the loopback interface.
    #[arg(long)]
    pub net: bool,
}

/// `mainspring man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command; the program itself without it.
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,

    /// Write the page of the program and of every command into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "command", help_heading = FILES)]
    pub dir: Option<PathBuf>,
}

/// `mainspring completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

// The variants of these have no help of their own: with it, clap would give every option a paragraph.

/// What a workload can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Machine {
    Sim,
    Linux,
    Qemu,
}

/// What the report looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    Text,
    Json,
}

/// What makes a run fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Misses,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

/// Why a value on the command line is none.
#[derive(Debug)]
enum BadValue {
    Time(DurationError),
    Number(&'static str),
    Seed,
    Seeds,
    StandardOutput,
    NotLoopback,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(error) => write!(f, "{error}; {}", error.help()),
            Self::Number(which) => write!(f, "write a whole number {which}"),
            Self::Seed => f.write_str("a seed is a whole number from 0 on, such as 7"),
            Self::Seeds => f.write_str("write the first and the last seed, such as 1..1000"),
            Self::StandardOutput => {
                f.write_str("standard output is for the report; name a file (`./-` for one of that name)")
            }
            Self::NotLoopback => f.write_str(
                "a run is shown on this host's own address: a port, 127.0.0.1:PORT or [::1]:PORT (from elsewhere, `ssh -L` leads there)",
            ),
        }
    }
}

impl std::error::Error for BadValue {}

fn time(text: &str) -> Result<Nanos, BadValue> {
    parse_duration(text).map_err(BadValue::Time)
}

/// A whole number; `which` says in an error what it has to be.
fn number<N: FromStr>(text: &str, which: &'static str) -> Result<N, BadValue> {
    text.trim().parse().map_err(|_| BadValue::Number(which))
}

fn number_within<N: FromStr + PartialOrd>(
    text: &str,
    range: RangeInclusive<N>,
    which: &'static str,
) -> Result<N, BadValue> {
    number(text, which)
        .and_then(|found| if range.contains(&found) { Ok(found) } else { Err(BadValue::Number(which)) })
}

/// As the file has it: one that is out of range is refused with its line.
fn cpus(text: &str) -> Result<u32, BadValue> {
    number(text, "of CPUs, such as 4")
}

fn kernel_cpus(text: &str) -> Result<u32, BadValue> {
    number_within(text, 1..=16, "of CPUs from 1 to 16")
}

fn jobs(text: &str) -> Result<u16, BadValue> {
    number_within(text, 1..=1024, "of runs at a time, from 1 to 1024")
}

fn rows(text: &str) -> Result<usize, BadValue> {
    number(text, "of threads, such as 20")
}

fn miss(text: &str) -> Result<u64, BadValue> {
    number(text, "from 1 on: the first miss is 1")
}

fn seed(text: &str) -> Result<u64, BadValue> {
    text.trim().parse().map_err(|_| BadValue::Seed)
}

fn seeds(text: &str) -> Result<Range<u64>, BadValue> {
    let (first, last) = text.split_once("..").ok_or(BadValue::Seeds)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| BadValue::Seeds);
    let (first, last) = (number(first)?, number(last)?);
    match last.checked_add(1) {
        Some(end) if first <= last => Ok(first..end),
        _ => Err(BadValue::Seeds),
    }
}

fn loopback(text: &str) -> Result<SocketAddr, BadValue> {
    let port = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let address = port.or_else(|_| text.parse()).map_err(|_| BadValue::NotLoopback)?;
    if address.ip().is_loopback() { Ok(address) } else { Err(BadValue::NotLoopback) }
}

fn out_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_str() {
        Some("-") => Err(BadValue::StandardOutput),
        _ => Ok(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
