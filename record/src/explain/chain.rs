//! Which thread waits for which: from a thread that waits for an answer to what holds that answer up.

use super::history::History;
use super::spent::wait;
use mainspring_abi::{ContextRef, CpuId, Nanos};
use mainspring_report::{EndpointReport, Report, instant};
use mainspring_sched::{Cpu, State, ThreadView, WaitKind};
use std::collections::HashMap;

/// How many servers of one endpoint are named.
const SERVERS_SHOWN: usize = 4;
/// Chains are followed for so many links.
const LONGEST: usize = 16;

/// A machine at one instant.
pub(super) struct Scene<'a> {
    names: &'a [String],
    /// By thread: where it was, and how.
    threads: HashMap<u32, (CpuId, ThreadView)>,
    /// By CPU: the thread that ran.
    running: Vec<Option<u32>>,
    /// By caller: who serves its call, where that is known.
    servers: HashMap<u32, u32>,
    /// The summary of the run: which tables call and serve which endpoint, and the names of contexts.
    pub(super) summary: Option<Report>,
}

impl<'a> Scene<'a> {
    pub(super) fn of(cpus: &[Cpu], names: &'a [String], history: &History) -> Self {
        let views = cpus.iter().flat_map(|cpu| cpu.threads().into_iter().map(|view| (cpu.id(), view)));
        let threads: HashMap<u32, (CpuId, ThreadView)> =
            views.map(|(cpu, view)| (view.thread.index(), (cpu, view))).collect();
        let serves = |caller: &u32| Some((*caller, history.server_of(*caller)?));
        let servers = threads.keys().filter_map(serves).collect();
        let running = cpus.iter().map(|cpu| cpu.current().map(|seat| seat.thread().index())).collect();
        Self { names, threads, running, servers, summary: None }
    }

    fn find(&self, index: u32) -> Option<(CpuId, &ThreadView)> {
        self.threads.get(&index).map(|(cpu, view)| (*cpu, view))
    }

    pub(super) fn name(&self, index: u32) -> &str {
        self.names.get(index as usize).map_or("a thread", String::as_str)
    }

    /// The context that the thread was on, by name.
    pub(super) fn context_of(&self, index: u32) -> Option<String> {
        Some(self.context(self.find(index)?.1.context?.0))
    }

    /// The lines of the chain that begins with thread `index`; none if it waits for no answer.
    pub(super) fn chain(&self, index: u32) -> Vec<String> {
        let mut lines = Vec::new();
        self.follow(index, &mut vec![index], &mut lines);
        lines
    }

    fn follow(&self, index: u32, path: &mut Vec<u32>, lines: &mut Vec<String>) {
        let waits = |view: &ThreadView| matches!(view.state, State::Asleep(WaitKind::Call));
        let (Some((_, view)), Some(summary)) = (self.find(index), &self.summary) else { return };
        if !waits(view) || path.len() > LONGEST {
            return;
        }
        let mut indent = "  ".repeat(path.len());
        let calls =
            |endpoint: &&EndpointReport| endpoint.callers.iter().any(|t| t == table_of(self.name(index)));
        let mut endpoints: Vec<&EndpointReport> = summary.endpoints.iter().filter(calls).collect();
        let server = self.servers.get(&index).copied();
        if let Some(server) = server {
            let serves = |endpoint: &&EndpointReport| {
                endpoint.servers.iter().any(|t| t == table_of(self.name(server)))
            };
            endpoints.retain(serves);
        }
        if endpoints.len() > 1 {
            let names: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
            lines.push(format!(
                "{indent}it waited at {}; the record does not say at which",
                names.join(" or at ")
            ));
            indent += "  ";
        }
        for endpoint in &endpoints {
            let busy = server.map_or_else(|| self.busy_servers(&endpoint.servers), |server| vec![server]);
            let name = &endpoint.name;
            let whose = if endpoints.len() > 1 {
                format!("{indent}the server of {name}:")
            } else {
                format!("{indent}it waited at endpoint {name}, whose server")
            };
            if busy.is_empty() && endpoints.len() == 1 {
                lines.push(format!("{indent}it waited at endpoint {name}, which nobody served"));
            }
            for server in busy.into_iter().take(SERVERS_SHOWN) {
                let doing = self.find(server).map_or_else(String::new, |(cpu, view)| self.doing(cpu, view));
                lines.push(format!("{whose} {} {doing}", self.name(server)));
                if let Some(at) = path.iter().position(|seen| *seen == server) {
                    let round: Vec<&str> =
                        path[at..].iter().chain([&server]).map(|n| self.name(*n)).collect();
                    lines.push(format!("{indent}  a deadlock: {}", round.join(" waits for ")));
                    continue;
                }
                path.push(server);
                self.follow(server, path, lines);
                path.pop();
            }
        }
    }

    /// The servers of an endpoint that were not waiting for a request themselves.
    fn busy_servers(&self, tables: &[String]) -> Vec<u32> {
        let serves = |name: &String| tables.iter().any(|table| table == table_of(name));
        let servers = (0_u32..).zip(self.names).filter(|(_, name)| serves(name)).map(|(index, _)| index);
        let busy = |index: &u32| {
            self.find(*index).is_some_and(|(_, view)| !matches!(view.state, State::Asleep(WaitKind::Receive)))
        };
        servers.filter(busy).collect()
    }

    /// What a thread did, for the end of a sentence.
    fn doing(&self, here: CpuId, view: &ThreadView) -> String {
        let until = |at: Nanos| instant(at.get());
        match view.state {
            State::Running => format!("ran on CPU {here}"),
            State::Queued | State::Direct | State::Held => {
                match self.running.get(here.index()).copied().flatten() {
                    Some(running) => format!("was ready, while CPU {here} ran {}", self.name(running)),
                    None => format!("was ready on CPU {here}"),
                }
            }
            State::Throttled => match view.context {
                Some((who, urgency)) => format!(
                    "was throttled: context {} was used up until {}",
                    self.context(who),
                    until(urgency.release)
                ),
                None => "was throttled".to_owned(),
            },
            State::Asleep(kind) => match view.deadline {
                Some(deadline) => {
                    format!("was blocked ({}) until {} at the latest", wait(kind), until(deadline))
                }
                None => format!("was blocked ({})", wait(kind)),
            },
        }
    }

    /// Whether the context was revoked by the end of the run.
    pub(super) fn is_revoked(&self, who: ContextRef) -> bool {
        let row = (who.id() as usize).checked_sub(1).and_then(|row| self.summary.as_ref()?.contexts.get(row));
        row.is_some_and(|context| context.state == "revoked")
    }

    /// The name of a context, or its number.
    pub(super) fn context(&self, who: ContextRef) -> String {
        let row = (who.id() as usize).checked_sub(1).and_then(|row| self.summary.as_ref()?.contexts.get(row));
        row.map_or_else(|| format!("{who:?}"), |context| context.name.clone())
    }
}

/// The table of an instance: `batch` of `batch.7`.
fn table_of(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((table, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            table
        }
        _ => name,
    }
}
