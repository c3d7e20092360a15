//! The observers of a simulated machine's CPUs: the digest always, a recorder or a watcher by choice.

use crate::RunError;
use mainspring_abi::Nanos;
use mainspring_driver::FrequentEvent;
use mainspring_record::digest::Digest;
use mainspring_record::file::Recorder;
use mainspring_record::watch::Watch;
use mainspring_sched::flight::{EventRef, FirstHalf, Outcome, Stamp};
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Cpu, Decision, Stop};
use std::hint::cold_path;

/// The digest of a run's decisions, and the other observers.
pub(super) struct Observer<'a> {
    onlooker: Onlooker<'a>,
    pub(super) decisions: u64,
    pub(super) digest: Digest,
    /// What ends the run.
    pub(super) trouble: Option<RunError>,
}

/// Fixed for a run, so that the shortest way knows that there is no other observer.
enum Onlooker<'a> {
    Nobody,
    /// A recorder alone, which takes a frequent event in one piece.
    Recorder(Recorder<'a>),
    /// A watcher, which is shown every event before it happens and every outcome after it, and perhaps a recorder.
    Watch(Box<dyn Watch + 'a>, Option<Recorder<'a>>),
}

impl<'a> Observer<'a> {
    pub(super) fn new(watch: Option<Box<dyn Watch + 'a>>, recorder: Option<Recorder<'a>>) -> Self {
        let onlooker = match (watch, recorder) {
            (Some(watch), recorder) => Onlooker::Watch(watch, recorder),
            (None, Some(recorder)) => Onlooker::Recorder(recorder),
            (None, None) => Onlooker::Nobody,
        };
        Self { onlooker, decisions: 0, digest: Digest::new(), trouble: None }
    }

    /// The watcher and the recorder, to be told that the run is over.
    pub(super) fn take_parts(&mut self) -> (Option<Box<dyn Watch + 'a>>, Option<Recorder<'a>>) {
        match std::mem::replace(&mut self.onlooker, Onlooker::Nobody) {
            Onlooker::Nobody => (None, None),
            Onlooker::Recorder(recorder) => (None, Some(recorder)),
            Onlooker::Watch(watch, recorder) => (Some(watch), recorder),
        }
    }

    fn recorder(&mut self) -> Option<&mut Recorder<'a>> {
        match &mut self.onlooker {
            Onlooker::Recorder(recorder) | Onlooker::Watch(_, Some(recorder)) => Some(recorder),
            Onlooker::Nobody | Onlooker::Watch(_, None) => None,
        }
    }

    fn begin_record(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        if let Some(recorder) = self.recorder()
            && let Err(error) = recorder.begin(now, cpu.id(), event)
        {
            self.trouble.get_or_insert(RunError::Record(error));
        }
    }

    /// Compiled for each kind of event on its own, so that the announcing code need not build it.
    #[inline(never)]
    fn show_event<'e>(&mut self, now: Nanos, cpu: &Cpu, event: impl FnOnce() -> EventRef<'e>) {
        let event = event();
        self.begin_record(now, cpu, event);
        self.let_watch_see_event(now, cpu, event);
    }

    #[inline(never)]
    fn let_watch_see_event(&mut self, now: Nanos, cpu: &Cpu, event: EventRef<'_>) {
        if let Onlooker::Watch(watch, _) = &mut self.onlooker {
            watch.before(now, cpu, event);
        }
    }

    /// Compiled for each kind of outcome on its own, like [`Observer::show_event`].
    #[inline(never)]
    fn show_outcome(&mut self, now: Nanos, cpu: &Cpu, outcome: impl FnOnce() -> Outcome) {
        let outcome = outcome();
        if let Some(recorder) = self.recorder() {
            recorder.finish(outcome);
        }
        if let Onlooker::Watch(watch, _) = &mut self.onlooker
            && let Err(what) = watch.after(now, cpu, outcome)
        {
            self.trouble.get_or_insert(RunError::violation(now, cpu.id().index(), what));
        }
    }

    /// Takes the stop and gives it back: its address would keep it from being spread over registers.
    #[cold]
    #[inline(never)]
    fn show_stop(&mut self, now: Nanos, cpu: &Cpu, stop: Stop) -> Stop {
        self.show_event(now, cpu, || EventRef::Resched(&stop));
        stop
    }

    /// Records and concludes a frequent event that was not recorded in one piece.
    #[cold]
    #[inline(never)]
    fn show_frequent(&mut self, now: Nanos, cpu: &Cpu, frequent: FrequentEvent<'_>) {
        self.begin_record(now, cpu, frequent.event());
        self.show_outcome(now, cpu, || frequent.outcome());
    }
}

