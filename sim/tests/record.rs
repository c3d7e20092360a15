//! Flight records: what is damaged is refused, what differs is named, and what happened is explained.

mod common;

use common::{checked, workload};
use mainspring_abi::Nanos;
use mainspring_random::{Random, Stream};
use mainspring_record::Entry;
use mainspring_record::check::Bound;
use mainspring_record::explain::{ExplainError, Explanation, explain};
use mainspring_record::file::{Item, Malformed, RecordError, RecordReader, Recorder};
use mainspring_record::replay::{ReplayError, replay};
use mainspring_sched::flight::{DecodeError, FORMAT, Outcome};
use mainspring_sched::{Decision, State};
use mainspring_sim::{Options, RunError, run};

/// A run that has some of everything and is short.
const SMALL: &str = r#"
    [machine]
    cpus = 2
    duration = "12ms"
    [[thread]]
    name = "hog"
    program = ["run forever"]
    [[thread]]
    name = "napper"
    cpus = [0]
    program = ["run 500us", "sleep 2ms"]
    [[thread]]
    name = "pinned"
    cpus = [0]
    program = ["run forever"]
    [[thread]]
    name = "late"
    start = "5ms"
    program = ["park"]
"#;

fn record() -> Vec<u8> {
    checked(&workload(SMALL), 7, Bound::None).record
}

fn replayed(bytes: &[u8]) -> Result<String, ReplayError> {
    replay(bytes, &mut |_| {}).map(|replayed| replayed.digest)
}

#[test]
fn every_flipped_byte_is_noticed() {
    let good = record();
    assert!(replayed(&good).is_ok());
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let Err(ReplayError::Record(error)) = replayed(&bad) else {
                panic!("byte {at} xor {flip:#x} was not noticed");
            };
            let right = match at {
                0..8 => matches!(error, RecordError::NotARecord),
                8..10 => {
                    let version = u16::from_le_bytes([bad[8], bad[9]]);
                    match error {
                        RecordError::NotARecord => version == 0,
                        RecordError::Older { version: told } => told == version && version < FORMAT,
                        RecordError::Newer { version: told } => told == version && version > FORMAT,
                        _ => false,
                    }
                }
                _ => matches!(error, RecordError::Damaged { .. } | RecordError::Truncated { .. }),
            };
            assert!(right, "byte {at} xor {flip:#x}: {error:?}");
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let good = record();
    for length in 0..good.len() {
        let Err(ReplayError::Record(error)) = replayed(&good[..length]) else {
            panic!("a record cut to {length} bytes was accepted");
        };
        let right = if length < 10 {
            matches!(error, RecordError::NotARecord)
        } else {
            matches!(error, RecordError::Truncated { .. })
        };
        assert!(right, "{length}: {error:?}");
    }
}

