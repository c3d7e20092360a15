//! What files are told whose contexts, endpoints, leases, islands, rings, policy or operations are wrong.

use mainspring_workload::{Errors, parse};

fn errors(text: &str) -> Errors {
    match parse("w.toml", text) {
        Ok(workload) => panic!("accepted:\n{text}\n{workload:?}"),
        Err(errors) => errors,
    }
}

/// The file has one error, at `place`, with this message and help (both by a part).
fn refused(text: &str, place: (usize, usize), message: &str, help: &str) {
    let errors = errors(text);
    let error = errors.iter().next().expect("errors are never empty");
    assert_eq!(errors.count(), 1, "{text}\n{errors}");
    assert_eq!((error.line(), error.column()), place, "{text}\n{errors}");
    assert!(error.problem().to_string().contains(message), "{text}\n{errors}");
    assert!(error.help().contains(help), "{text}\n{errors}");
}

/// Each row: a line of a table whose header is line 1, its column, message and help; `rest` completes the table.
fn refused_lines(header: &str, rest: &str, rows: &[(&str, usize, &str, &str)]) {
    for (line, column, message, help) in rows {
        refused(&format!("{header}\n{line}\n{rest}\n{OTHERS}"), (2, *column), message, help);
    }
}

const OTHERS: &str = r#"
    [machine]
    cpus = 2
    [[context]]
    name = "audio"
    budget = "1ms"
    period = "10ms"
    cpus = [0]
    [[context]]
    name = "loose"
    budget = "1ms"
    period = "10ms"
    [[context]]
    name = "each"
    budget = "1ms"
    period = "10ms"
    [[session]]
    name = "alice"
    [[ring]]
    name = "disk"
    owner = "other"
    [[lease]]
    name = "quiet"
    cpus = [1]
    thread = "other"
    [[island]]
    name = "graph"
    period = "10ms"
    nodes = ["audio"]
    [[thread]]
    name = "other"
    context = "audio"
    program = ["run 1ms", "recv orders"]
    [[thread]]
    name = "many"
    count = 3
    context = "each"
    program = ["run 1ms"]
"#;

#[test]
fn context_values_have_limits() {
    let rest = "name = \"c\"\nperiod = \"10ms\"";
    refused_lines(
        "[[context]]",
        rest,
        &[
            ("budget = \"0\"", 11, "budget 0ns is too short", "choose 1us to 3600s"),
            ("budget = \"11ms\"", 10, "the budget 11ms is longer than the deadline 10ms", "10ms or less"),
            (
                "deadline = \"11ms\"\nbudget = \"1ms\"",
                12,
                "the deadline 11ms is longer than the period 10ms",
                "leave",
            ),
        ],
    );
    let rest = "name = \"c\"\nbudget = \"1ms\"\nperiod = \"10ms\"";
    refused_lines(
        "[[context]]",
        rest,
        &[
            ("dedline = \"5ms\"", 1, "unknown key \"dedline\" in [[context]]", "\"deadline\""),
            ("priority = 65536", 12, "priority 65536 is out of range", "0 to 65535"),
            ("criticality = 256", 15, "criticality 256 is out of range", "0 to 255"),
            ("refills = 0", 11, "refills 0 is out of range", "1 to 16"),
            ("refills = 17", 11, "refills 17 is out of range", "1 to 16"),
            ("depth = 9", 9, "depth 9 is out of range", "1 to 8"),
            ("overrun = \"throtle\"", 11, "unknown overrun \"throtle\"", "did you mean \"throttle\"?"),
            ("cpus = [2]", 9, "CPU 2 does not exist", "cpus = 3"),
            ("cpus = []", 8, "the CPU mask is empty", "at least one"),
            ("timeout_endpoint = \"order\"", 21, "no endpoint is named \"order\"", "\"orders\""),
            ("process = \"othr\"", 12, "no process is named \"othr\"", "did you mean \"other\"?"),
        ],
    );
}

#[test]
fn a_timeout_endpoint_has_a_receiver() {
    let context =
        "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"1ms\"\ntimeout_endpoint = \"alarm\"\n";
    let text = format!("{context}[[endpoint]]\nname = \"alarm\"\n{OTHERS}");
    refused(&text, (5, 21), "nobody receives on endpoint \"alarm\"", "recv alarm");
}

