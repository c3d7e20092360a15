//! `mainspring jan`: checks, shows and runs programs of the Janus subset.

use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
use mainspring::{Budget, Caps, Config, ConfigError, Pool, Profile};
use mainspring_qtjir::{Ended, Fault, Module, Program, Type, VerifyError, task_fault, text};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fmt, io};

pub const EXAMPLES: &str = "\
Examples:
  mainspring jan run docs/examples/tree.jan        run it in budgeted tasks
  mainspring jan run --ops 1000 docs/examples/tree.jan
  mainspring jan run --native docs/examples/tree.jan  with machine code, if built for it
  mainspring jan check docs/examples/tree.jan      say what is wrong with it
  mainspring jan ir --checks docs/examples/tree.jan  show where it looks at its budget";

/// `mainspring jan`.
#[derive(Debug, Args)]
pub struct JanArgs {
    /// What to do.
    #[command(subcommand)]
    command: JanCommand,
}

#[derive(Debug, Subcommand)]
enum JanCommand {
    /// Run a program's `main`. What it and its tasks use is bounded.
    Run(RunArgs),
    /// Check programs without running them, and list all that is wrong.
    Check {
        /// The source files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show a program as QTJIR.
    Ir {
        /// The source file.
        file: PathBuf,
        /// With the yield checks that are inserted before it runs.
        #[arg(long)]
        checks: bool,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The source file.
    file: PathBuf,
    /// The arguments of `main`: one for each parameter that is no capability.
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    /// Worker threads; one for each CPU unless given.
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Run virtual workers in one thread: the same seed gives the same order of tasks.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Loop turns and calls that the program and its tasks may make.
    #[arg(long, value_name = "N", default_value_t = 10_000_000_000)]
    ops: u64,
    /// Bytes that they may allocate.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    memory: u64,
    /// Tasks that they may start.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    spawns: u64,
    /// Run functions that start no tasks as machine code. The ops stay the same.
    #[arg(long)]
    native: bool,
    /// Capabilities for a sovereign program.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CAPABILITY")]
    grant: Vec<Grant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Grant {
    /// To start tasks.
    Spawn,
    /// To choose budgets.
    Budget,
    /// To make channels.
    Channel,
}

/// Why a program was not run, or did not end well.
#[derive(Debug)]
pub enum JanError {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// It does not compile. The text has its places.
    Compile(String),
    /// It is too large to run.
    Verify(String, VerifyError),
    /// It has no `main`.
    NoMain(String),
    /// Other arguments than `main` takes.
    Arguments(String, String),
    /// It cannot be run with these settings.
    Config(ConfigError),
    /// It cannot be turned into machine code.
    Native(String),
    /// It failed.
    Fault(String, Fault),
}

impl fmt::Display for JanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, cause) => {
                write!(f, "{}: {cause}\nhelp: give the path of a source file", path.display())
            }
            Self::Compile(text) => f.write_str(text.trim_end()),
            Self::Verify(name, error) => write!(f, "{name}:{error}"),
            Self::NoMain(name) => write!(f, "{name}: there is no `main`\nhelp: add `fn main() {{ }}`"),
            Self::Arguments(name, wanted) => write!(f, "{name}: `main` takes {wanted}"),
            Self::Config(error) => error.fmt(f),
            Self::Native(why) => f.write_str(why),
            Self::Fault(name, fault) => write!(f, "{name}:{fault}"),
        }
    }
}

impl std::error::Error for JanError {}

/// Does what was asked.
pub fn jan(args: &JanArgs, output: Output) -> Result<(), Failure> {
    match &args.command {
        JanCommand::Run(args) => run(args, output),
        JanCommand::Check { files } => {
            let mut wrong = String::new();
            for path in files {
                match compile(path) {
                    Ok(module) => {
                        let functions = module.functions.len();
                        output.line(format_args!("{}: ok, {functions} functions", input::name(path)))?;
                    }
                    Err(JanError::Compile(text)) => wrong.push_str(&text),
                    Err(other) => return Err(Failure::Jan(other)),
                }
            }
            if wrong.is_empty() { Ok(()) } else { Err(Failure::Jan(JanError::Compile(wrong))) }
        }
        JanCommand::Ir { file, checks } => {
            let module = compile(file).map_err(Failure::Jan)?;
            let shown =
                if *checks { program(file, module).map_err(Failure::Jan)?.module().clone() } else { module };
            output.write(|out| out.write_all(text::print(&shown).as_bytes()))
        }
    }
}

