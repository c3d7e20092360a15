//! What a worker does on its own stack: find work elsewhere, or sleep until there is some.
#![allow(unsafe_code)]

use super::back_off::BackOff;
use super::finish::Lost;
use super::{Back, Worker, set_current};
use crate::event_loop;
use crate::fork::{is_job, task_of};
use crate::io::readiness::Attendant;
use crate::protocol::deque::Steal;
use crate::protocol::sleep::{Depth, Searching, Woke};
use crate::task::{Runnable, TaskPtr};
use std::time::Duration;

/// Looks for work before the first sleep, about ten microseconds: to fall asleep and to be woken takes longer, and disturbs
/// workers that run.
const LOOKS: u32 = 64;
/// So many times at most a worker does without, when it was in vain before.
const MOST_LEFT_OUT: u32 = 63;
/// How long busy workers do not look at sockets after one of them has. What comes meanwhile is found together: that costs one question,
/// and the tasks that it wakes run one after the other.
const LOOK_OUTSIDE_NS: u64 = 250_000;
/// How long a busy worker does not give its event loop a turn after one.
const TURN_OUTSIDE_NS: u64 = 50_000;
/// How many tasks one successful steal takes at most.
const STEAL_BATCH: usize = 32;

impl Worker {
    /// Runs tasks until the runtime shuts down.
    pub(crate) fn run(&self) {
        set_current(self);
        if self.is_spare {
            self.wait_to_be_called();
        }
        while let Some(task) = self.next_anywhere() {
            self.run_one(task);
        }
        set_current(std::ptr::null());
    }

    /// Runs `task`, and what follows it here.
    pub(crate) fn run_one(&self, task: Runnable) {
        match self.enter(task) {
            Back::Idle => {}
            Back::Overflow => self.lose(Lost::Overflow),
            Back::Kill => {
                self.lose(Lost::WorkerPanic);
                // As a fault in the scheduler would end it. The thread goes on with the worker: tasks that have started here
                // must not change threads.
                std::panic::resume_unwind(Box::new("the worker was killed"));
            }
        }
    }

    /// The current task cannot go on: another stack ends it.
    fn lose(&self, how: Lost) {
        self.report_tally();
        let task = TaskPtr::from_raw(self.current.replace(std::ptr::null())).expect("it was running");
        task.set_lost(how);
        match self.abandoned_context(task) {
            Some(context) => {
                task.sp.set(context);
                task.state.step(crate::task::state::Event::Yield);
                // SAFETY: this runs on the worker's own stack, and the task goes on on one that is new.
                self.push_woken(unsafe { Runnable::left(task) });
            }
            None => {
                // Its children may borrow from the lost frames, and there is no stack to wait for them on.
                eprintln!("mainspring: no stack is left to end a task that overflowed its own");
                std::process::abort();
            }
        }
    }

    /// Own queues, the global queue, the others' queues; then sleep. `None` when the runtime shuts down.
    fn next_anywhere(&self) -> Option<Runnable> {
        if self.owes_turn.get() {
            self.give_turn();
        }
        let mut found = self.next_local().or_else(|| self.next_global());
        if found.is_none() && self.event_loop().is_some() {
            // What tasks have handed to the loop does not wait until the worker has settled down to sleep.
            self.give_turn();
            found = self.next_local().or_else(|| self.next_global());
        }
        if found.is_some() {
            return found;
        }
        let rt = self.rt();
        let mut searching = rt.idle_workers.search();
        let mut back_off = BackOff::new();
        loop {
            rt.tend_timers();
            let found = self.next_local().or_else(|| self.next_global()).or_else(|| self.steal_round());
            if let Some(task) = found {
                rt.idle_workers.found(searching);
                return Some(task);
            }
            if rt.idle_workers.is_closed() {
                return None;
            }
            if self.may_retire() {
                rt.idle_workers.found(searching);
                self.wait_to_be_called();
                searching = rt.idle_workers.search();
                back_off = BackOff::new();
                continue;
            }
            // What comes from outside is not seen by looking on.
            let is_outside = rt.io.readiness.is_unattended() || self.event_loop().is_some();
            if back_off.is_fresh() && !is_outside && self.looks_on() {
                continue;
            }
            let kept = rt.timers.earliest.keep(self.index);
            let timer = kept.and_then(|deadline_ns| rt.timers.time_until(deadline_ns));
            let refill = self.fall_asleep();
            // What another event loop runs is told of work, so that to doze there would be in vain.
            let doze = back_off.doze().filter(|_| self.event_loop().is_none());
            let until = [timer, refill].into_iter().flatten().min();
            self.give_up_stacks();
            if doze.is_none() {
                self.deque.withdraw();
            }
            self.note_park();
            let attendant = if self.event_loop().is_some() { None } else { rt.io.readiness.attend() };
            let doze = if attendant.is_some() { back_off.doze_outside() } else { doze };
            let woke = self.sleep(searching, attendant, (doze, until), || {
                self.sees_work() || kept.is_some_and(|planned| rt.timers.earliest.is_before(planned))
            });
            self.wake_up();
            if kept.is_some() {
                rt.timers.earliest.resign();
            }
            let is_told = self.tell_sleepers();
            searching = match woke {
                Woke::ForWork(searching) => {
                    back_off = BackOff::new();
                    searching
                }
                Woke::TimedOut(searching) => {
                    back_off.in_vain();
                    searching
                }
                Woke::Outside => {
                    if let Some(task) = self.next_local() {
                        return Some(task);
                    }
                    if !is_told {
                        back_off.outside_in_vain();
                    }
                    rt.idle_workers.search()
                }
                Woke::Closed => return None,
            };
        }
    }

