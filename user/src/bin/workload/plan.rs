//! The plan as it was read: what each process of the workload is to do.
//!
//! Conserved: every process reads the same plan, and numbers what is in it alike.

use crate::calls::{self, Calls};
use crate::contexts::Granted;
use crate::devices::{Device, Network};
use crate::islands::Island;
use crate::leases::Lease;
use crate::policy::{Policy, Treated};
use crate::rings::Ring;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_abi::plan::{
    CONTEXT_WORDS, HEADER_WORDS, LEASE_WORDS, MAGIC, NONE, Note, OPERATION_WORDS, RING_WORDS, TABLE_WORDS,
};
use mainspring_program::{Coded, Distribution, Step, SyncKind, SyncObjects, ThreadTarget, Words};
use mainspring_random::Random;
use mainspring_user::CapError;
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::LatencyClass;
use spin::{Mutex, Once};

/// A thread table.
pub struct Table {
    pub process: u64,
    pub first: usize,
    pub instances: usize,
    pub options: ThreadOptions,
    pub start: Option<(u64, u64)>,
    pub times: u64,
    /// The context that its instances are bound to, each to its own.
    pub context: Option<u64>,
    /// The process of the workload that they are in, and their session.
    pub group: u64,
    pub session: Option<u64>,
    pub steps: Vec<Step>,
}

impl Table {
    /// The period of its first `every` step; 0 if it has none.
    pub fn first_period(&self) -> u64 {
        let period = |step: &Step| if let Step::Every(period) = step { Some(period.get()) } else { None };
        self.steps.iter().find_map(period).unwrap_or(0)
    }
}

/// What is done at a time, by the process that owns what it is done to.
pub struct Operation {
    pub process: u64,
    pub at: u64,
    pub what: [u64; OPERATION_WORDS - 2],
}

/// What others see of an instance.
#[derive(Default)]
pub struct Instance {
    pub table: usize,
    /// What it draws from, in all its lives; taken by the life under way.
    pub random: Mutex<Option<Random>>,
    /// 1 if an unpark waits for its park.
    pub permit: AtomicU32,
    /// 1 if what it waited for at an object has come.
    pub let_go: AtomicU32,
    /// Odd while it lives; counts its beginnings and ends.
    pub lives: AtomicU32,
    /// The slot of its thread, and a capability of it, in the life under way.
    pub slot: AtomicU32,
    pub handle: AtomicU32,
    /// What it weighs, with what it is lent.
    pub weight: AtomicU32,
    /// What the policy service has said of it.
    pub treated: Treated,
    pub misses: AtomicU64,
    pub timeouts: AtomicU64,
    pub refusals: AtomicU64,
    pub failures: AtomicU64,
    /// What became of its jobs, told at the end: to tell it at once would take the time that is measured.
    pub jobs: Mutex<Vec<Note>>,
}

/// The whole of it.
pub struct Plan {
    pub duration: u64,
    pub seed: u64,
    pub began: u64,
    pub tables: Vec<Table>,
    pub instances: Vec<Instance>,
    pub contexts: Vec<Granted>,
    /// What became of the calls of this process, by endpoint.
    pub calls: Vec<Calls>,
    pub operations: Vec<Operation>,
    pub leases: Vec<Lease>,
    pub rings: Vec<Ring>,
    pub islands: Vec<Island>,
    pub distributions: Vec<Distribution>,
    /// What threads wait at for each other, of all processes: a process uses its own.
    pub sync: Mutex<SyncObjects>,
    /// How many of them there are.
    pub sync_count: usize,
    pub devices: Vec<Device>,
    pub network: Option<Network>,
    pub policy: Option<Policy>,
}

static PLAN: Once<Plan> = Once::new();

/// The plan, which was [set](set).
pub fn plan() -> &'static Plan {
    PLAN.get().expect("the plan is read first")
}

/// This is the plan.
pub fn set(plan: Plan) {
    PLAN.call_once(|| plan);
}

impl Plan {
    /// The number of an instance of a table, where NONE is the first.
    pub fn instance(&self, table: u64, instance: u64) -> usize {
        self.tables[table as usize].first + if instance == NONE { 0 } else { instance as usize }
    }

    /// Whether the kernel polls a ring in the place of a table, which has no thread then.
    pub fn is_kernels(&self, table: usize) -> bool {
        self.rings.iter().any(|ring| ring.is_polled_for(table))
    }

