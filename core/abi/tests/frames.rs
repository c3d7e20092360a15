//! Frames of a kernel run: what is written is read back, and other bytes are refused with the place.

use mainspring_abi::frame::{
    CheckCounts, Frame, FrameError, Frames, HEADER, MARK, MAX_NOTE, RecordHead, Trailer,
};
use mainspring_abi::plan::{NOTE_BYTES, Note};
use mainspring_abi::{CpuId, MAX_CPUS, Nanos, ProcessId};
use proptest::collection::vec;
use proptest::prelude::*;

/// A frame that owns its bytes.
#[derive(Clone, Debug)]
enum Owned {
    Record(RecordHead, Vec<u8>),
    Note(ProcessId, Vec<u8>),
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Record(head, bytes) => Frame::Record(*head, bytes),
            Self::Note(process, bytes) => Frame::Note(*process, bytes),
        }
    }
}

fn written(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.write(|piece| bytes.extend_from_slice(piece));
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Frame<'_>>, FrameError> {
    Frames::new(bytes).collect()
}

fn head() -> impl Strategy<Value = RecordHead> {
    (any::<u64>(), 0..MAX_CPUS, any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(format, cpu, records, lost, end)| RecordHead {
            format,
            cpu: CpuId::new(cpu).expect("below the most"),
            records,
            lost,
            end: Nanos::new(end),
        },
    )
}

fn body() -> impl Strategy<Value = Owned> {
    prop_oneof![
        (head(), vec(any::<u8>(), 0..200)).prop_map(|(head, bytes)| Owned::Record(head, bytes)),
        (any::<u32>(), vec(any::<u8>(), 0..=MAX_NOTE))
            .prop_map(|(process, bytes)| Owned::Note(ProcessId::new(process), bytes)),
    ]
}

fn trailer() -> impl Strategy<Value = Trailer> {
    (any::<bool>(), any::<[i64; 2]>(), any::<[u64; 8]>()).prop_map(|(succeeded, lost, counts)| {
        let [
            hard_path_allocations,
            idle_halts,
            leaves,
            halts,
            services,
            requests,
            refusals,
            longest_interrupts_off,
        ] = counts;
        Trailer {
            succeeded,
            frames_lost: lost[0],
            heap_lost: lost[1],
            hard_path_allocations,
            idle_halts,
            checks: CheckCounts { leaves, halts, services, requests, refusals },
            longest_interrupts_off,
        }
    })
}

/// A whole run, as bytes.
fn run() -> impl Strategy<Value = (Vec<Owned>, Trailer, Vec<u8>)> {
    (vec(body(), 0..6), trailer()).prop_map(|(bodies, trailer)| {
        let mut frames: Vec<_> = bodies.iter().map(Owned::frame).collect();
        frames.push(Frame::End(trailer));
        let bytes = written(&frames);
        (bodies, trailer, bytes)
    })
}

