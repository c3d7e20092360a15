//! VirtualMemory: the process's own pages.

use super::message::{with_params, with_result};
use super::{Answer, Call};
use crate::arch::{Flags, Frame, MapError, PAGE};
use crate::object::inbox::Awaits;
use crate::object::process::PAGES;
use crate::sched::dispatch;
use alloc::vec::Vec;
use mainspring_abi::Nanos;
use mainspring_abi::kernel::{MAPPINGS, STACKS};
use mainspring_abi::ring::CapError;
use mainspring_schema::{Access, VirtualMemoryMethod, memory_range};

/// Pages that one request may name.
const MOST: u32 = 8192;

struct Range {
    address: u64,
    pages: u32,
    flags: Flags,
}

impl Range {
    fn page(&self, number: u32) -> u64 {
        self.address + u64::from(number) * PAGE as u64
    }
}

pub fn virtual_memory(call: &mut Call<'_>) -> Result<Answer, CapError> {
    let method =
        VirtualMemoryMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let mut range = with_params::<memory_range::Owned, _>(call, |params| {
        let flags = match params.get_access().map_err(|_| CapError::InvalidParameter)? {
            Access::Read => Flags::Read,
            Access::Write => Flags::Write,
            Access::Execute => Flags::Execute,
        };
        Ok(Range { address: params.get_address(), pages: params.get_pages(), flags })
    })?;
    if range.pages == 0 || range.pages > MOST {
        return Err(CapError::InvalidParameter);
    }
    if method == VirtualMemoryMethod::Map && range.address == 0 {
        let mut state = call.process().state.lock();
        range.address = state.next_mapping;
        // A page between two mappings is never mapped: running over one is a fault.
        state.next_mapping += (u64::from(range.pages) + 1) * PAGE as u64;
    }
    let end = range.address.checked_add(u64::from(range.pages) * PAGE as u64).ok_or(CapError::BadAddress)?;
    if !range.address.is_multiple_of(PAGE as u64) || range.address < MAPPINGS || end > STACKS {
        return Err(CapError::BadAddress);
    }
    match method {
        VirtualMemoryMethod::Map => map(call, &range),
        VirtualMemoryMethod::Unmap => unmap(call, &range),
        VirtualMemoryMethod::Protect => protect(call, &range),
    }
}

fn map(call: &Call<'_>, range: &Range) -> Result<Answer, CapError> {
    call.process().with_space(|space| {
        if space.pages() + u64::from(range.pages) > PAGES {
            return Err(CapError::QuotaExceeded);
        }
        for number in 0..range.pages {
            let mapped = Frame::new()
                .ok_or(MapError::NoMemory)
                .and_then(|frame| space.map(range.page(number), frame, range.flags));
            if let Err(why) = mapped {
                // What was mapped just now was used by nobody: no translation of it exists.
                for number in 0..number {
                    drop(space.unmap(range.page(number)));
                }
                return Err(if why == MapError::NoMemory {
                    CapError::NoMemory
                } else {
                    CapError::BadAddress
                });
            }
        }
        Ok(())
    })??;
    with_result::<memory_range::Owned>(call, |mut result| {
        result.set_address(range.address);
        result.set_pages(range.pages);
    })
}

/// The frames wait with the process until no CPU can reach them any more; so does the completion.
fn unmap(call: &mut Call<'_>, range: &Range) -> Result<Answer, CapError> {
    let process = call.process();
    let mut frames: Vec<Frame> = Vec::new();
    frames.try_reserve(range.pages as usize).map_err(|_| CapError::NoMemory)?;
    // The completion's place comes first: a request that cannot wait changes nothing.
    process.with_space(|space| {
        if (0..range.pages).any(|number| !space.is_mapped(range.page(number))) {
            return Err(CapError::BadAddress);
        }
        for number in 0..range.pages {
            if let Ok(Some(frame)) = space.unmap(range.page(number)) {
                frames.push(frame);
            }
        }
        Ok(())
    })??;
    let generation = dispatch::shoot_down(process);
    process.limbo.lock().push((generation, frames));
    wait_for_flush(call, generation)
}

fn protect(call: &mut Call<'_>, range: &Range) -> Result<Answer, CapError> {
    let process = call.process();
    process.with_space(|space| {
        if (0..range.pages).any(|number| !space.is_mapped(range.page(number))) {
            return Err(CapError::BadAddress);
        }
        (0..range.pages)
            .try_for_each(|number| space.protect(range.page(number), range.flags))
            .map_err(|_| CapError::BadAddress)
    })??;
    let generation = dispatch::shoot_down(process);
    wait_for_flush(call, generation)
}

fn wait_for_flush(call: &mut Call<'_>, generation: u64) -> Result<Answer, CapError> {
    if dispatch::flushed() >= generation {
        call.process().free_limbo(dispatch::flushed());
        return Ok(Answer::Done(0));
    }
    call.begin(Awaits::Flush(generation), Nanos::MAX)?;
    Ok(Answer::Pending)
}
