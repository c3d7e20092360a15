//! A workload as 64-bit words, for the user program that plays it on the kernel.
//!
//! ```text
//! MAGIC, duration in ns, seed, how many tables, contexts, operations, leases, rings and islands
//! each table:     process, instances, weight, latency class, request in ns (0: by class), CPU bits (0: all),
//!                 earliest and latest start (NONE: spawned), times (NONE: for ever), context (NONE: none), process of the
//!                 workload, session (NONE: none), then its steps, as `core/program` writes them
//! each context:   process, how many instances, process of the workload whose default it is (NONE: none)
//! each operation: process, time in ns, one of `operation`, and four words
//! each lease:     process, thread (a table and an instance), CPU bits, one of `mode`, ring (NONE: none), context and instance that
//!                 pay (NONE: the ledger), longest revocation, lifetime (0: none), endpoint that is told of its end (NONE: none),
//!                 whether its CPU does without a tick, when it is asked for (NONE: by a step)
//! each ring:      owner (a table and an instance), how long its poller spins in ns (0: not at all), table in whose place the kernel
//!                 polls (NONE: none), whether threads poll it, whether it may be polled, entries, what serving one takes in ns, among
//!                 how many the earliest deadline goes first (0: in the order of submission)
//! each island:    process, when it asks, period, deadline, CPU bits (0: all), one of `overrun`, pages of memory, how many nodes, then
//!                 the nodes: context and instance, budget, period, deadline, CPU bits (0: all), endpoints that are served on it, bit by
//!                 bit
//! then the distributions, and the mutexes, semaphores, barriers and conditions, as `core/program` writes them
//! how many devices, then each:
//!                 process, CPU, interrupts in a burst, threads that it wakes (a table and an instance, NONE: none), the number of its
//!                 random stream; from burst to burst, and the work of an interrupt, as `core/program` writes them
//! how many networks (0 or 1), then it:
//!                 process, CPU, how often work arrives, how much, the longest poll, whether it tells its next deadline, tick in ns
//! how many policy services (0 or 1), then it:
//!                 process, thread (a table and an instance), recovery thread (the same, NONE: none), its first epoch
//! ```
//!
//! Every process reads the whole plan and plays the tables that are its own, by the number that it is started with. It does the
//! operations on what it owns. Instance `n` of context `c` is granted to its process as `context:c.n`, and a process that has
//! threads in session `s` finds that as `session:s`. A table in whose
//! place the kernel polls has no thread of its own: its instance is the kernel's poller.

use crate::frame::MAX_NOTE;

/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MSPLAN08");

/// Absent.
pub const NONE: u64 = u64::MAX;

/// What happens when a node of an island is used up. Above that, from the bit [`DECLARED`](overrun::DECLARED) on, what the island
/// says of its hot path.
pub mod overrun {
    /// The first bit of what it says.
    pub const DECLARED: u32 = 8;
    /// Its nodes wait for locks that may be held for any time.
    pub const UNBOUNDED_LOCKS: u64 = 1;
    /// They wait for servers on their own time.
    pub const BLOCKING_CALLS: u64 = 2;
    /// They use memory that does not stay.
    pub const NORMAL_MEMORY: u64 = 4;
    /// Its thread waits for the next refill.
    pub const THROTTLE: u64 = 0;
    /// Its thread goes on as best effort, and the island's owner is told.
    pub const NOTIFY: u64 = 1;
    /// Its handler is told, or its thread ends.
    pub const FAULT: u64 = 2;
    /// The island ends.
    pub const SHUTDOWN: u64 = 3;
}

/// What a lease is for.
pub mod mode {
    /// A thread that computes.
    pub const COMPUTE: u64 = 0;
    /// The kernel's poller of a ring.
    pub const KERNEL_SQPOLL: u64 = 1;
    /// A thread that polls.
    pub const POLLER: u64 = 2;
    /// Other work of the kernel.
    pub const KERNEL_WORKER: u64 = 3;
}

