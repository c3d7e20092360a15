//! The usual records, which are written in one piece: they have the bytes that the long way gives them, and are read back.

mod rig;

use mainspring_abi::{CpuId, Nanos, ProcessId, ThreadRef};
use mainspring_sched::flight::{
    Event, EventRef, Outcome, Place, Reader, Room, UsualRoom, Writer, read_record, write_decision,
    write_event, write_expired, write_outcome, write_stop, write_timer,
};
use mainspring_sched::{
    Decision, Dispatch, Expired, Seat, Stop, Timeout, TimerOutcome, WaitKind, WaitPermit, WaitQuota, Woken,
};
use proptest::prelude::*;
use rig::{cpu_id, ms, us};

fn long_event(before: Place, place: Place, event: EventRef<'_>) -> Vec<u8> {
    written(|writer| write_event(writer, before, place, event))
}

fn long_outcome(now: Nanos, outcome: Outcome) -> Vec<u8> {
    written(|writer| write_outcome(writer, now, outcome))
}

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut room = [0; size_of::<Room>()];
    let mut writer = Writer::new(&mut room);
    write(&mut writer);
    let length = writer.written();
    room[..length].to_vec()
}

/// What `write` writes, if it finds it usual.
fn usual(write: impl FnOnce(&mut UsualRoom) -> Option<usize>) -> Option<Vec<u8>> {
    let mut room = [0xAA; size_of::<UsualRoom>()];
    let length = write(&mut room)?;
    Some(room[..length].to_vec())
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
    let edge = prop::sample::select(vec![0u32, 8, 16, 24, 32]);
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

fn place() -> impl Strategy<Value = Place> {
    (0usize..4, number()).prop_map(|(cpu, now)| Place { cpu: cpu_id(cpu * 1365), now: Nanos::new(now) })
}

/// The place of a record, and that of the one before.
fn places() -> impl Strategy<Value = (Place, Place)> {
    (place(), prop_oneof![1 => Just(None), 2 => place().prop_map(Some)]).prop_map(|(before, next)| {
        let next = next.map_or(before, |next| Place { cpu: next.cpu, now: before.now + next.now });
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
    fn a_timer_interrupt_has_one_form((before, place) in places(), ticked: bool, reschedule: bool) {
        let outcome = TimerOutcome { ticked, reschedule };
        let long = [long_event(before, place, EventRef::Timer), long_outcome(place.now, outcome.into())].concat();
        if let Some(short) = usual(|room| write_timer(room, before, place, outcome)) {
            prop_assert_eq!(&short, &long);
        }
        let read = read_record(&mut Reader::new(&long), before);
        prop_assert_eq!(read, Ok((place, Event::Timer, outcome.into())));
    }

    #[test]
    fn the_end_of_a_wait_has_one_form(
        (before, place) in places(), seat in seat(), late in number(), reschedule: bool,
    ) {
        let expired = expired(seat, place.now - Nanos::new(late), reschedule);
        let outcome = Outcome::Expired(Some((seat, expired.deadline)), reschedule);
        let long = [long_event(before, place, EventRef::Expire), long_outcome(place.now, outcome)].concat();
        if let Some(short) = usual(|room| write_expired(room, before, place, &expired)) {
            prop_assert_eq!(&short, &long);
        }
        let read = read_record(&mut Reader::new(&long), before);
        prop_assert_eq!(read, Ok((place, Event::Expire, outcome)));
    }

    #[test]
    fn a_decision_has_one_form(
        (before, place) in places(), choice in 0u8..8, kind: u8,
        timeout in (number(), number(), number()), next in prop::option::of((seat(), number(), any::<bool>())),
    ) {
        let stop = || stop(choice, kind, timeout, place.now);
        let decision = next.map_or(Decision::Idle, |(seat, slice, switched)| {
            run(seat, place.now + Nanos::new(slice), switched)
        });
        let first = long_event(before, place, EventRef::Resched(&stop()));
        let second = long_outcome(place.now, decision.into());
        if let Some(short) = usual(|room| write_stop(room, before, place, &stop())) {
            prop_assert_eq!(&short, &first);
        }
        if let Some(short) = usual(|room| write_decision(room, place.now, &decision)) {
            prop_assert_eq!(&short, &second);
        }
        let long = [first, second].concat();
        let read = read_record(&mut Reader::new(&long), before);
        prop_assert_eq!(read, Ok((place, Event::Resched(stop()), decision.into())));
    }

    #[test]
    fn any_bytes_of_a_usual_kind_are_refused_or_are_the_one_form_of_what_is_read(
        kind in prop_oneof![2u8..=6, 14u8..=15, Just(27u8), 32u8..=40], cpu in 0u8..3, gap in number(),
        rest in prop::collection::vec(prop_oneof![Just(0u8), 5u8..=6, 17u8..=30, any::<u8>()], 1..30),
    ) {
        let before = Place { cpu: cpu_id(2), now: ms(1) };
        let gap = (gap as u16).to_le_bytes();
        let start: &[u8] = if kind == 27 { &[kind] } else { &[kind, cpu, 0, gap[0], gap[1]] };
        let bytes = [start, &rest].concat();
        let mut reader = Reader::new(&bytes);
        if let Ok((place, event, outcome)) = read_record(&mut reader, before) {
            let again = [long_event(before, place, event.borrowed()), long_outcome(place.now, outcome)].concat();
            prop_assert_eq!(&bytes[..reader.position()], again.as_slice());
        }
    }
}

#[test]
fn what_is_small_is_usual() {
    let before = Place { cpu: cpu_id(4095), now: ms(3) };
    let place = Place { cpu: CpuId::BOOT, now: before.now + us(65) };
    let seat = Seat::from_parts(255, ThreadRef::new(65_535, 0));
    let timer = TimerOutcome { ticked: true, reschedule: false };
    let timeout = Timeout { deadline: place.now + ms(16), user_data: (1 << 24) - 1, permit: permit(255) };
    let lengths = [
        usual(|room| write_timer(room, before, place, timer)),
        usual(|room| write_expired(room, place, place, &expired(seat, place.now, true))),
        usual(|room| write_stop(room, before, place, &Stop::Blocked(WaitKind::Ring, Some(timeout)))),
        usual(|room| write_stop(room, before, place, &Stop::Yielded)),
        usual(|room| write_decision(room, place.now, &run(seat, place.now + ms(16), true))),
        usual(|room| write_decision(room, place.now, &Decision::Idle)),
    ]
    .map(|bytes| bytes.map(|bytes| bytes.len()));
    assert_eq!(lengths, [Some(6), Some(5), Some(12), Some(5), Some(7), Some(1)]);
}
