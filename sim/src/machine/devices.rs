//! Devices that interrupt: bursts at times of their own, work that the interrupted CPU does, and threads that they wake.
//!
//! Conserved: the time that a device takes is booked on its CPU and on nothing else; an idle CPU does the work for nothing, as with
//! every other interrupt of the simulator.

use super::Machine;
use super::overhead::Cost;
use crate::random::{Random, Stream};
use mainspring_abi::Nanos;
use mainspring_workload::Workload;

/// The devices of a workload.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// By device, when it interrupts next.
    next: Vec<Nanos>,
    random: Vec<Random>,
}

impl Devices {
    /// Each begins a draw of its `every` after the start.
    pub(super) fn new(workload: &Workload, seed: u64) -> Self {
        let mut devices = Self::default();
        for (number, spec) in workload.interrupts.iter().enumerate() {
            // Beyond the numbers that threads can have.
            let mut random = Random::new(seed, Stream::Thread(number + mainspring_workload::MAX_THREADS));
            devices.next.push(workload.draw(spec.every, &mut random).max(Nanos::new(1)));
            devices.random.push(random);
        }
        devices
    }

    pub(super) fn any(&self) -> bool {
        !self.next.is_empty()
    }

    /// When one interrupts next.
    pub(super) fn next(&self) -> Nanos {
        self.next.iter().copied().min().unwrap_or(Nanos::MAX)
    }
}

impl Machine<'_> {
    /// The first device whose time has come interrupts.
    pub(super) fn raise_interrupts(&mut self) {
        let now = self.now;
        let Some(device) = self.devices.next.iter().position(|next| *next == now) else { return };
        let spec = &self.workload.interrupts[device];
        let random = &mut self.devices.random[device];
        let mut work = Nanos::ZERO;
        for _ in 0..spec.burst {
            work += self.workload.draw(spec.work, random);
        }
        self.devices.next[device] = now + self.workload.draw(spec.every, random).max(Nanos::new(1));
        self.interrupt(spec.cpu, Cost::Device, work);
        self.touch(spec.cpu);
        if let Some(target) = spec.wakes {
            for index in self.targets(target) {
                self.unpark(None, index);
            }
        }
    }
}
