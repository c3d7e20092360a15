//! One CPU asks another to go tickless while a third ends the lease: every interleaving ends with the periodic tick.

mod rig;

use mainspring_abi::{Nanos, Policy, ThreadRef};
use mainspring_sched::lease::{LeaseRef, Registry, Standing};
use mainspring_sched::nohz::{Claim, Conditions, Kind, Occupied, Origin, Parked, RemoteRequest, RemoteSlot};
use mainspring_sched::{NohzEntry, NohzRecheck, TickMode};
use rig::lease::{compute, eligibility, grant, mask, registry};
use rig::{Rig, ms, only};

const LATENCY: Nanos = Nanos::from_millis(25);

/// CPU 1, whose slot, scheduler and lease others reach, and what its interrupt handler has in hand.
struct World {
    target: Rig,
    slot: RemoteSlot,
    registry: Registry,
    lease: LeaseRef,
    claim: Claim,
    peeked: Option<RemoteRequest>,
    standing: Standing,
    entered: bool,
    recheck_trusts_drain: bool,
}

impl World {
    fn new(recheck_trusts_drain: bool) -> Self {
        let mut registry = registry();
        let lease = grant(&mut registry, Nanos::ZERO, &compute(&mask(&[1])));
        let mut target = Rig::on(1, Policy::Eevdf);
        target.admit(|spec| spec.affinity = only(&[1]));
        target.start();
        target.now = ms(1);
        let claim =
            eligibility(Kind::AutoCompute).claim(lease, Origin::Remote { caller: ThreadRef::new(900, 0) });
        let (slot, standing) = (RemoteSlot::new(), Standing::Contended);
        Self {
            target,
            slot,
            registry,
            lease,
            claim,
            peeked: None,
            standing,
            entered: false,
            recheck_trusts_drain,
        }
    }

    fn conditions(&self) -> Conditions {
        Conditions { lease: self.standing, ..Conditions::default() }
    }

    /// The requester has one step.
    fn ask(&mut self) {
        assert_eq!(self.slot.park(self.claim), Ok(Parked));
    }

    /// The end of the lease, in the order that the protocol demands.
    fn end(&mut self, step: usize) {
        match step {
            0 => drop(self.registry.revoke(self.target.now, self.lease).map(|_| self.registry.roll_back())),
            1 => drop(self.slot.withdraw(self.lease)),
            _ => drop(self.target.cpu.nohz_forget(self.lease)),
        }
    }

    /// One step of the target's handler: look into the slot; read the lease; go tickless; clear the slot.
    fn drain(&mut self, step: usize, contended: bool) {
        match step {
            0 => self.peeked = self.slot.peek(),
            // The request stays parked for the next tick.
            1 if contended => self.peeked = None,
            1 => self.standing = self.registry.standing(self.target.now, self.lease),
            2 => {
                if let Some(request) = self.peeked {
                    let entry =
                        self.target.cpu.nohz_enter(self.target.now, &request.claim, &self.conditions());
                    self.entered |= matches!(entry, NohzEntry::Tickless { .. });
                }
            }
            _ => {
                if let Some(request) = self.peeked.take() {
                    self.slot.finish(&request);
                }
            }
        }
    }

    fn recheck(&mut self, step: usize) {
        match step {
            0 if self.recheck_trusts_drain => {}
            0 => self.standing = self.registry.standing(self.target.now, self.lease),
            _ => drop(self.target.cpu.nohz_recheck(self.target.now, &self.conditions())),
        }
    }

    fn is_periodic(&self) -> bool {
        self.target.cpu.tick_mode() == TickMode::Periodic
    }

    fn check_armed(&self) {
        let armed = self.target.cpu.next_timer();
        assert!(armed > self.target.now && armed <= self.target.now + LATENCY, "armed for {armed}");
    }
}

/// Calls `visit` with every order in which actors with so many steps each can take turns.
fn interleave(left: &mut [usize], order: &mut Vec<usize>, visit: &mut impl FnMut(&[usize])) {
    let mut done = true;
    for actor in 0..left.len() {
        if left[actor] > 0 {
            done = false;
            left[actor] -= 1;
            order.push(actor);
            interleave(left, order, visit);
            order.pop();
            left[actor] += 1;
        }
    }
    if done {
        visit(order);
    }
}

const ASKS: usize = 0;
const ENDS: usize = 1;

/// What there is to explore: which of the target's drains find its scheduler taken, and whether the last interrupt
/// reaches it at once or it has to wait for its one-shot.
#[derive(Clone, Copy, Debug)]
struct Case {
    contended: [bool; 2],
    interrupt_lost: bool,
    recheck_trusts_drain: bool,
}

