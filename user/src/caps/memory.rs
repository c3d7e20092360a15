//! VirtualMemory and MemoryObject.

use super::{call_for, need, with_params};
use crate::client;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;

fn memory(
    method: schema::VirtualMemoryMethod,
    address: u64,
    pages: u32,
    access: schema::Access,
) -> Result<u64, CapError> {
    let mapping = method == schema::VirtualMemoryMethod::Map;
    with_params::<schema::memory_range::Owned, _>(
        |mut params| {
            params.set_address(address);
            params.set_pages(pages);
            params.set_access(access);
        },
        |bytes| {
            if mapping {
                call_for::<schema::memory_range::Owned, _>(need("memory"), method as u16, bytes, |made| {
                    made.get_address()
                })
            } else {
                client::call(need("memory"), method as u16, bytes, &mut []).map(|_| address)
            }
        },
    )?
}

/// Maps pages somewhere; where.
pub fn map(pages: u32, access: schema::Access) -> Result<u64, CapError> {
    memory(schema::VirtualMemoryMethod::Map, 0, pages, access)
}

/// Maps pages at `address`, which is theirs alone.
pub fn map_at(address: u64, pages: u32, access: schema::Access) -> Result<u64, CapError> {
    memory(schema::VirtualMemoryMethod::Map, address, pages, access)
}

/// Unmaps pages.
pub fn unmap(address: u64, pages: u32) -> Result<(), CapError> {
    memory(schema::VirtualMemoryMethod::Unmap, address, pages, schema::Access::Read).map(|_| ())
}

/// Changes what pages may be used for.
pub fn protect(address: u64, pages: u32, access: schema::Access) -> Result<(), CapError> {
    memory(schema::VirtualMemoryMethod::Protect, address, pages, access).map(|_| ())
}

/// Makes memory that can be granted to others.
pub fn create_object(pages: u32) -> Result<u32, CapError> {
    let method = schema::VirtualMemoryMethod::CreateObject as u16;
    with_params::<schema::memory_range::Owned, _>(
        |mut params| params.set_pages(pages),
        |bytes| call_for::<schema::handle::Owned, _>(need("memory"), method, bytes, |made| made.get_cap()),
    )?
}

/// Maps a memory object; where.
pub fn map_object(cap: u32, access: schema::Access) -> Result<u64, CapError> {
    let method = schema::VirtualMemoryMethod::MapObject as u16;
    with_params::<schema::map_object::Owned, _>(
        |mut params| {
            params.set_cap(cap);
            params.set_access(access);
        },
        |bytes| {
            call_for::<schema::memory_range::Owned, _>(need("memory"), method, bytes, |made| {
                made.get_address()
            })
        },
    )?
}

/// Unmaps the memory object that is mapped at `address`.
pub fn unmap_object(address: u64) -> Result<(), CapError> {
    memory(schema::VirtualMemoryMethod::UnmapObject, address, 0, schema::Access::Read).map(|_| ())
}
