//! One call, from its request to its end.
//!
//! Conserved: a call is in the queue, with one server, or over. A caller with a context announces its call only after it sleeps on
//! its core, so the context can be lent from the moment when a server knows of the call. Locks are taken in the order endpoint, call,
//! table of contexts.

use super::EndpointOptions;
use super::error::{CallError, CallRefusal};
use crate::calls;
use crate::channel::Refusal;
use crate::cx::Cx;
use crate::protocol::fair_tasks::{CallRef, FairTasks, Service};
use crate::runtime::Inner;
use crate::task::WaitReason;
use crate::time::timers::Fire;
use crate::waiter;
use mainspring_abi::Nanos;
use mainspring_abi::request::Request;
use mainspring_authority::call_order::{Call as Waiting, CallQueue, Full};
use mainspring_driver::contexts::CallEnd;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// What callers and servers share.
pub(super) struct Shared<Q, A> {
    rt: Arc<Inner>,
    options: EndpointOptions<Q>,
    inside: Mutex<Inside<Q, A>>,
}

struct Inside<Q, A> {
    closed: bool,
    /// Calls that no server has taken.
    queue: CallQueue<Arc<Call<Q, A>>>,
    /// Servers that wait, the one that has waited longest first.
    servers: VecDeque<Arc<Server<Q, A>>>,
    /// Calls that a server has taken and that are not over.
    served: Vec<Arc<Call<Q, A>>>,
}

struct Call<Q, A> {
    /// The task that waits.
    caller: usize,
    /// What the request says of its timing. Asked before any lock is held: that is the program's code.
    timing: Request,
    /// If the caller has a context that it can lend.
    loan: OnceLock<CallRef>,
    /// The same as whether `state` is over, without the lock.
    is_over: AtomicBool,
    state: Mutex<State<Q, A>>,
}

enum State<Q, A> {
    /// No server has taken the request.
    Asked(Q),
    /// A server has.
    Taken,
    /// It is over, and the caller has not looked yet.
    Answered(Result<A, CallRefusal>, Option<Q>),
    /// The caller has looked, or has given it up.
    Over,
}

/// A server that waits.
struct Server<Q, A> {
    task: usize,
    thread: usize,
    /// The call that it was given.
    call: Mutex<Option<Arc<Call<Q, A>>>>,
    /// It has something to look at.
    is_told: AtomicBool,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no panic while it is held")
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Done,
    TimedOut,
    Stop,
}

/// Waits until `is_over`. `announce` tells others of the wait: a task on a context does so once it sleeps on its core.
fn wait(cx: &Cx, reason: WaitReason, due: Nanos, is_over: impl Fn() -> bool, announce: impl Fn()) -> Waited {
    let timers = &cx.rt().timers;
    let timer = (due != Nanos::MAX).then(|| cx.rt().add_timer(due.get(), Fire::Wake(cx.task_ptr())));
    let mut announced = false;
    let waited = loop {
        if announced && is_over() {
            break Waited::Done;
        }
        if cx.must_stop() {
            break Waited::Stop;
        }
        if due != Nanos::MAX && timers.now_ns() >= due.get() {
            break Waited::TimedOut;
        }
        if announced {
            cx.block(reason);
        } else {
            announced = true;
            cx.block_then(reason, &announce);
        }
    };
    if let Some(timer) = timer {
        timers.remove(timer);
    }
    waited
}

impl<Q, A> Call<Q, A> {
    /// Ends it as `outcome` says. If it was over, the outcome comes back: its destructor is the program's, and may call this
    /// endpoint or panic, so it runs when no lock is held.
    fn complete(&self, outcome: Result<A, CallRefusal>) -> Result<(), Result<A, CallRefusal>> {
        let mut state = locked(&self.state);
        let request = match std::mem::replace(&mut *state, State::Over) {
            State::Asked(request) => Some(request),
            State::Taken => None,
            over @ (State::Answered(..) | State::Over) => {
                *state = over;
                return Err(outcome);
            }
        };
        *state = State::Answered(outcome, request);
        self.is_over.store(true, Ordering::Release);
        Ok(())
    }

    /// A server takes the request, unless the call is over.
    fn take_request(&self) -> Option<Q> {
        let mut state = locked(&self.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Asked(request) => Some(request),
            other => {
                *state = other;
                None
            }
        }
    }

    /// The caller looks: how the call ended, or what is left of one that it gives up.
    fn look(&self) -> State<Q, A> {
        self.is_over.store(true, Ordering::Release);
        std::mem::replace(&mut *locked(&self.state), State::Over)
    }
}

