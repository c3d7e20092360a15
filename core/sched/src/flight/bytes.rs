//! Bytes with variable-length integers: seven bits a byte, low ones first, the top bit set on all but the last.

use core::fmt;

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

/// Writes into a buffer that is large enough for one record; what does not fit is dropped and noticed by
/// [`Writer::written`] being `None`.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the beginning of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, at: 0 }
    }

    /// How many bytes were written, if all fitted.
    #[must_use]
    pub fn written(&self) -> Option<usize> {
        (self.at <= self.buffer.len()).then_some(self.at)
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        if let Some(place) = self.buffer.get_mut(self.at) {
            *place = byte;
        }
        self.at += 1;
    }

    #[inline]
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
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
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return Err(DecodeError::OutOfRange { what });
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::OutOfRange { what })
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
                let mut buffer = [0; 20];
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
        assert_eq!(Reader::new(&[0xFF; 11]).number("n"), Err(DecodeError::OutOfRange { what: "n" }));
        assert_eq!(Reader::new(&[0x80]).number("n"), Err(DecodeError::Truncated));
    }

    #[test]
    fn a_full_buffer_is_noticed() {
        let mut buffer = [0; 2];
        let mut writer = Writer::new(&mut buffer);
        writer.number(u64::MAX);
        assert_eq!(writer.written(), None);
    }
}
