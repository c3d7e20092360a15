//! The page about `exec`, as its reader would try it.

use crate::docs::{Shown, shown};
use crate::support::{Folder, Ran};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn the_page_shows_what_its_commands_print() {
    let folder = Folder::new("exec-docs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/exec.md")).expect("the page");
    let program = Path::new(env!("CARGO_BIN_EXE_mainspring")).parent().expect("its folder");
    let path = env::join_paths(
        [program.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    );
    let commands = shown(&page);
    assert!(commands.len() >= 4, "only {} commands", commands.len());
    for Shown { command, printed } in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{{ {command}; }} 2>&1")]).current_dir(&root);
        shell.env("PATH", path.as_ref().expect("a path")).env("MAINSPRING_RUN_DIR", folder.path("run"));
        assert_eq!(Ran::of(&mut shell).stdout.lines().collect::<Vec<_>>(), printed, "{command}");
    }
}
