//! Tasks that wait for budget against a gift, an owner that begins to wait, and a sibling that starves too.

use crate::{finds, model};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use mainspring::protocol::bias::{Home, SectionFlag};
use mainspring::protocol::claim::Claimable;
use mainspring::protocol::hunger::{Eater, Hunger, Starving};
use mainspring::protocol::join::{JoinCell, Waiting};
use mainspring::protocol::mutant::Mutant;
use mainspring::protocol::wait_group::WaitGroup;
use mainspring::task::state::{Committed, Event, StateCell, Woken};

/// A child that runs on a worker of its own, and its place in the worker's queue.
struct Child {
    state: StateCell,
    home: Home,
    section_flag: SectionFlag,
    queued: AtomicUsize,
    join: JoinCell,
}

impl Child {
    fn running() -> Self {
        let state = StateCell::default();
        state.dispatch_for_model();
        Self {
            state,
            home: Home::new(),
            section_flag: SectionFlag::default(),
            queued: AtomicUsize::new(0),
            join: JoinCell::new(),
        }
    }

    /// As `Worker::block` and the next dispatch.
    fn wait_for_budget(&self) {
        if self.state.commit_wait(Event::Exhaust, &self.home, &self.section_flag) == Committed::Queue {
            self.queued.fetch_add(1, Ordering::Release);
        }
        // A child that sleeps over the last event goes round here for ever, which loom reports.
        while self.queued.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        assert_eq!(self.queued.swap(0, Ordering::Acquire), 1, "queued twice");
        self.state.dispatch_for_model();
    }
}

/// A child in the list.
#[derive(Clone)]
struct Listed(Arc<Child>);

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eater for Listed {
    fn look_again(&self) {
        // SAFETY: the only section_flag lives as long as the home.
        if unsafe { self.0.state.wake(Event::Recharge, &self.0.home, None) } == Woken::Queue {
            self.0.queued.fetch_add(1, Ordering::Release);
        }
    }
}

/// What the nursery's lock guards in the model: the list, and the pool.
#[derive(Default)]
struct Shared {
    starving: Starving<Listed>,
    pool: u32,
}

impl AsMut<Starving<Listed>> for Shared {
    fn as_mut(&mut self) -> &mut Starving<Listed> {
        &mut self.starving
    }
}

struct Nursery {
    wait_group: WaitGroup<Shared>,
    hunger: Hunger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The child fails when its owner waits for it.
    Park,
    /// The child fails when its owner waits and all siblings starve.
    Refill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Fed,
    Failed,
}

impl Nursery {
    fn new(children: usize) -> Self {
        let wait_group = WaitGroup::new(Shared::default());
        (0..children).for_each(|_| wait_group.add());
        Self { wait_group, hunger: Hunger::new() }
    }

    fn draw(&self) -> bool {
        self.wait_group.with(|shared| {
            let has = shared.pool > 0;
            shared.pool -= u32::from(has);
            has
        })
    }

    /// As `Cx::run_out`, for a child that is no fork tree.
    fn starve(&self, child: &Listed, policy: Policy) -> Ended {
        self.hunger.enter(&self.wait_group, child.clone());
        let ended = loop {
            if self.draw() {
                break Ended::Fed;
            }
            let outlook =
                self.wait_group.with(|shared| shared.starving.outlook(child, true, self.wait_group.live()));
            let owner_waits = outlook.awaited || child.0.join.is_awaited();
            if owner_waits && (policy == Policy::Park || outlook.all_starve) {
                break if self.draw() { Ended::Fed } else { Ended::Failed };
            }
            child.0.wait_for_budget();
        };
        self.hunger.leave(&self.wait_group, child);
        ended
    }

    fn feed(&self, amount: u32) {
        self.wait_group.with(|shared| {
            shared.pool += amount;
            shared.starving.feed();
        });
    }
}

/// A nursery whose owner changes the pool without the lock.
struct Owned {
    nursery: Nursery,
    pool: Claimable<UnsafeCell<u32>>,
}

impl Owned {
    fn new(children: usize) -> Self {
        Self { nursery: Nursery::new(children), pool: Claimable::new(UnsafeCell::new(0)) }
    }

    /// As `Cx::run_out`, for a child whose owner does not wait for it.
    fn starve(&self, child: &Listed) {
        let Nursery { wait_group, hunger } = &self.nursery;
        let draw = |pool: &mut UnsafeCell<u32>| {
            // SAFETY: the protocol lets one side in at a time; loom checks that.
            pool.with_mut(|amount| unsafe {
                let has = *amount > 0;
                *amount -= u32::from(has);
                has
            })
        };
        hunger.enter(wait_group, child.clone());
        // SAFETY: under the lock of the claimants.
        while !wait_group.with(|_| unsafe { self.pool.claim(draw) }) {
            child.0.wait_for_budget();
        }
        hunger.leave(wait_group, child);
    }

    /// As `NurseryCore::with_whole`.
    fn take_in_vain(&self) {
        // SAFETY: the thread that calls this is the owner, and holds the lock.
        self.nursery.wait_group.with(|_| unsafe { self.pool.own_locked(|_| ()) });
    }

