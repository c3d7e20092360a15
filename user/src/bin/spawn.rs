//! Processes: children that exit, are waited for and killed, and leave nothing behind. Runs the timer and thread proofs
//! as children.
#![no_std]
#![no_main]

use mainspring_user::caps;
use mainspring_user::{CapError, say};

mainspring_user::program!(main);

const ALL: &[&str] = &["console", "timer", "threads", "control", "park", "info", "policy"];

//= ARCH:proof.run-spawn ARCH:exit.process ARCH:inv.teardown-stack EVO:S1.exit-bounded
fn main() -> i64 {
    let before = caps::usage().expect("usage can be read");
    for child in ["timer-smoke", "thread-lifecycle"] {
        let code = caps::start(child, "", ALL).expect("the program is in the image").wait();
        assert_eq!(code, Ok(0), "{child}");
        say!("spawn: child={child} code=0");
    }
    flood_beside_sleepers();
    let child = caps::start("child", "exit 42", &[]).expect("the program is in the image");
    assert_eq!(child.wait(), Ok(42));
    assert_eq!(child.wait(), Ok(42), "the status stays while a handle can ask");
    let child = caps::start("child", "park", &["park", "threads", "timer"]).expect("in the image");
    caps::sleep(5_000_000).expect("within the quota");
    child.kill().expect("a handle can kill");
    assert_eq!(child.wait(), Ok(-3000), "killed by its handle, threads that wait included");
    assert_eq!(caps::start("no-such", "", &[]).err(), Some(CapError::NotFound));
    assert_eq!(caps::start("child", "", &["nothing"]).err(), Some(CapError::InvalidCapability));
    let mut after = caps::usage().expect("usage can be read");
    for _ in 0..200 {
        if after.processes == before.processes {
            break;
        }
        caps::sleep(2_000_000).expect("within the quota");
        after = caps::usage().expect("usage can be read");
    }
    assert_eq!((after.processes, after.threads), (before.processes, before.threads));
    assert_eq!(after.free_frames, before.free_frames, "all memory came back");
    assert_eq!(after.hard_path_allocations, 0);
    say!("spawn: cleanup=ok frames={} hard_path_allocations=0", after.free_frames);
    0
}

/// One process fills its own quota of sleeps; another sleeps as if nothing had happened.
//= ARCH:inv.sleep-bounded TICK:L1.waiter-bound
fn flood_beside_sleepers() {
    let flood = caps::start("timer-flood", "", ALL).expect("in the image");
    let smoke = caps::start("timer-smoke", "", ALL).expect("in the image");
    assert_eq!((smoke.wait(), flood.wait()), (Ok(0), Ok(0)));
    say!("spawn: child=timer-flood code=0");
}
