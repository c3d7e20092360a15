//! The compact form of frequent records: it has the bytes that the long way gives them, and is read back.

mod rig;

use mainspring_abi::{CpuId, Nanos, ProcessId, ThreadRef};
use mainspring_sched::flight::{
    CompactBuffer, DecodeError, EncodeState, Event, EventRef, Outcome, Reader, Stamp, read_record,
    write_decision, write_expired, write_idle, write_stop, write_timer,
};
use mainspring_sched::{
    Decision, Dispatch, Expired, IdleConditions, IdleTick, KeepTicking, NetworkNeed, Seat, Stop, Timeout,
    TimerOutcome, WaitKind, WaitPermit, WaitQuota, Woken,
};
use proptest::prelude::*;
use rig::record::{decode_state, decode_state_with_slice, written};
use rig::{cpu_id, ms, us};

/// What `write` writes, if there is a compact form.
fn compact(write: impl FnOnce(&mut CompactBuffer) -> Option<usize>) -> Option<Vec<u8>> {
    let mut room = [0xAA; size_of::<CompactBuffer>()];
    let length = write(&mut room)?;
    Some(room[..length].to_vec())
}

/// The two halves of a decision's record, if both have a compact form.
fn compact_decision(
    mut encode: EncodeState,
    stamp: Stamp,
    stop: &Stop,
    decision: &Decision,
) -> Option<Vec<u8>> {
    compact(|room| {
        let half = write_stop(room, &encode, stamp, stop)?;
        write_decision(room, &mut encode, half, stamp, decision)
    })
}

fn permit(process: u32) -> WaitPermit {
    WaitQuota::new(1, 1, process as usize + 1).take(ProcessId::new(process)).expect("one is left")
}

fn expired(seat: Seat, deadline: Nanos, reschedule: bool) -> Expired {
    let woken = Woken { reschedule, permit: None };
    Expired { thread: seat.thread(), seat, kind: WaitKind::Sleep, deadline, user_data: 1, woken, away: None }
}

fn run(seat: Seat, slice_end: Nanos, switched: bool) -> Decision {
    Decision::Run(Dispatch { seat, thread: seat.thread(), switched, slice_end })
}

/// Numbers around the ends of the parts of a word, and others.
fn number() -> impl Strategy<Value = u64> {
    let edge = prop::sample::select(vec![0u32, 7, 8, 16, 24, 32]);
    prop_oneof![
        4 => 0u64..200,
        3 => (edge, 0u64..4).prop_map(|(bits, by)| (1u64 << bits).saturating_sub(by)),
        1 => any::<u64>().prop_map(|number| number >> 20),
    ]
}

fn seat() -> impl Strategy<Value = Seat> {
    let generation = prop_oneof![3 => Just(0u32), 1 => any::<u32>()];
    (number(), number(), generation).prop_map(|(slot, thread, generation)| {
        Seat::from_parts(slot as u32, ThreadRef::new(thread as u32, generation))
    })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    let cpu = prop::sample::select(vec![0, 5, 254, 255, 256, 4095]);
    (cpu, number()).prop_map(|(cpu, now)| Stamp { cpu: cpu_id(cpu), now: Nanos::new(now) })
}

/// The stamp of a record, and the stamp of the record before.
fn stamps() -> impl Strategy<Value = (Stamp, Stamp)> {
    (stamp(), prop_oneof![1 => Just(None), 2 => stamp().prop_map(Some)]).prop_map(|(before, next)| {
        let next = next.map_or(before, |next| Stamp { cpu: next.cpu, now: before.now + next.now });
        (before, next)
    })
}

