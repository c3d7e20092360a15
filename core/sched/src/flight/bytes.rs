//! Bytes with variable-length integers. A number below 2^56 takes one byte per seven bits; the zero bits at the low end
//! of the first byte, before its first one bit, are how many bytes follow. A greater number is a zero byte and eight
//! more. The length is computed, not searched for, and all bytes are stored at once, so that writing a number takes the
//! same few instructions whatever it is. Words and shorts are little-endian.

use core::fmt;

/// Numbers of up to this many bits have a length in their first byte.
const SHORT_BITS: u32 = 56;

/// How many bytes a number of `bits` bits takes, at most [`SHORT_BITS`].
#[inline]
fn short_length(bits: u32) -> u32 {
    // A seventh, rounded up: exact for so few bits, and no division.
    ((bits + 6) * 37) >> 8
}

/// How many bits a number has; zero counts as having one.
#[inline]
fn bits(number: u64) -> u32 {
    64 - (number | 1).leading_zeros()
}

/// Bytes that are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// They end in the middle of one.
    Truncated,
    /// A kind, state or flag that this version does not know.
    UnknownCode {
        /// What of.
        what: &'static str,
        /// The code.
        code: u64,
    },
    /// A seat at which no thread was accepted.
    Nobody {
        /// Which.
        slot: u8,
    },
    /// A number beyond what its field can hold.
    OutOfRange {
        /// Which field.
        what: &'static str,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a record ends early"),
            Self::UnknownCode { what, code } => write!(f, "unknown {what} code {code}"),
            Self::Nobody { slot } => write!(f, "nobody sits at seat {slot}"),
            Self::OutOfRange { what } => write!(f, "{what} out of range"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Room that no record exceeds: a thread's state with a context and the largest CPU mask for both takes about four fifths
/// of it.
pub const MAX_RECORD: usize = 2048;

/// Keeps an index inside the buffer without a branch; a record never comes near the end.
const INSIDE: usize = MAX_RECORD - 1;

/// What a record is written to: a number is stored eight bytes at a time, even at the very end.
pub type Room = [u8; MAX_RECORD + 8];

/// Writes one record.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut Room,
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the beginning of `buffer`.
    #[inline]
    pub fn new(buffer: &'a mut Room) -> Self {
        Self { buffer, at: 0 }
    }

    /// How many bytes were written.
    #[must_use]
    #[inline]
    pub fn written(&self) -> usize {
        debug_assert!(self.at <= MAX_RECORD, "a record was too long");
        self.at.min(MAX_RECORD)
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.buffer[self.at & INSIDE] = byte;
        self.at += 1;
    }

    #[inline]
    pub(super) fn short(&mut self, short: u16) {
        let at = self.at & INSIDE;
        self.buffer[at..at + 2].copy_from_slice(&short.to_le_bytes());
        self.at += 2;
    }

    #[inline]
    pub(super) fn word(&mut self, word: u32) {
        let at = self.at & INSIDE;
        self.buffer[at..at + 4].copy_from_slice(&word.to_le_bytes());
        self.at += 4;
    }

    pub(super) fn number(&mut self, number: u64) {
        let bits = bits(number);
        if bits > SHORT_BITS {
            self.byte(0);
            self.eight_bytes(number);
            self.at += 8;
            return;
        }
        let length = short_length(bits);
        self.eight_bytes((number << 1 | 1) << (length - 1));
        self.at += length as usize;
    }

    /// Stores eight bytes; what does not belong to the number is written over by what follows.
    #[inline]
    fn eight_bytes(&mut self, bytes: u64) {
        let at = self.at & INSIDE;
        self.buffer[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
    }

    /// Small magnitudes of either sign stay short.
    pub(super) fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }
}

/// Reads what a [`Writer`] wrote.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// How many bytes were read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes =
            self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).ok_or(DecodeError::Truncated)?;
        self.at += N;
        Ok(*bytes)
    }

    pub(super) fn short(&mut self) -> Result<u16, DecodeError> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Result<u32, DecodeError> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let first = self.byte()?;
        let follow = (first.trailing_zeros() as usize).min(8);
        let rest = self.bytes.get(self.at..self.at + follow).ok_or(DecodeError::Truncated)?;
        self.at += follow;
        let mut bytes = [0; 8];
        bytes[..follow].copy_from_slice(rest);
        let rest = u64::from_le_bytes(bytes);
        // One number, one form: what would have fitted in less was not written by us.
        let (number, least) = if follow == 8 {
            (rest, SHORT_BITS + 1)
        } else {
            let head = u64::from(first) >> (follow + 1);
            (rest << (7 - follow) | head, 7 * follow as u32 + 1)
        };
        if bits(number) < least && (number, least) != (0, 1) {
            return Err(DecodeError::OutOfRange { what });
        }
        Ok(number)
    }

    pub(super) fn signed(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        let number = self.number(what)?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, DecodeError> {
        T::try_from(self.number(what)?).map_err(|_| DecodeError::OutOfRange { what })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn numbers_survive_at_every_length() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut buffer = [0; MAX_RECORD + 8];
                let mut writer = Writer::new(&mut buffer);
                writer.number(number);
                writer.signed(number as i64);
                let mut reader = Reader::new(&buffer);
                assert_eq!(reader.number("test"), Ok(number));
                assert_eq!(reader.signed("test"), Ok(number as i64));
            }
        }
    }

    #[test]
    fn every_seven_bits_take_a_byte() {
        for bits in 1..=SHORT_BITS {
            assert_eq!(short_length(bits), bits.div_ceil(7));
        }
    }

    #[test]
    fn an_overlong_number_is_refused() {
        let refused = Err(DecodeError::OutOfRange { what: "n" });
        for overlong in [&[0b10, 0][..], &[0b1111_1110, 0], &[0b100, 0xFF, 0], &[0, 1, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(Reader::new(overlong).number("n"), refused, "{overlong:?}");
        }
        assert_eq!(Reader::new(&[0b100, 1]).number("n"), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&[0; 8]).number("n"), Err(DecodeError::Truncated));
    }

    #[test]
    fn every_two_bytes_are_one_number_or_none() {
        let mut seen = std::collections::BTreeSet::new();
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let bytes = [first, second];
                let mut reader = Reader::new(&bytes);
                let Ok(number) = reader.number("n") else { continue };
                let used = &bytes[..reader.position()];
                let mut buffer = [0; MAX_RECORD + 8];
                let mut writer = Writer::new(&mut buffer);
                writer.number(number);
                let length = writer.written();
                assert_eq!(used, &buffer[..length], "{number} has two forms");
                seen.insert(number);
            }
        }
        assert_eq!(seen.len(), 1 << 14);
    }
}
