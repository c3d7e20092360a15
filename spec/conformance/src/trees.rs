//! Which parts of the system a test speaks for: those in whose tree it stands.
//!
//! A row names the parts that owe it. A test of the simulator says nothing about the kernel, so a citation counts for the part
//! that owns the test's folder and for no other. Rules about the tree itself are shown in `spec/`, for every part.

/// The parts that a test in `file` speaks for. The first rule that fits decides.
pub fn parts_of(file: &str) -> Speaks {
    let about_policy = file.contains("policy");
    let parts: &[&str] = match file.split('/').collect::<Vec<_>>().as_slice() {
        ["core" | "bench", "ring", ..] => &["ring"],
        ["core", ..] if about_policy || file.contains("boundary") => &["core", "policy"],
        ["core", ..] => &["core"],
        ["sim" | "record", ..] if about_policy => &["sim", "policy"],
        ["sim" | "record", ..] => &["sim"],
        ["policy", ..] => &["policy"],
        ["user", ..] if about_policy => &["kernel", "policy"],
        ["kernel" | "user" | "schema", ..] => &["kernel"],
        ["runtime", ..] => &["runtime"],
        ["capi", ..] => &["capi"],
        ["lang" | "janus" | "qtjir", ..] => &["lang"],
        ["cli" | "host" | "workload" | "report", ..] => &["cli"],
        ["spec", ..] => return Speaks::ForAll,
        _ => &[],
    };
    Speaks::For(parts)
}

/// Which part a test speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// For these parts.
    For(&'static [&'static str]),
    /// For every part.
    ForAll,
}

impl Speaks {
    /// Whether it speaks for `part`.
    pub fn is_for(self, part: &str) -> bool {
        match self {
            Self::For(parts) => parts.contains(&part),
            Self::ForAll => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_speaks_for_the_part_in_whose_tree_it_stands() {
        assert_eq!(parts_of("core/sched/tests/queue.rs"), Speaks::For(&["core"]));
        assert_eq!(parts_of("core/ring/tests/fuzz.rs"), Speaks::For(&["ring"]));
        assert_eq!(parts_of("core/sched/src/boundary/tests.rs"), Speaks::For(&["core", "policy"]));
        assert_eq!(parts_of("record/src/check/floor.rs"), Speaks::For(&["sim"]));
        assert_eq!(parts_of("user/src/bin/smoke.rs"), Speaks::For(&["kernel"]));
        assert_eq!(parts_of("docs/tests/x.rs"), Speaks::For(&[]));
        assert!(parts_of("spec/conformance/tests/layers.rs").is_for("lang"));
    }
}
