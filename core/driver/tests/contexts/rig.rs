//! Threads that call each other on a stepped machine, as a kernel would let them: every end of a call goes through the driver.

use crate::machines::stepped::Stepped;
use crate::machines::{cpu, entity};
use mainspring_abi::{ContextRef, CpuId, CpuSet, Nanos, ThreadRef};
use mainspring_driver::contexts::{
    AdmissionRules, CallEnd, Contexts, Grant, HomeCpu, Lent, LoanEnd, NoLoan, may_block,
};
use mainspring_driver::ledgers::Ledgers;
use mainspring_driver::sessions::Sessions;
use mainspring_driver::{Machine, placement};
use mainspring_sched::context::ContextSpec;
use mainspring_sched::{Affinity, Authority, Entity, Stop, WaitKind};
use std::sync::Arc;

/// What a thread does, as its machine knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Working,
    /// It waits for a request.
    Receiving,
    /// It waits for this server's answer.
    Calling(ThreadRef),
    Dead,
}

#[derive(Debug)]
pub struct Thread {
    pub name: ThreadRef,
    pub doing: Doing,
    /// Whose calls it has taken and not answered.
    pub serving: Vec<ThreadRef>,
    pub cpus: Option<Vec<usize>>,
}

pub struct Rig {
    pub machine: Stepped,
    pub contexts: Contexts,
    pub threads: Vec<Thread>,
}

pub fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

pub fn on(cpus: &[usize]) -> Affinity {
    Affinity::Only(Arc::new(cpus.iter().map(|index| cpu(*index)).collect()))
}

/// Granted by the machine, without a session, process or ledger.
pub fn at(home: usize) -> Grant {
    Grant { session: None, process: None, ledger: None, home: HomeCpu::Decided(cpu(home)) }
}

pub fn rules(cpus: usize) -> AdmissionRules {
    AdmissionRules { cpus: CpuSet::first(cpus), ..AdmissionRules::default() }
}

impl Rig {
    /// `threads` threads, each on the CPU that its number gives.
    pub fn new(cpus: usize, threads: usize) -> Self {
        let sessions = Sessions::new(4).expect("four fit");
        let ledgers = Ledgers::new(4).expect("four fit");
        let contexts = Contexts::new(16, rules(cpus), sessions, ledgers).expect("16 fit");
        let mut rig = Self { machine: Stepped::new(cpus, threads), contexts, threads: Vec::new() };
        for index in 0..threads as u32 {
            let name = ThreadRef::new(index, 0);
            rig.threads.push(Thread { name, doing: Doing::Dead, serving: Vec::new(), cpus: None });
            rig.start(index as usize, index as usize % cpus);
        }
        rig
    }

    pub fn start(&mut self, index: usize, on: usize) {
        let thread = &mut self.threads[index];
        thread.doing = Doing::Working;
        let mut born = entity(index as u32, thread.cpus.as_deref());
        if thread.name.generation() != 0 {
            let spec = mainspring_sched::Spec::new(thread.name);
            born = Entity::new(mainspring_sched::Spec { affinity: born.affinity().clone(), ..spec });
        }
        placement::start(&mut self.machine, cpu(on), born).expect("there is a seat");
    }

    pub fn name(&self, index: usize) -> ThreadRef {
        self.threads[index].name
    }

    /// A context for `cpus`, with its home on the first of them.
    pub fn grant(&mut self, budget: u64, period: u64, cpus: &[usize]) -> ContextRef {
        let spec = ContextSpec { cpus: on(cpus), ..ContextSpec::new(ms(budget), ms(period)) };
        self.grant_spec(spec, at(cpus[0]))
    }

    pub fn grant_spec(&mut self, spec: ContextSpec, grant: Grant) -> ContextRef {
        let now = self.machine.now;
        self.contexts.grant(now, spec, grant).expect("a sound grant")
    }

    /// The same, bound to a thread.
    pub fn bound(&mut self, index: usize, cpus: &[usize]) -> ContextRef {
        let who = self.grant(2, 10, cpus);
        self.contexts.bind(&mut self.machine, who, self.threads[index].name).expect("it is free");
        who
    }

    pub fn authority<R>(&self, index: usize, look: impl FnOnce(&Authority) -> R) -> Option<R> {
        let home = self.machine.home(self.threads[index].name)?;
        self.machine.core(home.cpu).entity(home.seat).ok().map(|entity| look(entity.authority()))
    }

    /// The context that a thread holds.
    pub fn holds(&self, index: usize) -> Option<ContextRef> {
        self.authority(index, |authority| match authority {
            Authority::Context(context) => Some(context.who()),
            _ => None,
        })?
    }

    /// The context that a thread has lent.
    pub fn lent(&self, index: usize) -> Option<ContextRef> {
        self.authority(index, |authority| match authority {
            Authority::Lent(who) => Some(*who),
            _ => None,
        })?
    }

    pub fn running(&self, on: CpuId) -> Option<usize> {
        self.machine.core(on).current().map(|seat| seat.thread().index() as usize)
    }

    /// Every CPU decides if it should.
    pub fn decide_all(&mut self) {
        for on in (0..self.machine.cpus()).map(cpu) {
            let core = self.machine.core(on);
            let stop = match core.current() {
                None => Stop::Nothing,
                Some(_) if core.reschedule_wanted() => Stop::Preempted,
                Some(_) => continue,
            };
            let overran = self.machine.with_cpu(on, |cpu| {
                let _decision = cpu.event().resched(stop);
                cpu.take_overrun()
            });
            self.machine.overruns.extend(overran);
        }
    }

