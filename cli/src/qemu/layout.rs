//! Where on the kernel each part of a workload is: which process has which tables, contexts, sessions and devices.
//!
//! Conserved: tables that have something in common which a process of the kernel has to itself are in one process.

use mainspring_workload::{
    Account, EndpointSpec, InterruptSpec, IslandSpec, LeaseMode, LeaseSpec, Operation, Step, ThreadSpec,
    Workload,
};

/// The table whose thread, or whose process's first thread, asks for a lease: the table of the polled ring's owner, if a ring is polled.
pub fn asker(workload: &Workload, lease: &LeaseSpec) -> usize {
    lease.ring.map_or(lease.thread.thread, |ring| workload.rings[ring].owner.thread)
}

/// The nodes of an island, each as a context table and an instance.
pub fn nodes<'w>(
    workload: &'w Workload,
    island: &'w IslandSpec,
) -> impl Iterator<Item = (usize, usize)> + 'w {
    island.nodes.iter().flat_map(|node| {
        let all = 0..workload.contexts[node.context].instances();
        let named = node.instance.map_or(all, |one| one as usize..one as usize + 1);
        named.map(|instance| (node.context, instance))
    })
}

/// The island that an instance of a context is a node of.
pub fn island_of(workload: &Workload, context: usize, instance: usize) -> Option<usize> {
    workload.islands.iter().position(|island| nodes(workload, island).any(|node| node == (context, instance)))
}

/// The endpoints whose calls are served on an instance of a context.
pub fn served_on(
    workload: &Workload,
    (context, instance): (usize, usize),
) -> impl Iterator<Item = usize> + '_ {
    let served = move |endpoint: &EndpointSpec| {
        endpoint.context.is_some_and(|target| {
            (target.context, target.instance.unwrap_or(0) as usize) == (context, instance)
        })
    };
    (0..workload.endpoints.len()).filter(move |number| served(&workload.endpoints[*number]))
}

/// The table in whose place the kernel polls a ring: its one thread does nothing else, and has the lease of the mode kernel-sqpoll
/// that names the ring. `None` if a thread polls it, or nobody.
pub fn kernel_poller(workload: &Workload, ring: usize) -> Option<usize> {
    let polls = |lease: &&LeaseSpec| lease.mode == LeaseMode::KernelSqpoll && lease.ring == Some(ring);
    let table = workload.leases.iter().find(polls)?.thread.thread;
    let spec = &workload.threads[table];
    (spec.instances() == 1 && spec.program[..] == [Step::Poll(ring)]).then_some(table)
}

/// Whether threads of the workload poll a ring: none of them is the kernel's.
pub fn is_polled_by_threads(workload: &Workload, ring: usize) -> bool {
    let polls = |spec: &ThreadSpec| spec.program.contains(&Step::Poll(ring));
    kernel_poller(workload, ring).is_none() && workload.threads.iter().any(polls)
}

/// Whether a table receives calls at an endpoint.
fn serves(spec: &ThreadSpec, endpoint: usize) -> bool {
    spec.program.iter().any(|step| matches!(step, Step::Recv { endpoint: at, .. } if *at == endpoint))
}

/// Whether any thread receives calls at an endpoint.
pub fn is_served(workload: &Workload, endpoint: usize) -> bool {
    workload.threads.iter().any(|spec| serves(spec, endpoint))
}

/// The context that a step names.
fn context_of(step: &Step) -> Option<usize> {
    match step {
        Step::Bind(target) | Step::Revoke(target) | Step::Drain(target) => Some(target.context),
        _ => None,
    }
}

/// The contexts that threads of a table may be bound to: the table's own, those of its steps, and its process's defaults.
fn bound_by(workload: &Workload, table: usize) -> impl Iterator<Item = usize> + '_ {
    let spec = &workload.threads[table];
    let stepped = spec.program.iter().filter_map(|step| match step {
        Step::Bind(target) => Some(target.context),
        _ => None,
    });
    let is_default = |number: &usize| workload.contexts[*number].process == Some(spec.process);
    let defaults =
        (0..workload.contexts.len()).filter(move |number| spec.context.is_none() && is_default(number));
    spec.context.into_iter().chain(stepped).chain(defaults)
}

/// Which process of the kernel each table, context and session of the workload is in.
#[derive(Debug)]
pub struct Layout {
    /// By table.
    pub threads: Vec<usize>,
    /// By context table.
    pub contexts: Vec<usize>,
    /// By session. `None` if no table is in it.
    pub sessions: Vec<Option<usize>>,
    /// By device, and of the network: who has the threads that it wakes, or leases its CPU, or the first.
    pub devices: Vec<usize>,
    /// See `devices`.
    pub network: usize,
}