impl<Q, A> Shared<Q, A> {
    pub(super) fn new(rt: Arc<Inner>, options: EndpointOptions<Q>) -> Self {
        let queue = CallQueue::new(0, options.order).expect("no calls need no memory");
        let (servers, served) = (VecDeque::new(), Vec::new());
        Self { rt, options, inside: Mutex::new(Inside { closed: false, queue, servers, served }) }
    }

    /// A call waits for a server.
    fn enqueue(&self, inside: &mut Inside<Q, A>, call: &Arc<Call<Q, A>>) {
        let waiting = Waiting { request: call.timing, method: self.options.method, payload: call.clone() };
        if let Err(Full(waiting)) = inside.queue.push(waiting) {
            // As any other list that grows with the tasks that wait.
            inside.queue.grow(inside.queue.len().max(4)).expect("memory for a waiting call");
            let queued = inside.queue.push(waiting);
            debug_assert!(queued.is_ok(), "there is room");
        }
    }

    fn cores(&self) -> Option<&FairTasks> {
        self.rt.fair_tasks.as_ref()
    }

    fn now(&self) -> Nanos {
        Nanos::new(self.rt.timers.now_ns())
    }

    fn due(&self, timeout: Option<Duration>) -> Nanos {
        let after = |timeout: Duration| Nanos::new(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        timeout.map_or(Nanos::MAX, |timeout| self.now() + after(timeout))
    }

    fn is_of(&self, cx: &Cx) -> bool {
        std::ptr::eq(&raw const *self.rt, cx.rt())
    }

    pub(super) fn call(&self, cx: &Cx, request: Q, timeout: Option<Duration>) -> Result<A, CallError<Q>> {
        let refused = |why, request| Err(CallError { why, request: Some(request) });
        if !self.is_of(cx) {
            return refused(CallRefusal::OtherRuntime, request);
        }
        if std::thread::panicking() {
            return refused(CallRefusal::Unwinding, request);
        }
        cx.probe_stack();
        cx.acknowledge();
        calls::count(cx);
        let call = Arc::new(Call {
            caller: waiter::task_word(cx.task_ptr()),
            timing: (self.options.timing)(&request),
            loan: OnceLock::new(),
            is_over: AtomicBool::new(false),
            state: Mutex::new(State::Asked(request)),
        });
        let (thread, due) = (cx.thread(), self.due(timeout));
        let asked = Asked { shared: self, call: &call };
        let is_over = || call.is_over.load(Ordering::Acquire);
        let waited = wait(cx, WaitReason::Call, due, is_over, || self.announce(&call, thread, due));
        let end = if waited == Waited::TimedOut { CallEnd::TimedOut } else { CallEnd::Cancelled };
        let state = asked.leave(end);
        if waited == Waited::Stop {
            drop(state);
            cx.acknowledge();
            // It cleans up, and has been interrupted all the same.
            return Err(CallError { why: CallRefusal::Unwinding, request: None });
        }
        match state {
            State::Answered(Ok(answer), _) => Ok(answer),
            State::Answered(Err(why), request) => Err(CallError { why, request }),
            State::Asked(request) => refused(CallRefusal::TimedOut, request),
            State::Taken | State::Over => Err(CallError { why: CallRefusal::TimedOut, request: None }),
        }
    }

    /// The caller sleeps: a server is given the call, or the call is queued.
    fn announce(&self, call: &Arc<Call<Q, A>>, thread: usize, due: Nanos) {
        if self.options.donates
            && let Some(loan) = self.cores().and_then(|cores| cores.begin_call(thread, due))
        {
            let first = call.loan.set(loan);
            debug_assert!(first.is_ok(), "a call is announced once");
        }
        let mut inside = locked(&self.inside);
        if inside.closed {
            drop(inside);
            self.end(call, Err(CallRefusal::Closed), CallEnd::EndpointClosed);
            return;
        }
        let Some(server) = inside.servers.pop_front() else {
            self.enqueue(&mut inside, call);
            return;
        };
        self.give(&mut inside, &server, call.clone());
        drop(inside);
        hand_over(server.task);
    }

    /// `server`, which sleeps or is about to look, gets `call`. Its waker lends it the caller's context.
    fn give(&self, inside: &mut Inside<Q, A>, server: &Server<Q, A>, call: Arc<Call<Q, A>>) {
        inside.served.push(call.clone());
        if let (Some(cores), Some(loan)) = (self.cores(), call.loan.get()) {
            cores.send_on_errand(server.thread, *loan);
        }
        *locked(&server.call) = Some(call);
        server.is_told.store(true, Ordering::Release);
    }

    /// Ends a call: the caller has its context back, and goes on. False if it was over.
    fn end(&self, call: &Arc<Call<Q, A>>, outcome: Result<A, CallRefusal>, end: CallEnd) -> bool {
        let settled = {
            let mut inside = locked(&self.inside);
            inside.served.retain(|other| !Arc::ptr_eq(other, call));
            call.complete(outcome)
        };
        if settled.is_ok() {
            self.bring_back(call, end);
            hand_over(call.caller);
        }
        settled.is_ok()
    }

    fn bring_back(&self, call: &Call<Q, A>, end: CallEnd) {
        if let (Some(cores), Some(loan)) = (self.cores(), call.loan.get()) {
            self.rt.notify_contexts(&cores.end_call(*loan, end, self.now()));
        }
    }

    pub(super) fn receive(
        this: &Arc<Self>,
        cx: &Cx,
        timeout: Option<Duration>,
    ) -> Result<(Q, Reply<Q, A>), Refusal> {
        if std::thread::panicking() || !this.is_of(cx) {
            // Of another runtime, it is nobody's to serve.
            return Err(if this.is_of(cx) { Refusal::Unwinding } else { Refusal::Closed });
        }
        cx.probe_stack();
        cx.acknowledge();
        calls::count(cx);
        let due = this.due(timeout);
        loop {
            let next = {
                let mut inside = locked(&this.inside);
                if inside.closed {
                    return Err(Refusal::Closed);
                }
                let next = inside.queue.next().map(|waiting| waiting.payload);
                inside.served.extend(next.clone());
                next
            };
            let call = match next {
                Some(call) => call,
                None => this.await_call(cx, due)?,
            };
            // From here on the call fails if this task ends.
            let mut reply = Reply { shared: this.clone(), call: Some(call), on_loan: false };
            match this.begin_service(cx, &reply) {
                Service::Refused => reply.fail(CallRefusal::Chain, CallEnd::DeliveryFailed),
                service => {
                    reply.on_loan = service == Service::OnLoan;
                    let request = reply.call.as_ref().and_then(|call| call.take_request());
                    // Without a request its caller has given it up.
                    if let Some(request) = request {
                        return Ok((request, reply));
                    }
                }
            }
        }
    }

    fn await_call(&self, cx: &Cx, due: Nanos) -> Result<Arc<Call<Q, A>>, Refusal> {
        let server = Arc::new(Server {
            task: waiter::task_word(cx.task_ptr()),
            thread: cx.thread(),
            call: Mutex::new(None),
            is_told: AtomicBool::new(false),
        });
        let waiting = Listed { shared: self, server: &server };
        let is_told = || server.is_told.load(Ordering::Acquire);
        let waited = wait(cx, WaitReason::Receive, due, is_told, || self.enlist(&server));
        let call = waiting.leave();
        if waited == Waited::Stop {
            if let Some(call) = call {
                self.end(&call, Err(CallRefusal::ServerGone), CallEnd::ServerGone);
            }
            cx.acknowledge();
            return Err(Refusal::Unwinding);
        }
        call.ok_or_else(|| match waited {
            Waited::TimedOut => Refusal::TimedOut,
            _ if locked(&self.inside).closed => Refusal::Closed,
            _ => Refusal::Interrupted,
        })
    }

    /// The server sleeps: it gets a call that waits, or waits for one.
    fn enlist(&self, server: &Arc<Server<Q, A>>) {
        let mut inside = locked(&self.inside);
        match inside.queue.next().map(|waiting| waiting.payload) {
            Some(call) => self.give(&mut inside, server, call),
            None if inside.closed => server.is_told.store(true, Ordering::Release),
            None => return inside.servers.push_back(server.clone()),
        }
        drop(inside);
        waiter::wake(server.task);
    }

    /// The server runs: on what it serves the call.
    fn begin_service(&self, cx: &Cx, reply: &Reply<Q, A>) -> Service {
        let Some(loan) = reply.call.as_ref().and_then(|call| call.loan.get().copied()) else {
            return Service::OnItsOwn;
        };
        let Some(cores) = self.cores() else { return Service::OnItsOwn };
        let serve = || {
            let here = cx.task().worker().index;
            let (service, aftermath) = cores.serve_call(loan, cx.thread(), here, self.now());
            self.rt.notify_contexts(&aftermath);
            service
        };
        match serve() {
            Service::Elsewhere => {
                // It goes to where the context is, asleep, and its waker lends it the context there.
                let task = waiter::task_word(cx.task_ptr());
                cx.block_then(WaitReason::Receive, &|| {
                    cores.send_on_errand(cx.thread(), loan);
                    waiter::wake(task);
                });
                match serve() {
                    Service::Elsewhere => Service::OnItsOwn,
                    service => service,
                }
            }
            service => service,
        }
    }

    /// The server that has waited longest goes on without a call; whether one waited.
    pub(super) fn interrupt(&self) -> bool {
        let server = locked(&self.inside).servers.pop_front();
        if let Some(server) = &server {
            server.is_told.store(true, Ordering::Release);
            waiter::wake(server.task);
        }
        server.is_some()
    }

    pub(super) fn close(&self) {
        let (calls, servers) = {
            let mut inside = locked(&self.inside);
            inside.closed = true;
            let mut calls: Vec<_> = inside.queue.close().map(|waiting| waiting.payload).collect();
            calls.append(&mut inside.served);
            (calls, std::mem::take(&mut inside.servers))
        };
        for call in calls {
            self.end(&call, Err(CallRefusal::Closed), CallEnd::EndpointClosed);
        }
        for server in servers {
            server.is_told.store(true, Ordering::Release);
            waiter::wake(server.task);
        }
    }
}

/// Wakes a task. It goes first here when the running task stops, under the fair discipline by task.
fn hand_over(task: usize) {
    crate::worker::handing_over(|| waiter::wake(task));
}

/// A call that its caller waits for. Dropped on every way out of the wait.
struct Asked<'c, Q, A> {
    shared: &'c Shared<Q, A>,
    call: &'c Arc<Call<Q, A>>,
}

