//! `mainspring jan`: checks, shows and runs programs of the Janus subset.

use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
#[cfg(feature = "native")]
use mainspring::Profile;
use mainspring_qtjir::launch::{self, Grants, Launch, LaunchError};
use mainspring_qtjir::{Module, Pos, Program, VerifyError, text};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

pub const EXAMPLES: &str = "\
Examples:
  mainspring jan run docs/examples/tree.jan        run it in budgeted tasks
  mainspring jan run --ops 1000 docs/examples/tree.jan
  mainspring jan run --native docs/examples/tree.jan  with machine code, if built for it
  mainspring jan build docs/examples/tree.jan -o tree  an executable, if built for it
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
    /// Turn a program into an executable, or an object file, that runs under the same bounds.
    Build(BuildArgs),
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
        /// With the yield checks where they are inserted.
        #[arg(long)]
        checks: bool,
        /// As it runs: with its checks, after the passes that make them cheap.
        #[arg(long)]
        passes: bool,
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
    /// How long the program may take, in milliseconds. It is stopped then, wherever it is.
    #[arg(long, value_name = "MS")]
    time: Option<u64>,
    /// Run functions as machine code, as a command with a code generator does anyway. The ops stay the same.
    #[arg(long)]
    native: bool,
    /// Interpret all functions.
    #[arg(long, conflicts_with_all = ["native", "meter"])]
    interpret: bool,
    /// What machine code is stopped by.
    #[arg(long, value_enum, default_value_t = Meter::Ops)]
    meter: Meter,
    /// Capabilities for a sovereign program.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CAPABILITY")]
    grant: Vec<Grant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Meter {
    /// Its ops, which are counted.
    Ops,
    /// Time: nothing is counted in loops and calls, and other tasks run when its quantum is over.
    Time,
}

#[derive(Debug, Args)]
// Without a code generator they are refused, whatever they are.
#[cfg_attr(not(feature = "native"), allow(dead_code))]
struct BuildArgs {
    /// The source file.
    file: PathBuf,
    /// What to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write an object file, and do not link it.
    #[arg(long)]
    object: bool,
    /// What the executable is stopped by.
    #[arg(long, value_enum, default_value_t = Meter::Ops)]
    meter: Meter,
    /// The library to link with; `libmainspring_jan.a` beside this command unless given.
    #[arg(long, value_name = "FILE", conflicts_with = "object")]
    library: Option<PathBuf>,
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
    /// It cannot be turned into machine code.
    Native(String),
    /// It was not run, or failed.
    Launch(String, LaunchError),
}

impl fmt::Display for JanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, cause) => {
                write!(f, "{}: {cause}\nhelp: give the path of a source file", path.display())
            }
            Self::Compile(text) => f.write_str(text.trim_end()),
            Self::Verify(name, error) => write!(f, "{name}:{error}"),
            Self::Native(why) => f.write_str(why),
            Self::Launch(name, LaunchError::Fault(fault)) if fault.pos != Pos::default() => {
                write!(f, "{name}:{fault}")
            }
            Self::Launch(_, LaunchError::Config(error)) => error.fmt(f),
            Self::Launch(name, error) => write!(f, "{name}: {error}"),
        }
    }
}

impl std::error::Error for JanError {}

/// Does what was asked.
pub fn jan(args: &JanArgs, output: Output) -> Result<(), Failure> {
    match &args.command {
        JanCommand::Run(args) => run(args, output),
        JanCommand::Build(args) => build(args, output).map_err(Failure::Jan),
        JanCommand::Check { files } => {
            let mut wrong = String::new();
            for path in files {
                match compile(path) {
                    Ok(module) => {
                        let functions = module.functions.len();
                        output.line(format_args!("{}: ok, {functions} functions", input::name(path)))?;
                    }
                    Err(JanError::Compile(text)) => wrong.push_str(&text),
                    // The other files are checked all the same.
                    Err(other) => wrong.push_str(&format!("{other}\n")),
                }
            }
            if wrong.is_empty() { Ok(()) } else { Err(Failure::Jan(JanError::Compile(wrong))) }
        }
        JanCommand::Ir { file, checks, passes } => {
            let module = compile(file).map_err(Failure::Jan)?;
            let with_checks: Option<fn(Module) -> Result<Program, VerifyError>> = match (*passes, *checks) {
                (true, _) => Some(Program::compile),
                (false, true) => Some(Program::compile_plainly),
                (false, false) => None,
            };
            let shown = match with_checks {
                Some(with_checks) => {
                    let verified = with_checks(module);
                    let verified = verified.map_err(|error| JanError::Verify(input::name(file), error));
                    verified.map_err(Failure::Jan)?.module().clone()
                }
                None => module,
            };
            output.write(|out| out.write_all(text::print(&shown).as_bytes()))
        }
    }
}

fn compile(path: &Path) -> Result<Module, JanError> {
    compiled(path, &source(path)?)
}