/// Tables that are merged step by step.
struct Merged(Vec<usize>);

impl Merged {
    fn merge(&mut self, one: usize, other: usize) {
        let (gone, stays) = (self.0[other], self.0[one]);
        self.0.iter_mut().filter(|process| **process == gone).for_each(|process| *process = stays);
    }

    /// Tables that use the same thing are in one process: the process of the first.
    fn share(&mut self, user: &mut Option<usize>, table: usize) {
        self.merge(*user.get_or_insert(table), table);
    }

    /// Numbers the processes without gaps, in the order of the tables.
    fn numbered(mut self) -> Vec<usize> {
        let mut met = Vec::new();
        for one in &mut self.0 {
            let number = met.iter().position(|known| known == one).unwrap_or(met.len());
            if number == met.len() {
                met.push(*one);
            }
            *one = number;
        }
        self.0
    }
}

impl Layout {
    /// The workload's own processes, but for tables that have something in common which a process of the kernel has to itself: memory, if their threads unpark, spawn, join or synchronise with each other, or one polls a ring of the
    /// other; a context that both use; a session.
    pub fn of(workload: &Workload) -> Self {
        let mut merged = Merged(workload.threads.iter().map(|spec| spec.process).collect());
        let mut of_context = vec![None; workload.contexts.len()];
        let mut of_session = vec![None; workload.sessions.len()];
        let mut of_sync = vec![None; workload.sync.len()];
        for (table, spec) in workload.threads.iter().enumerate() {
            for step in &spec.program {
                match step {
                    Step::Unpark(whom) | Step::Join { target: whom, .. } => merged.merge(table, whom.thread),
                    Step::Spawn(other) => merged.merge(table, *other),
                    Step::Poll(ring) => merged.merge(workload.rings[*ring].owner.thread, table),
                    Step::Lease(lease) | Step::Release(lease) => {
                        merged.merge(asker(workload, &workload.leases[*lease]), table);
                    }
                    _ => {}
                }
                for object in step.sync_objects().into_iter().flatten() {
                    merged.share(&mut of_sync[object], table);
                }
            }
            let stepped = spec.program.iter().filter_map(context_of);
            for context in bound_by(workload, table).chain(stepped) {
                merged.share(&mut of_context[context], table);
            }
            if let Some(session) = spec.session {
                merged.share(&mut of_session[session], table);
            }
        }
        for (number, endpoint) in workload.endpoints.iter().enumerate() {
            let Some(target) = endpoint.context else { continue };
            let servers =
                (0..workload.threads.len()).filter(|table| serves(&workload.threads[*table], number));
            // The node of an island serves servers of one process.
            let on_node =
                island_of(workload, target.context, target.instance.unwrap_or(0) as usize).is_some();
            for server in servers.take(if on_node { usize::MAX } else { 1 }) {
                merged.share(&mut of_context[target.context], server);
            }
        }
        for island in &workload.islands {
            let mut tables = island.nodes.iter().filter_map(|node| of_context[node.context]);
            if let Some(first) = tables.next() {
                tables.for_each(|table| merged.merge(first, table));
            }
        }
        for lease in &workload.leases {
            let asks = asker(workload, lease);
            merged.merge(asks, lease.thread.thread);
            if let Account::Context(target) = lease.account {
                merged.share(&mut of_context[target.context], asks);
            }
            // Threads that may run on its CPUs alone are made before it is asked for.
            for (table, spec) in workload.threads.iter().enumerate() {
                if spec.cpus.as_ref().is_some_and(|cpus| cpus.without(&lease.cpus).is_empty()) {
                    merged.merge(asks, table);
                }
            }
        }
        // A driver on a CPU that is leased is made before that is asked for.
        let lessor = |cpu: usize| {
            let has = |lease: &&LeaseSpec| lease.cpus.iter().any(|leased| leased.index() == cpu);
            workload.leases.iter().find(has).map(|lease| asker(workload, lease))
        };
        let driven =
            |device: &InterruptSpec| device.wakes.map(|woken| woken.thread).or_else(|| lessor(device.cpu));
        for device in &workload.interrupts {
            if let (Some(woken), Some(asks)) = (device.wakes, lessor(device.cpu)) {
                merged.merge(asks, woken.thread);
            }
        }
        // The service tells the kernel of threads by what its process knows of them.
        if let Some(policy) = &workload.policy {
            for at in &workload.operations {
                if let Operation::PolicyWeight { thread, .. } | Operation::PolicyProfile { thread, .. } =
                    at.operation
                {
                    merged.merge(policy.service.thread, thread.thread);
                }
            }
        }
        let threads = merged.numbered();
        let of = |table: Option<usize>| table.map_or(0, |table| threads[table]);
        Self {
            contexts: of_context.into_iter().map(of).collect(),
            sessions: of_session.into_iter().map(|table| table.map(|table| threads[table])).collect(),
            devices: workload.interrupts.iter().map(|device| of(driven(device))).collect(),
            network: of(workload.network.as_ref().and_then(|network| lessor(network.cpu))),
            threads,
        }
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        self.threads.iter().max().map_or(1, |last| last + 1)
    }

