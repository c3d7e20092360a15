//! The one thing that ACPI is asked for: which CPUs there are.

use crate::arch::physical_bytes;
use heapless::Vec;

const MOST: usize = 64;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn table(address: u64) -> Option<&'static [u8]> {
    let head = physical_bytes(address, 36)?;
    physical_bytes(address, u32_at(head, 4)? as usize)
}

/// The APIC ids of all CPUs that can be used, as the MADT lists them; empty without ACPI.
pub fn apic_ids(rsdp: u64) -> Vec<u8, MOST> {
    find(rsdp).unwrap_or_default()
}

fn find(rsdp: u64) -> Option<Vec<u8, MOST>> {
    let root = physical_bytes(rsdp, 20)?;
    if root.get(..8)? != b"RSD PTR " {
        return None;
    }
    let list = table(u64::from(u32_at(root, 16)?))?;
    let tables = list.get(36..)?.chunks_exact(4).filter_map(|entry| table(u64::from(u32_at(entry, 0)?)));
    let madt = tables.into_iter().find(|table| table.starts_with(b"APIC"))?;
    let mut ids = Vec::new();
    let mut at = 44;
    while let Some([kind, len]) = madt.get(at..at + 2) {
        if *len < 2 {
            break;
        }
        let enabled = u32_at(madt, at + 4).is_some_and(|flags| flags & 1 == 1);
        if *kind == 0 && *len == 8 && enabled {
            let _ = ids.push(*madt.get(at + 3)?);
        }
        at += usize::from(*len);
    }
    Some(ids)
}