fn compile(path: &Path) -> Result<Module, JanError> {
    let bytes = read(path).map_err(|cause| JanError::Read(path.to_owned(), cause))?;
    let name = input::name(path);
    let source = String::from_utf8(bytes).map_err(|_| {
        JanError::Read(path.to_owned(), io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8"))
    })?;
    mainspring_janus::compile(&source).map_err(|mistakes| JanError::Compile(mistakes.render(&name, &source)))
}

/// The bytes of the file: one more than allowed tells too long from just fitting, and an endless pipe ends.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(input::on_disk(path))?;
    file.take(mainspring_janus::MAX_SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn program(path: &Path, module: Module) -> Result<Program, JanError> {
    Program::compile(module).map_err(|error| JanError::Verify(input::name(path), error))
}

/// Prints what a program prints. A reader who stops reading is no error of the program's.
struct Printer(Output);

impl mainspring_qtjir::Output for Printer {
    fn line(&self, text: &str) {
        let _ = self.0.line(text);
    }
}

fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    let module = compile(&args.file).map_err(Failure::Jan)?;
    let mut program = program(&args.file, module).map_err(Failure::Jan)?;
    if args.native {
        program = native(program).map_err(Failure::Jan)?;
    }
    let ended = execute(args, &program, &Printer(output)).map_err(Failure::Jan)?;
    let result = program.module().function("main").map(|main| &main.result);
    let value = ended.value.unwrap_or(0);
    let returned = match result {
        Some(Type::I64) => format!("returned {}, ", value as i64),
        Some(Type::F64) => format!("returned {:?}, ", f64::from_bits(value)),
        Some(Type::Bool) => format!("returned {}, ", value != 0),
        _ => String::new(),
    };
    output.note(format_args!("{}: {returned}{} ops", input::name(&args.file), ended.all_ops));
    Ok(())
}

/// The program with the functions as machine code that can be.
#[cfg(feature = "native")]
fn native(program: Program) -> Result<Program, JanError> {
    let compiled = mainspring_native::compile(program, mainspring_native::Options::default());
    compiled.map_err(|error| JanError::Native(error.to_string()))
}

#[cfg(not(feature = "native"))]
fn native(_: Program) -> Result<Program, JanError> {
    let why = "this command was built without a code generator\n\
               help: build it with `cargo build --release --package mainspring-cli --features native`, or leave --native out";
    Err(JanError::Native(why.to_owned()))
}

fn execute(args: &RunArgs, program: &Program, printer: &Printer) -> Result<Ended, JanError> {
    let name = input::name(&args.file);
    let words = words(&name, program.module(), &args.args)?;
    let fault = |fault| JanError::Fault(name.clone(), fault);
    let pool = Pool {
        ops: args.ops,
        memory: args.memory,
        spawn_count: args.spawns,
        channel_ops: 10_000_000,
        syscalls: 1_000_000,
    };
    let module = program.module();
    if module.profile == Profile::Core {
        return program.run_alone("main", &words, pool.narrow(), printer).map_err(fault);
    }
    let mut config = Config::new(module.profile).root_pool(pool).yield_interval(module.interval());
    if module.profile == Profile::Sovereign {
        config = config.root_caps(granted(&args.grant));
    }
    if let Some(workers) = args.workers {
        config = config.workers(workers);
    }
    if let Some(seed) = args.seed {
        config = config.deterministic_seed(seed).fail_on_deadlock();
    }
    let runtime = config.build().map_err(JanError::Config)?;
    match runtime.run(|cx| program.run_in_task("main", &words, cx, printer)) {
        Ok(ended) => ended.map_err(fault),
        Err(error) => Err(fault(task_fault(&error))),
    }
}

fn granted(grants: &[Grant]) -> Caps {
    let child = Profile::Service.child_budget();
    let mut caps = Caps::root(
        Profile::Service.task_limit(),
        child,
        Budget::MAX,
        Profile::Service.channel_limit(),
        u32::MAX,
    );
    if !grants.contains(&Grant::Spawn) {
        caps = caps.without_spawn();
    }
    if !grants.contains(&Grant::Budget) {
        caps = caps.without_budget();
    }
    if !grants.contains(&Grant::Channel) {
        caps = caps.without_channel();
    }
    caps
}

/// The arguments of `main`. A capability is what was granted, and takes none.
fn words(name: &str, module: &Module, args: &[String]) -> Result<Vec<u64>, JanError> {
    let main = module.function("main").ok_or_else(|| JanError::NoMain(name.to_owned()))?;
    let params = main.params();
    let plain: Vec<String> = params
        .iter()
        .filter(|of| !matches!(of, Type::CapSpawn | Type::CapBudget))
        .map(|of| text::type_text(module, of))
        .collect();
    let wrong = || {
        let wanted = if plain.is_empty() { "no arguments".to_owned() } else { plain.join(", ") };
        JanError::Arguments(name.to_owned(), wanted)
    };
    let mut rest = args.iter();
    let words = params
        .iter()
        .map(|of| match of {
            Type::CapSpawn | Type::CapBudget => Ok(0),
            Type::I64 => rest
                .next()
                .and_then(|arg| arg.parse::<i64>().ok())
                .map(|value| value as u64)
                .ok_or_else(wrong),
            Type::F64 => {
                rest.next().and_then(|arg| arg.parse::<f64>().ok()).map(f64::to_bits).ok_or_else(wrong)
            }
            Type::Bool => {
                rest.next().and_then(|arg| arg.parse::<bool>().ok()).map(u64::from).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        })
        .collect::<Result<_, _>>()?;
    if rest.next().is_some() { Err(wrong()) } else { Ok(words) }
}
