//! Workloads drawn by seed in which CPU time is granted: contexts, calls that lend them, servers that fail, revocations,
//! adjustments, logouts, exits, endpoints that are torn down, and CPUs that are leased meanwhile.

use super::generate::{Dice, Kind, draw};
use mainspring_abi::{CpuId, CpuSet, Nanos, Policy};
use mainspring_workload::{
    Account, Call, ContextSpec, ContextTarget, EndpointSpec, Lateness, LeaseMode, LeaseSpec, LeaseStart,
    Operation, Overrun, Span, Start, Step, ThreadSpec, ThreadTarget, TimedOperation, Workload,
};

const ENDPOINTS: usize = 3;

/// The workload of `seed`: best effort as ever, and authority on top of it.
pub fn draw_authority(seed: u64, faults: bool) -> Workload {
    let policy = if seed.is_multiple_of(5) { Policy::Wfq } else { Policy::Eevdf };
    let mut workload = draw(seed, Kind { policy, faults, calls: false, quanta: 25 });
    let dice = &mut Dice::new(seed ^ 0xA07_0017);
    let unit = workload.machine.quantum.get();
    workload.machine.floor_ppm = dice.pick(&[0, 50_000, 50_000, 200_000]);
    workload.machine.waiters = 10_000;
    workload.machine.waiters_per_process = 10_000;
    workload.endpoints = (0..ENDPOINTS).map(|n| endpoint(dice, n)).collect();
    workload.sessions = vec!["evening".to_owned()];
    for index in 0..dice.between(1, 4) as usize {
        let context = context(dice, unit, index);
        workload.contexts.push(context);
        let program = client(dice, unit);
        add_thread(&mut workload, dice, format!("client{index}"), Some(index), program);
    }
    if dice.chance(30) {
        let mut spare = context(dice, unit, 90);
        spare.name = "spare".to_owned();
        if dice.chance(50) {
            spare.process = Some(0);
        } else {
            let context = workload.contexts.len();
            workload.endpoints[0].context = Some(ContextTarget { context, instance: None });
        }
        workload.contexts.push(spare);
    }
    for index in 0..dice.between(1, 3) as usize {
        let program = server(dice, unit, index);
        add_thread(&mut workload, dice, format!("server{index}"), None, program);
    }
    if workload.machine.cpus > 1 {
        add_leases(&mut workload, dice);
    }
    workload.operations = operations(dice, &workload);
    workload
}

/// CPUs that threads have to themselves: those that hold contexts, those that serve on borrowed ones, and one that asks for
/// leases and gives them up again.
fn add_leases(workload: &mut Workload, dice: &mut Dice) {
    let (cpus, unit) = (workload.machine.cpus as u64, workload.machine.quantum.get());
    let solo = workload.threads.len();
    let program = vec![Step::Run(span(dice, 1, 20 * unit)), Step::Sleep(span(dice, 1, unit))];
    add_thread(workload, dice, "solo".to_owned(), None, program);
    for index in 0..dice.between(1, 3) as usize {
        let single: Vec<usize> =
            (0..=solo).filter(|thread| workload.threads[*thread].count.is_none()).collect();
        let thread = if dice.chance(50) { solo } else { dice.pick(&single) };
        let mut set = CpuSet::first(0);
        for _ in 0..=u64::from(dice.chance(15)) {
            set.insert(CpuId::new(dice.below(cpus) as usize).expect("on the machine"));
        }
        workload.leases.push(LeaseSpec {
            name: format!("lease{index}"),
            cpus: set,
            thread: ThreadTarget { thread, instance: None },
            mode: LeaseMode::Compute,
            ring: None,
            account: match workload.threads[thread].context {
                Some(context) => Account::Context(ContextTarget { context, instance: None }),
                None => Account::Ledger,
            },
            max_revocation: Nanos::new(dice.between(unit / 10 + 1, 4 * unit)),
            lifetime: dice.chance(40).then(|| Nanos::new(dice.between(1, 20 * unit))),
            revoke_endpoint: None,
            nohz: dice.chance(90),
            start: if dice.chance(60) {
                LeaseStart::At(Nanos::new(dice.below(workload.machine.duration.get() / 2)))
            } else {
                LeaseStart::Step
            },
        });
    }
    let lease = dice.below(workload.leases.len() as u64) as usize;
    let program = vec![
        Step::Run(span(dice, 1, unit)),
        Step::Lease(lease),
        Step::Sleep(span(dice, 1, 6 * unit)),
        Step::Release(lease),
    ];
    add_thread(workload, dice, "manager".to_owned(), None, program);
}

fn endpoint(dice: &mut Dice, n: usize) -> EndpointSpec {
    EndpointSpec {
        donation: dice.chance(85),
        realtime_safe: dice.chance(90),
        reorder: dice.chance(30),
        window: dice.between(1, 4) as u8,
        ..EndpointSpec::named(format!("port{n}"))
    }
}

