//! `perf.data`, as `perf sched record` writes it: the samples of the scheduler's tracepoints.
//!
//! A sample carries the bytes of its tracepoint, whose layout the file describes itself (`tracing_data`). Every number in the file
//! is checked against its length before it is used.

use crate::error::{ImportError, Position};
use crate::events::{Reader, Recording, WakeEvent, Waker};
use std::collections::HashMap;

/// How a file on a little-endian machine begins.
pub(crate) const MAGIC: &[u8] = b"PERFILE2";

const SAMPLE: u32 = 9;
const COMPRESSED: [u32; 2] = [81, 83];
const LOST: u32 = 2;
const TRACEPOINT: u32 = 2;
const FEATURE_TRACING_DATA: u32 = 1;
/// `common_flags` of a tracepoint: in a hard or a soft interrupt.
const IN_INTERRUPT: u64 = 0x08 | 0x10;

/// The bytes of a file, or of a part of it.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ImportError> {
        let end = self.at.checked_add(count);
        let part = end.and_then(|end| self.all.get(self.at..end));
        let part =
            part.ok_or(ImportError::Malformed { place: Position::Byte(self.at), expected: "more bytes" })?;
        self.at += count;
        Ok(part)
    }

    fn number(&mut self, size: usize) -> Result<u64, ImportError> {
        let mut value = [0; 8];
        value[..size].copy_from_slice(self.take(size)?);
        Ok(u64::from_le_bytes(value))
    }

    fn u32(&mut self) -> Result<u32, ImportError> {
        Ok(self.number(4)? as u32)
    }

    fn u64(&mut self) -> Result<u64, ImportError> {
        self.number(8)
    }

    /// The part from `offset`, `size` long.
    fn section(&self, offset: u64, size: u64) -> Result<Bytes<'a>, ImportError> {
        let expected = "a section within the file";
        let wrong = || ImportError::Malformed { place: Position::Byte(self.at), expected };
        let (offset, size) =
            (usize::try_from(offset).map_err(|_| wrong())?, usize::try_from(size).map_err(|_| wrong())?);
        let end = offset.checked_add(size).filter(|end| *end <= self.all.len()).ok_or_else(wrong)?;
        Ok(Bytes { all: &self.all[..end], at: offset })
    }

    /// A string that ends with a zero byte.
    fn string(&mut self) -> Result<&'a str, ImportError> {
        let place = Position::Byte(self.at);
        let length = self.all.get(self.at..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
        let length = length.ok_or(ImportError::Malformed { place, expected: "a string that ends" })?;
        let text = self.take(length + 1)?;
        std::str::from_utf8(&text[..length]).map_err(|_| ImportError::Malformed { place, expected: "a name" })
    }

    fn is_empty(&self) -> bool {
        self.at >= self.all.len()
    }
}

/// Where a field of a tracepoint stands.
#[derive(Clone, Copy)]
struct Field {
    offset: usize,
    size: usize,
}

/// The layout of a tracepoint.
struct Format {
    name: String,
    fields: HashMap<String, Field>,
}