proptest! {
    #[test]
    fn a_run_is_read_back_as_it_was_written((bodies, trailer, bytes) in run(), firmware in "[ -~]{0,40}") {
        let mut frames: Vec<_> = bodies.iter().map(Owned::frame).collect();
        frames.push(Frame::End(trailer));
        prop_assert_eq!(read(&bytes), Ok(frames.clone()));
        let spoken = [firmware.into_bytes(), bytes].concat();
        prop_assert_eq!(read(&spoken), Ok(frames));
    }

    #[test]
    fn a_run_that_is_cut_short_is_refused((_, _, bytes) in run(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len());
        prop_assert!(read(&bytes[..cut]).is_err(), "cut at {}", cut);
    }

    #[test]
    fn nothing_may_follow_the_end((_, _, bytes) in run(), more in vec(any::<u8>(), 1..40)) {
        let at = bytes.len();
        let bytes = [bytes, more].concat();
        prop_assert_eq!(read(&bytes), Err(FrameError::AfterEnd { at }));
    }

    /// Whatever is accepted is what its frames are written as, so no two readings of some bytes are possible.
    #[test]
    fn damage_is_refused_or_is_another_run_of_the_same_bytes(
        (_, _, mut bytes) in run(), at in any::<prop::sample::Index>(), bits in 1..=255_u8
    ) {
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        if let Ok(frames) = read(&bytes) {
            let begins = bytes.windows(MARK.len()).position(|window| window == MARK).expect("there are frames");
            prop_assert_eq!(written(&frames), &bytes[begins..]);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(bytes in vec(any::<u8>(), 0..400), begin in any::<bool>()) {
        let bytes = if begin { [MARK.to_vec(), bytes].concat() } else { bytes };
        if let Ok(frames) = read(&bytes) {
            prop_assert!(matches!(frames.last(), Some(Frame::End(_))));
        }
    }

    #[test]
    fn a_note_of_a_workload_program_is_read_back(instance in any::<u32>(), slot in any::<u32>(), counts in any::<[u64; 4]>()) {
        let [misses, timeouts, refusals, failures] = counts;
        let notes = [
            Note::Started { instance, slot },
            Note::Counted { instance, misses, timeouts, refusals, failures },
            Note::Lives { instance, at: misses },
            Note::Job { instance, started: misses, finished: timeouts, period: refusals },
            Note::Ended { instance, at: misses, period: timeouts },
            Note::Lease {
                lease: instance,
                state: slot,
                activations: misses,
                suppressed: timeouts,
                polled_ns: refusals,
                sleeps: failures,
            },
            Note::Ring {
                ring: instance,
                polled: slot % 2 == 1,
                submitted: misses,
                completed: timeouts,
                dropped: refusals,
                late: failures,
                wakeups: misses,
            },
            Note::Polled {
                ring: instance,
                mode: slot,
                sleeps: misses,
                overflow: timeouts,
                busy_ns: refusals,
                spins_ns: failures,
                charged_ns: misses,
            },
            Note::Calls { endpoint: instance, accepted: misses, replied: timeouts, failed: refusals },
            Note::Replies { endpoint: instance, count: slot, times: [(misses, timeouts), (refusals, failures), (misses, failures)] },
            Note::PolicyRefused { at: misses, part: instance, text: std::array::from_fn(|at| (slot >> (at % 4 * 8)) as u8) },
            Note::Policy {
                taken: instance,
                slow_times: slot,
                slow_at: misses,
                epoch: timeouts,
                lost_at: refusals,
                lost: slot,
            },
            Note::Island { island: instance, refused: slot, admitted: misses, left: timeouts, shut_down: true },
            Note::Adjusted { context: (instance, slot), at: misses, budget: timeouts, period: refusals, deadline: failures },
            Note::Context {
                context: (instance, slot),
                id: slot,
                cpu: instance,
                place: slot,
                used: misses,
                donated: timeouts,
                depletions: instance,
                misses: slot,
                overshoot: failures,
            },
        ];
        for note in notes {
            prop_assert_eq!(Note::from_bytes(&note.to_bytes()), Some(note));
        }
    }

    #[test]
    fn bytes_that_are_no_note_are_refused(bytes in vec(any::<u8>(), 0..2 * NOTE_BYTES)) {
        if let Some(note) = Note::from_bytes(&bytes) {
            prop_assert_eq!(note.to_bytes().to_vec(), bytes);
        }
    }
}

#[test]
fn each_refusal_names_the_place() {
    let end = written(&[Frame::End(Trailer::default())]);
    let note = written(&[Frame::Note(ProcessId::new(1), b"x")]);
    let with = |mut bytes: Vec<u8>, at: usize, byte: u8| {
        bytes[at] = byte;
        bytes
    };
    let at = note.len();
    assert_eq!(read(b"firmware only"), Err(FrameError::Missing));
    assert_eq!(read(&note), Err(FrameError::NoEnd));
    let kind = with([note.clone(), end.clone()].concat(), at + MARK.len(), 9);
    assert_eq!(read(&kind), Err(FrameError::UnknownKind { at, kind: 9 }));
    assert_eq!(read(&with([note.clone(), end.clone()].concat(), at, 0)), Err(FrameError::NotAFrame { at }));
    let longer = with([end.clone(), vec![0; 8]].concat(), MARK.len() + 8, end[MARK.len() + 8] + 8);
    assert_eq!(read(&longer), Err(FrameError::BadLength { at: 0 }));
    assert_eq!(read(&with(end.clone(), HEADER, 2)), Err(FrameError::BadValue { at: 0 }));
    let huge = with(end, MARK.len() + 15, 0xff);
    assert_eq!(read(&huge), Err(FrameError::CutShort { at: 0 }));
}

#[test]
fn a_note_is_never_longer_than_the_most() {
    let bytes =
        written(&[Frame::Note(ProcessId::new(1), &[7; MAX_NOTE + 1]), Frame::End(Trailer::default())]);
    let frames = read(&bytes).expect("it is cut off");
    assert_eq!(frames[0], Frame::Note(ProcessId::new(1), &[7; MAX_NOTE]));
}
