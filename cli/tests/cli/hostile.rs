//! Hostile threads on Linux: each attack stops at its budget, and the victim beside it goes on. One workload file each.

use crate::support::Folder;
use serde_json::Value;

/// Runs an attack for longer than it needs on a busy host; the report.
fn attack(name: &str) -> Value {
    let folder = Folder::new(&format!("hostile-{name}"));
    let file = format!("{}/../workloads/hostile-{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).expect("the workload");
    folder.write("w.toml", text.replace("\"500ms\"", "\"1500ms\""));
    let report = folder.run("run w.toml --on linux --report json --record w.msr").ok().json();
    folder.run("replay w.msr").ok();
    report
}

#[track_caller]
fn row<'r>(report: &'r Value, name: &str) -> &'r Value {
    let rows = report["threads"].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name}"))
}

/// The attacker stands still at the end, and the victim has gone on.
#[track_caller]
fn assert_stopped(report: &Value) {
    let notices = report["notices"].as_array().expect("a list");
    assert_eq!(*notices, ["attacker has run out of its budget and stands still"]);
    let victim = row(report, "victim");
    assert!(victim["wakeups"].as_u64() > Some(10), "{victim}");
}

//= SCHED:15.1.1
#[test]
fn a_spin_loop_stops_at_its_ops() {
    let report = attack("spin");
    assert_stopped(&report);
    assert_eq!(row(&report, "attacker")["voluntary_blocks"], 1, "where it ran out");
}

//= SCHED:15.1.1
#[test]
fn a_fork_bomb_stops_at_its_spawns() {
    let report = attack("spawn");
    assert_stopped(&report);
    let refused = row(&report, "attacker")["refusals"].as_u64().expect("a number");
    let bomblets = report["threads"].as_array().expect("rows").iter();
    let lived = bomblets.filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with("bomblet")));
    let lived = lived.filter(|row| row["switches"].as_u64() > Some(0)).count() as u64;
    assert!(refused < 200 && lived > 0, "{refused} of 200 spawns found no room, {lived} instances lived");
}

//= SCHED:15.1.1
#[test]
fn a_flood_of_messages_stops_at_its_channel_operations() {
    let report = attack("flood");
    assert_stopped(&report);
    let attacker = row(&report, "attacker");
    // The last operation that is paid for is its last step: 1,999 calls waited for their answer, and the end did.
    let blocks = attacker["voluntary_blocks"].as_u64().expect("a number");
    assert!((1_999..=2_001).contains(&blocks), "{attacker}");
}

//= SCHED:15.1.1
#[test]
fn an_allocation_bomb_stops_at_its_memory() {
    let report = attack("alloc");
    assert_stopped(&report);
    assert_eq!(row(&report, "attacker")["refusals"], 0, "what it asked for was there until nothing was left");
}

//= SCHED:15.1.1
#[test]
fn a_storm_of_system_calls_stops_at_its_number() {
    let report = attack("syscall");
    assert_stopped(&report);
    assert_eq!(row(&report, "attacker")["voluntary_blocks"], 1, "where it ran out");
}

#[test]
fn budgets_are_refused_where_there_are_none() {
    let folder = Folder::new("hostile-elsewhere");
    let program = "program = [\n  \"run 1ms\",\n  \"syscall\",\n]\n";
    folder.write("w.toml", format!("[[thread]]\nname = \"a\"\n{program}"));
    folder.write("b.toml", format!("[[thread]]\nname = \"a\"\nbudget = {{ syscalls = 5 }}\n{program}"));
    for machine in ["sim", "qemu"] {
        folder.run(&format!("run w.toml --on {machine}")).refused(&["w.toml:5: ", "syscall", "--on linux"]);
        folder.run(&format!("run b.toml --on {machine}")).refused(&["b.toml:1: ", "budget", "--on linux"]);
    }
    folder.run("check w.toml").ok();
}