    /// Lets each other thread on its CPU stop, until `index` runs.
    pub fn run(&mut self, index: usize) {
        for _ in 0..64 {
            self.decide_all();
            let home = self.machine.home(self.threads[index].name).expect("it lives");
            if self.running(home.cpu) == Some(index) {
                return;
            }
            self.machine.now += Nanos::from_micros(100);
            self.machine.with_cpu(home.cpu, |cpu| {
                let _decision = cpu.event().resched(Stop::Yielded);
            });
        }
        panic!("thread {index} does not get to run");
    }

    /// The running thread `index` waits, and its CPU has not chosen yet.
    pub fn block(&mut self, index: usize, kind: WaitKind) {
        let home = self.machine.home(self.threads[index].name).expect("it runs");
        let overran = self.machine.with_cpu(home.cpu, |cpu| {
            assert_eq!(cpu.cpu().current(), Some(home.seat), "only who runs can wait");
            assert!(cpu.event().block_current(kind, None));
            cpu.take_overrun()
        });
        self.machine.overruns.extend(overran);
    }

    /// The running thread `index` waits for a request; whether it may.
    pub fn receive(&mut self, index: usize) -> bool {
        let home = self.machine.home(self.threads[index].name).expect("it runs");
        if may_block(self.machine.core(home.cpu), home.seat, WaitKind::Receive).is_err() {
            return false;
        }
        self.block(index, WaitKind::Receive);
        self.threads[index].doing = Doing::Receiving;
        self.decide_all();
        true
    }

    /// The running thread `caller` calls `server`, which waits for a request.
    pub fn call(&mut self, caller: usize, server: usize) -> Result<Lent, NoLoan> {
        let (from, to) = (self.threads[caller].name, self.threads[server].name);
        if let Err(why) = self.contexts.may_lend(&mut self.machine, from, to)
            && why.refuses_call()
        {
            return Err(why);
        }
        self.block(caller, WaitKind::Call);
        self.threads[caller].doing = Doing::Calling(to);
        self.threads[server].serving.push(from);
        self.threads[server].doing = Doing::Working;
        let lent = self.contexts.lend(&mut self.machine, from, to);
        if !matches!(lent, Ok(Lent::Ready(_))) {
            placement::wake(&mut self.machine, to);
        }
        self.decide_all();
        lent
    }

    /// The same, at an endpoint that takes no loans.
    pub fn call_without_loan(&mut self, caller: usize, server: usize) {
        let (from, to) = (self.threads[caller].name, self.threads[server].name);
        self.block(caller, WaitKind::Call);
        self.threads[caller].doing = Doing::Calling(to);
        self.threads[server].serving.push(from);
        self.threads[server].doing = Doing::Working;
        placement::wake(&mut self.machine, to);
        self.decide_all();
    }

    /// The call of `caller` ends, and it goes on.
    pub fn end_call(&mut self, caller: usize, end: CallEnd) -> LoanEnd {
        let Doing::Calling(server) = self.threads[caller].doing else { panic!("it waits for no call") };
        let from = self.threads[caller].name;
        if self.threads[server.index() as usize].name == server {
            self.threads[server.index() as usize].serving.retain(|one| *one != from);
        }
        let ended = self.contexts.end_call(&mut self.machine, from, end);
        self.threads[caller].doing = Doing::Working;
        assert_eq!(placement::wake(&mut self.machine, from), placement::Wake::Woken, "a caller wakes once");
        self.decide_all();
        ended
    }

    /// `index` ends, whatever it does.
    pub fn kill(&mut self, index: usize) {
        let name = self.threads[index].name;
        let mut ended = if self.machine.moving() == Some(name) {
            self.machine.take_moving()
        } else {
            let home = self.machine.home(name).expect("it lives");
            if self.machine.core(home.cpu).current() == Some(home.seat) {
                placement::exit_current(&mut self.machine, home.cpu)
            } else {
                placement::remove(&mut self.machine, name).map(|removed| removed.entity)
            }
        }
        .expect("it lives");
        self.contexts.thread_ended(&mut self.machine, &mut ended);
        let thread = &mut self.threads[index];
        let (was, serving) = (thread.doing, std::mem::take(&mut thread.serving));
        thread.doing = Doing::Dead;
        thread.name = thread.name.successor().expect("few lives");
        if let Doing::Calling(server) = was {
            self.threads[server.index() as usize].serving.retain(|one| *one != name);
        }
        for caller in serving {
            self.end_call(caller.index() as usize, CallEnd::ServerGone);
        }
        self.decide_all();
    }

    /// Time passes on every CPU.
    pub fn advance(&mut self, by: Nanos) {
        let until = self.machine.now + by;
        loop {
            let next = (0..self.machine.cpus()).map(|index| self.machine.core(cpu(index)).next_timer()).min();
            let next = next.filter(|next| *next <= until).map_or(until, |next| next.max(self.machine.now));
            self.machine.now = next;
            for on in (0..self.machine.cpus()).map(cpu) {
                if self.machine.core(on).next_timer() <= next {
                    self.machine.with_cpu(on, |cpu| {
                        let _outcome = cpu.event().timer();
                    });
                }
            }
            self.decide_all();
            if next == until {
                return;
            }
            // A tick that is due again at once would never let time pass.
            self.machine.now += Nanos::new(1);
        }
    }

    pub fn verify(&mut self) {
        self.contexts.verify(&mut self.machine).expect("every context is in one place");
        for index in 0..self.machine.cpus() {
            self.machine.core(cpu(index)).verify().expect("the structure holds");
        }
    }
}
