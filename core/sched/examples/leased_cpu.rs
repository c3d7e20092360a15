//! A thread on a leased CPU goes tickless, and the tick is back when the lease ends.

use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy, ProcessId, ThreadRef, Weight};
use mainspring_sched::lease::{
    AccountingTarget, LeaseRequest, Limits, Mode, NamedRing, Owner, Registry, RevocationPolicy,
    TargetStanding,
};
use mainspring_sched::nohz::{Conditions, Eligibility, Kind, Origin};
use mainspring_sched::{Affinity, Config, Cpu, Entity, Spec, Stop, Via};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let online = CpuSet::first(4);
    let ms = Nanos::from_millis;

    // CPU 1, and a thread that is pinned to it.
    let id = CpuId::new(1)?;
    let mut cpu = Cpu::new(Config::new(id, Policy::Eevdf));
    cpu.reserve(1)?;
    let thread = ThreadRef::new(0, 0);
    let spec = Spec {
        thread,
        process: ProcessId::new(7),
        weight: Weight::DEFAULT,
        class: LatencyClass::Normal,
        request: None,
        affinity: Affinity::Only(Arc::new([id].into_iter().collect())),
    };
    let _ = cpu.accept(Nanos::ZERO, Entity::new(spec), Via::Admit)?;
    let _ = cpu.resched(Nanos::ZERO, Stop::Nothing);
    println!("0ms    {:?}, next timer at {}", cpu.tick_mode(), cpu.next_timer());

    // A lease on that CPU: exclusivity, and an accounting target. No CPU time.
    let mut leases = Registry::new(online, Limits::default())?;
    let request = LeaseRequest {
        owner: Owner { process: ProcessId::new(7), session: None, service: None },
        cpus: &[0b0010],
        housekeeping_exclusions: &[],
        mode: Mode::Compute,
        ring: NamedRing::None,
        allow_irqs: false,
        target: AccountingTarget::Ledger,
        max_revocation_latency: ms(50),
        revocation: RevocationPolicy::Silent,
        lifetime: Nanos::ZERO,
        replaces: None,
    };
    let lease = leases.create(Nanos::ZERO, &request, TargetStanding::Chargeable, &online)?.lease;
    println!("0ms    lease {lease}, housekeeping on {:?}", leases.housekeepers(&online));
    let again = leases.create(Nanos::ZERO, &request, TargetStanding::Chargeable, &online);
    println!("0ms    the same again: {}", again.err().ok_or("a CPU was leased twice")?);

    // The claim, and the facts of the moment.
    let eligibility = Eligibility {
        kind: Kind::AutoCompute,
        max_revocation_latency: ms(25),
        preferred_cpus: CpuSet::EMPTY,
        allow_busy_spin: false,
        accounting_target: AccountingTarget::Ledger,
    };
    let claim = eligibility.claim(lease, Origin::Local { caller: thread, poller: None });
    let facts = |leases: &mut Registry, now| Conditions {
        lease: leases.standing(now, lease),
        ..Conditions::default()
    };
    let busy = Conditions { deferred_cleanup: true, ..facts(&mut leases, Nanos::ZERO) };
    println!("0ms    with cleaning up to do: {:?}", cpu.nohz_enter(Nanos::ZERO, &claim, &busy));
    let conditions = facts(&mut leases, Nanos::ZERO);
    println!("0ms    with nothing in the way: {:?}", cpu.nohz_enter(Nanos::ZERO, &claim, &conditions));

    // Each timer interrupt proves it again.
    for _ in 0..2 {
        let now = cpu.next_timer();
        let conditions = facts(&mut leases, now);
        println!("{:<6} {:?}", now.to_string(), cpu.nohz_recheck(now, &conditions));
        let _ = cpu.timer(now);
    }

    // The operator takes the lease back; CPU 1 hears of it by an interrupt.
    let now = ms(60);
    let _ = leases.revoke(now, lease)?;
    while let Some(ended) = leases.roll_back() {
        println!("{now}   {} ended: {}; interrupt CPU {:?}", ended.lease, ended.reason.label(), ended.cpu);
    }
    let conditions = facts(&mut leases, now);
    println!("{now}   {:?}", cpu.nohz_recheck(now, &conditions));
    println!("{now}   {:?}, next timer at {}", cpu.tick_mode(), cpu.next_timer());
    println!("{now}   ticks spared: {}", cpu.telemetry().ticks_suppressed_lease);
    Ok(())
}
