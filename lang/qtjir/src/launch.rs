//! How a program's `main` is run from a command line: what it may use, and what its arguments mean.

use crate::ir::{Module, Pos, Type};
use crate::run::{Ended, Fault, FaultKind, Output, Program, Trap, task_fault};
use crate::text;
use mainspring::{Budget, Caps, Config, ConfigError, Cx, Pool, Profile};
use std::fmt;
use std::time::{Duration, Instant};

/// What a program may use, and where it runs.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Turns of loops and calls that the program and its tasks may make.
    pub ops: u64,
    /// Bytes that they may allocate.
    pub memory: u64,
    /// Tasks that they may start.
    pub spawns: u64,
    /// Worker threads; one for each CPU if none.
    pub workers: Option<usize>,
    /// How long it may take; as long as it likes if none.
    pub time: Option<Duration>,
    /// Virtual workers in one thread: the same seed gives the same order of tasks.
    pub seed: Option<u64>,
    /// Bytes of stack for each task; what the runtime has if none.
    pub stack_bytes: Option<usize>,
    /// What a sovereign program may do.
    pub grants: Grants,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            ops: 10_000_000_000,
            memory: 1 << 30,
            spawns: 100_000,
            workers: None,
            time: None,
            seed: None,
            stack_bytes: None,
            grants: Grants::default(),
        }
    }
}

/// The capabilities of a sovereign program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// To start tasks.
    pub spawn: bool,
    /// To choose budgets.
    pub budget: bool,
    /// To make channels.
    pub channel: bool,
}

impl Grants {
    fn caps(self) -> Caps {
        let child = Profile::Service.child_budget();
        let mut caps = Caps::root(
            Profile::Service.task_limit(),
            child,
            Budget::MAX,
            Profile::Service.channel_limit(),
            u32::MAX,
        );
        if !self.spawn {
            caps = caps.without_spawn();
        }
        if !self.budget {
            caps = caps.without_budget();
        }
        if !self.channel {
            caps = caps.without_channel();
        }
        caps
    }
}

/// Why a program was not run, or did not end well.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaunchError {
    /// It has no `main`.
    NoMain,
    /// `main` takes other arguments: these.
    Arguments(String),
    /// It has a limit of time and a seed: in the order of a seed time is virtual, and stands still while anything runs.
    TimeWithSeed,
    /// It cannot be run with these settings.
    Config(ConfigError),
    /// It failed.
    Fault(Fault),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMain => f.write_str("there is no `main`\nhelp: add `fn main() { }`"),
            Self::Arguments(wanted) => write!(f, "`main` takes {wanted}"),
            Self::TimeWithSeed => f.write_str(
                "a seeded run has no time that could be over\nhelp: leave the limit of time or the seed out",
            ),
            Self::Config(error) => error.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for LaunchError {}

impl Launch {
    /// Runs `main` with these arguments: one for each parameter that is no capability.
    pub fn run(&self, program: &Program, args: &[String], output: &dyn Output) -> Result<Ended, LaunchError> {
        let module = program.module();
        let words = words(module, args)?;
        let pool = Pool {
            ops: self.ops,
            memory: self.memory,
            spawn_count: self.spawns,
            channel_ops: 10_000_000,
            syscalls: 1_000_000,
        };
        if module.profile == Profile::Core {
            let until = self.time.and_then(|time| Instant::now().checked_add(time));
            let ended = program.run_alone_until("main", &words, pool.narrow(), until, output);
            return ended.map_err(LaunchError::Fault);
        }
        if self.seed.is_some() && self.time.is_some() {
            return Err(LaunchError::TimeWithSeed);
        }
        let mut config = Config::new(module.profile).root_pool(pool).yield_interval(module.interval());
        if module.profile == Profile::Sovereign {
            config = config.root_caps(self.grants.caps());
        }
        if let Some(workers) = self.workers {
            config = config.workers(workers);
        }
        if let Some(bytes) = self.stack_bytes {
            config = config.stack_size(bytes);
        }
        if let Some(seed) = self.seed {
            config = config.deterministic_seed(seed).fail_on_deadlock();
        }
        let runtime = config.build().map_err(LaunchError::Config)?;
        let main = |cx: &Cx| program.run_in_task("main", &words, cx, output);
        let ended = runtime.run(|cx| match self.time {
            Some(time) => cx.timeout(time, main).unwrap_or_else(|_| Err(out_of_time())),
            None => main(cx),
        });
        match ended {
            Ok(ended) => ended.map_err(LaunchError::Fault),
            Err(error) => Err(LaunchError::Fault(task_fault(&error))),
        }
    }
}

fn out_of_time() -> Fault {
    Fault { kind: FaultKind::Trap(Trap::OutOfTime), pos: Pos::default(), function: String::new() }
}

/// What a program that has ended says of itself: what `main` returned, and the ops.
pub fn summary(program: &Program, ended: &Ended) -> String {
    let value = ended.value.unwrap_or(0);
    let returned = match program.module().function("main").map(|main| &main.result) {
        Some(Type::I64) => format!("returned {}, ", value as i64),
        Some(Type::F64) => format!("returned {:?}, ", f64::from_bits(value)),
        Some(Type::Bool) => format!("returned {}, ", value != 0),
        _ => String::new(),
    };
    format!("{returned}{} ops", ended.all_ops)
}

/// The arguments of `main`. A capability is what was granted, and takes none.
fn words(module: &Module, args: &[String]) -> Result<Vec<u64>, LaunchError> {
    let main = module.function("main").ok_or(LaunchError::NoMain)?;
    let params = main.params();
    let plain: Vec<String> = params
        .iter()
        .filter(|of| !matches!(of, Type::CapSpawn | Type::CapBudget))
        .map(|of| text::type_text(module, of))
        .collect();
    let wrong = || {
        LaunchError::Arguments(if plain.is_empty() { "no arguments".to_owned() } else { plain.join(", ") })
    };
    let mut rest = args.iter();
    let words = params
        .iter()
        .map(|of| {
            let word = match of {
                Type::CapSpawn | Type::CapBudget => return Ok(0),
                Type::I64 => rest.next().and_then(|arg| arg.parse::<i64>().ok()).map(|value| value as u64),
                Type::F64 => rest.next().and_then(|arg| arg.parse::<f64>().ok()).map(f64::to_bits),
                Type::Bool => rest.next().and_then(|arg| arg.parse::<bool>().ok()).map(u64::from),
                _ => None,
            };
            word.ok_or_else(wrong)
        })
        .collect::<Result<_, _>>()?;
    if rest.next().is_some() { Err(wrong()) } else { Ok(words) }
}
