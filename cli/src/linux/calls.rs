//! The steps of a player that call and serve: what a call says of its timing, and on what it is served.

use super::endpoint::Answer;
use super::player::{Player, count, nanos, now};
use super::stage::duration;
use mainspring::endpoint::{Reply, Request};
use mainspring::{CallError, CallRefusal, Cx, Parker, Refusal};
use mainspring_abi::Nanos;
use mainspring_abi::request::{AtDispatch, Budget, Previous, Verdict, at_completion, at_dispatch};
use mainspring_abi::ring::CompletionStatus;
use mainspring_workload::Call;
use std::time::Duration;

/// A call that a player has taken.
pub struct Serving {
    pub reply: Reply<Request, Answer>,
    pub timing: Request,
    /// The endpoint's own context, which it serves on.
    pub context: Option<usize>,
}

impl Player<'_, '_> {
    fn judge(&self, endpoint: usize, timing: &Request, now: Nanos, budget: Budget) -> Verdict {
        let method = self.stage.workload.endpoints[endpoint].method();
        at_dispatch(timing, &AtDispatch { now, method, budget, previous: Previous::Completed })
    }

    pub fn call(&mut self, cx: &Cx, call: &Call, timeout: Option<Duration>) {
        let made = now(cx);
        let timing = call.timing(made, self.serving.last().map(|served| &served.timing));
        let left = call.needs.and_then(|_| cx.context()).map(|context| nanos(context.remaining));
        let dry = call.needs.zip(left).is_some_and(|(needs, left)| left < needs);
        let budget = if dry { Budget::Depleted } else { Budget::Available };
        if let Verdict::Refuse(..) = self.judge(call.endpoint, &timing, made, budget) {
            return self.stage.refuse(self.number);
        }
        let dropped_at = timing.dropped_at();
        let timeout = timeout.into_iter().chain(dropped_at.map(|at| duration(at - made))).min();
        let Ok(_permit) = self.permit(timeout) else { return };
        let endpoint = &self.stage.endpoints[call.endpoint];
        endpoint.note_call();
        let answer = match timeout {
            Some(timeout) => endpoint.calls.call_timeout(cx, timing, timeout),
            None => endpoint.calls.call(cx, timing),
        };
        let ended = now(cx);
        if answer.is_err() && ended >= self.stage.workload.machine.duration {
            // The end of the run took the server away: the call is unanswered, and did not fail.
            return;
        }
        endpoint.note_end(made, ended, matches!(answer, Ok(Answer::Reply)));
        let me = self.me();
        match answer {
            Ok(Answer::Reply) => {
                if at_completion(&timing, ended, false) == CompletionStatus::CompletedLate {
                    count(&me.late);
                }
            }
            // No server had it when its deadline passed.
            Err(CallError { why: CallRefusal::TimedOut, request: Some(_) })
                if dropped_at.is_some_and(|at| ended >= at) =>
            {
                count(&me.dropped);
            }
            Err(CallError { why: CallRefusal::TimedOut, .. }) => count(&me.timeouts),
            Err(CallError { why: CallRefusal::Chain, .. }) => self.stage.refuse(self.number),
            Ok(Answer::Late) => {
                count(&me.dropped);
                count(&me.failures);
            }
            Ok(Answer::Failure) | Err(_) => count(&me.failures),
        }
    }

    pub fn receive(&mut self, cx: &Cx, endpoint: usize, timeout: Option<Duration>) {
        // A server that goes on to the next request without an answer to the last has failed it, if it serves on a loan.
        if let Some(Serving { context, .. }) =
            self.serving.pop_if(|last| last.reply.is_on_loan() || last.context.is_some())
        {
            self.give_back(cx, context);
        }
        let calls = &self.stage.endpoints[endpoint].calls;
        let until = timeout.map(|timeout| cx.now() + timeout);
        loop {
            let received = {
                let Ok(_permit) = self.permit(timeout) else { return };
                match until {
                    Some(until) => calls.receive_timeout(cx, until.saturating_sub(cx.now())),
                    None => calls.receive(cx),
                }
            };
            match received {
                Ok((timing, reply)) => {
                    if let Verdict::Refuse(..) = self.judge(endpoint, &timing, now(cx), Budget::Available) {
                        reply.send(cx, Answer::Late);
                        continue;
                    }
                    let context = self.borrow_from(cx, endpoint);
                    self.serving.push(Serving { reply, timing, context });
                }
                Err(Refusal::TimedOut) => self.count_timeout(false),
                // Told of something else than a call.
                Err(Refusal::Interrupted) => {}
                // No thread will call any more.
                Err(_) => _ = Parker::default().park(cx, None),
            }
            return;
        }
    }

    /// The endpoint's own context, if it has one that is free and the player has none: bound to the player.
    fn borrow_from(&mut self, cx: &Cx, endpoint: usize) -> Option<usize> {
        let target = self.stage.workload.endpoints[endpoint].context?;
        let context = self.stage.contexts.named(target).start;
        let free = cx.context().is_none() && !self.is_bound();
        (free && self.stage.contexts.get(context)?.bind(cx).is_ok()).then_some(context)
    }

    /// Gives the context of an endpoint back.
    fn give_back(&mut self, cx: &Cx, context: Option<usize>) {
        if let Some(context) = context.and_then(|context| self.stage.contexts.get(context)) {
            // One that was revoked meanwhile is gone.
            let _unbound = context.unbind(cx);
        }
    }

    pub fn answer(&mut self, cx: &Cx, how: Answer) {
        if let Some(Serving { reply, context, .. }) = self.serving.pop() {
            self.give_back(cx, context);
            reply.send(cx, how);
        }
    }
}
