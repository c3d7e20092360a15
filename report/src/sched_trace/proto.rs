//! The wire format of protocol buffers, as far as a trace needs it: varints, fixed numbers, and what has a length.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    pub(super) fn number(&mut self, field: u32, n: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(n);
        self
    }

    pub(super) fn fixed64(&mut self, field: u32, n: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | FIXED64);
        self.0.extend(n.to_le_bytes());
        self
    }

    fn counted(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.counted(field, text.as_bytes())
    }

    /// A message inside this one.
    pub(super) fn inner(&mut self, field: u32, fill: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.counted(field, &inner.0)
    }
}
