//! Devices that interrupt, and the network: each is a driver, a thread that nobody else is in the way of on its CPU.
//!
//! As any driver of this kernel it is a thread that waits. What wakes it is the interrupt of its CPU's timer, at the times at which the
//! device of the workload interrupts; these, and the work, are the same draws as in the simulator.

use crate::plan::{Plan, plan};
use crate::tell;
use core::cell::RefCell;
use mainspring_abi::plan::{DEVICE_WORDS, NETWORK_WORDS, NONE, Note};
use mainspring_program::{Coded, Drawn, ThreadTarget, Words};
use mainspring_random::{Random, Stream};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::LatencyClass;
use mainspring_user::{CapError, say};

/// What a driver weighs: it goes first wherever it is.
const WEIGHT: u32 = 4096;

/// A device of the workload.
pub struct Device {
    process: u64,
    cpu: u64,
    /// Interrupts that come at once.
    burst: u64,
    wakes: Option<ThreadTarget>,
    /// The number of its random stream.
    stream: usize,
    /// From burst to burst, and what one interrupt takes.
    every: Drawn,
    work: Drawn,
}

/// A network stack.
pub struct Network {
    process: u64,
    cpu: u64,
    every: u64,
    work: u64,
    /// The longest poll.
    budget: u64,
    /// Whether it knows when it has something to do next. Otherwise it looks at each tick.
    clock: bool,
    tick: u64,
}

impl Device {
    /// The next one of a plan.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let [process, cpu, burst, table, instance, stream] = words.take::<DEVICE_WORDS>()?;
        let wakes = (table != NONE).then_some(ThreadTarget {
            thread: table as usize,
            instance: (instance != NONE).then_some(instance as u32),
        });
        let (every, work) = (Coded::read(words)?, Coded::read(words)?);
        Some(Self { process, cpu, burst, wakes, stream: stream as usize, every, work })
    }

    /// Interrupts until the run is over.
    fn drive(&self) -> Result<(), CapError> {
        let random = RefCell::new(Random::new(plan().seed, Stream::Thread(self.stream)));
        let draw =
            |drawn: Drawn| drawn.draw(&mut random.borrow_mut(), |number| &plan().distributions[number]).get();
        let mut due = plan().began + draw(self.every).max(1);
        loop {
            caps::sleep_until(due)?;
            let work = (0..self.burst).fold(0_u64, |work, _| work.saturating_add(draw(self.work)));
            due += draw(self.every).max(1);
            if let Some(target) = self.wakes {
                plan().unpark(target)?;
            }
            caps::compute(work)?;
        }
    }
}

impl Network {
    /// The one of a plan.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let [process, cpu, every, work, budget, clock, tick] = words.take::<NETWORK_WORDS>()?;
        Some(Self { process, cpu, every, work, budget, clock: clock == 1, tick })
    }

    /// Polls until the run is over: when it has something to do, if it can tell, or else at each tick. What is beyond its budget
    /// waits for its next poll.
    fn drive(&self) -> Result<(), CapError> {
        let began = plan().began;
        let (mut arrives, mut backlog, mut ticks) = (began + self.every, 0_u64, began);
        loop {
            if self.clock {
                if backlog == 0 {
                    caps::sleep_until(arrives)?;
                } else {
                    caps::yield_now();
                }
            } else {
                ticks += self.tick;
                caps::sleep_until(ticks)?;
            }
            let now = caps::now();
            while arrives <= now {
                backlog = backlog.saturating_add(self.work);
                arrives += self.every;
            }
            let spent = backlog.min(self.budget);
            backlog -= spent;
            caps::compute(spent)?;
        }
    }
}

/// Starts the drivers of this process.
pub fn begin(plan: &'static Plan, mine: u64) {
    for (number, device) in plan.devices.iter().enumerate().filter(|(_, device)| device.process == mine) {
        spawn(plan.instances.len() + number, device.cpu, || device.drive());
    }
    if let Some(network) = plan.network.as_ref().filter(|network| network.process == mine) {
        spawn(plan.instances.len() + plan.devices.len(), network.cpu, || network.drive());
    }
}

/// A driver on its CPU, which the host knows by its `number`.
fn spawn(number: usize, cpu: u64, drive: impl FnOnce() -> Result<(), CapError> + Send + 'static) {
    let options =
        ThreadOptions { weight: WEIGHT, class: LatencyClass::Interactive, request_ns: 0, cpus: 1 << cpu };
    let driver = caps::spawn(options, move || {
        // It goes on until the run is over, unless the kernel refuses it something that it needs.
        let refused = drive();
        say!("workload: a driver has ended: {refused:?}");
        1
    });
    match driver {
        Ok(thread) => tell(Note::Started { instance: number as u32, slot: thread.slot() }),
        Err(code) => say!("workload: a driver was refused: {code:?}"),
    }
}
