//! The floor of best effort, by an oracle that knows nothing of budgets: it adds up what best effort ran in each window.
//!
//! A failure names its seed; `MAINSPRING_SEED=N` runs that one alone.

mod common;

use common::generate::Dice;
use common::seeds::{Sweep, on_all_cores};
use common::{checked, workload};
use mainspring_record::check::Bound;
use mainspring_sim::admission::Admission;
use std::fmt::Write as _;

const WINDOW_NS: u64 = 100_000_000;
const WINDOWS: u64 = 12;

/// A workload on one CPU: contexts that want all they are granted, and best effort that is always ready once it started.
fn draw(dice: &mut Dice, floor_percent: u64, hogs_start_ms: u64) -> String {
    let mut text = format!("[machine]\nduration = \"{}ms\"\nfloor = \"{floor_percent}%\"\n", WINDOWS * 100);
    for index in 0..dice.between(1, 5) {
        let period_us = dice.between(2_000, 180_000);
        let budget_us = dice.between(period_us / 40 + 1, period_us / 2);
        let deadline_us = dice.between(budget_us, period_us);
        let start_us = if dice.chance(50) { 0 } else { dice.between(0, 250_000) };
        let program = if dice.chance(60) {
            "\"run forever\"".to_owned()
        } else {
            format!(
                "\"run {}us\", \"sleep {}us\"",
                dice.between(100, budget_us + 100),
                dice.between(100, 60_000)
            )
        };
        let _ = write!(
            text,
            "[[context]]\nname = \"c{index}\"\nbudget = \"{budget_us}us\"\nperiod = \"{period_us}us\"\n\
             deadline = \"{deadline_us}us\"\nrefills = {}\n\
             [[thread]]\nname = \"t{index}\"\ncontext = \"c{index}\"\nstart = \"{start_us}us\"\nprogram = [{program}]\n",
            dice.between(2, 16),
        );
    }
    for index in 0..dice.between(1, 3) {
        let _ = write!(
            text,
            "[[thread]]\nname = \"hog{index}\"\nstart = \"{hogs_start_ms}ms\"\nprogram = [\"run forever\"]\n"
        );
    }
    text
}

/// How many windows were looked at, and the worst shortfall: the seed, the window, and what best effort had.
fn judge(seed: u64) -> (u64, Option<String>) {
    let dice = &mut Dice::new(seed ^ 0xF100);
    let floor_percent = dice.pick(&[1, 5, 5, 20]);
    let hogs_start_ms = if dice.chance(60) { 0 } else { dice.between(1, 220) };
    let text = draw(dice, floor_percent, hogs_start_ms);
    let workload = workload(&text);
    if !Admission::new(&workload).plain().refusals.is_empty() {
        return (0, None);
    }
    let report = checked(&workload, seed, Bound::None).report;
    let mut had = [0; WINDOWS as usize];
    for segment in report.schedule.as_deref().expect("asked for") {
        if segment.thread.starts_with("hog") {
            for (index, sum) in had.iter_mut().enumerate() {
                let begin = index as u64 * WINDOW_NS;
                let overlap =
                    segment.end_ns.min(begin + WINDOW_NS).saturating_sub(segment.start_ns.max(begin));
                *sum += overlap;
            }
        }
    }
    let first = hogs_start_ms.div_ceil(100);
    let owed = WINDOW_NS / 100 * floor_percent;
    let short = (first..WINDOWS).find(|window| had[*window as usize] < owed);
    let told = short.map(|window| {
        format!("seed {seed}: window {window} had {}ns of {owed}ns\n{text}", had[window as usize])
    });
    (WINDOWS - first, told)
}

//= OWN:floor.window
#[test]
fn best_effort_gets_its_floor_in_every_window_beside_admitted_contexts() {
    let sweep = Sweep::of(0..3_000);
    let (alone, seeds) = (sweep.alone, sweep.count());
    let judged = on_all_cores(sweep.seeds, judge);
    let windows: u64 = judged.iter().map(|(windows, _)| windows).sum();
    let short: Vec<&String> = judged.iter().filter_map(|(_, short)| short.as_ref()).collect();
    assert!(
        short.is_empty(),
        "{} of {windows} windows or more were short, the first:\n{}",
        short.len(),
        short[0]
    );
    assert!(alone || windows > 2 * seeds, "only {windows} windows were beside admitted contexts");
}
