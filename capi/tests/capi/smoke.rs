//! The examples in C, C++ and Python, and the two ways to link.

use crate::build::{compile, here, library_folder, made, said};
use std::process::Command;

const PIPELINE: &str = "sum 338350: ok\nthe hostile task: task 6: ran out of ops; give it a larger budget or recharge it in time\n";

#[test]
fn the_example_in_c_runs() {
    let program = compile(&here().join("examples/pipeline.c"), "pipeline", &[]);
    assert_eq!(said(&Command::new(program).output().expect("it starts")), PIPELINE);
}

#[test]
fn the_program_of_the_page_runs() {
    let page = std::fs::read_to_string(here().join("../docs/capi.md")).expect("the page");
    let program = page.split("```c\n").nth(1).expect("a program").split("```").next().expect("its end");
    let source = made("page.c");
    std::fs::write(&source, program).expect("a program");
    let output = Command::new(compile(&source, "page", &[])).output().expect("it starts");
    assert_eq!(said(&output), "42: ok\n");
}

#[test]
fn the_example_in_cpp_runs() {
    let program = compile(&here().join("examples/tree.cpp"), "tree", &[]);
    let wanted = "32 leaves: ok\nan exception: the task returned an error, -1\n";
    assert_eq!(said(&Command::new(program).output().expect("it starts")), wanted);
}

/// The archive alone is enough: the program finds no shared library of ours.
#[test]
fn a_program_can_be_linked_statically() {
    let archive = library_folder().join("libmainspring_capi.a");
    let archive = archive.to_str().expect("a path that is text");
    let program = compile(
        &here().join("examples/pipeline.c"),
        "pipeline-static",
        &[archive, "-lgcc_s", "-Wl,--as-needed"],
    );
    let needed = Command::new("ldd").arg(&program).output().expect("ldd, as the compiler comes with it");
    assert!(!said(&needed).contains("mainspring"), "{}", said(&needed));
    assert_eq!(said(&Command::new(program).output().expect("it starts")), PIPELINE);
}

/// An exception that leaves a task ends the process, and never runs on through the library's frames.
#[test]
fn an_exception_that_leaves_a_task_ends_the_process() {
    let source = made("throwing.cpp");
    let program = "#include <mainspring.h>\n#include <cstdio>\nstatic int64_t task(void *) { throw 1; }\nint main() {\n\
                   janus_nursery n = janus_nursery_create();\njanus_nursery_spawn(n, task, nullptr);\n\
                   std::printf(\"%d\\n\", janus_nursery_await(n).status);\n}\n";
    std::fs::write(&source, program).expect("a program");
    let output = Command::new(compile(&source, "throwing", &[])).output().expect("it starts");
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn python_runs_tasks_by_ctypes() {
    let output = Command::new("python3")
        .arg(here().join("examples/smoke.py"))
        .arg(library_folder().join("libmainspring_capi.so"))
        .output();
    // Where there is no Python, there is nothing to smoke.
    let Ok(output) = output else { return };
    assert_eq!(said(&output), "[1, 4, 9, 16, 25] ok True\nthe task returned an error -3\n");
}
