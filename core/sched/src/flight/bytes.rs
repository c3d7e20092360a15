//! Bytes with variable-length integers: a number below 240 is one byte; a greater one is a byte that says how many
//! follow, and those, low ones first. Fast to write, whatever the length, since all eight can be stored at once.

use core::fmt;

/// The first byte of a number that needs more: this plus how many follow.
const MORE: u8 = 240;

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

/// Writes one record.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8; MAX_RECORD],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the beginning of `buffer`.
    #[inline]
    pub fn new(buffer: &'a mut [u8; MAX_RECORD]) -> Self {
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
    pub(super) fn number(&mut self, number: u64) {
        if number < u64::from(MORE) {
            return self.byte(number as u8);
        }
        let more = 8 - number.leading_zeros() as usize / 8;
        self.byte(MORE + more as u8);
        // All eight bytes in one store; what does not belong to the number is written over by what follows.
        if let Some(room) = self.buffer.get_mut(self.at..self.at + 8) {
            room.copy_from_slice(&number.to_le_bytes());
        }
        self.at += more;
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

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let first = self.byte()?;
        let Some(more) = first.checked_sub(MORE) else { return Ok(u64::from(first)) };
        let mut bytes = [0; 8];
        let Some(follow) = bytes.get_mut(..usize::from(more)).filter(|follow| !follow.is_empty()) else {
            return Err(DecodeError::OutOfRange { what });
        };
        for byte in follow.iter_mut() {
            *byte = self.byte()?;
        }
        // One number, one form: what would have fitted in less was not written by us.
        if follow.last() == Some(&0) || (follow.len() == 1 && follow[0] < MORE) {
            return Err(DecodeError::OutOfRange { what });
        }
        Ok(u64::from_le_bytes(bytes))
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
    use super::*;

    #[test]
    fn numbers_survive_at_every_length() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut buffer = [0; MAX_RECORD];
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
    fn an_overlong_number_is_refused() {
        let refused = Err(DecodeError::OutOfRange { what: "n" });
        for overlong in [&[MORE][..], &[MORE + 1, 5], &[MORE + 2, 5, 0], &[MORE + 9; 12], &[0xFF; 12]] {
            assert_eq!(Reader::new(overlong).number("n"), refused, "{overlong:?}");
        }
        assert_eq!(Reader::new(&[MORE + 2, 1]).number("n"), Err(DecodeError::Truncated));
    }
}
