//! How the page reads its numbers, for tests: the same as in `data.js`, and no code of the writers.

/// Bytes of base64, read one after the other.
pub(super) struct Bytes {
    bytes: Vec<u8>,
    at: usize,
}

impl Bytes {
    pub(super) fn of(base64: &str) -> Self {
        let mut bytes = Vec::new();
        for group in base64.as_bytes().chunks(4) {
            let value = |c: u8| match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => 0,
            };
            let bits = group.iter().fold(0_u32, |bits, &c| bits << 6 | u32::from(value(c)));
            let kept = 3 - group.iter().filter(|&&c| c == b'=').count();
            bytes.extend(&bits.to_be_bytes()[1..1 + kept]);
        }
        Self { bytes, at: 0 }
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    pub(super) fn number(&mut self) -> u64 {
        let (mut n, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            n |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return n;
            }
        }
    }

    pub(super) fn difference(&mut self) -> u64 {
        let n = self.number();
        (n >> 1) ^ (n & 1).wrapping_neg()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }
}