#[test]
fn a_budget_must_fit_the_deadline_whatever_their_order() {
    let text = "[[context]]\nbudget = \"6ms\"\ndeadline = \"5ms\"\nperiod = \"10ms\"\nname = \"c\"";
    refused(text, (2, 10), "the budget 6ms is longer than the deadline 5ms", "5ms or less");
}

#[test]
fn the_floor_is_at_most_half() {
    refused("[machine]\nfloor = \"50.1%\"", (2, 9), "more than half", "0% to 50%");
    refused("[machine]\nfloor = \"5\"", (2, 9), "not a percentage", "0% to 100%");
    refused("[machine]\nfloor = 5", (2, 9), "expected a percentage in quotes", "\"0.1%\"");
}

#[test]
fn tables_need_their_names_and_keys() {
    for (header, key) in [
        ("[[context]]\nname = \"c\"\nbudget = \"1ms\"", "period"),
        ("[[context]]\nname = \"c\"\nperiod = \"1ms\"", "budget"),
        ("[[context]]\nbudget = \"1ms\"\nperiod = \"1ms\"", "name"),
        ("[[endpoint]]", "name"),
        ("[[session]]", "name"),
        ("[[ring]]\nname = \"r\"", "owner"),
        ("[[lease]]\nname = \"l\"\ncpus = [0]", "thread"),
        ("[[lease]]\nname = \"l\"\nthread = \"other\"", "cpus"),
        ("[[island]]\nname = \"i\"\nperiod = \"1ms\"", "nodes"),
        ("[[island]]\nname = \"i\"\nnodes = [\"loose\"]", "period"),
        ("[[at]]\ndo = \"revoke audio\"", "time"),
        ("[[at]]\ntime = \"1ms\"", "do"),
        ("[policy]", "service"),
    ] {
        let table = header.lines().next().expect("a header");
        refused(
            &format!("{header}\n{OTHERS}"),
            (1, 1),
            &format!("{table} has no \"{key}\""),
            &format!("add {key} = "),
        );
    }
}

#[test]
fn names_are_unique_within_their_kind() {
    for (what, rest) in [
        ("a session", "[[session]]\nname = \"alice\"\n"),
        ("a context", "[[context]]\nname = \"alice\"\nbudget = \"1ms\"\nperiod = \"1ms\"\n"),
        ("an endpoint", "[[endpoint]]\nname = \"alice\"\n"),
    ] {
        let message = format!("{what} named \"alice\" exists already (line 2)");
        let line = rest.lines().count() + 2;
        refused(&[rest, rest].concat(), (line, 9), &message, "its own name");
    }
    let text = format!("[[context]]\nname = \"each.2\"\nbudget = \"1ms\"\nperiod = \"1ms\"\n{OTHERS}");
    refused(&text, (2, 9), "\"each.2\" is also an instance of context \"each\"", "another name");
    let text = format!("[[context]]\nname = \"each.3\"\nbudget = \"1ms\"\nperiod = \"1ms\"\n{OTHERS}");
    assert!(parse("w.toml", &text).is_ok());
}

#[test]
fn tables_must_be_lists_and_known() {
    refused("[context]\nname = \"c\"", (1, 1), "context tables form a list", "[[context]]");
    refused("[[policy]]\nservice = \"c\"", (1, 1), "\"policy\" must be one table", "[policy]");
    refused("[[contex]]\nname = \"c\"", (1, 3), "unknown table \"contex\"", "did you mean \"context\"?");
    refused("[machine]\n[[zebra]]", (2, 3), "unknown table \"zebra\"", "[[island]]");
}

