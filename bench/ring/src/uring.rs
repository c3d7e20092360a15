//! The same trips through io_uring, with its NOP.

use crate::measure::{POLLER_CPU, Trip};
use io_uring::{IoUring, opcode, squeue};
use std::io;

const ENTRIES: u32 = 64;

/// How long the kernel's poller looks before it sleeps; the shortest that can be asked for is one millisecond.
#[derive(Clone, Copy)]
pub enum Poller {
    /// None: each batch is one system call.
    None,
    /// One that does not sleep during a measurement.
    Awake,
    /// One that sleeps as soon as it can.
    Sleepy,
}

pub struct Uring {
    ring: IoUring,
    poller: Poller,
}

impl Uring {
    pub fn new(poller: Poller) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        match poller {
            // What io_uring's documentation advises for one thread that submits and waits.
            Poller::None => builder.setup_single_issuer().setup_coop_taskrun(),
            Poller::Awake => builder.setup_sqpoll(10_000).setup_sqpoll_cpu(POLLER_CPU as u32),
            Poller::Sleepy => builder.setup_sqpoll(1).setup_sqpoll_cpu(POLLER_CPU as u32),
        };
        Ok(Self { ring: builder.build(ENTRIES)?, poller })
    }
}

impl Trip for Uring {
    fn trip(&mut self, batch: u32) {
        let (submitter, mut sq, mut cq) = self.ring.split();
        for id in 0..u64::from(batch) {
            push(&mut sq, &opcode::Nop::new().build().user_data(id));
        }
        sq.sync();
        let submitted = match self.poller {
            Poller::None => submitter.submit_and_wait(batch as usize),
            // Enters the kernel only when the poller sleeps.
            Poller::Awake | Poller::Sleepy => submitter.submit(),
        };
        submitted.expect("a NOP can be submitted");
        for id in 0..u64::from(batch) {
            let cqe = loop {
                if let Some(cqe) = cq.next() {
                    break cqe;
                }
                std::hint::spin_loop();
                cq.sync();
            };
            assert_eq!(cqe.user_data(), id);
        }
        cq.sync();
    }

    fn asleep(&mut self) -> bool {
        self.ring.submission().need_wakeup()
    }
}

#[allow(unsafe_code)]
fn push(sq: &mut squeue::SubmissionQueue<'_>, entry: &squeue::Entry) {
    // SAFETY: a NOP refers to no memory, so that nothing has to outlive it.
    unsafe { sq.push(entry) }.expect("the batch fits the queue");
}
