//! The contexts of a process: which thread is due which, and how each fared.
//!
//! Conserved: a context that is the default of a process of the workload is claimed by one of its instances at a time, from before
//! that is bound to it until its life is over or it has given the context up. Then the next instance that takes a step where the
//! context's time is set aside has it.

use crate::islands::{self, Node};
use crate::plan::{Table, plan};
use crate::{find, tell};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use mainspring_abi::plan::{CONTEXT_WORDS, NONE, Note, place};
use mainspring_program::ContextTarget;
use mainspring_user::caps::{self, Context};
use mainspring_user::{CapError, say};

/// A context table of the plan.
pub struct Granted {
    pub process: u64,
    pub instances: u64,
    /// The process of the workload whose default it is.
    default_of: Option<u64>,
    /// The instance that has claimed it, plus one, if it is a default.
    claimed: AtomicU32,
}

impl Granted {
    pub fn new([process, instances, default_of]: [u64; CONTEXT_WORDS]) -> Self {
        let default_of = (default_of != NONE).then_some(default_of);
        Self { process, instances, default_of, claimed: AtomicU32::new(0) }
    }

    /// Whether it is claimed by instance `number` from now on.
    fn claim(&self, number: usize) -> bool {
        self.claimed.compare_exchange(0, number as u32 + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn is_claimed_by(&self, number: usize) -> bool {
        self.claimed.load(Ordering::Acquire) == number as u32 + 1
    }

    /// Instance `number` has it no more; whether it had claimed it.
    fn give_up(&self, number: usize) -> bool {
        let claimed = number as u32 + 1;
        self.claimed.compare_exchange(claimed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Grows when a default has been given up.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// How often a default has been given up: a thread that has seen fewer may be due one.
pub fn times_given_up() -> u32 {
    GIVEN_UP.load(Ordering::Acquire)
}

/// The defaults that threads of a table may have.
fn defaults(table: &Table) -> impl Iterator<Item = (u64, &'static Granted)> {
    let (group, own) = (table.group, table.context.is_some());
    (0..).zip(&plan().contexts).filter(move |(_, granted)| !own && granted.default_of == Some(group))
}

fn table_of(number: usize) -> &'static Table {
    &plan().tables[plan().instances[number].table]
}

/// The context that an instance is bound to from its start, as a table and an instance: its own, or the default that it has claimed.
pub fn due_to(number: usize) -> Option<(u64, u64)> {
    let table = table_of(number);
    if let Some(own) = table.context {
        return Some((own, (number - table.first) as u64));
    }
    defaults(table).find(|(_, granted)| granted.is_claimed_by(number)).map(|(context, _)| (context, 0))
}

/// Instance `number` is about to begin a life: it claims a default of its process that nobody has. The CPU where its context's time is
/// set aside, if it has one and may run there.
pub fn claim_before_life(number: usize) -> Option<u32> {
    let table = table_of(number);
    let may_run =
        |cpu: &u32| table.context.is_some() || table.options.cpus == 0 || table.options.cpus >> cpu & 1 == 1;
    let _claimed = defaults(table).any(|(_, granted)| granted.claim(number));
    let home = due_to(number).and_then(|(context, instance)| home(context, instance)).filter(may_run);
    if home.is_none() {
        give_up(number);
    }
    home
}

/// The calling thread, which is instance `number` and has no context, takes a default of its process that has been given up, if it can;
/// which.
pub fn take_default(number: usize) -> Option<(u64, u64)> {
    for (context, granted) in defaults(table_of(number)) {
        if granted.claim(number) {
            if bind(context, 0).is_ok() {
                return Some((context, 0));
            }
            // One that is elsewhere leaves it to the others.
            granted.give_up(number);
        }
    }
    None
}

/// Instance `number` has no default any more.
pub fn give_up(number: usize) {
    if plan().contexts.iter().filter(|granted| granted.give_up(number)).count() > 0 {
        GIVEN_UP.fetch_add(1, Ordering::AcqRel);
    }
}

/// Instance `instance` of context `table`, which is this process's and no node of an island.
pub fn context(table: u64, instance: u64) -> Option<Context> {
    find(format_args!("context:{table}.{instance}")).map(Context)
}

/// The contexts that a step or an operation names.
pub fn contexts(ContextTarget { context: table, instance }: ContextTarget) -> impl Iterator<Item = Context> {
    instances(table as u64, instance.map_or(NONE, u64::from))
        .filter_map(move |instance| context(table as u64, instance))
}

fn instances(table: u64, instance: u64) -> core::ops::Range<u64> {
    let count = plan().contexts[table as usize].instances;
    if instance == NONE { 0..count } else { instance..instance + 1 }
}

/// Other terms for the instances of a context that an operation names. One that is refused stays as it is.
pub fn adjust(table: u64, instance: u64, budget_ns: u64, period_ns: u64) {
    for instance in instances(table, instance) {
        let adjusted = match context(table, instance) {
            Some(context) => {
                let deadline =
                    context.info().map_or(0, |info| info.deadline_ns.min(period_ns).max(budget_ns));
                context.adjust(budget_ns, period_ns, deadline).map(|()| deadline)
            }
            None => islands::adjust((table, instance), budget_ns, period_ns),
        };
        match adjusted {
            Ok(deadline) => tell(Note::Adjusted {
                context: (table as u32, instance as u32),
                at: caps::now() - plan().began,
                budget: budget_ns,
                period: period_ns,
                deadline,
            }),
            Err(code) => say!("workload: an adjustment was refused: {code:?}"),
        }
    }
}

/// Where the time of a context is set aside, if it is there.
fn home(table: u64, instance: u64) -> Option<u32> {
    match islands::node_of(table, instance) {
        Some(node) => node.map_or_else(|_| islands::only_cpu((table, instance)), |node| Some(node.cpu)),
        None => context(table, instance)?.info().ok().filter(|info| !info.stale).map(|info| info.cpu),
    }
}

/// The calling thread gets the context with its own number.
pub fn bind(table: u64, instance: u64) -> Result<(), CapError> {
    match islands::node_of(table, instance) {
        Some(node) => node.and_then(Node::bind),
        None => context(table, instance).ok_or(CapError::NotFound)?.bind(),
    }
}

/// The contexts of this process, each by its table and instance, and where each is.
pub fn places(mine: u64) -> Vec<(u64, u64, u32)> {
    let mut places = Vec::new();
    for (table, granted) in (0..).zip(&plan().contexts).filter(|(_, granted)| granted.process == mine) {
        for instance in 0..granted.instances {
            let Some(Ok(info)) = context(table, instance).map(Context::info) else { continue };
            let place = match (info.stale, info.lent, info.bound) {
                (true, ..) => place::GONE,
                (false, true, _) => place::LENT,
                (false, false, true) => place::BOUND,
                (false, false, false) => place::REST,
            };
            places.push((table, instance, place));
        }
    }
    places
}

/// Tells how each context of this process fared.
pub fn tell_of(places: &[(u64, u64, u32)]) {
    for (table, instance, place) in places {
        let Some(context) = context(*table, *instance) else { continue };
        // What servers use of it after it was told would be missing. One that was revoked before is gone already.
        let _ = context.revoke();
        let Ok(info) = context.info() else { continue };
        tell(Note::Context {
            context: (*table as u32, *instance as u32),
            id: info.id,
            cpu: info.cpu,
            place: *place,
            used: info.used_ns,
            donated: info.donated_ns,
            depletions: info.depletions as u32,
            misses: info.misses as u32,
            overshoot: info.overshoot_max_ns,
        });
    }
}