fn stop(choice: u8, kind: u8, (process, delay, user_data): (u64, u64, u64), now: Nanos) -> Stop {
    let kind = WaitKind::ALL[usize::from(kind) % WaitKind::ALL.len()];
    let timeout =
        Timeout { deadline: now + Nanos::new(delay), user_data, permit: permit(process as u32 % 600) };
    match choice {
        0 => Stop::Nothing,
        1 => Stop::Preempted,
        2 => Stop::Yielded,
        3 => Stop::Blocked(kind, None),
        _ => Stop::Blocked(kind, Some(timeout)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_timer_interrupt_has_one_form((before, stamp) in stamps(), ticked: bool, reschedule: bool) {
        let outcome = TimerOutcome { ticked, reschedule };
        let mut decode = decode_state(before, stamp.cpu, &[]);
        let long = written(decode.writer(), stamp, EventRef::Timer, outcome.into());
        if let Some(short) = compact(|room| write_timer(room, &mut decode.writer(), stamp, outcome)) {
            prop_assert_eq!(&short, &long);
        }
        let read = read_record(&mut Reader::new(&long), &mut decode);
        prop_assert_eq!(read, Ok((stamp, Event::Timer, outcome.into())));
    }

    #[test]
    fn the_end_of_a_wait_has_one_form(
        (before, stamp) in stamps(), seat in seat(), late in number(), reschedule: bool,
    ) {
        let expired = expired(seat, stamp.now - Nanos::new(late), reschedule);
        let outcome = Outcome::Expired(Some((seat, expired.deadline)), reschedule);
        let mut decode = decode_state(before, stamp.cpu, &[seat]);
        let long = written(decode.writer(), stamp, EventRef::Expire, outcome);
        if let Some(short) = compact(|room| write_expired(room, &decode.writer(), stamp, &expired)) {
            prop_assert_eq!(&short, &long);
        }
        let read = read_record(&mut Reader::new(&long), &mut decode);
        prop_assert_eq!(read, Ok((stamp, Event::Expire, outcome)));
    }

    #[test]
    fn a_decision_has_one_form(
        (before, stamp) in stamps(), choice in 0u8..8, kind: u8,
        timeout in (number(), number(), prop_oneof![Just(0), number()]), next in prop::option::of((seat(), number(), any::<bool>())),
        slice_before in prop::option::of(number()),
    ) {
        let stop = || stop(choice, kind, timeout, stamp.now);
        let decision = next.map_or(Decision::Idle, |(seat, slice, switched)| {
            run(seat, stamp.now + Nanos::new(slice), switched)
        });
        let seats: Vec<_> = next.iter().map(|(seat, ..)| *seat).collect();
        let slice_before = slice_before.or(next.map(|(_, slice, _)| slice)).unwrap_or_default();
        let mut decode = decode_state_with_slice(Nanos::new(slice_before), before, stamp.cpu, &seats);
        let long = written(decode.writer(), stamp, EventRef::Resched(&stop()), decision.into());
        if let Some(short) = compact_decision(decode.writer(), stamp, &stop(), &decision) {
            prop_assert_eq!(&short, &long);
        }
        let read = read_record(&mut Reader::new(&long), &mut decode);
        prop_assert_eq!(read, Ok((stamp, Event::Resched(stop()), decision.into())));
    }

    #[test]
    fn a_cpu_that_idles_has_one_form(
        (before, stamp) in stamps(), flags in prop::array::uniform7(any::<bool>()), network in 0u8..4,
        tick in prop::option::of(number()),
    ) {
        let [deferred_completions, ring_service, oneshot, idle_context, nohz_lease, stable_clock, polled_waiter] = flags;
        let network = match network {
            0 => NetworkNeed::EveryTick,
            1 => NetworkNeed::PollAt(ms(9)),
            _ => NetworkNeed::Inactive,
        };
        let conditions = IdleConditions {
            deferred_completions, ring_service, oneshot, idle_context, nohz_lease, stable_clock, polled_waiter, network,
        };
        let tick = tick.map_or(IdleTick::Kept(KeepTicking::ALL[0]), |sleep| {
            IdleTick::Suppressed { wake_at: stamp.now + Nanos::new(sleep) }
        });
        let mut decode = decode_state(before, stamp.cpu, &[]);
        let long = written(decode.writer(), stamp, EventRef::EnterIdle(&conditions), tick.into());
        if let Some(short) = compact(|room| write_idle(room, &decode.writer(), stamp, &conditions, tick)) {
            prop_assert_eq!(&short, &long);
        }
        let read = read_record(&mut Reader::new(&long), &mut decode);
        prop_assert_eq!(read, Ok((stamp, Event::EnterIdle(conditions), tick.into())));
    }

    #[test]
    fn any_bytes_of_a_usual_kind_are_refused_or_are_the_one_form_of_what_is_read(
        kind in prop_oneof![2u8..=6, 14u8..=15, Just(17u8), 27u8..=28, 32u8..=40],
        bits in prop::sample::select(vec![0u8, 0x40, 0x80, 0xC0]), cpu in prop_oneof![0u8..3, Just(255)], gap in number(),
        rest in prop::collection::vec(prop_oneof![Just(0u8), 5u8..=6, 17u8..=24, any::<u8>()], 1..30),
    ) {
        let before = Stamp { cpu: cpu_id(2), now: ms(1) };
        let gap = (gap as u16).to_le_bytes();
        let start: &[u8] = if matches!(kind, 27 | 28) { &[kind | bits] } else { &[kind | bits, cpu, gap[0], gap[1]] };
        let bytes = [start, &rest].concat();
        let mut reader = Reader::new(&bytes);
        let seats = [(0, 7), (1, 70_000), (100, 4), (200, 3)].map(|(slot, thread)| {
            Seat::from_parts(slot, ThreadRef::new(thread, thread))
        });
        let mut decode = decode_state_with_slice(Nanos::new(5), before, before.cpu, &seats);
        let encode = decode.writer();
        if let Ok((stamp, event, outcome)) = read_record(&mut reader, &mut decode) {
            let again = written(encode, stamp, event.borrowed(), outcome);
            prop_assert_eq!(&bytes[..reader.position()], again.as_slice());
        }
    }
}

#[test]
fn what_is_small_is_usual() {
    let before = Stamp { cpu: cpu_id(4095), now: ms(3) };
    let stamp = Stamp { cpu: CpuId::BOOT, now: before.now + us(65) };
    let [seat, runner] = [255, 127].map(|slot| Seat::from_parts(slot, ThreadRef::new(u32::MAX, 9)));
    let timer = TimerOutcome { ticked: false, reschedule: true };
    let timeout = Timeout { deadline: stamp.now + ms(16), user_data: 0, permit: permit(255) };
    let (waits, runs) = (Stop::Blocked(WaitKind::Ring, Some(timeout)), run(runner, stamp.now + ms(16), true));
    let sleeps = IdleTick::Suppressed { wake_at: stamp.now + ms(100) };
    let [mut encode, there] = [before, stamp].map(|at| decode_state(at, stamp.cpu, &[]).writer());
    let as_long = decode_state_with_slice(ms(16), before, stamp.cpu, &[]).writer();
    let lengths = [
        compact(|room| write_timer(room, &mut encode, stamp, timer)),
        compact(|room| write_expired(room, &there, stamp, &expired(seat, stamp.now, true))),
        compact_decision(encode, stamp, &waits, &runs),
        compact_decision(as_long, stamp, &waits, &runs),
        compact_decision(encode, stamp, &waits, &Decision::Idle),
        compact_decision(encode, stamp, &Stop::Yielded, &runs),
        compact_decision(encode, stamp, &Stop::Nothing, &Decision::Idle),
        compact(|room| write_idle(room, &there, stamp, &IdleConditions::default(), sleeps)),
    ]
    .map(|bytes| bytes.map(|bytes| bytes.len()));
    assert_eq!(lengths, [Some(4), Some(2), Some(12), Some(9), Some(9), Some(8), Some(5), Some(6)]);
}

#[test]
fn what_is_small_is_usual_on_a_far_cpu_too() {
    let before = Stamp { cpu: CpuId::BOOT, now: ms(3) };
    let stamp = Stamp { cpu: cpu_id(255), now: before.now + us(65) };
    let seat = Seat::from_parts(127, ThreadRef::new(7, 0));
    let timer = TimerOutcome { ticked: false, reschedule: false };
    let timeout = Timeout { deadline: stamp.now + ms(16), user_data: 0, permit: permit(255) };
    let (waits, runs) = (Stop::Blocked(WaitKind::Sleep, Some(timeout)), run(seat, stamp.now + ms(16), true));
    let encode = decode_state(before, stamp.cpu, &[]).writer();
    let lengths = [
        compact(|room| write_timer(room, &mut { encode }, stamp, timer)),
        compact_decision(encode, stamp, &waits, &runs),
        compact_decision(encode, stamp, &Stop::Blocked(WaitKind::Park, None), &runs),
        compact_decision(encode, stamp, &Stop::Preempted, &Decision::Idle),
    ]
    .map(|bytes| bytes.map(|bytes| bytes.len()));
    assert_eq!(lengths, [Some(6), Some(14), Some(11), Some(7)]);
}

#[test]
fn a_small_seat_is_whose_the_last_record_that_accepted_a_thread_there_says() {
    let (cpu, before) = (cpu_id(3), Stamp { cpu: cpu_id(3), now: ms(3) });
    let [old, new, other] =
        [(4, 1), (4, 2), (5, 3)].map(|(slot, thread)| Seat::from_parts(slot, ThreadRef::new(thread, 0)));
    let ends = Outcome::Expired(Some((new, before.now)), false);
    let bytes = written(decode_state(before, cpu, &[]).writer(), before, EventRef::Expire, ends);
    let read =
        |cpu, seats: &[Seat]| read_record(&mut Reader::new(&bytes), &mut decode_state(before, cpu, seats));
    assert_eq!(read(cpu, &[old, new, other]), Ok((before, Event::Expire, ends)));
    let stale = Outcome::Expired(Some((old, before.now)), false);
    assert_eq!(read(cpu, &[new, other, old]), Ok((before, Event::Expire, stale)));
    assert_eq!(read(cpu, &[other]), Err(DecodeError::Nobody { slot: 4 }));
    assert_eq!(read(cpu_id(2), &[new]), Err(DecodeError::Nobody { slot: 4 }));
}
