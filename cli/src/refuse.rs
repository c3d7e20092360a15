//! What a workload may ask for that a machine does not have: refused before anything runs, with the line and with the
//! machine that can.

use crate::args::Machine;
use crate::qemu::{limits, plan};
use mainspring_workload::{Faults, Step, ThreadSpec, Workload};
use std::fmt;

/// What of the workload cannot be done on a machine, and on which it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cannot {
    machine: Machine,
    what: What,
    line: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Table(&'static str),
    /// A key of `[machine]`.
    MachineKey(&'static str),
    /// A key of a thread table.
    Key {
        thread: String,
        key: &'static str,
    },
    Step {
        thread: String,
        verb: &'static str,
    },
    /// A call with `needs`, `deadline` or `drop`.
    CallOption {
        thread: String,
    },
    /// Time that counts instructions.
    Counted,
    TooMany {
        count: usize,
        of: &'static str,
        limit: usize,
    },
}

impl Cannot {
    /// With the file's name before the line.
    pub fn describe(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{file}:{line}: {self}"),
            None => write!(f, "{file}: {self}"),
        }
    }

    /// The option that names a machine which can.
    fn elsewhere(&self) -> &'static str {
        match self.what {
            What::Key { key: "budget", .. } | What::Step { verb: "alloc" | "syscall", .. } => "--on linux",
            _ => "--on sim",
        }
    }
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elsewhere = self.elsewhere();
        let host = match self.machine {
            Machine::Sim => "the simulator",
            Machine::Linux => "the Linux runtime",
            Machine::Qemu => "the kernel",
        };
        match &self.what {
            What::Table(name) => write!(f, "{host} has no counterpart of [{name}]")?,
            What::MachineKey(key) => {
                write!(f, "{host} has no counterpart of `{key}` in [machine]: its CPUs are real")?;
            }
            What::Key { thread, key } => {
                write!(f, "thread {thread:?}: {host} has no counterpart of `{key}`")?;
            }
            What::Step { thread, verb } => {
                write!(f, "thread {thread:?}: {host} has no counterpart of the step `{verb}`")?;
            }
            What::CallOption { thread } => {
                write!(f, "thread {thread:?}: on {host} a call has no `needs`, `deadline` or `drop`")?;
                return write!(f, "\nhelp: run it with `{elsewhere}`, or leave only the timeout");
            }
            What::Counted => {
                return write!(
                    f,
                    "time can count instructions only on the kernel with one CPU\n\
                     help: run it with `--on qemu --cpus 1 --counted`, or without `--counted`"
                );
            }
            What::TooMany { count, of, limit } => {
                write!(f, "{count} {of}; {host} has room for {limit}")?;
                return write!(f, "\nhelp: run it with `{elsewhere}`");
            }
        }
        write!(f, "\nhelp: run it with `{elsewhere}`, or remove it")
    }
}

impl std::error::Error for Cannot {}

/// Refuses what `machine` cannot do of `workload`: the first of it.
pub fn on(machine: Machine, workload: &Workload) -> Result<(), Cannot> {
    let refuse = |what, line| Err(Cannot { machine, what, line });
    if let Some(what) = too_many(machine, workload) {
        return refuse(what, None);
    }
    if machine != Machine::Sim {
        if let Some(table) = table(machine, workload) {
            return refuse(What::Table(table), workload.places.table(table));
        }
        let paced = [
            (!workload.machine.speeds_ppm.is_empty(), "speeds"),
            (workload.machine.smt_ppm.is_some(), "smt"),
        ];
        if let Some((_, key)) = paced.into_iter().find(|(asked, _)| *asked) {
            return refuse(What::MachineKey(key), workload.places.table("machine"));
        }
    }
    for (number, spec) in workload.threads.iter().enumerate() {
        if machine != Machine::Linux && spec.budget.is_some() {
            let what = What::Key { thread: spec.name.clone(), key: "budget" };
            return refuse(what, workload.places.thread(number));
        }
        let step = spec.program.iter().enumerate().find(|(_, step)| !can(machine, step));
        if let Some((at, step)) = step {
            let thread = spec.name.clone();
            let what = match step {
                Step::Call(_) => What::CallOption { thread },
                _ => What::Step { thread, verb: step.verb() },
            };
            return refuse(what, workload.places.step(number, at));
        }
    }
    Ok(())
}

/// Refuses time that counts instructions where that cannot be.
pub fn counted(machine: Machine, workload: &Workload) -> Result<(), Cannot> {
    let can = machine == Machine::Qemu && workload.machine.cpus == 1;
    if can { Ok(()) } else { Err(Cannot { machine, what: What::Counted, line: None }) }
}

