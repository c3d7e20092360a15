//! Calls between tasks: each ends once, its values are dropped once, and a context that was lent is back.

use super::alone;
use super::live;
use super::scope::{OpenNursery, little, with_open_nursery};
use super::time::Lease;
use crate::ledger::{Kind, Tracked};
use crate::options::Mutant;
use crate::rng::Rng;
use crate::setting::Discipline;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::context::ContextState;
use mainspring::endpoint::Reply;
use mainspring::{CallError, CallRefusal, ChannelError, Cx, Endpoint, Refusal};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub struct Request {
    value: Tracked,
    number: u64,
}

#[derive(Debug)]
pub struct Answer {
    value: Tracked,
    to: u64,
}

pub type Calls = Endpoint<Request, Answer>;
/// What answers a call that somebody else is to answer.
pub type Pending = (u64, Reply<Request, Answer>);

impl Request {
    fn new(me: &Me<'_>) -> Self {
        Self { value: Tracked::new(Kind::Message), number: me.uid << 32 | me.number() }
    }
}

fn answer(to: u64) -> Answer {
    Answer { value: Tracked::new(Kind::Message), to }
}

fn patience(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.pick(&[0, 20, 200]))
}

/// Where the context of a caller is whose call is over.
fn at_home(me: &Me<'_>) -> ContextState {
    if me.world.options.mutant == Some(Mutant::Loan) { ContextState::Lent } else { ContextState::Bound }
}

/// A call, and what may come of it. `closes`: the endpoint may be closed meanwhile. False if it is.
fn make_call(cx: &Cx, me: &Me<'_>, endpoint: &Calls, timeout: Option<Duration>, closes: bool) -> bool {
    let request = Request::new(me);
    let number = request.number;
    me.world.count_act();
    let before = cx.budget();
    let result = match timeout {
        Some(timeout) => endpoint.call_timeout(cx, request, timeout),
        None => endpoint.call(cx, request),
    };
    me.look(cx);
    if me.is_exact && !me.cleans_up.get() && cx.budget() != before {
        violation("a call is charged");
    }
    if me.on_context.get() && !me.may_be_lent.get() {
        match cx.context() {
            Some(info) if info.state == at_home(me) => {}
            other => violation(format_args!("after a call its caller's context is {other:?}")),
        }
    }
    match result {
        Ok(Answer { value, to }) => {
            value.check();
            if to != number {
                violation(format_args!("call {number} is answered as {to}"));
            }
            true
        }
        Err(CallError { why, request }) => {
            if let Some(request) = &request {
                request.value.check();
                if request.number != number {
                    violation("a call gets the request of another");
                }
            }
            let is_right = match why {
                CallRefusal::TimedOut => timeout.is_some(),
                CallRefusal::Closed => closes,
                CallRefusal::ServerGone => true,
                CallRefusal::Chain => me.world.setting.discipline == Discipline::ByTask,
                CallRefusal::Unwinding => me.cleans_up.get(),
                CallRefusal::OtherRuntime => me.world.setting.runtimes > 1,
                _ => false,
            };
            if !is_right {
                violation(format_args!("a call is refused: {why}"));
            }
            why != CallRefusal::Closed
        }
    }
}

/// A call to an endpoint that all tasks use.
pub fn call(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let endpoints = &me.world.endpoints;
    let endpoint = &endpoints[rng.below(endpoints.len() as u64) as usize];
    make_call(cx, me, endpoint, Some(patience(rng)), false);
}

/// A service of a call to an endpoint that all tasks use.
pub fn serve(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let endpoints = &me.world.endpoints;
    let endpoint = &endpoints[rng.below(endpoints.len() as u64) as usize];
    let received = endpoint.receive_timeout(cx, patience(rng));
    me.look(cx);
    match received {
        Ok((request, reply)) => serve_one(cx, me, rng, &request, reply),
        Err(Refusal::TimedOut) => {}
        Err(Refusal::Closed) if me.world.setting.runtimes > 1 => {}
        Err(Refusal::Unwinding) if me.cleans_up.get() => {}
        Err(why) => violation(format_args!("a receive is refused: {why}")),
    }
    if rng.one_in(4) {
        let pending = me.world.pending.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
        if let Some((number, reply)) = pending {
            reply.send(cx, answer(number));
        }
    }
}

