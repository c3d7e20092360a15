//! The boot manifest of a workload: how the kernel schedules, and the programs with their capabilities.

use super::layout::{Layout, asker, island_of, nodes, served_on};
use mainspring_abi::kernel::RELEASE_NS;
use mainspring_abi::{CpuId, CpuSet, Nanos, Policy};
use mainspring_workload::{
    Account, ContextSpec, EndpointSpec, LeaseSpec, Operation, Overrun, Step, ThreadTarget, TimedOperation,
    Workload,
};
use std::fmt::Write;

/// CPUs that the kernel has at most.
pub const CPUS: usize = 16;

/// The boot manifest: how to schedule, and the program with its capabilities.
pub fn manifest(workload: &Workload, record_bytes: usize) -> String {
    let machine = &workload.machine;
    let policy = match machine.policy {
        Policy::Eevdf => "eevdf",
        Policy::Wfq => "wfq",
    };
    let mut manifest = format!(
        "policy {policy}\nquantum_ns {}\ntick_ns {}\nfloor_ppm {}\nrecord_bytes {record_bytes}\n",
        machine.quantum.get(),
        machine.tick.get(),
        machine.floor_ppm,
    );
    if let Some(policy) = &workload.policy {
        let _ = writeln!(manifest, "policy_slow_ns {}", policy.timeout.get().max(1));
    }
    for (number, endpoint) in workload.endpoints.iter().enumerate() {
        let on = |set: bool| if set { "on" } else { "off" };
        let EndpointSpec { donation, realtime_safe, reorder, window, .. } = endpoint;
        let window = if *reorder { *window } else { 1 };
        let (donation, realtime) = (on(*donation), on(*realtime_safe));
        let _ =
            writeln!(manifest, "endpoint {number} donation={donation} realtime={realtime} window={window}");
    }
    let layout = Layout::of(workload);
    for process in 0..layout.count() {
        let mut caps = String::from("console,timer,threads,control,park,policy,info");
        for grant in grants(workload, &layout, process) {
            let _ = write!(caps, ",{grant}");
        }
        let _ = writeln!(manifest, "start workload {caps} data=plan -- {process}");
    }
    manifest
}

/// What the manifest says of an instance of a context. One that is spent under a lease is spent on the CPUs of that.
fn granted(workload: &Workload, number: usize, instance: usize) -> String {
    let spec = &workload.contexts[number];
    let mut text = format!("{}/{}", spec.budget.get(), spec.period.get());
    let _ = write!(text, ":deadline={}:criticality={}", spec.deadline.get(), spec.criticality);
    let _ = write!(text, ":priority={}:refills={}:depth={}", spec.priority, spec.refills, spec.depth);
    let leased = leased_to(workload, number);
    if spec.cpus.is_some() || leased.is_some() {
        let all = bits(&CpuSet::first(workload.machine.cpus));
        let own = spec.cpus.as_ref().map_or(all, bits);
        let _ = write!(text, ":cpus={}", own & leased.filter(|leased| own & leased != 0).unwrap_or(all));
    }
    match spec.overrun {
        Overrun::Throttle => {}
        Overrun::Notify => text.push_str(":overrun=notify"),
        Overrun::Fault => text.push_str(":overrun=fault"),
        Overrun::Shutdown => text.push_str(":overrun=shutdown"),
    }
    if let Some(endpoint) = spec.timeout_endpoint {
        let _ = write!(text, ":handler={endpoint}");
    }
    for endpoint in served_on(workload, (number, instance)) {
        let _ = write!(text, ":serves={endpoint}");
    }
    text
}

/// The CPUs on which a lease has a context spent, bit by bit.
fn leased_to(workload: &Workload, context: usize) -> Option<u64> {
    let spends = |lease: &&LeaseSpec| match lease.account {
        Account::Context(target) => target.context == context,
        Account::Ledger => workload.threads[lease.thread.thread].context == Some(context),
    };
    workload.leases.iter().find(spends).map(|lease| bits(&lease.cpus))
}

/// CPUs, bit by bit.
pub fn bits(cpus: &CpuSet) -> u64 {
    (0..CPUS)
        .filter(|cpu| CpuId::new(*cpu).is_ok_and(|cpu| cpus.contains(cpu)))
        .fold(0, |bits, cpu| bits | 1 << cpu)
}

