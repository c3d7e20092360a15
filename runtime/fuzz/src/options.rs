//! What the command line asks for.

use crate::acts::Act;
use std::time::Duration;

/// A lie to the model, or a fault of the fuzzer's own: the run must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Tasks use budget that the model does not know of.
    Unpaid,
    /// The model takes a capability away that the child has.
    Authority,
    /// A value is never dropped.
    Leak,
    /// A value is noted as dropped before it is.
    Twice,
    /// A child is cancelled, and the model is not told.
    Cancel,
    /// A child panics, and the model is not told.
    Panic,
    /// Messages are numbered backwards.
    Order,
    /// A task waits for a message that no task sends.
    Stuck,
    /// The model takes a task to be on another thread.
    Thread,
    /// A program that is not a function of its seed.
    Trace,
    /// The model takes the root to have been given no CPU time.
    Time,
    /// The model takes every context to be lent after a call.
    Loan,
    /// The process dies.
    Crash,
}

impl Mutant {
    pub const ALL: [(&str, Self); 13] = [
        ("unpaid", Self::Unpaid),
        ("authority", Self::Authority),
        ("leak", Self::Leak),
        ("twice", Self::Twice),
        ("cancel", Self::Cancel),
        ("panic", Self::Panic),
        ("order", Self::Order),
        ("stuck", Self::Stuck),
        ("thread", Self::Thread),
        ("trace", Self::Trace),
        ("time", Self::Time),
        ("loan", Self::Loan),
        ("crash", Self::Crash),
    ];
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The first seed.
    pub seed: Option<u64>,
    /// How many seeds; without a number, until time or acts are over.
    pub seeds: Option<u64>,
    /// Acts per seed.
    pub acts: u64,
    /// Acts in all.
    pub total: Option<u64>,
    pub time: Option<Duration>,
    /// Processes at a time.
    pub jobs: usize,
    /// Without an act for that long, a run hangs.
    pub patience: Duration,
    /// Acts that are left out.
    pub without: Vec<Act>,
    /// Tasks may change threads.
    pub may_move: bool,
    /// Sockets by epoll alone.
    pub epoll: bool,
    pub mutant: Option<Mutant>,
    pub shrink: bool,
    /// Ends at the first failure.
    pub first: bool,
    /// Runs seeds in this process.
    pub child: bool,
}

const USAGE: &str = "\
usage: mainspring-fuzz-runtime [OPTION]...
  --seed N        first seed (else from the clock)
  --seeds N       how many seeds
  --seconds N     until so much time has passed
  --total N       until so many acts were done
  --acts N        acts per seed (3000)
  --jobs N        processes at a time
  --patience N    seconds without an act that are a hang (20)
  --without A,B   leaves acts out; `--without list` lists them
  --may-move      does not mind tasks that change threads
  --epoll         sockets by epoll alone
  --no-shrink     does not look for a shorter program that fails
  --first         ends at the first failure
  --mutant NAME   lies to the model, which must notice; `--mutant list` lists them";

impl Options {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seed: None,
            seeds: None,
            acts: 3000,
            total: None,
            time: None,
            jobs: std::thread::available_parallelism().map_or(1, Into::into),
            patience: Duration::from_secs(20),
            without: Vec::new(),
            may_move: false,
            epoll: false,
            mutant: None,
            shrink: true,
            first: false,
            child: false,
        };
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or(format!("{name} needs a value"));
            let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
            match name.as_str() {
                "--seed" => options.seed = Some(number(value()?)?),
                "--seeds" => options.seeds = Some(number(value()?)?),
                "--seconds" => options.time = Some(Duration::from_secs(number(value()?)?)),
                "--total" => options.total = Some(number(value()?)?),
                "--acts" => options.acts = number(value()?)?.clamp(1, 20_000),
                "--jobs" => options.jobs = number(value()?)?.max(1) as usize,
                "--patience" => options.patience = Duration::from_secs(number(value()?)?.max(1)),
                "--without" => {
                    for act in value()?.split(',').filter(|name| !name.is_empty()) {
                        options.without.push(
                            Act::named(act).ok_or_else(|| {
                                format!("no act {act}; there are {}", Act::names().join(","))
                            })?,
                        );
                    }
                }
                "--may-move" => options.may_move = true,
                "--epoll" => options.epoll = true,
                "--no-shrink" => options.shrink = false,
                "--first" => options.first = true,
                "--mutant" => {
                    let name = value()?;
                    let found = Mutant::ALL.into_iter().find(|(known, _)| *known == name);
                    let names: Vec<_> = Mutant::ALL.iter().map(|(name, _)| *name).collect();
                    options.mutant =
                        Some(found.ok_or(format!("no mutant {name}; there are {}", names.join(",")))?.1);
                }
                "--child" => options.child = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }

    /// The arguments that make another process run seeds as this one would.
    pub fn for_child(&self) -> Vec<String> {
        let mut args = vec!["--acts".to_owned(), self.acts.to_string()];
        args.extend(["--patience".to_owned(), self.patience.as_secs().to_string()]);
        if !self.without.is_empty() {
            let names: Vec<_> = self.without.iter().map(|act| act.name()).collect();
            args.extend(["--without".to_owned(), names.join(",")]);
        }
        if self.may_move {
            args.push("--may-move".to_owned());
        }
        if self.epoll {
            args.push("--epoll".to_owned());
        }
        if let Some(mutant) = self.mutant {
            let name = Mutant::ALL.iter().find(|(_, other)| *other == mutant).map_or("", |(name, _)| name);
            args.extend(["--mutant".to_owned(), name.to_owned()]);
        }
        args
    }
}
