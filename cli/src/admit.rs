//! `mainspring admit`.
//!
//! The verdict is a result, whichever it is: it goes to standard output. A refusal is then also a [`Failure`], so that
//! scripts see it.

use crate::args::{AdmitArgs, ReportForm};
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use mainspring_abi::{CpuId, Nanos};
use mainspring_report::{
    AdmissionCpu, AdmissionProgram, AdmissionReport, AdmissionTask, DecidingInterval, FirstMiss,
    IslandReport, MissTrace, admission_json_to, admission_text,
};
use mainspring_sim::RunError;
use mainspring_sim::admission::{
    Admission, CpuFound, Denial, Excess, Interval, IslandDenial, Part, Search, Standing, excessive, witness,
};
use mainspring_workload::Workload;

/// Judges a workload and says why.
pub fn admit(args: &AdmitArgs, output: Output) -> Result<(), Failure> {
    let text = input::text(&args.file).map_err(|error| Failure::Load(vec![error]))?;
    let mut settings = args.overrides.settings();
    settings.extend(args.set.iter().cloned());
    let (_, workload) = input::workload_of(&args.file, &text, &settings)?;
    let name = input::name(&args.file);
    let report = judge(&name, &workload, args.responses).map_err(|error| Failure::Run {
        name: name.clone(),
        seed: 0,
        error,
    })?;
    match args.report {
        ReportForm::Json => output.write(|stdout| admission_json_to(&report, stdout)),
        ReportForm::Text => {
            let text = admission_text(&report, output.text_style(true));
            output.write(|stdout| stdout.write_all(text.as_bytes()))
        }
    }?;
    match (report.admitted, report.tasks.is_empty() && report.islands.is_empty()) {
        (true, true) => Err(Failure::NothingPromised { name }),
        (true, false) => Ok(()),
        (false, _) => Err(Failure::NotAdmitted { name }),
    }
}

/// How many contexts a report shows worst responses for without being asked: each takes a search of its own.
const SHOWN_RESPONSES: usize = 64;

fn judge(name: &str, workload: &Workload, all_responses: bool) -> Result<AdmissionReport, RunError> {
    let admission = Admission::of_all(workload);
    let found = admission.found();
    let mut traces = Vec::new();
    for cpu in found.iter().filter(|cpu| !cpu.verdict.is_admitted()) {
        let refused = format!("CPU {}", cpu.cpu.index());
        let interval = cpu.verdict.deciding.map(|interval| interval.length);
        traces.push(trace(refused, witness(workload, &admission, &cpu.contexts, interval)?));
    }
    for (island, standing) in admission.islands().iter().enumerate() {
        if let Standing::Refused(IslandDenial::Cpu { cpu, denial, .. }) = standing {
            let spec = &workload.islands[island];
            let refused = format!("island {} on CPU {}", spec.name, cpu.index());
            let interval = match denial.denial {
                Denial::Demand { interval, .. } => Some(interval),
                Denial::Malformed { .. } | Denial::Overload | Denial::Undecided => None,
            };
            let contexts = beside(&admission, &found, *cpu, island);
            traces.push(trace(refused, witness(workload, &admission, &contexts, interval)?));
        }
    }
    let islands = islands(workload, &admission);
    let excessive = excessive(workload);
    let mut reasons = reasons(&admission, &found, &islands);
    reasons.extend(excessive.iter().map(Excess::to_string));
    let cpus = found.iter().map(cpu_report).collect();
    let responses_left_out = admission.contexts().len() > SHOWN_RESPONSES && !all_responses;
    let tasks = tasks(workload, &admission, !responses_left_out);
    let admitted = reasons.is_empty();
    let holds = "every deadline holds as long as each context stays within its budget";
    let reason = if admitted { holds.to_owned() } else { reasons.join("; ") };
    let programs = excessive.into_iter().map(program).collect();
    let workload = name.to_owned();
    Ok(AdmissionReport {
        workload,
        admitted,
        reason,
        cpus,
        tasks,
        responses_left_out,
        programs,
        islands,
        traces,
    })
}