impl Format {
    fn number(&self, raw: &[u8], name: &str) -> Option<u64> {
        let Field { offset, size } = *self.fields.get(name)?;
        let bytes = raw.get(offset..offset.checked_add(size)?)?;
        let mut value = [0; 8];
        value.get_mut(..size)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    fn signed(&self, raw: &[u8], name: &str) -> Option<i32> {
        self.number(raw, name).map(|value| value as u32 as i32)
    }

    fn string(&self, raw: &[u8], name: &str) -> Option<String> {
        let Field { offset, size } = *self.fields.get(name)?;
        let bytes = raw.get(offset..offset.checked_add(size)?)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(size);
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

pub(crate) fn read(bytes: &[u8]) -> Result<Recording, ImportError> {
    let mut file = Bytes { all: bytes, at: MAGIC.len() };
    let header_size = file.u64()?;
    let attr_size = file.u64()?;
    let attrs = (file.u64()?, file.u64()?);
    let data = (file.u64()?, file.u64()?);
    if data.1 == 0 {
        return Err(ImportError::Unsupported { what: "the file was not finished by perf, or is a pipe's" });
    }
    file.take(16)?;
    let features = file.u64()?;
    if header_size < 104 {
        return Err(ImportError::Malformed { place: Position::Byte(8), expected: "a header of 104 bytes" });
    }
    let sample_type = sample_type(file.section(attrs.0, attrs.1)?, attr_size)?;
    let formats = formats(tracing_data(&file, data, features)?)?;
    samples(file.section(data.0, data.1)?, sample_type, &formats)
}

/// What the samples of all tracepoints have.
fn sample_type(mut attrs: Bytes<'_>, attr_size: u64) -> Result<u64, ImportError> {
    let size = usize::try_from(attr_size).ok().filter(|size| *size >= 64);
    let size = size
        .ok_or(ImportError::Malformed { place: Position::Byte(16), expected: "the size of an attribute" })?;
    let mut found = None;
    while !attrs.is_empty() {
        let mut attr = Bytes { all: attrs.take(size)?, at: 0 };
        let kind = attr.u32()?;
        attr.take(4 + 8 + 8)?;
        let sample_type = attr.u64()?;
        if kind != TRACEPOINT {
            continue;
        }
        if found.is_some_and(|other| other != sample_type) {
            return Err(ImportError::Unsupported { what: "its tracepoints are sampled in different ways" });
        }
        found = Some(sample_type);
    }
    found.ok_or(ImportError::NoEvents)
}

/// The section that describes the tracepoints. Sections of features follow the data, in the order of their bits.
fn tracing_data<'a>(file: &Bytes<'a>, data: (u64, u64), features: u64) -> Result<Bytes<'a>, ImportError> {
    if features & 1 << FEATURE_TRACING_DATA == 0 {
        return Err(ImportError::Unsupported { what: "it does not describe its tracepoints" });
    }
    let before = (features & ((1 << FEATURE_TRACING_DATA) - 1)).count_ones();
    let table = data.0.saturating_add(data.1).saturating_add(u64::from(before) * 16);
    let mut entry = file.section(table, 16)?;
    let section = (entry.u64()?, entry.u64()?);
    file.section(section.0, section.1)
}

fn formats(mut data: Bytes<'_>) -> Result<HashMap<u64, Format>, ImportError> {
    let start = data.at;
    if data.take(10)? != b"\x17\x08\x44tracing" {
        return Err(ImportError::Malformed {
            place: Position::Byte(start),
            expected: "the description of tracepoints",
        });
    }
    data.string()?;
    if data.number(1)? != 0 {
        return Err(ImportError::Unsupported { what: "it comes from a big-endian machine" });
    }
    data.take(1 + 4)?;
    for _ in 0..2 {
        data.string()?;
        let size = data.u64()?;
        data.take(usize::try_from(size).unwrap_or(usize::MAX))?;
    }
    let mut all = HashMap::new();
    for _ in 0..data.u32()? {
        let size = data.u64()?;
        data.take(usize::try_from(size).unwrap_or(usize::MAX))?;
    }
    for _ in 0..data.u32()? {
        data.string()?;
        for _ in 0..data.u32()? {
            let size = data.u64()?;
            let text = data.take(usize::try_from(size).unwrap_or(usize::MAX))?;
            if let Some((id, format)) = format(&String::from_utf8_lossy(text)) {
                all.insert(id, format);
            }
        }
    }
    Ok(all)
}

/// `name: X`, `ID: N`, and lines `field:TYPE NAME;  offset:N;  size:N;  signed:N;`.
fn format(text: &str) -> Option<(u64, Format)> {
    let (mut id, mut name, mut fields) = (None, None, HashMap::new());
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("name:") {
            name = Some(rest.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("ID:") {
            id = rest.trim().parse().ok();
        } else if let Some(rest) = line.strip_prefix("field:") {
            let mut parts = rest.split(';').map(str::trim);
            let declared = parts.next()?.rsplit(' ').next()?.split('[').next()?.to_owned();
            let mut of = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
            if let (Some(offset), Some(size)) = (of("offset:"), of("size:")) {
                fields.insert(declared, Field { offset, size });
            }
        }
    }
    Some((id?, Format { name: name?, fields }))
}

/// What is read of a sample.
struct Sample<'a> {
    tid: u32,
    at: u64,
    cpu: u32,
    raw: &'a [u8],
}

fn sample<'a>(mut body: Bytes<'a>, sample_type: u64) -> Result<Option<Sample<'a>>, ImportError> {
    let has = |bit: u64| sample_type & bit != 0;
    let (mut tid, mut at, mut cpu) = (None, None, None);
    if has(1 << 16) {
        body.u64()?; // identifier
    }
    if has(1) {
        body.u64()?; // instruction
    }
    if has(1 << 1) {
        body.u32()?;
        tid = Some(body.u32()?);
    }
    if has(1 << 2) {
        at = Some(body.u64()?);
    }
    // Address, identifier, stream.
    for bit in [1 << 3, 1 << 6, 1 << 9] {
        if has(bit) {
            body.u64()?;
        }
    }
    if has(1 << 7) {
        cpu = Some(body.u32()?);
        body.u32()?;
    }
    if has(1 << 8) {
        body.u64()?; // period
    }
    if has(1 << 4) {
        return Err(ImportError::Unsupported { what: "its samples read groups of counters" });
    }
    if has(1 << 5) {
        let calls = usize::try_from(body.u64()?).unwrap_or(usize::MAX);
        body.take(calls.saturating_mul(8))?;
    }
    if !has(1 << 10) {
        return Ok(None);
    }
    let size = body.u32()? as usize;
    let raw = body.take(size)?;
    match (tid, at, cpu) {
        (Some(tid), Some(at), Some(cpu)) => Ok(Some(Sample { tid, at, cpu, raw })),
        _ => Err(ImportError::Unsupported { what: "its samples lack the thread, the time or the CPU" }),
    }
}

