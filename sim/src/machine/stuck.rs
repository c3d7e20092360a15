//! Calls that can never be answered, found when a run ends.
//!
//! A caller is stuck if every thread that could answer it is stuck itself, or has ended. The stuck are the greatest set
//! with this property: a caller that a thread outside of the set could answer is taken out, until nothing changes.

use super::Machine;
use mainspring_sched::WaitKind;
use mainspring_workload::Step;
use std::collections::HashMap;

/// How many stuck callers are named.
const NAMED: usize = 4;

impl Machine<'_> {
    /// The callers that wait for each other, in words; nothing if there are none.
    pub(super) fn call_notices(&self) -> Option<String> {
        if self.workload.endpoints.is_empty() {
            return None;
        }
        let mut taken = HashMap::new();
        let mut receivers = vec![Vec::new(); self.workload.endpoints.len()];
        for (index, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.home.is_some()) {
            for serving in &thread.serving {
                taken.insert(serving.request.call.thread as usize, index);
            }
            for step in &self.workload.threads[thread.spec as usize].program {
                if let Step::Recv { endpoint, .. } = step {
                    receivers[*endpoint].push(index);
                }
            }
        }
        let mut waits: HashMap<usize, (usize, Vec<usize>)> = HashMap::new();
        for (index, thread) in self.threads.iter().enumerate() {
            if thread.home.is_none() || thread.wait != Some(WaitKind::Call) {
                continue;
            }
            let Some(Step::Call(call)) = self.script.step_before(thread.pc) else { continue };
            if call.timeout.is_none() {
                let servers = taken
                    .get(&index)
                    .map_or_else(|| receivers[call.endpoint].clone(), |server| vec![*server]);
                waits.insert(index, (call.endpoint, servers));
            }
        }
        loop {
            let hopes = |(_, (_, servers)): &(&usize, &(usize, Vec<usize>))| {
                servers.iter().any(|server| !waits.contains_key(server))
            };
            let hopeful: Vec<usize> = waits.iter().filter(hopes).map(|(index, _)| *index).collect();
            if hopeful.is_empty() {
                break;
            }
            for index in hopeful {
                waits.remove(&index);
            }
        }
        let mut stuck: Vec<usize> = waits.keys().copied().collect();
        stuck.sort_unstable();
        let say = |index: &usize| {
            let (endpoint, servers) = &waits[index];
            let endpoint = &self.workload.endpoints[*endpoint].name;
            let caller = self.thread_name(*index);
            match servers.first() {
                Some(server) => {
                    format!("{caller} waits for {endpoint}, which {} serves", self.thread_name(*server))
                }
                None => format!("{caller} waits for {endpoint}, which nobody serves any more"),
            }
        };
        let mut said: Vec<String> = stuck.iter().take(NAMED).map(say).collect();
        if stuck.len() > NAMED {
            said.push(format!("and {} more", stuck.len() - NAMED));
        }
        (!said.is_empty()).then(|| format!("deadlock: {}", said.join("; ")))
    }
}
