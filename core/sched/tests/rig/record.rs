//! Records, written the long way.

use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::flight::{
    DecodeState, EncodeState, EventRef, Outcome, Reader, Room, Stamp, Writer, read_record, write_event,
    write_outcome,
};
use mainspring_sched::{Decision, Dispatch, Entity, Seat, Spec, Stop, Via};

/// The record, after the records of `encode`.
pub fn written(mut encode: EncodeState, stamp: Stamp, event: EventRef<'_>, outcome: Outcome) -> Vec<u8> {
    let mut first = half(|writer| write_event(writer, &mut encode, stamp, event));
    let mut kind = first[0];
    let second = half(|writer| write_outcome(writer, &mut encode, &mut kind, outcome));
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
pub fn decode_state(before: Stamp, cpu: CpuId, seats: &[Seat]) -> DecodeState {
    let mut decode = DecodeState::new();
    for seat in seats {
        add_thread(&mut decode, cpu, *seat);
    }
    add(&mut decode, before, EventRef::RescheduleReceived, Outcome::Done);
    decode
}

/// After the record of a decision on a CPU that no test asks about, with a slice of that length, and then one at `before`.
pub fn decode_state_with_slice(slice: Nanos, before: Stamp, cpu: CpuId, seats: &[Seat]) -> DecodeState {
    let elsewhere = CpuId::new(9).expect("a CPU");
    let mut decode = decode_state(Stamp::START, cpu, seats);
    let seat = Seat::from_parts(0, super::spec(0).thread);
    add_thread(&mut decode, elsewhere, seat);
    let runs = Dispatch { seat, thread: seat.thread(), switched: true, slice_end: slice };
    let stamp = Stamp { cpu: elsewhere, now: Nanos::ZERO };
    add(&mut decode, stamp, EventRef::Resched(&Stop::Nothing), Decision::Run(runs).into());
    add(&mut decode, before, EventRef::RescheduleReceived, Outcome::Done);
    decode
}

fn add_thread(decode: &mut DecodeState, cpu: CpuId, seat: Seat) {
    let entity = Entity::new(Spec { thread: seat.thread(), ..super::spec(0) });
    let stamp = Stamp { cpu, now: Nanos::ZERO };
    add(decode, stamp, EventRef::Accept(&entity, Via::Admit), Outcome::Seated(seat.slot(), false));
}

fn add(decode: &mut DecodeState, stamp: Stamp, event: EventRef<'_>, outcome: Outcome) {
    let bytes = written(decode.writer(), stamp, event, outcome);
    read_record(&mut Reader::new(&bytes), decode).expect("just written");
}
