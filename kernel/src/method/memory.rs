//! VirtualMemory: the process's own pages.

use super::message::{with_params, with_result};
use super::{Answer, Call};
use crate::arch::{Flags, Frame, MapError, PAGE};
use crate::object::caps::Object;
use crate::object::inbox::Awaits;
use crate::object::memory::MemoryObject;
use crate::object::process::{Limbo, PAGES};
use crate::sched::flush;
use alloc::sync::Arc;
use alloc::vec::Vec;
use mainspring_abi::Nanos;
use mainspring_abi::kernel::{MAPPINGS, STACKS};
use mainspring_abi::ring::CapError;
use mainspring_schema::{Access, VirtualMemoryMethod, handle, map_object, memory_range};

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
    match method {
        VirtualMemoryMethod::CreateObject => return create_object(call),
        VirtualMemoryMethod::MapObject => return map_object(call),
        VirtualMemoryMethod::UnmapObject => return unmap_object(call),
        VirtualMemoryMethod::Map | VirtualMemoryMethod::Unmap | VirtualMemoryMethod::Protect => {}
    }
    let mut range = with_params::<memory_range::Owned, _>(call, |params| {
        let flags = flags_of(params.get_access())?;
        Ok(Range { address: params.get_address(), pages: params.get_pages(), flags })
    })?;
    if range.pages == 0 || range.pages > MOST {
        return Err(CapError::InvalidParameter);
    }
    if method == VirtualMemoryMethod::Map && range.address == 0 {
        range.address = somewhere(call, u64::from(range.pages));
    }
    let end = range.address.checked_add(u64::from(range.pages) * PAGE as u64).ok_or(CapError::BadAddress)?;
    if !range.address.is_multiple_of(PAGE as u64) || range.address < MAPPINGS || end > STACKS {
        return Err(CapError::BadAddress);
    }
    match method {
        VirtualMemoryMethod::Map => map(call, &range),
        VirtualMemoryMethod::Unmap => unmap(call, &range),
        VirtualMemoryMethod::Protect => protect(call, &range),
        _ => Err(CapError::NoSuchMethod),
    }
}

fn flags_of(access: Result<Access, capnp::NotInSchema>) -> Result<Flags, CapError> {
    Ok(match access.map_err(|_| CapError::InvalidParameter)? {
        Access::Read => Flags::Read,
        Access::Write => Flags::Write,
        Access::Execute => Flags::Execute,
    })
}

/// An address for so many pages that nobody else gets. A page between two mappings is never mapped: running over one is a
/// fault.
fn somewhere(call: &Call<'_>, pages: u64) -> u64 {
    let mut state = call.process().state.lock();
    let address = state.next_mapping;
    state.next_mapping += (pages + 1) * PAGE as u64;
    address
}

fn create_object(call: &Call<'_>) -> Result<Answer, CapError> {
    let pages = with_params::<memory_range::Owned, _>(call, |params| Ok(params.get_pages()))?;
    if pages == 0 || pages > MOST {
        return Err(CapError::InvalidParameter);
    }
    let process = call.process();
    let object = MemoryObject::new(process, pages)?;
    let cap = process.state.lock().caps.insert(Object::Memory(Arc::new(object)))?;
    with_result::<handle::Owned>(call, |mut result| result.set_cap(cap))
}

fn map_object(call: &Call<'_>) -> Result<Answer, CapError> {
    let (cap, flags) = with_params::<map_object::Owned, _>(call, |params| {
        Ok((params.get_cap(), flags_of(params.get_access())?))
    })?;
    let process = call.process();
    let found = process.state.lock().caps.find(cap)?;
    let Object::Memory(object) = found else { return Err(CapError::InvalidCapability) };
    let pages = object.pages.len() as u64;
    let address = somewhere(call, pages);
    if address + pages * PAGE as u64 > STACKS {
        return Err(CapError::NoMemory);
    }
    let mapped = process.with_space(|space| space.map_shared(address, object.pages.clone(), flags))?;
    mapped
        .map_err(|why| if why == MapError::NoMemory { CapError::NoMemory } else { CapError::BadAddress })?;
    with_result::<memory_range::Owned>(call, |mut result| {
        result.set_address(address);
        result.set_pages(pages as u32);
    })
}

fn unmap_object(call: &mut Call<'_>) -> Result<Answer, CapError> {
    let address = with_params::<memory_range::Owned, _>(call, |params| Ok(params.get_address()))?;
    let process = call.process();
    call.may_wait()?;
    process.limbo.lock().try_reserve(1).map_err(|_| CapError::NoMemory)?;
    let pages = process.with_space(|space| space.unmap_shared(address))?.ok_or(CapError::BadAddress)?;
    let generation = flush::shoot_down(process);
    process.limbo.lock().push((generation, Limbo::Shared(pages)));
    wait_for_flush(call, generation)
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
    // What it takes to wait comes first: a request that cannot wait changes nothing.
    call.may_wait()?;
    process.limbo.lock().try_reserve(1).map_err(|_| CapError::NoMemory)?;
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
    let generation = flush::shoot_down(process);
    process.limbo.lock().push((generation, Limbo::Own(frames)));
    wait_for_flush(call, generation)
}

fn protect(call: &mut Call<'_>, range: &Range) -> Result<Answer, CapError> {
    let process = call.process();
    call.may_wait()?;
    process.with_space(|space| {
        if (0..range.pages).any(|number| !space.is_mapped(range.page(number))) {
            return Err(CapError::BadAddress);
        }
        (0..range.pages)
            .try_for_each(|number| space.protect(range.page(number), range.flags))
            .map_err(|_| CapError::BadAddress)
    })??;
    let generation = flush::shoot_down(process);
    wait_for_flush(call, generation)
}

fn wait_for_flush(call: &mut Call<'_>, generation: u64) -> Result<Answer, CapError> {
    if flush::flushed() >= generation {
        call.process().free_limbo(flush::flushed());
        return Ok(Answer::Done(0));
    }
    call.begin(Awaits::Flush(generation), Nanos::MAX)?;
    Ok(Answer::Pending)
}
