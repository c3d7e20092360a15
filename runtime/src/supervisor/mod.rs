//! Supervisors: children whose failures stay their own, and that are started again.
//!
//! Conserved: every life of a child is paid from the supervisor's pool, and what it has left goes back there, so that restarts
//! move budgets and make none: a child that fails for ever uses up the pool or the restart intensity, whichever is less. At most
//! so many restarts happen within so much time. Children are stopped in the reverse of the order in which they are started.

mod plan;

pub use plan::{Decision, Exit, Plan, Restart, Strategy};

use crate::calls;
use crate::cx::Cx;
use crate::error::{SpawnError, TaskError};
use crate::nursery::join_set::{Ends, SaysEnd};
use crate::nursery::{Handle, Nursery, NurseryError, NurseryOptions, SpawnBuilder};
use crate::sync::CancelToken;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Body<'env> = Box<dyn Fn(&Cx) -> Result<(), Failure> + Send + Sync + 'env>;
type Options<'env> = Box<
    dyn for<'n, 'scope, 'around> Fn(SpawnBuilder<'n, 'scope, 'around>) -> SpawnBuilder<'n, 'scope, 'around>
        + Send
        + Sync
        + 'env,
>;

/// A child of a supervisor: what it does, and when it is started again.
pub struct Child<'env> {
    name: &'static str,
    body: Body<'env>,
    restart: Restart,
    options: Option<Options<'env>>,
}

impl fmt::Debug for Child<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({}, {:?})", self.name, self.restart)
    }
}

impl<'env> Child<'env> {
    /// A child that runs `body`, once per life. It fails by an error, a panic, too little stack, or the end of its budget.
    pub fn new<F, E>(name: &'static str, body: F) -> Self
    where
        F: Fn(&Cx) -> Result<(), E> + Send + Sync + 'env,
        E: Into<Failure>,
    {
        Self {
            name,
            body: Box::new(move |cx| body(cx).map_err(Into::into)),
            restart: Restart::default(),
            options: None,
        }
    }

    /// When it is started again. Without this: always.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// How each of its lives is spawned: with all options of a spawn, paid from the supervisor's pool.
    ///
    /// ```
    /// # use mainspring::supervisor::Child;
    /// # use mainspring::Budget;
    /// let child = Child::new("child", |_| Ok::<(), &str>(()))
    ///     .options(|spawn| spawn.budget(Budget { ops: 500, ..Budget::ZERO }));
    /// ```
    #[must_use]
    pub fn options<F>(mut self, options: F) -> Self
    where
        F: for<'n, 'scope, 'around> Fn(
                SpawnBuilder<'n, 'scope, 'around>,
            ) -> SpawnBuilder<'n, 'scope, 'around>
            + Send
            + Sync
            + 'env,
    {
        self.options = Some(Box::new(options));
        self
    }
}

/// Why a supervisor gave up. All its children have ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum SupervisorError {
    /// This child failed once more than [`Supervisor::intensity`] allows. A supervisor further out may start all of it again.
    TooManyRestarts {
        /// Its name.
        child: &'static str,
        /// How it ended the last time; `None` if it returned.
        last: Option<TaskError>,
        /// Restarts of all children so far.
        restarts: u64,
    },
    /// This child could not be started: most likely the pool cannot pay for another life.
    NotStarted {
        /// Its name.
        child: &'static str,
        /// Why.
        error: SpawnError,
        /// Restarts of all children so far.
        restarts: u64,
    },
    /// The supervisor's own nursery could not be opened, or its time was over.
    Nursery(NurseryError),
}

impl fmt::Display for SupervisorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRestarts { child, last: Some(last), restarts } => {
                write!(f, "{child} failed too often, after {restarts} restarts of all: {last}")
            }
            Self::TooManyRestarts { child, last: None, restarts } => {
                write!(f, "{child} returned too often, after {restarts} restarts of all")
            }
            Self::NotStarted { child, error, restarts } => {
                write!(f, "{child} could not be started, after {restarts} restarts of all: {error}")
            }
            Self::Nursery(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SupervisorError {}

/// Children whose failures stay their own, and that are started again.
///
/// ```
/// # use mainspring::supervisor::{Child, Restart, Strategy, Supervisor};
/// # use mainspring::{Config, Profile};
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # use std::time::Duration;
/// # let runtime = Config::new(Profile::Cluster).build().unwrap();
/// let lives = AtomicU32::new(0);
/// let flaky = Child::new("flaky", |_| match lives.fetch_add(1, Ordering::Relaxed) {
///     0 | 1 => Err("not yet"),
///     _ => Ok(()),
/// });
/// let supervisor = Supervisor::new(Strategy::OneForOne)
///     .intensity(3, Duration::from_secs(5))
///     .child(flaky.restart(Restart::Transient));
/// assert_eq!(runtime.run(|cx| supervisor.run(cx).unwrap()).unwrap(), 2);
/// ```
#[must_use = "a supervisor does nothing until it runs"]
pub struct Supervisor<'env> {
    strategy: Strategy,
    most: u32,
    within: Duration,
    children: Vec<Child<'env>>,
    options: NurseryOptions,
}

impl fmt::Debug for Supervisor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("strategy", &self.strategy)
            .field("children", &self.children)
            .finish()
    }
}

/// A child that runs.
struct Life<'scope> {
    number: u64,
    handle: Handle<'scope, Result<(), Failure>>,
}

