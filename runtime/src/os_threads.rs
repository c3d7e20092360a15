//! The threads that the workers are, as the host's kernel knows them, and the CPUs that each may use.
//!
//! Conserved: a worker that is leased has one CPU of the host that no other thread of this process may use, as long as one CPU is
//! left for those. A worker for which there is none runs where the others do. When the last lease is over, every thread may use
//! the CPUs that it could use before.

use mainspring_abi::CpuSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

/// A thread of the host.
type Tid = libc::pid_t;

/// CPUs of the host, by number.
type Mask = Vec<usize>;

#[derive(Debug)]
pub(crate) struct OsThreads {
    /// By worker; 0 for one that has not started.
    workers: Box<[AtomicI32]>,
    pinned: Mutex<Pinned>,
}

#[derive(Debug, Default)]
struct Pinned {
    /// The CPU of each worker that is leased and has one.
    cpus: Vec<Option<usize>>,
    /// What threads could use before they left those CPUs.
    before: Vec<(Tid, Mask)>,
}

impl OsThreads {
    pub(crate) fn new(workers: usize) -> Self {
        let pinned = Pinned { cpus: vec![None; workers], before: Vec::new() };
        Self { workers: (0..workers).map(|_| AtomicI32::new(0)).collect(), pinned: Mutex::new(pinned) }
    }

    /// The calling thread is `worker`.
    pub(crate) fn note(&self, worker: usize) {
        // Release pairs with the acquire of the one that pins it: the thread is there by then.
        self.workers[worker].store(own_tid(), Ordering::Release);
        let pinned = self.locked();
        if pinned.cpus.iter().any(Option::is_some) {
            // It has started while a lease was live.
            let cpu = pinned.cpus[worker];
            let mask = mask_of(own_tid()).unwrap_or_default();
            let taken = |cpu: &usize| pinned.cpus.contains(&Some(*cpu));
            let mask =
                cpu.map_or_else(|| mask.into_iter().filter(|cpu| !taken(cpu)).collect(), |cpu| vec![cpu]);
            set_mask(own_tid(), &mask);
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Pinned> {
        self.pinned.lock().expect("no panic while it is held")
    }

    /// Waits until every worker has started.
    pub(crate) fn wait_for_all(&self) {
        while self.tids().count() < self.workers.len() {
            std::thread::yield_now();
        }
    }

    /// The threads of the workers that have started.
    pub(crate) fn tids(&self) -> impl Iterator<Item = (usize, Tid)> + '_ {
        let tids = self.workers.iter().map(|tid| tid.load(Ordering::Acquire)).enumerate();
        tids.filter(|(_, tid)| *tid != 0)
    }

    /// The CPU that a leased worker has to itself in this process.
    pub(crate) fn cpu_of(&self, worker: usize) -> Option<usize> {
        self.locked().cpus.get(worker).copied().flatten()
    }

    /// These workers are leased from now on, and no others.
    pub(crate) fn pin(&self, leased: &CpuSet) {
        let mut pinned = self.locked();
        let is_leased =
            |worker: usize| mainspring_abi::CpuId::new(worker).is_ok_and(|cpu| leased.contains(cpu));
        // What the process may use, as its threads could before.
        let all = pinned.before.iter().flat_map(|(_, mask)| mask.iter().copied());
        let mut usable: Mask = all.chain(mask_of(0).unwrap_or_default()).collect();
        usable.sort_unstable();
        usable.dedup();
        for worker in 0..pinned.cpus.len() {
            if !is_leased(worker) {
                pinned.cpus[worker] = None;
            }
        }
        for worker in (0..pinned.cpus.len()).filter(|worker| is_leased(*worker)) {
            let taken = |cpu: &usize| pinned.cpus.contains(&Some(*cpu));
            let free: Mask = usable.iter().copied().filter(|cpu| !taken(cpu)).collect();
            // One is left for all others.
            if pinned.cpus[worker].is_none() && free.len() > 1 {
                pinned.cpus[worker] =
                    free.iter().copied().find(|cpu| *cpu == worker).or(free.last().copied());
            }
        }
        self.apply(&mut pinned);
    }

    fn apply(&self, pinned: &mut Pinned) {
        let any = pinned.cpus.iter().any(Option::is_some);
        for tid in all_tids() {
            let known = pinned.before.iter().find(|(of, _)| *of == tid).map(|(_, mask)| mask.clone());
            let Some(before) = known.clone().or_else(|| mask_of(tid)) else { continue };
            let worker = self.tids().find(|(_, of)| *of == tid).map(|(worker, _)| worker);
            let rest = || before.iter().copied().filter(|cpu| !pinned.cpus.contains(&Some(*cpu))).collect();
            let mask: Mask = match worker.and_then(|worker| pinned.cpus[worker]) {
                Some(cpu) => vec![cpu],
                None => rest(),
            };
            // A thread that may use no other CPU stays: whoever put it there knows why.
            if !mask.is_empty() && (any || known.is_some()) && set_mask(tid, &mask) && known.is_none() {
                pinned.before.push((tid, before));
            }
        }
        if !any {
            pinned.before.clear();
        }
    }
}

fn own_tid() -> Tid {
    // SAFETY: the call has no arguments and no effect.
    #[allow(unsafe_code)]
    unsafe {
        libc::gettid()
    }
}

/// All threads of this process.
fn all_tids() -> Vec<Tid> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The CPUs that a thread may use; of the calling one for 0.
#[allow(unsafe_code)]
fn mask_of(tid: Tid) -> Option<Mask> {
    // SAFETY: all bytes zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the size that it is told into the set.
    let got = unsafe { libc::sched_getaffinity(tid, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: each number is within the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (got == 0).then(|| (0..libc::CPU_SETSIZE as usize).filter(is_set).collect())
}

/// Lets a thread use these CPUs only; whether the kernel took that. A thread under `SCHED_DEADLINE` is not pinned.
#[allow(unsafe_code)]
fn set_mask(tid: Tid, cpus: &[usize]) -> bool {
    // SAFETY: all bytes zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is within the set.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the kernel reads the set.
    unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}
