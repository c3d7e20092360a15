//! Files, read and written at places in them.

use super::{completion, file_ring, refused};
use crate::cx::Cx;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An open file. Operations say where: several tasks may use it at once. Each costs one op and one system call, and needs
/// `CapExecutor`: it may wait for a device, in the kernel's ring or on the pool of threads.
#[derive(Debug)]
pub struct File(std::fs::File);

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self(file)
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> Self {
        file.0
    }
}

impl File {
    /// Opens a file to read from it.
    pub fn open(cx: &Cx, path: impl AsRef<Path> + Send) -> io::Result<Self> {
        Self::open_with(cx, std::fs::OpenOptions::new().read(true), path)
    }

    /// Opens a file as the options say.
    pub fn open_with(
        cx: &Cx,
        options: &std::fs::OpenOptions,
        path: impl AsRef<Path> + Send,
    ) -> io::Result<Self> {
        cx.blocking(|| options.open(path)).map_err(refused)?.map(Self)
    }

    /// Reads from a place in the file: how many bytes, 0 at its end.
    pub fn read_at(&self, cx: &Cx, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match file_ring(cx)? {
            Some(ring) => completion::read_at(ring, cx, &self.0, buffer, offset),
            None => cx.blocking(|| self.0.read_at(buffer, offset)).map_err(refused)?,
        }
    }

    /// Writes to a place in the file: how many bytes.
    pub fn write_at(&self, cx: &Cx, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match file_ring(cx)? {
            Some(ring) => completion::write_at(ring, cx, &self.0, bytes, offset),
            None => cx.blocking(|| self.0.write_at(bytes, offset)).map_err(refused)?,
        }
    }

    /// Writes all of `bytes` to a place in the file. A task that is cancelled meanwhile may have written some of them.
    pub fn write_all_at(&self, cx: &Cx, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        crate::calls::count(cx);
        while !bytes.is_empty() {
            match self.write_at(cx, bytes, offset)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => {
                    bytes = &bytes[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Waits until what was written is on the device.
    pub fn sync_all(&self, cx: &Cx) -> io::Result<()> {
        cx.blocking(|| self.0.sync_all()).map_err(refused)?
    }

    /// The file, for its size and other facts.
    pub fn get_ref(&self) -> &std::fs::File {
        &self.0
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
