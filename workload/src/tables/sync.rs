//! `[[mutex]]`, `[[semaphore]]`, `[[barrier]]` and `[[condition]]`.

use super::{each, own_name};
use crate::document::Section;
use crate::error::{Report, Reported};
use crate::scope::Sync;
use crate::value::{flag, integer};
use crate::{SyncKind, SyncSpec};

/// Reads them all, in the order of [`Sync`]'s numbers.
pub(crate) fn sync(sync: &Sync<'_>, report: &mut Report<'_>) -> Result<Vec<SyncSpec>, Reported> {
    let limit = u64::from(u32::MAX);
    let mutexes = each(&sync.mutexes, |_, table| {
        let mut section = Section::open("[[mutex]]", &["name", "donation"], table.table.clone(), report);
        let donation = section.read("donation", flag);
        let kind = SyncKind::Mutex { donation: donation?.unwrap_or(false) };
        Ok(SyncSpec { name: own_name(table)?, kind })
    });
    let semaphores = each(&sync.semaphores, |_, table| {
        let mut section = Section::open("[[semaphore]]", &["name", "value"], table.table.clone(), report);
        let value = section.read("value", |value, report| integer(value, "value", 0..=limit, report));
        let kind = SyncKind::Semaphore { value: value?.unwrap_or(1) as u32 };
        Ok(SyncSpec { name: own_name(table)?, kind })
    });
    let barriers = each(&sync.barriers, |_, table| {
        let mut section = Section::open("[[barrier]]", &["name", "parties"], table.table.clone(), report);
        let parties =
            section.require("parties", "parties = 2, how many threads meet there", |value, report| {
                integer(value, "parties", 1..=limit, report)
            });
        Ok(SyncSpec { name: own_name(table)?, kind: SyncKind::Barrier { parties: parties? as u32 } })
    });
    let conditions = each(&sync.conditions, |_, table| {
        Section::open("[[condition]]", &["name"], table.table.clone(), report);
        Ok(SyncSpec { name: own_name(table)?, kind: SyncKind::Condition })
    });
    let mut all = mutexes?;
    all.extend(semaphores?);
    all.extend(barriers?);
    all.extend(conditions?);
    Ok(all)
}