/// What a process is granted beside what each is: endpoints that its threads use, its contexts, its sessions.
pub fn grants(workload: &Workload, layout: &Layout, process: usize) -> Vec<String> {
    let tables = || workload.threads.iter().zip(&layout.threads).filter(|(_, of)| **of == process);
    let uses = |is: &dyn Fn(&Step) -> bool| tables().any(|(spec, _)| spec.program.iter().any(is));
    let mut grants = Vec::new();
    for endpoint in 0..workload.endpoints.len() {
        let hears = |lease: &LeaseSpec| {
            layout.threads[asker(workload, lease)] == process && lease.revoke_endpoint == Some(endpoint)
        };
        let calls = uses(&|step| matches!(step, Step::Call(call) if call.endpoint == endpoint));
        if calls {
            grants.push(format!("call:{endpoint}"));
        }
        let closes = |at: &TimedOperation| {
            at.operation == Operation::CloseEndpoint(endpoint)
                && layout.of_server(workload, endpoint) == process
        };
        let serves = uses(&|step| matches!(step, Step::Recv { endpoint: at, .. } if *at == endpoint));
        // Only who may serve an endpoint may have the end of its lease told there.
        if serves || workload.leases.iter().any(hears) || workload.operations.iter().any(closes) {
            grants.push(format!("serve:{endpoint}"));
        }
    }
    for (number, spec) in workload.contexts.iter().enumerate() {
        let own = |instance: &usize| {
            layout.contexts[number] == process && island_of(workload, number, *instance).is_none()
        };
        let instances = (0..spec.instances()).filter(own);
        grants.extend(
            instances.map(|instance| {
                format!("context:{number}.{instance}={}", granted(workload, number, instance))
            }),
        );
    }
    if workload.leases.iter().any(|lease| layout.threads[asker(workload, lease)] == process) {
        grants.push("leases:any".to_owned());
    }
    let percent = islands_percent(workload, layout, process);
    if percent > 0 {
        grants.extend([format!("islands:{percent}"), "memory".to_owned()]);
    }
    let more = adjusted_percent(workload, layout, process);
    if more > 0 {
        grants.push(format!("time:{more}"));
    }
    grants.extend(layout.held_sessions(process).map(|session| format!("session:{session}")));
    if let Some(policy) = &workload.policy {
        let of = |target: ThreadTarget| layout.threads[target.thread] == process;
        let recovers = policy.recovery.is_some_and(of);
        if of(policy.service) || recovers {
            grants.push("policy-service".to_owned());
        }
        if recovers {
            grants.push("recovery".to_owned());
        }
    }
    grants
}

/// What the islands of a process need, in hundredths of a CPU, as they ask and as operations adjust them; at most what the kernel
/// grants.
fn islands_percent(workload: &Workload, layout: &Layout, process: usize) -> u64 {
    let own = workload.islands.iter().filter(|island| layout.of_island(island) == process);
    let ppm = own.flat_map(|island| {
        nodes(workload, island).map(|(context, instance)| {
            let ContextSpec { budget, period, deadline, .. } = workload.contexts[context];
            let share = |budget: Nanos, period: Nanos| {
                let window = period.min(deadline).min(island.deadline).max(budget);
                (1_000_000 * (budget.get() + RELEASE_NS)).div_ceil(window.get().max(1))
            };
            let adjusted = workload.operations.iter().filter_map(|at| match at.operation {
                Operation::Adjust { context: of, budget, period }
                    if of.context == context && of.instance.is_none_or(|one| one as usize == instance) =>
                {
                    Some(share(budget, period))
                }
                _ => None,
            });
            adjusted.fold(share(budget, period), u64::max)
        })
    });
    ppm.sum::<u64>().div_ceil(10_000).min(100 * CPUS as u64)
}

/// What operations may ask for beyond what the contexts of a process were granted, in hundredths of a CPU.
fn adjusted_percent(workload: &Workload, layout: &Layout, process: usize) -> u64 {
    let percent =
        |budget: Nanos, window: Nanos| (100 * (budget.get() + RELEASE_NS)).div_ceil(window.get().max(1));
    let asked = workload.operations.iter().map(|at| match at.operation {
        Operation::Adjust { context, budget, period } if layout.contexts[context.context] == process => {
            let spec = &workload.contexts[context.context];
            let instances = if context.instance.is_some() { 1 } else { spec.instances() as u64 };
            let before = 100 * spec.budget.get() / spec.deadline.get().max(1);
            let window = spec.deadline.min(period).max(budget);
            instances * percent(budget, window).saturating_sub(before)
        }
        _ => 0,
    });
    asked.sum::<u64>().min(100)
}