impl<Q, A> Asked<'_, Q, A> {
    fn leave(self, end: CallEnd) -> State<Q, A> {
        let this = std::mem::ManuallyDrop::new(self);
        this.take_back(end)
    }

    /// How the call ended, or what is left of it. No server can end it any more, and the caller has its context.
    fn take_back(&self, end: CallEnd) -> State<Q, A> {
        {
            let mut inside = locked(&self.shared.inside);
            let _taken_out = inside.queue.cancel(|waiting| Arc::ptr_eq(&waiting.payload, self.call));
            inside.served.retain(|other| !Arc::ptr_eq(other, self.call));
        }
        let state = self.call.look();
        self.shared.bring_back(self.call, end);
        state
    }
}

impl<Q, A> Drop for Asked<'_, Q, A> {
    fn drop(&mut self) {
        drop(self.take_back(CallEnd::Cancelled));
    }
}

/// A server that waits. Dropped on every way out of the wait.
struct Listed<'s, Q, A> {
    shared: &'s Shared<Q, A>,
    server: &'s Arc<Server<Q, A>>,
}

impl<Q, A> Listed<'_, Q, A> {
    fn leave(self) -> Option<Arc<Call<Q, A>>> {
        let this = std::mem::ManuallyDrop::new(self);
        this.take_out()
    }

    /// Out of the line: the call that it was given, if there is one.
    fn take_out(&self) -> Option<Arc<Call<Q, A>>> {
        let mut inside = locked(&self.shared.inside);
        inside.servers.retain(|other| !Arc::ptr_eq(other, self.server));
        drop(inside);
        locked(&self.server.call).take()
    }
}

