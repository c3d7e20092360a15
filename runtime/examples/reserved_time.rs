//! CPU time as authority: each tenant gets its own, and one that never stops uses its own and nobody else's.
//!
//! `cargo run -p mainspring-runtime --example reserved_time`

use mainspring::{Budget, Caps, Config, FairTaskSettings, Profile, Reservation, SchedulingContext};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = FairTaskSettings { contexts: 4, ..FairTaskSettings::default() };
    // The host gives the root so much: four contexts, half a worker in all.
    let caps = Caps::root(100, Budget::MAX, Budget::MAX, 10, 64).with_contexts(4, 500_000);
    let runtime = Config::new(Profile::Service).workers(1).root_caps(caps).fair_by_task(settings).build()?;
    runtime.run(|cx| {
        let polite = cx.create_context(Reservation::new(ms(2), ms(10)).deadline(ms(5))).unwrap();
        let greedy = cx.create_context(Reservation::new(ms(2), ms(10))).unwrap();
        match cx.create_context(Reservation::new(ms(2), ms(10))) {
            Ok(_) => println!("a third: granted"),
            Err(error) => println!("a third: {error}"),
        }
        let done = AtomicBool::new(false);
        cx.nursery(|n| {
            n.builder()
                .context(&greedy)
                .start(|cx| {
                    // It never waits; each check is where it can be stopped.
                    while !done.load(Ordering::Relaxed) {
                        cx.check();
                    }
                })
                .unwrap();
            let requests = n.builder().context(&polite).spawn(|cx| {
                let mut tick = cx.interval(ms(10));
                for _ in 0..20 {
                    tick.tick(cx);
                    let until = cx.cpu_time().unwrap() + ms(1);
                    while cx.cpu_time().unwrap() < until {
                        cx.check();
                    }
                }
            });
            requests.unwrap().join(cx).unwrap();
            done.store(true, Ordering::Relaxed);
        })
        .unwrap();
        report("polite", &polite);
        report("greedy", &greedy);
        greedy.revoke().unwrap();
        println!("greedy is revoked: {}", greedy.bind(cx).unwrap_err());
    })?;
    Ok(())
}

fn report(name: &str, context: &SchedulingContext) {
    let info = context.info().unwrap();
    println!(
        "{name}: used {:.1?}, ran out {} times, late {} times, at most {:.1?} beyond its budget",
        info.used, info.depletions, info.misses, info.overshoot
    );
}