fn too_many(machine: Machine, workload: &Workload) -> Option<What> {
    let instances: usize = workload.threads.iter().map(ThreadSpec::instances).sum();
    let linux = [(workload.machine.cpus, "CPUs", 1024), (instances, "threads", usize::from(u16::MAX))];
    let kernel = limits::needs(workload);
    let needs: &[_] = match machine {
        Machine::Sim => &[],
        Machine::Linux => &linux,
        Machine::Qemu => &kernel,
    };
    let &(count, of, limit) = needs.iter().find(|(count, _, limit)| count > limit)?;
    Some(What::TooMany { count, of, limit })
}

/// The first table that asks for what `machine`, which is not the simulator, does not have.
fn table(machine: Machine, workload: &Workload) -> Option<&'static str> {
    let tables = [
        (machine == Machine::Qemu || workload.interrupts.is_empty(), "interrupt"),
        (machine == Machine::Qemu || workload.network.is_none(), "network"),
        (workload.faults == Faults::default(), "faults"),
    ];
    tables.into_iter().find(|(absent, _)| !absent).map(|(_, table)| table)
}

fn can(machine: Machine, step: &Step) -> bool {
    match machine {
        Machine::Sim => !matches!(step, Step::Alloc(_) | Step::Syscall),
        Machine::Qemu => plan::plays(step),
        Machine::Linux => true,
    }
}

