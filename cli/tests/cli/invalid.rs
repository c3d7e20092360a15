//! Workload files that are none, and `mainspring check`.

use crate::support::{Folder, WORKLOAD};

/// Both commands that read workloads refuse `file` in the same words.
#[track_caller]
fn refused_by_both(folder: &Folder, file: &str, words: &[&str]) {
    let check = folder.run(&format!("check {file}")).refused(words);
    let run = folder.run(&format!("run {file}")).refused(words);
    assert_eq!(check.stderr, run.stderr);
    assert!(!run.stderr.contains("panicked"), "{run:?}");
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line_and_what_to_write() {
    let folder = Folder::new("invalid");
    for (text, words) in [
        ("[machine]\ncpus = \n", &["w.toml:2:"][..]),
        ("[machine]\ncpu = 2\n", &["w.toml:2:1: ", "did you mean \"cpus\"?"]),
        ("[machine]\ncpus = 5000\n", &["w.toml:2:8: ", "4096"]),
        ("[machine]\n\nquantum = \"3\"\n", &["w.toml:3:", "no unit", "3ms"]),
        ("[machine]\npolicy = \"cfs\"\n", &["w.toml:2:", "eevdf", "wfq"]),
        (
            "[[thread]]\nname = \"a\"\nprogram = [\"slep 1ms\"]\n",
            &["w.toml:3:", "did you mean \"sleep 1ms\"?"],
        ),
        ("[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"unpark b\"]\n", &["w.toml:3:", "\"b\""]),
    ] {
        folder.write("w.toml", text);
        refused_by_both(&folder, "w.toml", words);
    }
}

#[test]
fn all_errors_of_all_files_are_listed() {
    let folder = Folder::with_workload("invalid-all");
    folder.write("a.toml", "[machine]\ncpu = 2\ntock = \"1ms\"\n");
    folder.write("b.toml", "[machine]\ncpus = 0\n");
    let checked = folder.run("check a.toml w.toml b.toml gone.toml");
    assert_eq!(checked.code, Some(2));
    assert_eq!(checked.stdout, "w.toml: ok, 4 threads on 2 CPUs\n");
    for place in ["a.toml:2:1: ", "a.toml:3:1: ", "b.toml:2:8: ", "gone.toml: "] {
        assert!(checked.stderr.contains(place), "no {place:?} in:\n{}", checked.stderr);
    }
}

#[test]
fn good_files_are_counted() {
    let folder = Folder::with_workload("check-good");
    folder.write("one.toml", "[[thread]]\nname = \"a\"\nprogram = [\"run forever\"]\n");
    let checked = folder.run("check w.toml one.toml").ok();
    assert_eq!(checked.stdout, "w.toml: ok, 4 threads on 2 CPUs\none.toml: ok, 1 thread on 1 CPU\n");
    assert_eq!(checked.stderr, "");
    assert_eq!(
        folder.run_with_input("check -", WORKLOAD.as_bytes()).ok().stdout,
        "<stdin>: ok, 4 threads on 2 CPUs\n"
    );
}

#[test]
fn a_missing_file_is_named() {
    refused_by_both(&Folder::new("missing"), "gone.toml", &["gone.toml: ", "No such file", "help: "]);
}

#[test]
fn a_directory_is_no_workload() {
    let folder = Folder::new("directory");
    std::fs::create_dir(folder.path("dir")).expect("a directory");
    refused_by_both(&folder, "dir", &["dir: ", "directory"]);
}

#[test]
fn what_is_not_text_is_refused_with_its_line() {
    let folder = Folder::new("not-text");
    let bytes = b"[machine]\ncpus = 2 # \xff\n";
    folder.write("w.toml", bytes);
    refused_by_both(&folder, "w.toml", &["w.toml:2: not UTF-8", "help: "]);
    folder.run_with_input("run -", bytes).refused(&["<stdin>:2: not UTF-8"]);
}

#[test]
fn endless_input_is_refused() {
    let folder = Folder::new("endless");
    let comment = vec![b'#'; 20 << 20];
    folder.run_with_input("check -", &comment).refused(&["<stdin>: larger than"]);
    folder.write("w.toml", &comment);
    refused_by_both(&folder, "w.toml", &["w.toml: larger than"]);
}

#[test]
fn a_workload_where_no_time_passes_is_refused() {
    let folder = Folder::new("no-time");
    folder.write("w.toml", "[[thread]]\nname = \"spin\"\nprogram = [\"yield\"]\n");
    refused_by_both(&folder, "w.toml", &["w.toml:3:12: ", "time would stand still"]);
}

#[test]
fn a_name_cannot_send_codes_to_the_terminal() {
    let folder = Folder::new("control-codes");
    folder.write("w.toml", "[machine]\n\"\\u001b[31mcpus\" = 2\n");
    let refused = folder.run("check w.toml").refused(&["w.toml:2:"]);
    assert!(!refused.stderr.contains('\x1b'), "{refused:?}");
}
