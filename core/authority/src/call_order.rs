//! The calls that wait at an endpoint: a bounded queue, in order of arrival, or by deadline within a window.
//!
//! Nothing is lost: a call that finds no room comes back to its caller, and every call that was let in leaves exactly
//! once, through [`CallQueue::next`], [`CallQueue::cancel`] or [`CallQueue::close`]. After the queue was made it never
//! allocates. A call moves only if every condition of [`mainspring_abi::request::may_move`] holds; one that may not move
//! is passed by no other call, and no call is passed by as many others as the window is wide.

use alloc::collections::{TryReserveError, VecDeque};
use mainspring_abi::request::{MethodTraits, OrderPolicy, Request, may_move, urgency};

/// A call that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<T> {
    /// What its caller says of its timing.
    pub request: Request,
    /// What the endpoint declares of the method.
    pub method: MethodTraits,
    /// Whatever the machine needs to serve it.
    pub payload: T,
}

/// No room: the call comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full<T>(pub Call<T>);

/// A bounded queue of calls.
#[derive(Debug)]
pub struct CallQueue<T> {
    waiting: VecDeque<Waiting<T>>,
    capacity: usize,
    policy: OrderPolicy,
}

#[derive(Debug)]
struct Waiting<T> {
    call: Call<T>,
    /// How many calls that came later were served before it.
    passed_by: usize,
}

impl<T> CallQueue<T> {
    /// A queue with room for `capacity` calls.
    pub fn new(capacity: usize, policy: OrderPolicy) -> Result<Self, TryReserveError> {
        let mut waiting = VecDeque::new();
        waiting.try_reserve_exact(capacity)?;
        Ok(Self { waiting, capacity, policy })
    }

    /// Makes room for `additional` calls more. Not for a queue that is closed.
    pub fn grow(&mut self, additional: usize) -> Result<(), TryReserveError> {
        let capacity = self.capacity.saturating_add(additional);
        self.waiting.try_reserve_exact(capacity.saturating_sub(self.waiting.len()))?;
        self.capacity = capacity;
        Ok(())
    }

    /// Lets a call in.
    pub fn push(&mut self, call: Call<T>) -> Result<(), Full<T>> {
        if self.waiting.len() >= self.capacity {
            return Err(Full(call));
        }
        self.waiting.push_back(Waiting { call, passed_by: 0 });
        Ok(())
    }

