//! Calls between threads: request, service and reply, and on whose time the service is done.
//!
//! Conserved: a caller is woken by exactly one of reply, exception, timeout, refusal or failure of its call, and never
//! while its context is away. A request is served at most once.

use super::Machine;
use super::program::{Done, Progress};
use super::thread::{Endpoint, Request, Serving};
use crate::RunError;
use mainspring_abi::request::{
    AtDispatch, Budget, Previous, Request as Timing, Verdict, at_completion, at_dispatch,
};
use mainspring_abi::ring::{CapError, CompletionStatus};
use mainspring_abi::{CpuId, Nanos};
use mainspring_authority::call_order::{Call as Waiting, CallQueue, Full};
use mainspring_driver::contexts::{CallEnd, NoLoan};
use mainspring_record::jobs::Responses;
use mainspring_sched::context::CallBound;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Authority, Stop, Timeout, WaitKind};
use mainspring_workload::{Call, EndpointSpec, Step, Workload};

/// What a thread does once it is on another CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    /// Serves a request.
    Serve(Request),
    /// Takes a context.
    Bind(usize),
}

impl Machine<'_> {
    pub(super) fn call(&mut self, cpu: usize, thread: usize, call: &Call, timeout: Option<Nanos>) -> Done {
        let spec = &self.workload.endpoints[call.endpoint];
        let donates = spec.donation;
        let served = self.threads[thread].serving.last().map(|serving| &serving.request.timing);
        let timing = call.timing(self.now, served);
        let left = self.place_of(thread).and_then(|(cpu, seat)| self.cores[cpu].budget_left(self.now, seat));
        let dry = call.needs.zip(left).is_some_and(|(needs, left)| left < needs);
        if self.endpoints[call.endpoint].closed {
            return self.refuse_call(thread, "closed");
        }
        let budget = if dry { Budget::Depleted } else { Budget::Available };
        if let Verdict::Refuse(_, error) = self.judge_request(call.endpoint, &timing, budget) {
            let why = match error {
                CapError::RealtimeUnsafePath => "realtime-unsafe",
                CapError::BudgetExhausted => "budget",
                _ => "late",
            };
            return self.refuse_call(thread, why);
        }
        let server = self.next_receiver(call.endpoint);
        let lends = donates && self.holds(thread).is_some();
        let context_due = if lends { self.holds(thread).map(|context| context.deadline()) } else { None };
        let bound = CallBound::earliest(timeout, timing.dropped_at(), context_due).at();
        if bound.is_some_and(|bound| bound <= self.now) {
            self.put_receiver_back(call.endpoint, server);
            return self.refuse_call(thread, "late");
        }
        let source = match server.map(|server| self.authority_for(call.endpoint, thread, server)) {
            None => None,
            Some(Ok(source)) => source,
            Some(Err(_)) => {
                self.put_receiver_back(call.endpoint, server);
                return self.refuse_call(thread, "donation");
            }
        };
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Call, bound);
        let Done::Stay(Progress::Stop(Stop::Blocked(_, timeout))) = blocked else {
            self.put_receiver_back(call.endpoint, server);
            return blocked;
        };
        self.endpoints[call.endpoint].accepted += 1;
        let (id, made) = (self.threads[thread].wait_id(), self.now);
        let request = Request { call: id, endpoint: call.endpoint, made, timing };
        let Some(server) = server else {
            self.queue_call(request);
            return Done::Stay(Progress::Stop(Stop::Blocked(WaitKind::Call, timeout)));
        };
        if source.is_some() {
            return Done::Stay(Progress::Call { timeout, server, request });
        }
        self.threads[server].serving.push(Serving { request, borrowed: None });
        self.hand_over(cpu, server);
        Done::Stay(Progress::Stop(Stop::Blocked(WaitKind::Call, timeout)))
    }

    fn judge_request(&self, endpoint: usize, timing: &Timing, budget: Budget) -> Verdict {
        let method = self.workload.endpoints[endpoint].method();
        at_dispatch(timing, &AtDispatch { now: self.now, method, budget, previous: Previous::Completed })
    }

    /// No server is there for `request`: it waits. There is room for a call of every thread that may call here, so if
    /// there is none, some of the waiting calls have been given up.
    fn queue_call(&mut self, request: Request) {
        let method = self.workload.endpoints[request.endpoint].method();
        let call = Waiting { request: request.timing, method, payload: request };
        let (threads, endpoint) = (&self.threads, &mut self.endpoints[request.endpoint]);
        let Err(Full(call)) = endpoint.calls.push(call) else { return };
        let given_up = |waiting: &Waiting<Request>| {
            let caller = waiting.payload.call;
            !threads[caller.thread as usize].is_waiting(caller, WaitKind::Call)
        };
        while endpoint.calls.cancel(given_up).is_some() {}
        let queued = endpoint.calls.push(call);
        debug_assert!(queued.is_ok(), "a thread waits for one call at a time");
    }

    /// The time of the call that `thread` waits for is over. Takes the request out if no server has begun it; whether that
    /// is because it came too late for its caller.
    pub(super) fn drop_call(&mut self, thread: usize) -> bool {
        let Some(Step::Call(call)) = self.script.step_before(self.threads[thread].pc) else { return false };
        let id = self.threads[thread].wait_id();
        let waiting = self.endpoints[call.endpoint].calls.cancel(|waiting| waiting.payload.call == id);
        waiting
            .and_then(|waiting| waiting.request.dropped_at())
            .is_some_and(|dropped_at| self.now >= dropped_at)
    }

    /// How many calls no server began because their deadlines had passed.
    pub(super) fn calls_expired(&self) -> u64 {
        self.threads.iter().map(|thread| thread.stats.dropped).sum()
    }

    /// No thread waits any more for the answer to the call that `thread` made last.
    pub(super) fn give_up_call(&mut self, thread: usize) {
        if let Some(Step::Call(call)) = self.script.step_before(self.threads[thread].pc) {
            self.endpoints[call.endpoint].failed += 1;
        }
    }

    fn refuse_call(&mut self, thread: usize, why: &'static str) -> Done {
        self.refuse_step(thread, why);
        self.log_context("refuse", None, Some(thread), None, why);
        Done::Next
    }

    fn next_receiver(&mut self, endpoint: usize) -> Option<usize> {
        while let Some(receiver) = self.endpoints[endpoint].receivers.pop_front() {
            let server = receiver.thread as usize;
            if self.threads[server].is_waiting(receiver, WaitKind::Receive) {
                return Some(server);
            }
        }
        None
    }

    fn put_receiver_back(&mut self, endpoint: usize, server: Option<usize>) {
        if let Some(server) = server {
            let id = self.threads[server].wait_id();
            self.endpoints[endpoint].receivers.push_front(id);
        }
    }

    /// On what `server` would serve `caller`, apart from what it has anyway; or why the call has to be refused.
    fn authority_for(
        &mut self,
        endpoint: usize,
        caller: usize,
        server: usize,
    ) -> Result<Option<Source>, NoLoan> {
        if self.grants.list.is_empty() {
            return Ok(None);
        }
        if !self.entity(server).is_some_and(|entity| matches!(entity.authority(), Authority::BestEffort)) {
            return Ok(None);
        }
        let spec = &self.workload.endpoints[endpoint];
        if let Some(target) = spec.context {
            let grant = self.grants.numbers.contexts(target).start;
            if self.is_free(grant)
                && self.grants.list[grant].home.is_some_and(|home| self.may_go(server, home))
            {
                return Ok(Some(Source::Endpoint(grant)));
            }
        }
        if !spec.donation {
            return Ok(None);
        }
        let (caller, server) = (self.threads[caller].identity, self.threads[server].identity);
        match self.with_contexts(|contexts, machine| contexts.may_lend(machine, caller, server)) {
            // One that runs goes where the context is once it has stopped.
            Ok(_) | Err(NoLoan::Elsewhere(_)) => Ok(Some(Source::Caller)),
            Err(refused) if refused.refuses_call() => Err(refused),
            Err(_) => Ok(None),
        }
    }

    fn may_go(&self, thread: usize, cpu: usize) -> bool {
        let affinity = self.entity(thread).map(mainspring_sched::Entity::affinity);
        affinity.zip(CpuId::new(cpu).ok()).is_some_and(|(affinity, cpu)| affinity.allows(cpu))
    }

    /// The running thread of `cpu` calls `server`, which waits, and which serves it on the caller's or the
    /// endpoint's context.
    pub(super) fn block_and_call(
        &mut self,
        cpu: usize,
        thread: usize,
        timeout: Option<Timeout>,
        server: usize,
        request: Request,
    ) {
        self.stop_without_choice(cpu, thread, WaitKind::Call, timeout);
        self.serve(Some(cpu), server, request);
        self.choose(cpu);
    }

    /// The running thread of `cpu` waits, and no thread is chosen yet.
    fn stop_without_choice(&mut self, cpu: usize, thread: usize, kind: WaitKind, timeout: Option<Timeout>) {
        self.pause_work(cpu);
        self.look_at_lag_of_stopping(cpu, thread as u32);
        self.end_segment(cpu, "blocked");
        self.core_block_current(cpu, kind, timeout);
        self.vcpus[cpu].running = None;
        self.vcpus[cpu].done_at = Nanos::MAX;
    }

    /// `server`, which waits for a request, is given one, and the authority to serve it if the caller or the
    /// endpoint has any for it.
    fn serve(&mut self, from: Option<usize>, server: usize, request: Request) {
        let caller = request.call.thread as usize;
        if unlikely(self.states.is_some()) {
            self.note_waker(server, Some(request.call.thread));
        }
        let borrowed = match self.authority_for(request.endpoint, caller, server) {
            Ok(Some(Source::Endpoint(grant))) => self.bind_grant(grant, server).then_some(Borrowed::Endpoint),
            Ok(Some(Source::Caller)) => self.lend_to(caller, server).then_some(Borrowed::Caller),
            Ok(None) | Err(_) => None,
        };
        self.threads[server].serving.push(Serving { request, borrowed });
        if self.threads[server].wait.is_some() {
            match from {
                Some(cpu) => self.hand_over(cpu, server),
                None => self.wake_thread(server, None),
            }
        }
    }

    /// Hands the context of `caller`, which waits for its call, to `server`; whether it could be.
    fn lend_to(&mut self, caller: usize, server: usize) -> bool {
        let (caller, server) = (self.threads[caller].identity, self.threads[server].identity);
        self.with_contexts(|contexts, machine| contexts.lend(machine, caller, server)).is_ok()
    }

    pub(super) fn receive(
        &mut self,
        cpu: usize,
        thread: usize,
        endpoint: usize,
        deadline: Option<Nanos>,
    ) -> Done {
        // A server that goes on to the next request without an answer to the last has failed it.
        if self.threads[thread].serving.last().is_some_and(|serving| serving.borrowed.is_some()) {
            self.answer(cpu, thread, CallEnd::ServerGone);
        }
        while let Some(Waiting { payload: request, .. }) = self.endpoints[endpoint].calls.next() {
            let caller = request.call.thread as usize;
            if !self.threads[caller].is_waiting(request.call, WaitKind::Call) {
                continue;
            }
            let verdict = self.judge_request(endpoint, &request.timing, Budget::Available);
            if matches!(verdict, Verdict::Refuse(..)) {
                self.threads[caller].stats.dropped += 1;
                self.end_call(Some(cpu), &request, CallEnd::DeliveryFailed);
                continue;
            }
            match self.authority_for(endpoint, caller, thread) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.threads[thread].serving.push(Serving { request, borrowed: None });
                    return Done::Next;
                }
                Err(_) => {
                    let _refused = self.refuse_call(caller, "donation");
                    self.end_call(Some(cpu), &request, CallEnd::DeliveryFailed);
                    continue;
                }
            }
            return Done::Stay(Progress::Move(Errand::Serve(request)));
        }
        self.begin_wait(thread);
        let blocked = self.block(thread, WaitKind::Receive, deadline);
        if matches!(blocked, Done::Stay(_)) {
            let id = self.threads[thread].wait_id();
            self.endpoints[endpoint].receivers.push_back(id);
        }
        blocked
    }

    /// The running thread of `cpu` needs a context, or a request with one, that may be on another CPU: it goes there.
    pub(super) fn run_errand(&mut self, cpu: usize, thread: usize, errand: Errand) {
        self.begin_wait(thread);
        self.threads[thread].wait = Some(WaitKind::Receive);
        self.stop_without_choice(cpu, thread, WaitKind::Receive, None);
        match errand {
            Errand::Serve(request) => self.serve(None, thread, request),
            Errand::Bind(grant) => {
                if !self.bind_grant(grant, thread) {
                    self.refuse_step(thread, "the context cannot be bound");
                }
                if self.threads[thread].wait.is_some() {
                    self.wake_thread(thread, None);
                }
            }
        }
        self.choose(cpu);
    }

    /// Answers the request that `thread` took last.
    pub(super) fn answer(&mut self, cpu: usize, thread: usize, end: CallEnd) {
        let Some(Serving { request, borrowed }) = self.threads[thread].serving.pop() else { return };
        if borrowed == Some(Borrowed::Endpoint) {
            self.release_context(thread);
        }
        let ended = at_completion(&request.timing, self.now, end != CallEnd::Reply);
        if ended == CompletionStatus::CompletedLate {
            self.threads[request.call.thread as usize].stats.late += 1;
        }
        self.end_call(Some(cpu), &request, end);
    }

    /// A call is over: its caller has its context back, and then wakes.
    pub(super) fn end_call(&mut self, from: Option<usize>, request: &Request, end: CallEnd) {
        let caller = request.call.thread as usize;
        if !self.threads[caller].is_waiting(request.call, WaitKind::Call) {
            return;
        }
        self.take_loan_back(caller, end);
        let endpoint = &mut self.endpoints[request.endpoint];
        if end == CallEnd::Reply {
            endpoint.replies.record(request.made, self.now);
        } else {
            endpoint.failed += 1;
            self.threads[caller].stats.failures += 1;
        }
        match from {
            Some(cpu) => self.hand_over(cpu, caller),
            None => self.wake_thread(caller, None),
        }
    }

    /// The call of `caller` is over: it has the context back that it has lent, or goes on without.
    pub(super) fn take_loan_back(&mut self, caller: usize, end: CallEnd) {
        if !self.grants.list.is_empty() {
            let caller = self.threads[caller].identity;
            self.with_contexts(|contexts, machine| contexts.end_call(machine, caller, end));
        }
    }

    /// The endpoint is torn down: a caller that waits for an answer through it gets none, and no thread can call it
    /// any more.
    pub(super) fn close(&mut self, endpoint: usize) {
        self.endpoints[endpoint].closed = true;
        let waiting: Vec<_> = self.endpoints[endpoint].calls.close().map(|call| call.payload).collect();
        for request in waiting {
            self.end_call(None, &request, CallEnd::EndpointClosed);
        }
        for server in 0..self.threads.len() {
            let (over, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.threads[server].serving)
                .into_iter()
                .partition(|serving| serving.request.endpoint == endpoint);
            self.threads[server].serving = rest;
            for Serving { request, borrowed } in over {
                if borrowed == Some(Borrowed::Endpoint) {
                    self.release_context(server);
                }
                self.end_call(None, &request, CallEnd::EndpointClosed);
            }
        }
    }
}

/// The endpoints, each with room for a call of every thread whose program calls it.
pub(super) fn endpoints(workload: &Workload) -> Result<Vec<Endpoint>, RunError> {
    let mut callers = vec![0; workload.endpoints.len()];
    for thread in &workload.threads {
        for step in &thread.program {
            if let Step::Call(call) = step {
                callers[call.endpoint] += thread.instances();
            }
        }
    }
    let endpoint = |(spec, callers): (&EndpointSpec, usize)| {
        let calls = CallQueue::new(callers, spec.order()).map_err(|_| {
            let threads = workload.threads.iter().map(|thread| thread.instances()).sum();
            RunError::NoRoom { cpus: workload.machine.cpus, threads }
        })?;
        Ok(Endpoint {
            closed: false,
            calls,
            receivers: Default::default(),
            accepted: 0,
            failed: 0,
            replies: Responses::default(),
        })
    };
    workload.endpoints.iter().zip(callers).map(endpoint).collect()
}

/// Where the authority for a service comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// From the endpoint's own context.
    Endpoint(usize),
    /// From the caller.
    Caller,
}

/// The context on which a request is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Borrowed {
    Endpoint,
    Caller,
}
