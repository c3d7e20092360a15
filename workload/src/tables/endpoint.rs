//! `[[endpoint]]`.

use super::{Known, TableError, each, own_name};
use crate::document::Section;
use crate::error::{Report, Reported, clipped};
use crate::scope::{Named, NamedTable};
use crate::thread::RawThread;
use crate::value::{flag, integer, name};
use crate::{ContextTarget, EndpointSpec};
use mainspring_abi::request::WINDOW_MAX;

const KEYS: [&str; 6] = ["name", "context", "donation", "realtime_safe", "reorder", "window"];

/// Reads the endpoints that have a table, and adds those that have none.
pub(crate) fn endpoints(
    tables: &Named<'_>,
    known: &Known<'_, '_, '_>,
    threads: &[RawThread<'_>],
    report: &mut Report<'_>,
) -> Result<Vec<EndpointSpec>, Reported> {
    let mut endpoints = each(tables, |_, table| endpoint(table, known, threads, report))?;
    let plain = known.endpoints.names().iter().skip(endpoints.len()).map(EndpointSpec::named);
    endpoints.extend(plain);
    Ok(endpoints)
}

fn endpoint(
    table: &NamedTable<'_>,
    known: &Known<'_, '_, '_>,
    threads: &[RawThread<'_>],
    report: &mut Report<'_>,
) -> Result<EndpointSpec, Reported> {
    let mut section = Section::open("[[endpoint]]", &KEYS, table.table.clone(), report);
    let context = section.read("context", |value, report| {
        let context = name(value, "context", report)?;
        let target: ContextTarget = known.scope.contexts.target(&context, report)?;
        match known.scope.contexts.user(target.context).and_then(|user| threads.get(user)) {
            None => Ok(target),
            Some(thread) => {
                let thread = clipped(thread.name.as_ref().map_err(|reported| *reported)?.value);
                let context = clipped(context.value);
                Err(report.push(&value.at, TableError::BoundElsewhere { context, thread }))
            }
        }
    });
    let donation = section.read("donation", flag);
    let realtime_safe = section.read("realtime_safe", flag);
    let reorder = section.read("reorder", flag);
    let window =
        section.read("window", |value, report| integer(value, "window", 1..=WINDOW_MAX as u64, report));
    let default = EndpointSpec::named(own_name(table)?);
    Ok(EndpointSpec {
        context: context?,
        donation: donation?.unwrap_or(default.donation),
        realtime_safe: realtime_safe?.unwrap_or(default.realtime_safe),
        reorder: reorder?.unwrap_or(default.reorder),
        window: window?.map_or(default.window, |window| window as u8),
        name: default.name,
    })
}
