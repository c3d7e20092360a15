//! Who watches, and what each of them has been told.
//!
//! Conserved: there are at most [`WATCHERS`] of each kind, and for each at most [`KEPT`] messages are kept beside those that it is first
//! told. One whose messages are not read loses its stream. While nobody watches, the runtime is not looked at, and nothing is kept. Watchers
//! are told on ticks alone, and no more than [`WATCHERS`] may begin between two of them: no client can have more work done by asking
//! more often, or fill what is kept for another.

use crate::histogram;
use crate::proto::{self, News};
use console_api::instrument::{State, Temporality, Update};
use console_api::tasks::TaskDetails;
use console_api::tasks::task_details::PollTimesHistogram;
use mainspring::TaskId;
use mainspring::observe::{Observation, ObservedTask, Observer};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many may watch the updates, the state and the details of tasks, each.
pub(crate) const WATCHERS: usize = 8;
/// Messages that are kept for a watcher that does not read.
pub(crate) const KEPT: usize = 8;

/// Why somebody may not watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Others do already.
    TooMany,
    /// Too many have begun since the last tick.
    TooOften,
    /// There is no such task, or it ended long ago.
    NoSuchTask,
}

/// Tells those who watch.
pub(crate) struct Publisher {
    observer: Observer,
    /// What the watchers of updates know.
    told: HashMap<TaskId, ObservedTask>,
    told_missed: u64,
    updates: Vec<Sender<Arc<Update>>>,
    states: Vec<Sender<State>>,
    details: Vec<(TaskId, Sender<TaskDetails>)>,
    temporality: Temporality,
    /// Those who have begun to watch since the last tick.
    begun: usize,
}

impl Publisher {
    pub(crate) fn new(observer: Observer) -> Self {
        Self {
            observer,
            told: HashMap::new(),
            told_missed: 0,
            updates: Vec::new(),
            states: Vec::new(),
            details: Vec::new(),
            temporality: Temporality::Live,
            begun: 0,
        }
    }

    /// It is time to tell.
    pub(crate) fn tick(&mut self) {
        self.begun = 0;
        self.forget_those_who_left();
        self.tell_state();
        if self.temporality == Temporality::Paused {
            return;
        }
        if !self.updates.is_empty() {
            let seen = self.observer.tasks();
            self.tell_updates(&seen);
        }
        let mut details = std::mem::take(&mut self.details);
        details.retain(|(task, watcher)| {
            self.details_of(*task).is_some_and(|details| watcher.try_send(details).is_ok())
        });
        self.details = details;
    }

    fn forget_those_who_left(&mut self) {
        self.updates.retain(|watcher| !watcher.is_closed());
        self.states.retain(|watcher| !watcher.is_closed());
        self.details.retain(|(_, watcher)| !watcher.is_closed());
        if self.updates.is_empty() {
            self.told = HashMap::new();
        }
    }

    /// Tells what has changed.
    fn tell_updates(&mut self, seen: &Observation) {
        let told = &self.told;
        let news = seen.tasks.iter().filter_map(|task| match told.get(&task.id) {
            Some(known) if known == task => None,
            known => Some(News { task, is_new: known.is_none() }),
        });
        let missed = seen.missed.saturating_sub(self.told_missed);
        let updates = proto::updates(self.observer.began(), seen.now, news, missed, false);
        let updates: Vec<Arc<Update>> = updates.into_iter().map(Arc::new).collect();
        self.updates.retain(|watcher| updates.iter().all(|update| watcher.try_send(update.clone()).is_ok()));
        self.note_told(seen);
    }

    fn note_told(&mut self, seen: &Observation) {
        self.told = seen.tasks.iter().map(|task| (task.id, task.clone())).collect();
        self.told_missed = seen.missed;
    }

    /// One more begins to watch, if there is room beside those that `count` counts.
    fn begin(&mut self, count: impl FnOnce(&Self) -> usize) -> Result<(), Refused> {
        self.forget_those_who_left();
        if count(self) >= WATCHERS {
            return Err(Refused::TooMany);
        }
        if self.begun >= WATCHERS {
            return Err(Refused::TooOften);
        }
        self.begun += 1;
        Ok(())
    }

