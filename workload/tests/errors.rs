//! What wrong files are told: where, what, and what to write instead.

use mainspring_workload::{Errors, LoadError, MAX_FILE_BYTES, load, parse};

fn errors(text: &str) -> Errors {
    match parse("w.toml", text) {
        Ok(workload) => panic!("accepted:\n{text}\n{workload:?}"),
        Err(errors) => errors,
    }
}

/// Each row: a file, and its only error's place, message and help (both by a part).
fn refused(rows: &[(&str, (usize, usize), &str, &str)]) {
    for (text, place, message, help) in rows {
        let errors = errors(text);
        let error = errors.iter().next().expect("errors are never empty");
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
        assert_eq!((error.line(), error.column()), *place, "{text}\n{errors}");
        assert!(error.problem().to_string().contains(message), "{text}\n{errors}");
        assert!(error.help().contains(help), "{text}\n{errors}");
    }
}

/// As [`refused`], for the value of a key in a table whose header is line 1.
fn refused_values(header: &str, rows: &[(&str, usize, &str, &str)]) {
    for (line, column, message, help) in rows {
        let rest = if header == "[[thread]]" { THREAD_REST } else { "" };
        let text = format!("{header}\n{line}\n{rest}");
        refused(&[(&text, (2, *column), message, help)]);
    }
}

const THREAD_REST: &str = "name = \"a\"\nprogram = [\"run 1ms\"]\n";

/// As [`refused`], for one program among threads that can be named.
fn refused_programs(rows: &[(&str, usize, &str, &str)]) {
    const OTHERS: &str = r#"
        [[thread]]
        name = "batch"
        count = 3
        program = ["run 1ms", "recv orders", "spawn kid"]
        [[thread]]
        name = "kid"
        start = "spawn"
        program = ["run 1ms"]
        times = 1
    "#;
    for (program, column, message, help) in rows {
        let text = format!("[[thread]]\nname = \"me\"\nprogram = [{program}]\n{OTHERS}");
        refused(&[(&text, (3, *column), message, help)]);
    }
}

