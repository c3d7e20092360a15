//! Builds programs with the system's compilers against the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put the library that these tests are of.
pub fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("a test is in a folder").to_owned()
}

/// A place for what a test builds.
pub fn made(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
    std::fs::create_dir_all(&folder).expect("a folder for programs");
    folder.join(name)
}

/// What a program of C++ or C needs beside its sources.
pub fn compile(source: &Path, name: &str, linking: &[&str]) -> PathBuf {
    let (compiler, standard) = match source.extension().and_then(|kind| kind.to_str()) {
        Some("cpp") => ("c++", "-std=c++17"),
        _ => ("cc", "-std=c11"),
    };
    let (program, folder) = (made(name), library_folder());
    let built = Command::new(compiler)
        .args([standard, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"])
        .arg(here().join("include"))
        .arg(source)
        .args(linking)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        // Before the folders that cargo names in the environment: one of them may have an older library.
        .arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()))
        .args(["-lmainspring_capi", "-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler, as the build needs anyway");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// What it printed, if it ended well.
pub fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}