#[test]
fn a_context_has_one_user() {
    let thread = |name: &str, context: &str, more: &str| {
        format!("[[thread]]\nname = \"{name}\"\ncontext = \"{context}\"\n{more}program = [\"run 1ms\"]\n")
    };
    let text = thread("me", "loos", "") + OTHERS;
    refused(&text, (3, 12), "no context is named \"loos\"", "did you mean \"loose\"?");
    let text = OTHERS.to_owned() + &thread("me", "audio", "");
    let line = OTHERS.lines().count() + 3;
    refused(
        &text,
        (line, 12),
        "context \"audio\" is the one of thread \"other\" already",
        "its own [[context]]",
    );
    let text = thread("me", "loose", "").replace("loose", "boxed")
        + "[[context]]\nname = \"boxed\"\nbudget = \"1ms\"\nperiod = \"1ms\"\nprocess = \"me\"\n"
        + OTHERS;
    refused(&text, (9, 11), "is the one of thread \"me\"", "a [[context]] of its own");
    let text = format!("[[endpoint]]\nname = \"orders\"\ncontext = \"audio\"\n{OTHERS}");
    refused(&text, (3, 11), "is the one of thread \"other\"", "a [[context]] of its own");
    let text = OTHERS.replace("context = \"audio\"\n", "context = \"audio\"\n    cpus = [1]\n");
    let line = text.lines().position(|line| line.contains("context = \"audio\"")).expect("a line") + 1;
    refused(&text, (line, 16), "may use no CPU of its context \"audio\"", "overlap");
    let text = thread("me", "loose", "session = \"alise\"\n") + OTHERS;
    refused(&text, (4, 12), "no session is named \"alise\"", "did you mean \"alice\"?");
}

#[test]
fn endpoint_values_have_limits() {
    refused_lines(
        "[[endpoint]]",
        "name = \"orders\"",
        &[
            ("window = 17", 10, "window 17 is out of range", "1 to 16"),
            ("donation = 1", 12, "expected true or false", "true or false"),
            ("context = \"lose\"", 12, "no context is named \"lose\"", "did you mean \"loose\"?"),
            ("donatio = true", 1, "unknown key \"donatio\" in [[endpoint]]", "did you mean \"donation\"?"),
        ],
    );
}

#[test]
fn lease_values_must_fit_together() {
    refused_lines(
        "[[lease]]",
        "name = \"l\"\ncpus = [1]",
        &[
            ("thread = \"othr\"", 11, "no thread is named \"othr\"", "did you mean \"other\"?"),
            (
                "thread = \"many\"",
                11,
                "one thread is needed here, and \"many\" stands for 3",
                "\"many.0\" to \"many.2\"",
            ),
            ("thread = \"many.3\"", 11, "no thread instance is named \"many.3\"", "\"many.2\""),
        ],
    );
    refused_lines(
        "[[lease]]",
        "name = \"l\"\ncpus = [1]\nthread = \"many.1\"",
        &[
            ("mode = \"sqpoll\"", 8, "unknown mode \"sqpoll\"", "\"compute\" or \"poller\""),
            ("ring = \"disk\"", 8, "only a lease of mode \"kernel-sqpoll\" has a ring", "remove `ring`"),
            ("account = \"each\"", 12, "one context is needed here, and \"each\" stands for 3", "\"each.0\""),
            ("account = \"legder\"", 12, "no context is named \"legder\"", "[[context]]"),
            ("max_revocation = \"2s\"", 19, "max_revocation 2s is too long", "choose 1us to 1s"),
            ("lifetime = \"0\"", 13, "lifetime 0ns is too short", "choose 1us"),
            ("start = \"stap\"", 9, "unknown start \"stap\"", "did you mean \"step\"?"),
            ("nohz = \"yes\"", 8, "expected true or false", "true or false"),
        ],
    );
    let lease = |ring: &str| {
        format!(
            "[[lease]]\nname = \"l\"\ncpus = [1]\nthread = \"other\"\nmode = \"kernel-sqpoll\"\n{ring}\n{OTHERS}"
        )
    };
    refused(&lease(""), (1, 1), "needs a ring to poll", "ring = ");
    refused(&lease("ring = \"disk\""), (6, 8), "ring \"disk\" is not made for a poller", "sqpoll = true");
    refused(&lease("ring = \"disc\""), (6, 9), "no ring is named \"disc\"", "did you mean \"disk\"?");
}

