//! The cases of `tests/c/cases.c`, each a process of its own.

use crate::build::{compile, here, said};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile(&here().join("tests/c/cases.c"), "cases", &[]))
}

fn run(case: &str) {
    let output = Command::new(program()).arg(case).output().expect("it starts");
    assert_eq!(said(&output), "ok\n", "{case}");
}

//= SCHED:12.1.1a SCHED:6.2.2
#[test]
fn a_scheduler_is_made_with_its_workers_runs_tasks_and_is_shut_down_once() {
    run("lifecycle");
}

//= SCHED:6.2.3
#[test]
fn a_config_without_workers_or_sense_makes_no_scheduler() {
    run("no_workers");
}

//= SCHED:12.1.1b SCHED:14.1.1b
#[test]
fn tasks_spawn_into_the_current_nursery_and_yield_for_free() {
    run("spawn_and_yield");
}

//= SCHED:9.3.1
#[test]
fn the_same_seed_and_workers_give_the_same_order() {
    run("deterministic");
}

#[test]
fn a_deadlock_is_told_where_the_order_is_deterministic() {
    run("deadlock");
}

#[test]
fn a_shutdown_ends_the_nurseries_and_runs_of_other_threads() {
    run("shutdown_elsewhere");
}

//= NURS:capi NURS:await-main
#[test]
fn four_functions_are_enough_to_run_tasks_and_to_see_their_errors() {
    run("four_functions");
}

#[test]
fn the_child_of_a_fork_is_refused_and_waits_for_nothing() {
    run("forks");
}

#[test]
fn numbers_that_are_too_large_are_refused_or_mean_for_ever() {
    run("too_large");
}

//= NURS:error-propagation
#[test]
fn the_first_error_is_the_nurserys_and_cancels_the_others() {
    run("first_error");
}

//= NURS:no-orphans
#[test]
fn no_task_is_left_when_its_nursery_its_task_or_its_thread_has_ended() {
    run("no_orphans");
    run("thread_ends");
}

#[test]
fn a_task_ends_its_nurseries_from_the_inside_out() {
    run("innermost");
}

#[test]
fn a_nursery_has_a_deadline() {
    run("deadline");
}

//= SCHED:15.2.2
#[test]
fn a_result_is_for_the_owner_of_the_nursery_and_once() {
    run("results");
}

//= SCHED:12.1.1c SCHED:3.1.1
#[test]
fn a_task_gets_its_budget_by_value() {
    run("budget_by_value");
}

//= SCHED:3.2.3c SCHED:12.1.1c
#[test]
fn a_task_recharges_itself_up_to_its_limit_and_goes_on() {
    run("self_recharge");
}

//= SCHED:3.2.3a
#[test]
fn the_owner_recharges_an_exhausted_child_out_of_the_pool() {
    run("parent_recharge");
}

//= SCHED:14.1.1a
#[test]
fn exhausted_spawns_and_memory_are_told_and_can_be_retried() {
    run("exhausted");
}

#[test]
fn a_task_that_ignores_the_end_of_its_budget_fails_when_it_returns() {
    run("ignored_end");
}

//= SCHED:1.1.2
#[test]
fn a_task_without_the_capability_spawns_by_no_route() {
    run("capabilities");
}

#[test]
fn handles_that_are_none_are_told() {
    run("bad_handles");
}

#[test]
fn handles_of_others_are_told() {
    run("foreign_threads");
}

#[test]
fn a_task_that_does_not_listen_keeps_no_worker() {
    run("cancel");
}

#[test]
fn channels_join_tasks_and_threads() {
    run("channels");
}

#[test]
fn tenants_share_by_weight() {
    run("tenants");
}

#[test]
fn a_context_grants_time_is_lent_by_calls_and_ends_with_its_handle() {
    run("contexts");
}

#[test]
fn contexts_of_others_and_after_the_end_are_told() {
    run("foreign_contexts");
}

#[test]
fn a_quota_lets_its_tasks_wait_and_gives_no_more_than_it_has() {
    run("quotas");
}

/// A case that no test runs would be none.
#[test]
fn every_case_is_run() {
    let listed = said(&Command::new(program()).output().expect("it starts"));
    let tests = include_str!("cases.rs");
    for case in listed.lines() {
        assert!(tests.contains(&format!("run(\"{case}\")")), "no test runs {case}");
    }
}

#[test]
fn a_call_is_answered_once_by_the_task_that_took_it_or_ends() {
    run("endpoints");
}
