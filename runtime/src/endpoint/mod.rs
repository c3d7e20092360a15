//! Calls between tasks: a request, its service and its answer, on the caller's time.
//!
//! A call is synchronous: the caller waits until the server answers. If it runs on a scheduling context, that context is lent to
//! the server for as long as the service lasts, so the server runs with the caller's deadline and at the caller's expense.
//!
//! # What is conserved
//!
//! * A call ends once: by a reply, by a reply that is dropped (the server returned, panicked or was cancelled), by its timeout, by
//!   the cancellation of its caller, by the end of the endpoint, or by a refusal. The first of these counts, and the others find
//!   that the call is over.
//! * A context that is lent is back with its caller, or gone for good, before the caller goes on, whatever ended the call.
//! * A request is taken by one server, or comes back to its caller.
//! * An endpoint holds one call for each task that waits for it, and no more.

mod call;
mod error;

pub use call::Reply;
pub use error::{CallError, CallRefusal};

use crate::calls;
use crate::channel::{Capacity, ChannelError, Refusal};
use crate::cx::Cx;
use crate::runtime::{Inner, Runtime};
use call::Shared;
pub use mainspring_abi::request::{MethodTraits, OrderPolicy, Request};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where some tasks call and others serve. Clones are the same endpoint.
///
/// ```
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     let squares = cx.endpoint::<u64, u64>().unwrap();
///     cx.nursery(|n| {
///         let served = squares.clone();
///         n.start(move |cx| {
///             while let Ok((x, reply)) = served.receive(cx) {
///                 reply.send(cx, x * x);
///             }
///         })
///         .unwrap();
///         assert_eq!(squares.call(cx, 12).unwrap(), 144);
///         squares.close();
///     })
///     .unwrap();
/// })
/// .unwrap();
/// ```
///
/// A reply is sent once:
///
/// ```compile_fail,E0382
/// # use mainspring::{Cx, endpoint::Reply};
/// fn twice(cx: &Cx, reply: Reply<(), u32>) {
///     reply.send(cx, 1);
///     reply.send(cx, 2);
/// }
/// ```
///
/// A request may borrow only from what outlives the endpoint: a server may have it when its caller has given the call up.
///
/// ```compile_fail,E0597
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     let lengths = cx.endpoint::<&str, usize>().unwrap();
///     let served = lengths.clone();
///     {
///         let text = String::from("gone at the end of this block");
///         let _ = lengths.call_timeout(cx, &text, std::time::Duration::ZERO);
///     }
///     drop(served);
/// });
/// ```
///
/// What is not `Send` is not called across tasks:
///
/// ```compile_fail,E0277
/// # use mainspring::{Config, Profile};
/// # use std::rc::Rc;
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     let endpoint = cx.endpoint::<Rc<u8>, ()>().unwrap();
///     cx.nursery(|n| n.start(|cx| drop(endpoint.receive(cx))))
/// });
/// ```
pub struct Endpoint<Q, A> {
    shared: Arc<Shared<Q, A>>,
}

/// How an endpoint passes calls on.
#[derive(Debug)]
pub struct EndpointOptions<Q> {
    /// A caller on a context lends it to the server.
    pub donates: bool,
    /// Which call a server gets next, of those that wait.
    pub order: OrderPolicy,
    /// What the endpoint declares of its calls: only one that is `reorder_safe` is passed by a more urgent one.
    pub method: MethodTraits,
    /// What a request says of its timing.
    pub timing: fn(&Q) -> Request,
}

impl<Q> Default for EndpointOptions<Q> {
    /// In the order in which they come, with a loan.
    fn default() -> Self {
        Self {
            donates: true,
            order: OrderPolicy::Submission,
            method: MethodTraits { realtime_safe: false, reorder_safe: false },
            timing: |_| Request::default(),
        }
    }
}

impl<Q, A> Clone for Endpoint<Q, A> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<Q, A> fmt::Debug for Endpoint<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint")
    }
}

impl Cx {
    /// Makes an endpoint, by the task's `CapChannel`. A caller on a context lends it to the server.
    pub fn endpoint<Q, A>(&self) -> Result<Endpoint<Q, A>, ChannelError> {
        calls::count(self);
        self.admit_channel_noted(Capacity::Rendezvous)?;
        Ok(Endpoint::of(self.rt(), EndpointOptions::default()))
    }

    /// As [`Cx::endpoint`], but servers always run on what they have themselves.
    pub fn endpoint_without_donation<Q, A>(&self) -> Result<Endpoint<Q, A>, ChannelError> {
        calls::count(self);
        self.admit_channel_noted(Capacity::Rendezvous)?;
        Ok(Endpoint::of(self.rt(), EndpointOptions { donates: false, ..EndpointOptions::default() }))
    }
}

impl Runtime {
    /// Makes an endpoint for tasks of this runtime, by the authority of the host. `donates`: a caller on a context lends it to the
    /// server.
    pub fn endpoint<Q, A>(&self, donates: bool) -> Endpoint<Q, A> {
        calls::count_action();
        Endpoint::of(self.inner(), EndpointOptions { donates, ..EndpointOptions::default() })
    }

    /// As [`Runtime::endpoint`], as `options` say: calls may be served by deadline within a window.
    pub fn endpoint_with<Q, A>(&self, options: EndpointOptions<Q>) -> Endpoint<Q, A> {
        calls::count_action();
        Endpoint::of(self.inner(), options)
    }
}

impl<Q, A> Endpoint<Q, A> {
    fn of(rt: &Inner, options: EndpointOptions<Q>) -> Self {
        Self { shared: Arc::new(Shared::new(rt.memory(), options)) }
    }

    /// Calls, and waits for the answer. Free of charge, as all waiting is: a caller makes no call before the last one has ended.
    pub fn call(&self, cx: &Cx, request: Q) -> Result<A, CallError<Q>> {
        self.shared.call(cx, request, None)
    }

    /// As [`Endpoint::call`], for at most this long.
    pub fn call_timeout(&self, cx: &Cx, request: Q, timeout: Duration) -> Result<A, CallError<Q>> {
        self.shared.call(cx, request, Some(timeout))
    }

    /// Waits for a call: its request, and what answers it. Free of charge, as all waiting is.
    pub fn receive(&self, cx: &Cx) -> Result<(Q, Reply<Q, A>), Refusal> {
        Shared::receive(&self.shared, cx, None)
    }

    /// As [`Endpoint::receive`], for at most this long.
    pub fn receive_timeout(&self, cx: &Cx, timeout: Duration) -> Result<(Q, Reply<Q, A>), Refusal> {
        Shared::receive(&self.shared, cx, Some(timeout))
    }

    /// Lets the server that has waited longest for a call go on without one: its receive ends with
    /// [`Refusal::Interrupted`]. False if none waits.
    pub fn interrupt(&self) -> bool {
        calls::count_action();
        self.shared.interrupt()
    }

    /// Ends it: calls that wait or are being served fail, and nobody can call it any more.
    pub fn close(&self) {
        calls::count_action();
        self.shared.close();
    }
}
