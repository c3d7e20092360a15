//! Work that grows with what a program asks for, done in pieces.
//!
//! A method that may take long answers with a [`Job`]. The thread that asked keeps it, and does it one bounded piece at a time
//! before it goes on: on its own CPU time, with interrupts taken between the pieces, and with others running meanwhile if they
//! are due ([`crate::sched::stretch`]). So is the end of a thread: the last one of a process takes its address space apart.
//!
//! Conserved: a thread has at most one piece of work, and does not go on in user mode before it is done. Each piece leaves
//! everything as the next one, or the end of the process, can find it.

use super::memory::{ObjectJob, PageJob};
use super::processes::SpawnJob;
use super::serve::{Turn, drain, handle};
use crate::arch::{AddressSpace, cpu};
use crate::devices;
use crate::measure::{self, Stretch};
use crate::object::inbox::{Serving, Waiting, completion};
use crate::object::process::Process;
use crate::object::thread::{self, MAX_THREADS, Thread};
use crate::object::{endpoint, memory};
use crate::sched::visible::{self, Seen};
use crate::sched::{check, contexts, dispatch, sqpoll, wakeup};
use mainspring_abi::kernel;
use mainspring_abi::ring::{CapError, CapSqeV2};
use mainspring_ring::{CqPlace, SqOwner};

/// Entries of page tables that one piece takes apart.
pub(super) const TAKEN_APART: u32 = 2048;
/// Pages of objects that one piece gives back.
const BURIED: u32 = 128;
/// Capabilities that one piece gives up, and threads or callers that one piece tells.
const TOLD: usize = 4;

/// What a piece of work comes to.
pub enum Step {
    /// There is more.
    More,
    /// There is more, but not before other CPUs have done something.
    Wait,
    /// It is done.
    Done(Result<u32, CapError>),
}

/// What a request goes on with.
pub enum Job {
    /// Pages of the address space.
    Pages(PageJob),
    /// An object that is being made.
    Object(ObjectJob),
    /// A process that is being made.
    Spawn(SpawnJob),
}

impl Job {
    fn step(&mut self, process: &'static Process) -> Step {
        measure::stretch_is(match self {
            Self::Pages(_) => Stretch::Pages,
            Self::Object(_) => Stretch::Object,
            Self::Spawn(_) => Stretch::Spawn,
        });
        match self {
            Self::Pages(job) => job.step(process),
            Self::Object(job) => job.step(process),
            Self::Spawn(job) => job.step(),
        }
    }
}

/// What a thread has to do before it goes on.
pub enum Work {
    /// A request, where its completion goes, and what was seen before it.
    Request(CapSqeV2, CqPlace, Job, Seen),
    /// A request that is carried out once more, and where its completion goes.
    Again(CapSqeV2, CqPlace),
    /// To end.
    End(Ending),
}

/// What a piece came to.
pub enum Piece {
    /// There is more.
    More,
    /// There is more, but not before other CPUs have done something.
    Wait,
    /// The thread's inbox says what it does now.
    Over {
        /// It lets others go first.
        yields: bool,
    },
    /// The thread ends now.
    End(i64),
}

/// Does one piece of what `thread`, which runs, has to do.
pub fn work_on(thread: &'static Thread) -> Piece {
    let mut work = thread.work.lock();
    match &mut *work {
        Some(Work::End(ending)) => ending.step(thread),
        _ if thread.is_killed() => {
            // It ends before it goes on.
            thread.inbox.lock().waiting = Waiting::Not;
            Piece::Over { yields: false }
        }
        Some(Work::Request(_, _, job, _)) => match job.step(thread.process()) {
            Step::More => Piece::More,
            Step::Wait => Piece::Wait,
            Step::Done(outcome) => {
                if let Some(Work::Request(request, place, job, seen)) = work.take() {
                    drop(job);
                    if let Err(code) = outcome {
                        seen.refused(thread, code, request);
                    }
                    thread.note_outcome(outcome.is_err());
                    thread.inbox.lock().post(place, &completion(&request, outcome));
                }
                Piece::More
            }
        },
        Some(Work::Again(..)) => {
            let again = work.take();
            drop(work);
            let mut turn = Turn::default();
            if let Some(Work::Again(request, place)) = again {
                handle(thread, &request, place, &mut turn);
            }
            wake_target(&turn);
            Piece::More
        }
        None => {
            drop(work);
            serve_on(thread)
        }
    }
}

/// A thread that has what it waited for is woken: whoever asked has more to do.
fn wake_target(turn: &Turn) {
    if let Some(target) = turn.target {
        visible::others_act();
        wakeup::wake(target);
    }
}

/// The machine ends: address spaces whose threads have not come to the end of them are given back.
pub fn finish_spaces() {
    for thread in (0..MAX_THREADS as u32).map(thread::slot) {
        if let Some(Work::End(ending)) = &mut *thread.work.lock() {
            ending.finish_space();
        }
    }
}

