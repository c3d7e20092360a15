//! The suite has as many tests as the CBC-MN documents list, in each of their categories that is about the runtime.

const CATEGORIES: [(&str, usize, &[&str]); 4] = [
    (
        "context switch",
        27,
        &[
            include_str!("../src/stack/switch.rs"),
            include_str!("unwinding.rs"),
            include_str!("overflow.rs"),
            include_str!("threads.rs"),
        ],
    ),
    (
        "worker loop and scheduling",
        41,
        &[
            include_str!("workers.rs"),
            include_str!("basics.rs"),
            include_str!("determinism.rs"),
            include_str!("fair.rs"),
            include_str!("fork.rs"),
            include_str!("timers.rs"),
        ],
    ),
    ("nurseries and the scheduler", 8, &[include_str!("spawners.rs"), include_str!("open.rs")]),
    ("states of nurseries, cancellation", 5, &[include_str!("loom/state.rs")]),
];

//= NURS:tests
#[test]
fn each_category_has_as_many_tests_as_the_documents_list() {
    for (category, listed, files) in CATEGORIES {
        let tests = |file: &&str| file.lines().filter(|line| line.trim() == "#[test]").count();
        let ours: usize = files.iter().map(tests).sum();
        assert!(ours >= listed, "{ours} tests of {category}, and the documents list {listed}");
    }
}