    /// The call to serve now. Its freshness is judged after this, at the moment of dispatch.
    #[allow(
        clippy::should_implement_trait,
        reason = "a queue that is pushed to between calls is no iterator"
    )]
    pub fn next(&mut self) -> Option<Call<T>> {
        let chosen = self.choose();
        let served = self.waiting.remove(chosen)?;
        for passed in self.waiting.iter_mut().take(chosen) {
            passed.passed_by += 1;
        }
        Some(served.call)
    }

    /// The most urgent of those that may go now; the first, if it may not move or has been passed often enough.
    fn choose(&self) -> usize {
        let window = self.policy.window();
        let moves = |waiting: &&Waiting<T>| may_move(&waiting.call.request, waiting.call.method);
        let candidates = self.waiting.iter().take(window).take_while(moves).enumerate();
        let mut best = (0, u64::MAX);
        for (place, waiting) in candidates {
            let own = urgency(waiting.call.request.deadline_ns);
            if place == 0 || own < best.1 {
                best = (place, own);
            }
            if waiting.passed_by + 1 >= window {
                break;
            }
        }
        best.0
    }

    /// Takes out the first call that `is_it`: its caller is gone or has given up.
    pub fn cancel(&mut self, is_it: impl Fn(&Call<T>) -> bool) -> Option<Call<T>> {
        let place = self.waiting.iter().position(|waiting| is_it(&waiting.call))?;
        self.waiting.remove(place).map(|waiting| waiting.call)
    }

    /// Takes everything out, in order of arrival: the endpoint is torn down, and every caller must be told.
    pub fn close(&mut self) -> impl Iterator<Item = Call<T>> + '_ {
        self.capacity = 0;
        self.waiting.drain(..).map(|waiting| waiting.call)
    }

    /// How many calls wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no call waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use mainspring_abi::request::WINDOW_MAX;
    use mainspring_abi::ring::QosFlags;
    use proptest::prelude::*;

    const MOVABLE: QosFlags = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
    const SAFE: MethodTraits = MethodTraits { realtime_safe: true, reorder_safe: true };

    fn call(payload: u32, deadline_ns: u64) -> Call<u32> {
        let request = Request { deadline_ns, qos: MOVABLE, after_previous: false };
        Call { request, method: SAFE, payload }
    }

    fn served(policy: OrderPolicy, calls: &[Call<u32>]) -> Vec<u32> {
        let mut queue = CallQueue::new(calls.len(), policy).expect("it fits");
        for call in calls {
            queue.push(*call).expect("there is room");
        }
        core::iter::from_fn(|| queue.next()).map(|call| call.payload).collect()
    }

    const WIDE: OrderPolicy = OrderPolicy::ByDeadline { window: WINDOW_MAX };

    //= TICK:L4.deadline-ordered
    #[test]
    fn calls_that_may_move_are_served_by_deadline_and_none_goes_last() {
        let calls = [call(0, 30), call(1, 0), call(2, 10), call(3, 20), call(4, 10)];
        assert_eq!(served(WIDE, &calls), [2, 4, 3, 0, 1]);
        assert_eq!(served(OrderPolicy::Submission, &calls), [0, 1, 2, 3, 4]);
        assert_eq!(served(OrderPolicy::ByDeadline { window: 1 }, &calls), [0, 1, 2, 3, 4]);
    }

    //= TICK:L4.deadline-ordered
    #[test]
    fn nothing_passes_a_call_that_may_not_move() {
        let mut unsafe_method = call(2, 5);
        unsafe_method.method.reorder_safe = false;
        let mut dependent = call(2, 5);
        dependent.request.after_previous = true;
        let mut unmarked = call(2, 5);
        unmarked.request.qos = QosFlags::DEADLINE_ORDERED;
        for wall in [unsafe_method, dependent, unmarked] {
            let calls = [call(0, 30), call(1, 20), wall, call(3, 10), call(4, 1)];
            assert_eq!(served(WIDE, &calls), [1, 0, 2, 4, 3]);
        }
    }

    #[test]
    fn a_queue_that_grows_lets_more_in_and_keeps_the_order() {
        let mut queue = CallQueue::new(0, OrderPolicy::Submission).expect("it fits");
        assert_eq!(queue.push(call(0, 1)), Err(Full(call(0, 1))));
        for number in 0..9 {
            queue.grow(1).expect("it fits");
            queue.push(call(number, 1)).expect("there is room for one more");
        }
        assert_eq!(queue.push(call(9, 1)), Err(Full(call(9, 1))));
        assert!(core::iter::from_fn(|| queue.next()).map(|call| call.payload).eq(0..9));
    }

    #[test]
    fn a_full_queue_gives_the_call_back_and_a_closed_one_gives_all_back() {
        let mut queue = CallQueue::new(1, WIDE).expect("it fits");
        queue.push(call(0, 1)).expect("there is room");
        assert_eq!(queue.push(call(1, 2)), Err(Full(call(1, 2))));
        assert_eq!(queue.cancel(|call| call.payload == 7), None);
        assert_eq!(queue.close().map(|call| call.payload).collect::<Vec<_>>(), [0]);
        assert_eq!(queue.push(call(1, 2)), Err(Full(call(1, 2))), "a closed queue lets nobody in");
    }

    proptest! {
        #[test]
        fn every_call_leaves_once_and_no_call_is_passed_by_a_window_of_others(
            steps in prop::collection::vec((0u64..6, any::<bool>(), 0u8..4), 1..200),
            window in 1usize..6,
        ) {
            let mut queue = CallQueue::new(12, OrderPolicy::ByDeadline { window }).expect("it fits");
            let mut arrived: Vec<(u32, bool)> = Vec::new();
            let mut left: Vec<u32> = Vec::new();
            let mut cancelled: Vec<u32> = Vec::new();
            for (number, (deadline, movable, what)) in (0u32..).zip(steps) {
                match what {
                    0 => left.extend(queue.next().map(|call| call.payload)),
                    1 if deadline == 0 => {
                        let oldest = queue.cancel(|_| true).map(|call| call.payload);
                        cancelled.extend(oldest);
                    }
                    _ => {
                        let mut new = call(number, deadline);
                        new.method.reorder_safe = movable;
                        if queue.push(new).is_ok() {
                            arrived.push((number, movable));
                        }
                    }
                }
            }
            left.extend(core::iter::from_fn(|| queue.next()).map(|call| call.payload));
            let mut all: Vec<u32> = left.iter().chain(&cancelled).copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, arrived.iter().map(|(number, _)| *number).collect::<Vec<_>>());
            let may_move = |number: u32| arrived.contains(&(number, true));
            for (place, number) in left.iter().enumerate() {
                let passed_by: Vec<u32> = left[..place].iter().copied().filter(|other| other > number).collect();
                prop_assert!(passed_by.len() < window.max(1), "{} was passed by {:?}", number, passed_by);
                let walls = passed_by.iter().all(|other| may_move(*other));
                prop_assert!(passed_by.is_empty() || (walls && may_move(*number)));
            }
        }
    }
}
