use super::{END, Header, MAGIC, MAX_BLOCK, Trailer, VERSION};
use crate::log::Entry;
use mainspring_abi::{CpuId, Nanos, Policy};
use mainspring_sched::flight::{DecodeError, DecodeState, Reader, read_record};
use std::fmt;
use std::io::{self, Read};

/// Why a file is not a flight record that can be used.
#[derive(Debug)]
pub enum RecordError {
    /// It could not be read.
    Io(io::Error),
    /// It does not begin as a record does.
    NotARecord,
    /// It was written by a newer version.
    Newer {
        /// The file's version.
        version: u16,
    },
    /// It was written by an older version, whose records are of another form.
    Older {
        /// The file's version.
        version: u16,
    },
    /// It ends before its end block.
    Truncated {
        /// How many records came before.
        after: u64,
    },
    /// A block's checksum does not fit.
    Damaged {
        /// Which block, from 0, the header.
        block: u64,
    },
    /// A block's checksum fits, but it makes no sense.
    Malformed {
        /// Which block.
        block: u64,
        /// What is wrong.
        what: Malformed,
    },
    /// What a CPU of a live machine left behind makes no sense.
    OfCpu {
        /// Which CPU.
        cpu: CpuId,
        /// What is wrong.
        what: Malformed,
    },
    /// Something follows the end block.
    Extended,
}

impl RecordError {
    pub(crate) fn of_cpu(cpu: CpuId, what: Malformed) -> Self {
        Self::OfCpu { cpu, what }
    }
}

/// What is wrong with a block whose checksum fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A record could not be decoded.
    Record(DecodeError),
    /// The header could not be decoded.
    Header,
    /// The end block could not be decoded, or counts other bytes than there are.
    End,
    /// There are bytes after the last record.
    Trailing,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Header => f.write_str("no usable header"),
            Self::End => f.write_str("its end does not fit its contents"),
            Self::Trailing => f.write_str("there are bytes after its last event"),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the flight record: {error}"),
            Self::NotARecord => {
                f.write_str("not a flight record; make one with `mainspring run FILE --record OUT.msr`")
            }
            Self::Newer { version } => write!(
                f,
                "flight record of version {version}, newer than {VERSION}, the newest known here; \
                 use the mainspring that wrote it"
            ),
            Self::Older { version } => write!(
                f,
                "flight record of version {version}, older than {VERSION}, the only one known here; \
                 record the run again, or use the mainspring that wrote it"
            ),
            Self::Truncated { after } => {
                write!(f, "flight record cut short after {after} events; record the run again")
            }
            Self::Damaged { block } => {
                write!(f, "flight record damaged: the checksum of block {block} does not fit; get it again")
            }
            Self::Malformed { block, what } => {
                write!(f, "flight record malformed in block {block}: {what}")
            }
            Self::OfCpu { cpu, what } => write!(f, "the flight record of CPU {cpu} is malformed: {what}"),
            Self::Extended => f.write_str(
                "something follows the end of the flight record; cut it off, or record the run again",
            ),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The next thing in a record.
#[derive(Debug)]
pub enum Item {
    /// Something happened.
    Record(Entry),
    /// The record is complete.
    End(Trailer),
}

/// Reads a flight record, block by block.
#[derive(Debug)]
pub struct RecordReader<R> {
    input: R,
    header: Header,
    block: Vec<u8>,
    at: usize,
    blocks: u64,
    records: u64,
    /// Bytes of the records in the blocks so far.
    recorded: u64,
    state: DecodeState,
    bytes: u64,
}

impl<R: Read> RecordReader<R> {
    /// Opens a record and reads its header.
    pub fn new(mut input: R) -> Result<Self, RecordError> {
        let mut start = [0; 10];
        if !fill(&mut input, &mut start)? || start[..8] != MAGIC {
            return Err(RecordError::NotARecord);
        }
        let version = u16::from_le_bytes([start[8], start[9]]);
        if version > VERSION {
            return Err(RecordError::Newer { version });
        }
        if version == 0 {
            return Err(RecordError::NotARecord);
        }
        if version < VERSION {
            return Err(RecordError::Older { version });
        }
        let header = Header {
            workload: String::new(),
            seed: 0,
            cpus: 0,
            seats: 0,
            policy: Policy::Eevdf,
            quantum: Nanos::ZERO,
            tick: Nanos::ZERO,
            floor_ppm: 0,
            threads: Vec::new(),
        };
        let mut reader = Self {
            input,
            header,
            block: Vec::new(),
            at: 0,
            blocks: 0,
            records: 0,
            recorded: 0,
            state: DecodeState::new(),
            bytes: start.len() as u64,
        };
        reader.next_block()?;
        reader.header = parse_header(&reader.block)
            .ok_or(RecordError::Malformed { block: 0, what: Malformed::Header })?;
        reader.at = reader.block.len();
        Ok(reader)
    }