    /// As `NurseryCore::put_own`.
    fn put_own(&self) {
        let Nursery { wait_group, hunger } = &self.nursery;
        // SAFETY: as in `starve`.
        let put = |pool: &mut UnsafeCell<u32>| pool.with_mut(|amount| unsafe { *amount += 1 });
        // SAFETY: the thread that calls this is the owner.
        match unsafe { self.pool.try_own(put) } {
            Some(()) => hunger.owner_gave(wait_group),
            None => wait_group.with(|shared| {
                // SAFETY: the owner, with the lock.
                unsafe { self.pool.own_locked(put) };
                shared.starving.feed();
            }),
        }
    }
}

fn spawn(nursery: &Arc<Nursery>, child: &Listed, policy: Policy) -> thread::JoinHandle<Ended> {
    let (nursery, child) = (nursery.clone(), child.clone());
    thread::spawn(move || nursery.starve(&child, policy))
}

//= OWN:exhaust.told
#[test]
fn a_child_that_starves_learns_that_its_owner_joins_it() {
    model(|| {
        let (nursery, child) = (Arc::new(Nursery::new(1)), Listed(Arc::new(Child::running())));
        let ended = spawn(&nursery, &child, Policy::Park);
        // As `Handle::join`.
        assert_eq!(child.0.join.wait(64), Waiting::Wait);
        nursery.hunger.owner_joins(&nursery.wait_group);
        assert_eq!(ended.join().unwrap(), Ended::Failed);
    });
}

//= OWN:exhaust.told
#[test]
fn a_child_that_starves_learns_that_its_owner_waits_for_all() {
    model(|| {
        let (nursery, child) = (Arc::new(Nursery::new(1)), Listed(Arc::new(Child::running())));
        let ended = spawn(&nursery, &child, Policy::Park);
        nursery.wait_group.with(|shared| shared.starving.owner_awaits(true));
        assert_eq!(ended.join().unwrap(), Ended::Failed);
    });
}

#[test]
fn a_child_that_starves_finds_what_is_given_before_its_owner_waits() {
    model(|| {
        let (nursery, child) = (Arc::new(Nursery::new(1)), Listed(Arc::new(Child::running())));
        let ended = spawn(&nursery, &child, Policy::Park);
        nursery.feed(1);
        assert_eq!(child.0.join.wait(64), Waiting::Wait);
        nursery.hunger.owner_joins(&nursery.wait_group);
        assert_eq!(ended.join().unwrap(), Ended::Fed);
        assert_eq!(nursery.wait_group.with(|shared| shared.pool), 0);
    });
}

#[test]
fn a_child_that_starves_is_woken_by_a_gift() {
    model(|| {
        let (nursery, child) = (Arc::new(Nursery::new(1)), Listed(Arc::new(Child::running())));
        let ended = spawn(&nursery, &child, Policy::Park);
        nursery.feed(1);
        assert_eq!(ended.join().unwrap(), Ended::Fed);
    });
}

#[test]
fn a_child_that_starves_is_woken_by_what_the_owner_puts_back_without_the_lock() {
    model(|| {
        let (owned, child) = (Arc::new(Owned::new(1)), Listed(Arc::new(Child::running())));
        let starving = {
            let (owned, child) = (owned.clone(), child.clone());
            thread::spawn(move || owned.starve(&child))
        };
        owned.take_in_vain();
        owned.put_own();
        starving.join().unwrap();
    });
}

//= OWN:exhaust.told
#[test]
fn a_child_that_is_joined_learns_that_its_sibling_starves_too() {
    model(|| {
        let nursery = Arc::new(Nursery::new(2));
        let children = [(); 2].map(|()| Listed(Arc::new(Child::running())));
        assert_eq!(children[0].0.join.wait(64), Waiting::Wait);
        nursery.hunger.owner_joins(&nursery.wait_group);
        // No owner waits for the sibling, so that it stays in the list until there is budget again.
        let sibling = spawn(&nursery, &children[1], Policy::Refill);
        assert_eq!(nursery.starve(&children[0], Policy::Refill), Ended::Failed);
        nursery.feed(1);
        assert_eq!(sibling.join().unwrap(), Ended::Fed);
    });
}

#[test]
fn the_models_find_hunger_that_nobody_hears_of() {
    finds(&[Mutant::JoinWithoutFence], "hunger::a_child_that_starves_learns_that_its_owner_joins_it");
    finds(&[Mutant::AwaitSilently], "hunger::a_child_that_starves_learns_that_its_owner_waits_for_all");
    finds(&[Mutant::FeedSilently], "hunger::a_child_that_starves_is_woken_by_a_gift");
    finds(
        &[Mutant::GiveSilently],
        "hunger::a_child_that_starves_is_woken_by_what_the_owner_puts_back_without_the_lock",
    );
    finds(
        &[Mutant::LastStarvesSilently],
        "hunger::a_child_that_is_joined_learns_that_its_sibling_starves_too",
    );
}
