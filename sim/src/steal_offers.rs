//! What every CPU has to give: the published offers, with the most overdue at hand.
//!
//! Conserved: `due` ranks exactly what `offers` holds, except for CPUs on the list of stale ones, which are asked
//! again before any choice. The choice is the driver's ([`mainspring_driver::steal`]), only faster.

use crate::tournament::Tournament;
use mainspring_abi::CpuId;
use mainspring_driver::CpuCore;
use mainspring_sched::Offer;
use mainspring_sched::hint::unlikely;

#[derive(Debug)]
pub(crate) struct StealOffers {
    offers: Vec<Offer>,
    /// Relative deadline and CPU, the most overdue first.
    due: Tournament<(i64, u32)>,
    stale: Vec<u32>,
    is_stale: Vec<bool>,
    /// How many CPUs have bound threads to give.
    bound: usize,
}

impl StealOffers {
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

    /// What `cpu` has to give.
    pub(crate) fn offer(&self, cpu: usize, cores: &[CpuCore]) -> Offer {
        if self.is_stale[cpu] { cores[cpu].offer() } else { self.offers[cpu] }
    }

    /// Whether any thread that is offered is bound to some CPUs. Then the first of all offers may not be for every CPU.
    pub(crate) fn any_bound(&mut self, cores: &[CpuCore]) -> bool {
        self.refresh(cores);
        self.bound > 0
    }

    /// The CPU that `thief` should steal from, if no thread is bound.
    pub(crate) fn most_overdue(&self, thief: CpuId, cores: &[CpuCore]) -> Option<CpuId> {
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