fn samples(
    mut data: Bytes<'_>,
    sample_type: u64,
    formats: &HashMap<u64, Format>,
) -> Result<Recording, ImportError> {
    // The records of several CPUs are in the order of neither; they are sorted before they are followed.
    let mut found = Vec::new();
    let mut lost = false;
    while !data.is_empty() {
        let place = data.at;
        let kind = data.u32()?;
        data.take(2)?;
        let size = data.number(2)? as usize;
        let expected = "a record of at least eight bytes";
        let body =
            size.checked_sub(8).ok_or(ImportError::Malformed { place: Position::Byte(place), expected })?;
        let body = Bytes { all: data.take(body)?, at: 0 };
        lost |= kind == LOST;
        if COMPRESSED.contains(&kind) {
            return Err(ImportError::Unsupported { what: "its records are compressed" });
        }
        if kind != SAMPLE {
            continue;
        }
        if let Some(sample) = sample(body, sample_type).map_err(|error| moved(error, place + 8))? {
            found.push((place, sample));
        }
    }
    found.sort_by_key(|(_, sample)| sample.at);
    let mut reader = Reader::default();
    (reader.lost, reader.knows_interrupts) = (lost, true);
    for (place, sample) in &found {
        let expected = "the fields of its tracepoint";
        let wrong = ImportError::Malformed { place: Position::Byte(*place), expected };
        let Some(id) = sample.raw.get(..2) else { return Err(wrong) };
        let Some(format) = formats.get(&u64::from(u16::from_le_bytes([id[0], id[1]]))) else { continue };
        event(format, sample, Position::Byte(*place), &mut reader).ok_or(wrong)??;
    }
    reader.finish()
}

/// A place within a record, as a place within the file.
fn moved(error: ImportError, by: usize) -> ImportError {
    match error {
        ImportError::Malformed { place: Position::Byte(at), expected } => {
            ImportError::Malformed { place: Position::Byte(at + by), expected }
        }
        other => other,
    }
}

/// Notes an event of the scheduler. `None` if its fields are not there.
fn event(
    format: &Format,
    sample: &Sample<'_>,
    place: Position,
    reader: &mut Reader,
) -> Option<Result<(), ImportError>> {
    let Sample { tid, at, cpu, raw } = *sample;
    let which = match &*format.name {
        "sched_switch" => {
            let prev = reader.task(
                &format.string(raw, "prev_comm")?,
                format.signed(raw, "prev_pid")? as u32,
                format.signed(raw, "prev_prio")?,
            );
            let next = reader.task(
                &format.string(raw, "next_comm")?,
                format.signed(raw, "next_pid")? as u32,
                format.signed(raw, "next_prio")?,
            );
            // Zero is running; bit 8 and the ones above it say that it was preempted. Dead states have bits 4, 5 and 7.
            let state = format.number(raw, "prev_state")?;
            let state = match state {
                state if state & 0xb0 != 0 => "X",
                state if state & 0xff == 0 => "R",
                _ => "S",
            };
            return Some(reader.switch((at, cpu), place, prev, state, next));
        }
        "sched_waking" => WakeEvent::Waking,
        "sched_wakeup" => WakeEvent::Wakeup,
        "sched_wakeup_new" => WakeEvent::New,
        _ => return Some(Ok(())),
    };
    let who = reader.task(
        &format.string(raw, "comm")?,
        format.signed(raw, "pid")? as u32,
        format.signed(raw, "prio")?,
    );
    let interrupted = format.number(raw, "common_flags")? & IN_INTERRUPT != 0;
    let by = if interrupted || tid == 0 { Waker::Interrupt } else { Waker::Thread(tid) };
    Some(reader.wake((at, cpu), place, which, who, by))
}
