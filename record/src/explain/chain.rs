//! Who waits for whom: from a thread that waits for an answer to what holds that answer up.

use super::spent::wait;
use mainspring_abi::Nanos;
use mainspring_report::{Report, instant};
use mainspring_sched::{Cpu, State, ThreadView};

/// How many servers of one endpoint are named.
const SERVERS_SHOWN: usize = 4;
/// Chains are followed for so many links.
const LONGEST: usize = 16;

/// A machine at one instant.
pub(super) struct Scene<'a> {
    pub cpus: &'a [Cpu],
    pub names: &'a [String],
    /// What the machine told of the run: which tables call and serve which endpoint, and the names of contexts.
    pub told: Option<&'a Report>,
}

impl Scene<'_> {
    fn find(&self, index: u32) -> Option<(&Cpu, ThreadView)> {
        self.cpus
            .iter()
            .find_map(|cpu| Some((cpu, cpu.threads().into_iter().find(|view| view.thread.index() == index)?)))
    }

    fn name(&self, index: u32) -> &str {
        self.names.get(index as usize).map_or("a thread", String::as_str)
    }

    /// The lines of the chain that begins with thread `index`; none if it waits for no answer.
    pub(super) fn chain(&self, index: u32) -> Vec<String> {
        let mut lines = Vec::new();
        self.follow(index, &mut vec![index], &mut lines);
        lines
    }

    fn follow(&self, index: u32, path: &mut Vec<u32>, lines: &mut Vec<String>) {
        let waits = |view: &ThreadView| matches!(view.state, State::Asleep(mainspring_sched::WaitKind::Call));
        let (Some((_, view)), Some(told)) = (self.find(index), self.told) else { return };
        if !waits(&view) || path.len() > LONGEST {
            return;
        }
        let indent = "  ".repeat(path.len());
        let table = table_of(self.name(index));
        for endpoint in told.endpoints.iter().filter(|endpoint| endpoint.callers.iter().any(|t| t == table)) {
            let busy = self.busy_servers(&endpoint.servers);
            if busy.is_empty() {
                lines.push(format!("{indent}it waited at endpoint {}, which nobody served", endpoint.name));
            }
            for server in busy.into_iter().take(SERVERS_SHOWN) {
                let name = self.name(server);
                let doing = self.find(server).map_or_else(String::new, |(cpu, view)| self.doing(cpu, &view));
                lines.push(format!(
                    "{indent}it waited at endpoint {}, whose server {name} {doing}",
                    endpoint.name
                ));
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
            self.find(*index).is_some_and(|(_, view)| {
                !matches!(view.state, State::Asleep(mainspring_sched::WaitKind::Receive))
            })
        };
        servers.filter(busy).collect()
    }

    /// What a thread did, for the end of a sentence.
    fn doing(&self, cpu: &Cpu, view: &ThreadView) -> String {
        let until = |at: Nanos| instant(at.get());
        let here = cpu.id();
        match view.state {
            State::Running => format!("ran on CPU {here}"),
            State::Queued | State::Direct | State::Held => match cpu.current() {
                Some(seat) => {
                    format!("was ready, while CPU {here} ran {}", self.name(seat.thread().index()))
                }
                None => format!("was ready on CPU {here}"),
            },
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

    /// The name of a context, or its number.
    pub(super) fn context(&self, who: mainspring_abi::ContextRef) -> String {
        let row = (who.id() as usize).checked_sub(1).and_then(|row| self.told?.contexts.get(row));
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
