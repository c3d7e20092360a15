//! CPUs with contexts under random events: bound, unbound, lent, given back, written off, used up, moved, held. Every
//! checker looks on.
//!
//! A failure names its seed; `MAINSPRING_SEED=N` runs that one alone and prints what was done.

mod common;

use common::drive::{Drive, setting};
use common::seeds::{SEED, Sweep};
use mainspring_record::check::contexts::Tally;
use mainspring_record::check::{Checks, Wide};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many things happen in one run.
const STEPS: usize = 150;

/// How many events, and of what kind.
type Seen = (u64, Tally);

fn counts(tally: Tally) -> [u64; 7] {
    let Tally { on_contexts, by_floor, throttled, went_on, refilled, lent, expired_away } = tally;
    [on_contexts, by_floor, throttled, went_on, refilled, lent, expired_away]
}

/// Runs `seed`; what is wrong, with all that was done up to there.
fn drive(seed: u64, logged: bool) -> Result<Seen, (String, u64)> {
    let mut drive = Drive::new(seed, Checks::<Wide>::new(setting(seed)));
    drive.logged = logged;
    let run = catch_unwind(AssertUnwindSafe(|| {
        (0..STEPS).try_for_each(|_| drive.step())?;
        drive.end()
    }));
    match run.unwrap_or_else(|_| Err("it panicked".to_owned())) {
        Ok(()) => Ok((drive.watch.events(), drive.watch.grants().tally())),
        Err(what) => {
            eprint!("{}", drive.log.iter().map(|line| format!("{line}\n")).collect::<String>());
            Err((format!("{} ({})", what, drive.describe()), drive.events))
        }
    }
}

//= ARCH:inv.one-owner ARCH:ctx.throttle EVO:S4.single-charge
#[test]
fn contexts_do_what_was_granted_and_nothing_else() {
    let Sweep { seeds, alone } = Sweep::of(0..10_000);
    let (mut events, mut all, mut failures) = (0, [0; 7], Vec::new());
    for seed in seeds {
        match drive(seed, alone) {
            Ok((seen, tally)) => {
                events += seen;
                all.iter_mut().zip(counts(tally)).for_each(|(sum, count)| *sum += count);
            }
            Err((what, length)) => {
                failures.push((length, format!(
                    "seed {seed}, after {} events: {what}\n  alone: {SEED}={seed} cargo test -p mainspring-sim --test context_checks",
                    length
                )));
            }
        }
    }
    eprintln!("{events} events; by kind {all:?}");
    failures.sort();
    let shortest: Vec<String> = failures.iter().take(5).map(|(_, what)| what.clone()).collect();
    assert!(failures.is_empty(), "{} failures, the shortest:\n{}", failures.len(), shortest.join("\n"));
    let often = alone || all.iter().all(|count| *count >= 100);
    assert!(often, "something hardly ever happened, so nothing was checked: {all:?}");
}
