//! What a job graph says of its nodes. It has no effect on any CPU until the policy maps it.

use super::settings::Treatment;
use alloc::collections::BTreeMap;
use mainspring_abi::Nanos;
use mainspring_abi::request::Request;
use mainspring_abi::ring::QosFlags;

/// A coordinator's name for one of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue(pub u32);

/// The fields of a job-graph node that look like scheduling and are not.
///
/// They are private, and nothing converts them into a weight, a context or a deadline but a [`JobMap`], which is the
/// policy's:
///
/// ```compile_fail,E0277
/// use mainspring_abi::Weight;
/// use mainspring_authority::boundary::JobFields;
/// fn weigh(fields: JobFields) -> Weight {
///     fields.into()
/// }
/// ```
///
/// ```compile_fail,E0616
/// use mainspring_authority::boundary::JobFields;
/// fn peek(fields: JobFields) -> i32 {
///     fields.priority
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobFields {
    priority: i32,
    deadline: Option<Nanos>,
    budget: Option<Nanos>,
    queue: Queue,
}

impl JobFields {
    /// What a coordinator wrote down.
    #[must_use]
    pub const fn new(priority: i32, deadline: Option<Nanos>, budget: Option<Nanos>, queue: Queue) -> Self {
        Self { priority, deadline, budget, queue }
    }
}

/// What the policy makes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// How its thread is treated.
    pub treatment: Treatment,
    /// The admitted context that it may run on, by the service's number, if the policy gives it one. The node's budget
    /// must fit it.
    pub context: Option<u32>,
    /// What its requests carry.
    pub request: Request,
}

/// The policy's mapping of job-graph nodes: by queue, and in a queue by least priority.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JobMap {
    rules: BTreeMap<Queue, BTreeMap<i32, Rule>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    treatment: Treatment,
    context: Option<(u32, Nanos)>,
}

impl JobMap {
    /// Nodes of `queue` with `priority` or more get this treatment. A node among them whose budget is at most the
    /// budget in `context` may run on that context.
    pub fn set(&mut self, queue: Queue, priority: i32, treatment: Treatment, context: Option<(u32, Nanos)>) {
        self.rules.entry(queue).or_default().insert(priority, Rule { treatment, context });
    }

    /// What the policy makes of a node; `None` if it says nothing of it, and then the node is like any other thread.
    #[must_use]
    pub fn map(&self, fields: &JobFields) -> Option<Mapped> {
        let (_, rule) = self.rules.get(&fields.queue)?.range(..=fields.priority).next_back()?;
        let fits = |(_, most): &(u32, Nanos)| fields.budget.is_some_and(|budget| budget <= *most);
        let context = rule.context.filter(fits).map(|(id, _)| id);
        let deadline_ns = fields.deadline.map_or(0, Nanos::get);
        let request = Request { deadline_ns, qos: QosFlags::NONE, after_previous: false };
        Some(Mapped { treatment: rule.treatment, context, request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::{LatencyClass, Weight};

    #[test]
    fn only_the_policys_mapping_gives_a_node_an_effect() {
        let node = |priority, budget| JobFields::new(priority, Some(Nanos::new(9)), budget, Queue(3));
        let mut map = JobMap::default();
        assert_eq!(map.map(&node(i32::MAX, Some(Nanos::new(1)))), None, "no rule, no effect");
        let batch = Treatment { weight: Weight::DEFAULT, class: LatencyClass::Batch };
        let urgent = Treatment { weight: Weight::new(128).expect("in range"), ..Treatment::default() };
        map.set(Queue(3), 0, batch, None);
        map.set(Queue(3), 10, urgent, Some((7, Nanos::new(5))));
        assert_eq!(map.map(&node(-1, None)), None, "below every rule");
        let low = map.map(&node(9, Some(Nanos::new(1)))).expect("the first rule");
        assert_eq!((low.treatment, low.context, low.request.deadline_ns), (batch, None, 9));
        let contexts = [None, Some(Nanos::new(5)), Some(Nanos::new(6))]
            .map(|budget| map.map(&node(10, budget)).and_then(|mapped| mapped.context));
        assert_eq!(contexts, [None, Some(7), None], "a context only for a stated budget that fits it");
        assert_eq!(map.map(&JobFields::new(10, None, None, Queue(4))), None, "another queue");
    }
}
