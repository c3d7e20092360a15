//! The realtime islands of a process, by their places in the plan.
//!
//! Conserved: the threads of an island's nodes are bound to its contexts exactly if all of it was admitted; if not, they run as best
//! effort.

use crate::endpoint_cap;
use crate::leases::persist;
use crate::plan::plan;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use mainspring_abi::plan::{ISLAND_WORDS, NODE_WORDS, NONE, Note, overrun, place};
use mainspring_program::Words;
use mainspring_user::caps::{self, IslandNode, IslandSpec};
use mainspring_user::schema::OverrunPolicy;
use mainspring_user::{CapError, arch, say};
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
    /// The contexts of its nodes, each as a table and an instance.
    nodes: Vec<(u64, u64)>,
    /// The endpoints that are served on each, bit by bit.
    serves: Vec<u64>,
    /// What each needs.
    terms: Mutex<Vec<IslandNode>>,
    /// It has asked.
    asked: AtomicBool,
    held: Mutex<Option<caps::Island>>,
    refused: AtomicU32,
    admitted: AtomicU64,
    /// How its nodes fared when it was last looked at.
    last: Mutex<Option<caps::IslandInfo>>,
}

impl Island {
    /// Reads one; `None` if the words are none.
    pub fn read(words: &mut Words<'_>) -> Option<Self> {
        let [process, start, period, deadline, cpus, overrun, pages, count] = words.take::<ISLAND_WORDS>()?;
        let (mut nodes, mut serves, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let [context, instance, budget_ns, period_ns, deadline_ns, cpus, endpoints] =
                words.take::<NODE_WORDS>()?;
            nodes.push((context, instance));
            serves.push(endpoints);
            terms.push(IslandNode { budget_ns, period_ns, deadline_ns, cpus });
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
            serves,
            terms: Mutex::new(terms),
            asked: AtomicBool::new(false),
            held: Mutex::new(None),
            refused: AtomicU32::new(0),
            admitted: AtomicU64::new(0),
            last: Mutex::new(None),
        })
    }

    /// Asks for it, with its memory.
    pub fn ask(&self) {
        match self.admit() {
            Ok(island) => {
                *self.held.lock() = Some(island);
                self.serve(island);
                self.admitted.store(caps::now() - plan().began, Ordering::Relaxed);
            }
            Err(code) => self.refused.store(u32::from(code as u16), Ordering::Relaxed),
        }
        self.asked.store(true, Ordering::Release);
    }

    fn admit(&self) -> Result<caps::Island, CapError> {
        let pages = u32::try_from(self.pages).map_err(|_| CapError::QuotaExceeded)?;
        let object = if pages == 0 { None } else { Some(caps::create_object(pages)?) };
        let authority = authority().ok_or(CapError::Denied)?;
        self.with_spec(&self.terms.lock(), object.as_slice(), |spec| caps::admit_island(&authority, spec))
    }

    /// Has the calls to the endpoints of its nodes served on them.
    fn serve(&self, island: caps::Island) {
        for (node, endpoints) in (0..).zip(&self.serves) {
            let bits = (0..u64::BITS as usize).filter(|bit| endpoints >> bit & 1 == 1);
            for endpoint in bits {
                if let Err(code) = island.serve(node, endpoint_cap("serve", endpoint)) {
                    say!("workload: an endpoint cannot be served on a node: {code:?}");
                }
            }
        }
    }

    fn with_spec<R>(
        &self,
        nodes: &[IslandNode],
        memory: &[u32],
        act: impl FnOnce(&IslandSpec<'_>) -> R,
    ) -> R {
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
            nodes,
            memory,
            unbounded_locks: self.declares(overrun::UNBOUNDED_LOCKS),
            blocking_calls: self.declares(overrun::BLOCKING_CALLS),
            normal_memory: self.declares(overrun::NORMAL_MEMORY),
            ..IslandSpec::default()
        };
        act(&spec)
    }

    /// Other terms for a node, and its deadline then. One whose island has not asked yet asks with these.
    fn adjust(&self, node: usize, budget_ns: u64, period_ns: u64) -> Result<u64, CapError> {
        let mut terms = self.terms.lock();
        let mut wanted = terms.clone();
        let deadline_ns = wanted[node].deadline_ns.min(period_ns).max(budget_ns);
        wanted[node] = IslandNode { budget_ns, period_ns, deadline_ns, ..wanted[node] };
        if let Some(island) = *self.held.lock() {
            // What it keeps stays kept: no memory is named again.
            self.with_spec(&wanted, &[], |spec| island.adjust(spec))?;
        }
        *terms = wanted;
        Ok(deadline_ns)
    }

    fn declares(&self, what: u64) -> bool {
        self.overrun >> overrun::DECLARED & what != 0
    }

    /// It leaves.
    pub fn leave(&self) {
        self.look();
        if let Some(island) = *self.held.lock() {
            // The kernel knows when, and that it has left already if it was shut down.
            let _left = island.leave();
        }
    }

    /// What is known of it if it is there, kept for when it has left.
    fn look(&self) -> Option<caps::IslandInfo> {
        let island = (*self.held.lock())?;
        let info = persist(|| island.info()).ok()?;
        if info.nodes > 0 {
            *self.last.lock() = Some(info);
        }
        Some(info).filter(|info| info.live)
    }

    fn node_of(&self, context: (u64, u64)) -> Option<usize> {
        self.nodes.iter().position(|of| *of == context)
    }

    /// Tells how it and its nodes fared.
    pub fn tell(&self, number: usize) {
        let live = self.look().is_some();
        let ended = (*self.last.lock()).filter(|info| !live && info.ended_ns != 0);
        let held = *self.held.lock();
        if let Some(island) = held.filter(|_| live) {
            // What servers use of its nodes after it was told would be missing. Its name still says what was used before.
            let _ = island.leave();
            self.look();
        }
        let admitted = self.admitted.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        crate::tell(Note::Island {
            island: number as u32,
            refused,
            admitted: admitted.max(u64::from(refused == 0 && live)),
            left: ended.map_or(0, |info| info.ended_ns.saturating_sub(plan().began)),
            shut_down: ended.is_some_and(|info| info.shut_down),
        });
        let Some(info) = *self.last.lock() else { return };
        for (node, (table, instance)) in self.nodes.iter().enumerate() {
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

/// The island that an instance of a context is a node of, and which.
fn island_of(context: (u64, u64)) -> Option<(&'static Island, usize)> {
    plan().islands.iter().find_map(|island| Some((island, island.node_of(context)?)))
}

/// Whether an instance of a context is a node of an island that has not asked yet.
pub fn has_not_asked(context: (u64, u64)) -> bool {
    island_of(context).is_some_and(|(island, _)| !island.asked.load(Ordering::Acquire))
}

/// The CPU of a node whose island is not there, if it can be on one only: its thread is there when the island comes.
pub fn only_cpu(context: (u64, u64)) -> Option<u32> {
    let (island, node) = island_of(context)?;
    let all = |cpus: u64| if cpus == 0 { u64::MAX } else { cpus };
    let cpus = all(island.cpus) & all(island.terms.lock()[node].cpus);
    (cpus.is_power_of_two() && !island.asked.load(Ordering::Acquire)).then(|| cpus.trailing_zeros())
}

/// Other terms for an instance of a context that is a node of an island, and its deadline then.
pub fn adjust(context: (u64, u64), budget_ns: u64, period_ns: u64) -> Result<u64, CapError> {
    let (island, node) = island_of(context).ok_or(CapError::NotFound)?;
    island.adjust(node, budget_ns, period_ns)
}

/// The node that an instance of a context is; `Err` if its island was not admitted.
pub fn node_of(context: u64, instance: u64) -> Option<Result<Node, CapError>> {
    let named = (context, if instance == NONE { 0 } else { instance });
    let (island, node) = island_of(named)?;
    Some(island.look().zip(*island.held.lock()).ok_or(CapError::NotFound).map(|(info, held)| Node {
        island: held,
        node: node as u32,
        cpu: info.cpus[node],
    }))
}
