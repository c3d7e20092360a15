//! What cargo knows of the packages that we build with.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use serde::Deserialize;

use crate::error::Error;

/// A package, as cargo describes it.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Unique in the graph.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its SPDX expression, if it states one.
    pub license: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
}

/// The packages below `root`'s lock file that are not members of its workspace.
pub fn third_party(root: &Path) -> Result<Vec<Package>, Error> {
    let json = query(root)?;
    parse(&json).map_err(|error| Error::Metadata(error.to_string()))
}

fn parse(json: &[u8]) -> serde_json::Result<Vec<Package>> {
    let Metadata { mut packages, workspace_members } = serde_json::from_slice(json)?;
    packages.retain(|package| !workspace_members.contains(&package.id));
    Ok(packages)
}

/// Asks offline first: that is fast and needs nothing. A machine that has not fetched every package yet
/// (cargo fetches only its own platform's packages when it builds) is asked again with the network.
fn query(root: &Path) -> Result<Vec<u8>, Error> {
    let offline = cargo_metadata(root, &["--offline"])?;
    let output = if offline.status.success() { offline } else { cargo_metadata(root, &[])? };
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(Error::Metadata(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

fn cargo_metadata(root: &Path, extra: &[&str]) -> Result<Output, Error> {
    // Cargo names itself when it runs us, so that the same toolchain answers.
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(&cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).args(extra).current_dir(root);
    command.output().map_err(|source| Error::Io { path: cargo.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_the_workspace_are_not_third_party() {
        let json = br#"{
            "packages": [
                {"id": "path+file:///w#ours@0.1.0", "name": "ours", "version": "0.1.0", "license": null},
                {"id": "registry+x#theirs@1.2.3", "name": "theirs", "version": "1.2.3", "license": "MIT"}
            ],
            "workspace_members": ["path+file:///w#ours@0.1.0"]
        }"#;
        let packages = parse(json).unwrap();
        assert_eq!(packages.len(), 1);
        assert_eq!(packages[0].name, "theirs");
    }

    #[test]
    fn an_answer_without_packages_is_refused() {
        assert!(parse(b"{}").is_err());
    }
}