#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Workload {
        mainspring_workload::parse("w.toml", text).expect("the test's workload is one")
    }

    fn refusal(text: &str) -> Option<Cannot> {
        on(Machine::Linux, &parse(text)).err()
    }

    #[test]
    fn a_step_is_refused_by_its_line_and_with_the_machine_that_can() {
        let thread = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n";
        let context = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n";
        let at = "[[at]]\ntime = \"1ms\"\ndo = \"exit a\"\n";
        assert_eq!(refusal(&format!("{context}overrun = \"fault\"\n{thread}{at}")), None);
        let faults = "[faults]\nlost_reschedule = \"1%\"\n";
        let speeds = "[machine]\nspeeds = [\"50%\"]\n";
        let cannot = refusal(&format!("{thread}{speeds}")).expect("real CPUs are as fast as they are");
        assert_eq!((cannot.line, &cannot.what), (Some(4), &What::MachineKey("speeds")));
        let cannot = refusal(&format!("{thread}{faults}")).expect("faults are the simulator's");
        assert_eq!((cannot.line, &cannot.what), (Some(4), &What::Table("faults")));
        assert!(cannot.to_string().contains("--on sim"), "{cannot}");
        let calls = parse(
            "[[thread]]\nname = \"a\"\nprogram = [\n    \"run 1ms\",\n    \"call x needs 1ms deadline 2ms drop\",\n]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"reply\"]\n",
        );
        assert_eq!(on(Machine::Linux, &calls), Ok(()));
    }

    #[test]
    fn the_others_refuse_what_only_tasks_have() {
        let text = "[[thread]]\nname = \"a\"\nbudget = { ops = 5 }\nprogram = [\"run 1ms\"]\n";
        let workload = parse(text);
        for machine in [Machine::Sim, Machine::Qemu] {
            let cannot = on(machine, &workload).expect_err("no budgets there");
            assert_eq!(cannot.line, Some(1));
            assert!(cannot.to_string().contains("--on linux"), "{cannot}");
        }
        assert_eq!(on(Machine::Linux, &workload), Ok(()));
    }

    #[test]
    fn time_counts_instructions_on_one_cpu_of_the_kernel_alone() {
        let one = parse("[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n");
        let two = parse("[machine]\ncpus = 2\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n");
        assert_eq!(counted(Machine::Qemu, &one), Ok(()));
        for (machine, workload) in [(Machine::Qemu, &two), (Machine::Sim, &one), (Machine::Linux, &one)] {
            let cannot = counted(machine, workload).expect_err("no such clock there");
            assert!(cannot.to_string().contains("--on qemu --cpus 1 --counted"), "{cannot}");
        }
    }

    #[test]
    fn limits_are_named() {
        let cannot = refusal("[[thread]]\nname = \"a\"\ncount = 70000\nprogram = [\"run 1ms\"]\n");
        assert_eq!(
            cannot.expect("too many").what,
            What::TooMany { count: 70_000, of: "threads", limit: 65_535 }
        );
        let cannot = refusal("[machine]\ncpus = 2000\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n");
        assert_eq!(cannot.expect("too many").what, What::TooMany { count: 2000, of: "CPUs", limit: 1024 });
    }

    #[test]
    fn what_the_runtime_can_do_is_not_refused() {
        let text = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"call x 5ms\", \"unpark b\", \"spawn c\", \
             \"join c\", \"yield\", \"weight 3\", \"every 5ms\"]\n[[thread]]\nname = \"b\"\n\
             program = [\"recv x\", \"throw\", \"park 1ms\"]\n[[thread]]\nname = \"c\"\nstart = \"spawn\"\n\
             program = [\"sleep 1ms\", \"exit\"]\n";
        assert_eq!(refusal(text), None);
    }

    #[test]
    fn the_kernel_has_pollers_passive_servers_default_contexts_and_two_sessions_in_a_process() {
        let text = "[[session]]\nname = \"alice\"\n[[session]]\nname = \"bob\"\n\
             [[context]]\nname = \"own\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[context]]\nname = \"shared\"\nbudget = \"1ms\"\nperiod = \"10ms\"\nprocess = \"pool\"\n\
             [[endpoint]]\nname = \"x\"\ncontext = \"own\"\nrealtime_safe = false\n\
             [[ring]]\nname = \"r\"\nowner = \"a\"\nsqpoll = true\n\
             [[thread]]\nname = \"a\"\nsession = \"alice\"\n\
             program = [\"submit r 1\", \"complete r 1\", \"call x deadline 5ms\", \"unpark b\", \"sleep 1ms\"]\n\
             [[thread]]\nname = \"b\"\nsession = \"bob\"\nprogram = [\"park\", \"run 1ms\"]\n\
             [[thread]]\nname = \"p\"\ncount = 2\nprogram = [\"poll r\", \"run 1us\"]\n\
             [[thread]]\nname = \"s\"\nprocess = \"pool\"\nprogram = [\"recv x\", \"run 1ms\", \"reply\"]\n";
        assert_eq!(on(Machine::Qemu, &parse(text)), Ok(()));
    }

    #[test]
    fn the_kernel_has_devices_a_network_a_policy_service_and_mutexes_that_lend() {
        let text = "[[interrupt]]\nname = \"nic\"\nevery = \"1ms\"\n[network]\nevery = \"1ms\"\n\
             [policy]\nservice = \"a\"\n[[mutex]]\nname = \"m\"\ndonation = true\n\
             [[thread]]\nname = \"a\"\nprogram = [\"lock m\", \"run 1ms\", \"unlock m\"]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"run 1ms\", \"reply\"]\n\
             [[at]]\ntime = \"1ms\"\ndo = \"close x\"\n\
             [[at]]\ntime = \"2ms\"\ndo = \"policy stalls\"\n";
        assert_eq!(on(Machine::Qemu, &parse(text)), Ok(()));
    }

    #[test]
    fn the_kernel_has_endpoints_that_are_served_on_a_node_of_an_island() {
        let text = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
             [[island]]\nname = \"i\"\nperiod = \"10ms\"\nnodes = [\"c\"]\n\
             [[endpoint]]\nname = \"x\"\ncontext = \"c\"\n\
             [[thread]]\nname = \"a\"\nprogram = [\"call x\", \"sleep 1ms\"]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"reply\"]\n";
        assert_eq!(on(Machine::Qemu, &parse(text)), Ok(()));
    }

    #[test]
    fn the_kernel_refuses_by_line_what_it_would_otherwise_pass_over() {
        let thread = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n";
        let refused = |text: &str| {
            let cannot = on(Machine::Qemu, &parse(text)).expect_err("the kernel has nothing of the kind");
            assert!(cannot.to_string().contains("--on sim"), "{cannot}");
            (cannot.line, cannot.what)
        };
        let faults = format!("{thread}[faults]\nlost_reschedule = \"1%\"\n");
        assert_eq!(refused(&faults), (Some(4), What::Table("faults")));
        let wide = format!("[machine]\ncpus = 17\n{thread}");
        assert_eq!(refused(&wide), (None, What::TooMany { count: 17, of: "CPUs", limit: 16 }));
        let many = "[[thread]]\nname = \"a\"\ncount = 101\nprogram = [\"yield\", \"run 1ms\"]\n";
        let what = What::TooMany { count: 101, of: "threads in one process", limit: 100 };
        assert_eq!(refused(many), (None, what));
        // What the islands of one process may have of the tables, they may have together.
        let three = |name: &str| {
            format!(
                "[[context]]\nname = \"{name}\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
                 [[island]]\nname = \"of-{name}\"\nperiod = \"10ms\"\nnodes = [\"{name}\"]\n\
                 [[thread]]\nname = \"{name}\"\ncount = 3\nprocess = \"p\"\ncontext = \"{name}\"\nprogram = [\"run 1ms\"]\n"
            )
        };
        assert_eq!(on(Machine::Qemu, &parse(&three("a"))), Ok(()));
        let what = What::TooMany { count: 6, of: "nodes of islands in one process", limit: 5 };
        assert_eq!(refused(&(three("a") + &three("b"))), (None, what));
    }
}
