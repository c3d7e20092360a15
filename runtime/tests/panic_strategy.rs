//! A program that aborts on panics would abort on the first cancellation: it does not build.

use std::process::Command;

fn compiles_with(strategy: &str) -> (bool, String) {
    let out = std::env::temp_dir().join(format!("mainspring-panic-{strategy}-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "-C"])
        .arg(format!("panic={strategy}"))
        .arg("--out-dir")
        .arg(&out)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/panic_strategy.rs"))
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&out);
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_runtime_does_not_build_where_panics_abort() {
    let (built, errors) = compiles_with("unwind");
    assert!(built, "{errors}");
    let (built, errors) = compiles_with("abort");
    assert!(!built, "it built");
    assert!(errors.contains("needs panic = \"unwind\""), "{errors}");
}
