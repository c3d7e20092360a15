//! Calls that lend the caller's context to the server, and bring it back on every end.
//!
//! Conserved: a thread that waits for a call with a context has a [`Call`] here until the call is over. Only while it has one can
//! its context be lent, and the context is back, or gone for good, before the thread can be woken. A loan is made by the thread
//! that has the right to run the server: the server itself, or its waker, so the server is asleep or runs the loan's own code.

use super::FairTasks;
use super::contexts::Aftermath;
use crate::protocol::prim::Ordering;
use mainspring_abi::{ContextRef, Nanos, ThreadRef};
use mainspring_driver::contexts::{CallEnd, Lent, NoLoan};
use mainspring_driver::{Machine as _, placement};
use mainspring_sched::{Seat, State, WaitKind};

/// A call that a thread with a context waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRef {
    caller: ThreadRef,
    number: u64,
}

/// What is known of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    number: u64,
    /// When its caller waits no longer.
    due: Nanos,
    /// On what it is served.
    loan: Loan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loan {
    /// Nobody serves it yet.
    None,
    /// This thread has the caller's context.
    To(ThreadRef),
    /// The chain of donations does not allow it.
    Refused,
}

/// What a thread that sleeps is woken for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    /// To serve a call, on the caller's context.
    Serve(CallRef),
    /// To be bound to a context.
    Bind(ContextRef),
}

/// On what a server serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// On the caller's context.
    OnLoan,
    /// On what it has itself.
    OnItsOwn,
    /// The server has to stop, and come over to the worker of the context: [`FairTasks::send_on_errand`].
    Elsewhere,
    /// Not at all: the chain of donations is too long, or a circle.
    Refused,
}

impl FairTasks {
    /// `thread` sleeps on its core and waits for a call, and its wait is not committed yet. If it has a context, the call can be
    /// served on that; which call it is then.
    pub fn begin_call(&self, thread: usize, due: Nanos) -> Option<CallRef> {
        let mut table = self.table()?;
        let caller = self.name(thread);
        let entry = &self.threads[thread];
        let lends = {
            let core = self.cores[entry.core.load(Ordering::Relaxed)].lock();
            let seat = Seat::from_parts(entry.slot.load(Ordering::Relaxed), caller);
            // One that is given a context in the last moment, and runs, lends nothing.
            let asleep = matches!(core.cpu.state(seat), Ok(State::Asleep(_)));
            asleep && core.cpu.entity(seat).is_ok_and(|entity| entity.context().is_some())
        };
        if !lends {
            return None;
        }
        table.last_call += 1;
        let number = table.last_call;
        table.calls[thread] = Some(Call { number, due, loan: Loan::None });
        // Before the wait is committed: the waker of the thread sees it.
        entry.by_table.store(true, Ordering::Relaxed);
        Some(CallRef { caller, number })
    }

    /// The thread that runs on `here` begins to serve a call.
    pub fn serve_call(&self, call: CallRef, thread: usize, here: usize, now: Nanos) -> (Service, Aftermath) {
        let server = self.name(thread);
        let served = self.with_table(Some(here), now, |table, machine| {
            // It runs, so nobody wakes it on an errand any more.
            table.errands[thread] = None;
            self.threads[thread].by_table.store(false, Ordering::Relaxed);
            let loan = match table.call_mut(call) {
                // Its caller waits no longer.
                None => return Service::OnItsOwn,
                Some(known) => known.loan,
            };
            match loan {
                Loan::To(to) if to == server => return Service::OnLoan,
                Loan::Refused => return Service::Refused,
                Loan::None | Loan::To(_) => {}
            }
            match table.contexts.lend(machine, call.caller, server) {
                Ok(_) => {
                    if let Some(known) = table.call_mut(call) {
                        known.loan = Loan::To(server);
                    }
                    Service::OnLoan
                }
                Err(NoLoan::Elsewhere(_)) => Service::Elsewhere,
                Err(refused) if refused.refuses_call() => Service::Refused,
                Err(_) => Service::OnItsOwn,
            }
        });
        served.unwrap_or((Service::OnItsOwn, Aftermath::default()))
    }

