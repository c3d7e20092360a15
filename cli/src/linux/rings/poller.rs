//! The task that serves a ring for its owner: start, service, spin, sleep, wake.

use super::{Accepted, Inside, Ring};
use crate::linux::player::{nanos, now};
use mainspring::{Cx, WaitReason};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::sqpoll::{Poller, PollerStep, Stepped};
use mainspring_ring::order::{OrderPolicy, service_order};
use mainspring_ring::{AccountingTarget, RingMode, SQES_PER_PASS, SqpollGrant};
use std::time::Instant;

/// How long a poller that found nothing looks at the ring before it looks up: how late it may notice that others should run.
const LOOK: std::time::Duration = std::time::Duration::from_micros(2);

impl Inside {
    pub(super) fn accepted(&mut self, by_owner: bool) -> &mut Accepted {
        if by_owner { &mut self.by_owner } else { &mut self.by_poller }
    }

    /// The poller has used `spent` of CPU time until `now`, which its account is charged with.
    pub(super) fn charge(&mut self, now: Nanos, spent: Nanos) {
        let (_, _, sqpoll) = self.endpoint.parts();
        self.charged_ns += sqpoll.charge(now - spent, now).elapsed.get();
    }

    /// What the poller has just accepted stands in the order of service from now on.
    fn put_in_order(&mut self, ring: &Ring) {
        let policy = OrderPolicy::ByDeadline { window: usize::from(ring.spec.window) };
        let batch: Vec<_> = self.by_poller.waiting.iter().map(|(entry, _)| (*entry, ring.method())).collect();
        let order = service_order(policy, self.mode(), &batch);
        let mut accepted: Vec<Option<_>> = self.by_poller.waiting.drain(..).map(Some).collect();
        self.by_poller.waiting.extend(order.iter().filter_map(|index| accepted[index].take()));
    }
}

/// What a poller is allowed at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// To poll, on this account.
    Poll(AccountingTarget),
    /// Not before its lease is live.
    Wait,
}

impl Ring {
    /// Whether `instance` may poll: it is not the owner, and no other that `lives` polls.
    pub fn may_poll(&self, instance: usize, thread: ThreadRef, lives: impl Fn(usize) -> bool) -> bool {
        let mut inside = self.locked();
        let other = inside.poller.filter(|poller| *poller != instance);
        let allowed = self.spec.sqpoll && self.owner != instance && !other.is_some_and(lives);
        if allowed {
            inside.poller = Some(instance);
            if inside.polling.thread() != thread {
                inside.polling = Poller::new(thread);
            }
        }
        allowed
    }

    /// Serves one batch; spins while there is none, and then sleeps. `leave` is asked before the ring is taken over.
    pub fn poll(&self, cx: &Cx, leave: impl Fn() -> Leave) {
        loop {
            // What a life before has accepted, or a revocation has left, is served first.
            let mut served = false;
            while self.serve_next(cx, false) {
                served = true;
            }
            if served {
                return;
            }
            match self.step(cx, &leave) {
                PollerStep::Serve { .. } => {}
                PollerStep::Spin { until } => self.spin(cx, until),
                PollerStep::Sleep | PollerStep::NotPolling => {
                    self.poller_bell.wait(cx, WaitReason::Io, None);
                }
            }
        }
    }

    /// A poller that may not poll waits until something changes.
    pub fn wait_to_poll(&self, cx: &Cx) {
        self.poller_bell.wait(cx, WaitReason::Io, None);
    }

    fn step(&self, cx: &Cx, leave: &impl Fn() -> Leave) -> PollerStep {
        // Before the lock: a lease that ends takes the lock of the ring.
        let (leave, at) = (leave(), now(cx));
        let mut inside = self.locked();
        if inside.mode() != RingMode::Sqpoll {
            let Leave::Poll(accounting) = leave else { return PollerStep::NotPolling };
            let grant = SqpollGrant { accounting, spin: self.spec.idle_spin };
            let Inside { endpoint, polling, closed, .. } = &mut *inside;
            if *closed || polling.start(endpoint, grant).is_err() {
                return PollerStep::NotPolling;
            }
        }
        let limit = match self.spec.reorder {
            true => SQES_PER_PASS.max(self.spec.window.into()),
            false => SQES_PER_PASS,
        };
        let Inside { endpoint, polling, by_poller, .. } = &mut *inside;
        let accept = |entry, place| by_poller.waiting.push_back((entry, place));
        let Stepped { next, held_back } = polling.step(endpoint, at, limit, accept);
        if matches!(next, PollerStep::Serve { .. }) && self.spec.reorder {
            inside.put_in_order(self);
        }
        // There is room again, or the owner has to make some.
        if inside.waits_for_room && (held_back || matches!(next, PollerStep::Serve { .. })) {
            self.owner_bell.unpark();
        }
        next
    }

    /// Looks at the ring until something comes or `until`.
    fn spin(&self, cx: &Cx, until: Nanos) {
        let began = cx.cpu_time().unwrap_or_default();
        while now(cx) < until {
            {
                let mut inside = self.locked();
                if inside.mode() != RingMode::Sqpoll
                    || inside.submitter.in_queue().is_ok_and(|queued| queued > 0)
                {
                    break;
                }
            }
            let looked = Instant::now();
            while looked.elapsed() < LOOK {
                std::hint::spin_loop();
            }
            cx.check();
            cx.look_up();
        }
        let (spun, at) = (nanos(cx.cpu_time().unwrap_or_default().saturating_sub(began)), now(cx));
        let mut inside = self.locked();
        inside.report.spins_ns += spun.get();
        inside.charge(at, spun);
    }
}
