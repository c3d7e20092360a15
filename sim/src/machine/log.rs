//! What happens to authority, as the report lists it.

use super::Machine;
use mainspring_abi::Nanos;
use mainspring_sched::context::Refill;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Refill,
    Deplete,
    Miss,
    Donate,
    Return,
    Refuse,
    Bind,
    Unbind,
    Revoke,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub time: Nanos,
    pub kind: Kind,
    pub cpu: Option<usize>,
    pub context: Option<usize>,
    pub thread: Option<usize>,
    pub to: Option<usize>,
    pub reason: &'static str,
    pub refills: Vec<Refill>,
}

impl Machine<'_> {
    /// Lists an event, if anybody wants the list.
    pub(super) fn log(
        &mut self,
        kind: Kind,
        cpu: Option<usize>,
        context: Option<usize>,
        thread: Option<usize>,
        to: Option<usize>,
        reason: &'static str,
    ) {
        if self.schedule.is_some() {
            let time = self.now;
            self.entries.push(Entry { time, kind, cpu, context, thread, to, reason, refills: Vec::new() });
        }
    }

    pub(super) fn log_refills(&mut self, context: usize, refills: &[Refill]) {
        let home = self.grants.list[context].home;
        self.entries.push(Entry {
            time: self.now,
            kind: Kind::Refill,
            cpu: Some(home),
            context: Some(context),
            thread: self.grants.list[context].holder.map(|holder| holder as usize),
            to: None,
            reason: "",
            refills: refills.to_vec(),
        });
    }
}
