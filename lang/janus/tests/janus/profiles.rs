//! What a profile allows.

use super::{Lines, program, run_on};
use mainspring::{Budget, Caps, Config, Profile, Runtime};
use mainspring_janus::{Code, Diagnostic, compile};
use mainspring_qtjir::Quiet;

fn mistake(source: &str) -> Diagnostic {
    compile(source).unwrap_err().0[0].clone()
}

//= SCHED:10.2.1
//= SCHED:10.1
#[test]
fn in_core_the_words_of_tasks_are_syntax_errors() {
    for (body, word) in [
        ("nursery { }", "nursery"),
        ("spawn f()", "spawn"),
        ("let x = spawn f()", "spawn"),
        ("yield", "yield"),
        ("let x = await f()", "await"),
    ] {
        let source = format!("{{.profile: core.}}\nfn f() {{ }}\nfn main() {{ {body} }}");
        let mistake = mistake(&source);
        assert_eq!(mistake.code, Code::Syntax, "{body}");
        assert!(
            mistake.message.starts_with(&format!("`{word}` is not part of the core profile")),
            "{mistake}"
        );
        assert_eq!(mistake.pos.line, 3);
    }
    let caps = mistake("{.profile: core.}\nfn main(cap: CapSpawn) { }");
    assert_eq!(caps.code, Code::NotPermitted);
}

//= SCHED:10.2.2
//= SCHED:10.1
#[test]
fn in_service_spawn_needs_no_capability() {
    let source = "{.profile: service.}\nfn f() -> i64 { return 4 }\nfn main() -> i64 { var x = 0\n nursery { x = await spawn f() }\n return x }";
    assert_eq!(super::result(source), 4);
    // Without a header a file is of the service profile.
    assert_eq!(compile(source).unwrap(), compile(&source.replace("{.profile: service.}", "")).unwrap());
}

fn sovereign(caps: Caps) -> Runtime {
    Config::new(Profile::Sovereign).workers(1).root_caps(caps).build().unwrap()
}

fn child() -> Budget {
    Budget { ops: 10_000, memory: 1 << 16, spawn_count: 10, channel_ops: 10, syscalls: 10 }
}

//= SCHED:10.2.4
//= SCHED:1.1.2
//= SCHED:15.1.2
//= SCHED:10.1
#[test]
fn in_sovereign_spawn_needs_a_capability_in_the_source_and_in_the_task() {
    let without = "{.profile: sovereign.}\nfn f() -> i64 { return 4 }\nfn main() { nursery { spawn f() } }";
    let refused = mistake(without);
    assert_eq!((refused.code, refused.pos.to_string().as_str()), (Code::NotPermitted, "3:23"));
    assert_eq!(refused.help.as_deref(), Some("take one as a parameter, as `cap: CapSpawn`"));
    // No other way of starting a task does without.
    let by_async = without.replace("fn f()", "async fn f()").replace("spawn f()", "await f()");
    assert_eq!(mistake(&by_async).code, Code::NotPermitted);
    let in_block = without.replace("spawn f()", "nursery { spawn f() }");
    assert_eq!(mistake(&in_block).code, Code::NotPermitted);

    let with = "{.profile: sovereign.}
fn f() -> i64 { return 4 }
fn main(cap: CapSpawn) -> i64 { var x = 0
    nursery { x = await spawn f() }
    return x }";
    let (with, all) = (program(with), Caps::root(10, child(), Budget::MAX, 10, 10));
    assert_eq!(run_on(&sovereign(all), &with, &[0], &Quiet).unwrap().value, Some(4));
    // The word in the source is not enough: the task must hold what the word stands for.
    let fault = run_on(&sovereign(all.without_spawn()), &with, &[0], &Quiet).unwrap_err();
    assert!(fault.to_string().contains("CapSpawn"), "{fault}");
}

/// What a new slice holds was granted by nobody, and neither was what never came out of a channel.
#[test]
fn a_capability_is_not_made_out_of_nothing() {
    let forged = |body: &str| {
        format!(
            "{{.profile: sovereign.}}\nfn f() {{ }}\nfn g(cap: CapSpawn) {{ nursery {{ spawn f() }} }}\nfn main() {{ {body} }}"
        )
    };
    for body in [
        "g(make([]CapSpawn, 1)[0])",
        "let all = make([][]CapSpawn, 1)\n g(all[0][0])",
        "let c = make(chan CapSpawn, 1)\n c.close()\n g(c.recv())",
    ] {
        let refused = mistake(&forged(body));
        assert!(matches!(refused.code, Code::NotPermitted | Code::Unhandled), "{body}: {refused}");
    }
    let list = "{.profile: sovereign.}\nfn f(cap: CapBudget) { let all = [cap] }";
    assert_eq!(mistake(list).message, "a slice does not hold a CapBudget");
}

