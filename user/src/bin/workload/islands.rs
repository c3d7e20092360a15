//! The realtime islands of a process, by their places in the plan.
//!
//! Conserved: the threads of an island's nodes are bound to its contexts exactly if all of it was admitted; if not, they run as best
//! effort.

use crate::leases::persist;
use crate::plan::plan;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_abi::plan::{ISLAND_WORDS, NODE_WORDS, NONE, Note, overrun, place};
use mainspring_program::Words;
use mainspring_user::caps::{self, IslandNode, IslandSpec};
use mainspring_user::schema::OverrunPolicy;
use mainspring_user::{CapError, arch};
use spin::Mutex;

/// An island of the plan.
pub struct Island {
    pub process: u64,
    /// When it asks.
    pub start: u64,
    period: u64,
    deadline: u64,
    cpus: u64,
    overrun: u64,
    pages: u64,
    /// The contexts of its nodes, each as a table and an instance, and what each needs.
    nodes: Vec<((u64, u64), IslandNode)>,
    held: Mutex<Option<caps::Island>>,
    refused: AtomicU32,
    admitted: AtomicU64,
    left: AtomicU64,
    /// How its nodes fared when it was last looked at.
    last: Mutex<Option<caps::IslandInfo>>,
}

impl Island {
    /// Reads one; `None` if the words are none.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let [process, start, period, deadline, cpus, overrun, pages, count] = words.take::<ISLAND_WORDS>()?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            let [context, instance, budget_ns, period_ns, deadline_ns, cpus] = words.take::<NODE_WORDS>()?;
            nodes.push(((context, instance), IslandNode { budget_ns, period_ns, deadline_ns, cpus }));
        }
        Some(Self {
            process,
            start,
            period,
            deadline,
            cpus,
            overrun,
            pages,
            nodes,
            held: Mutex::new(None),
            refused: AtomicU32::new(0),
            admitted: AtomicU64::new(0),
            left: AtomicU64::new(0),
            last: Mutex::new(None),
        })
    }

    /// Asks for it, with its memory.
    pub fn ask(&self) {
        match self.admit() {
            Ok(island) => {
                *self.held.lock() = Some(island);
                self.admitted.store(caps::now() - plan().began, Ordering::Relaxed);
            }
            Err(code) => self.refused.store(u32::from(code as u16), Ordering::Relaxed),
        }
    }

    fn admit(&self) -> Result<caps::Island, CapError> {
        let pages = u32::try_from(self.pages).map_err(|_| CapError::QuotaExceeded)?;
        let object = if pages == 0 { None } else { Some(caps::create_object(pages)?) };
        let nodes: Vec<IslandNode> = self.nodes.iter().map(|(_, node)| *node).collect();
        let spec = IslandSpec {
            period_ns: self.period,
            deadline_ns: self.deadline,
            cpus: self.cpus,
            overrun: match self.overrun & ((1 << overrun::DECLARED) - 1) {
                overrun::NOTIFY => OverrunPolicy::Notify,
                overrun::FAULT => OverrunPolicy::Fault,
                overrun::SHUTDOWN => OverrunPolicy::Shutdown,
                _ => OverrunPolicy::Throttle,
            },
            nodes: &nodes,
            memory: object.as_slice(),
            unbounded_locks: self.declares(overrun::UNBOUNDED_LOCKS),
            blocking_calls: self.declares(overrun::BLOCKING_CALLS),
            normal_memory: self.declares(overrun::NORMAL_MEMORY),
            ..IslandSpec::default()
        };
        let authority = authority().ok_or(CapError::Denied)?;
        caps::admit_island(&authority, &spec)
    }

    fn declares(&self, what: u64) -> bool {
        self.overrun >> overrun::DECLARED & what != 0
    }

    /// It leaves.
    pub fn leave(&self) {
        self.look();
        if let Some(island) = *self.held.lock()
            && island.leave().is_ok()
        {
            self.left.store(caps::now() - plan().began, Ordering::Relaxed);
        }
    }

    /// What is known of it, kept for when it has left.
    fn look(&self) -> Option<caps::IslandInfo> {
        let island = (*self.held.lock())?;
        let info = persist(|| island.info()).ok()?;
        if info.nodes > 0 {
            *self.last.lock() = Some(info);
        }
        Some(info).filter(|info| info.live)
    }

    fn node_of(&self, context: (u64, u64)) -> Option<usize> {
        self.nodes.iter().position(|(of, _)| *of == context)
    }

    /// Tells how it and its nodes fared.
    pub fn tell(&self, number: usize) {
        let live = self.look().is_some();
        let admitted = self.admitted.load(Ordering::Relaxed);
        let mut left = self.left.load(Ordering::Relaxed);
        if admitted != 0 && !live && left == 0 {
            // It was shut down.
            left = caps::now() - plan().began;
        }
        let refused = self.refused.load(Ordering::Relaxed);
        crate::tell(Note::Island {
            island: number as u32,
            refused,
            admitted: admitted.max(u64::from(refused == 0 && live)),
            left,
        });
        let Some(info) = *self.last.lock() else { return };
        for (node, ((table, instance), _)) in self.nodes.iter().enumerate() {
            crate::tell(Note::Context {
                context: (*table as u32, *instance as u32),
                id: info.contexts[node],
                cpu: info.cpus[node],
                place: if live { place::BOUND } else { place::GONE },
                used: info.used_ns[node],
                donated: info.donated_ns[node],
                depletions: info.depletions[node],
                misses: info.misses[node],
                overshoot: info.overshoot_ns[node],
            });
        }
    }
}

/// The name under which the process has the authority: it ends with a number.
fn authority() -> Option<heapless::String<16>> {
    let caps = &arch::startup().caps;
    let name = caps.iter().find(|cap| cap.name.starts_with(b"islands:"))?.name;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    heapless::String::try_from(core::str::from_utf8(&name[..end]).ok()?).ok()
}

/// A node that a context of the workload is.
#[derive(Clone, Copy)]
pub struct Node {
    island: caps::Island,
    node: u32,
    /// Where its time is set aside.
    pub cpu: u32,
}

impl Node {
    /// The calling thread runs on it from now on.
    pub fn bind(self) -> Result<(), CapError> {
        self.island.bind(self.node)
    }
}

/// The node that an instance of a context is; `Err` if its island was not admitted.
pub fn node_of(context: u64, instance: u64) -> Option<Result<Node, CapError>> {
    let named = (context, if instance == NONE { 0 } else { instance });
    let (island, node) = plan().islands.iter().find_map(|island| Some((island, island.node_of(named)?)))?;
    Some(island.look().zip(*island.held.lock()).ok_or(CapError::NotFound).map(|(info, held)| Node {
        island: held,
        node: node as u32,
        cpu: info.cpus[node],
    }))
}
