//! What the workload program says of itself, and the kernel's record cannot know.

use crate::machine_run::{Counts, instances};
use mainspring_abi::kernel::MAX_THREADS;
use mainspring_abi::plan::Note;
use mainspring_workload::Workload;

/// Takes a note into the names of the kernel's threads, by slot, and into what the instances counted. `None` if it names an
/// instance that the workload does not have, or a slot that the kernel does not have.
pub fn take(note: Note, workload: &Workload, threads: &mut Vec<String>, counts: &mut [Counts]) -> Option<()> {
    match note {
        Note::Started { instance, slot } => {
            let (name, _) = instances(workload).nth(instance as usize)?;
            let slot = Some(slot as usize).filter(|slot| *slot < MAX_THREADS)?;
            if threads.len() <= slot {
                threads.resize(slot + 1, String::from("(unknown)"));
            }
            threads[slot] = name;
        }
        Note::Counted { instance, misses, timeouts, refusals } => {
            *counts.get_mut(instance as usize)? = Counts { misses, timeouts, refusals, failures: 0 };
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        let text = "[[thread]]\nname = \"a\"\ncount = 2\nprogram = [\"run 1ms\"]\n";
        mainspring_workload::parse("test.toml", text).expect("the test's workload is one")
    }

    #[test]
    fn notes_name_threads_and_carry_counts() {
        let (workload, mut threads, mut counts) = (workload(), Vec::new(), [Counts::default(); 2]);
        let mut take = |note| take(note, &workload, &mut threads, &mut counts);
        assert_eq!(take(Note::Started { instance: 1, slot: 2 }), Some(()));
        assert_eq!(take(Note::Counted { instance: 0, misses: 1, timeouts: 2, refusals: 3 }), Some(()));
        assert_eq!(threads, ["(unknown)", "(unknown)", "a.1"]);
        assert_eq!(counts[0], Counts { misses: 1, timeouts: 2, refusals: 3, failures: 0 });
    }

    #[test]
    fn a_note_of_what_is_not_there_is_refused() {
        let (workload, mut threads, mut counts) = (workload(), Vec::new(), [Counts::default(); 2]);
        let mut take = |note| take(note, &workload, &mut threads, &mut counts);
        assert_eq!(take(Note::Started { instance: 2, slot: 0 }), None);
        assert_eq!(take(Note::Started { instance: 0, slot: u32::MAX }), None);
        assert_eq!(take(Note::Counted { instance: 2, misses: 0, timeouts: 0, refusals: 0 }), None);
    }
}
