//! `mainspring doctor`.

use crate::args::host::DoctorArgs;
use crate::failure::Failure;
use crate::output::Output;
use mainspring_host::doctor::{Finding, examine};

/// Says what this host allows, and what to do about the rest.
pub fn doctor(args: &DoctorArgs, output: Output) -> Result<(), Failure> {
    let findings = examine();
    if args.json {
        return output.write(|stdout| {
            serde_json::to_writer_pretty(&mut *stdout, &findings)?;
            writeln!(stdout)
        });
    }
    output.line(text(&findings))
}

fn text(findings: &[Finding]) -> String {
    let topics = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for finding in findings {
        lines.push(format!("{:topics$}  {:7}  {}", finding.topic, finding.status, finding.found));
        let advice = finding.advice.iter();
        lines.extend(advice.map(|advice| format!("{:topics$}  help:    {advice}", "")));
    }
    lines.join("\n")
}