    /// The machine that the record is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes have been read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// The next record, or the end.
    pub fn next_item(&mut self) -> Result<Item, RecordError> {
        if self.at == self.block.len() {
            self.next_block()?;
            if self.block.starts_with(END) {
                return self.end();
            }
            self.recorded += self.block.len() as u64;
        }
        let mut reader = Reader::new(&self.block[self.at..]);
        let (stamp, event, outcome) = read_record(&mut reader, &mut self.state).map_err(|error| {
            RecordError::Malformed { block: self.blocks - 1, what: Malformed::Record(error) }
        })?;
        self.at += reader.position();
        self.records += 1;
        Ok(Item::Record(Entry { now: stamp.now, cpu: stamp.cpu, event, outcome }))
    }

    /// The end block does not fit what came before it.
    pub(crate) fn bad_end(&self) -> RecordError {
        RecordError::Malformed { block: self.blocks - 1, what: Malformed::End }
    }

    fn end(&mut self) -> Result<Item, RecordError> {
        let mut fields = Fields { bytes: &self.block[END.len()..] };
        let trailer = (|| {
            Some(Trailer {
                bytes: fields.number()?,
                end: Nanos::new(fields.number()?),
                digest: fields.text()?,
                summary: if fields.bytes.is_empty() { String::new() } else { fields.text()? },
            })
        })()
        .ok_or_else(|| self.bad_end())?;
        if trailer.bytes != self.recorded || !fields.bytes.is_empty() {
            return Err(self.bad_end());
        }
        if fill(&mut self.input, &mut [0])? {
            return Err(RecordError::Extended);
        }
        Ok(Item::End(trailer))
    }

    fn next_block(&mut self) -> Result<(), RecordError> {
        let mut head = [0; 8];
        if !fill(&mut self.input, &mut head)? {
            return Err(RecordError::Truncated { after: self.records });
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let checksum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length > MAX_BLOCK || length == 0 {
            return Err(RecordError::Damaged { block: self.blocks });
        }
        self.block.clear();
        let read = self.input.by_ref().take(length as u64).read_to_end(&mut self.block)?;
        if read < length {
            return Err(RecordError::Truncated { after: self.records });
        }
        if crc32fast::hash(&self.block) != checksum {
            return Err(RecordError::Damaged { block: self.blocks });
        }
        self.at = 0;
        self.blocks += 1;
        self.bytes += (head.len() + length) as u64;
        Ok(())
    }
}

/// Fills `buffer`; `false` if the input ends first.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn number(&mut self) -> Option<u64> {
        let (head, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*head))
    }

    fn text(&mut self) -> Option<String> {
        let (head, rest) = self.bytes.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*head) as usize)?;
        self.bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

fn parse_header(block: &[u8]) -> Option<Header> {
    let mut fields = Fields { bytes: block };
    let workload = fields.text()?;
    let seed = fields.number()?;
    let cpus = usize::try_from(fields.number()?).ok()?;
    let seats = usize::try_from(fields.number()?).ok()?;
    let policy = match fields.number()? {
        0 => Policy::Eevdf,
        1 => Policy::Wfq,
        _ => return None,
    };
    let quantum = Nanos::new(fields.number()?);
    let tick = Nanos::new(fields.number()?);
    let floor_ppm = u32::try_from(fields.number()?).ok()?;
    let count = fields.number()?;
    let mut threads = Vec::new();
    for _ in 0..count {
        threads.push(fields.text()?);
    }
    let usable = (1..=mainspring_abi::MAX_CPUS).contains(&cpus) && !quantum.is_zero() && !tick.is_zero();
    usable.then_some(Header { workload, seed, cpus, seats, policy, quantum, tick, floor_ppm, threads })
}
