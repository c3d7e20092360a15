//! Signals for the supervisor reach the program, and the program decides.

use super::Host;

//= OWN:exec
#[test]
fn a_signal_is_passed_on_and_the_exit_is_the_programs() {
    let host = Host::new("passed-on");
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3), ("USR1", 10), ("USR2", 12)] {
        // A shell cannot trap what was ignored when it was started, as for a job in the background.
        if is_ignored(number) {
            continue;
        }
        let script = format!(
            "trap 'echo got {name}; exit 5' {name}; echo ready; for i in $(seq 3000); do sleep 0.01; done"
        );
        let running = host.start(&[], &script);
        assert_eq!(running.first, "ready");
        let id = host.entry()["id"].as_str().expect("an id").to_owned();
        running.signal(name);
        let ran = running.wait();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), format!("got {name}\n").as_str()), "{ran:?}");
        host.assert_nothing_left_of(&id);
    }
}

#[test]
fn a_program_that_a_signal_ends_takes_the_grant_with_it() {
    let host = Host::new("ended");
    for (name, code) in [("TERM", 143), ("HUP", 129)].into_iter().filter(|(_, code)| !is_ignored(code - 128))
    {
        let running = host.start(&[], "echo ready; sleep 30 & wait");
        let id = host.entry()["id"].as_str().expect("an id").to_owned();
        running.signal(name);
        let ran = running.wait();
        assert_eq!(ran.code, Some(code), "{ran:?}");
        host.assert_nothing_left_of(&id);
    }
}

#[test]
fn a_program_that_ignores_a_signal_goes_on() {
    let host = Host::new("ignored");
    let running = host.start(&[], "trap '' TERM; echo ready; until [ -e go ]; do sleep 0.01; done; exit 6");
    running.signal("TERM");
    host.folder.write("go", "");
    assert_eq!(running.wait().code, Some(6));
}

#[test]
fn signals_that_were_blocked_or_ignored_before_stay_so() {
    let host = Host::new("inherited");
    // The shell that starts it ignores SIGHUP, as `nohup` does.
    let program = env!("CARGO_BIN_EXE_mainspring");
    let inner = "exec --budget 20ms/100ms --best-effort --quiet -- grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let script = format!("trap '' HUP; {program} {inner}; echo; grep -E '^Sig(Blk|Ign)' /proc/self/status");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).env("MAINSPRING_RUN_DIR", host.run_dir());
    let ran = crate::support::Ran::of(&mut command).ok();
    let (under, plain) = ran.stdout.split_once("\n\n").expect("both");
    assert_eq!(under.trim(), plain.trim());
}

/// Whether this process ignores a signal, which its children inherit.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the ignored signals");
    u64::from_str_radix(mask.trim(), 16).expect("a mask") >> (number - 1) & 1 == 1
}
