//! The report as text: a table by part, then the rows that lack a test in the tree of a part that owes them.

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
    own: usize,
    elsewhere: usize,
    excused: usize,
}

impl Tally {
    fn of<'a>(audit: &Audit, rows: impl IntoIterator<Item = &'a Row>, parts: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for row in rows {
            tally.rows += 1;
            match worst(audit, row, parts) {
                State::Own => tally.own += 1,
                State::Elsewhere => tally.elsewhere += 1,
                State::Excused(_) => tally.excused += 1,
                State::Open => {}
            }
        }
        tally
    }

    fn open(self) -> usize {
        self.rows - self.own - self.elsewhere - self.excused
    }
}

/// How a row stands with that one of `parts` which is furthest from a test of its own.
fn worst<'a>(audit: &'a Audit, row: &Row, parts: &[&str]) -> State<'a> {
    let distance = |state: &State<'_>| match state {
        State::Own => 0,
        State::Excused(_) => 1,
        State::Elsewhere => 2,
        State::Open => 3,
    };
    let owed = row.parts.iter().filter(|part| parts.contains(&part.as_str()));
    owed.map(|part| audit.state(row, part)).max_by_key(distance).unwrap_or(State::Own)
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
    let asked = |part: &&str| options.part.as_deref().is_none_or(|asked| asked == *part);
    let shown: Vec<&str> = parts.into_iter().filter(asked).collect();
    let mut out = String::new();
    if options.sections != Sections::Missing {
        table(&mut out, audit, &shown, &rows);
    }
    if options.sections == Sections::Both {
        out.push('\n');
    }
    if options.sections != Sections::Summary {
        missing(&mut out, audit, &shown, &rows);
    }
    Ok(out)
}

fn table(out: &mut String, audit: &Audit, parts: &[&str], rows: &[&Row]) {
    push(
        out,
        format_args!(
            "{:10} {:>6} {:>10} {:>8} {:>6} {:>6}",
            "part", "own", "elsewhere", "excused", "open", "rows"
        ),
    );
    let mut line = |name: &str, tally: Tally| {
        let Tally { rows, own, elsewhere, excused } = tally;
        push(out, format_args!("{name:10} {own:6} {elsewhere:10} {excused:8} {:6} {rows:6}", tally.open()));
    };
    for part in parts {
        let tally = Tally::of(audit, rows.iter().copied().filter(|row| row.is_of(part)), &[part]);
        if tally.rows > 0 {
            line(part, tally);
        }
    }
    line("all", Tally::of(audit, rows.iter().copied(), parts));
}

fn missing(out: &mut String, audit: &Audit, parts: &[&str], rows: &[&Row]) {
    let total = Tally::of(audit, rows.iter().copied(), parts);
    if total.own == total.rows {
        push(out, format_args!("Every row has a citing test in the tree of each part that owes it."));
        return;
    }
    push(
        out,
        format_args!(
            "{} of {} rows lack a citing test in some part that owes them:",
            total.rows - total.own,
            total.rows
        ),
    );
    for group in &audit.groups {
        let mine = || rows.iter().copied().filter(|row| row.group == group.number);
        let tally = Tally::of(audit, mine(), parts);
        if tally.own == tally.rows {
            continue;
        }
        let Tally { rows, own, .. } = tally;
        push(out, format_args!("\n{}. {} ({own} of {rows} shown)", group.number, group.title));
        for row in mine() {
            for part in row.parts.iter().filter(|part| parts.contains(&part.as_str())) {
                let text = match audit.state(row, part) {
                    State::Own => continue,
                    State::Elsewhere => format!("elsewhere: {}", shorten(&row.text)),
                    State::Excused(reason) => format!("excused: {reason}"),
                    State::Open => shorten(&row.text),
                };
                let level = row.level.name();
                push(out, format_args!("  {:28} {level:8} {part:10} {text}", row.id));
            }
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
        let exception = Exception { id: "B:1".into(), part: None, reason: "no board".into(), line: 1 };
        let citation = Citation { id: "A:1".into(), file: "core/tests/a.rs".into(), line: 1 };
        Audit::new(requirements, vec![exception], vec![citation], "e.toml")
    }

    fn options(part: Option<&str>, group: Option<u32>, sections: Sections) -> ReportOptions {
        ReportOptions { part: part.map(str::to_owned), group, sections }
    }

    #[test]
    fn the_whole_report_counts_by_part_and_lists_by_group() {
        let expected = "\
part          own  elsewhere  excused   open   rows
core            1          0        0      1      2
sim             0          1        1      0      2
all             0          1        1      1      3

3 of 3 rows lack a citing test in some part that owes them:

1. First (0 of 2 shown)
  A:1                          must     sim        elsewhere: One.
  A:2                          should   core       Two.

2. Second (0 of 1 shown)
  B:1                          must-not sim        excused: no board
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
        assert_eq!(nothing, "Every row has a citing test in the tree of each part that owes it.\n");
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
