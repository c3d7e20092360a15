//! The flight record's bytes: what was written is read back, and bytes that no writer produces are
//! refused.

mod rig;

use mainspring_abi::{CpuId, LatencyClass, Nanos, Policy, ThreadRef};
use mainspring_sched::flight::{
    DecodeError, Event, EventRef, NohzEvent, NohzOutcome, Outcome, Reader, Stamp, read_record,
};
use mainspring_sched::lease::{AccountingTarget, LeaseRef, Standing, TargetStanding};
use mainspring_sched::nohz::{Conditions, Kind, Obstacle, Origin, RingFacts};
use mainspring_sched::{
    Decision, IdleConditions, IdleTick, KeepTicking, NetworkNeed, NohzEntry, NohzRecheck, Seat, Stop,
    Timeout, TimerOutcome, Via, WaitKind, WaitQuota,
};
use rig::lease::{compute, eligibility, grant, local, mask, registry, sqpoll};
use rig::record::{decode_state, written};
use rig::{Rig, cpu_id, entity, ms, only, spec, us, weight};

/// When the record before was, and the one that is written.
const BEFORE: Stamp = Stamp { cpu: CpuId::BOOT, now: Nanos::from_millis(2) };

fn here() -> Stamp {
    Stamp { cpu: cpu_id(4095), now: ms(5) }
}

fn bytes(event: EventRef<'_>, outcome: Outcome) -> Vec<u8> {
    written(decode_state(BEFORE, here().cpu, &[]).writer(), here(), event, outcome)
}

/// Reads bytes that were written so, with no thread seated.
fn read(bytes: &[u8]) -> Result<(Stamp, Event, Outcome), DecodeError> {
    read_record(&mut Reader::new(bytes), &mut decode_state(BEFORE, here().cpu, &[]))
}

fn timeout() -> Timeout {
    let permit = WaitQuota::new(1, 1, 1).take(mainspring_abi::ProcessId::new(0)).expect("one is left");
    Timeout { deadline: ms(77), user_data: u64::MAX, permit }
}

/// Claims of every origin, with terms of a real lease and with conditions of every sort.
fn window_events() -> [NohzEvent; 4] {
    let mut registry = registry();
    let lease = grant(&mut registry, ms(1), &sqpoll(&mask(&[2])));
    let (caller, other) = (ThreadRef::new(70_000, 9), ThreadRef::new(3, 0));
    let claim = |kind, origin| eligibility(kind).claim(lease, origin);
    let live = Conditions { lease: registry.standing(ms(1), lease), ..Conditions::default() };
    assert!(matches!(live.lease, Standing::Live(_)));
    let spoiled = Conditions {
        lease: Standing::Contended,
        target: TargetStanding::Fabricated,
        ring: RingFacts::Sqpoll { owner_live: true, spinning: false, other_consumer: true },
        payer: AccountingTarget::Context { id: 5, generation: 900 },
        watchdog: true,
        fixed_irq: true,
        oneshot: false,
        next_wakeup: ms(80),
        ..Conditions::default()
    };
    [
        NohzEvent::Enter(claim(Kind::AutoCompute, Origin::Local { caller, poller: None }), live),
        NohzEvent::Enter(claim(Kind::KernelSqpoll, Origin::Local { caller, poller: Some(other) }), live),
        NohzEvent::Enter(claim(Kind::RealtimeIsland, Origin::Remote { caller }), spoiled),
        NohzEvent::Recheck(Conditions { ring: RingFacts::Contended, lease: Standing::Expired, ..spoiled }),
    ]
}