/// What is done at a time.
pub mod operation {
    /// Context and an instance of it, or NONE for all.
    pub const REVOKE: u64 = 0;
    /// Session.
    pub const LOGOUT: u64 = 1;
    /// Context and an instance of it, or NONE for all; budget; period.
    pub const ADJUST: u64 = 2;
    /// Table and an instance of it, or NONE for all.
    pub const EXIT: u64 = 3;
    /// Lease.
    pub const REVOKE_LEASE: u64 = 4;
    /// Island.
    pub const LEAVE: u64 = 5;
    /// Endpoint.
    pub const CLOSE: u64 = 6;
    /// Table and an instance of it, or NONE for all; weight; epoch.
    pub const POLICY_WEIGHT: u64 = 7;
    /// Table and an instance of it, or NONE for all; latency class; epoch.
    pub const POLICY_CLASS: u64 = 8;
    /// Nothing: the policy service is not heard of any more.
    pub const POLICY_STALLS: u64 = 9;
    /// Nothing: the policy service ends.
    pub const POLICY_DIES: u64 = 10;
}

/// Words before the first table.
pub const HEADER_WORDS: usize = 9;
/// Words of a table before its steps.
pub const TABLE_WORDS: usize = 12;
/// Words of a context.
pub const CONTEXT_WORDS: usize = 3;
/// Words of an operation.
pub const OPERATION_WORDS: usize = 7;
/// Words of a lease.
pub const LEASE_WORDS: usize = 13;
/// Words of a ring.
pub const RING_WORDS: usize = 9;
/// Words of a device before what it draws.
pub const DEVICE_WORDS: usize = 6;
/// Words of a network.
pub const NETWORK_WORDS: usize = 7;
/// Words of a policy service.
pub const POLICY_WORDS: usize = 6;
/// Words of an island before its nodes.
pub const ISLAND_WORDS: usize = 8;
/// Words of a node.
pub const NODE_WORDS: usize = 7;

/// Times of calls that one note has.
pub const REPLIES: usize = 3;

/// Bytes of a text that one note has.
pub const TEXT: usize = 40;

