//! The boot image: named pieces of bytes behind a table, as the loader hands them to the kernel.
//!
//! ```text
//! magic  8 bytes  "MSBOOT1\0"
//! count  u32      how many pieces; then u32 zero
//! table  48 bytes each: name (32, padded with zeros), offset u64, length u64
//! ```

use core::fmt;

/// The first bytes of a boot image.
pub const MAGIC: [u8; 8] = *b"MSBOOT1\0";
/// Bytes of a name.
pub const NAME: usize = 32;
/// Bytes before the table.
pub const HEADER: usize = 16;
/// Bytes of a row of the table.
pub const ROW: usize = NAME + 16;

/// The piece that says what to start.
pub const MANIFEST: &str = "manifest";

/// A boot image in memory.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
    count: usize,
}

/// Why bytes are not a boot image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// They do not begin like one.
    NotAnImage,
    /// They end before their table does.
    Truncated,
    /// A row names bytes beyond the end.
    BadRow(usize),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnImage => {
                f.write_str("not a boot image; start with `-initrd` and one made by the host tool")
            }
            Self::Truncated => f.write_str("the boot image ends before its table does"),
            Self::BadRow(row) => write!(f, "row {row} of the boot image lies outside of it"),
        }
    }
}

impl core::error::Error for ImageError {}

impl<'a> Image<'a> {
    /// Checks the whole table.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let head = bytes.first_chunk::<HEADER>().ok_or(ImageError::NotAnImage)?;
        if head[..8] != MAGIC {
            return Err(ImageError::NotAnImage);
        }
        let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let table = count.checked_mul(ROW).and_then(|len| len.checked_add(HEADER));
        if table.is_none_or(|end| end > bytes.len()) {
            return Err(ImageError::Truncated);
        }
        let image = Self { bytes, count };
        match (0..count).find(|row| image.piece(*row).is_none()) {
            Some(row) => Err(ImageError::BadRow(row)),
            None => Ok(image),
        }
    }

    fn piece(&self, row: usize) -> Option<(&'a str, &'a [u8])> {
        let row = self.bytes.get(HEADER + row * ROW..)?.first_chunk::<ROW>()?;
        let (name, numbers) = row.split_at(NAME);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        let number = |at: usize| numbers.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let start = usize::try_from(number(0)?).ok()?;
        let len = usize::try_from(number(8)?).ok()?;
        Some((core::str::from_utf8(&name[..end]).ok()?, self.bytes.get(start..start.checked_add(len)?)?))
    }

    /// The piece called `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&'a [u8]> {
        self.pieces().find(|(found, _)| *found == name).map(|(_, bytes)| bytes)
    }

    /// All pieces.
    pub fn pieces(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + '_ {
        (0..self.count).filter_map(|row| self.piece(row))
    }
}