/// How many damaged records are tried; `MAINSPRING_FUZZ_INPUTS=N` takes more, as `make soak` does.
fn inputs() -> u64 {
    std::env::var("MAINSPRING_FUZZ_INPUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(3_000)
}

#[test]
fn damaged_records_are_refused_whatever_was_done_to_them() {
    let good = record();
    for seed in 0..inputs() {
        let mut random = Random::new(seed, Stream::Machine);
        let mut bad = good.clone();
        for _ in 0..=random.below(4) {
            let (at, from) =
                (random.below(bad.len() as u64) as usize, random.below(good.len() as u64) as usize);
            match random.below(4) {
                0 => bad[at] = random.below(256) as u8,
                1 => drop(bad.remove(at)),
                2 => bad.insert(at, random.below(256) as u8),
                // A piece of it in another place.
                _ => {
                    let length = (good.len() - from).min(bad.len() - at).min(random.below(64) as usize);
                    bad[at..at + length].copy_from_slice(&good[from..from + length]);
                }
            }
        }
        let accepted = replayed(&bad).is_ok();
        assert!(!accepted || bad == good, "seed {seed}: a damaged record was accepted");
    }
}

#[test]
fn newer_older_and_foreign_files_are_refused_by_name() {
    let mut newer = record();
    newer[8..10].copy_from_slice(&999u16.to_le_bytes());
    let error = replayed(&newer).expect_err("it is newer");
    assert!(matches!(error, ReplayError::Record(RecordError::Newer { version: 999 })), "{error:?}");
    assert!(error.to_string().contains("version 999"), "{error}");
    for old in 1..FORMAT {
        let mut older = record();
        older[8..10].copy_from_slice(&u16::to_le_bytes(old));
        let error = replayed(&older).expect_err("it is older");
        assert!(
            matches!(error, ReplayError::Record(RecordError::Older { version }) if version == old),
            "{error:?}"
        );
        assert!(error.to_string().contains("record the run again"), "{error}");
    }
    for foreign in [&b""[..], b"[machine]\ncpus = 2\n", b"\x7fELF\x02\x01\x01\0\0\0\0\0", &[0; 64]] {
        let error = replayed(foreign).expect_err("it is no record");
        assert!(matches!(error, ReplayError::Record(RecordError::NotARecord)), "{error:?}");
        assert!(error.to_string().contains("mainspring run FILE --record"), "{error}");
    }
}

/// Writes `bytes` again, with `alter` free to change each outcome, and with checksums that fit.
fn rewritten(bytes: &[u8], mut alter: impl FnMut(u64, &mut Outcome)) -> Vec<u8> {
    let mut reader = RecordReader::new(bytes).expect("a sound record");
    let mut out = Vec::new();
    let mut recorder = Recorder::new(Box::new(&mut out), reader.header()).expect("memory takes it");
    for number in 0.. {
        match reader.next_item().expect("a sound record") {
            Item::Record(Entry { now, cpu, event, mut outcome }) => {
                alter(number, &mut outcome);
                recorder.begin(now, cpu, event.borrowed()).expect("memory takes it");
                recorder.finish(outcome);
            }
            Item::End(trailer) => {
                recorder.close(trailer.end, &trailer.digest, &trailer.summary).expect("memory takes it");
                return out;
            }
        }
    }
    unreachable!("a record ends")
}

/// A run whose record takes several blocks.
const LONG: &str = r#"
    [machine]
    cpus = 8
    duration = "600ms"
    [[thread]]
    name = "short"
    count = 60
    program = ["run 50us..150us", "sleep 200us..900us"]
    [[thread]]
    name = "polite"
    count = 20
    program = ["run 100us..400us", "yield"]
"#;

#[test]
fn a_record_written_again_is_the_same_to_the_byte() {
    for text in [SMALL, LONG] {
        let good = checked(&workload(text), 7, Bound::None).record;
        assert!(rewritten(&good, |_, _| {}) == good);
    }
}

/// Where the blocks of a record begin and end.
fn blocks(record: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut blocks = Vec::new();
    let mut at = 10;
    while let Some(length) = record[at..].first_chunk() {
        let end = at + 8 + u32::from_le_bytes(*length) as usize;
        blocks.push(at..end);
        at = end;
    }
    blocks
}

#[test]
fn a_record_that_lacks_a_block_is_refused() {
    let good = checked(&workload(LONG), 7, Bound::None).record;
    let blocks = blocks(&good);
    assert!(blocks.len() > 5, "a header, some blocks of records, an end");
    for lost in &blocks[1..blocks.len() - 1] {
        let bad = [&good[..lost.start], &good[lost.end..]].concat();
        let mut reader = RecordReader::new(bad.as_slice()).expect("its header is there");
        let error = loop {
            match reader.next_item() {
                Ok(Item::Record { .. }) => {}
                Ok(Item::End(_)) => panic!("the block at {} was lost and nobody noticed", lost.start),
                Err(error) => break error,
            }
        };
        // A seat's thread is told once, so a record may also speak of a seat that no known thread has taken.
        let right =
            |what: &Malformed| matches!(what, Malformed::End | Malformed::Record(DecodeError::Nobody { .. }));
        assert!(matches!(&error, RecordError::Malformed { what, .. } if right(what)), "{error:?}");
    }
}

#[test]
fn a_record_with_something_after_its_end_is_refused() {
    let good = checked(&workload(SMALL), 7, Bound::None).record;
    for rest in [&b"\0"[..], b"a note", &good] {
        let error = replay([&good, rest].concat().as_slice(), &mut |_| ()).expect_err("it has two ends");
        assert!(matches!(error, ReplayError::Record(RecordError::Extended)), "{error}");
    }
}

#[test]
fn a_disk_that_is_full_ends_the_run_with_its_cause() {
    /// Takes so many bytes and no more.
    struct Disk(usize);
    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let left = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            self.0 = left;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let size = checked(&workload(LONG), 7, Bound::None).record.len();
    for room in [0, 1_000, size / 2, size - 1] {
        let options = Options { seed: 7, record: Some(Box::new(Disk(room))), ..Options::default() };
        let error = run("test", &workload(LONG), options).expect_err("the record does not fit");
        let RunError::Record(cause) = &error else { panic!("{error:?}") };
        assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull, "{room} bytes: {error}");
    }
}