/// What a workload program says of itself: the contents of a note frame ([`crate::frame::Frame::Note`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// An instance began a life as the kernel's thread in this slot.
    Started {
        /// Its number, counted over all tables. Devices follow them, and then the network.
        instance: u32,
        /// The slot.
        slot: u32,
    },
    /// What an instance counted in all its lives.
    Counted {
        /// Its number, counted over all tables.
        instance: u32,
        /// Multiples of its period that it was late for.
        misses: u64,
        /// Waits that ended by their timeout.
        timeouts: u64,
        /// Steps that the kernel refused.
        refusals: u64,
        /// Calls that failed.
        failures: u64,
    },
    /// A life of an instance began, and its first job with it. Notes of jobs are in their order.
    Lives {
        /// Its number, counted over all tables.
        instance: u32,
        /// When.
        at: u64,
    },
    /// A job of an instance came to its `every` step.
    Job {
        /// Its number, counted over all tables.
        instance: u32,
        /// When it had a CPU first.
        started: u64,
        /// When it was done.
        finished: u64,
        /// The period of the step.
        period: u64,
    },
    /// A life of an instance is over, in the middle of a job with this period, or with 0 in none.
    Ended {
        /// Its number, counted over all tables.
        instance: u32,
        /// When.
        at: u64,
        /// The period.
        period: u64,
    },
    /// How a context fared, at the end of the run.
    Context {
        /// Its table and instance.
        context: (u32, u32),
        /// Its number.
        id: u32,
        /// Its CPU, and where it is: see [`place`].
        cpu: u32,
        /// See [`place`].
        place: u32,
        /// What was used.
        used: u64,
        /// What of it was used on loan.
        donated: u64,
        /// How often it was used up.
        depletions: u32,
        /// How often it was late.
        misses: u32,
        /// The furthest that a holder ran past it.
        overshoot: u64,
    },
    /// How a lease fared, at the end of the run.
    Lease {
        /// Which.
        lease: u32,
        /// See [`lease_state`].
        state: u32,
        /// How often its first CPU was without a tick.
        activations: u64,
        /// Ticks that were spared.
        suppressed: u64,
        /// How long a poller ran there.
        polled_ns: u64,
        /// How often it slept.
        sleeps: u64,
    },
    /// How a ring fared, at the end of the run.
    Ring {
        /// Which.
        ring: u32,
        /// Whether the kernel polls it.
        polled: bool,
        /// Entries that were submitted.
        submitted: u64,
        /// Entries whose completion was taken.
        completed: u64,
        /// Of those, entries that were dropped because they were late.
        dropped: u64,
        /// Of those, entries that were served though they were late.
        late: u64,
        /// How often the poller had to be woken.
        wakeups: u64,
    },
    /// How a ring that threads poll fared besides, at the end of the run.
    Polled {
        /// Which.
        ring: u32,
        /// See [`ring_mode`].
        mode: u32,
        /// How often its poller slept.
        sleeps: u64,
        /// How often entries waited for room among the completions.
        overflow: u64,
        /// What serving took.
        busy_ns: u64,
        /// How long its poller spun.
        spins_ns: u64,
        /// What its poller was charged.
        charged_ns: u64,
    },
    /// What became of the calls of one process to an endpoint, at the end of the run.
    Calls {
        /// Which.
        endpoint: u32,
        /// Calls that were accepted.
        accepted: u64,
        /// Calls that were answered.
        replied: u64,
        /// Calls that ended without an answer.
        failed: u64,
    },
    /// Times of calls to an endpoint.
    Replies {
        /// Which.
        endpoint: u32,
        /// How many times there are.
        count: u32,
        /// When each call was made, and how long it took until its reply; then zeroes.
        times: [(u64, u64); REPLIES],
    },
    /// What happened at a mutex, semaphore, barrier or condition, at the end of the run.
    Sync {
        /// Which.
        object: u32,
        /// How often a thread got what it came for.
        taken: u64,
        /// How often a thread had to wait.
        waits: u64,
        /// How often it waited in vain.
        timeouts: u64,
        /// How long all waited that were successful.
        waited: u64,
        /// The longest of these waits.
        wait_max: u64,
    },
    /// An update of the policy service was refused, at a time, and for a reason in words: those of its parts, one after the other.
    PolicyRefused {
        /// When.
        at: u64,
        /// Which part of the reason this is.
        part: u32,
        /// The words, and then zeroes.
        text: [u8; TEXT],
    },
    /// How the policy service fared, at the end of the run.
    Policy {
        /// Updates with a change that were taken.
        taken: u32,
        /// How often it was slow.
        slow_times: u32,
        /// When it first was.
        slow_at: u64,
        /// The last epoch that was taken.
        epoch: u64,
        /// When it was lost last.
        lost_at: u64,
        /// Why: see [`loss`].
        lost: u32,
    },
    /// How an island fared, at the end of the run.
    Island {
        /// Which.
        island: u32,
        /// Why it was refused: the number of the error; 0 if it was not.
        refused: u32,
        /// When it was admitted; 0 if it was not.
        admitted: u64,
        /// When it ended, by the kernel; 0 if it has not.
        left: u64,
        /// An overrun ended it.
        shut_down: bool,
    },
    /// A context has other terms from now on; told when it gets them.
    Adjusted {
        /// Which, as a table and an instance.
        context: (u32, u32),
        /// Since when.
        at: u64,
        /// CPU time in each period.
        budget: u64,
        /// The period.
        period: u64,
        /// When it is due after its release.
        deadline: u64,
    },
}

/// What became of a lease: one of these, or the number of the error that refused it and [`REFUSED`](lease_state::REFUSED).
pub mod lease_state {
    /// Nobody asked for it.
    pub const NOT_ASKED: u32 = 0;
    /// It was granted; how it ended is `GRANTED` and a number of the kernel's `LeaseEnd`.
    pub const GRANTED: u32 = 0x100;
    /// The first of the refusals.
    pub const REFUSED: u32 = 0x1_0000;
}

