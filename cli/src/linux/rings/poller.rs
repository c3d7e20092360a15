//! The task that serves a ring for its owner: start, service, spin, sleep, wake.

use super::Ring;
use crate::linux::player::{nanos, now};
use mainspring::{Cx, WaitReason};
use mainspring_abi::{Nanos, ThreadRef};
use mainspring_driver::local_ring::Server;
use mainspring_driver::sqpoll::{PollerStep, Stepped};
use mainspring_ring::{AccountingTarget, RingMode, SqpollGrant};
use std::time::Instant;

/// How long a poller that found nothing looks at the ring before it looks up: how late it may notice that others should run.
const LOOK: std::time::Duration = std::time::Duration::from_micros(2);

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
            inside.local.set_poller(thread);
        }
        allowed
    }

    /// Serves one batch; spins while there is none, and then sleeps. `leave` is asked before the ring is taken over.
    pub fn poll(&self, cx: &Cx, leave: impl Fn() -> Leave) {
        loop {
            // What a life before has accepted, or a revocation has left, is served first.
            let mut served = false;
            while self.serve_next(cx, Server::Poller) {
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
        if inside.local.mode() != RingMode::Sqpoll {
            let Leave::Poll(accounting) = leave else { return PollerStep::NotPolling };
            let grant = SqpollGrant { accounting, spin: self.spec.idle_spin };
            if !inside.local.start_polling(grant) {
                return PollerStep::NotPolling;
            }
        }
        let Stepped { next, held_back } = inside.local.poll(at);
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
                if inside.local.mode() != RingMode::Sqpoll || inside.local.queued() > 0 {
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
        self.locked().local.spun(at, spun);
    }
}
