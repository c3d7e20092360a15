//! The generated code matches the schema.

use std::{env, fs, io, process};

/// Where the compiler of schemas is not installed nothing can be compared: `make schema` installs it.
#[test]
fn the_generated_code_is_that_of_the_schema() {
    match process::Command::new("capnp").arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            assert!(env::var_os("CI").is_none(), "the capnp compiler is not installed; run `make schema`");
            eprintln!("not compared: the capnp compiler is not installed");
            return;
        }
        other => {
            other.expect("capnp starts");
        }
    }
    let here = env!("CARGO_MANIFEST_DIR");
    let target = env::temp_dir().join(format!("mainspring-schema-{}", process::id()));
    fs::create_dir_all(&target).expect("a folder for the new code");
    capnpc::CompilerCommand::new()
        .src_prefix(here)
        .file(format!("{here}/mainspring.capnp"))
        .output_path(&target)
        .run()
        .expect("the schema compiles");
    let fresh = fs::read_to_string(target.join("mainspring_capnp.rs")).expect("the new code");
    let kept = fs::read_to_string(format!("{here}/src/mainspring_capnp.rs")).expect("the kept code");
    fs::remove_dir_all(&target).expect("the folder was ours");
    assert!(fresh == kept, "src/mainspring_capnp.rs is out of date; run `make schema`");
}