    /// Sleeps at its own bell, or outside if it attends to that, or in the event loop that it drives. For as long as it dozes, and not
    /// beyond `until`.
    fn sleep(
        &self,
        searching: Searching,
        attendant: Option<Attendant<'_>>,
        (doze, until): (Option<Duration>, Option<Duration>),
        last_look: impl FnOnce() -> bool,
    ) -> Woke {
        let (rt, readiness) = (self.rt(), &self.rt().io.readiness);
        let depth = if doze.is_some() { Depth::Doze } else { Depth::Sleep };
        let timeout = [doze, until].into_iter().flatten().min();
        if let Some(event_loop) = self.event_loop() {
            self.owes_turn.set(false);
            let wait = || event_loop::wait_in(&**event_loop, self, timeout);
            return rt.idle_workers.sleep_outside(self.index, searching, depth, wait, last_look);
        }
        let Some(attendant) = attendant else {
            let last_look = || last_look() || readiness.is_unattended() || self.event_loop().is_some();
            return rt.idle_workers.sleep(self.index, searching, (depth, timeout), last_look);
        };
        let mut events = self.events.take();
        let wait = || attendant.wait(&mut events, timeout);
        let woke = rt.idle_workers.sleep_outside(self.index, searching, depth, wait, last_look);
        self.events.set(events);
        woke
    }

    /// Wakes those that waited for what the kernel told while the worker slept. Whether it told anything.
    fn tell_sleepers(&self) -> bool {
        // Not borrowed: what is woken may be the program's own code, which may give way here.
        let mut events = self.events.take();
        let is_told = !events.is_empty();
        self.rt().io.readiness.tell(&mut events, self.rt().timers.now_ns());
        events.clear();
        self.events.set(events);
        is_told
    }

    /// The event loop does what is to be done.
    fn give_turn(&self) {
        self.owes_turn.set(false);
        if let Some(event_loop) = self.event_loop() {
            event_loop::wait_in(&**event_loop, self, Some(Duration::ZERO));
        }
    }

    /// A look outside, if the last one of any worker was some time ago. Another event loop has its turn when the worker is on its own
    /// stack.
    #[inline]
    pub(super) fn look_outside(&self, now_ns: u64) {
        if self.event_loop().is_some() && now_ns >= self.next_turn_ns.get() {
            self.next_turn_ns.set(now_ns + TURN_OUTSIDE_NS);
            self.owes_turn.set(true);
            self.picks_left.disturb();
        }
        let readiness = &self.rt().io.readiness;
        if readiness.is_look_due(now_ns, LOOK_OUTSIDE_NS) {
            // Not borrowed: see `tell_sleepers`.
            let mut events = self.events.take();
            readiness.look(&mut events, now_ns);
            events.clear();
            self.events.set(events);
        }
    }

    /// Whether this is a spare worker that is not needed: no task overstays, and none that started here lives. What may move is
    /// elsewhere by now, since nothing was found here.
    fn may_retire(&self) -> bool {
        let rt = self.rt();
        self.is_spare
            && !rt.monitored.is_any_kept()
            && (self.started.get() == 0 || rt.config.migrates_started_tasks)
    }