#[test]
fn an_error_displays_its_place_its_line_and_help() {
    let text = "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"slep 3ms\"]\n";
    let expected = "\
w.toml:3:24: unknown step \"slep 3ms\"
  |
3 | program = [\"run 1ms\", \"slep 3ms\"]
  |                        ^^^^
help: did you mean \"sleep 3ms\"?";
    assert_eq!(errors(text).to_string(), expected);
}

#[test]
fn all_errors_of_a_file_are_told_in_its_order() {
    let text =
        "[machine]\ncpus = 0\ntick = \"1us\"\n[cost]\n[[thread]]\nname = \"a b\"\nprogram = [\"rum 1ms\"]\n";
    let errors = errors(text);
    let lines: Vec<usize> = errors.iter().map(|error| error.line()).collect();
    assert_eq!(lines, [2, 3, 4, 6, 7], "{errors}");
    assert_eq!(errors.to_string().matches("help: ").count(), 5);
}

#[test]
fn one_mistake_is_told_once() {
    // Each would have consequences: a mask beyond a machine that is not known, a name that is not known, a
    // receiver that is not known, a spawner that is not known.
    for text in [
        "[machine]\ncpus = 0\n[[thread]]\nname = \"a\"\ncpus = [7]\nprogram = [\"run 1ms\"]\n",
        "[[thread]]\nname = \"a b\"\nprogram = [\"run 1ms\"]\n[[thread]]\nname = \"c\"\nprogram = [\"run 1ms\", \"unpark a\"]\n",
        "[[thread]]\nname = \"a\"\nprogram = [\"recv\", \"reply\"]\n[[thread]]\nname = \"b\"\nprogram = [\"call e\", \"run 1ms\"]\n",
        "[[thread]]\nname = \"a\"\nprogram = [\"spawn\"]\n[[thread]]\nname = \"b\"\nstart = \"spawn\"\nprogram = [\"run 1ms\"]\n",
        "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"spawn b\"]\n[[thread]]\nname = \"b\"\nstart = \"x\"\nprogram = [\"run 1ms\"]\n",
        "[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\", \"unpark b.7\"]\n[[thread]]\nname = \"b\"\ncount = 0\nprogram = [\"run 1ms\"]\n",
    ] {
        let errors = errors(text);
        assert_eq!(errors.count(), 1, "{errors}");
    }
}

#[test]
fn toml_mistakes_are_placed() {
    refused(&[
        ("[machine]\nquantum = 3ms\n", (2, 11), "must be quoted", "in quotes"),
        ("[machine]\ncpus = 1\ncpus = 2\n", (3, 1), "duplicate key", "remove one"),
        ("[machine\ncpus = 1\n", (1, 9), "unclosed table", "close"),
        ("[machine]\npolicy = \"wfq\n", (2, 14), "string", "close"),
        ("[[thread]]\nname = \"a\"\nprogram = [\"yield\" \"exit\"]", (3, 20), "missing comma", "comma"),
        ("", (1, 1), "neither a machine nor a thread", "[[thread]]"),
        ("# only a comment\n", (1, 1), "neither a machine nor a thread", "[[thread]]"),
        ("[thread]\nname = \"a\"\n", (1, 1), "form a list", "[[thread]]"),
        ("thread = [3]\n", (1, 11), "form a list", "[[thread]]"),
        ("[[machine]]\ncpus = 1\n", (1, 1), "must be one table", "[machine]"),
    ]);
}

#[test]
fn unknown_tables_and_keys_are_refused() {
    refused(&[
        ("[machin]\ncpus = 1\n", (1, 2), "unknown table \"machin\"", "did you mean \"machine\"?"),
        ("[machine]\n[zebra]\n", (2, 2), "unknown table \"zebra\"", "[machine], [costs]"),
        ("[machine]\nquantumm = \"3ms\"\n", (2, 1), "unknown key \"quantumm\" in [machine]", "\"quantum\""),
        ("[costs]\nsyscall = \"1us\"\n", (2, 1), "unknown key \"syscall\" in [costs]", "switch, interrupt"),
        (
            "[faults]\nstall = { chance = \"1%\", by = \"1ms\", for = \"1ms\" }\n",
            (2, 26),
            "\"by\"",
            "chance, for",
        ),
        (
            "[[thread]]\nwieght = 3\nname = \"a\"\nprogram = [\"run 1ms\"]\n",
            (2, 1),
            "\"wieght\"",
            "\"weight\"",
        ),
    ]);
}

#[test]
fn missing_keys_are_asked_for() {
    refused(&[
        ("[[thread]]\nname = \"a\"\n", (1, 1), "[[thread]] has no \"program\"", "add program = ["),
        ("[[thread]]\nprogram = [\"run 1ms\"]\n", (1, 1), "[[thread]] has no \"name\"", "add name = "),
        ("[machine]\n[network]\n", (2, 1), "[network] has no \"every\"", "add every = "),
        ("[faults]\nlate_timer = { chance = \"1%\" }", (2, 14), "has no \"by\"", "add by = "),
    ]);
}

#[test]
fn machine_values_have_limits() {
    refused_values(
        "[machine]",
        &[
            ("cpus = 0", 8, "cpus 0 is out of range", "choose 1 to 4096"),
            ("cpus = 4097", 8, "cpus 4097 is out of range", "choose 1 to 4096"),
            ("cpus = -1", 8, "cpus -1 is out of range", "choose 1 to 4096"),
            ("cpus = 99999999999999999999", 8, "out of range", "choose 1 to 4096"),
            ("cpus = 2.0", 8, "expected a whole number, found float", "without quotes or a point"),
            ("cpus = \"2\"", 8, "expected a whole number, found string", "without quotes"),
            ("quantum = \"999ns\"", 12, "quantum 999ns is too short", "choose 1us to 1s"),
            ("quantum = \"1.1s\"", 12, "quantum 1.1s is too long", "choose 1us to 1s"),
            ("quantum = \"1ms..2ms\"", 12, "takes one duration", "such as \"20ms\""),
            ("quantum = 3", 11, "expected a duration in quotes, found integer", "\"5ms\""),
            ("tick = \"99us\"", 9, "tick 99us is too short", "choose 100us to 1s"),
            ("duration = \"61m\"", 13, "duration 3660s is too long", "choose 1us to 3600s"),
            ("duration = \"999999999999s\"", 13, "64 bits", "shorter"),
            ("policy = \"cfs\"", 10, "unknown policy \"cfs\"", "\"eevdf\" or \"wfq\""),
            ("policy = \"EEVDF\"", 10, "unknown policy \"EEVDF\"", "did you mean \"eevdf\"?"),
            ("waiters = 0", 11, "waiters 0 is out of range", "choose 1 to 4000000"),
        ],
    );
    refused_values("[costs]", &[("switch = \"2s\"", 11, "switch 2s is too long", "choose 0ns to 1s")]);
    refused_values(
        "[network]",
        &[
            ("cpu = 1\nevery = \"1ms\"", 7, "CPU 1 does not exist; the machine has one CPU", "cpus = 2"),
            ("clock = 1\nevery = \"1ms\"", 9, "expected true or false, found integer", "true or false"),
        ],
    );
}

#[test]
fn fault_values_have_limits() {
    refused_values(
        "[faults]",
        &[
            ("lost_reschedule = \"101%\"", 19, "not a percentage: \"101%\"", "0% to 100%"),
            ("lost_reschedule = \"1\"", 19, "not a percentage: \"1\"", "\"1%\""),
            ("lost_reschedule = \"0.00001%\"", 19, "not a percentage", "four decimals"),
            ("lost_reschedule = 0.1", 19, "expected a percentage in quotes, found float", "\"0.1%\""),
            ("stall = \"1%\"", 9, "expected a table, found string", "for = "),
            ("late_timer = { chance = \"1%\", by = \"0ms\" }", 37, "by 0ns is too short", "choose 1ns"),
            ("burst_every = \"1ns\"", 16, "burst_every 1ns is too short", "choose 1us"),
        ],
    );
}

#[test]
fn thread_values_have_limits() {
    refused_values(
        "[[thread]]",
        &[
            ("weight = 0", 10, "weight 0 is out of range", "choose 1 to 65535"),
            ("weight = 65536", 10, "weight 65536 is out of range", "choose 1 to 65535"),
            ("request = \"2s\"", 12, "request 2s is too long", "choose 1us to 1s"),
            ("latency = \"interactiv\"", 11, "unknown latency", "did you mean \"interactive\"?"),
            ("cpus = []", 8, "mask is empty", "leave `cpus` out"),
            ("cpus = \"\"", 8, "mask is empty", "leave `cpus` out"),
            ("cpus = [0, 1]", 12, "CPU 1 does not exist; the machine has one CPU", "cpus = 2"),
            ("cpus = \"0-1\"", 9, "CPU 1 does not exist", "choose 0 to 0"),
            ("cpus = \"3-1\"", 9, "ends before it begins", "\"1-3\""),
            ("cpus = \"0,x\"", 11, "\"x\" is neither a CPU nor a range", "\"0-3,8\""),
            ("cpus = 0", 8, "expected a list of CPUs, found integer", "[0, 2]"),
            ("count = 0", 9, "count 0 is out of range", "choose 1 to 4000000"),
            ("times = 0", 9, "times 0 is out of range", "choose 1 or more"),
            ("start = \"soon\"", 10, "does not begin with a number: \"soon\"", "300us"),
            ("start = \"spwan\"", 9, "unknown start \"spwan\"", "did you mean \"spawn\"?"),
            ("start = \"9ms..1ms\"", 10, "ends before it begins", "did you mean \"1ms..9ms\"?"),
            ("process = \"a b\"", 12, "\"a b\" is not a valid process name", "letters, digits"),
        ],
    );
}

#[test]
fn names_must_be_plain_and_unique() {
    let two = |first: &str, second: &str| {
        format!(
            "[[thread]]\nprogram = [\"run 1ms\"]\n{first}\n[[thread]]\nprogram = [\"run 1ms\"]\n{second}\n"
        )
    };
    refused(&[
        (&two("name = \"a\"", "name = \"\""), (6, 9), "\"\" is not a valid thread name", "not empty"),
        (&two("name = \"a\"", "name = \"b/c\""), (6, 9), "\"b/c\" is not a valid thread name", "letters"),
        (&two("name = \"a\"", "name = 3"), (6, 8), "expected a text in quotes, found integer", "\"name\""),
        (&two("name = \"a\"", "name = \"a\""), (6, 9), "\"a\" exists already (line 3)", "`count`"),
        (
            &two("name = \"a\"\ncount = 2", "name = \"a.1\""),
            (7, 9),
            "\"a.1\" is also an instance of thread \"a\" (line 3)",
            "another name",
        ),
    ]);
}

#[test]
fn the_number_of_threads_is_bounded() {
    let thread =
        |name, count| format!("[[thread]]\nname = \"{name}\"\ncount = {count}\nprogram = [\"run 1ms\"]\n");
    let text = [thread("a", 4_000_000), thread("b", 1)].concat();
    refused(&[(&text, (7, 9), "makes 4000001 threads", "4000000 in all")]);
}

#[test]
fn steps_say_what_they_take() {
    refused_programs(&[
        ("\"slep 3ms\"", 13, "unknown step \"slep 3ms\"", "did you mean \"sleep 3ms\"?"),
        ("\"sleep3ms\"", 13, "unknown step \"sleep3ms\"", "did you mean \"sleep 3ms\"?"),
        ("\"runforever\"", 13, "unknown step", "did you mean \"run forever\"?"),
        ("\"Yield\"", 13, "unknown step \"Yield\"", "did you mean \"yield\"?"),
        ("\"frobnicate 3\"", 13, "unknown step", "the steps are run, sleep, every"),
        ("\" \"", 12, "the step is empty", "remove it"),
        ("7", 12, "expected a step in quotes, found integer", "\"run 300us\""),
        ("\"run\"", 13, "step \"run\" lacks an argument", "\"run forever\""),
        ("\"run 3 ms\"", 19, "step \"run\" does not take \"ms\"", "\"run 300us\""),
        ("\"yield now\"", 19, "step \"yield\" does not take \"now\"", "write \"yield\""),
        ("\"run 3\"", 17, "no unit", "3ms"),
        ("\"run fast\"", 17, "does not begin with a number", "300us"),
        ("\"run 4ms..1ms\"", 17, "ends before it begins", "\"1ms..4ms\""),
        ("\"run 99999999999s\"", 17, "64 bits", "shorter"),
        ("\"every 0ms\"", 19, "every 0ns is too short", "choose 1ns or more"),
        ("\"every 1ms..2ms\"", 19, "every takes one duration", "\"20ms\""),
        ("\"weight 0\"", 20, "weight 0 is out of range", "choose 1 to 65535"),
        ("\"weight x\"", 20, "weight x is out of range", "choose 1 to 65535"),
        ("\"call a/b\"", 18, "\"a/b\" is not a valid endpoint name", "letters"),
        ("\"\\u0072un\"", 12, "step \"run\" lacks an argument", "\"run forever\""),
    ]);
}

#[test]
fn programs_must_make_sense() {
    refused_programs(&[
        ("", 11, "the program is empty", "\"run forever\""),
        ("\"run forever\", \"yield\"", 27, "never reached: it stands after \"run forever\"", "remove it"),
        ("\"exit\", \"yield\"", 20, "never reached: it stands after \"exit\"", "remove it"),
        ("\"run 1ms\", \"reply\"", 23, "receives nothing", "\"recv ENDPOINT\""),
        ("\"run 1ms\", \"join me\"", 23, "its own end", "another thread"),
        ("\"run 1ms\", \"join kid\"", 23, "does not spawn", "add \"spawn kid\""),
        ("\"yield\"", 12, "time would stand still", "add a run step"),
        ("\"yield\", \"weight 3\", \"unpark batch\"", 12, "time would stand still", "add a run step"),
        ("\"run 0\", \"sleep 0ms\", \"park 0ns\"", 12, "time would stand still", "add a run step"),
    ]);
}

#[test]
fn steps_must_name_what_exists() {
    refused_programs(&[
        ("\"run 1ms\", \"unpark bach\"", 31, "no thread is named \"bach\"", "did you mean \"batch\"?"),
        ("\"run 1ms\", \"unpark zebra\"", 31, "no thread is named \"zebra\"", "name of a [[thread]]"),
        ("\"run 1ms\", \"unpark batch.3\"", 31, "no thread instance is named \"batch.3\"", "\"batch.2\""),
        ("\"run 1ms\", \"unpark me.0\"", 31, "no thread instance is named \"me.0\"", "has no `count`"),
        ("\"run 1ms\", \"unpark batch.01\"", 31, "no thread is named \"batch.01\"", "name of a [[thread]]"),
        ("\"run 1ms\", \"join nobody\"", 29, "no thread is named \"nobody\"", "name of a [[thread]]"),
        ("\"run 1ms\", \"spawn batch\"", 30, "\"batch\" starts by itself", "start = \"spawn\""),
        ("\"run 1ms\", \"spawn batch.1\"", 30, "not one instance", "\"spawn batch\""),
        ("\"run 1ms\", \"spawn kit\"", 30, "no thread is named \"kit\"", "did you mean \"kid\"?"),
        ("\"run 1ms\", \"call order\"", 23, "nobody receives on endpoint \"order\"", "\"orders\""),
        ("\"run 1ms\", \"call zebra\"", 23, "nobody receives on endpoint \"zebra\"", "recv zebra"),
    ]);
}

#[test]
fn a_thread_to_be_spawned_needs_a_spawner_that_starts() {
    let text = "[[thread]]\nname = \"a\"\nstart = \"spawn\"\nprogram = [\"run 1ms\", \"spawn a\"]\n";
    refused(&[(text, (2, 9), "ever spawns \"a\"", "add the step \"spawn a\"")]);
}

#[test]
fn a_file_of_endless_errors_is_told_in_part() {
    let steps = "\"slep 3ms\", ".repeat(5_000);
    let errors = errors(&format!("[[thread]]\nname = \"a\"\nprogram = [{steps}]\n"));
    assert_eq!(errors.count(), 5_000);
    assert!(errors.to_string().ends_with("and 4000 more errors"));
    assert!(errors.to_string().len() < 1_000_000);
}

#[test]
fn files_that_cannot_be_read_say_so() {
    let dir = std::env::temp_dir().join(format!("mainspring-workload-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    let path = dir.join("w.toml");

    let missing = load(&path).expect_err("there is no file yet");
    assert!(matches!(&missing, LoadError::Read { .. }) && missing.to_string().contains("w.toml: "));

    std::fs::write(&path, b"[machine]\n\xff").expect("writable");
    assert!(matches!(load(&path), Err(LoadError::NotText { line: 2, .. })));

    std::fs::write(&path, vec![b'#'; MAX_FILE_BYTES as usize + 1]).expect("writable");
    assert!(matches!(load(&path), Err(LoadError::TooLarge { .. })));

    std::fs::write(&path, "[machine]\ncpus = 0\n").expect("writable");
    let invalid = load(&path).expect_err("no CPU");
    assert!(invalid.to_string().starts_with(&format!("{}:2:8: cpus 0", path.display())), "{invalid}");
    std::fs::remove_dir_all(&dir).expect("removable");
}

#[test]
fn budgets_name_their_components_and_bound_what_is_allocated() {
    refused_values(
        "[[thread]]",
        &[
            ("budget = 5", 10, "a table", "ops = 100000"),
            ("budget = { op = 5 }", 12, "unknown key \"op\" in the budget", "did you mean"),
            ("budget = { ops = 0 }", 18, "ops", "1"),
            ("budget = { spawns = 70000 }", 21, "spawns", "65535"),
        ],
    );
    refused_programs(&[
        ("\"alloc 5\"", 12, "whose memory has no bound", "budget = { memory"),
        ("\"alloc\"", 13, "lacks an argument", "alloc 65536"),
        ("\"syscall 3\"", 21, "does not take", "syscall"),
    ]);
}

#[test]
fn what_threads_wait_at_and_draw_from_is_named_where_it_is_wrong() {
    refused(&[
        (
            "[[thread]]\nname = \"a\"\nprogram = [\"lock m\", \"run 1ms\"]\n",
            (3, 18),
            "no mutex is named \"m\"",
            "[[mutex]]",
        ),
        (
            "[[mutex]]\nname = \"mine\"\n[[thread]]\nname = \"a\"\nprogram = [\"lock mime\", \"run 1ms\"]\n",
            (5, 18),
            "no mutex is named",
            "did you mean \"mine\"?",
        ),
        (
            "[[barrier]]\nname = \"b\"\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n",
            (1, 1),
            "parties",
            "parties = 2",
        ),
        (
            "[[barrier]]\nname = \"b\"\nparties = 0\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n",
            (3, 11),
            "parties",
            "1",
        ),
        ("[[thread]]\nname = \"a\"\nprogram = [\"run soon\"]\n", (3, 17), "soon", ""),
        (
            "[[distribution]]\nname = \"soon\"\nkind = \"pareto\"\nleast = \"1ms\"\nshape = \"0\"\n\
             [[thread]]\nname = \"a\"\nprogram = [\"run soon\"]\n",
            (5, 9),
            "no shape",
            "0.1 to 100",
        ),
        (
            "[[distribution]]\nname = \"soon\"\nkind = \"values\"\nvalues = [\"0\"]\n\
             [[thread]]\nname = \"a\"\nprogram = [\"run soon\"]\n",
            (1, 1),
            "needs values",
            "above zero",
        ),
        (
            "[[distribution]]\nname = \"soon\"\nkind = \"values\"\nfile = \"no/such/file\"\n\
             [[thread]]\nname = \"a\"\nprogram = [\"run soon\"]\n",
            (4, 8),
            "no/such/file",
            "one duration on each line",
        ),
        (
            "[[interrupt]]\nname = \"i\"\nevery = \"0\"\n[[thread]]\nname = \"a\"\nprogram = [\"run 1ms\"]\n",
            (3, 9),
            "no time passes",
            "1ns",
        ),
    ]);
    let alone =
        errors("[[mutex]]\nname = \"m\"\n[[thread]]\nname = \"a\"\nprogram = [\"lock m\", \"unlock m\"]\n");
    assert!(alone.to_string().contains("run step"), "time must pass: {alone}");
}

#[test]
fn phases_and_choices_are_whole() {
    refused_programs(&[
        ("\"run 1ms\", \"end\"", 23, "\"end\" without a beginning", "repeat 10"),
        ("\"run 1ms\", \"or 5%\"", 23, "\"or\" without a beginning", "either 70%"),
        ("\"repeat 2\", \"or\", \"run 1ms\", \"end\"", 24, "\"or\" without a beginning", "either 70%"),
        ("\"repeat 2\", \"run 1ms\"", 12, "\"repeat\" has no \"end\"", "behind its last step"),
        ("\"either 5%\", \"run 1ms\"", 12, "\"either\" has no \"end\"", "behind its last step"),
        (
            "\"either 60%\", \"run 1ms\", \"or 50%\", \"run 2ms\", \"end\"",
            37,
            "more than 100%",
            "what is left",
        ),
        ("\"either 60%\", \"run 1ms\", \"or\", \"or\", \"end\"", 43, "more than 100%", "what is left"),
        ("\"for 10ms\", \"yield\", \"end\", \"run 1ms\"", 12, "takes no time", "run 10us"),
        ("\"repeat 0\", \"run 1ms\", \"end\"", 20, "out of range", "1 to 1000000000"),
        ("\"either 101%\", \"run 1ms\", \"end\"", 20, "not a percentage", "0% to 100%"),
        ("\"run forever\", \"repeat 2\", \"run 1ms\", \"end\"", 27, "never reached", "remove it"),
    ]);
    let nested = format!("{}\"run 1ms\"{}", "\"repeat 2\", ".repeat(9), ", \"end\"".repeat(9));
    refused_programs(&[(&nested, 108, "more than 8 deep", "thread of their own")]);
}

#[test]
fn speeds_are_one_for_each_cpu() {
    refused_values(
        "[machine]",
        &[
            ("speeds = [\"50%\", \"100%\"]", 10, "2 speeds for 1 CPU", "write 1, one for each CPU"),
            ("speeds = \"50%\"", 10, "expected a list of percentages", "[\"100%\", \"50%\"]"),
            ("speeds = [\"0.5%\"]", 11, "1% of full speed", "1% to 100%"),
            ("smt = \"120%\"", 7, "not a percentage", "0% to 100%"),
        ],
    );
}