#[test]
fn island_values_must_fit_together() {
    refused_lines(
        "[[island]]",
        "name = \"i\"\nperiod = \"10ms\"",
        &[
            ("nodes = []", 9, "the island has no nodes", "nodes = ["),
            ("nodes = \"loose\"", 9, "expected a list of names, found string", "[\"one\", \"two\"]"),
            ("nodes = [\"loose\", \"lose\"]", 20, "no context is named \"lose\"", "did you mean \"loose\"?"),
            (
                "nodes = [\"loose\", \"loose\"]",
                20,
                "\"loose\" is in island \"i\" already",
                "in one island, once",
            ),
            ("nodes = [\"each\", \"each.1\"]", 19, "\"each.1\" is in island \"i\" already", "once"),
            ("nodes = [\"each.3\"]", 11, "no context instance is named \"each.3\"", "\"each.2\""),
        ],
    );
    refused_lines(
        "[[island]]",
        "name = \"i\"\nperiod = \"10ms\"\nnodes = [\"loose\"]",
        &[
            ("deadline = \"20ms\"", 12, "the deadline 20ms is longer than the period 10ms", "10ms or less"),
            ("locks = \"some\"", 9, "unknown locks \"some\"", "\"none\" or \"bounded\""),
            ("calls = \"donatin\"", 9, "unknown calls \"donatin\"", "did you mean \"donating\"?"),
            ("rings = [\"disc\"]", 11, "no ring is named \"disc\"", "did you mean \"disk\"?"),
            ("memory = [3]", 11, "expected a table, found integer", "bytes = 65536"),
            ("memory = [{ name = \"b\" }]", 11, "the memory has no \"bytes\"", "add bytes = 65536"),
            ("memory = [{ name = \"b\", bytes = 0 }]", 33, "bytes 0 is out of range", "1 or more"),
            (
                "memory = [{ name = \"b\", bytes = 1, residency = \"swap\" }]",
                48,
                "unknown residency \"swap\"",
                "\"pinned\"",
            ),
        ],
    );
    let text = OTHERS.to_owned() + "[[island]]\nname = \"i\"\nperiod = \"10ms\"\nnodes = [\"audio\"]\n";
    refused(&text, (OTHERS.lines().count() + 4, 11), "\"audio\" is in island \"graph\" already", "once");
}

#[test]
fn ring_values_have_limits() {
    refused_lines(
        "[[ring]]",
        "name = \"r\"\nowner = \"other\"",
        &[
            ("entries = 100", 11, "100 entries are no power of two", "choose 128"),
            ("entries = 8192", 11, "entries 8192 is out of range", "choose 2 to 4096"),
            ("cost = \"0\"", 9, "cost 0ns is too short", "choose 1ns to 1s"),
            ("idle_spin = \"2s\"", 14, "idle_spin 2s is too long", "choose 0ns to 1s"),
        ],
    );
    refused_lines(
        "[[ring]]",
        "name = \"r\"",
        &[("owner = \"many\"", 10, "one thread is needed here", "\"many.0\"")],
    );
}

#[test]
fn policy_values_have_limits() {
    refused_lines(
        "[policy]",
        "service = \"other\"",
        &[
            ("recovery = \"many\"", 13, "one thread is needed here", "\"many.0\""),
            ("epoch = 0", 9, "epoch 0 is out of range", "choose 1 or more"),
            ("timeout = \"0\"", 12, "timeout 0ns is too short", "choose 1us"),
            ("servise = 1", 1, "unknown key \"servise\" in [policy]", "did you mean \"service\"?"),
        ],
    );
}

