//! A supervised pipeline: a source, a parser that now and then fails, and a report. Each stage is a child of a supervisor; lines that a
//! failed parser had taken are lost, and nothing else is.
//!
//! `cargo run -p mainspring-runtime --example supervised`

use mainspring::supervisor::{Child, Restart, Strategy, Supervisor};
use mainspring::sync::CancelToken;
use mainspring::{Budget, Capacity, Config, Cx, Profile, Receiver, Refusal, Sender};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LINES: u64 = 1000;

fn source(cx: &Cx, lines: &Sender<String>, next: &AtomicU64) -> Result<(), Refusal> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= LINES {
            lines.close();
            return Ok(());
        }
        // Every hundredth is no number.
        let line = if number % 100 == 99 { "nonsense".to_owned() } else { number.to_string() };
        lines.send(cx, line).map_err(|error| error.why)?;
    }
}

fn parse(
    cx: &Cx,
    lines: &Receiver<String>,
    numbers: &Sender<u64>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    for line in lines.iter(cx) {
        numbers.send(cx, line?.parse()?).map_err(|error| error.why)?;
    }
    numbers.close();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Cluster).build()?;
    let (lines, parsed) = (runtime.channel(Capacity::Bounded(16)), runtime.channel(Capacity::Bounded(16)));
    let (next, sum, count) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stage = Budget { ops: 50_000, channel_ops: 5000, ..Budget::ZERO };
    let supervisor = Supervisor::new(Strategy::OneForOne)
        .intensity(20, Duration::from_secs(1))
        .child(
            Child::new("source", |cx| source(cx, &lines.0, &next))
                .restart(Restart::Transient)
                .options(|spawn| spawn.budget(stage)),
        )
        .child(
            Child::new("parser", |cx| parse(cx, &lines.1, &parsed.0))
                .restart(Restart::Transient)
                .options(|spawn| spawn.budget(stage)),
        )
        .child(
            Child::new("report", |cx| {
                for number in parsed.1.iter(cx) {
                    sum.fetch_add(number?, Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), Refusal>(())
            })
            .restart(Restart::Transient)
            .options(|spawn| spawn.budget(stage)),
        );
    let restarts = runtime.run(|cx| supervisor.run_until(cx, &CancelToken::new()))??;
    println!(
        "{} of {LINES} lines are numbers, their sum is {}",
        count.load(Ordering::Relaxed),
        sum.load(Ordering::Relaxed)
    );
    println!("the parser was restarted {restarts} times");
    Ok(())
}
