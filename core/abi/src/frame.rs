//! What a kernel run leaves on the debug console for the host: frames, one after the other.
//!
//! ```text
//! mark   8 bytes "MSFRAME1"
//! kind   u64      1 record of a CPU, 2 note of a program, 3 end
//! len    u64      bytes that follow
//! ```
//!
//! All numbers are little endian. Conserved: a run is a sequence of whole frames, the last of which is the end. Firmware may
//! write before the first frame, and nothing comes after the last. [`Frames`] reads what [`Frame::write`] wrote and nothing
//! else: bytes that it accepts are the bytes that its frames are written as.

use crate::{CpuId, Nanos, ProcessId};
use core::fmt;

/// The first bytes of each frame.
pub const MARK: [u8; 8] = *b"MSFRAME1";
/// Bytes before a frame's contents.
pub const HEADER: usize = MARK.len() + 2 * 8;
/// The longest note.
pub const MAX_NOTE: usize = 64;

const RECORD: u64 = 1;
const NOTE: u64 = 2;
const END: u64 = 3;
const RECORD_WORDS: usize = 5;
const TRAILER_WORDS: usize = 11;

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// The flight record of one CPU: what it says of itself, and its bytes.
    Record(RecordHead, &'a [u8]),
    /// Bytes that a program of this process wrote, at most [`MAX_NOTE`].
    Note(ProcessId, &'a [u8]),
    /// The end of the run.
    End(Trailer),
}

/// What stands before the flight record of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// The format of the records.
    pub format: u64,
    /// The CPU.
    pub cpu: CpuId,
    /// How many events the record has.
    pub records: u64,
    /// How many events found no room.
    pub lost: u64,
    /// When the record was closed.
    pub end: Nanos,
}

/// What the kernel says at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trailer {
    /// Whether each awaited process ended with 0 and the kernel kept its own promises.
    pub succeeded: bool,
    /// Frames of memory that no process has and that are not free.
    pub frames_lost: i64,
    /// Bytes of the heap that were not in use before the first process.
    pub heap_lost: i64,
    /// Allocations on paths that must not allocate.
    pub hard_path_allocations: u64,
    /// How often CPUs halted with nothing to run.
    pub idle_halts: u64,
    /// How often the kernel looked at its invariants.
    pub checks: CheckCounts,
    /// The longest stretch with interrupts off, in counts of the time stamp counter. 0 where nothing is measured.
    pub longest_interrupts_off: u64,
}

/// How often a kernel with debug assertions looked at its invariants; another kernel never does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckCounts {
    /// On the way back to user mode.
    pub leaves: u64,
    /// Around a halt.
    pub halts: u64,
    /// Around periodic service.
    pub services: u64,
    /// After a request.
    pub requests: u64,
    /// Around a refused request, on a machine with one CPU.
    pub refusals: u64,
}

impl<'a> Frame<'a> {
    /// Gives the frame to `out`, piece by piece.
    ///
    /// A note longer than [`MAX_NOTE`] is cut off there.
    pub fn write(&self, mut out: impl FnMut(&[u8])) {
        let mut head = |kind, words: &[u64], bytes: &[u8]| {
            out(&MARK);
            for word in [kind, (words.len() * 8 + bytes.len()) as u64].iter().chain(words) {
                out(&word.to_le_bytes());
            }
            out(bytes);
        };
        match *self {
            Self::Record(RecordHead { format, cpu, records, lost, end }, bytes) => {
                head(RECORD, &[format, cpu.index() as u64, records, lost, end.get()], bytes);
            }
            Self::Note(process, bytes) => {
                head(NOTE, &[u64::from(process.get())], &bytes[..bytes.len().min(MAX_NOTE)]);
            }
            Self::End(trailer) => head(END, &trailer.words(), &[]),
        }
    }

    fn read(kind: u64, contents: &'a [u8]) -> Result<Self, Wrong> {
        match kind {
            RECORD => {
                let ([format, cpu, records, lost, end], bytes) = words::<RECORD_WORDS>(contents)?;
                let cpu =
                    usize::try_from(cpu).ok().and_then(|cpu| CpuId::new(cpu).ok()).ok_or(Wrong::Value)?;
                Ok(Self::Record(RecordHead { format, cpu, records, lost, end: Nanos::new(end) }, bytes))
            }
            NOTE => {
                let ([process], bytes) = words::<1>(contents)?;
                let process = u32::try_from(process).map_err(|_| Wrong::Value)?;
                if bytes.len() > MAX_NOTE {
                    return Err(Wrong::Length);
                }
                Ok(Self::Note(ProcessId::new(process), bytes))
            }
            END => {
                let (words, rest) = words::<TRAILER_WORDS>(contents)?;
                if !rest.is_empty() {
                    return Err(Wrong::Length);
                }
                Trailer::from_words(words).map(Self::End).ok_or(Wrong::Value)
            }
            _ => Err(Wrong::Kind),
        }
    }
}

impl Trailer {
    fn words(self) -> [u64; TRAILER_WORDS] {
        let CheckCounts { leaves, halts, services, requests, refusals } = self.checks;
        [
            u64::from(self.succeeded),
            self.frames_lost.cast_unsigned(),
            self.heap_lost.cast_unsigned(),
            self.hard_path_allocations,
            self.idle_halts,
            leaves,
            halts,
            services,
            requests,
            refusals,
            self.longest_interrupts_off,
        ]
    }

