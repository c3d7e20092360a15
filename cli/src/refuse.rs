//! What a workload may ask for that a machine does not have: refused before anything runs, with the line and with the
//! machine that can.

use mainspring_workload::{Call, EndpointSpec, Step, ThreadSpec, Workload};
use std::fmt;

/// Workers that a runtime can have.
const CPUS: usize = 1024;
/// Threads that the lanes of a runtime can have.
const THREADS: usize = u16::MAX as usize;

/// What of the workload cannot be done here, and where it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cannot {
    what: What,
    line: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A table that grants what only the simulator can grant.
    Table(&'static str),
    /// A key of a thread table, likewise.
    Key {
        thread: String,
        key: &'static str,
    },
    /// An endpoint that does more than pass calls on in the order in which they come.
    Endpoint(String),
    /// A step, likewise.
    Step {
        thread: String,
        verb: &'static str,
    },
    /// A call with `needs`, `deadline` or `drop`.
    CallOption {
        thread: String,
    },
    TooManyCpus(usize),
    TooManyThreads(usize),
    /// What only tasks of the Linux runtime have.
    LinuxOnly {
        thread: String,
        what: &'static str,
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
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SIM: &str = "help: run it with `--on sim`, or remove it";
        match &self.what {
            What::Table(name) => write!(f, "the Linux runtime has no counterpart of [{name}]\n{SIM}"),
            What::Key { thread, key } => {
                write!(f, "thread {thread:?}: the Linux runtime has no counterpart of `{key}`\n{SIM}")
            }
            What::Endpoint(name) => write!(
                f,
                "endpoint {name:?}: the Linux runtime passes calls on in the order in which they come, and lends nothing\n{SIM}"
            ),
            What::Step { thread, verb } => {
                write!(
                    f,
                    "thread {thread:?}: the Linux runtime has no counterpart of the step `{verb}`\n{SIM}"
                )
            }
            What::CallOption { thread } => write!(
                f,
                "thread {thread:?}: on Linux a call has no `needs`, `deadline` or `drop`\nhelp: run it with `--on sim`, or leave only the timeout"
            ),
            What::LinuxOnly { thread, what } => write!(
                f,
                "thread {thread:?}: the simulator has no counterpart of `{what}`\nhelp: run it with `--on linux`, or remove it"
            ),
            What::TooManyCpus(cpus) => {
                write!(
                    f,
                    "{cpus} CPUs; the Linux runtime has at most {CPUS} workers\nhelp: run it with `--on sim`"
                )
            }
            What::TooManyThreads(threads) => write!(
                f,
                "{threads} threads; the Linux runtime schedules at most {THREADS}\nhelp: run it with `--on sim`"
            ),
        }
    }
}

impl std::error::Error for Cannot {}

/// Refuses what the simulator cannot do: the first of it.
pub fn on_sim(workload: &Workload) -> Result<(), Cannot> {
    for (number, spec) in workload.threads.iter().enumerate() {
        let linux_only = |what| What::LinuxOnly { thread: spec.name.clone(), what };
        for (at, step) in spec.program.iter().enumerate() {
            let verb = match step {
                Step::Alloc(_) => "alloc",
                Step::Syscall => "syscall",
                _ => continue,
            };
            return Err(Cannot { what: linux_only(verb), line: workload.places.step(number, at) });
        }
        if spec.budget.is_some() {
            return Err(Cannot { what: linux_only("budget"), line: workload.places.thread(number) });
        }
    }
    Ok(())
}

/// Refuses what the Linux runtime cannot do: the first of it.
pub fn on_linux(workload: &Workload) -> Result<(), Cannot> {
    let cpus = workload.machine.cpus;
    if cpus > CPUS {
        return Err(Cannot { what: What::TooManyCpus(cpus), line: None });
    }
    let instances: usize = workload.threads.iter().map(ThreadSpec::instances).sum();
    if instances > THREADS {
        return Err(Cannot { what: What::TooManyThreads(instances), line: None });
    }
    if let Some(table) = table(workload) {
        return Err(Cannot { what: What::Table(table), line: workload.places.table(table) });
    }
    let plain = |endpoint: &&EndpointSpec| **endpoint != EndpointSpec::named(endpoint.name.clone());
    if let Some(endpoint) = workload.endpoints.iter().find(plain) {
        let what = What::Endpoint(endpoint.name.clone());
        return Err(Cannot { what, line: workload.places.table("endpoint") });
    }
    for (number, spec) in workload.threads.iter().enumerate() {
        let keys = [(spec.context.is_some(), "context"), (spec.session.is_some(), "session")];
        if let Some((_, key)) = keys.into_iter().find(|(given, _)| *given) {
            let what = What::Key { thread: spec.name.clone(), key };
            return Err(Cannot { what, line: workload.places.thread(number) });
        }
        for (at, step) in spec.program.iter().enumerate() {
            if let Some(what) = refused(spec, step) {
                return Err(Cannot { what, line: workload.places.step(number, at) });
            }
        }
    }
    Ok(())
}

