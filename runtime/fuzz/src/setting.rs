//! What a seed runs on: the discipline, the workers, the driver, the authority and the pool at the root.

use crate::acts::Act;
use crate::model::Authority;
use crate::options::Options;
use crate::rng::Rng;
use mainspring::io::IoDriver;
use mainspring::{Budget, Caps, Config, FairTaskSettings, Nanos, Pool, Profile, Runtime, Watchdog, Weight};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    Plain,
    ByTenant,
    ByTask,
    Deterministic,
}

impl Discipline {
    pub const ALL: [Self; 4] = [Self::Plain, Self::ByTenant, Self::ByTask, Self::Deterministic];
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub seed: u64,
    pub discipline: Discipline,
    pub workers: usize,
    pub io: IoDriver,
    pub profile: Profile,
    pub caps: Caps,
    pub authority: Authority,
    pub pool: Pool,
    pub runtimes: usize,
    pub roots: usize,
    pub hosts: usize,
    pub tenants: usize,
    pub contexts: usize,
    pub leases: usize,
    quantum_ops: u32,
    yield_interval: u32,
    record_bytes: usize,
    watchdog: Option<Watchdog>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}, {} workers, {:?}, {:?}, {} runtimes, {} roots, {} host threads, quantum {}, interval {}",
            self.discipline,
            self.workers,
            self.io,
            self.profile,
            self.runtimes,
            self.roots,
            self.hosts,
            self.quantum_ops,
            self.yield_interval
        )
    }
}

impl Setting {
    /// The discipline, the number of workers and the driver go round with the seed, so that 64 seeds in a row meet each
    /// combination. The rest is drawn.
    pub fn draw(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e77_1469);
        let discipline = Discipline::ALL[(seed % 4) as usize];
        let workers = 1 + (seed / 4 % 8) as usize;
        let io =
            if options.epoll || (seed / 32).is_multiple_of(2) { IoDriver::Epoll } else { IoDriver::Auto };
        let profile = rng.pick(&[Profile::Service, Profile::Cluster, Profile::Sovereign]);
        let implicit = profile != Profile::Sovereign && rng.one_in(2);
        let child = Budget {
            ops: rng.pick(&[20_000, 1_000_000]),
            memory: 1 << 20,
            spawn_count: 1000,
            channel_ops: rng.pick(&[500, 20_000]),
            syscalls: 500,
        };
        let recharge = Budget { ops: 5000, memory: 1000, spawn_count: 20, channel_ops: 50, syscalls: 10 };
        let drawn = Caps::root(rng.pick(&[3, 50, 500]), child, recharge, rng.pick(&[2, 100]), u32::MAX);
        let contexts = rng.pick(&[0, 3, 24]);
        let time = rng.pick(&[(2, 300_000), (16, 4_000_000)]);
        let drawn = if rng.one_in(4) { drawn } else { drawn.with_contexts(time.0, time.1) };
        let caps = if implicit { profile.implicit_caps() } else { drawn };
        let small = Pool {
            ops: 4_000_000,
            memory: 64 << 20,
            spawn_count: 20_000,
            channel_ops: 1_000_000,
            syscalls: 20_000,
        };
        let alone = discipline == Discipline::Deterministic;
        let roots = if rng.one_in(3) { 1 + rng.below(3) as usize } else { 1 };
        let several = !alone && !options.without.contains(&Act::Roots);
        Self {
            seed,
            discipline,
            workers,
            io,
            profile,
            caps,
            authority: Authority::of(&caps),
            pool: if rng.one_in(3) { small } else { Pool::AMPLE },
            runtimes: if !alone && rng.one_in(6) { 2 } else { 1 },
            roots: if several { roots } else { 1 },
            hosts: if alone { 0 } else { rng.below(3) as usize },
            tenants: 1 + rng.below(4) as usize,
            contexts,
            leases: rng.pick(&[0, 2]),
            quantum_ops: rng.pick(&[1, 100, 1000, 16_384]),
            yield_interval: rng.pick(&[1, 64, 512, 1024]),
            record_bytes: rng.pick(&[0, 0, 1 << 16]),
            watchdog: (!rng.one_in(4)).then(|| Watchdog {
                overstay: Duration::from_millis(rng.pick(&[1, 20])),
                spare_workers: rng.below(3) as usize,
                cancels: false,
            }),
        }
    }

    /// Workers, with the spare ones.
    pub fn all_workers(&self) -> usize {
        self.workers + self.watchdog.map_or(0, |watchdog| watchdog.spare_workers)
    }

    pub fn is_deterministic(&self) -> bool {
        self.discipline == Discipline::Deterministic
    }

    pub fn build(&self) -> Runtime {
        let config = Config::new(self.profile)
            .workers(self.workers)
            .root_caps(self.caps)
            .root_pool(self.pool)
            .quantum_ops(self.quantum_ops)
            .yield_interval(self.yield_interval)
            .stack_size(512 << 10)
            .max_stacks(8192)
            .io(self.io)
            .watchdog(self.watchdog)
            .seed(self.seed);
        let config = match self.discipline {
            Discipline::Plain => config,
            Discipline::ByTenant => {
                let weights: Vec<_> = (0..self.tenants).map(|_| Weight::DEFAULT).collect();
                config.fair(&weights)
            }
            Discipline::ByTask => config.fair_by_task(FairTaskSettings {
                quantum: Nanos::from_micros(100),
                threads: 4096,
                record_bytes: self.record_bytes,
                contexts: self.contexts,
                leases: self.leases,
                ..FairTaskSettings::default()
            }),
            Discipline::Deterministic => config.deterministic_seed(self.seed).fail_on_deadlock(),
        };
        match config.build() {
            Ok(runtime) => runtime,
            Err(error) => crate::verdict::violation(format_args!("the runtime cannot be built: {error}")),
        }
    }
}
