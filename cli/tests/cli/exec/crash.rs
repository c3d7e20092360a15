//! Kill -9 of the supervisor, and of its guardian too.

use super::{Host, eventually, is_alive, signal};

/// A program with children. One child is in a session of its own and ignores what it can.
const TREE: &str = "(trap '' TERM HUP INT; setsid sleep 100 & wait) & sleep 100 & echo $$ $!; wait";

fn numbers(line: &str) -> Vec<i32> {
    line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

//= OWN:exec
#[test]
fn killing_the_supervisor_leaves_nothing_behind() {
    let host = Host::new("kill-supervisor");
    let running = host.start(&[], TREE);
    let mut tree = numbers(&running.first);
    let entry = host.entry();
    // All of them, by what `ps` says.
    let listed = host.run(&["ps", "--json"]).ok().json();
    tree.extend(
        listed[0]["processes"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|pid| pid.as_i64())
            .map(|pid| pid as i32),
    );
    assert!(tree.len() >= 5, "{listed}");
    running.signal("KILL");
    running.reap();
    eventually("the tree has ended", || tree.iter().all(|pid| !is_alive(*pid)));
    // The guardian does this by itself: no other process is started.
    eventually("the entry is gone", || host.entries().is_empty());
    host.assert_nothing_left_of(entry["id"].as_str().expect("an id"));
    let guardian = entry["guardian"]["pid"].as_i64().expect("a number") as i32;
    eventually("the guardian has ended", || !is_alive(guardian));
}

#[test]
fn what_is_left_when_the_guardian_is_killed_too_is_ended_by_the_next_command() {
    let host = Host::new("kill-both");
    let running = host.start(&[], TREE);
    let tree = numbers(&running.first);
    let entry = host.entry();
    signal("KILL", entry["guardian"]["pid"].as_i64().expect("a number") as i32);
    running.signal("KILL");
    running.reap();
    assert_eq!(host.entries().len(), 1, "nobody is there to remove it");
    assert_eq!(host.run(&["ps", "--json"]).ok().json(), serde_json::json!([]));
    assert!(tree.iter().all(|pid| !is_alive(*pid)), "{tree:?}");
    host.assert_nothing_left_of(entry["id"].as_str().expect("an id"));
}

#[test]
fn a_supervisor_whose_guardian_was_killed_undoes_the_grant_itself() {
    let host = Host::new("kill-guardian");
    let running = host.start(&[], "echo ready; until [ -e go ]; do sleep 0.01; done; exit 6");
    let entry = host.entry();
    signal("KILL", entry["guardian"]["pid"].as_i64().expect("a number") as i32);
    host.folder.write("go", "");
    assert_eq!(running.wait().code, Some(6));
    host.assert_nothing_left_of(entry["id"].as_str().expect("an id"));
}
