//! The steps at a ring that threads poll: what its owner and its poller do, and when they wait.

use super::{OwnerStep, Polled, wait};
use crate::plan::plan;
use crate::player::Player;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::ring::CapError;
use mainspring_driver::sqpoll::PollerStep;
use mainspring_program::Batch;
use mainspring_user::caps;

impl Player {
    fn serve_polled(&mut self, ring: &Polled, by_owner: bool) -> bool {
        // An entry whose time could not be spent is served all the same.
        ring.serve_next(by_owner, |cost| _ = self.run(cost))
    }

    /// `submit`: writes entries as long as there is room, and waits for some while there is none.
    pub fn submit_polled(&mut self, ring: &Polled, batch: &Batch) -> Result<(), CapError> {
        let mut left = batch.entries;
        loop {
            while self.serve_polled(ring, true) {}
            let seen = ring.owner_bell.load(Ordering::Acquire);
            match ring.submit_some(&mut left, batch) {
                OwnerStep::Done => return Ok(()),
                OwnerStep::Again => {}
                OwnerStep::Refused => return Err(CapError::Overloaded),
                OwnerStep::TimedOut => return Err(CapError::TimedOut),
                OwnerStep::Wait => {
                    let waited = wait(&ring.owner_bell, seen, None);
                    ring.with(|inside| inside.waits_for_room = false);
                    waited?;
                }
            }
        }
    }

    /// `complete`: takes completions, and waits for those that are missing, until `until`.
    pub fn complete_polled(
        &mut self,
        ring: &Polled,
        entries: u32,
        until: Option<u64>,
    ) -> Result<(), CapError> {
        let mut left = entries;
        loop {
            while self.serve_polled(ring, true) {}
            let seen = ring.owner_bell.load(Ordering::Acquire);
            match ring.reap_some(&mut left, until.is_some_and(|until| until <= caps::now())) {
                OwnerStep::Done => return Ok(()),
                OwnerStep::Again => {}
                OwnerStep::Refused => return Err(CapError::Overloaded),
                OwnerStep::TimedOut => return Err(CapError::TimedOut),
                OwnerStep::Wait => {
                    let waited = wait(&ring.owner_bell, seen, until);
                    ring.with(|inside| {
                        inside.awaited = 0;
                        inside.reaper.awake();
                    });
                    match waited {
                        // It looks once more, and then says so.
                        Ok(()) | Err(CapError::TimedOut) => {}
                        Err(code) => return Err(code),
                    }
                }
            }
        }
    }

    /// `poll`: serves one batch of ring `number`; spins while there is none, and then sleeps.
    pub fn poll(&mut self, number: usize) -> Result<(), CapError> {
        let Some(ring) = plan().rings[number].polled() else { return self.never_poll() };
        let owner = plan().rings[number].owner();
        let slot = self.me().slot.load(Ordering::Relaxed);
        loop {
            let seen = ring.poller_bell.load(Ordering::Acquire);
            if !ring.may_poll(self.number, owner, slot) {
                self.me().refusals.fetch_add(1, Ordering::Relaxed);
                wait(&ring.poller_bell, seen, None)?;
                continue;
            }
            let mut served = false;
            // What a life before has accepted, or a revocation has left, is served first.
            while self.serve_polled(ring, false) {
                served = true;
            }
            if served {
                return Ok(());
            }
            match ring.step(plan().rings[number].may_be_polled_now(number)) {
                PollerStep::Serve { .. } => {}
                PollerStep::Spin { until } => ring.spin(until.get()),
                PollerStep::Sleep | PollerStep::NotPolling => wait(&ring.poller_bell, seen, None)?,
            }
        }
    }

    /// The kernel polls the ring: a second poller is refused, and waits for ever.
    fn never_poll(&mut self) -> Result<(), CapError> {
        self.me().refusals.fetch_add(1, Ordering::Relaxed);
        let never = AtomicU32::new(0);
        wait(&never, 0, None)
    }
}