/// An event of every kind, as it is announced and as it is read back.
fn events() -> Vec<(Vec<u8>, Event)> {
    let seat = Seat::from_parts(300, ThreadRef::new(70_000, 9));
    let conditions = IdleConditions {
        network: NetworkNeed::PollAt(ms(5)),
        ring_service: true,
        stable_clock: false,
        ..IdleConditions::default()
    };
    let mut bound = spec(5);
    bound.affinity = only(&[0, 63, 64, 4095]);
    bound.request = Some(us(700));
    let bound = || mainspring_sched::Entity::new(bound.clone());
    let stop = |stop: Stop| (bytes(EventRef::Resched(&stop), Outcome::Done), Event::Resched(stop));
    let at = |event: EventRef<'_>| bytes(event, Outcome::Done);
    let window = |event: NohzEvent| (bytes(EventRef::Nohz(&event), Outcome::Done), Event::Nohz(event));
    let [enter, poller, remote, recheck] = window_events();
    vec![
        (at(EventRef::Accept(&bound(), Via::Steal)), Event::Accept(bound(), Via::Steal)),
        (at(EventRef::Accept(&entity(1), Via::Admit)), Event::Accept(entity(1), Via::Admit)),
        stop(Stop::Nothing),
        stop(Stop::Preempted),
        stop(Stop::Yielded),
        stop(Stop::Blocked(WaitKind::Join, None)),
        stop(Stop::Blocked(WaitKind::Ring, Some(timeout()))),
        (at(EventRef::ExitCurrent), Event::ExitCurrent),
        (at(EventRef::Wake(seat)), Event::Wake(seat)),
        (at(EventRef::HandOff(seat)), Event::HandOff(seat)),
        (at(EventRef::Hold(seat)), Event::Hold(seat)),
        (at(EventRef::Release(seat)), Event::Release(seat)),
        (at(EventRef::Remove(seat)), Event::Remove(seat)),
        (at(EventRef::Give(cpu_id(17))), Event::Give(cpu_id(17))),
        (at(EventRef::Timer), Event::Timer),
        (at(EventRef::Expire), Event::Expire),
        (at(EventRef::RescheduleReceived), Event::RescheduleReceived),
        (at(EventRef::EnterIdle(&conditions)), Event::EnterIdle(conditions)),
        (at(EventRef::SetWeight(seat, weight(9))), Event::SetWeight(seat, weight(9))),
        (at(EventRef::SetClass(seat, LatencyClass::Batch)), Event::SetClass(seat, LatencyClass::Batch)),
        window(enter),
        window(poller),
        window(remote),
        window(recheck),
        window(NohzEvent::Forget(LeaseRef::from_parts(300, u64::MAX))),
    ]
}

#[test]
fn every_event_is_read_back_as_it_was() {
    for (bytes, event) in events() {
        let mut reader = Reader::new(&bytes);
        let read = read_record(&mut reader, &mut decode_state(BEFORE, here().cpu, &[]));
        assert_eq!(read, Ok((here(), event, Outcome::Done)));
        assert!(reader.is_empty());
    }
}

#[test]
fn times_of_any_distance_are_read_back_as_they_were() {
    let edges = [16, 24, 32, 56].into_iter().flat_map(|bits| [-2, -1, 0].map(|by| (1i64 << bits) + by));
    let times: Vec<_> = edges.chain([0, 1, i64::MAX, -1]).map(|time| Nanos::new(time as u64)).collect();
    let at = |now| Stamp { cpu: cpu_id(0), now };
    for &now in &times {
        for &before in times.iter().filter(|before| **before <= now) {
            for &other in &times {
                let stop = || Stop::Blocked(WaitKind::Park, Some(Timeout { deadline: other, ..timeout() }));
                let seat = Seat::from_parts(u32::MAX, ThreadRef::new(u32::MAX, u32::MAX));
                let outcome = Outcome::Expired(Some((seat, other)), true);
                let (before, stamp) = (at(before), at(now));
                let mut decode = decode_state(before, stamp.cpu, &[]);
                let bytes = written(decode.writer(), stamp, EventRef::Resched(&stop()), outcome);
                let read = read_record(&mut Reader::new(&bytes), &mut decode);
                assert_eq!(read, Ok((stamp, Event::Resched(stop()), outcome)));
            }
        }
    }
}

#[test]
fn every_outcome_is_read_back_as_it_was() {
    let seat = Seat::from_parts(7, ThreadRef::new(3, 1));
    let mut rig = Rig::new(Policy::Eevdf);
    rig.thread(64);
    let run = rig.cpu.resched(us(5), Stop::Nothing);
    assert!(matches!(run, Decision::Run(_)));
    let lag = rig.cpu.exit_current(ms(9)).expect("it runs").lag();
    let mut outcomes = vec![
        Outcome::Refused,
        Outcome::Decided(Decision::Idle),
        Outcome::Decided(run),
        Outcome::Left(None),
        Outcome::Left(Some((seat.thread(), lag))),
        Outcome::BadSeat,
        Outcome::Expired(None, false),
        Outcome::Idle(IdleTick::Suppressed { wake_at: ms(100) }),
        Outcome::Done,
    ];
    for a in [false, true] {
        outcomes.extend([
            Outcome::Seated(70_000, a),
            Outcome::Direct(a),
            Outcome::Expired(Some((seat, ms(1))), a),
        ]);
        for b in [false, true] {
            let timer = TimerOutcome { ticked: a, reschedule: b };
            outcomes.extend([Outcome::Ready(a, b), Outcome::Timer(timer)]);
        }
    }
    outcomes.extend(Obstacle::ALL.map(|why| Outcome::Nohz(NohzOutcome::Entry(NohzEntry::Refused(why)))));
    outcomes
        .extend(Obstacle::ALL.map(|why| Outcome::Nohz(NohzOutcome::Recheck(NohzRecheck::RolledBack(why)))));
    outcomes.extend(
        [
            NohzOutcome::Entry(NohzEntry::Tickless { wake_at: ms(25) }),
            NohzOutcome::Entry(NohzEntry::Already),
            NohzOutcome::Recheck(NohzRecheck::NotTickless),
            NohzOutcome::Recheck(NohzRecheck::Kept { wake_at: ms(50) }),
            NohzOutcome::Forgot(false),
            NohzOutcome::Forgot(true),
        ]
        .map(Outcome::Nohz),
    );
    outcomes.extend(KeepTicking::ALL.map(|reason| Outcome::Idle(IdleTick::Kept(reason))));
    for outcome in outcomes {
        let bytes = bytes(EventRef::Timer, outcome);
        assert_eq!(read(&bytes), Ok((here(), Event::Timer, outcome)));
    }
}

