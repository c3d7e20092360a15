//! The kernel's measurement of its clocks, `arch/calibrate.rs`, on readings that no machine at hand gives: no rounds at all, a
//! timer that stands still, a host that comes between two readings.
#![allow(missing_docs, reason = "a test")]

#[path = "../../src/arch/calibrate.rs"]
mod calibrate;

use calibrate::{Measured, PIT_HZ, Sample, TickSource, counts_per_ms};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Readings `nanos` after all clocks were started, on a machine of that many counts per microsecond.
fn at(nanos: u64, stamp_mhz: u64, timer_mhz: u64, gap: u64) -> Sample {
    Sample {
        pit: nanos * PIT_HZ / 1_000_000_000,
        stamp: 5_000 + nanos * stamp_mhz / 1_000,
        timer: nanos * timer_mhz / 1_000,
        gap,
    }
}

#[test]
fn what_cannot_be_measured_is_not_used() {
    assert_eq!(Measured::tightest(std::iter::empty()), None);
    let stopped_pit = (at(0, 2400, 62, 1), Sample { pit: 0, ..at(10 * MS, 2400, 62, 1) });
    assert_eq!(Measured::tightest([stopped_pit].into_iter()), None);
    let stopped_stamp = (at(0, 0, 62, 1), at(10 * MS, 0, 62, 1));
    assert_eq!(Measured::tightest([stopped_stamp].into_iter()), None);
    let gone_back = (at(20 * MS, 2400, 62, 1), at(10 * MS, 2400, 62, 1));
    assert_eq!(Measured::tightest([gone_back].into_iter()), None);
}

//= ARCH:x86.lapic
#[test]
fn ticks_come_from_the_pit_when_the_timer_could_not_be_measured() {
    assert_eq!(TickSource::choose(false, 0), TickSource::Pit, "nothing was measured");
    let stands_still = Measured::tightest([(at(0, 2400, 0, 1), at(10 * MS, 2400, 0, 1))].into_iter());
    let stands_still = stands_still.expect("the time stamp counter counts");
    assert_eq!(TickSource::choose(false, stands_still.timer_scale()), TickSource::Pit);
    let counts_down_twice = (at(0, 2400, 62, 1), Sample { timer: 0, ..at(10 * MS, 2400, 62, 1) });
    let started_again = Measured::tightest([counts_down_twice].into_iter()).expect("it can be measured");
    assert_eq!(TickSource::choose(false, started_again.timer_scale()), TickSource::Pit);
    let sound = Measured::tightest([(at(0, 2400, 62, 1), at(10 * MS, 2400, 62, 1))].into_iter());
    let sound = sound.expect("it can be measured").timer_scale();
    assert_eq!(TickSource::choose(false, sound), TickSource::Lapic);
    assert_eq!(TickSource::choose(true, sound), TickSource::Pit, "the manifest says so");
}

proptest! {
    /// However the others were disturbed, one round that was not is enough.
    #[test]
    fn the_tightest_round_counts(
        stamp_mhz in 100..6000_u64,
        timer_mhz in 1..2000_u64,
        begins in prop::collection::vec((0..20 * MS, 0..5 * MS, 100..1_000_000_u64), 0..5),
        place in 0..5_usize,
    ) {
        let mut rounds: Vec<_> = begins
            .into_iter()
            .map(|(begin, late, gap)| {
                // The host comes between the reading of the PIT and the reading of the other counters.
                let end = begin + 10 * MS;
                let disturbed = at(end + late, stamp_mhz, timer_mhz, gap);
                (at(begin, stamp_mhz, timer_mhz, 10), Sample { pit: at(end, 1, 1, 0).pit, ..disturbed })
            })
            .collect();
        let sound = (at(MS, stamp_mhz, timer_mhz, 20), at(12 * MS, stamp_mhz, timer_mhz, 30));
        rounds.insert(place.min(rounds.len()), sound);
        let measured = Measured::tightest(rounds.into_iter()).expect("one round is sound");
        let wanted = timer_mhz * 1_000;
        prop_assert!(counts_per_ms(measured.timer_scale()).abs_diff(wanted) <= wanted / 1_000 + 2);
        let per_ms = measured.stamps * MS / measured.nanos;
        prop_assert!(per_ms.abs_diff(stamp_mhz * 1_000) <= stamp_mhz * 1_000 / 1_000 + 2);
    }
}