fn serve_one(cx: &Cx, me: &Me<'_>, rng: &mut Rng, request: &Request, reply: Reply<Request, Answer>) {
    request.value.check();
    let (number, on_loan) = (request.number, reply.is_on_loan());
    let by_task = me.world.setting.discipline == Discipline::ByTask && me.world.setting.contexts > 0;
    if on_loan && (!by_task || me.on_context.get()) {
        violation("a loan where there can be none");
    }
    // Nothing else is known of what it holds while it serves on a loan: the caller may take it back at any time.
    let knew = me.may_be_lent.replace(me.may_be_lent.get() || on_loan);
    match rng.below(10) {
        0 => drop(reply),
        1 => {
            live(cx, me, rng, 1);
            reply.send(cx, answer(number));
        }
        2 => {
            cx.sleep(patience(rng));
            reply.send(cx, answer(number));
        }
        3 => {
            let mut pending = me.world.pending.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if pending.len() < 4 {
                pending.push((number, reply));
                // Another task answers it, whenever.
                return;
            }
            drop(pending);
            drop(reply);
        }
        4 => {
            for _ in 0..20 {
                if reply.is_over() {
                    break;
                }
                cx.yield_now();
            }
            reply.send(cx, answer(number));
        }
        5 => {
            // Calls on, while it serves.
            let endpoints = &me.world.endpoints;
            let next = &endpoints[rng.below(endpoints.len() as u64) as usize];
            make_call(cx, me, next, Some(patience(rng)), false);
            reply.send(cx, answer(number));
        }
        6 if rng.one_in(4) => {
            alone::panic_here(me, rng);
            drop(reply);
        }
        _ => {
            reply.send(cx, answer(number));
        }
    }
    me.may_be_lent.set(knew);
    me.look(cx);
    if on_loan && !knew && cx.context().is_some() {
        violation("a server keeps what it was lent");
    }
}

/// Closes the endpoint when the last of its users goes, on every way out.
struct CloseLast(Calls);

impl Drop for CloseLast {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Servers and callers that wait for as long as it takes, some of the callers on contexts.
pub fn service(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let made = if rng.one_in(4) { cx.endpoint_without_donation() } else { cx.endpoint() };
    let endpoint: Calls = match (made, me.authority.channel) {
        (Err(ChannelError::NotPermitted), None) => return,
        (Ok(_), None) => violation("a task without CapChannel makes an endpoint"),
        (Err(ChannelError::TooMany(_)), Some(_)) => return,
        (Err(error), _) => violation(format_args!("an endpoint is refused: {error}")),
        (Ok(endpoint), Some(_)) => {
            me.channels_made.set(me.channels_made.get() + 1);
            endpoint
        }
    };
    let lease = if rng.one_in(2) { Lease::make(cx, me, rng) } else { None };
    let (servers, callers, rounds) = (1 + rng.below(2), 1 + rng.below(3), 1 + rng.below(8));
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let mut served = true;
        for _ in 0..servers {
            let (endpoint, mut own) = (endpoint.clone(), rng.fork());
            served &= open.spawn(cx, little(), move |cx, me| {
                while let Ok((request, reply)) = endpoint.receive(cx) {
                    me.look(cx);
                    request.value.check();
                    let number = request.number;
                    match own.below(6) {
                        0 => drop(reply),
                        1 => {
                            cx.yield_now();
                            reply.send(cx, answer(number));
                        }
                        2 => {
                            cx.look_up();
                            reply.send(cx, answer(number));
                        }
                        _ => _ = reply.send(cx, answer(number)),
                    }
                }
            });
        }
        if !served {
            endpoint.close();
        }
        let last = Arc::new(CloseLast(endpoint.clone()));
        for caller in 0..callers {
            let last = last.clone();
            let body = move |cx: &Cx, me: &Me<'_>| {
                for _ in 0..rounds {
                    if !make_call(cx, me, &last.0, None, true) {
                        break;
                    }
                    // It may have been revoked, and is never left lent.
                    let held = cx.context();
                    if held.as_ref().is_some_and(|info| info.state != at_home(me)) {
                        violation(format_args!("after a call its caller's context is {held:?}"));
                    }
                }
            };
            match &lease {
                Some(lease) if caller == 0 => _ = open.spawn_on(cx, little(), &lease.context, body),
                _ => _ = open.spawn(cx, little(), body),
            }
        }
        drop(last);
        if rng.one_in(6) {
            endpoint.close();
        }
        if rng.one_in(6)
            && let Some(lease) = &lease
        {
            lease.revoke();
        }
    });
    me.look(cx);
}
