//! Round trips, counted and timed.

use std::time::{Duration, Instant};

/// Where the measuring thread runs.
pub const CALLER_CPU: usize = 0;
/// Where pollers run, ours and the kernel's.
pub const POLLER_CPU: usize = 1;

/// How long a rate is measured: short, so that most windows see no other program.
const WINDOW: Duration = Duration::from_millis(1);

/// Whose numbers they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Mainspring,
    TwoProcesses,
    IoUring,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mainspring => "mainspring",
            Self::TwoProcesses => "mainspring, two processes",
            Self::IoUring => "io_uring",
        }
    }
}

/// Something that takes a batch of no-ops there and back.
pub trait Trip {
    /// Submits `batch` no-ops and returns when all have completed.
    fn trip(&mut self, batch: u32);

    /// Whether the poller says that it sleeps.
    fn asleep(&mut self) -> bool {
        false
    }
}

/// One side of a row.
pub struct Numbers {
    pub peer: Peer,
    pub ops_per_s: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// What is collected over several rounds.
pub struct Collected {
    peer: Peer,
    rates: Vec<f64>,
    trips_ns: Vec<u64>,
}

impl Collected {
    pub fn new(peer: Peer) -> Self {
        Self { peer, rates: Vec::new(), trips_ns: Vec::new() }
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The rate that one window in ten exceeds, and quantiles of all trips.
    pub fn numbers(mut self) -> Numbers {
        self.rates.sort_unstable_by(f64::total_cmp);
        self.trips_ns.sort_unstable();
        let quantile = |percent: usize| self.trips_ns[(self.trips_ns.len() - 1) * percent / 100];
        Numbers {
            peer: self.peer,
            ops_per_s: self.rates[(self.rates.len() - 1) * 9 / 10],
            p50_ns: quantile(50),
            p99_ns: quantile(99),
        }
    }

    /// One round with a poller that is awake, or without one: first rates, with a look at the clock every
    /// sixteen trips, then trips one by one.
    pub fn busy_round(&mut self, trip: &mut dyn Trip, batch: u32, length: Duration) {
        for _ in 0..100 {
            trip.trip(batch);
        }
        let end = Instant::now() + length;
        let mut began = Instant::now();
        let mut trips = 0_u64;
        while began < end {
            for _ in 0..16 {
                trip.trip(batch);
            }
            trips += 16;
            let now = Instant::now();
            if now - began >= WINDOW {
                self.rates.push((trips * u64::from(batch)) as f64 / (now - began).as_secs_f64());
                (began, trips) = (now, 0);
            }
        }
        for _ in 0..5_000 {
            self.time(trip, batch);
        }
    }

    /// One round with a poller that is asleep at the beginning of each trip. The rate counts the trips alone.
    pub fn asleep_round(&mut self, trip: &mut dyn Trip, batch: u32, trips: u32) {
        let from = self.trips_ns.len();
        for _ in 0..trips {
            while !trip.asleep() {
                std::hint::spin_loop();
            }
            // The flag goes up a little before the poller is off its CPU.
            std::thread::sleep(Duration::from_micros(200));
            self.time(trip, batch);
        }
        let total: u64 = self.trips_ns[from..].iter().sum();
        self.rates.push(f64::from(trips * batch) * 1e9 / total as f64);
    }

    fn time(&mut self, trip: &mut dyn Trip, batch: u32) {
        let began = Instant::now();
        trip.trip(batch);
        self.trips_ns.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Keeps the calling thread on one CPU, where the machine has it.
pub fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