/// What a supervisor does while it runs.
struct Serving<'a, 'scope, 'env> {
    supervisor: &'env Supervisor<'env>,
    cx: &'a Cx,
    nursery: &'a Nursery<'scope, 'env>,
    plan: Plan,
    ends: Arc<Ends>,
    running: BTreeMap<usize, Life<'scope>>,
    next: u64,
    restarts: u64,
}

impl<'env> Supervisor<'env> {
    /// No children yet. At most one restart in five seconds, unless [`Supervisor::intensity`] says otherwise.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            most: 1,
            within: Duration::from_secs(5),
            children: Vec::new(),
            options: NurseryOptions::new(),
        }
    }

    /// At most `most` restarts within any time of this length. One more, and the supervisor gives up.
    pub fn intensity(mut self, most: u32, within: Duration) -> Self {
        self.most = most;
        self.within = within;
        self
    }

    /// How the nursery of all lives is opened: its pool, its deadline, and what happens to a child that runs out of budget. A
    /// child's failure stays its own, whatever the options say.
    pub fn nursery(mut self, options: NurseryOptions) -> Self {
        self.options = options;
        self
    }

    /// Another child. Children are started in the order in which they are added.
    pub fn child(mut self, child: Child<'env>) -> Self {
        self.children.push(child);
        self
    }

    /// Runs the children until all have done their work: how many restarts there were. A task that is cancelled stops them.
    pub fn run(&'env self, cx: &Cx) -> Result<u64, SupervisorError> {
        self.run_until(cx, &CancelToken::new())
    }

    /// As [`Supervisor::run`], until the token is cancelled: then the children are stopped, last first.
    pub fn run_until(&'env self, cx: &Cx, token: &CancelToken) -> Result<u64, SupervisorError> {
        calls::count(cx);
        let ended = cx.nursery_with(self.options.isolate(), |nursery| {
            let within_ns = u64::try_from(self.within.as_nanos()).unwrap_or(u64::MAX);
            let restarts = self.children.iter().map(|child| child.restart);
            let mut serving = Serving {
                supervisor: self,
                cx,
                nursery,
                plan: Plan::new(self.strategy, self.most, within_ns, restarts),
                ends: Arc::default(),
                running: BTreeMap::new(),
                next: 0,
                restarts: 0,
            };
            let served = serving.serve(token);
            serving.stop(0..self.children.len());
            served.map(|()| serving.restarts)
        });
        ended.unwrap_or_else(|error| Err(SupervisorError::Nursery(error)))
    }
}

impl Serving<'_, '_, '_> {
    fn serve(&mut self, token: &CancelToken) -> Result<(), SupervisorError> {
        self.start(0..self.supervisor.children.len())?;
        while self.plan.wants_any() && !token.is_cancelled() {
            let Some(number) = self.ends.pop() else {
                let (ends, cx) = (&self.ends, self.cx);
                if cx.until(token, |cx| ends.wait(cx, None)).is_err() {
                    break;
                }
                continue;
            };
            // A life that was stopped by order has been dealt with.
            let Some(child) =
                self.running.iter().find_map(|(&child, life)| (life.number == number).then_some(child))
            else {
                continue;
            };
            let error = self.join(child);
            let exit = if error.is_none() { Exit::Returned } else { Exit::Failed };
            let now_ns = u64::try_from(self.cx.now().as_nanos()).unwrap_or(u64::MAX);
            match self.plan.ended(child, exit, now_ns) {
                Decision::Leave => {}
                Decision::Restart(range) => {
                    self.stop(range.clone());
                    self.restarts += 1;
                    self.start(range)?;
                }
                Decision::GiveUp => {
                    return Err(SupervisorError::TooManyRestarts {
                        child: self.supervisor.children[child].name,
                        last: error,
                        restarts: self.restarts,
                    });
                }
            }
        }
        Ok(())
    }

    /// Takes a child's result: its error, if it failed.
    fn join(&mut self, child: usize) -> Option<TaskError> {
        let life = self.running.remove(&child)?;
        match life.handle.join(self.cx) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(TaskError::Failed(error)),
            Err(error) => Some(error),
        }
    }

    /// Starts those of these children that are wanted, first first.
    fn start(&mut self, children: std::ops::Range<usize>) -> Result<(), SupervisorError> {
        for index in children.filter(|&child| self.plan.is_wanted(child)).collect::<Vec<_>>() {
            let child = &self.supervisor.children[index];
            let plain = self.nursery.builder();
            let builder = match &child.options {
                Some(options) => options(plain),
                None => plain,
            };
            let builder = builder.name(child.name);
            let number = self.next;
            self.next += 1;
            let says_end = SaysEnd { ends: self.ends.clone(), number };
            let spawned = builder.spawn(move |cx| {
                let _says_end = says_end;
                (child.body)(cx)
            });
            let restarts = self.restarts;
            let handle = spawned.map_err(|error| SupervisorError::NotStarted {
                child: child.name,
                error,
                restarts,
            })?;
            self.running.insert(index, Life { number, handle });
        }
        Ok(())
    }

    /// Stops those of these children that run, last first, each before the next.
    fn stop(&mut self, children: std::ops::Range<usize>) {
        for child in children.rev() {
            if let Some(life) = self.running.get(&child) {
                life.handle.cancel();
                drop(self.join(child));
                self.plan.stopped(child);
            }
        }
    }
}
