//! Settings from the command line: the text of a workload with some of its values replaced.
//!
//! A key is written as `machine.cpus`, or, of a table that has a name, as `context.camera.budget`. The result is a
//! workload file like any other and is read as one, so a value that makes no sense is refused as in a file.

use crate::suggest::nearest;
use std::fmt;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// One setting, `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `machine.cpus`, `thread.editor.weight`.
    pub key: String,
    /// As TOML, or a text without its quotes.
    pub value: String,
}

/// Why a setting cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// Not `KEY=VALUE`.
    Malformed {
        /// As given.
        text: String,
    },
    /// A key that names no table, or no key in it.
    BadKey {
        /// As given.
        key: String,
    },
    /// No table of that name.
    NoSuchTable {
        /// The kind of table.
        kind: String,
        /// The name.
        name: String,
        /// The name of such a table that was most likely meant.
        meant: Option<String>,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { text } => {
                write!(f, "{text:?} is no setting\nhelp: write KEY=VALUE, such as machine.cpus=4")
            }
            Self::BadKey { key } => write!(
                f,
                "{key:?} is no key of a workload\nhelp: write TABLE.KEY, such as machine.cpus, or TABLE.NAME.KEY, such as \
                 context.camera.budget"
            ),
            Self::NoSuchTable { kind, name, meant: Some(meant) } => {
                write!(f, "no {kind} is named {name:?}\nhelp: did you mean {meant:?}?")
            }
            Self::NoSuchTable { kind, name, meant: None } => {
                write!(f, "no {kind} is named {name:?}\nhelp: write the name of a [[{kind}]] of the file")
            }
        }
    }
}

impl std::error::Error for SettingError {}

impl Setting {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// When there is no `=`, or nothing before it.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err(SettingError::Malformed { text: text.to_owned() }),
        }
    }

    /// The value as a file would have it: what TOML cannot read is a text.
    fn written(&self) -> String {
        let line = format!("value = {}", self.value);
        let toml = !self.value.is_empty() && !self.value.contains('\n') && DeTable::parse(&line).is_ok();
        if toml { self.value.clone() } else { format!("{:?}", self.value) }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// The text of a workload with `settings` made, one after the other. A text that is no TOML is returned as it is: its
/// reader says why.
///
/// # Errors
/// When a key names nothing that a workload has.
pub fn apply(text: &str, settings: &[Setting]) -> Result<String, SettingError> {
    let mut text = text.to_owned();
    for setting in settings {
        if let Some((at, new)) = place(&text, setting)? {
            text.replace_range(at, &new);
        }
    }
    Ok(text)
}

/// The bytes to replace, and by what.
fn place(text: &str, setting: &Setting) -> Result<Option<(Range<usize>, String)>, SettingError> {
    let Ok(document) = DeTable::parse(text) else { return Ok(None) };
    let bad = || SettingError::BadKey { key: setting.key.clone() };
    let (kind, rest) = setting.key.split_once('.').ok_or_else(bad)?;
    let value = setting.written();
    let Some(found) = document.get_ref().get(kind) else {
        // A table of its own, behind all others, so that the lines above stay where they are.
        if rest.contains('.') || rest.is_empty() || kind.is_empty() {
            return Err(bad());
        }
        let gap = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        return Ok(Some((text.len()..text.len(), format!("{gap}[{kind}]\n{rest} = {value}\n"))));
    };
    let (table, key, at) = match found.get_ref() {
        DeValue::Array(list) => {
            // A name may have dots in it, a key has none.
            let (name, key) = rest.rsplit_once('.').ok_or_else(bad)?;
            let tables = || {
                list.iter().filter_map(|item| {
                    let table = item.get_ref().as_table()?;
                    Some((table.get("name")?.get_ref().as_str()?, table, item.span()))
                })
            };
            let missing = || SettingError::NoSuchTable {
                kind: kind.to_owned(),
                name: name.to_owned(),
                meant: nearest(name, tables().map(|(known, ..)| known)).map(str::to_owned),
            };
            let (_, table, at) = tables().find(|(known, ..)| *known == name).ok_or_else(missing)?;
            (table, key, at)
        }
        value => (value.as_table().ok_or_else(bad)?, rest, found.span()),
    };
    if key.is_empty() || key.contains('.') {
        return Err(bad());
    }
    if let Some(old) = table.get(key) {
        return Ok(Some((old.span(), value)));
    }
    // Below the header of the table.
    let line_end = text[at.start..].find('\n').map_or(text.len(), |end| at.start + end + 1);
    let gap = if text[..line_end].ends_with('\n') { "" } else { "\n" };
    Ok(Some((line_end..line_end, format!("{gap}{key} = {value}\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[machine]\nduration = \"1s\"\n\n[[thread]]\nname = \"a.b\"\nprogram = [\"run 1ms\", \"sleep 1ms\"]\n";

    fn set(text: &str, settings: &[&str]) -> Result<String, SettingError> {
        let settings: Vec<Setting> =
            settings.iter().map(|setting| Setting::parse(setting).expect("a setting")).collect();
        apply(text, &settings)
    }

    #[test]
    fn a_value_is_replaced_and_a_missing_key_is_added() {
        let text =
            set(FILE, &["machine.duration=5ms", "machine.cpus=4", "thread.a.b.weight=7", "costs.switch=1us"]);
        let workload = crate::parse("f", &text.expect("settings")).expect("a workload");
        assert_eq!(workload.machine.duration, mainspring_abi::Nanos::from_millis(5));
        assert_eq!(workload.machine.cpus, 4);
        assert_eq!(workload.threads[0].weight.get(), 7);
        assert_eq!(workload.costs.switch, mainspring_abi::Nanos::from_micros(1));
    }

    #[test]
    fn a_list_is_a_value_too() {
        let text = set(FILE, &["thread.a.b.program=[\"run forever\"]"]).expect("a setting");
        assert_eq!(
            crate::parse("f", &text).expect("a workload").threads[0].program,
            [crate::Step::RunForever]
        );
    }

    #[test]
    fn what_names_nothing_is_refused() {
        assert_eq!(Setting::parse("cpus"), Err(SettingError::Malformed { text: "cpus".into() }));
        assert_eq!(set(FILE, &["cpus=2"]), Err(SettingError::BadKey { key: "cpus".into() }));
        let gone = |name: &str, meant: Option<&str>| SettingError::NoSuchTable {
            kind: "thread".into(),
            name: name.into(),
            meant: meant.map(str::to_owned),
        };
        assert_eq!(set(FILE, &["thread.other.weight=2"]), Err(gone("other", None)));
        assert_eq!(set(FILE, &["thread.a.c.weight=2"]), Err(gone("a.c", Some("a.b"))));
        assert_eq!(set("no [toml", &["machine.cpus=2"]), Ok("no [toml".into()));
    }
}