fn table(workload: &Workload) -> Option<&'static str> {
    let tables = [
        (workload.contexts.is_empty(), "context"),
        (workload.leases.is_empty(), "lease"),
        (workload.islands.is_empty(), "island"),
        (workload.rings.is_empty(), "ring"),
        (workload.operations.is_empty(), "at"),
        (workload.sessions.is_empty(), "session"),
        (workload.policy.is_none(), "policy"),
        (workload.network.is_none(), "network"),
        (workload.faults == mainspring_workload::Faults::default(), "faults"),
    ];
    tables.into_iter().find(|(absent, _)| !absent).map(|(_, table)| table)
}

fn refused(spec: &ThreadSpec, step: &Step) -> Option<What> {
    let thread = || spec.name.clone();
    let verb = match step {
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
        | Step::Exit => return None,
        Step::Call(call) if *call == Call::plain(call.endpoint, call.timeout) => return None,
        Step::Call(_) => return Some(What::CallOption { thread: thread() }),
        Step::Bind(_) => "bind",
        Step::Unbind => "unbind",
        Step::Revoke(_) => "revoke",
        Step::Drain(_) => "drain",
        Step::Lease(_) => "lease",
        Step::Release(_) => "release",
        Step::Submit { .. } => "submit",
        Step::Complete { .. } => "complete",
        Step::Poll(_) => "poll",
    };
    Some(What::Step { thread: thread(), verb })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<Cannot> {
        on_linux(&mainspring_workload::parse("w.toml", text).expect("the test's workload is one")).err()
    }

    #[test]
    fn a_step_is_refused_by_its_line_and_with_the_machine_that_can() {
        let text = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\n";
        let cannot = refusal(&format!("{text}[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n"));
        let cannot = cannot.expect("contexts are the simulator's");
        assert_eq!(cannot.line, Some(1));
        assert!(cannot.to_string().contains("--on sim"), "{cannot}");

        let cannot = refusal(
            "[[thread]]\nname = \"a\"\nprogram = [\n    \"run 1ms\",\n    \"call x deadline 2ms\",\n]\n\
             [[thread]]\nname = \"b\"\nprogram = [\"recv x\", \"reply\"]\n",
        );
        let cannot = cannot.expect("no deadlines on Linux");
        assert_eq!((cannot.line, cannot.what), (Some(5), What::CallOption { thread: "a".into() }));
    }

    #[test]
    fn the_simulator_refuses_what_only_tasks_have() {
        let text = "[[thread]]\nname = \"a\"\nbudget = { ops = 5 }\nprogram = [\"run 1ms\"]\n";
        let workload = mainspring_workload::parse("w.toml", text).expect("a workload");
        let cannot = on_sim(&workload).expect_err("no budgets there");
        assert_eq!(cannot.line, Some(1));
        assert!(cannot.to_string().contains("--on linux"), "{cannot}");
        assert_eq!(on_linux(&workload), Ok(()));
    }

    #[test]
    fn limits_are_named() {
        let cannot = refusal("[[thread]]\nname = \"a\"\ncount = 70000\nprogram = [\"run 1ms\"]\n");
        assert_eq!(cannot.expect("too many").what, What::TooManyThreads(70_000));
        let cannot = refusal("[machine]\ncpus = 2000\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n");
        assert_eq!(cannot.expect("too many").what, What::TooManyCpus(2000));
    }

    #[test]
    fn what_the_runtime_can_do_is_not_refused() {
        let text = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"call x 5ms\", \"unpark b\", \"spawn c\", \
             \"join c\", \"yield\", \"weight 3\", \"every 5ms\"]\n[[thread]]\nname = \"b\"\n\
             program = [\"recv x\", \"throw\", \"park 1ms\"]\n[[thread]]\nname = \"c\"\nstart = \"spawn\"\n\
             program = [\"sleep 1ms\", \"exit\"]\n";
        assert_eq!(refusal(text), None);
    }
}