#[test]
fn operations_say_what_they_take() {
    let rows = [
        ("revok audio", 7, "unknown operation \"revok audio\"", "did you mean \"revoke audio\"?"),
        ("frobnicate", 7, "unknown operation", "the operations are revoke, adjust, logout"),
        ("revoke", 7, "operation \"revoke\" lacks an argument", "\"revoke CONTEXT\""),
        ("revoke audio now", 20, "operation \"revoke\" does not take \"now\"", "\"revoke CONTEXT\""),
        ("revoke audo", 14, "no context is named \"audo\"", "did you mean \"audio\"?"),
        ("revoke audio.0", 14, "no context instance is named \"audio.0\"", "\"audio\" is one context, since"),
        ("revoke each.3", 14, "no context instance is named \"each.3\"", "\"each.2\""),
        ("adjust audio budget 2ms", 7, "operation \"adjust\" lacks an argument", "period 10ms"),
        ("adjust audio budget 2ms budget 2ms", 31, "\"budget\" is one too many", "period 10ms"),
        ("adjust audio budgt 2ms period 4ms", 20, "does not take \"budgt\"", "did you mean \"budget\"?"),
        (
            "adjust audio budget 5ms period 4ms",
            6,
            "the budget 5ms is longer than the period 4ms",
            "4ms or less",
        ),
        ("adjust audio budget 5 period 4ms", 27, "no unit", "5ms"),
        ("logout bob", 14, "no session is named \"bob\"", "[[session]]"),
        ("exit othr", 12, "no thread is named \"othr\"", "did you mean \"other\"?"),
        ("revoke-lease quit", 20, "no lease is named \"quit\"", "did you mean \"quiet\"?"),
        ("leave grap", 13, "no island is named \"grap\"", "did you mean \"graph\"?"),
        ("close order", 13, "no endpoint is named \"order\"", "did you mean \"orders\"?"),
        ("policy dies", 6, "the file has no policy service", "add [policy]"),
        ("policy dyes", 14, "unknown operation \"policy dyes\"", "did you mean \"policy dies\"?"),
        ("policy weight other 0 epoch 1", 27, "weight 0 is out of range", "1 to 65535"),
        ("policy weight other 1 epoc 1", 29, "does not take \"epoc\"", "did you mean \"epoch\"?"),
        ("policy weight other 1", 14, "operation \"weight\" lacks an argument", "epoch 2"),
        ("policy weight other 1 epoch x", 35, "epoch x is out of range", "choose 0 or more"),
        ("policy profile other batsch epoch 1", 28, "does not take \"batsch\"", "did you mean \"batch\"?"),
        ("", 6, "the operation is empty", "\"revoke NAME\""),
    ];
    for (text, column, message, help) in rows {
        refused(&format!("[[at]]\ndo = \"{text}\"\ntime = \"1ms\"\n{OTHERS}"), (2, column), message, help);
    }
    refused_lines(
        "[[at]]",
        "do = \"revoke audio\"",
        &[
            ("time = \"61m\"", 9, "time 3660s is too long", "choose 0ns to 3600s"),
            ("time = \"1ms..2ms\"", 9, "time takes one duration", "\"20ms\""),
        ],
    );
}

#[test]
fn steps_say_what_they_take() {
    let rows = [
        ("bind", 24, "step \"bind\" lacks an argument", "\"bind CONTEXT\""),
        ("bind audo", 29, "no context is named \"audo\"", "did you mean \"audio\"?"),
        (
            "bind each",
            29,
            "one context is needed here, and \"each\" stands for 3",
            "\"each.0\" to \"each.2\"",
        ),
        ("drain each", 30, "one context is needed here", "\"each.0\""),
        ("lease quit", 30, "no lease is named \"quit\"", "did you mean \"quiet\"?"),
        ("release quit", 32, "no lease is named \"quit\"", "did you mean \"quiet\"?"),
        ("poll disc", 29, "no ring is named \"disc\"", "did you mean \"disk\"?"),
        ("submit disk", 24, "step \"submit\" lacks an argument", "\"submit RING 4\""),
        ("submit disk 0", 36, "the number of entries 0 is out of range", "choose 1 to 4096"),
        ("submit disk four", 36, "the number of entries four is out of range", "choose 1 to 4096"),
        ("submit disk 4 timeout 1ms", 38, "step \"submit\" does not take \"timeout\"", "deadline 2ms"),
        ("submit disk 4 deadline 0", 47, "deadline 0ns is too short", "choose 1ns or more"),
        ("complete disk 4 drop", 40, "step \"complete\" does not take \"drop\"", "timeout 5ms"),
        ("call orders needs", 36, "\"needs\" lacks its value", "needs 300us"),
        ("call orders drop late", 41, "\"late\" is one too many", "drop"),
        ("call orders 5ms timeout 5ms", 40, "\"timeout\" is one too many", "timeout 5ms"),
        (
            "call orders dedline 5ms",
            36,
            "step \"call\" does not take \"dedline\"",
            "did you mean \"deadline\"?",
        ),
        ("call orders 5", 36, "no unit", "5ms"),
        ("call orders needs 1ms..2ms", 42, "needs takes one duration", "\"20ms\""),
        ("throw", 23, "receives nothing", "\"recv ENDPOINT\""),
    ];
    for (step, column, message, help) in rows {
        let text = format!("[[thread]]\nname = \"me\"\nprogram = [\"run 1ms\", \"{step}\"]\n{OTHERS}");
        refused(&text, (3, column), message, help);
    }
}

