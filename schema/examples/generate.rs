//! Writes `src/mainspring_capnp.rs` anew, or elsewhere if a folder is named.

fn main() -> Result<(), capnp::Error> {
    let here = env!("CARGO_MANIFEST_DIR");
    let target = std::env::args().nth(1).unwrap_or_else(|| format!("{here}/src"));
    capnpc::CompilerCommand::new()
        .src_prefix(here)
        .file(format!("{here}/mainspring.capnp"))
        .output_path(target)
        .default_parent_module(vec![])
        .run()
}
