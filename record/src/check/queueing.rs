//! Running and waiting in the exact schedule: what a thread is charged, the tags it waits with, and whether it may preempt.

use super::fairness::{BLUR, Fairness, REFERENCE, Tag};
use super::fluid::span;
use super::machine_model::MachineModel;
use super::{Number, ensure};
use mainspring_abi::LatencyClass;

impl<N: Number> Fairness<N> {
    pub(super) fn charge(&mut self, model: &MachineModel, at: usize, now: u64, index: u32) {
        let ran = now - std::mem::replace(&mut self.cpus[at].since, now);
        if model.cpu_model(at).on_context {
            return;
        }
        self.cpus[at].fluid.charge(index, ran);
        let request = self.request(index);
        let competitor = self.competitor_mut(index);
        competitor.used = (competitor.used + ran) % request;
    }

    /// The tags that thread number `index` would have, had it been queued after running for `ran`.
    pub(super) fn tag_after(&self, at: usize, index: u32, ran: u64) -> Tag<N> {
        let standing = self.cpus[at].fluid.standing(index);
        let request = self.request(index);
        let used = (self.competitor(index).used + ran) % request;
        let position = standing.position.plus(&span(ran, standing.weight));
        let start = position.minus(&span(used, standing.weight));
        let deadline = start.plus(&span(request, standing.weight));
        Tag { start, deadline }
    }

    /// A thread that runs while no other waits runs into no debt: the clock is at least where its request began.
    pub(super) fn catch_up(&mut self, model: &MachineModel, at: usize, now: u64) {
        let cpu_model = model.cpu_model(at);
        let alone = !model.contended(at) && !cpu_model.on_context;
        let Some(running) = cpu_model.running.filter(|_| alone) else {
            return;
        };
        let start = self.tag_after(at, running.index(), now - self.cpus[at].since).start;
        let fluid = &mut self.cpus[at].fluid;
        fluid.clock = fluid.clock.clone().max(start);
    }

    /// The tags of a thread that is about to be queued.
    pub(super) fn tag(&self, at: usize, index: u32) -> Tag<N> {
        self.tag_after(at, index, 0)
    }

    pub(super) fn enqueue(&mut self, at: usize, index: u32) {
        let tag = self.tag(at, index);
        let length = tag.deadline.minus(&tag.start);
        let weight = self.cpus[at].fluid.standing(index).weight;
        let blur = N::whole(1).scaled(REFERENCE.max(weight), weight).scaled(1, BLUR);
        self.blur = self.blur.clone().max(blur);
        self.longest = self.longest.clone().max(length);
        self.competitor_mut(index).tag = Some(tag);
    }

    pub(super) fn requeue(&mut self, at: usize, index: u32) {
        if self.competitor(index).tag.is_some() {
            return;
        }
        let weight = self.competitor(index).weight;
        self.cpus[at].fluid.reweigh(index, weight);
        self.enqueue(at, index);
    }

    /// A thread is about to wait for the CPU: the slice in progress ends at the next multiple.
    pub(super) fn contend(&mut self, model: &MachineModel, at: usize, now: u64) {
        let cpu_model = model.cpu_model(at);
        let Some(running) = cpu_model.running.filter(|_| !cpu_model.on_context) else { return };
        let slice = self.request(running.index()).min(self.setting.quantum.get());
        let place = &mut self.cpus[at];
        while place.slice_end < now {
            place.slice_end += slice * (now - place.slice_end).div_ceil(slice);
        }
    }

    pub(super) fn publish(
        &mut self,
        model: &MachineModel,
        at: usize,
        now: u64,
        index: u32,
        reschedule: bool,
    ) -> Result<(), String> {
        self.contend(model, at, now);
        self.enqueue(at, index);
        let Some(running) = model.cpu_model(at).running else {
            return ensure(reschedule, || "an idle CPU was not asked to reschedule".to_owned());
        };
        if model.cpu_model(at).on_context {
            return Ok(());
        }
        let competitor = self.competitor(index);
        let waiting = competitor.tag.clone().ok_or("just queued")?;
        if competitor.class == LatencyClass::Batch {
            return ensure(!reschedule, || "a batch thread preempted".to_owned());
        }
        let place = &self.cpus[at];
        let deadline = self.tag_after(at, running.index(), now - place.since).deadline;
        let clock = &place.fluid.clock;
        if reschedule {
            let eligible = !self.surely_later(&waiting.start, clock);
            ensure(eligible && !self.surely_before(&deadline, &waiting.deadline), || {
                format!(
                    "t{index} preempts {running:?}, which is due sooner: {waiting:?} {deadline:?} at {clock:?}"
                )
            })
        } else {
            let eligible = self.surely_eligible(&waiting.start, clock);
            ensure(!(eligible && self.surely_before(&waiting.deadline, &deadline)), || {
                format!("t{index} is due before {running:?} and does not preempt: {waiting:?} {deadline:?}")
            })
        }
    }
}