#[test]
fn the_first_decision_that_differs_is_named() {
    let good = record();
    let mut decisions = Vec::new();
    rewritten(&good, |number, outcome| {
        if matches!(outcome, Outcome::Decided(Decision::Run(_))) {
            decisions.push(number);
        }
    });
    assert!(decisions.len() > 5);
    for wrong in decisions {
        let bad = rewritten(&good, |number, outcome| {
            if number == wrong {
                *outcome = Outcome::Decided(Decision::Idle);
            }
        });
        let Err(error) = replayed(&bad) else { panic!("decision {wrong} was altered and nobody noticed") };
        assert!(error.is_difference());
        let ReplayError::Differs(at) = error else { panic!("{error:?}") };
        assert_eq!(at.number, wrong);
        assert!(at.recorded.contains("Idle") && at.replayed.contains("Run"), "{at:?}");
    }
}

fn explained(thread: &str, us: u64) -> Explanation {
    explain(record().as_slice(), thread, Nanos::from_micros(us)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_running_thread_is_explained_as_running() {
    // Alone on CPU 1, once it has been stolen or placed there.
    let explanation = explained("hog", 11_500);
    let place = explanation.place.as_ref().expect("it lives");
    assert_eq!(place.view.view.state, State::Running);
    assert!(place.running_since.is_some());
    assert!(explanation.to_string().contains("running"), "{explanation}");
}

#[test]
fn the_interval_in_progress_counts_in_what_a_running_thread_is_owed() {
    let text = r#"
        [machine]
        duration = "9ms"
        [[thread]]
        name = "first"
        program = ["run forever"]
        [[thread]]
        name = "second"
        start = "5ms"
        program = ["run forever"]
    "#;
    let record = checked(&workload(text), 7, Bound::Quantum).record;
    let explanation = explain(record.as_slice(), "first", Nanos::from_micros(5_500)).expect("it lives");
    let place = explanation.place.as_ref().expect("it lives");
    assert_eq!(place.view.view.state, State::Running);
    // It has had all of the CPU so far, so it is owed nothing.
    let said = explanation.to_string();
    assert!(!said.contains("; owed"), "{said}");
}

#[test]
fn a_sleeper_is_explained_with_when_it_wakes() {
    let sleepy = (1..120).map(|tenth| explained("napper", tenth * 100)).find(|explanation| {
        explanation.place.as_ref().is_some_and(|place| matches!(place.view.view.state, State::Asleep(_)))
    });
    let sleepy = sleepy.expect("it sleeps most of the time");
    let place = sleepy.place.as_ref().expect("it lives");
    let wakes = place.view.view.deadline.expect("it sleeps for a time");
    assert!(wakes > sleepy.at && wakes - sleepy.at <= Nanos::from_millis(2), "{sleepy}");
    assert!(sleepy.to_string().contains("blocked (sleep) until"), "{sleepy}");
}

#[test]
fn a_waiting_thread_is_explained_with_who_runs_instead() {
    let waiting = (1..120)
        .flat_map(|tenth| ["napper", "pinned"].map(|name| explained(name, tenth * 100)))
        .find(|explanation| {
            explanation.place.as_ref().is_some_and(|place| place.view.view.state == State::Queued)
        });
    let waiting = waiting.expect("two threads share CPU 0");
    let place = waiting.place.as_ref().expect("it lives");
    let running = place.running.as_ref().expect("somebody has the CPU");
    assert_ne!(running.name, waiting.thread);
    let text = waiting.to_string();
    assert!(text.contains("ready, waiting for the CPU") && text.contains(&running.name), "{text}");
}

#[test]
fn a_thread_that_does_not_live_yet_is_said_to_be_dead_or_unborn() {
    assert!(explained("late", 4_000).place.is_none());
    let later = explained("late", 11_500).to_string();
    assert!(later.contains("blocked (park) until somebody woke it"), "{later}");
}

#[test]
fn questions_that_have_no_answer_say_why() {
    let bytes = record();
    let unknown = explain(bytes.as_slice(), "nobody", Nanos::ZERO).expect_err("nobody has that name");
    assert!(matches!(unknown, ExplainError::NoSuchThread { total: 4, .. }), "{unknown:?}");
    assert!(unknown.to_string().contains("hog, napper, pinned, late"), "{unknown}");
    let after = explain(bytes.as_slice(), "hog", Nanos::from_secs(1)).expect_err("the run was over");
    assert!(matches!(after, ExplainError::AfterEnd { .. }), "{after:?}");
}

/// A follower of a run sees at each moment what its record shows of that moment when it is played back, however the record
/// comes in.
#[test]
fn a_run_that_is_followed_shows_what_its_record_shows() {
    use mainspring_abi::CpuId;
    use mainspring_record::follow::Following;
    use mainspring_record::log::Log;
    use mainspring_record::playback::Playback;
    use mainspring_report::read_summary;
    use mainspring_sched::flight;
    let bytes = record();
    let reader = || RecordReader::new(bytes.as_slice()).expect("a record");
    let header = reader().header().clone();
    let log = Log::read(reader()).expect("a record");
    let summary = || read_summary(log.summary()).unwrap_or_default();
    for seed in 0..20 {
        let mut random = Random::new(seed, Stream::Thread(0));
        let mut below = |limit: u64| random.below(limit);
        let mut playback = Playback::new(bytes.clone()).expect("a record");
        let mut following = Following::new(header.clone(), log.end()).expect("a small machine");
        let mut logs: Vec<flight::Log> = (0..header.cpus).map(|_| flight::Log::new(1 << 20)).collect();
        let mut read = vec![0; header.cpus];
        let mut entries = log.entries().iter().peekable();
        let mut asked = Nanos::ZERO;
        while asked < log.end() {
            asked = (asked + Nanos::from_micros(1 + below(900))).min(log.end());
            while let Some(Entry { now, cpu, event, outcome }) = entries.next_if(|entry| entry.now <= asked) {
                logs[cpu.index()].begin(*now, *cpu, event.borrowed());
                logs[cpu.index()].finish(*outcome);
            }
            // Some CPUs are asked while they have more to tell than is taken at once.
            let mut all_told = true;
            for (cpu, log) in logs.iter().enumerate() {
                let rest = &log.bytes()[read[cpu]..];
                let taken = if below(3) == 0 { below(rest.len() as u64 + 1) as usize } else { rest.len() };
                let more = taken < rest.len();
                all_told &= !more;
                read[cpu] += taken;
                let cpu = CpuId::new(cpu).expect("a CPU");
                following.feed(cpu, asked, &rest[..taken], more).expect("whole events, in the end");
            }
            let mut frame = following.frame(summary()).expect("a sound record");
            let at = Nanos::new(frame.time_ns);
            assert!(at <= asked && (!all_told || at == asked), "seed {seed}: {at} of {asked}");
            let played = playback.frame(at).expect("a sound record");
            // A frame of a run has the time that its workload says, a record the time when it ended.
            frame.end_ns = played.end_ns;
            if all_told {
                assert_eq!(frame, played, "seed {seed} at {at}");
            }
        }
        assert_eq!(asked, log.end());
    }
    let mut broken = Following::new(header, log.end()).expect("a small machine");
    let cpu = CpuId::new(0).expect("a CPU");
    assert!(broken.feed(cpu, Nanos::ZERO, &[0xFF; 64], false).is_err(), "no record begins so");
}
