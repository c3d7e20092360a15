//! `[policy]`.

use super::Known;
use crate::PolicySpec;
use crate::document::Section;
use crate::error::{Field, Report};
use crate::sections::{PERIOD, Table, time};
use crate::value::{ENDLESS, integer, name};
use mainspring_abi::Nanos;

const KEYS: [&str; 4] = ["service", "recovery", "epoch", "timeout"];

/// Reads the policy service.
pub(crate) fn policy(
    table: Table<'_>,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Field<PolicySpec> {
    let Some(table) = table else { return Ok(None) };
    let threads = &known.scope.threads;
    let mut section = Section::open("[policy]", &KEYS, table, report);
    let service =
        section.require("service", "service = \"NAME\", the thread that decides", |value, report| {
            threads.one(&name(value, "thread", report)?, report)
        });
    let recovery =
        section.read("recovery", |value, report| threads.one(&name(value, "thread", report)?, report));
    let epoch = section.read("epoch", |value, report| integer(value, "epoch", 1..=ENDLESS, report));
    let timeout = time(&mut section, "timeout", PERIOD);
    Ok(Some(PolicySpec {
        service: service?,
        recovery: recovery?,
        epoch: epoch?.unwrap_or(1),
        timeout: timeout?.unwrap_or(Nanos::from_millis(100)),
    }))
}