    /// `thread` sleeps, and is about to be woken to serve `call`: its waker lends it the caller's context.
    pub fn send_on_errand(&self, thread: usize, call: CallRef) {
        if let Some(mut table) = self.table() {
            table.errands[thread] = Some(Errand::Serve(call));
            // Before the wake: the waker sees it.
            self.threads[thread].by_table.store(true, Ordering::Relaxed);
        }
    }

    /// A call is over: its caller has its context back, or the context is gone. Nothing happens if it was over before.
    pub fn end_call(&self, call: CallRef, end: CallEnd, now: Nanos) -> Aftermath {
        let ended = self.with_table(None, now, |table, machine| {
            if table.call_mut(call).is_some() {
                table.calls[call.caller.index() as usize] = None;
                let _loan = table.contexts.end_call(machine, call.caller, end);
            }
        });
        ended.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// Whether `thread` is woken by [`FairTasks::wake_by_table`].
    pub fn is_woken_by_table(&self, thread: usize) -> bool {
        // Relaxed: who has the right to wake the thread has seen what was written before that right was given.
        self.threads[thread].by_table.load(Ordering::Relaxed) || self.is_heir(thread)
    }

    /// As [`FairTasks::wake`] or, with `hand_off`, [`FairTasks::hand_off`], of a thread that waits for a call on its context or is
    /// to serve one: the context that it has lent comes back first, and the context that it serves on is lent to it.
    pub fn wake_by_table(&self, thread: usize, here: Option<usize>, hand_off: bool, now: Nanos) -> Aftermath {
        let name = self.name(thread);
        let woken = self.with_table(here, now, |table, machine| {
            self.threads[thread].by_table.store(false, Ordering::Relaxed);
            if let Some(call) = table.calls[thread].take() {
                let end = if now >= call.due { CallEnd::TimedOut } else { CallEnd::Cancelled };
                let _loan = table.contexts.end_call(machine, name, end);
            }
            let errand = table.errands[thread].take();
            if errand.is_none() && self.inherit(table, machine, thread) {
                return;
            }
            if let Some(Errand::Bind(who)) = errand {
                let (who, before) = (table.name(who), machine.home(name));
                // The thread looks whether it has it.
                let _bound = table.contexts.bind(machine, who, name);
                if machine.home(name) != before {
                    // It has come over, and is ready there.
                    return;
                }
            }
            if let Some(Errand::Serve(call)) = errand
                && table.call_mut(call).is_some()
            {
                let lent = table.contexts.lend(machine, call.caller, name);
                let loan = match &lent {
                    Ok(_) => Loan::To(name),
                    Err(refused) if refused.refuses_call() => Loan::Refused,
                    Err(_) => Loan::None,
                };
                if let Some(known) = table.call_mut(call).filter(|known| known.loan == Loan::None) {
                    known.loan = loan;
                }
                // It has come over to the worker of the context, and is ready there.
                if matches!(lent, Ok(Lent::Ready(_) | Lent::InFlight(_))) {
                    return;
                }
            }
            let woken =
                if hand_off { placement::hand_over(machine, name) } else { placement::wake(machine, name) };
            self.requeue_unless(woken, thread, now);
        });
        woken.map_or_else(Aftermath::default, |((), aftermath)| aftermath)
    }

    /// As [`FairTasks::stop`] of a thread that waits, but the next one is chosen afterwards.
    pub fn stop_before_choice(&self, worker: usize, kind: WaitKind, now: Nanos) {
        self.cores[worker].with(|core| core.at(now).block_current(kind, None));
    }
}

impl super::contexts::Table {
    fn call_mut(&mut self, call: CallRef) -> Option<&mut Call> {
        self.calls[call.caller.index() as usize].as_mut().filter(|known| known.number == call.number)
    }
}