fn source(path: &Path) -> Result<String, JanError> {
    let bytes = read(path).map_err(|cause| JanError::Read(path.to_owned(), cause))?;
    String::from_utf8(bytes).map_err(|_| {
        JanError::Read(path.to_owned(), io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8"))
    })
}

fn compiled(path: &Path, source: &str) -> Result<Module, JanError> {
    let wrong = |mistakes: mainspring_janus::Diagnostics| mistakes.render(&input::name(path), source);
    mainspring_janus::compile(source).map_err(|mistakes| JanError::Compile(wrong(mistakes)))
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
    let mut launch = args.launch();
    if args.native || args.meter == Meter::Time || (HAS_NATIVE && !args.interpret) {
        program = native(program, args).map_err(Failure::Jan)?;
        launch.stack_bytes = Some(NATIVE_STACK_BYTES);
    }
    let name = input::name(&args.file);
    let ended = launch.run(&program, &args.args, &Printer(output));
    let ended = ended.map_err(|error| Failure::Jan(JanError::Launch(name.clone(), error)))?;
    output.note(format_args!("{name}: {}", launch::summary(&program, &ended)));
    Ok(())
}

/// Whether the command has a code generator.
const HAS_NATIVE: bool = cfg!(feature = "native");
/// Stack of a task whose functions are machine code: as deep as the interpreter goes, and what the host needs below.
const NATIVE_STACK_BYTES: usize = 2 << 20;

impl RunArgs {
    fn launch(&self) -> Launch {
        Launch {
            ops: self.ops,
            memory: self.memory,
            spawns: self.spawns,
            time: self.time.map(Duration::from_millis),
            workers: self.workers,
            seed: self.seed,
            stack_bytes: None,
            grants: Grants {
                spawn: self.grant.contains(&Grant::Spawn),
                budget: self.grant.contains(&Grant::Budget),
                channel: self.grant.contains(&Grant::Channel),
            },
        }
    }
}

#[cfg(feature = "native")]
const NATIVE: mainspring_native::Options =
    mainspring_native::Options { stack_bytes: 1 << 20, metering: mainspring_native::Metering::Ops };

#[cfg(feature = "native")]
impl Meter {
    fn metering(self) -> mainspring_native::Metering {
        match self {
            Self::Ops => mainspring_native::Metering::Ops,
            Self::Time => mainspring_native::Metering::Time,
        }
    }
}

/// The program with the functions as machine code that can be.
#[cfg(feature = "native")]
fn native(program: Program, args: &RunArgs) -> Result<Program, JanError> {
    let counts_nothing = args.meter == Meter::Time;
    if counts_nothing && args.seed.is_some() {
        let why = "a seeded run counts ops, and has no time that could be over\nhelp: leave `--meter time` or `--seed` out";
        return Err(JanError::Native(why.to_owned()));
    }
    if counts_nothing && args.time.is_none() && program.module().profile == Profile::Core {
        let why = "a program of the core profile has no tasks, and nothing would stop it\nhelp: give it `--time MS`, or leave `--meter time` out";
        return Err(JanError::Native(why.to_owned()));
    }
    let options = mainspring_native::Options { metering: args.meter.metering(), ..NATIVE };
    mainspring_native::compile(program, options).map_err(|error| JanError::Native(error.to_string()))
}

#[cfg(not(feature = "native"))]
const NO_NATIVE: &str = "this command was built without a code generator\n\
     help: build it with `cargo build --release --package mainspring-cli --features native`, or run the program interpreted";

#[cfg(not(feature = "native"))]
fn native(_: Program, _: &RunArgs) -> Result<Program, JanError> {
    Err(JanError::Native(NO_NATIVE.to_owned()))
}

#[cfg(not(feature = "native"))]
fn build(_: &BuildArgs, _: Output) -> Result<(), JanError> {
    Err(JanError::Native(NO_NATIVE.to_owned()))
}

/// The library that an executable is linked with, unless it is named: beside the command.
#[cfg(feature = "native")]
const LIBRARY: &str = "libmainspring_jan.a";

#[cfg(feature = "native")]
fn build(args: &BuildArgs, output: Output) -> Result<(), JanError> {
    let failed = |what: &Path, cause: io::Error| JanError::Read(what.to_owned(), cause);
    let source = source(&args.file)?;
    let program = program(&args.file, compiled(&args.file, &source)?)?;
    let name = input::name(&args.file);
    let options = mainspring_native::Options { metering: args.meter.metering(), ..NATIVE };
    let object = mainspring_native::object(&program, &name, &source, options);
    let object = object.map_err(|error| JanError::Native(error.to_string()))?;
    let out = input::on_disk(&args.output);
    if args.object {
        std::fs::write(&out, object).map_err(|cause| failed(&args.output, cause))?;
        output.note(format_args!("{}: written", args.output.display()));
        return Ok(());
    }
    let library = match &args.library {
        Some(library) => input::on_disk(library).to_path_buf(),
        None => std::env::current_exe()
            .map_err(|cause| failed(Path::new("mainspring"), cause))?
            .with_file_name(LIBRARY),
    };
    if !library.exists() {
        let why = format!(
            "{}: there is no such library\nhelp: build it with `cargo build --package mainspring-jan`, or name one with --library",
            library.display()
        );
        return Err(JanError::Native(why));
    }
    let object_file = out.with_extension("jan.o");
    std::fs::write(&object_file, object).map_err(|cause| failed(&object_file, cause))?;
    let linker = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let linked = std::process::Command::new(&linker)
        .arg("-o")
        .args([out.as_os_str(), object_file.as_os_str(), library.as_os_str()])
        .args(["-lpthread", "-ldl", "-lm"])
        .output();
    let _ = std::fs::remove_file(&object_file);
    let linked = linked.map_err(|cause| failed(Path::new(&linker), cause))?;
    if !linked.status.success() {
        let said = String::from_utf8_lossy(&linked.stderr).into_owned();
        return Err(JanError::Native(format!("{} failed:\n{}", linker.to_string_lossy(), said.trim_end())));
    }
    output.note(format_args!("{}: written", args.output.display()));
    Ok(())
}