//= SCHED:10.2.4
#[test]
fn in_sovereign_a_budget_of_ones_own_needs_a_capability() {
    let source = "{.profile: sovereign.}\nfn f() -> i64 { return 4 }\nfn main(cap: CapSpawn) { nursery { spawn f() with { ops: 9 } } }";
    assert_eq!(mistake(source).code, Code::NotPermitted);
    let source = "{.profile: sovereign.}\nfn main(cap: CapSpawn) { recharge(100) }";
    assert_eq!(mistake(source).code, Code::NotPermitted);
    let source = "{.profile: sovereign.}
fn f() -> i64 { return 4 }
fn main(cap: CapSpawn, own: CapBudget) -> i64 { var x = 0
    nursery { x = await spawn f() with { ops: 9, memory: 0, channel_ops: 0, syscalls: 0 } }
    return x }";
    let (with, all) = (program(source), Caps::root(10, child(), Budget::MAX, 10, 10));
    assert_eq!(run_on(&sovereign(all), &with, &[0, 0], &Quiet).unwrap().value, Some(4));
    assert!(run_on(&sovereign(all.without_budget()), &with, &[0, 0], &Quiet).is_err());
}

//= SCHED:1.1.2
#[test]
fn a_task_block_takes_the_capability_that_it_uses() {
    let source = "{.profile: sovereign.}
fn f() { print(\"f\") }
fn main(cap: CapSpawn) {
    nursery { spawn { nursery { spawn f() } } }
}";
    let (program, lines) = (program(source), Lines::default());
    run_on(&sovereign(Caps::root(10, child(), Budget::MAX, 10, 10)), &program, &[0], &lines).unwrap();
    assert_eq!(lines.sorted(), ["f"]);
}

//= SCHED:10.2.3
//= SCHED:10.1
#[test]
fn in_cluster_a_supervisor_recharges() {
    let source = "{.profile: cluster.}
fn work(n: i64) -> i64 { var left = n\n while left > 0 { left = left - 1 }\n return n }
fn main() -> i64 { var x = 0
    nursery {
        let h = spawn work(3000) with { ops: 100 }
        recharge(h, 4000)
        x = await h
    } catch { x = -1 }
    return x }";
    let cluster = Config::new(Profile::Cluster).workers(1).build().unwrap();
    assert_eq!(run_on(&cluster, &program(source), &[], &Quiet).unwrap().value, Some(3000));
    let without = source.replace("        recharge(h, 4000)\n", "");
    assert_eq!(run_on(&cluster, &program(&without), &[], &Quiet).unwrap().value, Some(-1_i64 as u64));
    assert_eq!(mistake(&source.replace("cluster", "service")).code, Code::NotPermitted);
}

//= SCHED:10.2.3
#[test]
fn an_actors_mailbox_is_a_channel_whose_use_is_charged() {
    let source = "{.profile: cluster.}
fn counter(mailbox: chan i64, replies: chan i64) -> ! {
    var sum = 0
    while true {
        let message = mailbox.recv() catch -1
        if message < 0 { break }
        sum = sum + message
    }
    try replies.send(sum)
}
fn main() -> i64 { var x = 0
    let mailbox = make(chan i64, 4)
    let replies = make(chan i64, 1)
    nursery {
        spawn counter(mailbox, replies) with { channel_ops: LIMIT }
        for i in 0..10 { if true { mailbox.send(i) catch_nothing } }
        mailbox.close()
        x = replies.recv() catch -2
    } catch |e| { if e == error.BudgetExhausted { x = -3 } }
    return x }"
        .replace("mailbox.send(i) catch_nothing", "post(mailbox, i)");
    let source = source.replace("fn counter", "fn post(mailbox: chan i64, i: i64) {\n    let sent = deliver(mailbox, i) catch 1\n}\nfn deliver(mailbox: chan i64, i: i64) -> !i64 { try mailbox.send(i)\n return 0 }\nfn counter");
    let cluster = Config::new(Profile::Cluster).workers(1).build().unwrap();
    // Eleven receives, the last of which finds the mailbox closed, and a reply.
    let enough = program(&source.replace("LIMIT", "12"));
    assert_eq!(run_on(&cluster, &enough, &[], &Quiet).unwrap().value, Some(45));
    let too_few = program(&source.replace("LIMIT", "5"));
    assert_eq!(run_on(&cluster, &too_few, &[], &Quiet).unwrap().value, Some(-3_i64 as u64));
}

//= SCHED:4.3.1
//= SCHED:4.1.1a
#[test]
fn the_profile_decides_how_often_a_loop_looks_up() {
    let body = "fn main() -> i64 { var left = 10240\n while left > 0 { left = left - 1 }\n return left }";
    for (header, looks) in [
        ("{.profile: service.}", 10),
        ("{.profile: cluster.}", 20),
        ("{.profile: sovereign.}", 10),
        ("{.profile: sovereign, interval: 2048.}", 5),
    ] {
        let program = program(&format!("{header}\n{body}"));
        let ended = program.run_alone("main", &[], mainspring_qtjir::Limits::MAX, &Quiet).unwrap();
        assert_eq!((ended.ops, ended.looks), (10240, looks), "{header}");
    }
    assert_eq!(mistake(&format!("{{.profile: service, interval: 5.}}\n{body}")).code, Code::NotPermitted);
}
