//! Records, written the long way.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{
    EventRef, Outcome, Past, Place, Reader, Room, Told, Writer, read_record, write_event, write_outcome,
};
use mainspring_sched::{Decision, Dispatch, Entity, Seat, Spec, Stop, Via};

/// The record, after those that have `told`.
pub fn written(mut told: Told, place: Place, event: EventRef<'_>, outcome: Outcome) -> Vec<u8> {
    let mut first = half(|writer| write_event(writer, &mut told, place, event));
    let mut kind = first[0];
    let second = half(|writer| write_outcome(writer, &mut told, &mut kind, outcome));
    first[0] = kind;
    [first, second].concat()
}

fn half(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut room: Room = [0; size_of::<Room>()];
    let mut writer = Writer::new(&mut room);
    write(&mut writer);
    let length = writer.written();
    room[..length].to_vec()
}

/// After records that accept threads at these seats of a CPU, the last of all at `before`.
pub fn past(before: Place, cpu: CpuId, seats: &[Seat]) -> Past {
    let mut past = Past::new();
    for seat in seats {
        add_thread(&mut past, cpu, *seat);
    }
    add(&mut past, before, EventRef::RescheduleReceived, Outcome::Done);
    past
}

/// After the record of a decision on some CPU that nobody asks about, with a slice of that length, and then one at `before`.
pub fn past_with_slice(slice: Nanos, before: Place, cpu: CpuId, seats: &[Seat]) -> Past {
    let elsewhere = CpuId::new(9).expect("a CPU");
    let mut past = past(Place::START, cpu, seats);
    let seat = Seat::from_parts(0, super::spec(0).thread);
    add_thread(&mut past, elsewhere, seat);
    let runs = Dispatch { seat, thread: seat.thread(), switched: true, slice_end: slice };
    let place = Place { cpu: elsewhere, now: Nanos::ZERO };
    add(&mut past, place, EventRef::Resched(&Stop::Nothing), Decision::Run(runs).into());
    add(&mut past, before, EventRef::RescheduleReceived, Outcome::Done);
    past
}

fn add_thread(past: &mut Past, cpu: CpuId, seat: Seat) {
    let entity = Entity::new(Spec { thread: seat.thread(), ..super::spec(0) });
    let place = Place { cpu, now: Nanos::ZERO };
    add(past, place, EventRef::Accept(&entity, Via::Admit), Outcome::Seated(seat.slot(), false));
}

fn add(past: &mut Past, place: Place, event: EventRef<'_>, outcome: Outcome) {
    let bytes = written(past.told(), place, event, outcome);
    read_record(&mut Reader::new(&bytes), past).expect("just written");
}
