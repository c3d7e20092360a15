//! Switches, wakes or spawns to be counted under callgrind: what it costs to observe tasks.
//!
//! `valgrind --tool=callgrind switch_cost yields|wakes|spawns COUNT`; with the feature `console`, `observed` after it observes the tasks. What
//! one costs is the difference between two counts, divided by how many more there were.

use mainspring::{Config, Cx, Parker, Profile};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("say what: yields, wakes or spawns")?;
    let count: u32 = arguments.next().ok_or("say how many")?.parse()?;
    let config = match arguments.next().as_deref() {
        Some("observed") => observed(usual())?,
        Some(other) => return Err(format!("{other}: nothing, or `observed`").into()),
        None => usual(),
    };
    let run = match what.as_str() {
        "yields" => yields,
        "wakes" => wakes,
        "spawns" => spawns,
        other => return Err(format!("{other} is neither yields, wakes nor spawns").into()),
    };
    config.build()?.run(|cx| run(cx, count))?;
    Ok(())
}

/// One worker, and no thread beside it.
fn usual() -> Config {
    Config::new(Profile::Service).workers(1).watchdog(None)
}

#[cfg(feature = "console")]
fn observed(config: Config) -> Result<Config, Box<dyn Error>> {
    Ok(config.observe_tasks(mainspring::observe::USUAL_TASKS))
}

#[cfg(not(feature = "console"))]
fn observed(_: Config) -> Result<Config, Box<dyn Error>> {
    Err("built without the feature `console`".into())
}

/// Two tasks that take turns.
fn yields(cx: &Cx, count: u32) {
    let turns = |cx: &Cx| (0..count / 2).for_each(|_| cx.yield_now());
    cx.nursery(|n| (0..2).for_each(|_| n.start(turns).expect("a task"))).expect("both end");
}

/// Two tasks that wake each other.
fn wakes(cx: &Cx, count: u32) {
    let (ping, pong) = (Parker::default(), Parker::default());
    let first = |cx: &Cx| {
        for _ in 0..count / 2 {
            ping.unpark();
            pong.park(cx, None);
        }
    };
    let second = |cx: &Cx| {
        for _ in 0..count / 2 {
            ping.park(cx, None);
            pong.unpark();
        }
    };
    let ended = cx.nursery(|n| {
        n.start(first).expect("a task");
        n.start(second).expect("a task");
    });
    ended.expect("both end");
}

/// Nurseries with one task that does nothing.
fn spawns(cx: &Cx, count: u32) {
    for _ in 0..count {
        cx.nursery(|n| n.start(|_| ()).expect("a task")).expect("it ends");
    }
}
