//! What happens to authority at single instants, as the report lists it.

use super::Machine;
use mainspring_report::Event;
use mainspring_sched::context::Refill;

impl Machine<'_> {
    /// Lists an event, if the list is wanted; `fill` adds the details.
    pub(super) fn log(&mut self, kind: &str, fill: impl FnOnce(&Self, &mut Event)) {
        if self.schedule.is_some() {
            let mut event = Event::new(self.now.get(), kind);
            fill(self, &mut event);
            self.events.push(event);
        }
    }

    /// Lists what happened to a context, on its home CPU.
    pub(super) fn log_context(
        &mut self,
        kind: &str,
        context: Option<usize>,
        thread: Option<usize>,
        to: Option<usize>,
        reason: &'static str,
    ) {
        self.log(kind, |machine, event| {
            event.cpu = context.and_then(|context| machine.grants.list[context].home).map(|home| home as u32);
            event.context = context.map(|context| machine.context_name(context));
            event.thread = thread.map(|thread| machine.thread_name(thread));
            event.to = to.map(|to| machine.thread_name(to));
            event.reason = (!reason.is_empty()).then(|| reason.to_owned());
        });
    }

    pub(super) fn log_refills(&mut self, context: usize, refills: &[Refill]) {
        let holder = self.holder_of(context);
        self.log("refill", |machine, event| {
            event.cpu = machine.grants.list[context].home.map(|home| home as u32);
            event.context = Some(machine.context_name(context));
            event.thread = holder.map(|holder| machine.thread_name(holder.index() as usize));
            event.refills =
                Some(refills.iter().map(|refill| (refill.at.get(), refill.amount.get())).collect());
        });
    }

    /// The name of a context of the workload.
    pub(super) fn context_name(&self, context: usize) -> String {
        let table = self.grants.list[context].table;
        self.workload.contexts[table].instance_name(context - self.grants.numbers.first(table))
    }
}