/// Plays one order; the world as it is when all is done and the target has been interrupted once more.
fn play(order: &[usize], case: Case) -> World {
    let mut world = World::new(case.recheck_trusts_drain);
    let mut taken = [0; 3];
    for actor in order {
        let step = taken[*actor];
        taken[*actor] += 1;
        match (*actor, step) {
            (ASKS, _) => world.ask(),
            (ENDS, step) => world.end(step),
            (_, step @ 0..4) => world.drain(step, case.contended[0]),
            (_, step @ 4..6) => world.recheck(step - 4),
            (_, step @ 6..10) => world.drain(step - 6, case.contended[1]),
            (_, step) => world.recheck(step - 10),
        }
        world.check_armed();
    }
    if case.interrupt_lost {
        world.target.now = world.target.cpu.next_timer();
    }
    for step in 0..2 {
        world.recheck(step);
    }
    if case.interrupt_lost {
        let _ = world.target.cpu.timer(world.target.now);
    }
    // A request that is still there is found by the next tick.
    for step in 0..4 {
        world.drain(step, false);
    }
    world
}

fn explore(recheck_trusts_drain: bool) -> (usize, usize, usize) {
    let (mut orders, mut entered, mut still_tickless) = (0, 0, 0);
    for bits in 0..8u8 {
        let contended = [bits & 1 != 0, bits & 2 != 0];
        let case = Case { contended, interrupt_lost: bits & 4 != 0, recheck_trusts_drain };
        interleave(&mut [1, 3, 12], &mut Vec::new(), &mut |order| {
            let world = play(order, case);
            world.check_armed();
            orders += 1;
            entered += usize::from(world.entered);
            still_tickless += usize::from(!world.is_periodic());
            assert!(recheck_trusts_drain || world.is_periodic(), "{case:?}: {order:?}");
            assert!(recheck_trusts_drain || world.slot.peek().is_none(), "{case:?}: {order:?}");
        });
    }
    (orders, entered, still_tickless)
}

//= ARCH:nohz.remote-ordering ARCH:nohz.remote ARCH:nohz.remote-slot
#[test]
fn every_order_of_asking_draining_and_ending_ends_periodic() {
    let (orders, entered, still_tickless) = explore(false);
    assert_eq!(orders, 8 * 16 * 455, "one step of 16 is asking, three of the other 15 are the end");
    assert!(entered > 1_000, "in many of them the target did go tickless: {entered}");
    assert_eq!(still_tickless, 0);
}

#[test]
fn a_recheck_that_trusts_an_old_look_at_the_lease_would_be_found() {
    let (_, _, still_tickless) = explore(true);
    assert!(still_tickless > 0);
}

//= ARCH:nohz.remote-slot
#[test]
fn an_occupied_slot_rejects_and_a_finished_request_does_not_take_the_next_one_along() {
    let world = World::new(false);
    let mut slot = RemoteSlot::new();
    assert_eq!(slot.park(world.claim), Ok(Parked));
    let refused = slot.park(world.claim).expect_err("occupied");
    assert_eq!(refused, Occupied { by: world.lease });
    assert!(refused.to_string().starts_with("rejected"));
    let first = slot.peek().expect("parked");
    assert!(!slot.withdraw(LeaseRef::from_parts(99, 99)), "another lease's end leaves it");
    assert!(slot.withdraw(world.lease));
    assert_eq!(slot.park(world.claim), Ok(Parked));
    slot.finish(&first);
    assert!(slot.peek().is_some(), "the same claim, asked again");
    slot.finish(&slot.peek().expect("parked"));
    assert_eq!(slot.peek(), None);
}

//= ARCH:nohz.remote ARCH:nohz.remote-slot
#[test]
fn a_contended_drain_leaves_the_request_for_the_tick_that_still_comes() {
    let mut world = World::new(false);
    world.ask();
    for step in 0..4 {
        world.drain(step, true);
    }
    assert!(world.is_periodic() && world.slot.peek().is_some());
    world.target.now = world.target.cpu.next_timer();
    assert!(world.target.cpu.timer(world.target.now).ticked);
    for step in 0..4 {
        world.drain(step, false);
    }
    assert_eq!(world.target.cpu.tick_mode(), TickMode::TicklessLease { wake_at: ms(35) });
    assert_eq!(world.slot.peek(), None);
    let outcome = world.target.cpu.nohz_recheck(ms(11), &world.conditions());
    assert_eq!(outcome, NohzRecheck::Kept { wake_at: ms(36) });
}
