//! The licence check: every third-party package against the allow list of `deny.toml`.
//!
//! Needs no network when the packages have been fetched. Of `deny.toml` only `licenses.allow` is read: the file is
//! cargo-deny's, and a user of that tool gets the same verdict, and advisories, from it.

mod expression;
mod metadata;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use expression::{Expression, ExpressionError};
use metadata::Package;

const POLICY: &str = "deny.toml";

/// Folders with a workspace of their own below the project's, where there are any.
const WORKSPACES: [&str; 5] = [".", "kernel", "cluster", "console", "plugins/wasm"];

/// A package that may not be used, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Offender {
    /// Name and version.
    pub package: String,
    /// What is wrong with its licence.
    pub fault: Fault,
}

/// What is wrong with a licence.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The manifest names no licence.
    Unstated,
    /// The manifest's licence is not an SPDX expression.
    Malformed(String, ExpressionError),
    /// The expression cannot be met with allowed licences.
    NotAllowed(String),
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.package)?;
        match &self.fault {
            Fault::Unstated => write!(f, "no licence stated"),
            Fault::Malformed(text, error) => write!(f, "`{text}`: {error}"),
            Fault::NotAllowed(text) => write!(f, "{text}"),
        }
    }
}

#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

/// Checks the project below `root`; the answer is a line for people.
pub fn check(root: &Path) -> Result<String, Error> {
    let path = root.join(POLICY);
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let policy: Policy = toml::from_str(&text).map_err(|source| Error::Toml { path, source })?;
    let folders = WORKSPACES.map(|folder| root.join(folder));
    let mut packages = Vec::new();
    for folder in folders.iter().filter(|folder| folder.join("Cargo.toml").exists()) {
        packages.extend(metadata::third_party(folder)?);
    }
    // One workspace's packages are another's neighbours by path.
    packages.retain(|package| !package.id.starts_with("path+"));
    packages.sort_by(|a, b| a.id.cmp(&b.id));
    packages.dedup_by(|a, b| a.id == b.id);
    let offenders = offenders(&packages, &policy.licenses.allow);
    if offenders.is_empty() {
        Ok(format!("licences: {} third-party packages, all allowed by {POLICY}\n", packages.len()))
    } else {
        Err(Error::Licences(offenders))
    }
}

fn offenders(packages: &[Package], allow: &BTreeSet<String>) -> Vec<Offender> {
    let offender = |package: &Package| {
        let fault = fault(package.license.as_deref(), allow)?;
        Some(Offender { package: format!("{} {}", package.name, package.version), fault })
    };
    packages.iter().filter_map(offender).collect()
}

fn fault(licence: Option<&str>, allow: &BTreeSet<String>) -> Option<Fault> {
    let Some(text) = licence else { return Some(Fault::Unstated) };
    match Expression::parse(text) {
        Err(error) => Some(Fault::Malformed(text.to_owned(), error)),
        Ok(expression) if expression.is_met_by(&|term| allow.contains(term)) => None,
        Ok(_) => Some(Fault::NotAllowed(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offenders_are_named_with_their_fault() {
        let package = |name: &str, license: Option<&str>| Package {
            id: name.into(),
            name: name.into(),
            version: "1.0.0".into(),
            license: license.map(str::to_owned),
        };
        let packages = [
            package("good", Some("MIT OR GPL-3.0-only")),
            package("strict", Some("GPL-3.0-only")),
            package("silent", None),
            package("odd", Some("MIT OR")),
        ];
        let allow = BTreeSet::from(["MIT".to_owned()]);
        let found: Vec<_> = offenders(&packages, &allow).iter().map(Offender::to_string).collect();
        let expected = [
            "strict 1.0.0: GPL-3.0-only",
            "silent 1.0.0: no licence stated",
            "odd 1.0.0: `MIT OR`: it ends where a licence should follow",
        ];
        assert_eq!(found, expected);
    }
}
