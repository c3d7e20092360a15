//! What a workload may ask for that a machine does not have: refused before anything runs, with the line and with the
//! machine that can.

use crate::args::Machine;
use crate::qemu::plan;
use mainspring_workload::{
    Call, ContextSpec, EndpointSpec, Faults, Operation, Overrun, Step, ThreadSpec, Workload,
};
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
    /// A key of a thread table.
    Key {
        thread: String,
        key: &'static str,
    },
    /// A key of a context table.
    Context {
        context: String,
        key: &'static str,
    },
    /// An operation of an `[[at]]` table, as the file has it.
    Operation(String),
    /// An endpoint that does more than pass calls on in the order in which they come.
    Endpoint(String),
    Step {
        thread: String,
        verb: &'static str,
    },
    /// A call with `needs`, `deadline` or `drop`.
    CallOption {
        thread: String,
    },
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
            What::Key { thread, key } => {
                write!(f, "thread {thread:?}: {host} has no counterpart of `{key}`")?;
            }
            What::Context { context, key } => {
                write!(f, "context {context:?}: {host} has no counterpart of this `{key}`")?;
            }
            What::Operation(text) => write!(f, "{host} has no counterpart of the operation `{text}`")?,
            What::Endpoint(name) if self.machine == Machine::Linux => write!(
                f,
                "endpoint {name:?}: {host} passes calls on in the order in which they come, and has no context of its own for \
                 an endpoint"
            )?,
            What::Endpoint(name) => write!(
                f,
                "endpoint {name:?}: {host} passes calls on in the order in which they come, and lends nothing"
            )?,
            What::Step { thread, verb } => {
                write!(f, "thread {thread:?}: {host} has no counterpart of the step `{verb}`")?;
            }
            What::CallOption { thread } => {
                write!(f, "thread {thread:?}: on {host} a call has no `needs`, `deadline` or `drop`")?;
                return write!(f, "\nhelp: run it with `{elsewhere}`, or leave only the timeout");
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
        if let Some((context, key)) = workload.contexts.iter().find_map(beyond_linux) {
            let what = What::Context { context: context.name.clone(), key };
            return refuse(what, workload.places.table("context"));
        }
        let operation = workload.operations.iter().find(|at| !is_for_linux(at.operation));
        if let Some(operation) = operation {
            return refuse(What::Operation(operation.text.clone()), workload.places.table("at"));
        }
        let differs = |endpoint: &&EndpointSpec| {
            let plain = EndpointSpec::named(endpoint.name.clone());
            let donation = if machine == Machine::Linux { endpoint.donation } else { plain.donation };
            **endpoint != EndpointSpec { donation, ..plain }
        };
        if let Some(endpoint) = workload.endpoints.iter().find(differs) {
            return refuse(What::Endpoint(endpoint.name.clone()), workload.places.table("endpoint"));
        }
    }
    for (number, spec) in workload.threads.iter().enumerate() {
        let keys = [
            (machine == Machine::Qemu && spec.context.is_some(), "context"),
            (machine != Machine::Sim && spec.session.is_some(), "session"),
            (machine != Machine::Linux && spec.budget.is_some(), "budget"),
        ];
        if let Some((_, key)) = keys.into_iter().find(|(refused, _)| *refused) {
            let what = What::Key { thread: spec.name.clone(), key };
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

fn too_many(machine: Machine, workload: &Workload) -> Option<What> {
    let instances: usize = workload.threads.iter().map(ThreadSpec::instances).sum();
    let linux = [(workload.machine.cpus, "CPUs", 1024), (instances, "threads", usize::from(u16::MAX))];
    let kernel = plan::needs(workload);
    let needs: &[_] = match machine {
        Machine::Sim => &[],
        Machine::Linux => &linux,
        Machine::Qemu => &kernel,
    };
    let &(count, of, limit) = needs.iter().find(|(count, _, limit)| count > limit)?;
    Some(What::TooMany { count, of, limit })
}

/// The key of a context that the Linux runtime has no counterpart of.
fn beyond_linux(context: &ContextSpec) -> Option<(&ContextSpec, &'static str)> {
    let keys = [
        (!matches!(context.overrun, Overrun::Throttle | Overrun::Notify), "overrun"),
        (context.timeout_endpoint.is_some(), "timeout_endpoint"),
        (context.process.is_some(), "process"),
    ];
    keys.into_iter().find(|(beyond, _)| *beyond).map(|(_, key)| (context, key))
}

/// Whether the Linux runtime can do this at a time.
fn is_for_linux(operation: Operation) -> bool {
    matches!(operation, Operation::Revoke(_) | Operation::CloseEndpoint(_))
}

/// The first table that asks for what `machine`, which is not the simulator, does not have.
fn table(machine: Machine, workload: &Workload) -> Option<&'static str> {
    let linux = machine == Machine::Linux;
    let tables = [
        (linux || workload.contexts.is_empty(), "context"),
        (workload.leases.is_empty(), "lease"),
        (workload.islands.is_empty(), "island"),
        (workload.rings.is_empty(), "ring"),
        (linux || workload.operations.is_empty(), "at"),
        (workload.sessions.is_empty(), "session"),
        (workload.policy.is_none(), "policy"),
        (workload.network.is_none(), "network"),
        (workload.faults == Faults::default(), "faults"),
    ];
    tables.into_iter().find(|(absent, _)| !absent).map(|(_, table)| table)
}

fn can(machine: Machine, step: &Step) -> bool {
    match machine {
        Machine::Sim => !matches!(step, Step::Alloc(_) | Step::Syscall),
        Machine::Qemu => plan::words(step).is_some(),
        Machine::Linux => match step {
            Step::Call(call) => *call == Call::plain(call.endpoint, call.timeout),
            Step::Run(_)
            | Step::RunForever
            | Step::Sleep(_)
            | Step::Every(_)
            | Step::Yield
            | Step::Park { .. }
            | Step::Unpark(_)
            | Step::Recv { .. }
            | Step::Reply
            | Step::Throw
            | Step::Spawn(_)
            | Step::Join { .. }
            | Step::Weight(_)
            | Step::Alloc(_)
            | Step::Syscall
            | Step::Exit => true,
            _ => false,
        },
    }
}

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
        let cannot = refusal(&format!("{context}overrun = \"fault\"\n{thread}"));
        let cannot = cannot.expect("faults are the simulator's");
        assert_eq!(cannot.line, Some(1));
        assert!(cannot.to_string().contains("--on sim"), "{cannot}");
        let at = "[[at]]\ntime = \"1ms\"\ndo = \"exit a\"\n";
        let cannot = refusal(&format!("{context}{thread}{at}")).expect("ended from outside");
        assert_eq!((cannot.line, cannot.what), (Some(8), What::Operation("exit a".into())));
        let at = "[[at]]\ntime = \"1ms\"\ndo = \"revoke c\"\n";
        assert_eq!(refusal(&format!("{context}{thread}{at}")), None);

        let cannot = refusal(
            "[[thread]]\nname = \"a\"\nprogram = [\n    \"run 1ms\",\n    \"call x deadline 2ms\",\n]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"reply\"]\n",
        );
        let cannot = cannot.expect("no deadlines on Linux");
        assert_eq!((cannot.line, cannot.what), (Some(5), What::CallOption { thread: "a".into() }));
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
    fn the_kernel_refuses_by_line_what_it_would_otherwise_pass_over() {
        let thread = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n";
        let refused = |text: &str| {
            let cannot = on(Machine::Qemu, &parse(text)).expect_err("the kernel has nothing of the kind");
            assert!(cannot.to_string().contains("--on sim"), "{cannot}");
            (cannot.line, cannot.what)
        };
        let faults = format!("{thread}[faults]\nlost_reschedule = \"1%\"\n");
        assert_eq!(refused(&faults), (Some(4), What::Table("faults")));
        let throw = "[[thread]]\nname = \"a\"\nprogram = [\n    \"recv x\",\n    \"throw\",\n]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"run 1ms\", \"call x\"]\n";
        assert_eq!(refused(throw), (Some(5), What::Step { thread: "a".into(), verb: "throw" }));
        let wide = format!("[machine]\ncpus = 17\n{thread}");
        assert_eq!(refused(&wide), (None, What::TooMany { count: 17, of: "CPUs", limit: 16 }));
        let many = "[[thread]]\nname = \"a\"\ncount = 101\nprogram = [\"yield\", \"run 1ms\"]\n";
        let what = What::TooMany { count: 101, of: "threads in one process", limit: 100 };
        assert_eq!(refused(many), (None, what));
    }
}