/// The contexts, each as a table and an instance, in the order of their numbers on the kernel, which are those of the manifest.
pub fn contexts(workload: &Workload) -> Vec<(usize, usize)> {
    let layout = Layout::of(workload);
    let mut tables: Vec<usize> = (0..workload.contexts.len()).collect();
    tables.sort_by_key(|table| layout.contexts[*table]);
    let of = |table: usize| (0..workload.contexts[table].instances()).map(move |instance| (table, instance));
    tables.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest_of(text: &str) -> String {
        let workload = mainspring_workload::parse("test.toml", text).expect("the test's workload is one");
        manifest(&workload, 1000)
    }

    const TIME: &str = "budget = \"1ms\"\nperiod = \"10ms\"\n";

    #[test]
    fn the_context_of_an_endpoint_goes_to_the_process_of_its_server_and_says_what_it_serves() {
        let text = format!(
            "[[context]]\nname = \"c\"\n{TIME}[[endpoint]]\nname = \"x\"\ncontext = \"c\"\nrealtime_safe = false\n\
             [[thread]]\nname = \"a\"\nprogram = [\"call x\", \"sleep 1ms\"]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"reply\"]\n"
        );
        let manifest = manifest_of(&text);
        assert!(manifest.contains("endpoint 0 donation=on realtime=off window=1\n"), "{manifest}");
        assert!(manifest.contains("info,call:0 data=plan -- 0\n"), "{manifest}");
        let granted = "context:0.0=1000000/10000000:deadline=10000000:criticality=0:priority=0:refills=8:depth=8:serves=0";
        assert!(manifest.contains(&format!("info,serve:0,{granted} data=plan -- 1\n")), "{manifest}");
    }

    #[test]
    fn a_process_with_threads_of_two_sessions_holds_both() {
        let thread = |name: &str, step: &str| {
            format!(
                "[[thread]]\nname = \"{name}\"\nsession = \"{name}\"\nprogram = [\"{step}\", \"run 1ms\"]\n"
            )
        };
        let sessions = "[[session]]\nname = \"a\"\n[[session]]\nname = \"b\"\n";
        let text = |step: &str| format!("{sessions}{}{}", thread("a", step), thread("b", "park 1ms"));
        let together = manifest_of(&text("unpark b"));
        assert!(together.contains("info,session:0,session:1 data=plan -- 0\n"), "{together}");
        let apart = manifest_of(&text("sleep 1ms"));
        assert!(apart.contains("info,session:0 data=plan -- 0\n"), "{apart}");
        assert!(apart.contains("info,session:1 data=plan -- 1\n"), "{apart}");
    }

    #[test]
    fn the_end_of_a_lease_is_told_where_its_process_may_serve() {
        let text = "[machine]\ncpus = 2\n[[lease]]\nname = \"l\"\ncpus = [1]\nthread = \"a\"\nrevoke_endpoint = \"x\"\n\
             [[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"run 1us\"]\n";
        let manifest = manifest_of(text);
        assert!(manifest.contains("info,serve:0,leases:any data=plan -- 0\n"), "{manifest}");
    }

    #[test]
    fn an_island_is_granted_what_operations_adjust_its_nodes_to() {
        let text = format!(
            "[[context]]\nname = \"c\"\n{TIME}[[island]]\nname = \"i\"\nperiod = \"10ms\"\nnodes = [\"c\"]\n\
             [[thread]]\nname = \"a\"\ncontext = \"c\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n"
        );
        let percent = |text: &str| {
            let manifest = manifest_of(text);
            let (_, rest) = manifest.split_once("islands:").expect("it has one");
            rest.split(',').next().and_then(|percent| percent.parse::<u32>().ok()).expect("a number")
        };
        let more = format!("{text}[[at]]\ntime = \"1s\"\ndo = \"adjust c budget 4ms period 10ms\"\n");
        assert!(percent(&text) < 20 && percent(&more) > 40, "{} and {}", percent(&text), percent(&more));
        // On two CPUs they can have more than one.
        let whole = |name: &str| {
            format!(
                "[[context]]\nname = \"{name}\"\nbudget = \"7ms\"\nperiod = \"10ms\"\n\
                 [[island]]\nname = \"of-{name}\"\nperiod = \"10ms\"\nnodes = [\"{name}\"]\n\
                 [[thread]]\nname = \"{name}\"\nprocess = \"p\"\ncontext = \"{name}\"\n\
                 program = [\"run 1ms\", \"every 10ms\"]\n"
            )
        };
        let both = percent(&format!("[machine]\ncpus = 2\n{}{}", whole("a"), whole("b")));
        assert!(both > 140, "{both}");
    }
}
