//! Processes: children that exit, are waited for and killed, and leave nothing behind. Runs the timer and thread proofs
//! as children.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering;
use mainspring_user::caps;
use mainspring_user::schema::Access;
use mainspring_user::{CapError, arch, say};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
const ALL: &[&str] = &["console", "timer", "threads", "control", "park", "info", "policy"];

//= ARCH:proof.run-spawn ARCH:exit.process EVO:S1.exit-bounded
fn main() -> i64 {
    // Tables for mappings stay with the process after their first use, and so does the object's number.
    shared_memory();
    // The dead are buried a little later than they are waited for.
    let alone = || caps::usage().is_ok_and(|usage| usage.processes == 1);
    assert!(caps::comes_true(2 * MS, alone), "the first child was never buried");
    let before = caps::usage().expect("usage can be read");
    for child in ["timer-smoke", "thread-lifecycle"] {
        let code = caps::start(child, "", ALL).expect("the program is in the image").wait();
        assert_eq!(code, Ok(0), "{child}");
        say!("spawn: child={child} code=0");
        // The next one counts the machine's memory, and the dead one's must not come back meanwhile.
        assert!(caps::comes_true(2 * MS, alone), "{child} was never buried");
    }
    flood_beside_sleepers();
    killed_at_any_moment();
    makers_killed();
    let child = caps::start("child", "exit 42", &[]).expect("the program is in the image");
    assert_eq!(child.wait(), Ok(42));
    assert_eq!(child.wait(), Ok(42), "the status stays while a handle can ask");
    let child = caps::start("child", "park", &["park", "threads", "timer"]).expect("in the image");
    caps::sleep(5_000_000).expect("within the quota");
    child.kill().expect("a handle can kill");
    assert_eq!(child.wait(), Ok(-3000), "killed by its handle, threads that wait included");
    assert_eq!(caps::start("no-such", "", &[]).err(), Some(CapError::NotFound));
    assert_eq!(caps::start("child", "", &["nothing"]).err(), Some(CapError::InvalidCapability));
    shared_memory();
    assert!(caps::comes_true(2 * MS, alone), "a child was never buried");
    let after = caps::usage().expect("usage can be read");
    assert_eq!((after.processes, after.threads), (before.processes, before.threads));
    // The second object's two pages and the list of them live as long as its number does.
    assert_eq!(after.free_frames + 3, before.free_frames, "all other memory came back");
    assert_eq!(after.hard_path_allocations, 0);
    say!("spawn: cleanup=ok frames={} hard_path_allocations=0", after.free_frames);
    0
}

/// Two processes see the same page; what one may not write it cannot, and memory comes back with its last user.
fn shared_memory() {
    let object = caps::create_object(2).expect("two pages are within the quota");
    let at = caps::map_object(object, Access::Write).expect("the object is ours");
    arch::word(at).store(41, Ordering::Relaxed);
    let child = caps::start_with("child", "shared", &["memory"], &[("pages", object)]).expect("in the image");
    assert_eq!(child.wait(), Ok(0));
    child.detach().expect("a handle can be dropped");
    assert_eq!(arch::word(at).load(Ordering::Relaxed), 42, "the child added one");
    let again = caps::map_object(object, Access::Read).expect("the object is ours");
    assert_eq!(arch::word(again).load(Ordering::Relaxed), 42, "mapped twice, the same page");
    assert_eq!(caps::map_object(caps::need("timer"), Access::Read), Err(CapError::InvalidCapability));
    assert_eq!(caps::create_object(u32::MAX), Err(CapError::InvalidParameter));
    for mapped in [at, again] {
        caps::unmap_object(mapped).expect("it is mapped");
        assert_eq!(caps::unmap_object(mapped), Err(CapError::BadAddress));
    }
    say!("spawn: shared_memory=ok");
}

/// Children whose threads never do anything but fall asleep and wake each other are killed at all moments of that, and by
/// their own exit: each ends, and everything of it.
//= ARCH:exit.process
fn killed_at_any_moment() {
    const ROUNDS: u64 = 40;
    for round in 0..ROUNDS {
        let argument = if round % 2 == 0 { "restless" } else { "restless leave" };
        let child = caps::start("child", argument, &["park", "threads", "timer"]).expect("in the image");
        if round % 2 == 0 {
            caps::sleep(round * 41_000).expect("within the quota");
            child.kill().expect("a handle can kill");
            assert_eq!(child.wait(), Ok(-3000));
        } else {
            assert_eq!(child.wait(), Ok(0), "it ends itself, restless threads and all");
        }
        child.detach().expect("a handle can be dropped");
    }
    say!("spawn: killed_at_any_moment=ok rounds={ROUNDS}");
}

/// A process whose threads do nothing but make processes is killed, mostly in the middle of that: what was not whole is
/// undone, and what was ends by itself. Whether anything is left is asked at the end.
//= OWN:kernel.irq-off OWN:kernel.charge-all
fn makers_killed() {
    const ROUNDS: u64 = 20;
    for round in 0..ROUNDS {
        let child =
            caps::start("child", "make", &["processes", "park", "threads", "timer"]).expect("in the image");
        caps::sleep(MS + round * 137_000).expect("within the quota");
        child.kill().expect("a handle can kill");
        assert_eq!(child.wait(), Ok(-3000));
        child.detach().expect("a handle can be dropped");
    }
    say!("spawn: makers_killed=ok rounds={ROUNDS}");
}

/// One process fills its own quota of sleeps; another sleeps as if nothing had happened.
//= ARCH:inv.sleep-bounded TICK:L1.waiter-bound
fn flood_beside_sleepers() {
    let flood = caps::start("timer-flood", "", ALL).expect("in the image");
    let smoke = caps::start("timer-smoke", "", ALL).expect("in the image");
    assert_eq!((smoke.wait(), flood.wait()), (Ok(0), Ok(0)));
    say!("spawn: child=timer-flood code=0");
}
