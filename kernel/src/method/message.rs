//! Parameters and results as Cap'n Proto, without allocating for parameters.

use super::{Answer, Call};
use crate::measure::{self, Segment};
use capnp::Word;
use capnp::message::{Builder, Reader, ReaderOptions, SegmentArray, SingleSegmentAllocator};
use capnp::traits::Owned;
use mainspring_abi::ring::CapError;

/// Most parameters and results are small, and a small buffer is sooner cleared.
const FEW: usize = 16;
const MANY: usize = 128;
const OPTIONS: ReaderOptions = ReaderOptions { traversal_limit_in_words: Some(4 * MANY), nesting_limit: 8 };

/// Reads the request's parameters as `P` and works with them.
pub fn with_params<P: Owned, T>(
    call: &Call<'_>,
    work: impl FnOnce(P::Reader<'_>) -> Result<T, CapError>,
) -> Result<T, CapError> {
    if call.request.v1.params_len as usize <= 8 * FEW {
        read_params::<P, T, FEW>(call, work)
    } else {
        read_params::<P, T, MANY>(call, work)
    }
}

fn read_params<P: Owned, T, const WORDS: usize>(
    call: &Call<'_>,
    work: impl FnOnce(P::Reader<'_>) -> Result<T, CapError>,
) -> Result<T, CapError> {
    let segment = measure::within(Segment::Capnp);
    let len = call.request.v1.params_len as usize;
    let mut words = [const { capnp::word(0, 0, 0, 0, 0, 0, 0, 0) }; WORDS];
    let bytes = Word::words_to_bytes_mut(&mut words).get_mut(..len).ok_or(CapError::BadAddress)?;
    if !len.is_multiple_of(8) {
        return Err(CapError::InvalidParameter);
    }
    call.process().read(call.request.v1.params_addr, bytes)?;
    let segments: [&[u8]; 1] = [bytes];
    let reader = Reader::new(SegmentArray::new(&segments), OPTIONS);
    let params = reader.get_root::<P::Reader<'_>>().map_err(|_| CapError::InvalidParameter)?;
    drop(segment);
    work(params)
}

/// Writes a result of kind `R` where the request wants it.
pub fn with_result<R: Owned>(call: &Call<'_>, fill: impl FnOnce(R::Builder<'_>)) -> Result<Answer, CapError> {
    // The longest result is that of `SystemInfo.cpu`.
    write_result::<R, { 2 * FEW }>(call, fill)
}

/// As [`with_result`], for results with lists.
pub fn with_long_result<R: Owned>(
    call: &Call<'_>,
    fill: impl FnOnce(R::Builder<'_>),
) -> Result<Answer, CapError> {
    write_result::<R, MANY>(call, fill)
}

#[inline]
fn write_result<R: Owned, const WORDS: usize>(
    call: &Call<'_>,
    fill: impl FnOnce(R::Builder<'_>),
) -> Result<Answer, CapError> {
    let _segment = measure::within(Segment::Capnp);
    let mut words = [const { capnp::word(0, 0, 0, 0, 0, 0, 0, 0) }; WORDS];
    let bytes = Word::words_to_bytes_mut(&mut words);
    let mut message = Builder::new(SingleSegmentAllocator::new(bytes));
    fill(message.init_root::<R::Builder<'_>>());
    let segments = message.get_segments_for_output();
    let [result] = segments[..] else { return Err(CapError::NoMemory) };
    if result.len() > call.request.v1.result_len as usize {
        return Err(CapError::BadAddress);
    }
    call.process().write(call.request.v1.result_addr, result)?;
    Ok(Answer::Done(result.len() as u32))
}
