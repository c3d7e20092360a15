//! Typed capabilities: each method of the kernel's interfaces as a function.

mod contexts;
mod devices;
mod endpoints;
mod islands;
mod leases;
mod memory;
mod policy;
mod processes;
mod system;
mod threads;
mod time;

pub use contexts::*;
pub use devices::*;
pub use endpoints::*;
pub use islands::*;
pub use leases::*;
pub use memory::*;
pub use policy::*;
pub use processes::*;
pub use system::*;
pub use threads::*;
pub use time::*;

use crate::{arch, client};
use capnp::Word;
use capnp::message::{Builder, Reader, ReaderOptions, SegmentArray, SingleSegmentAllocator};
use capnp::traits::Owned;
use mainspring_abi::kernel::cap_name;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;

/// Room for the parameters of most methods, and for most results. A small buffer is sooner cleared.
const PARAMS: usize = 16;
const RESULT: usize = 32;
const LONG: usize = 128;
const ZERO: Word = capnp::word(0, 0, 0, 0, 0, 0, 0, 0);

/// Builds the parameters of kind `P`, and works with their bytes.
fn with_params<P: Owned, T>(
    fill: impl FnOnce(P::Builder<'_>),
    work: impl FnOnce(&[u8]) -> T,
) -> Result<T, CapError> {
    with_params_of::<P, T, PARAMS>(fill, work)
}

/// The same for parameters of up to `WORDS` words.
fn with_params_of<P: Owned, T, const WORDS: usize>(
    fill: impl FnOnce(P::Builder<'_>),
    work: impl FnOnce(&[u8]) -> T,
) -> Result<T, CapError> {
    let mut words = [const { ZERO }; WORDS];
    let mut message = Builder::new(SingleSegmentAllocator::new(Word::words_to_bytes_mut(&mut words)));
    fill(message.init_root::<P::Builder<'_>>());
    let segments = message.get_segments_for_output();
    let [bytes] = segments[..] else { return Err(CapError::InvalidParameter) };
    Ok(work(bytes))
}

fn call_with<P: Owned>(cap: u32, method: u16, fill: impl FnOnce(P::Builder<'_>)) -> Result<u32, CapError> {
    with_params::<P, _>(fill, |bytes| client::call(cap, method, bytes, &mut []))?
}

fn call_for<R: Owned, T>(
    cap: u32,
    method: u16,
    params: &[u8],
    read: impl FnOnce(R::Reader<'_>) -> T,
) -> Result<T, CapError> {
    call_for_words::<R, T, RESULT>(cap, method, params, read)
}

/// The same for results with lists.
fn call_for_long<R: Owned, T>(
    cap: u32,
    method: u16,
    params: &[u8],
    read: impl FnOnce(R::Reader<'_>) -> T,
) -> Result<T, CapError> {
    call_for_words::<R, T, LONG>(cap, method, params, read)
}

#[inline]
fn call_for_words<R: Owned, T, const WORDS: usize>(
    cap: u32,
    method: u16,
    params: &[u8],
    read: impl FnOnce(R::Reader<'_>) -> T,
) -> Result<T, CapError> {
    let mut words = [const { ZERO }; WORDS];
    let bytes = Word::words_to_bytes_mut(&mut words);
    let len = client::call(cap, method, params, bytes)? as usize;
    let segments: [&[u8]; 1] = [bytes.get(..len).ok_or(CapError::InvalidParameter)?];
    let reader = Reader::new(SegmentArray::new(&segments), ReaderOptions::new());
    Ok(read(reader.get_root().map_err(|_| CapError::InvalidParameter)?))
}

/// The capability that the process was started with under `name`.
#[must_use]
pub fn find(name: &str) -> Option<u32> {
    let startup = arch::startup();
    let wanted = cap_name(name)?;
    startup.caps[..startup.cap_count as usize].iter().find(|cap| cap.name == wanted).map(|cap| cap.cap)
}

/// The capability under `name`, which the manifest promised.
///
/// # Panics
///
/// If it did not.
#[must_use]
pub fn need(name: &str) -> u32 {
    find(name).unwrap_or_else(|| panic!("the manifest grants no {name}"))
}

/// The text that the process was started with.
#[must_use]
pub fn arguments() -> &'static str {
    let startup = arch::startup();
    core::str::from_utf8(&startup.arguments[..startup.arguments_len as usize]).unwrap_or("")
}

/// Prints bytes.
pub fn print(bytes: &[u8]) {
    if let Some(console) = find("console") {
        for piece in bytes.chunks(256) {
            let _ = client::call(console, schema::ConsoleMethod::Write as u16, piece, &mut []);
        }
    }
}

/// Writes bytes to the debug console, as one frame for the host.
pub fn note(bytes: &[u8]) -> Result<(), CapError> {
    client::call(need("console"), schema::ConsoleMethod::Note as u16, bytes, &mut []).map(|_| ())
}

/// What was typed, as much as fits.
pub fn read_typed(buffer: &mut [u8]) -> Result<usize, CapError> {
    client::call(need("console"), schema::ConsoleMethod::Read as u16, &[], buffer).map(|len| len as usize)
}
