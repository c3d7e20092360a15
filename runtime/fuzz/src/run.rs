//! One seed from beginning to end.

use crate::acts::{self, host_thread, run_root};
use crate::ledger::{self, Kind, Tracked};
use crate::line;
use crate::options::{Mutant, Options};
use crate::rng::{Rng, mix};
use crate::setting::Setting;
use crate::verdict::{self, violation};
use crate::world::{Job, World};
use mainspring::{Capacity, Component, Pool, Runtime};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Runs seeds one after the other, and says so on the standard output, for the process that started this one.
pub fn seeds(options: &Options) {
    std::panic::set_hook(Box::new(|info| {
        // The fuzzer's own panics have this payload; everything else is of interest.
        if info.payload().downcast_ref::<&str>() != Some(&acts::MESSAGE) {
            eprintln!("{info}");
        }
    }));
    verdict::watch(options.patience);
    let first = options.seed.unwrap_or(0);
    let began = Instant::now();
    let is_over = |seed: u64| {
        options.seeds.is_some_and(|seeds| seed - first >= seeds)
            || options.time.is_some_and(|time| began.elapsed() >= time)
    };
    let mut seed = first;
    while !is_over(seed) {
        println!("seed {seed} {}", verdict::acts());
        let trace = run(seed, options);
        // A deterministic run is a function of its seed.
        if trace.is_some() && run(seed, options) != trace {
            violation("the same seed gives another trace");
        }
        seed += 1;
    }
    println!("seed {seed} {}", verdict::acts());
}

fn run(seed: u64, options: &Options) -> Option<(u64, u64)> {
    ledger::begin(seed);
    let setting = Setting::draw(seed, options);
    let mut rng = Rng::new(mix(seed));
    let runtimes: Vec<Arc<Runtime>> = (0..setting.runtimes).map(|_| Arc::new(setting.build())).collect();
    verdict::begin(seed, setting.to_string(), runtimes.iter().map(Arc::downgrade).collect());
    let capacities = [Capacity::Rendezvous, Capacity::Bounded(1), Capacity::Bounded(4), Capacity::Unbounded];
    let lines = capacities.map(|capacity| line::line(capacity, runtimes[0].channel(capacity))).into();
    let (hosts, jobs): (Vec<mpsc::Sender<Job>>, Vec<_>) = (0..setting.hosts).map(|_| mpsc::channel()).unzip();
    let endpoints = [true, true, false].map(|donates| runtimes[0].endpoint(donates)).into();
    let quotas = crate::acts::quotas(&runtimes[0], &mut rng);
    let mut world = World::new(options, &setting, lines, hosts, endpoints, quotas);
    match options.mutant {
        Some(Mutant::Twice) => Tracked::new(Kind::Local).forget_and_note(),
        Some(Mutant::Crash) if seed % 7 == 3 => std::process::abort(),
        Some(Mutant::Stuck) => drop(world.lines[0].rx.end().recv_blocking()),
        _ => {}
    }
    let before: Vec<Pool> = runtimes.iter().map(|runtime| runtime.root_pool()).collect();
    let all: Vec<&Runtime> = runtimes.iter().map(|runtime| &**runtime).collect();
    std::thread::scope(|threads| {
        let (world_ref, all_ref) = (&world, &all);
        let stops: Vec<mpsc::Sender<Job>> = world.hosts.clone();
        for jobs in jobs {
            let seed = rng.draw();
            threads.spawn(move || host_thread(all_ref, world_ref, &jobs, seed));
        }
        let roots: Vec<_> = (0..setting.roots.max(runtimes.len()))
            .map(|root| {
                let (runtime, seed) = (all[root % all.len()], rng.draw());
                move || run_root(runtime, world_ref, seed)
            })
            .collect();
        if let [root] = &roots[..] {
            root();
        } else {
            let roots: Vec<_> = roots.into_iter().map(|root| threads.spawn(root)).collect();
            for root in roots {
                if root.join().is_err() {
                    violation("a host thread panicked");
                }
            }
        }
        // Each host thread ends with a last job.
        for stop in stops {
            drop(stop.send(Box::new(|| END.set(true))));
        }
    });
    conserve(&world, &runtimes, &before);
    let trace = runtimes[0].trace();
    let stale = std::mem::take(&mut world.stale);
    // Either goes first.
    if seed.is_multiple_of(2) {
        drop(world);
        drop(runtimes);
    } else {
        drop(runtimes);
        drop(world);
    }
    // Wakers outlive their tasks and their runtimes.
    stale.into_inner().unwrap_or_default().into_iter().for_each(std::task::Waker::wake);
    ledger::end();
    trace
}

thread_local! {
    /// The host thread is told to end.
    pub static END: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Nothing below the root had more than it was given, and all that was not used is back.
fn conserve(world: &World, runtimes: &[Arc<Runtime>], before: &[Pool]) {
    for component in Component::ALL {
        let spent: i128 = runtimes
            .iter()
            .zip(before)
            .map(|(runtime, before)| {
                i128::from(before.get(component)) - i128::from(runtime.root_pool().get(component))
            })
            .sum();
        let hosts = if component == Component::SpawnCount { acts::host_costs(world).into() } else { 0 };
        world.totals.check(component, spent - hosts);
    }
}
