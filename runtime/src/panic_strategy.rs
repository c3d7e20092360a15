//! Tasks are cancelled, and fail alone, by unwinding. `tests/panic_strategy.rs` compiles this file by itself.

#[cfg(not(panic = "unwind"))]
compile_error!(
    "mainspring-runtime ends cancelled tasks by unwinding, and lets one task panic without the others: \
     it needs panic = \"unwind\" in the profile"
);
