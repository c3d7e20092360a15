//! A workload as the words that the kernel's workload program reads.

use mainspring_abi::plan::{MAGIC, NONE, STEP_WORDS, step};
use mainspring_abi::{CpuId, CpuSet, LatencyClass, Nanos, Policy};
use mainspring_workload::{Call, Span, Start, Step, ThreadSpec, ThreadTarget, Workload};
use std::fmt::Write;

/// Instances that one process of the kernel has room for, beside the thread that starts them.
const INSTANCES: usize = 100;
/// All of them together, and the processes: the kernel's tables, with room to spare.
const ALL_INSTANCES: usize = 400;
const PROCESSES: usize = 60;
const CPUS: usize = 16;
const ENDPOINTS: usize = 7;

/// The boot manifest: how to schedule, and the program with its capabilities.
pub fn manifest(workload: &Workload, record_bytes: usize) -> String {
    let machine = &workload.machine;
    let policy = match machine.policy {
        Policy::Eevdf => "eevdf",
        Policy::Wfq => "wfq",
    };
    let mut caps = String::from("console,timer,threads,control,park,policy,info");
    for endpoint in 0..workload.endpoints.len() {
        let _ = write!(caps, ",call:{endpoint},serve:{endpoint}");
    }
    let mut manifest = format!(
        "policy {policy}\nquantum_ns {}\ntick_ns {}\nrecord_bytes {record_bytes}\n",
        machine.quantum.get(),
        machine.tick.get()
    );
    for process in 0..process_count(workload) {
        let _ = writeln!(manifest, "start workload {caps} data=plan -- {process}");
    }
    manifest
}

/// How many processes of the kernel the workload takes.
pub fn process_count(workload: &Workload) -> usize {
    processes(workload).into_iter().max().map_or(1, |last| last + 1)
}

/// The kernel's process for each thread table: the workload's process, but for tables whose threads unpark, spawn or
/// join each other, which takes memory in common.
fn processes(workload: &Workload) -> Vec<usize> {
    let mut process: Vec<usize> = workload.threads.iter().map(|spec| spec.process).collect();
    for (table, spec) in workload.threads.iter().enumerate() {
        for step in &spec.program {
            let other = match step {
                Step::Unpark(whom) | Step::Join { target: whom, .. } => whom.thread,
                Step::Spawn(other) => *other,
                _ => continue,
            };
            let (gone, stays) = (process[other], process[table]);
            process.iter_mut().filter(|one| **one == gone).for_each(|one| *one = stays);
        }
    }
    // Numbered without gaps, in the order of the tables.
    let mut met = Vec::new();
    for one in &mut process {
        let number = met.iter().position(|known| known == one).unwrap_or(met.len());
        if number == met.len() {
            met.push(*one);
        }
        *one = number;
    }
    process
}