impl mainspring_driver::Observer for Observer<'_> {
    type Half = Option<FirstHalf>;

    #[inline(always)]
    fn before<'e>(&mut self, now: Nanos, cpu: &Cpu, event: impl FnOnce() -> EventRef<'e>) {
        if !matches!(self.onlooker, Onlooker::Nobody) {
            self.show_event(now, cpu, event);
        }
    }

    #[inline(always)]
    fn after(&mut self, now: Nanos, cpu: &Cpu, outcome: impl FnOnce() -> Outcome) {
        if !matches!(self.onlooker, Onlooker::Nobody) {
            self.show_outcome(now, cpu, outcome);
        }
    }

    #[inline(always)]
    fn before_decision(&mut self, now: Nanos, cpu: &Cpu, stop: Stop) -> (Stop, Option<FirstHalf>) {
        let half = match &mut self.onlooker {
            Onlooker::Recorder(recorder) => recorder.stop(Stamp { cpu: cpu.id(), now }, &stop),
            Onlooker::Nobody | Onlooker::Watch(..) => None,
        };
        match (half, &self.onlooker) {
            (Some(_), _) | (None, Onlooker::Nobody) => (stop, half),
            (None, _) => (self.show_stop(now, cpu, stop), None),
        }
    }

    #[inline(always)]
    fn after_decision(&mut self, now: Nanos, cpu: &Cpu, half: Option<FirstHalf>, decision: Decision) {
        let thread = match decision {
            Decision::Run(run) => Some(run.thread.index()),
            Decision::Idle => None,
        };
        self.decisions += 1;
        self.digest.decision(now.get(), cpu.id().index(), thread);
        let recorded = match &mut self.onlooker {
            Onlooker::Nobody => true,
            Onlooker::Recorder(recorder) => {
                let place = Stamp { cpu: cpu.id(), now };
                half.and_then(|half| recorder.decision(half, place, &decision)).is_some()
            }
            Onlooker::Watch(..) => {
                cold_path();
                false
            }
        };
        if !recorded {
            self.show_outcome(now, cpu, || decision.into());
        }
    }

    #[inline(always)]
    fn before_frequent<'e>(&mut self, now: Nanos, cpu: &Cpu, event: impl FnOnce() -> EventRef<'e>) {
        if unlikely(matches!(self.onlooker, Onlooker::Watch(..))) {
            self.let_watch_see_event(now, cpu, event());
        }
    }

    #[inline(always)]
    fn after_frequent(&mut self, now: Nanos, cpu: &Cpu, frequent: FrequentEvent<'_>) {
        let recorded = match &mut self.onlooker {
            Onlooker::Nobody => true,
            Onlooker::Recorder(recorder) => {
                let place = Stamp { cpu: cpu.id(), now };
                match frequent {
                    FrequentEvent::Timer(outcome) => recorder.timer(place, outcome),
                    FrequentEvent::Expired(expired) => recorder.expired(place, expired),
                    FrequentEvent::Idle(conditions, tick) => recorder.idle(place, conditions, tick),
                }
                .is_some()
            }
            Onlooker::Watch(..) => {
                cold_path();
                false
            }
        };
        if !recorded {
            self.show_frequent(now, cpu, frequent);
        }
    }
}