    /// Lets the instances that are named go on from their `park`, this one or the next.
    pub fn unpark(&self, target: ThreadTarget) -> Result<(), CapError> {
        for number in self.targets(target) {
            let permit = &self.instances[number].permit;
            permit.store(1, Ordering::Release);
            caps::unpark(permit.as_ptr() as u64, 1)?;
        }
        Ok(())
    }

    /// The instances that a step names.
    pub fn targets(&self, ThreadTarget { thread, instance }: ThreadTarget) -> core::ops::Range<usize> {
        self.instances_of(thread as u64, instance.map_or(NONE, u64::from))
    }

    /// The instances that an operation names.
    pub fn instances_of(&self, table: u64, instance: u64) -> core::ops::Range<usize> {
        let Table { first, instances, .. } = self.tables[table as usize];
        if instance == NONE {
            first..first + instances
        } else {
            first + instance as usize..first + instance as usize + 1
        }
    }
}

/// Reads a plan; `None` if the bytes are none.
pub fn read(bytes: &[u8]) -> Option<Plan> {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8]))).collect();
    let mut words = Words::new(&words);
    let [magic, duration, seed, tables, contexts, operations, leases, rings, islands] =
        words.take::<HEADER_WORDS>()?;
    if magic != MAGIC {
        return None;
    }
    let mut plan = Plan {
        duration,
        seed,
        began: 0,
        tables: Vec::new(),
        instances: Vec::new(),
        contexts: Vec::new(),
        calls: Vec::new(),
        operations: Vec::new(),
        leases: Vec::new(),
        rings: Vec::new(),
        islands: Vec::new(),
        distributions: Vec::new(),
        sync: Mutex::new(SyncObjects::default()),
        sync_count: 0,
        devices: Vec::new(),
        network: None,
        policy: None,
    };
    for number in 0..tables as usize {
        let (table, instances) = table(&mut words, plan.instances.len())?;
        plan.tables.push(table);
        plan.instances.extend((0..instances).map(|_| Instance { table: number, ..Instance::default() }));
    }
    plan.calls = calls::of(plan.tables.iter().flat_map(|table| &table.steps));
    for _ in 0..contexts {
        plan.contexts.push(Granted::new(words.take::<CONTEXT_WORDS>()?));
    }
    for _ in 0..operations {
        let [process, at, what @ ..] = words.take::<OPERATION_WORDS>()?;
        plan.operations.push(Operation { process, at, what });
    }
    for _ in 0..leases {
        plan.leases.push(Lease::new(words.take::<LEASE_WORDS>()?));
    }
    for _ in 0..rings {
        plan.rings.push(Ring::new(words.take::<RING_WORDS>()?));
    }
    for _ in 0..islands {
        plan.islands.push(Island::read(&mut words)?);
    }
    plan.distributions = Coded::read(&mut words)?;
    let objects = Vec::<SyncKind>::read(&mut words)?;
    plan.sync_count = objects.len();
    plan.sync = Mutex::new(SyncObjects::new(objects, plan.instances.len()));
    let [devices] = words.take()?;
    for _ in 0..devices {
        plan.devices.push(Device::read(&mut words)?);
    }
    if words.take()? != [0] {
        plan.network = Some(Network::read(&mut words)?);
    }
    if words.take()? != [0] {
        plan.policy = Some(Policy::read(&mut words)?);
    }
    Some(plan)
}

/// A table whose first instance is number `first`, and how many instances it has.
fn table(words: &mut Words<'_>, first: usize) -> Option<(Table, u64)> {
    let [
        process,
        instances,
        weight,
        class,
        request_ns,
        cpus,
        earliest,
        latest,
        times,
        context,
        group,
        session,
    ] = words.take::<TABLE_WORDS>()?;
    let steps = Coded::read(words)?;
    let class = self::class(class);
    let table = Table {
        process,
        first,
        instances: instances as usize,
        options: ThreadOptions { weight: weight as u32, class, request_ns, cpus },
        start: (earliest != NONE).then_some((earliest, latest)),
        times,
        context: (context != NONE).then_some(context),
        group,
        session: (session != NONE).then_some(session),
        steps,
    };
    Some((table, instances))
}

/// A latency class by its number.
pub fn class(number: u64) -> LatencyClass {
    match number {
        0 => LatencyClass::Interactive,
        1 => LatencyClass::Normal,
        _ => LatencyClass::Batch,
    }
}