/// What the workload takes of the kernel's tables: how many of what, and how many there are.
pub fn needs(workload: &Workload) -> [(usize, &'static str, usize); 5] {
    let mut instances = vec![0; process_count(workload)];
    for (spec, process) in workload.threads.iter().zip(processes(workload)) {
        instances[process] += spec.instances();
    }
    let most = instances.iter().max().copied().unwrap_or(0);
    [
        (workload.machine.cpus, "CPUs", CPUS),
        (workload.endpoints.len(), "endpoints", ENDPOINTS),
        (instances.len(), "processes", PROCESSES),
        (most, "threads in one process", INSTANCES),
        (instances.iter().sum(), "threads", ALL_INSTANCES),
    ]
}

/// The plan of a workload that the kernel can do.
pub fn encode(workload: &Workload, seed: u64) -> Vec<u8> {
    let mut words = vec![MAGIC, workload.machine.duration.get(), seed, workload.threads.len() as u64];
    for (spec, process) in workload.threads.iter().zip(processes(workload)) {
        table(spec, process, &mut words);
    }
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn table(spec: &ThreadSpec, process: usize, words: &mut Vec<u64>) {
    let class = match spec.latency {
        LatencyClass::Interactive => 0,
        LatencyClass::Normal => 1,
        LatencyClass::Batch => 2,
    };
    let (earliest, latest) = match spec.start {
        Start::At(span) => (span.min.get(), span.max.get()),
        Start::Spawned => (NONE, NONE),
    };
    let steps: Vec<_> = spec.program.iter().filter_map(self::words).collect();
    words.extend([
        process as u64,
        spec.instances() as u64,
        u64::from(spec.weight.get()),
        class,
        spec.request.map_or(0, Nanos::get),
        spec.cpus.as_ref().map_or(0, bits),
        earliest,
        latest,
        spec.times.unwrap_or(NONE),
        steps.len() as u64,
    ]);
    words.extend(steps.as_flattened());
}

fn bits(cpus: &CpuSet) -> u64 {
    (0..CPUS)
        .filter(|cpu| CpuId::new(*cpu).is_ok_and(|cpu| cpus.contains(cpu)))
        .fold(0, |bits, cpu| bits | 1 << cpu)
}

fn timeout(span: Option<Span>) -> [u64; 2] {
    span.map_or([NONE, NONE], |span| [span.min.get(), span.max.get()])
}

fn target(target: ThreadTarget) -> [u64; 2] {
    [target.thread as u64, target.instance.map_or(NONE, u64::from)]
}

/// A step as the kernel's program reads it, if it knows it.
pub fn words(one: &Step) -> Option<[u64; STEP_WORDS]> {
    Some(match *one {
        Step::Run(Span { min, max }) => [step::RUN, min.get(), max.get(), 0],
        Step::RunForever => [step::RUN_FOREVER, 0, 0, 0],
        Step::Sleep(Span { min, max }) => [step::SLEEP, min.get(), max.get(), 0],
        Step::Every(period) => [step::EVERY, period.get(), 0, 0],
        Step::Yield => [step::YIELD, 0, 0, 0],
        Step::Park { timeout: span } => {
            let [least, most] = timeout(span);
            [step::PARK, least, most, 0]
        }
        Step::Unpark(whom) => {
            let [table, instance] = target(whom);
            [step::UNPARK, table, instance, 0]
        }
        Step::Call(call) if call == Call::plain(call.endpoint, call.timeout) => {
            let [least, most] = timeout(call.timeout);
            [step::CALL, call.endpoint as u64, least, most]
        }
        Step::Recv { endpoint, timeout: span } => {
            let [least, most] = timeout(span);
            [step::RECV, endpoint as u64, least, most]
        }
        Step::Reply => [step::REPLY, 0, 0, 0],
        Step::Spawn(table) => [step::SPAWN, table as u64, 0, 0],
        Step::Join { target: whom, timeout: span } => {
            let [table, instance] = target(whom);
            [step::JOIN, table, instance, timeout(span)[1]]
        }
        Step::Weight(weight) => [step::WEIGHT, u64::from(weight.get()), 0, 0],
        Step::Exit => [step::EXIT, 0, 0, 0],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::plan::{HEADER_WORDS, TABLE_WORDS};

    fn workload(text: &str) -> Workload {
        mainspring_workload::parse("test.toml", text).expect("the test's workload is one")
    }

    fn read(bytes: &[u8]) -> Vec<u64> {
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    }

    #[test]
    fn a_plan_has_a_table_per_thread_table_and_four_words_per_step() {
        let workload = workload(
            r#"
            [machine]
            cpus = 2
            duration = "50ms"
            [[thread]]
            name = "a"
            count = 3
            weight = 128
            cpus = [1]
            program = ["run 1ms..2ms", "call shop 5ms", "unpark b", "yield"]
            [[thread]]
            name = "b"
            program = ["recv shop", "reply", "park"]
            "#,
        );
        let plan = read(&encode(&workload, 7));
        assert_eq!(plan[..HEADER_WORDS], [MAGIC, 50_000_000, 7, 2]);
        assert_eq!(plan[HEADER_WORDS..HEADER_WORDS + TABLE_WORDS], [0, 3, 128, 1, 0, 0b10, 0, 0, NONE, 4]);
        let steps = HEADER_WORDS + TABLE_WORDS;
        assert_eq!(plan[steps..steps + STEP_WORDS], [step::RUN, 1_000_000, 2_000_000, 0]);
        assert_eq!(plan[steps + STEP_WORDS..steps + 2 * STEP_WORDS], [step::CALL, 0, 5_000_000, 5_000_000]);
        assert_eq!(plan[steps + 2 * STEP_WORDS..steps + 3 * STEP_WORDS], [step::UNPARK, 1, NONE, 0]);
        assert_eq!(plan.len(), HEADER_WORDS + 2 * TABLE_WORDS + 7 * STEP_WORDS);
        assert!(manifest(&workload, 1000).contains("call:0,serve:0"));
    }

    #[test]
    fn processes_are_those_of_the_workload_but_for_threads_that_need_memory_in_common() {
        let workload = workload(
            r#"
            [[thread]]
            name = "alone"
            program = ["run 1ms", "call shop"]
            [[thread]]
            name = "a"
            process = "pair"
            program = ["run 1ms", "sleep 1ms"]
            [[thread]]
            name = "waker"
            program = ["unpark sleeper", "run 1ms"]
            [[thread]]
            name = "b"
            process = "pair"
            program = ["recv shop", "reply"]
            [[thread]]
            name = "sleeper"
            process = "bed"
            program = ["park", "run 1ms"]
            "#,
        );
        assert_eq!(processes(&workload), [0, 1, 2, 1, 2]);
        let manifest = manifest(&workload, 1000);
        let starts: Vec<_> = manifest.lines().filter(|line| line.starts_with("start ")).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts[2].ends_with("call:0,serve:0 data=plan -- 2"), "{manifest}");
        let plan = read(&encode(&workload, 7));
        assert_eq!(plan[HEADER_WORDS], 0);
        assert_eq!(plan[HEADER_WORDS + TABLE_WORDS + 2 * STEP_WORDS], 1);
    }
}