    /// A spare worker steals nothing until it is called.
    fn wait_to_be_called(&self) {
        let share = self.my_share();
        share.set_steal_enabled(false);
        self.deque.withdraw();
        self.rt().monitored.spares.wait();
        share.set_steal_enabled(true);
    }

    /// A task starts here (1) or has ended (-1).
    #[inline(always)]
    pub(crate) fn count_started(&self, by: isize) {
        self.started.set(self.started.get().wrapping_add_signed(by));
    }

    fn next_global(&self) -> Option<Runnable> {
        if self.is_fair() {
            // They come in with the worker's own: see `pick_of_tenants`.
            return if self.rt().global.is_empty() { None } else { self.next_local() };
        }
        while let Some(task) = self.rt().global.pop() {
            if let Some(task) = self.unless_cancelled(task) {
                return Some(task);
            }
        }
        None
    }

    /// One bounded round of attempts, never against itself.
    pub(crate) fn steal_round(&self) -> Option<Runnable> {
        let rt = self.rt();
        let share = &rt.shares[self.index];
        if rt.shares.len() < 2 || !share.may_steal() || self.is_fair() {
            return None;
        }
        let began_ns = rt.timers.now_ns();
        let mut victims = self.victims.borrow_mut();
        for _ in 0..victims.attempts() {
            let victim = victims.next(|worker| rt.shares[worker].stealer.len());
            let stealer = &rt.shares[victim].stealer;
            match stealer.steal(&self.deque) {
                Steal::Taken(word) => {
                    share.stolen(1);
                    share.steal_latency.record(rt.timers.now_ns().saturating_sub(began_ns));
                    rt.on_steal(self.index, victim, word);
                    // The oldest half of a fork tree is most of it; the others are better where they were made.
                    if !is_job(word) {
                        self.take_more(stealer);
                    }
                    let task = task_of(word, self);
                    drop(victims);
                    return self.unless_cancelled(task).or_else(|| self.next_local());
                }
                Steal::Empty | Steal::Lost => share.missed(),
            }
        }
        None
    }

    /// Up to half of what the victim has left comes along, so that the next steal is far.
    fn take_more(&self, stealer: &crate::protocol::deque::Stealer) {
        if self.rt().is_virtual() {
            return;
        }
        for _ in 0..(stealer.len() / 2).min(STEAL_BATCH) {
            match stealer.steal(&self.deque) {
                Steal::Taken(word) => {
                    self.rt().shares[self.index].stolen(1);
                    self.push_newest(word);
                }
                Steal::Empty | Steal::Lost => break,
            }
        }
    }

    /// Looks on for a moment before it dozes, if another worker runs tasks, whose work it could take, and if looking on was not in vain
    /// of late: then what it uses of the CPU is lost to others.
    fn looks_on(&self) -> bool {
        let left_out = self.looks_left_out.get();
        if left_out > 0 {
            self.looks_left_out.set(left_out - 1);
            return false;
        }
        if !self.rt().monitored.watch.is_any_busy() {
            return false;
        }
        let sees = self.sees_work_soon();
        let in_vain = if sees { 0 } else { (2 * self.looks_in_vain.get() + 1).min(MOST_LEFT_OUT) };
        self.looks_in_vain.set(in_vain);
        self.looks_left_out.set(in_vain);
        sees
    }

    /// A few looks in a row.
    fn sees_work_soon(&self) -> bool {
        (0..LOOKS).any(|_| {
            for _ in 0..8 {
                std::hint::spin_loop();
            }
            self.sees_work()
        })
    }

    /// The last look before sleep.
    fn sees_work(&self) -> bool {
        let rt = self.rt();
        let may_steal = rt.shares[self.index].may_steal();
        self.has_mail()
            || self.discipline.tasks().is_some_and(|tasks| tasks.cores().has_work_for(self.index, may_steal))
            || !rt.global.is_empty()
            || (may_steal && rt.shares.iter().any(|share| !share.stealer.is_empty()))
            || rt.timers.is_due()
    }
}

impl Worker {
    /// One look for work, as a virtual worker does: own queues, the global queue, one round of steals.
    pub(crate) fn next_in_turn(&self) -> Option<Runnable> {
        self.next_local().or_else(|| self.next_global()).or_else(|| self.steal_round())
    }
}
