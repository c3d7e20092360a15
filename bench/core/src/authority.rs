//! The programs that are counted for contexts: one whose budget ends at each decision, and one that is lent and given
//! back at each call.

use mainspring_abi::{ContextRef, CpuId, Nanos, Policy, ThreadRef};
use mainspring_sched::Floor;
use mainspring_sched::context::{Context, ContextSpec};
use mainspring_sched::{Config, Cpu, Decision, Entity, Seat, Spec, Stop, Via, WaitKind};

/// How many rounds are counted.
pub const ROUNDS: u32 = 20_000;

/// Threads beside those that are counted.
const THREADS: u32 = 1_000;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// A budget ends, its thread waits for the refill, another one's refill comes, and that one runs.
    Deplete,
    /// A call lends the caller's context to a server, and the reply gives it back: each in one go.
    Call,
    /// The same by the five operations that one go stands for, which is what a machine that records does.
    Steps,
}

impl Path {
    /// All.
    pub const ALL: [Self; 3] = [Self::Deplete, Self::Call, Self::Steps];

    /// Whether the limit is for it.
    pub fn is_judged(self) -> bool {
        self != Self::Steps
    }

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deplete => "deplete",
            Self::Call => "call",
            Self::Steps => "steps",
        }
    }

    /// As the table names it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Deplete => "deplete + refill + requeue",
            Self::Call => "call + donate + reply + return",
            Self::Steps => "the same step by step",
        }
    }
}

struct Bench {
    cpu: Cpu,
    /// How many contexts there are.
    contexts: u32,
    now: Nanos,
}

impl Bench {
    fn new() -> Self {
        let floor = Floor::NONE;
        let mut cpu = Cpu::new(Config { floor, ..Config::new(CpuId::BOOT, Policy::Eevdf) });
        cpu.reserve(THREADS as usize + 2).expect("the benchmark fits in memory");
        Self { cpu, contexts: 0, now: Nanos::ZERO }
    }

    fn thread(&mut self, index: u32) -> Seat {
        let spec = Spec::new(ThreadRef::new(index, 0));
        let (seat, _woken) =
            self.cpu.accept(self.now, Entity::new(spec), Via::Admit).expect("seats are reserved");
        seat
    }

    fn grant(&mut self, seat: Seat, spec: ContextSpec) {
        self.contexts += 1;
        let context = Box::new(Context::new(ContextRef::new(self.contexts, 0), spec, self.now));
        self.cpu.bind(self.now, seat, context).expect("it has none");
    }

    /// `seat`, which waits, goes on with `context`.
    fn hand(&mut self, seat: Seat, context: Box<Context>) {
        self.cpu.bind(self.now, seat, context).expect("it has none");
        let _woken = self.cpu.wake(self.now, seat).expect("it waits");
        assert_eq!(self.resched(Stop::Nothing), seat);
    }

    fn resched(&mut self, stop: Stop) -> Seat {
        match self.cpu.resched(self.now, stop) {
            Decision::Run(run) => run.seat,
            Decision::Idle => unreachable!("somebody is ready"),
        }
    }
}

/// Sets the load up and runs the counted part.
pub fn measure(path: Path) {
    match path {
        Path::Deplete => deplete(),
        Path::Call => call(counted_call),
        Path::Steps => call(counted_steps),
    }
}

/// As many contexts as there are milliseconds in their period, a millisecond each and each released a millisecond after the
/// one before: one is used up at every decision, and one comes back.
fn deplete() {
    let mut bench = Bench::new();
    let spec = ContextSpec::new(Nanos::from_millis(1), Nanos::from_millis(u64::from(THREADS)));
    for index in 0..THREADS {
        let seat = bench.thread(index);
        bench.grant(seat, spec.clone());
        bench.resched(if index == 0 { Stop::Nothing } else { Stop::Preempted });
        bench.now += Nanos::from_millis(1);
    }
    bench.resched(Stop::Preempted);
    run_dry(&mut bench, ROUNDS);
    counted_deplete(&mut bench);
    assert!(bench.cpu.telemetry().budgets_exhausted >= 2 * u64::from(ROUNDS), "each decision is a depletion");
}

/// Valgrind counts from entry to exit of this function.
#[inline(never)]
#[unsafe(no_mangle)]
fn counted_deplete(bench: &mut Bench) {
    run_dry(bench, ROUNDS);
}

fn run_dry(bench: &mut Bench, rounds: u32) {
    for _ in 0..rounds {
        bench.now += Nanos::from_millis(1);
        std::hint::black_box(bench.resched(Stop::Preempted));
    }
}

/// A caller with a context and a server without one, beside a thousand hogs.
fn call(counted: fn(&mut Bench, Seat, Seat)) {
    let mut bench = Bench::new();
    let server = bench.thread(0);
    bench.resched(Stop::Nothing);
    bench.cpu.block_current(bench.now, WaitKind::Receive, None);
    let caller = bench.thread(1);
    bench.grant(caller, ContextSpec::new(Nanos::from_millis(900), Nanos::from_secs(1)));
    for index in 2..THREADS {
        bench.thread(index);
    }
    assert_eq!(bench.resched(Stop::Nothing), caller);
    round_trips(&mut bench, caller, server, ROUNDS / 20);
    counted(&mut bench, caller, server);
    let entity = bench.cpu.entity(caller).expect("it sits there");
    assert!(entity.context().is_some_and(|context| !context.usage().donated.is_zero()), "calls lend");
}

/// Valgrind counts from entry to exit of this function.
#[inline(never)]
#[unsafe(no_mangle)]
fn counted_call(bench: &mut Bench, caller: Seat, server: Seat) {
    round_trips(bench, caller, server, ROUNDS);
}

/// Valgrind counts from entry to exit of this function.
#[inline(never)]
#[unsafe(no_mangle)]
fn counted_steps(bench: &mut Bench, caller: Seat, server: Seat) {
    for _ in 0..ROUNDS {
        bench.now += Nanos::from_micros(10);
        bench.cpu.block_current(bench.now, WaitKind::Call, None);
        let lent = bench.cpu.lend(bench.now, caller, server.thread()).expect("it holds one");
        bench.hand(server, lent);
        bench.now += Nanos::from_micros(10);
        bench.cpu.block_current(bench.now, WaitKind::Receive, None);
        let mut back = bench.cpu.unbind(bench.now, server).expect("it works on a loan");
        assert_eq!(back.return_to(), Some(caller.thread()));
        bench.hand(caller, back);
    }
}

fn round_trips(bench: &mut Bench, caller: Seat, server: Seat, rounds: u32) {
    for _ in 0..rounds {
        bench.now += Nanos::from_micros(10);
        let called = bench.cpu.call_directly(bench.now, server, None).expect("nobody is more urgent");
        assert_eq!(called.seat, server);
        bench.now += Nanos::from_micros(10);
        let (back, _) = bench.cpu.reply_directly(bench.now, caller, None).expect("nobody is more urgent");
        assert_eq!(back.seat, caller);
    }
}