    /// A new watcher is told of all tasks, and then of what has changed.
    pub(crate) fn watch_updates(&mut self) -> Result<Receiver<Arc<Update>>, Refused> {
        self.begin(|publisher| publisher.updates.len())?;
        let seen = self.observer.tasks();
        // Beside others it is told again of what they do not know yet: a client replaces what it knows.
        if self.updates.is_empty() {
            self.note_told(&seen);
        }
        let all = seen.tasks.iter().map(|task| News { task, is_new: true });
        let updates = proto::updates(self.observer.began(), seen.now, all, seen.missed, true);
        let (watcher, watched) = channel(updates.len() + KEPT);
        for update in updates {
            watcher.try_send(Arc::new(update)).expect("there is room for all of them");
        }
        self.updates.push(watcher);
        Ok(watched)
    }

    /// A new watcher of one task is told of it at once.
    pub(crate) fn watch_details(&mut self, task: TaskId) -> Result<Receiver<TaskDetails>, Refused> {
        self.begin(|publisher| publisher.details.len())?;
        let details = self.details_of(task).ok_or(Refused::NoSuchTask)?;
        let (watcher, watched) = channel(KEPT);
        watcher.try_send(details).expect("it is empty");
        self.details.push((task, watcher));
        Ok(watched)
    }

    fn details_of(&self, task: TaskId) -> Option<TaskDetails> {
        let times = self.observer.times(task)?;
        let now = self.observer.now();
        Some(TaskDetails {
            task_id: Some(console_api::Id { id: task.0 }),
            now: Some(proto::time(self.observer.began(), now)),
            poll_times_histogram: histogram::of(&times.polls).map(PollTimesHistogram::Histogram),
            scheduled_times_histogram: histogram::of(&times.scheduled),
        })
    }

    /// A new watcher of the state is told at once.
    pub(crate) fn watch_state(&mut self) -> Result<Receiver<State>, Refused> {
        self.begin(|publisher| publisher.states.len())?;
        let (watcher, watched) = channel(KEPT);
        watcher.try_send(self.state()).expect("it is empty");
        self.states.push(watcher);
        Ok(watched)
    }

    /// Pauses what all are told of tasks, or goes on with it.
    pub(crate) fn set_temporality(&mut self, temporality: Temporality) {
        self.temporality = temporality;
    }

    fn state(&self) -> State {
        State { temporality: self.temporality.into() }
    }

    fn tell_state(&mut self) {
        let state = self.state();
        for watcher in &self.states {
            // One that is full or gone misses nothing: the next tick tells the same or what is newer.
            let _ = watcher.try_send(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring::observe::USUAL_TASKS;
    use mainspring::{Config, Profile};

    fn publisher() -> Publisher {
        let config = Config::new(Profile::Service).workers(1).observe_tasks(USUAL_TASKS);
        let runtime = config.build().expect("a runtime");
        Publisher::new(Observer::of(&runtime).expect("it is observed"))
    }

    #[test]
    fn one_that_does_not_read_has_what_is_kept_and_then_no_more() {
        let mut publisher = publisher();
        let mut unread = publisher.watch_updates().expect("there is room");
        (0..10 * KEPT).for_each(|_| publisher.tick());
        assert!(publisher.updates.is_empty() && publisher.told.is_empty());
        let mut kept = 0;
        while unread.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, 1 + KEPT);
    }

    #[test]
    fn those_who_begin_and_leave_again_and_again_are_put_off_until_the_next_tick() {
        let mut publisher = publisher();
        for _ in 0..3 {
            (0..WATCHERS).for_each(|_| drop(publisher.watch_updates().expect("there is room")));
            assert_eq!(publisher.watch_updates().err(), Some(Refused::TooOften));
            assert_eq!(publisher.watch_state().err(), Some(Refused::TooOften));
            publisher.tick();
        }
    }

    #[test]
    fn one_who_begins_fills_nothing_that_is_kept_for_others() {
        let mut publisher = publisher();
        let first = publisher.watch_updates().expect("there is room");
        let room = publisher.updates[0].capacity();
        (1..WATCHERS).for_each(|_| drop(publisher.watch_updates().expect("there is room")));
        assert_eq!(publisher.updates[0].capacity(), room);
        drop(first);
    }
}