/// What is on `cpu`, and the nodes of a refused island that might have come there.
fn beside(admission: &Admission, found: &[CpuFound], cpu: CpuId, island: usize) -> Vec<usize> {
    let mut contexts: Vec<usize> =
        found.iter().filter(|found| found.cpu == cpu).flat_map(|found| found.contexts.clone()).collect();
    let nodes = admission.nodes(island);
    contexts.extend(nodes.into_iter().filter(|node| admission.contexts()[*node].cpus.contains(cpu)));
    contexts
}

/// Everything that stands against the workload.
fn reasons(admission: &Admission, found: &[CpuFound], islands: &[IslandReport]) -> Vec<String> {
    let homeless = admission.homeless().into_iter().map(|context| {
        format!("context {}: its thread may use none of its CPUs", admission.contexts()[context].name)
    });
    let cpus = found.iter().filter_map(|cpu| {
        let denial = cpu.verdict.denial?;
        Some(format!("CPU {}: {}", cpu.cpu.index(), denial.denial))
    });
    let islands = islands
        .iter()
        .filter(|island| !island.admitted)
        .map(|island| format!("island {}: {}", island.name, island.reason));
    homeless.chain(cpus).chain(islands).collect()
}

fn cpu_report(found: &CpuFound) -> AdmissionCpu {
    AdmissionCpu {
        id: found.cpu.index() as u32,
        admitted: found.verdict.is_admitted(),
        reason: found.verdict.denial.map(|denial| denial.denial.to_string()),
        density_ppm: found.density_ppm,
        utilization_ppm: found.verdict.utilization_ppm,
        deciding: found.verdict.deciding.map(deciding),
        exact: found.exact,
    }
}

fn deciding(interval: Interval) -> DecidingInterval {
    let part = match interval.part {
        Part::Interrupts => "interrupts".to_owned(),
        Part::Band(band) => format!("band {band}"),
        Part::Floor => "floor".to_owned(),
    };
    DecidingInterval {
        part,
        interval_ns: interval.length.get(),
        demand_ns: interval.demand.get(),
        supply_ns: interval.supply.get(),
    }
}

fn program(excess: Excess) -> AdmissionProgram {
    let Excess { thread, line, needs, every, budget, period } = excess;
    let [needs_ns, every_ns, budget_ns, period_ns] = [needs, every, budget, period].map(Nanos::get);
    AdmissionProgram { thread, line, needs_ns, every_ns, budget_ns, period_ns }
}

fn tasks(workload: &Workload, admission: &Admission, with_responses: bool) -> Vec<AdmissionTask> {
    let responses = if with_responses { admission.responses() } else { Vec::new() };
    let task = |context: usize| {
        let asked = &admission.contexts()[context];
        AdmissionTask {
            name: asked.name.clone(),
            cpu: admission.home(context).map(|cpu| cpu.index() as u32),
            budget_ns: asked.task.cost.get(),
            period_ns: asked.task.period.get(),
            response_ns: responses.get(context).copied().flatten().map(Nanos::get),
            deadline_ns: asked.task.deadline.get(),
            criticality: asked.criticality,
            island: admission.island_of(context).map(|island| workload.islands[island].name.clone()),
        }
    };
    (0..admission.contexts().len()).map(task).collect()
}

fn islands(workload: &Workload, admission: &Admission) -> Vec<IslandReport> {
    let report = |(spec, standing): (&mainspring_workload::IslandSpec, &Standing)| {
        let (admitted, reason) = match standing {
            Standing::Refused(denial) => (false, denial.to_string()),
            Standing::Admitted(_) | Standing::Waiting | Standing::Left => (true, "all of it fits".to_owned()),
        };
        IslandReport { name: spec.name.clone(), admitted, reason }
    };
    workload.islands.iter().zip(admission.islands()).map(report).collect()
}

fn trace(refused: String, search: Search) -> MissTrace {
    match search {
        Search::NoneUpTo(until) => {
            MissTrace { refused, until_ns: until.get(), miss: None, schedule: Vec::new() }
        }
        Search::Late(witness) => {
            let miss = FirstMiss {
                who: witness.miss.who.clone(),
                due_ns: witness.miss.due.get(),
                short_ns: witness.miss.short.get(),
            };
            let until_ns = miss.due_ns;
            MissTrace { refused, until_ns, miss: Some(miss), schedule: witness.schedule }
        }
    }
}
