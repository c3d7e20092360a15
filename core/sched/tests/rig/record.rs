//! Records, written the long way.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{
    EventRef, Outcome, Past, Place, Reader, Room, Writer, read_record, write_event, write_outcome,
};
use mainspring_sched::{Entity, Seat, Spec, Via};

pub fn written(before: Place, place: Place, event: EventRef<'_>, outcome: Outcome) -> Vec<u8> {
    let mut first = half(|writer| write_event(writer, before, place, event));
    let mut kind = first[0];
    let second = half(|writer| write_outcome(writer, &mut kind, place.now, outcome));
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
        let entity = Entity::new(Spec { thread: seat.thread(), ..super::spec(0) });
        let place = Place { cpu, now: Nanos::ZERO };
        add(&mut past, place, EventRef::Accept(&entity, Via::Admit), Outcome::Seated(seat.slot(), false));
    }
    add(&mut past, before, EventRef::RescheduleReceived, Outcome::Done);
    past
}

fn add(past: &mut Past, place: Place, event: EventRef<'_>, outcome: Outcome) {
    let bytes = written(past.last(), place, event, outcome);
    read_record(&mut Reader::new(&bytes), past).expect("just written");
}
