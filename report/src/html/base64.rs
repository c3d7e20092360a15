//! Bytes as text that a script element can hold.

/// `bytes` in base64, padded with `=`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(encoded_length(bytes.len()));
    bytes.chunks(3).for_each(|group| text.extend(quartet(group)));
    text
}

/// How many characters so many bytes become.
pub(super) fn encoded_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

fn quartet(bytes: &[u8]) -> [char; 4] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let at = |i: usize| u32::from(bytes.get(i).copied().unwrap_or(0));
    let bits = at(0) << 16 | at(1) << 8 | at(2);
    let symbol = |shift: u32| char::from(ALPHABET[(bits >> shift & 63) as usize]);
    [
        symbol(18),
        symbol(12),
        if bytes.len() > 1 { symbol(6) } else { '=' },
        if bytes.len() > 2 { symbol(0) } else { '=' },
    ]
}

/// Numbers as LEB128.
#[derive(Debug, Default)]
pub(super) struct Numbers(pub Vec<u8>);

impl Numbers {
    pub(super) fn push(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// A difference modulo 2^64 as a number that is small when the difference is, either way.
    pub(super) fn push_difference(&mut self, from: u64, to: u64) {
        let signed = to.wrapping_sub(from).cast_signed();
        self.push(((signed << 1) ^ (signed >> 63)).cast_unsigned());
    }
}