#[test]
fn a_record_cut_anywhere_is_refused() {
    for (bytes, _) in events() {
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Err(DecodeError::Truncated));
        }
    }
}

#[test]
fn any_bytes_are_refused_or_read_and_never_believed_beyond_their_range() {
    let mut state = 7u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let samples = events();
    for _ in 0..200_000 {
        let mut bytes = samples[draw() as usize % samples.len()].0.clone();
        for _ in 0..1 + draw() % 3 {
            let at = draw() as usize % bytes.len();
            bytes[at] = draw() as u8;
        }
        // Whatever is read can be given to a CPU, which refuses what makes no sense.
        if let Ok((stamp, event, _)) = read(&bytes) {
            let mut rig = Rig::on(17, Policy::Eevdf);
            let _ = rig.cpu.apply(Nanos::new(stamp.now.get() >> 8), event);
        }
    }
}

#[test]
fn a_window_under_a_lease_replays_from_its_record() {
    let mut registry = registry();
    let lease = grant(&mut registry, Nanos::ZERO, &compute(&mask(&[1])));
    let bound = || {
        let mut spec = spec(5);
        spec.affinity = only(&[1]);
        mainspring_sched::Entity::new(spec)
    };
    let live = Conditions { lease: registry.standing(ms(1), lease), ..Conditions::default() };
    let stale = Conditions { lease: Standing::Stale, ..live };
    let events = || {
        [
            (ms(0), Event::Accept(bound(), Via::Admit)),
            (ms(0), Event::Resched(Stop::Nothing)),
            (ms(1), Event::Nohz(NohzEvent::Enter(local(lease, ThreadRef::new(5, 0)), live))),
            (ms(26), Event::Nohz(NohzEvent::Recheck(live))),
            (ms(26), Event::Timer),
            (ms(30), Event::Nohz(NohzEvent::Forget(LeaseRef::from_parts(9, 9)))),
            (ms(51), Event::Nohz(NohzEvent::Recheck(stale))),
            (ms(51), Event::Timer),
        ]
    };
    let mut first = Rig::on(1, Policy::Eevdf);
    let outcomes = events().map(|(now, event)| first.cpu.apply(now, event).expect("possible").0);
    let kept = NohzRecheck::Kept { wake_at: ms(51) };
    assert_eq!(outcomes[3], Outcome::Nohz(NohzOutcome::Recheck(kept)));
    let over = NohzRecheck::RolledBack(Obstacle::StaleLease);
    assert_eq!(outcomes[6], Outcome::Nohz(NohzOutcome::Recheck(over)));
    let mut second = Rig::on(1, Policy::Eevdf);
    for ((now, event), outcome) in events().into_iter().zip(outcomes) {
        let bytes = match &event {
            Event::Nohz(event) => bytes(EventRef::Nohz(event), outcome),
            Event::Accept(entity, via) => bytes(EventRef::Accept(entity, *via), outcome),
            Event::Resched(stop) => bytes(EventRef::Resched(stop), outcome),
            _ => bytes(EventRef::Timer, outcome),
        };
        let mut decode = decode_state(BEFORE, here().cpu, &[Seat::from_parts(0, ThreadRef::new(5, 0))]);
        let (_, read, recorded) = read_record(&mut Reader::new(&bytes), &mut decode).expect("just written");
        assert_eq!(second.cpu.apply(now, read).map(|(outcome, _)| outcome), Ok(recorded));
    }
    assert_eq!(first.cpu.telemetry(), second.cpu.telemetry());
}
