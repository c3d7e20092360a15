//! Expectations as a JUnit file, which build servers show.

use mainspring_report::{Expected, Report};
use std::io::{self, Write};

/// Writes one suite with one case per expectation.
pub fn junit(report: &Report, expected: &[Expected], out: &mut dyn Write) -> io::Result<()> {
    let name = escaped(&report.config.workload);
    let failures = expected.iter().filter(|one| !one.held).count();
    let seconds = report.wall_ns as f64 / 1e9;
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" time=\"{seconds:.6}\">",
        expected.len()
    )?;
    writeln!(
        out,
        "  <properties><property name=\"seed\" value=\"{}\"/><property name=\"digest\" value=\"{}\"/></properties>",
        report.seed,
        escaped(&report.digest)
    )?;
    for one in expected {
        let what = escaped(&one.what);
        let line = one.line.map_or_else(String::new, |line| format!(" line=\"{line}\""));
        write!(out, "  <testcase classname=\"{name}\" name=\"{what}\" file=\"{name}\"{line}")?;
        match one.held {
            true => writeln!(out, "/>")?,
            false => writeln!(
                out,
                "><failure message=\"{}\"/></testcase>",
                escaped(&format!("expected {}; found {}", one.what, one.found))
            )?,
        }
    }
    writeln!(out, "</testsuite>")
}

/// Text for an attribute. XML has no way to write most control characters.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_can_end_its_attribute() {
        assert_eq!(escaped("a\"><x&\n"), "a&quot;&gt;&lt;x&amp;?");
    }
}
