//! Nothing that happens to a context after it was created takes memory.

use crate::rig::{Rig, ms};
use mainspring_driver::contexts::{CallEnd, RevokeReason};
use mainspring_driver::placement;
use mainspring_sched::WaitKind;

//= ARCH:notify.passive ARCH:donation.cancel
#[test]
fn loans_returns_notices_revocations_and_logouts_take_no_memory() {
    let mut rig = Rig::new(2, 4);
    rig.machine.keep_logs(1_000);
    let session = rig.contexts.sessions.open().expect("room");
    rig.machine.sessions[0] = Some(session);
    rig.run(1);
    assert!(rig.receive(1));
    let names = [rig.name(0), rig.name(1), rig.name(2), rig.name(3)];
    let (lent, idle) = (rig.bound(0, &[0, 1]), rig.grant(1, 10, &[0]));
    for round in 0..CallEnd::ALL.len() {
        rig.run(0);
        rig.block(0, WaitKind::Call);
        let counted = allocation_counter::measure(|| {
            let (contexts, machine) = (&mut rig.contexts, &mut rig.machine);
            assert!(contexts.lend(machine, names[0], names[1]).is_ok());
            let _wait = contexts.wait_for_notice(machine, lent, names[3]).expect("it lives");
            let _notices = contexts.drain(machine, lent).expect("it lives");
            assert!(contexts.bind(machine, idle, names[2]).is_ok());
            contexts.adjust(machine, ms(round as u64), lent, (ms(2), ms(10), ms(10))).expect("sound");
            contexts.end_call(machine, names[0], CallEnd::ALL[round]);
            placement::wake(machine, names[0]);
            assert!(contexts.unbind(machine, names[2]).is_some());
        });
        assert_eq!(counted.count_total, 0, "{:?}", CallEnd::ALL[round]);
    }
    rig.run(0);
    rig.block(0, WaitKind::Call);
    let _asleep = rig.contexts.lend(&mut rig.machine, names[0], names[1]).expect("it waits for the call");
    let mut ended = placement::remove(&mut rig.machine, names[1]).expect("it sleeps").entity;
    let counted = allocation_counter::measure(|| {
        let (contexts, machine) = (&mut rig.contexts, &mut rig.machine);
        contexts.thread_ended(machine, &mut ended);
        let logout = contexts.logout(machine, session).expect("it is live");
        assert_eq!(logout.revoked, 1);
        contexts.revoke(machine, idle, RevokeReason::Explicit).expect("it lives");
    });
    assert_eq!(counted.count_total, 0);
}
