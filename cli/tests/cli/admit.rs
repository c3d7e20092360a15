//! `mainspring admit`: the verdict, what it shows of a refusal, and its exit code.

use crate::support::Folder;

/// Two contexts that each fit alone and not together, on a CPU of their own choice.
fn pair(budget: &str, cpus: &str) -> String {
    let context = |name: &str, deadline: &str| {
        format!(
            "[[context]]\nname = \"{name}\"\nbudget = \"{budget}\"\nperiod = \"10ms\"\ndeadline = \"{deadline}\"\n{cpus}\n\
             [[thread]]\nname = \"{name}\"\ncontext = \"{name}\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n"
        )
    };
    format!("[machine]\ncpus = 2\n{}{}", context("a", "4ms"), context("b", "5ms"))
}

const ON_ZERO: &str = "cpus = [0]";

//= EVO:S6.fail-closed
#[test]
fn what_holds_is_admitted_with_the_demand_that_decides_and_the_worst_responses() {
    let folder = Folder::new("admit-yes");
    folder.write("w.toml", pair("2300us", ON_ZERO));
    let text = folder.run("admit w.toml").ok().stdout;
    for word in
        ["w.toml: admitted: every deadline holds", "4.6ms due within 5ms of a common release, 5ms there"]
    {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
    let json = folder.run("admit w.toml --report json").ok().json();
    assert_eq!(json["admitted"], true);
    assert_eq!(json["reason"], "every deadline holds as long as each context stays within its budget");
    let task = |n: usize, field: &str| json["tasks"][n][field].clone();
    assert_eq!((task(0, "name"), task(0, "cpu")), ("a".into(), 0.into()));
    assert_eq!([task(0, "response_ns"), task(1, "response_ns")], [3_600_000, 4_600_000]);
    assert_eq!([task(0, "deadline_ns"), task(1, "deadline_ns")], [4_000_000, 5_000_000]);
    assert_eq!(json["cpus"][0]["deciding"]["demand_ns"], 4_600_000);
    assert_eq!(json["cpus"][0]["utilization_ppm"], 510_000);
    assert_eq!([&json["cpus"][0]["density_ppm"], &json["cpus"][1]["density_ppm"]], [1_085_000, 50_000]);
    assert!(text.contains("density 0.050: at most 1 is enough"), "{text}");
    assert_eq!(json["traces"].as_array().map(Vec::len), Some(0));
}

//= EVO:S6.fail-closed
#[test]
fn a_refusal_shows_the_first_interval_that_does_not_fit_and_a_run_that_misses_there() {
    let folder = Folder::new("admit-no");
    folder.write("w.toml", pair("3ms", ON_ZERO));
    let ran = folder.run("admit w.toml");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for word in [
        "w.toml: refused: CPU 0: 6ms is due within 5ms of a common release",
        "6ms due within 5ms of a common release, 5ms there",
        "CPU 0, everything released together",
        "b is late: due at 5ms, it still wants 1ms",
    ] {
        assert!(ran.stdout.contains(word), "no {word:?} in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("sufficient only"), "{}", ran.stdout);
    assert!(ran.stderr.contains("w.toml: not admitted\nhelp: "), "{}", ran.stderr);

    let ran = folder.run("admit w.toml --report json");
    assert_eq!(ran.code, Some(3));
    let json = ran.json();
    assert_eq!(json["admitted"], false);
    let cpu = &json["cpus"][0];
    assert_eq!((&cpu["admitted"], &cpu["exact"]), (&false.into(), &true.into()));
    let found = &cpu["deciding"];
    assert_eq!(
        [&found["interval_ns"], &found["demand_ns"], &found["supply_ns"]],
        [5_000_000, 6_000_000, 5_000_000]
    );
    let trace = &json["traces"][0];
    assert_eq!((&trace["miss"]["who"], &trace["miss"]["due_ns"]), (&"b".into(), &5_000_000.into()));
    assert_eq!(
        (&trace["schedule"][0]["thread"], &trace["schedule"][1]["thread"]),
        (&"a".into(), &"b".into())
    );
    assert_eq!(json["cpus"][1]["admitted"], true);
}

#[test]
fn contexts_that_may_go_elsewhere_do() {
    let folder = Folder::new("admit-elsewhere");
    folder.write("w.toml", pair("3ms", ""));
    let json = folder.run("admit w.toml --report json").ok().json();
    assert_eq!([&json["tasks"][0]["cpu"], &json["tasks"][1]["cpu"]], [0, 1]);
    let run = folder.run("run w.toml --report json").ok().json();
    assert_eq!([&run["contexts"][0]["cpu"], &run["contexts"][1]["cpu"]], [0, 1], "a run places alike");
}

#[test]
fn a_refusal_that_proves_nothing_says_so() {
    let folder = Folder::new("admit-unproven");
    let third = "[[context]]\nname = \"c\"\nbudget = \"3ms\"\nperiod = \"10ms\"\ndeadline = \"4ms\"\n\
                 [[thread]]\nname = \"c\"\ncontext = \"c\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n";
    folder.write("w.toml", pair("3ms", "") + third);
    let ran = folder.run("admit w.toml");
    assert_eq!(ran.code, Some(3));
    assert!(ran.stdout.contains("(sufficient only)"), "{}", ran.stdout);
    assert_eq!(folder.run("admit w.toml --report json").json()["cpus"][0]["exact"], false);
}

//= EVO:S6.record EVO:S6.fail-closed
#[test]
fn an_island_is_refused_as_a_whole_with_its_reason() {
    let island = |more: &str| {
        format!("[[island]]\nname = \"graph\"\nperiod = \"10ms\"\nnodes = [\"a\", \"b\"]\n{more}\n")
    };
    let folder = Folder::new("admit-island");
    folder.write("w.toml", pair("2ms", ON_ZERO) + &island(""));
    let json = folder.run("admit w.toml --report json").ok().json();
    assert_eq!(json["islands"][0]["admitted"], true);
    assert_eq!(json["tasks"][0]["island"], "graph");

    folder.write("w.toml", pair("3ms", ON_ZERO) + &island(""));
    let ran = folder.run("admit w.toml");
    assert_eq!(ran.code, Some(3));
    assert!(ran.stdout.contains("island graph on CPU 0, everything released together"), "{}", ran.stdout);
    let json = folder.run("admit w.toml --report json").json();
    assert_eq!(json["islands"][0]["admitted"], false);
    assert!(json["tasks"][0]["cpu"].is_null(), "not even the node that would have fitted");
    assert_eq!(json["cpus"][0]["admitted"], true, "nothing is left there");

    folder.write("w.toml", pair("2ms", ON_ZERO) + &island("locks = \"unbounded\""));
    let ran = folder.run("admit w.toml");
    assert_eq!(ran.code, Some(3));
    assert!(ran.stdout.contains("island graph: node a takes a lock"), "{}", ran.stdout);
}

#[test]
fn a_bad_file_is_no_verdict() {
    let folder = Folder::new("admit-bad");
    folder.write("w.toml", "[machine]\ncpus = 0\n");
    folder.run("admit w.toml").refused(&["w.toml", "cpus"]);
    folder.run("admit missing.toml").refused(&["missing.toml"]);
    let ran = folder.run_with_input("admit -", pair("2ms", "").as_bytes()).ok();
    assert!(ran.stdout.starts_with("<stdin>: admitted"), "{}", ran.stdout);
}

#[test]
fn a_workload_without_contexts_is_promised_nothing() {
    let folder = Folder::with_workload("admit-nothing");
    let ran = folder.run("admit w.toml");
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("w.toml: nothing here has a context: nothing is promised"), "{}", ran.stderr);
}

/// `count` contexts, alike, whose deadlines are short: their density is above one.
fn many(count: u64, cpus: u64, used_percent: u64) -> String {
    let period_us = 100_000;
    let budget_ns = period_us * 1_000 * cpus * used_percent / 100 / count;
    let deadline_us = period_us * 99 / 100;
    format!(
        "[machine]\ncpus = {cpus}\nfloor = \"0%\"\nduration = \"1ms\"\n[[context]]\nname = \"c\"\n\
         budget = \"{budget_ns}ns\"\nperiod = \"{period_us}us\"\ndeadline = \"{deadline_us}us\"\n\
         [[thread]]\nname = \"t\"\ncount = {count}\ncontext = \"c\"\nprogram = [\"run {budget_ns}ns\", \"every {period_us}us\"]\n"
    )
}

#[test]
fn thousands_of_contexts_are_judged_and_worst_responses_only_if_asked_for() {
    let folder = Folder::new("admit-many");
    folder.write("w.toml", many(5_000, 1, 98));
    let text = folder.run("admit w.toml").ok().stdout;
    assert!(text.contains("(the worst responses of so many take long: --responses computes them)"), "{text}");
    let json = folder.run("admit w.toml --report json").ok().json();
    assert_eq!((&json["responses_left_out"], &json["tasks"][7]["response_ns"]), (&true.into(), &().into()));
    folder.write("few.toml", many(100, 1, 98));
    let json = folder.run("admit few.toml --report json --responses").ok().json();
    assert_eq!(json["responses_left_out"], false);
    assert_eq!(json["tasks"][0]["response_ns"], 98_000_000, "all come together, and one is last");
    folder.write("over.toml", many(200, 1, 100));
    let ran = folder.run("admit over.toml");
    assert_eq!(ran.code, Some(3));
    assert!(ran.stdout.contains("100ms due within 99ms of a common release, 99ms there"), "{}", ran.stdout);
}

#[test]
fn two_cpus_that_are_asked_for_more_than_both_are_refused_as_proof() {
    let folder = Folder::new("admit-two");
    folder.write("w.toml", many(5, 2, 98).replace("0%", "5%"));
    let ran = folder.run("admit w.toml --report json");
    assert_eq!(ran.code, Some(3));
    let json = ran.json();
    let refused: Vec<_> =
        json["cpus"].as_array().into_iter().flatten().filter(|cpu| cpu["admitted"] == false).collect();
    assert!(!refused.is_empty() && refused.iter().all(|cpu| cpu["exact"] == true), "{json}");
    assert!(!folder.run("admit w.toml").stdout.contains("sufficient only"));
}

#[test]
fn a_program_that_needs_more_than_its_budget_is_refused_with_its_line() {
    let folder = Folder::new("admit-program");
    folder.write("w.toml", pair("2300us", ON_ZERO).replacen("run 1ms", "run 2500us", 1));
    let ran = folder.run("admit w.toml");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let why =
        "refused: line 12: a runs at least 2.5ms in each 10ms, and its context grants 2.3ms in each 10ms";
    assert!(ran.stdout.contains(why), "{}", ran.stdout);
    let json = folder.run("admit w.toml --report json").json();
    assert_eq!(json["programs"][0]["line"], 12);
    assert_eq!(json["cpus"][0]["admitted"], true, "the budgets themselves fit");
}
