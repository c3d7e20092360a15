//! How a runtime is set up.

use crate::budget::Pool;
use crate::caps::Caps;
use crate::error::ConfigError;
use crate::event_loop::EventLoop;
use crate::io::IoDriver;
use crate::profile::Profile;
use crate::protocol::fair_tasks::FairTaskSettings;
use crate::quota::Rate;
use crate::reserve::HostReservation;
use crate::runtime::Runtime;
use crate::stack::arena::LEAST_STACK;
use crate::watchdog::Watchdog;
use crate::worker::victim::{DEFAULT_SEED, VictimStrategy};
use mainspring_abi::Weight;
use mainspring_sched::MAX_REQUEST;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const STACK_SIZES: std::ops::RangeInclusive<usize> = LEAST_STACK..=1 << 30;

/// How a runtime is set up. The host of a runtime holds all authority; what it puts here is what its tasks can have.
///
/// ```
/// use mainspring::{Config, Profile};
/// let runtime = Config::new(Profile::Service).workers(2).build().unwrap();
/// assert_eq!(runtime.run(|_cx| 6 * 7).unwrap(), 42);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) profile: Profile,
    pub(crate) workers: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) deterministic: bool,
    pub(crate) victims: VictimStrategy,
    pub(crate) stack_size: usize,
    pub(crate) max_stacks: Option<usize>,
    pub(crate) root_caps: Caps,
    pub(crate) root_pool: Pool,
    pub(crate) yield_interval: u32,
    pub(crate) quantum_ops: u32,
    pub(crate) cleanup_ops: u32,
    pub(crate) fail_on_deadlock: bool,
    pub(crate) tenants: Option<Vec<Weight>>,
    pub(crate) tenant_rates: Vec<Option<Rate>>,
    pub(crate) fair_tasks: Option<FairTaskSettings>,
    pub(crate) io: IoDriver,
    pub(crate) reserve: Option<HostReservation>,
    /// A task that runs into the guard of its stack is abandoned, rather than the process aborted.
    pub(crate) abandons_overflowed: bool,
    pub(crate) migrates_started_tasks: bool,
    pub(crate) watchdog: Option<Watchdog>,
    #[cfg(feature = "console")]
    pub(crate) observed_tasks: usize,
    pub(crate) event_loop: Option<Arc<dyn EventLoop>>,
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Profile::default())
    }
}

/// Tenants of the fair discipline at most.
const MOST_TENANTS: usize = 4096;

/// Stacks of a runtime that was not told how many.
pub(crate) const USUAL_STACKS: usize = (1 << 20) + (1 << 17);

/// Ops that a task runs on at most before it looks up.
pub(crate) const SLICE: u32 = 1024;

impl Config {
    /// Ops that a task runs on before it looks up: at cancellation, timers, other tasks. An interval of its checks, and not
    /// too many.
    pub(crate) fn slice_ops(&self) -> u32 {
        self.yield_interval.min(SLICE)
    }