    /// The process that closes an endpoint: the first that serves it, or the first of all.
    pub fn of_server(&self, workload: &Workload, endpoint: usize) -> usize {
        let server = workload.threads.iter().position(|spec| serves(spec, endpoint));
        server.map_or(0, |table| self.threads[table])
    }

    /// The process that has an island: the process of its nodes.
    pub fn of_island(&self, island: &IslandSpec) -> usize {
        island.nodes.first().map_or(0, |node| self.contexts[node.context])
    }

    /// The sessions that a process holds: some of its threads are in them.
    pub fn held_sessions(&self, process: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.sessions.len()).filter(move |session| self.sessions[*session] == Some(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        mainspring_workload::parse("test.toml", text).expect("the test's workload is one")
    }

    #[test]
    fn threads_of_one_session_are_in_the_process_that_holds_it_beside_threads_of_others() {
        let text = "[[session]]\nname = \"alice\"\n[[session]]\nname = \"bob\"\n\
             [[thread]]\nname = \"a\"\nsession = \"alice\"\nprogram = [\"run 1ms\", \"unpark b\"]\n\
             [[thread]]\nname = \"b\"\nsession = \"bob\"\nprogram = [\"park 1ms\"]\n\
             [[thread]]\nname = \"c\"\nprogram = [\"run 1ms\"]\n\
             [[thread]]\nname = \"d\"\nsession = \"bob\"\nprogram = [\"run 1ms\"]\n";
        let layout = Layout::of(&workload(text));
        assert_eq!(layout.threads, [0, 0, 1, 0]);
        let held = |process| layout.held_sessions(process).collect::<Vec<_>>();
        assert_eq!((held(0), held(1)), (vec![0, 1], vec![]));
    }

    #[test]
    fn a_ring_is_polled_by_the_kernel_for_a_thread_that_does_nothing_else_under_the_lease_of_the_ring() {
        let text = |lease: &str, program: &str| {
            workload(&format!(
                "[machine]\ncpus = 2\n[[ring]]\nname = \"r\"\nowner = \"a\"\nsqpoll = true\n{lease}\
                 [[thread]]\nname = \"p\"\ncpus = [1]\nprogram = [{program}]\n\
                 [[thread]]\nname = \"a\"\nprogram = [\"submit r 1\", \"complete r 1\", \"sleep 1ms\"]\n"
            ))
        };
        let lease =
            "[[lease]]\nname = \"l\"\ncpus = [1]\nthread = \"p\"\nmode = \"kernel-sqpoll\"\nring = \"r\"\n";
        for (lease, program, kernels) in [
            (lease, "\"poll r\"", true),
            (lease, "\"poll r\", \"run 1us\"", false),
            ("", "\"poll r\"", false),
        ] {
            let workload = text(lease, program);
            assert_eq!(kernel_poller(&workload, 0), kernels.then_some(0), "{lease}{program}");
            assert_eq!(is_polled_by_threads(&workload, 0), !kernels, "{lease}{program}");
            assert_eq!(Layout::of(&workload).threads, [0, 0], "they have the ring in common");
        }
    }

    #[test]
    fn threads_that_share_a_default_context_are_in_one_process_with_it() {
        let text = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"\nprocess = \"pool\"\n\
             [[thread]]\nname = \"other\"\nprogram = [\"run 1ms\"]\n\
             [[thread]]\nname = \"a\"\nprocess = \"pool\"\nprogram = [\"run 1ms\"]\n\
             [[thread]]\nname = \"b\"\nprocess = \"pool\"\nprogram = [\"run 1ms\"]\n";
        let layout = Layout::of(&workload(text));
        assert_eq!((&layout.threads[..], &layout.contexts[..]), (&[0, 1, 1][..], &[1][..]));
    }
}