impl<Q, A> Drop for Listed<'_, Q, A> {
    fn drop(&mut self) {
        if let Some(call) = self.take_out() {
            self.shared.end(&call, Err(CallRefusal::ServerGone), CallEnd::ServerGone);
        }
    }
}

/// What answers a call. Dropped without an answer, the call fails as [`CallRefusal::ServerGone`].
#[must_use = "a reply that is dropped fails the call"]
pub struct Reply<Q, A> {
    shared: Arc<Shared<Q, A>>,
    /// Until it is answered.
    call: Option<Arc<Call<Q, A>>>,
    on_loan: bool,
}

impl<Q, A> std::fmt::Debug for Reply<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("on_loan", &self.on_loan).finish_non_exhaustive()
    }
}

impl<Q, A> Reply<Q, A> {
    /// Whether the server got the caller's context for this call.
    pub fn is_on_loan(&self) -> bool {
        self.on_loan
    }

    /// Whether the caller waits no longer.
    pub fn is_over(&self) -> bool {
        calls::count_poll();
        self.call.as_ref().is_none_or(|call| call.is_over.load(Ordering::Acquire))
    }

    /// Answers. The caller has its context back, and goes first on this worker when the server waits, if it may run there. False
    /// if the caller waits no longer.
    pub fn send(mut self, cx: &Cx, answer: A) -> bool {
        calls::count(cx);
        let call = self.call.take();
        call.is_some_and(|call| self.shared.end(&call, Ok(answer), CallEnd::Reply))
    }

    fn fail(mut self, why: CallRefusal, end: CallEnd) {
        if let Some(call) = self.call.take() {
            self.shared.end(&call, Err(why), end);
        }
    }
}

impl<Q, A> Drop for Reply<Q, A> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.shared.end(&call, Err(CallRefusal::ServerGone), CallEnd::ServerGone);
        }
    }
}
