//! Endpoints: calls that nobody has taken yet, and receivers that nobody has called.
//!
//! Conserved: a call is taken by one receiver or withdrawn by its caller, never both.

use mainspring_abi::Nanos;
use mainspring_record::jobs::Responses;
use mainspring_report::EndpointReport;
use std::collections::VecDeque;
use std::sync::Mutex;

/// One call of an instance. The number tells it from those before, which it may have given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub caller: usize,
    pub number: u64,
}

#[derive(Debug, Default)]
struct Inside {
    calls: VecDeque<Call>,
    receivers: VecDeque<usize>,
    accepted: u64,
    failed: u64,
    replies: Responses,
}

/// An endpoint.
#[derive(Debug, Default)]
pub struct Endpoint(Mutex<Inside>);

impl Endpoint {
    fn with<T>(&self, act: impl FnOnce(&mut Inside) -> T) -> T {
        act(&mut self.0.lock().expect("no panic while it is held"))
    }

    /// Leaves a call; the receiver that has waited longest is to look.
    pub fn send(&self, call: Call) -> Option<usize> {
        self.with(|inside| {
            inside.accepted += 1;
            inside.calls.push_back(call);
            inside.receivers.pop_front()
        })
    }

    /// A call that was made at `made` has ended at `now`, with an answer or without.
    pub fn note_end(&self, made: Nanos, now: Nanos, answered: bool) {
        self.with(|inside| match answered {
            true => inside.replies.record(made, now),
            false => inside.failed += 1,
        });
    }

    /// What became of its calls.
    pub fn report(&self, name: &str, (callers, servers): (Vec<String>, Vec<String>)) -> EndpointReport {
        self.with(|inside| EndpointReport {
            name: name.to_owned(),
            calls: inside.accepted,
            replies: inside.replies.count(),
            failures: inside.failed,
            pending: inside.accepted - inside.replies.count() - inside.failed,
            latency_ns: inside.replies.summary(),
            callers,
            servers,
        })
    }

    /// Takes the call that has waited longest, or else queues up for the next.
    pub fn take_or_wait(&self, receiver: usize) -> Option<Call> {
        self.with(|inside| {
            inside.receivers.retain(|waiting| *waiting != receiver);
            let call = inside.calls.pop_front();
            if call.is_none() {
                inside.receivers.push_back(receiver);
            }
            call
        })
    }

    /// A receiver gives up. If a call came for it meanwhile and another receiver waits, that one is to look.
    pub fn leave(&self, receiver: usize) -> Option<usize> {
        self.with(|inside| {
            inside.receivers.retain(|waiting| *waiting != receiver);
            if inside.calls.is_empty() { None } else { inside.receivers.pop_front() }
        })
    }

    /// A caller gives up.
    pub fn withdraw(&self, call: Call) {
        self.with(|inside| inside.calls.retain(|waiting| *waiting != call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_taken_in_order_and_a_receiver_that_gives_up_passes_on_what_came_for_it() {
        let endpoint = Endpoint::default();
        let call = |caller| Call { caller, number: 1 };
        assert_eq!(endpoint.take_or_wait(7), None);
        assert_eq!(endpoint.take_or_wait(8), None);
        assert_eq!(endpoint.send(call(1)), Some(7), "who has waited longest");
        assert_eq!(endpoint.leave(7), Some(8), "it did not look, and the call is still there");
        assert_eq!(endpoint.take_or_wait(8), Some(call(1)));
        assert_eq!(endpoint.send(call(2)), None);
        assert_eq!(endpoint.send(call(3)), None);
        endpoint.withdraw(call(2));
        assert_eq!(endpoint.take_or_wait(8), Some(call(3)));
    }
}