    fn from_words(words: [u64; TRAILER_WORDS]) -> Option<Self> {
        let [
            succeeded,
            frames,
            heap,
            hard_path_allocations,
            idle_halts,
            leaves,
            halts,
            services,
            requests,
            refusals,
            longest,
        ] = words;
        Some(Self {
            succeeded: match succeeded {
                0 => false,
                1 => true,
                _ => return None,
            },
            frames_lost: frames.cast_signed(),
            heap_lost: heap.cast_signed(),
            hard_path_allocations,
            idle_halts,
            checks: CheckCounts { leaves, halts, services, requests, refusals },
            longest_interrupts_off: longest,
        })
    }
}

/// What is wrong with the contents of a frame.
#[derive(Clone, Copy)]
enum Wrong {
    Kind,
    Length,
    Value,
}

/// The first `N` words of `bytes`, and what follows them.
fn words<const N: usize>(bytes: &[u8]) -> Result<([u64; N], &[u8]), Wrong> {
    let (head, rest) = bytes.split_at_checked(N * 8).ok_or(Wrong::Length)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(head.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok((words, rest))
}

/// Why bytes are not the frames of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// There is no frame.
    Missing,
    /// The bytes from here on are no frame.
    NotAFrame {
        /// Where.
        at: usize,
    },
    /// The bytes end within the frame that begins here.
    CutShort {
        /// Where.
        at: usize,
    },
    /// The frame that begins here is of no known kind.
    UnknownKind {
        /// Where.
        at: usize,
        /// Its kind.
        kind: u64,
    },
    /// The frame that begins here has a length that its kind does not have.
    BadLength {
        /// Where.
        at: usize,
    },
    /// The frame that begins here has a value that nothing has.
    BadValue {
        /// Where.
        at: usize,
    },
    /// The bytes end without the frame of the end.
    NoEnd,
    /// Something follows the frame of the end.
    AfterEnd {
        /// Where.
        at: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => {
                f.write_str("the debug console has no frame: the kernel did not come to its end")
            }
            Self::NotAFrame { at } => write!(f, "no frame begins at byte {at} of the debug console"),
            Self::CutShort { at } => write!(f, "the frame at byte {at} is cut short"),
            Self::UnknownKind { at, kind } => write!(
                f,
                "the frame at byte {at} is of kind {kind}: the kernel is of another version, build it again with `make \
                 kernel`"
            ),
            Self::BadLength { at } => write!(f, "the frame at byte {at} is longer or shorter than its kind"),
            Self::BadValue { at } => write!(f, "the frame at byte {at} has a value out of range"),
            Self::NoEnd => f.write_str("there is no frame of the end: the kernel stopped before it"),
            Self::AfterEnd { at } => write!(f, "something follows the end at byte {at}"),
        }
    }
}

impl core::error::Error for FrameError {}

/// The frames of a run, in the order in which they were written. The first error is the last item.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    state: Reading,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// Nothing has been read.
    First,
    /// Frames may follow.
    More,
    /// The end has been read.
    Ended,
    /// Nothing more is said.
    Over,
}

impl<'a> Frames<'a> {
    /// Reads what the debug console wrote.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, state: Reading::First }
    }

    fn frame(&mut self) -> Result<Frame<'a>, FrameError> {
        let at = self.at;
        let rest = &self.bytes[at..];
        if rest.is_empty() {
            return Err(FrameError::NoEnd);
        }
        let Some((head, rest)) = rest.split_at_checked(HEADER) else {
            return Err(if MARK.starts_with(&rest[..rest.len().min(MARK.len())]) {
                FrameError::CutShort { at }
            } else {
                FrameError::NotAFrame { at }
            });
        };
        let numbers = head.strip_prefix(&MARK).ok_or(FrameError::NotAFrame { at })?;
        let ([kind, len], _) = words(numbers).map_err(|_| FrameError::CutShort { at })?;
        let contents = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let contents = contents.ok_or(FrameError::CutShort { at })?;
        self.at += HEADER + contents.len();
        Frame::read(kind, contents).map_err(|wrong| match wrong {
            Wrong::Kind => FrameError::UnknownKind { at, kind },
            Wrong::Length => FrameError::BadLength { at },
            Wrong::Value => FrameError::BadValue { at },
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = match self.state {
            Reading::Over => return None,
            Reading::First => match self.bytes.windows(MARK.len()).position(|window| window == MARK) {
                Some(first) => {
                    self.at = first;
                    self.frame()
                }
                None => Err(FrameError::Missing),
            },
            Reading::More => self.frame(),
            Reading::Ended if self.at == self.bytes.len() => {
                self.state = Reading::Over;
                return None;
            }
            Reading::Ended => Err(FrameError::AfterEnd { at: self.at }),
        };
        self.state = match found {
            Ok(Frame::End(_)) => Reading::Ended,
            Ok(_) => Reading::More,
            Err(_) => Reading::Over,
        };
        Some(found)
    }
}
