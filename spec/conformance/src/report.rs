//! The report as text: a table per part, then the rows that no test cites, under their headings.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::args::{ReportOptions, Sections, UsageError};
use crate::audit::{Audit, State};
use crate::requirements::Row;

/// How much of a row's text fits beside its id.
const TEXT_CHARS: usize = 110;

/// How many rows there are, and how they stand.
#[derive(Clone, Copy, Default)]
struct Tally {
    rows: usize,
    cited: usize,
    excused: usize,
}

impl Tally {
    fn of<'a>(audit: &Audit, rows: impl IntoIterator<Item = &'a Row>) -> Tally {
        let mut tally = Tally::default();
        for row in rows {
            tally.rows += 1;
            match audit.state(row) {
                State::Cited => tally.cited += 1,
                State::Excused(_) => tally.excused += 1,
                State::Open => {}
            }
        }
        tally
    }

    fn open(self) -> usize {
        self.rows - self.cited - self.excused
    }
}

/// The report that the options ask for; refuses a part or group that does not exist.
pub fn render(audit: &Audit, options: &ReportOptions) -> Result<String, UsageError> {
    let parts: BTreeSet<&str> =
        audit.rows.iter().filter(|row| row.counts()).flat_map(|row| &row.parts).map(String::as_str).collect();
    if let Some(part) = options.part.as_deref().filter(|part| !parts.contains(part)) {
        let known = parts.into_iter().map(str::to_owned).collect();
        return Err(UsageError::UnknownPart { part: part.to_owned(), known });
    }
    if let Some(group) = options.group.filter(|&group| !audit.groups.iter().any(|g| g.number == group)) {
        let last = audit.groups.iter().map(|g| g.number).max().unwrap_or(0);
        return Err(UsageError::UnknownGroup { group, last });
    }

    let wanted = |row: &&Row| {
        row.counts()
            && options.group.is_none_or(|group| row.group == group)
            && options.part.as_deref().is_none_or(|part| row.is_of(part))
    };
    let rows: Vec<&Row> = audit.rows.iter().filter(wanted).collect();
    let mut out = String::new();
    if options.sections != Sections::Missing {
        let shown = parts.into_iter().filter(|part| options.part.as_deref().is_none_or(|p| p == *part));
        table(&mut out, audit, shown, &rows);
    }
    if options.sections == Sections::Both {
        out.push('\n');
    }
    if options.sections != Sections::Summary {
        missing(&mut out, audit, &rows);
    }
    Ok(out)
}

fn table<'a>(out: &mut String, audit: &Audit, parts: impl Iterator<Item = &'a str>, rows: &[&Row]) {
    push(out, format_args!("{:10} {:>6} {:>6} {:>8} {:>6}", "part", "cited", "rows", "excused", "open"));
    let mut line = |name: &str, tally: Tally| {
        let Tally { rows, cited, excused } = tally;
        push(out, format_args!("{name:10} {cited:6} {rows:6} {excused:8} {:6}", tally.open()));
    };
    for part in parts {
        let tally = Tally::of(audit, rows.iter().copied().filter(|row| row.is_of(part)));
        if tally.rows > 0 {
            line(part, tally);
        }
    }
    line("all", Tally::of(audit, rows.iter().copied()));
}

fn missing(out: &mut String, audit: &Audit, rows: &[&Row]) {
    let total = Tally::of(audit, rows.iter().copied());
    if total.cited == total.rows {
        push(out, format_args!("Every row has a citing test."));
        return;
    }
    push(out, format_args!("{} of {} rows have no citing test:", total.rows - total.cited, total.rows));
    for group in &audit.groups {
        let mine = || rows.iter().copied().filter(|row| row.group == group.number);
        let tally = Tally::of(audit, mine());
        if tally.cited == tally.rows {
            continue;
        }
        let Tally { rows, cited, .. } = tally;
        push(out, format_args!("\n{}. {} ({cited} of {rows} cited)", group.number, group.title));
        for row in mine() {
            let text = match audit.state(row) {
                State::Cited => continue,
                State::Excused(reason) => format!("excused: {reason}"),
                State::Open => shorten(&row.text),
            };
            let (level, parts) = (row.level.name(), row.parts.join("+"));
            push(out, format_args!("  {:28} {level:8} {parts:16} {text}", row.id));
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// Appends a line.
fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a String takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::citations::Citation;
    use crate::exceptions::Exception;
    use crate::requirements;
    use std::path::Path;

    const ROWS: &str = r#"
# === 1. First ===
[[req]]
id = "A:1"
part = "core+sim"
level = "must"
text = "One."
[[req]]
id = "A:2"
part = "core"
level = "should"
text = "Two."
# === 2. Second ===
[[req]]
id = "B:1"
part = "sim"
level = "must-not"
text = "Three."
[[req]]
id = "B:2"
part = "cli"
level = "later"
text = "Four."
"#;

    fn audit() -> Audit {
        let requirements = requirements::parse(ROWS, Path::new("r.toml")).unwrap();
        let exception = Exception { id: "B:1".into(), reason: "no board".into(), line: 1 };
        let citation = Citation { id: "A:1".into(), file: "tests/a.rs".into(), line: 1 };
        Audit::new(requirements, vec![exception], vec![citation], "e.toml")
    }

    fn options(part: Option<&str>, group: Option<u32>, sections: Sections) -> ReportOptions {
        ReportOptions { part: part.map(str::to_owned), group, sections }
    }

    #[test]
    fn the_whole_report_counts_by_part_and_lists_by_group() {
        let expected = "\
part        cited   rows  excused   open
core            1      2        0      1
sim             1      2        1      0
all             1      3        1      1

2 of 3 rows have no citing test:

1. First (1 of 2 cited)
  A:2                          should   core             Two.

2. Second (0 of 1 cited)
  B:1                          must-not sim              excused: no board
";
        assert_eq!(render(&audit(), &ReportOptions::default()).unwrap(), expected);
    }

    #[test]
    fn a_part_and_a_group_narrow_both_table_and_list() {
        let table = render(&audit(), &options(Some("sim"), None, Sections::Summary)).unwrap();
        assert!(table.contains("\nsim ") && !table.contains("\ncore "));
        let list = render(&audit(), &options(None, Some(2), Sections::Missing)).unwrap();
        assert!(list.contains("B:1") && !list.contains("A:2"));
        let nothing = render(&audit(), &options(Some("core"), Some(2), Sections::Missing)).unwrap();
        assert_eq!(nothing, "Every row has a citing test.\n");
    }

    #[test]
    fn rows_for_later_are_not_counted() {
        let error = render(&audit(), &options(Some("cli"), None, Sections::Both)).unwrap_err();
        let known = vec!["core".to_owned(), "sim".to_owned()];
        assert_eq!(error, UsageError::UnknownPart { part: "cli".into(), known });
    }

    #[test]
    fn an_unknown_group_is_refused() {
        let error = render(&audit(), &options(None, Some(3), Sections::Both)).unwrap_err();
        assert_eq!(error, UsageError::UnknownGroup { group: 3, last: 2 });
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let cut = shorten(&"é".repeat(TEXT_CHARS + 1));
        assert_eq!(cut.chars().count(), TEXT_CHARS + 1);
        assert!(cut.ends_with('…'));
    }
}
