//! The kernel's time, `arch/timeline.rs`, on counters that no machine at hand has: apart from each other, and standing still
//! while the machine halts.
#![allow(missing_docs, reason = "a test")]

#[path = "../../src/arch/timeline.rs"]
mod timeline;

use proptest::prelude::*;
use timeline::{SLACK_NS, Timeline};

const MS: u64 = 1_000_000;
/// Counts per microsecond.
const MHZ: u64 = 2400;

fn begun(origin: u64) -> Timeline {
    let time = Timeline::new();
    assert!(!time.has_begun());
    time.begin(origin, MHZ * 10_000, 10 * MS);
    assert!(time.has_begun());
    time
}

fn counts(nanos: u64) -> u64 {
    nanos * MHZ / 1000
}

/// Scales have 32 binary places, and counts are whole.
fn close(time: u64, wanted: u64) -> bool {
    time.abs_diff(wanted) <= 2 + wanted / 100_000_000
}

#[test]
fn a_sound_counter_is_never_corrected() {
    let time = begun(77);
    for due in (1..1000).map(|tick| tick * 10 * MS) {
        assert!(!time.timer_came(77 + counts(due), due), "on time");
        assert!(!time.timer_came(77 + counts(due + 3 * MS), due), "late");
    }
    assert!(close(time.at(77 + counts(20_000 * MS)), 20_000 * MS));
}

#[test]
fn one_standstill_that_two_cpus_notice_is_made_up_for_once() {
    let time = begun(1_000);
    let stands = 1_000 + counts(5 * MS);
    assert!(time.timer_came(stands, 105 * MS));
    assert!(!time.timer_came(stands, 105 * MS));
    assert!(!time.timer_came(stands, 104 * MS), "the other CPU's timer was a little earlier");
    assert!(close(time.at(stands), 105 * MS));
    assert!(close(time.at(stands + counts(MS)), 106 * MS), "it goes on from there");
}

#[test]
fn nothing_moves_before_time_begins() {
    let time = Timeline::new();
    assert!(!time.timer_came(5, 1_000 * MS));
    assert_eq!(time.at(u64::MAX), 0);
}

proptest! {
    /// A machine runs and halts by turns, and its counter loses some of each halt. Timers come when they should: by the clock
    /// they are never early by more than the slack, and what is lost in all does not add up.
    //= ARCH:clock.tsc
    #[test]
    fn halts_that_stop_the_counter_do_not_stop_time(
        origin in 0..1_000_000_u64,
        turns in prop::collection::vec((0..5 * MS, 2 * MS..100 * MS, 0..=100_u64), 1..100),
    ) {
        let time = begun(origin);
        let (mut real, mut count) = (0, origin);
        for (runs, halts, lost_percent) in turns {
            real += runs;
            count += counts(runs);
            let set_at = time.at(count);
            let due = set_at + halts;
            real += halts;
            count += counts(halts * (100 - lost_percent) / 100);
            let _moved = time.timer_came(count, due);
            prop_assert!(time.at(count) + SLACK_NS >= due, "time stood still with the counter");
            prop_assert!(time.at(count) <= due + 4 + due / 100_000_000, "time ran ahead of the timer");
            prop_assert!(time.at(count) <= real + 4 + real / 100_000_000, "time ran ahead of the world");
        }
    }

    /// Readings of CPUs whose counters are apart, with standstills in between: each is at least any before it.
    #[test]
    fn no_reading_is_before_another(
        readings in prop::collection::vec((0..MS, -20_000..20_000_i64, 0..50 * MS, any::<bool>()), 1..200),
    ) {
        let time = begun(50_000);
        let (mut count, mut latest) = (50_000_u64, 0);
        for (passes, apart, ahead, comes) in readings {
            count += counts(passes);
            let reading = count.saturating_add_signed(apart);
            if comes {
                let _moved = time.timer_came(reading, latest + ahead);
            }
            let now = time.at(reading);
            prop_assert!(now >= latest, "{now} after {latest}");
            latest = now;
        }
    }
}