/// A few more requests of the ring of `thread`; or what the entry comes to if that was all.
fn serve_on(thread: &'static Thread) -> Piece {
    let Waiting::Serving(serving) = thread.inbox.lock().waiting else { return Piece::Over { yields: false } };
    let mut turn = Turn::default();
    // One that did not enter by itself has only begun something.
    let drained = match serving.left {
        0 => Ok(()),
        left => drain(thread, SqOwner::Syscall, left, &mut turn),
    };
    wake_target(&turn);
    let mut inbox = thread.inbox.lock();
    let yields = serving.yields || turn.yields;
    if turn.paused {
        let left = serving.left.saturating_sub(turn.handled);
        inbox.waiting = Waiting::Serving(Serving { left, yields, ..serving });
        return Piece::More;
    }
    inbox.waiting = match (serving.wait, drained) {
        (None, _) => Waiting::Not,
        (Some(wait), Err(code)) if code != CapError::Busy || !inbox.unread().is_ok_and(|n| n >= wait.min) => {
            Waiting::Over(kernel::REFUSED | u64::from(code.number()))
        }
        (Some(wait), _) => Waiting::For(wait),
    };
    Piece::Over { yields }
}

/// The end of a thread, and of its process if it is the last one.
pub struct Ending {
    code: i64,
    phase: Phase,
}

enum Phase {
    /// A process that it was making is given up.
    Undo(SpawnJob),
    /// Others of the process are told to end too.
    Tell,
    /// Whether it is the last one.
    Count,
    /// It is, and the others are still ending.
    Last,
    /// Calls that were received from these endpoints on will not be answered.
    Orphans(usize),
    /// Capabilities are given up.
    Caps,
    /// The address space is taken apart, and then dropped.
    Space(AddressSpace),
    /// Objects that nobody holds any more are given back.
    Objects,
}

impl Ending {
    /// `thread`, which runs, is to end with `code`, whatever it was doing.
    pub fn begin(thread: &Thread, code: i64) {
        let mut work = thread.work.lock();
        // What it was doing is given up. The end of the process finds what is left of it in the process; another process that
        // it was making is undone first.
        let phase = match work.take() {
            Some(Work::End(ending)) => return *work = Some(Work::End(ending)),
            Some(Work::Request(_, _, Job::Spawn(job), _)) => Phase::Undo(job),
            Some(Work::Request(..) | Work::Again(..)) | None => Phase::Tell,
        };
        *work = Some(Work::End(Self { code, phase }));
    }

    /// Takes the rest of an address space apart that this end has in its hands.
    fn finish_space(&mut self) {
        if let Phase::Space(space) = &mut self.phase {
            while !space.take_apart(TAKEN_APART) {}
            self.phase = Phase::Objects;
        }
    }

    fn step(&mut self, thread: &'static Thread) -> Piece {
        measure::stretch_is(Stretch::End);
        let process = thread.process();
        match &mut self.phase {
            Phase::Undo(job) => {
                if job.undo() {
                    self.phase = Phase::Tell;
                }
            }
            Phase::Tell => {
                if !sqpoll::let_go(thread) {
                    return Piece::Wait;
                }
                if !dispatch::kill_some(process) {
                    self.phase = Phase::Count;
                }
            }
            Phase::Count => {
                if !process.leaves(self.code) {
                    return Piece::End(self.code);
                }
                self.phase = Phase::Last;
            }
            Phase::Last => {
                // A thread that has ended has let go of the page tables.
                if process.state.lock().live > 1 {
                    return Piece::Wait;
                }
                devices::driver_ends(process);
                self.phase = Phase::Orphans(0);
            }
            Phase::Orphans(number) => {
                let Some(at) = endpoint::all().nth(*number) else {
                    self.phase = Phase::Caps;
                    return Piece::More;
                };
                for _ in 0..TOLD {
                    let orphan = at.lock().take_orphan(process.index());
                    let Some(caller) = orphan else {
                        *number += 1;
                        break;
                    };
                    wakeup::finish(caller, Err(CapError::PeerGone));
                }
            }
            Phase::Caps => {
                if !give_up_caps(process) {
                    contexts::process_ended(process);
                    // A CPU where one of the threads slept or was preempted, and which has not gone over to other tables yet, has
                    // these loaded. It goes over before it does anything else, and nobody loads these again but this thread.
                    if process.is_loaded_beyond(cpu::index()) {
                        return Piece::Wait;
                    }
                    dispatch::leave_space(thread);
                    let space = process.space.lock().take();
                    check::taking_apart(space.as_ref());
                    self.phase = space.map_or(Phase::Objects, Phase::Space);
                }
            }
            Phase::Space(space) => {
                if space.take_apart(TAKEN_APART) {
                    self.phase = Phase::Objects;
                }
            }
            Phase::Objects => {
                if !memory::bury(BURIED) {
                    // A piece of an object may be in the hands of another CPU, which puts the rest back.
                    return if memory::has_ended() { Piece::Wait } else { Piece::End(self.code) };
                }
            }
        }
        Piece::More
    }
}

/// Gives up some capabilities of `process`; whether there may be others.
pub(super) fn give_up_caps(process: &Process) -> bool {
    for _ in 0..TOLD {
        let object = process.state.lock().caps.pop();
        if object.is_none() {
            return false;
        }
        // Dropped with the table unlocked.
    }
    true
}
