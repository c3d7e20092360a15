//! What the loader says: memory map, boot image, command line and where ACPI's tables begin.

use super::DIRECT_MAP;
use super::frames::PAGE;
use heapless::Vec;

/// A range of physical memory.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Its first byte.
    pub start: u64,
    /// One past its last.
    pub end: u64,
}

/// What the loader said.
#[derive(Debug)]
pub struct BootInfo {
    /// Usable memory below 4 GiB.
    pub memory: Vec<Range, 16>,
    /// The boot image, as loaded.
    pub image: Option<&'static [u8]>,
    /// ACPI's root pointer, 0 if the loader gave none.
    pub rsdp: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Module {
    start: u64,
    len: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryEntry {
    start: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

fn read<T: Copy>(physical: u64) -> T {
    // SAFETY: the loader's structures are plain numbers in memory that the first page tables map, and stay
    // untouched until they have been read.
    unsafe { ((DIRECT_MAP + physical) as *const T).read_unaligned() }
}

/// Bytes of physical memory below 4 GiB that firmware or the loader wrote and that are not written again.
#[must_use]
pub fn physical_bytes(start: u64, len: usize) -> Option<&'static [u8]> {
    let end = start.checked_add(len as u64)?;
    if start == 0 || end > super::DIRECT_MAP_SIZE || super::frames::is_managed(start, end) {
        return None;
    }
    // SAFETY: the range is mapped, and not part of what the frame allocator hands out; firmware tables and the
    // boot image are never written to.
    Some(unsafe { core::slice::from_raw_parts((DIRECT_MAP + start) as *const u8, len) })
}

pub(super) fn parse(at: u32) -> BootInfo {
    let start: StartInfo = read(u64::from(at));
    let mut info = BootInfo { memory: Vec::new(), image: None, rsdp: start.rsdp };
    assert!(start.magic == MAGIC && start.version >= 1, "not started by a PVH loader");
    for n in 0..u64::from(start.memory_entries) {
        let entry: MemoryEntry = read(start.memory_map + n * size_of::<MemoryEntry>() as u64);
        let range = Range {
            start: entry.start.next_multiple_of(PAGE as u64),
            end: (entry.start + entry.len).min(super::DIRECT_MAP_SIZE) & !(PAGE as u64 - 1),
        };
        if entry.kind == RAM && range.start < range.end {
            // More pieces than there is room for are memory that is not used.
            let _ = info.memory.push(range);
        }
    }
    if start.modules > 0 {
        let module: Module = read(start.module_list);
        // SAFETY: the loader put the module there; `frames::plan` gives its frames to no other user.
        info.image = Some(unsafe {
            core::slice::from_raw_parts((DIRECT_MAP + module.start) as *const u8, module.len as usize)
        });
    }
    info
}
