//! Endpoints of a run, and what became of the calls through them.

use mainspring::endpoint::{EndpointOptions, Request};
use mainspring::{Endpoint as Calls, Runtime};
use mainspring_abi::Nanos;
use mainspring_record::jobs::Responses;
use mainspring_report::EndpointReport;
use mainspring_workload::EndpointSpec;
use std::sync::Mutex;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Reply,
    Failure,
    /// It was too late to begin.
    Late,
}

#[derive(Debug, Default)]
struct Counted {
    accepted: u64,
    failed: u64,
    replies: Responses,
}

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub calls: Calls<Request, Answer>,
    counted: Mutex<Counted>,
}

impl Endpoint {
    pub fn new(runtime: &Runtime, spec: &EndpointSpec) -> Self {
        let options = EndpointOptions {
            // A receiver that the endpoint gives a context needs none of the caller's.
            donates: spec.donation && spec.context.is_none(),
            order: spec.order(),
            method: spec.method(),
            timing: |request| *request,
        };
        Self { calls: runtime.endpoint_with(options), counted: Mutex::default() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Counted) -> T) -> T {
        act(&mut self.counted.lock().expect("no panic while it is held"))
    }

    /// A call is made.
    pub fn note_call(&self) {
        self.with(|counted| counted.accepted += 1);
    }

    /// A call that was made at `made` has ended at `now`, with an answer or without.
    pub fn note_end(&self, made: Nanos, now: Nanos, answered: bool) {
        self.with(|counted| match answered {
            true => counted.replies.record(made, now),
            false => counted.failed += 1,
        });
    }

    /// What became of its calls.
    pub fn report(&self, name: &str, (callers, servers): (Vec<String>, Vec<String>)) -> EndpointReport {
        self.with(|counted| EndpointReport {
            name: name.to_owned(),
            calls: counted.accepted,
            replies: counted.replies.count(),
            failures: counted.failed,
            pending: counted.accepted - counted.replies.count() - counted.failed,
            latency_ns: counted.replies.summary(),
            callers,
            servers,
        })
    }
}
