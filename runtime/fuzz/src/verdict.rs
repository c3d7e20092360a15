//! How a run ends if it does not end well: a violation of the model or a hang, with the command that replays it.

use mainspring::Runtime;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

/// The process found something that the model does not allow.
pub const VIOLATION: i32 = 77;
/// The process stood still.
pub const HANG: i32 = 78;

/// Acts so far. The watchdog looks at it.
static ACTS: AtomicU64 = AtomicU64::new(0);
static NOW: Mutex<Option<Now>> = Mutex::new(None);

struct Now {
    seed: u64,
    setting: String,
    runtimes: Vec<Weak<Runtime>>,
}

fn now() -> std::sync::MutexGuard<'static, Option<Now>> {
    NOW.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn begin(seed: u64, setting: String, runtimes: Vec<Weak<Runtime>>) {
    *now() = Some(Now { seed, setting, runtimes });
}

pub fn count_act() {
    ACTS.fetch_add(1, Ordering::Relaxed);
}

pub fn acts() -> u64 {
    ACTS.load(Ordering::Relaxed)
}

/// Ends the process: the runtime did what it promises not to do.
pub fn violation(what: impl Display) -> ! {
    end("VIOLATION", &what.to_string(), VIOLATION)
}

fn end(kind: &str, what: &str, code: i32) -> ! {
    let (seed, setting) = now().as_ref().map_or((0, String::new()), |now| (now.seed, now.setting.clone()));
    eprintln!("{kind} seed {seed} [{setting}]: {what}");
    std::process::exit(code);
}

/// A thread that ends the process when nothing happens for `patience`.
pub fn watch(patience: Duration) {
    std::thread::spawn(move || {
        let mut seen = acts();
        loop {
            std::thread::sleep(patience);
            if acts() == seen && now().is_some() {
                dump();
                end("HANG", &format!("no act for {patience:?} after {seen}"), HANG);
            }
            seen = acts();
        }
    });
}

fn dump() {
    let runtimes: Vec<_> =
        now().as_ref().map_or_else(Vec::new, |now| now.runtimes.iter().filter_map(Weak::upgrade).collect());
    for runtime in runtimes {
        let snapshot = runtime.snapshot();
        for nursery in &snapshot.nurseries {
            eprintln!("{nursery:?}");
        }
        for task in snapshot.tasks.iter().take(40) {
            eprintln!(
                "{:?} of nursery {:?}: {:?}, waits for {:?}, worker {:?}, {:?}",
                task.id, task.nursery, task.state, task.waits_for, task.worker, task.budget
            );
        }
        eprintln!("{} tasks, workers {:?}", snapshot.tasks.len(), snapshot.workers);
        // It must not be dropped here: the drop would wait for workers that may stand still.
        std::mem::forget(runtime);
    }
}
