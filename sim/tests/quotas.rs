//! Timed waits are bounded per process, and one process that exceeds its bound harms only itself.

mod common;

use common::{checked, thread, workload};
use mainspring_record::check::Bound;

//= TICK:L1.waiter-bound ARCH:inv.sleep-bounded
#[test]
fn timed_waits_beyond_the_limit_are_refused_and_counted_and_others_are_unaffected() {
    let text = r#"
        [machine]
        duration = "200ms"
        waiters = 64
        waiters_per_process = 2
        [[thread]]
        name = "greedy"
        process = "greedy"
        count = 6
        program = ["run 100us", "sleep 10ms"]
        [[thread]]
        name = "modest"
        process = "modest"
        count = 2
        program = ["run 100us", "sleep 10ms"]
    "#;
    let report = checked(&workload(text), 1, Bound::Quantum).report;
    let refused: u64 = (0..6).map(|index| thread(&report, &format!("greedy.{index}")).refusals).sum();
    assert!(refused > 0, "six sleepers do not fit in two waits");
    let told = (0..6).find_map(|index| thread(&report, &format!("greedy.{index}")).first_refusal.clone());
    assert_eq!(told.expect("it is told").reason, "no timed wait is left in the quota");
    for index in 0..2 {
        let modest = thread(&report, &format!("modest.{index}"));
        assert_eq!(modest.refusals, 0);
        assert!(modest.wakeups >= 10, "{modest:?}");
    }
}
