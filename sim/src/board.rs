//! What every CPU has to give: the published offers, with the most overdue at hand.
//!
//! Conserved: `due` ranks exactly what `offers` holds, except for CPUs on the list of stale ones, which are asked
//! again before anybody chooses. The choice is that of [`choose_victim`], only faster when no thread is bound.

use crate::tournament::Tournament;
use mainspring_abi::CpuId;
use mainspring_driver::CpuCore;
use mainspring_sched::hint::unlikely;
use mainspring_sched::{Offer, choose_victim};

#[derive(Debug)]
pub(crate) struct Board {
    offers: Vec<Offer>,
    /// Relative deadline and CPU, the most overdue first.
    due: Tournament<(i64, u32)>,
    stale: Vec<u32>,
    is_stale: Vec<bool>,
    /// How many CPUs have bound threads to give.
    bound: usize,
}

impl Board {
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            offers: vec![Offer::NONE; cpus],
            due: Tournament::new(cpus, (Offer::NOTHING, u32::MAX)),
            stale: Vec::new(),
            is_stale: vec![false; cpus],
            bound: 0,
        }
    }

    /// What `cpu` has to give may have changed.
    #[inline]
    pub(crate) fn touch(&mut self, cpu: usize) {
        if unlikely(!std::mem::replace(&mut self.is_stale[cpu], true)) {
            self.stale.push(cpu as u32);
        }
    }

    /// The CPU that `thief` should steal from.
    pub(crate) fn victim(&mut self, thief: CpuId, cores: &[CpuCore]) -> Option<CpuId> {
        self.refresh(cores);
        if self.bound > 0 {
            return choose_victim(thief, &self.offers, |victim| cores[victim.index()].bound_due_in(thief));
        }
        let (due_in, cpu) = self.due.first();
        // A thief has nothing queued, so it never finds itself here.
        (due_in != Offer::NOTHING && cpu as usize != thief.index()).then(|| cores[cpu as usize].id())
    }

    fn refresh(&mut self, cores: &[CpuCore]) {
        while let Some(cpu) = self.stale.pop() {
            let cpu = cpu as usize;
            self.is_stale[cpu] = false;
            let offer = cores[cpu].offer();
            self.bound += usize::from(offer.bound_reach != 0);
            self.bound -= usize::from(self.offers[cpu].bound_reach != 0);
            self.offers[cpu] = offer;
            self.due.set(cpu, (offer.due_in, cpu as u32));
        }
    }
}