    /// The defaults of a profile: one worker per core, its capabilities, and an ample pool for root tasks.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            workers: None,
            seed: DEFAULT_SEED,
            deterministic: false,
            victims: VictimStrategy::default(),
            stack_size: 112 << 10,
            max_stacks: None,
            root_caps: profile.implicit_caps(),
            root_pool: Pool::AMPLE,
            yield_interval: profile.yield_interval(),
            quantum_ops: 16_384,
            cleanup_ops: 10_000,
            fail_on_deadlock: false,
            tenants: None,
            tenant_rates: Vec::new(),
            fair_tasks: None,
            io: IoDriver::Auto,
            reserve: None,
            abandons_overflowed: false,
            migrates_started_tasks: false,
            watchdog: Some(Watchdog::default()),
            #[cfg(feature = "console")]
            observed_tasks: 0,
            event_loop: None,
        }
    }

    /// How many workers: 1 to 1024. Unless set, one per core.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Runs virtual workers in one thread, in virtual time: equal input, seed, workers and budgets give the same order
    /// of every switch and every steal.
    #[must_use]
    pub fn deterministic_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.deterministic = true;
        self
    }

    /// The seed of the victim draws, without the deterministic mode.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Lets the host's kernel keep CPU time for the workers, if it can: [`Runtime::host_standing`] says whether it does.
    #[must_use]
    pub fn reserve(mut self, reservation: HostReservation) -> Self {
        self.reserve = Some(reservation);
        self
    }

    /// How workers choose a victim to steal from.
    #[must_use]
    pub fn victims(mut self, strategy: VictimStrategy) -> Self {
        self.victims = strategy;
        self
    }

    /// Usable bytes of a stack, 16 KiB to 1 GiB; 112 KiB unless set. Memory is committed as it is touched.
    ///
    /// A part of each stack (24 KiB, or a quarter of a smaller one, but at least 8 KiB) is kept for unwinding, panics and
    /// destructors: with less than that left, the runtime's entry points and `#[budgeted]` functions fail the task as
    /// [`TaskError::StackOverflow`](crate::TaskError::StackOverflow).
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// When a task runs into the guard of its stack: abandons the task's frames and fails it as
    /// [`TaskError::StackOverflow`](crate::TaskError::StackOverflow), instead of ending the process. Its stack is never used
    /// again. Tasks that are low on stack at an entry point of the runtime fail by unwinding either way.
    ///
    /// # Safety
    ///
    /// The frames end without their destructors, at any instruction. The caller promises that no code that runs in tasks of this
    /// runtime, libraries included, relies on a destructor or on the rest of a function to be memory safe: no `std::thread::scope`
    /// and no other scoped threads, no value that is pinned to the stack and linked from elsewhere (most of the futures of other
    /// crates), no lock of the C library or of the allocator that others need (it stays held). The runtime's own scopes are
    /// cancelled and awaited; locks that a task held on the way stay held.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn abandon_overflowed_stacks(mut self) -> Self {
        self.abandons_overflowed = true;
        self
    }

    /// How many stacks there can be: how many tasks can have started and not ended. Unless set, somewhat more than a million, or
    /// as many as the address space allows.
    #[must_use]
    pub fn max_stacks(mut self, stacks: usize) -> Self {
        self.max_stacks = Some(stacks);
        self
    }

    /// The capabilities of root tasks.
    #[must_use]
    pub fn root_caps(mut self, caps: Caps) -> Self {
        self.root_caps = caps;
        self
    }

    /// What all root tasks together may use.
    #[must_use]
    pub fn root_pool(mut self, pool: Pool) -> Self {
        self.root_pool = pool;
        self
    }

    /// After how many iterations `#[budgeted]` loops check.
    #[must_use]
    pub fn yield_interval(mut self, iterations: u32) -> Self {
        self.yield_interval = iterations;
        self
    }

    /// After how many ops a task gives way to others that are ready on its worker.
    #[must_use]
    pub fn quantum_ops(mut self, ops: u32) -> Self {
        self.quantum_ops = ops;
        self
    }

    /// The ops that the cleanup of a cancelled task may use.
    #[must_use]
    pub fn cleanup_ops(mut self, ops: u32) -> Self {
        self.cleanup_ops = ops;
        self
    }

    /// The fair discipline: tenants 0, 1, … with these weights share each worker, whatever the number of their tasks.
    /// `SpawnBuilder::tenant` says whose a task is; its children are its tenant's too, and root tasks are tenant 0's.
    ///
    /// Shares are of time on the monotonic clock; in the deterministic mode, of ops.
    #[must_use]
    pub fn fair(mut self, tenants: &[Weight]) -> Self {
        self.tenants = Some(tenants.to_vec());
        self
    }

    /// A quota for a tenant of the fair discipline: the tasks that are spawned for it ([`SpawnBuilder::tenant`]), and all below
    /// them, share it.
    ///
    /// [`SpawnBuilder::tenant`]: crate::SpawnBuilder::tenant
    #[must_use]
    pub fn tenant_rate(mut self, tenant: usize, rate: Rate) -> Self {
        if self.tenant_rates.len() <= tenant {
            // More than there can be is refused when the runtime is built.
            self.tenant_rates.resize(tenant.min(MOST_TENANTS) + 1, None);
        }
        if let Some(place) = self.tenant_rates.get_mut(tenant) {
            *place = Some(rate);
        }
        self
    }

    /// The fair discipline by task: each worker has a scheduler core of its own, each task is a thread of one of them,
    /// with a weight, a latency class and workers that it may use (`SpawnBuilder::schedule`), and what every core was
    /// asked can be recorded ([`Runtime::close_record`]) and replayed. Shares are of time on the monotonic clock.
    #[must_use]
    pub fn fair_by_task(mut self, settings: FairTaskSettings) -> Self {
        self.fair_tasks = Some(settings);
        self
    }

    /// How tasks talk to sockets and files, if not by what the kernel does best.
    #[must_use]
    pub fn io(mut self, driver: IoDriver) -> Self {
        self.io = driver;
        self
    }

    /// Lets a worker that is idle, or whose task wakes another, go on with a task that started on another worker. Without
    /// this, a task stays on the thread that it started on, and only tasks that have not started are shared.
    ///
    /// It helps programs whose tasks run long and yield often, and start in bursts on one worker: the fair disciplines
    /// balance them then. Tasks that mostly wait for each other are faster without it.
    ///
    /// # Safety
    ///
    /// After any yield point (a yield, a wait, a check, the drop of a nursery) a task may be on another thread, and the
    /// compiler does not know it. The program promises for all code that its tasks run, libraries and the standard library
    /// included, that nothing of a thread crosses a yield point:
    ///
    /// - no reference into a `thread_local!`, no address of one that the compiler may keep: a function that yields reads
    ///   thread-locals only through calls that are not inlined into it;
    /// - no value that is not `Send`: no `Rc` of which another thread has a clone, no guard of `std::sync::Mutex` or of
    ///   a `RefCell` in a thread-local;
    /// - no `std::thread::scope`, and no `std::thread::current()` that is unparked later;
    /// - no unwinding: no destructor that waits while its task panics, since the standard library counts panics by thread;
    /// - no control word of the FPU that differs from the default.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn migrate_started_tasks(mut self) -> Self {
        self.migrates_started_tasks = true;
        self
    }

    /// How tasks are watched that do not check. `None` for not at all: then a timer that is due while every worker is busy waits for a
    /// worker to look up. Unless set, tasks are watched and reported after 20 ms, without spare workers. In the deterministic mode
    /// nothing is watched.
    #[must_use]
    pub fn watchdog(mut self, watchdog: Option<Watchdog>) -> Self {
        self.watchdog = watchdog;
        self
    }

    /// Has the first worker drive another event loop: it waits there while no task is ready, and gives it a turn now and then while one
    /// is. The runtime's own sockets are waited for by a thread then. In the deterministic mode there is none.
    #[must_use]
    pub fn event_loop(mut self, event_loop: Arc<dyn EventLoop>) -> Self {
        self.event_loop = Some(event_loop);
        self
    }

    /// Workers beside the usual ones.
    pub(crate) fn spare_workers(&self) -> usize {
        let none = self.deterministic || self.fair_tasks.is_some();
        self.watchdog.filter(|_| !none).map_or(0, |watchdog| watchdog.spare_workers)
    }

    /// In the deterministic mode: when every task waits and no timer is set, fails the root nurseries with
    /// `TaskError::Deadlock`. Without it the runtime waits for the host's threads, which may yet wake a task.
    #[must_use]
    pub fn fail_on_deadlock(mut self) -> Self {
        self.fail_on_deadlock = true;
        self
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(1024))
    }

    /// Starts the runtime.
    pub fn build(self) -> Result<Runtime, ConfigError> {
        if self.profile == Profile::Core {
            return Err(ConfigError::CoreProfile);
        }
        let workers = self.worker_count();
        if !(1..=1024).contains(&workers) {
            return Err(ConfigError::Workers(workers));
        }
        if !STACK_SIZES.contains(&self.stack_size) {
            return Err(ConfigError::StackSize(self.stack_size));
        }
        if self.tenants.as_ref().is_some_and(|tenants| !(1..=MOST_TENANTS).contains(&tenants.len())) {
            return Err(ConfigError::Tenants);
        }
        let tenants = self.tenants.as_ref().map_or(0, Vec::len);
        if self.tenant_rates.len() > tenants {
            return Err(ConfigError::TenantRate(self.tenant_rates.len() - 1));
        }
        if let Some(fair_tasks) = &self.fair_tasks {
            if !(1..=u16::MAX.into()).contains(&fair_tasks.threads) {
                return Err(ConfigError::Threads(fair_tasks.threads));
            }
            if fair_tasks.quantum.is_zero() || fair_tasks.quantum > MAX_REQUEST {
                return Err(ConfigError::Quantum);
            }
            if Vec::<u8>::new().try_reserve_exact(fair_tasks.record_bytes).is_err() {
                return Err(ConfigError::RecordBytes(fair_tasks.record_bytes));
            }
            if self.tenants.is_some() || self.deterministic {
                return Err(ConfigError::OneDiscipline);
            }
        }
        if let Some(watchdog) = &self.watchdog {
            let overstays = Duration::from_millis(1)..=Duration::from_secs(60);
            if !overstays.contains(&watchdog.overstay) || watchdog.spare_workers > 64 {
                return Err(ConfigError::Watchdog);
            }
        }
        if self.yield_interval == 0 {
            return Err(ConfigError::YieldInterval);
        }
        if self.reserve.is_some_and(HostReservation::is_senseless) {
            return Err(ConfigError::Reservation);
        }
        Runtime::start(self)
    }
}