#[test]
fn one_mistake_is_told_once() {
    // Each would have consequences: names that are not known, an endpoint that a step may name, instances that
    // cannot be counted.
    for text in [
        "[[context]]\nname = \"a b\"\nbudget = \"1ms\"\nperiod = \"1ms\"\n\
         [[thread]]\nname = \"t\"\ncontext = \"c\"\nprogram = [\"run 1ms\", \"revoke d\"]\n\
         [[island]]\nname = \"i\"\nperiod = \"1ms\"\nnodes = [\"c\"]\n",
        "[[thread]]\nname = \"t\"\nprogram = [\"run 1ms\", \"recv\"]\n\
         [[at]]\ntime = \"1ms\"\ndo = \"close e\"\n\
         [[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"1ms\"\ntimeout_endpoint = \"e\"\n",
        "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"1ms\"\n\
         [[thread]]\nname = \"t\"\ncount = 0\ncontext = \"c\"\nprogram = [\"run 1ms\", \"revoke c.7\"]\n\
         [[lease]]\nname = \"l\"\ncpus = [0]\nthread = \"t\"\n",
        "[context]\nname = \"c\"\n[[thread]]\nname = \"t\"\ncontext = \"c\"\nprogram = [\"run 1ms\"]\n",
        "[[ring]]\nname = \"r\"\nowner = \"t\"\nentries = 3\n\
         [[lease]]\nname = \"l\"\ncpus = [0]\nthread = \"t\"\nmode = \"kernel-sqpoll\"\nring = \"r\"\n\
         [[thread]]\nname = \"t\"\nprogram = [\"run 1ms\"]\n",
        "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"1\"\ndeadline = \"1ms\"\n",
        "[policy]\n[[at]]\ntime = \"1ms\"\ndo = \"policy dies\"\n",
    ] {
        let errors = errors(text);
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
    }
}

#[test]
fn a_wait_that_may_be_refused_at_once_does_not_make_time_pass() {
    let file = |program: &str, more: &str| {
        format!(
            "[[thread]]\nname = \"me\"\nprogram = [{program}]\n\
             [[thread]]\nname = \"server\"\nprogram = [\"recv svc\", \"run 1ms\", \"reply\"]\n\
             [[ring]]\nname = \"disk\"\nowner = \"me\"\n{more}"
        )
    };
    let context = "[[context]]\nname = \"c\"\nbudget = \"1ms\"\nperiod = \"1ms\"\n";
    let closes = "[[at]]\ntime = \"1ms\"\ndo = \"close svc\"\n";
    for (program, more) in [
        ("\"call svc\"", context),
        ("\"call svc\"", closes),
        ("\"call svc needs 1ms\"", ""),
        ("\"call svc deadline 1ms\"", ""),
        ("\"bind c\", \"unbind\", \"revoke c\", \"drain c\"", context),
        ("\"submit disk 1\"", ""),
        ("\"submit disk 1\", \"complete disk 1 timeout 0\"", ""),
    ] {
        refused(&file(program, more), (3, 12), "time would stand still", "add a run step");
    }
    for program in
        ["\"call svc\"", "\"call svc 1ms\"", "\"submit disk 1\", \"complete disk 1\"", "\"poll disk\""]
    {
        let read = parse("w.toml", &file(program, ""));
        assert!(read.is_ok(), "{program}: {read:?}");
    }
}

#[test]
fn the_number_of_tables_is_bounded() {
    let sessions: String = (0..=10_000).map(|n| format!("[[session]]\nname = \"s{n}\"\n")).collect();
    refused(&sessions, (20_001, 1), "more than 10000 [[session]] tables", "fewer");
    let operations = "[[at]]\ntime = \"1ms\"\ndo = \"exit t\"\n".repeat(10_001);
    let text = format!("{operations}[[thread]]\nname = \"t\"\nprogram = [\"run 1ms\"]\n");
    refused(&text, (30_001, 1), "more than 10000 [[at]] tables", "fewer");
}