/// Who serves a ring that threads poll.
pub mod ring_mode {
    /// Its owner.
    pub const SYSCALL: u32 = 0;
    /// Its poller.
    pub const RUNNING: u32 = 1;
    /// Its poller, which sleeps.
    pub const SLEEPING: u32 = 2;
}

/// Why the policy service was lost.
pub mod loss {
    /// It was not.
    pub const NEVER: u32 = 0;
    /// It was silent for too long.
    pub const SILENT: u32 = 1;
    /// It ended.
    pub const EXITED: u32 = 2;
    /// Too many of its updates in a row were refused.
    pub const CUT_OFF: u32 = 3;
}

/// Where a context is.
pub mod place {
    /// At rest.
    pub const REST: u32 = 0;
    /// With its thread.
    pub const BOUND: u32 = 1;
    /// On loan.
    pub const LENT: u32 = 2;
    /// Gone.
    pub const GONE: u32 = 3;
}

/// Bytes of a [`Note`].
pub const NOTE_BYTES: usize = WORDS * 8;
const WORDS: usize = 8;

const _: () = assert!(NOTE_BYTES <= MAX_NOTE);

const STARTED: u64 = 1;
const COUNTED: u64 = 2;
const LIVES: u64 = 3;
const JOB: u64 = 4;
const ENDED: u64 = 5;
const CONTEXT: u64 = 6;
const LEASE: u64 = 7;
const RING: u64 = 8;
const ISLAND: u64 = 9;
const SYNC: u64 = 10;
const POLICY_REFUSED: u64 = 11;
const POLICY: u64 = 12;
const POLLED: u64 = 13;
const CALLS: u64 = 14;
const REPLIED: u64 = 15;
const ADJUSTED: u64 = 16;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Note {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NOTE_BYTES] {
        let words: [u64; WORDS] = match self {
            Self::Started { instance, slot } => [STARTED, instance.into(), slot.into(), 0, 0, 0, 0, 0],
            Self::Counted { instance, misses, timeouts, refusals, failures } => {
                [COUNTED, instance.into(), misses, timeouts, refusals, failures, 0, 0]
            }
            Self::Lives { instance, at } => [LIVES, instance.into(), at, 0, 0, 0, 0, 0],
            Self::Job { instance, started, finished, period } => {
                [JOB, instance.into(), started, finished, period, 0, 0, 0]
            }
            Self::Ended { instance, at, period } => [ENDED, instance.into(), at, period, 0, 0, 0, 0],
            Self::Context { context, id, cpu, place, used, donated, depletions, misses, overshoot } => [
                CONTEXT,
                pair(context.0, context.1),
                pair(id, cpu),
                place.into(),
                used,
                donated,
                pair(depletions, misses),
                overshoot,
            ],
            Self::Lease { lease, state, activations, suppressed, polled_ns, sleeps } => {
                [LEASE, pair(lease, state), activations, suppressed, polled_ns, sleeps, 0, 0]
            }
            Self::Ring { ring, polled, submitted, completed, dropped, late, wakeups } => {
                [RING, pair(ring, polled.into()), submitted, completed, dropped, late, wakeups, 0]
            }
            Self::Polled { ring, mode, sleeps, overflow, busy_ns, spins_ns, charged_ns } => {
                [POLLED, pair(ring, mode), sleeps, overflow, busy_ns, spins_ns, charged_ns, 0]
            }
            Self::Calls { endpoint, accepted, replied, failed } => {
                [CALLS, endpoint.into(), accepted, replied, failed, 0, 0, 0]
            }
            Self::Replies { endpoint, count, times: [(a, b), (c, d), (e, f)] } => {
                [REPLIED, pair(endpoint, count), a, b, c, d, e, f]
            }
            Self::Sync { object, taken, waits, timeouts, waited, wait_max } => {
                [SYNC, object.into(), taken, waits, timeouts, waited, wait_max, 0]
            }
            Self::PolicyRefused { at, part, text } => {
                let mut words = [POLICY_REFUSED, part.into(), at, 0, 0, 0, 0, 0];
                for (word, bytes) in words[3..].iter_mut().zip(text.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                words
            }
            Self::Policy { taken, slow_times, slow_at, epoch, lost_at, lost } => {
                [POLICY, pair(taken, slow_times), slow_at, epoch, lost_at, lost.into(), 0, 0]
            }
            Self::Island { island, refused, admitted, left, shut_down } => {
                [ISLAND, pair(island, refused), admitted, left, shut_down.into(), 0, 0, 0]
            }
            Self::Adjusted { context, at, budget, period, deadline } => {
                [ADJUSTED, pair(context.0, context.1), at, budget, period, deadline, 0, 0]
            }
        };
        let mut bytes = [0; NOTE_BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// From bytes; `None` if they are no note of a workload program.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let whole: &[u8; NOTE_BYTES] = bytes.try_into().ok()?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(whole.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [kind, who, a, b, c, d, e, f] = words;
        let (instance, _) = halves(who);
        let note = match kind {
            STARTED => Self::Started { instance, slot: u32::try_from(a).ok()? },
            COUNTED => Self::Counted { instance, misses: a, timeouts: b, refusals: c, failures: d },
            LIVES => Self::Lives { instance, at: a },
            JOB => Self::Job { instance, started: a, finished: b, period: c },
            ENDED => Self::Ended { instance, at: a, period: b },
            CONTEXT => {
                let ((id, cpu), (depletions, misses)) = (halves(a), halves(e));
                let place = u32::try_from(b).ok()?;
                let context = halves(who);
                Self::Context {
                    context,
                    id,
                    cpu,
                    place,
                    used: c,
                    donated: d,
                    depletions,
                    misses,
                    overshoot: f,
                }
            }
            LEASE => {
                let (lease, state) = halves(who);
                Self::Lease { lease, state, activations: a, suppressed: b, polled_ns: c, sleeps: d }
            }
            SYNC => Self::Sync { object: instance, taken: a, waits: b, timeouts: c, waited: d, wait_max: e },
            RING => {
                let (ring, polled) = halves(who);
                Self::Ring {
                    ring,
                    polled: polled == 1,
                    submitted: a,
                    completed: b,
                    dropped: c,
                    late: d,
                    wakeups: e,
                }
            }
            CALLS => Self::Calls { endpoint: instance, accepted: a, replied: b, failed: c },
            REPLIED => {
                let (endpoint, count) = halves(who);
                Self::Replies { endpoint, count, times: [(a, b), (c, d), (e, f)] }
            }
            POLLED => {
                let (ring, mode) = halves(who);
                Self::Polled { ring, mode, sleeps: a, overflow: b, busy_ns: c, spins_ns: d, charged_ns: e }
            }
            ISLAND => {
                let (island, refused) = halves(who);
                Self::Island { island, refused, admitted: a, left: b, shut_down: c == 1 }
            }
            ADJUSTED => Self::Adjusted { context: halves(who), at: a, budget: b, period: c, deadline: d },
            POLICY_REFUSED => {
                let mut text = [0; TEXT];
                for (bytes, word) in text.as_chunks_mut().0.iter_mut().zip(&words[3..]) {
                    *bytes = word.to_le_bytes();
                }
                Self::PolicyRefused { at: a, part: instance, text }
            }
            POLICY => {
                let (taken, slow_times) = halves(who);
                let lost = u32::try_from(d).ok()?;
                Self::Policy { taken, slow_times, slow_at: a, epoch: b, lost_at: c, lost }
            }
            _ => return None,
        };
        // What has one form only is read from that form only.
        (note.to_bytes() == *whole).then_some(note)
    }
}