fn context(dice: &mut Dice, unit: u64, index: usize) -> ContextSpec {
    let period = dice.between(unit, 8 * unit);
    let budget = dice.between(period / 20 + 1, period / 2);
    let deadline = dice.between(budget, period);
    ContextSpec {
        name: format!("grant{index}"),
        count: None,
        budget: Nanos::new(budget),
        period: Nanos::new(period),
        deadline: Nanos::new(deadline),
        cpus: None,
        priority: dice.below(3) as u16,
        criticality: dice.below(3) as u8,
        refills: dice.between(2, 16) as u8,
        overrun: dice.pick(&[
            Overrun::Throttle,
            Overrun::Throttle,
            Overrun::Throttle,
            Overrun::Notify,
            Overrun::Fault,
            Overrun::Shutdown,
        ]),
        depth: dice.pick(&[1, 2, 8]),
        timeout_endpoint: None,
        process: None,
    }
}

fn add_thread(
    workload: &mut Workload,
    dice: &mut Dice,
    name: String,
    context: Option<usize>,
    program: Vec<Step>,
) {
    let process = workload.processes.len();
    workload.processes.push(name.clone());
    let at = Nanos::new(if dice.chance(70) { 0 } else { dice.below(workload.machine.duration.get() / 3) });
    let template = workload.threads[0].clone();
    workload.threads.push(ThreadSpec {
        name,
        count: None,
        process,
        cpus: None,
        start: Start::At(Span { min: at, max: at }),
        times: dice.chance(15).then(|| dice.between(2, 20)),
        program,
        context,
        session: dice.chance(40).then_some(0),
        budget: None,
        ..template
    });
}

fn span(dice: &mut Dice, least: u64, most: u64) -> Span {
    let (a, b) = (dice.between(least, most), dice.between(least, most));
    Span { min: Nanos::new(a.min(b)), max: Nanos::new(a.max(b)) }
}

fn client(dice: &mut Dice, unit: u64) -> Vec<Step> {
    let mut program = vec![Step::Run(span(dice, 1, unit))];
    for _ in 0..dice.between(1, 4) {
        let step = match dice.below(10) {
            0..=4 => call(dice, unit),
            5 | 6 => Step::Sleep(span(dice, 1, 2 * unit)),
            7 => Step::Run(span(dice, 1, unit)),
            8 => Step::Every(Nanos::new(dice.between(1, 6 * unit))),
            _ => Step::Yield,
        };
        program.push(step);
    }
    program
}

fn call(dice: &mut Dice, unit: u64) -> Step {
    Step::Call(Call {
        endpoint: dice.below(ENDPOINTS as u64) as usize,
        timeout: dice.chance(60).then(|| span(dice, 1, 4 * unit)),
        needs: dice.chance(15).then(|| Nanos::new(dice.between(1, unit))),
        deadline: dice.chance(15).then(|| Nanos::new(dice.between(1, 4 * unit))),
        late: if dice.chance(50) { Lateness::Drop } else { Lateness::Allow },
    })
}

/// A server that may call the next one, sleep on borrowed time, throw, or forget to answer.
fn server(dice: &mut Dice, unit: u64, index: usize) -> Vec<Step> {
    let mut program =
        vec![Step::Recv { endpoint: index, timeout: dice.chance(20).then(|| span(dice, 1, 4 * unit)) }];
    program.push(Step::Run(span(dice, 1, unit)));
    if dice.chance(40) {
        program.push(call(dice, unit));
    }
    if dice.chance(20) {
        program.push(Step::Sleep(span(dice, 1, unit)));
    }
    match dice.below(10) {
        0 => program.push(Step::Throw),
        1 => {}
        2 => program.push(Step::Exit),
        _ => program.push(Step::Reply),
    }
    if dice.chance(30) {
        program.push(Step::Run(span(dice, 1, unit)));
    }
    program
}

fn operations(dice: &mut Dice, workload: &Workload) -> Vec<TimedOperation> {
    let duration = workload.machine.duration.get();
    let unit = workload.machine.quantum.get();
    let mut operations: Vec<TimedOperation> = (0..dice.below(5))
        .map(|_| {
            let context = ContextTarget {
                context: dice.below(workload.contexts.len() as u64) as usize,
                instance: None,
            };
            let thread =
                ThreadTarget { thread: dice.below(workload.threads.len() as u64) as usize, instance: None };
            let period = dice.between(unit, 8 * unit);
            let operation = match dice.below(7) {
                6 if !workload.leases.is_empty() => {
                    Operation::RevokeLease(dice.below(workload.leases.len() as u64) as usize)
                }
                0 | 1 => Operation::Revoke(context),
                2 => {
                    let budget = Nanos::new(dice.between(1, period));
                    Operation::Adjust { context, budget, period: Nanos::new(period) }
                }
                3 => Operation::Logout(0),
                4 => Operation::Exit(thread),
                _ => Operation::CloseEndpoint(dice.below(ENDPOINTS as u64) as usize),
            };
            TimedOperation { time: Nanos::new(dice.below(duration)), operation, text: String::new() }
        })
        .collect();
    operations.sort_by_key(|operation| operation.time);
    operations
}
