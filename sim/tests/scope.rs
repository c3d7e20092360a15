//! How far authority reaches, and where it ends: which threads a context may serve, what a loan carries and what it does
//! not, and that notices of it change nothing.

mod common;

use common::{checked, thread, workload};
use mainspring_abi::Nanos;
use mainspring_record::check::Bound;
use mainspring_record::watch::Watch;
use mainspring_report::{ContextReport, Report};
use mainspring_sched::context::NoticeKind;
use mainspring_sched::flight::{EventRef, Outcome};
use mainspring_sched::{Cpu, Seat};
use mainspring_sim::Options;
use std::cell::RefCell;
use std::rc::Rc;

fn run(text: &str) -> Report {
    checked(&workload(text), 1, Bound::None).report
}

fn context<'a>(report: &'a Report, name: &str) -> &'a ContextReport {
    report.contexts.iter().find(|context| context.name == name).unwrap_or_else(|| panic!("no context {name}"))
}

/// One context, used as `scope` says, beside a hog; `clients` do 1 ms of work every 10 ms.
fn scoped(scope: &str) -> Report {
    run(&format!(
        r#"
        [machine]
        duration = "1s"
        [[context]]
        name = "grant"
        budget = "2ms"
        period = "10ms"
        {scope}
        [[thread]]
        name = "hog"
        count = 4
        program = ["run forever"]
        "#
    ))
}

//= EVO:S4.bind-scope
#[test]
fn a_context_serves_a_thread_a_process_or_the_calls_of_an_endpoint() {
    let own = scoped(
        "[[thread]]\nname = \"client\"\ncontext = \"grant\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n",
    );
    let process = scoped(
        "process = \"app\"\n[[thread]]\nname = \"client\"\nprocess = \"app\"\nprogram = [\"run 1ms\", \"every 10ms\"]\n",
    );
    let endpoint = scoped(
        "[[endpoint]]\nname = \"port\"\ncontext = \"grant\"\n\
         [[thread]]\nname = \"server\"\nprogram = [\"recv port\", \"run 1ms\", \"reply\"]\n\
         [[thread]]\nname = \"client\"\nprogram = [\"call port\", \"every 10ms\"]\n",
    );
    for (report, scope) in [(&own, "thread"), (&process, "process"), (&endpoint, "endpoint")] {
        let used = context(report, "grant").used_ns;
        assert!((90_000_000..=100_000_000).contains(&used), "{scope}: {used}ns of a hundred milliseconds");
    }
    assert_eq!(context(&endpoint, "grant").donated_ns, 0, "the endpoint's own, not the caller's");
}

/// What a thread gets that would do 1 ms of work every 10 ms for a second, beside hogs of a thousand times its
/// weight.
fn beside_giants(client: &str) -> u64 {
    let report = run(&format!(
        r#"
        [machine]
        duration = "1s"
        [[thread]]
        name = "hog"
        count = 3
        weight = 1024
        program = ["run forever"]
        {client}
        "#
    ));
    report
        .threads
        .iter()
        .filter(|thread| !thread.name.starts_with("hog"))
        .map(|thread| thread.runtime_ns)
        .sum()
}

//= TICK:tax.context
#[test]
fn nothing_but_a_context_is_time_to_spend() {
    let plain = "[[thread]]\nname = \"client\"\nweight = 1\nprogram = [\"run 1ms\", \"every 10ms\"]\n";
    let hinted = plain.replace("weight", "latency = \"interactive\"\nrequest = \"100us\"\nweight");
    let asking = "[[endpoint]]\nname = \"port\"\n\
         [[thread]]\nname = \"server\"\nweight = 1\nprogram = [\"recv port\", \"run 1ms\", \"reply\"]\n\
         [[thread]]\nname = \"client\"\nweight = 1\nprogram = [\"call port needs 1ms deadline 2ms\", \"every 10ms\"]\n";
    let submitting = "[[ring]]\nname = \"disk\"\nowner = \"client\"\nentries = 4\ncost = \"1ms\"\nreorder = true\n\
         [[thread]]\nname = \"client\"\nweight = 1\nprogram = [\"submit disk 1 deadline 2ms\", \"complete disk 1\", \"every 10ms\"]\n";
    let admitted = "[[context]]\nname = \"grant\"\nbudget = \"2ms\"\nperiod = \"10ms\"\n".to_owned()
        + &plain.replace("weight", "context = \"grant\"\nweight");
    // Its share, and no more in advance than two threads can have.
    let quantum = 3_000_000;
    let most = 1_000_000_000 / 1024 + 2 * quantum;
    for (client, what) in
        [(plain, "nothing"), (&hinted, "a hint"), (asking, "a deadline"), (submitting, "an entry")]
    {
        let got = beside_giants(client);
        assert!((1..=most).contains(&got), "with {what}: {got}ns");
    }
    let got = beside_giants(&admitted);
    assert!((90_000_000..=100_000_000).contains(&got), "with a context: {got}ns");
}

//= ARCH:ctx.granularity
#[test]
fn a_budget_is_overrun_by_no_more_than_its_timer_is_late() {
    let text = r#"
        [machine]
        duration = "1s"
        tick = "10ms"
        floor = "0%"
        [[context]]
        name = "grant"
        budget = "3ms"
        period = "11ms"
        [[thread]]
        name = "greedy"
        context = "grant"
        program = ["run forever"]
    "#;
    let exact = run(text);
    assert_eq!((context(&exact, "grant").overshoot_max_ns, context(&exact, "grant").depletions), (0, 91));
    let late = run(&format!("{text}\n[faults]\nlate_timer = {{ chance = \"100%\", by = \"400us\" }}\n"));
    let overshoot = context(&late, "grant").overshoot_max_ns;
    assert!((1..=400_000).contains(&overshoot), "{overshoot}ns, far below a tick");
    let used = context(&late, "grant").used_ns;
    assert!(used <= 91 * 3_000_000 + 400_000, "what was run too far was paid by waiting: {used}ns");
}

/// A loan under stress, whose context tells of every depletion; `drain` is what its holder does about that.
fn told(drain: &str) -> Report {
    run(&format!(
        r#"
        [machine]
        cpus = 2
        duration = "500ms"
        [[context]]
        name = "grant"
        budget = "1ms"
        period = "4ms"
        [[endpoint]]
        name = "port"
        [[thread]]
        name = "client"
        context = "grant"
        program = ["run 600us", "call port", {drain} "run 300us", "sleep 2ms"]
        [[thread]]
        name = "server"
        program = ["recv port", "run 900us", "reply"]
        [[thread]]
        name = "hog"
        count = 3
        program = ["run 1ms..3ms", "sleep 100us"]
        "#
    ))
}

//= ARCH:notify.passive
#[test]
fn whether_anybody_listens_to_notices_changes_no_decision() {
    let (silent, drained) = (told(""), told("\"drain grant\","));
    assert!(context(&silent, "grant").depletions > 50, "there is something to tell");
    assert_eq!((&silent.digest, silent.decisions), (&drained.digest, drained.decisions));
}

/// How many depletions a notice tells of: since the last drain, and ever. `None` if the cell is empty.
type Told = Option<(u32, u32)>;

/// What the notices of the only context tell, each time that this changes.
#[derive(Default)]
struct Cell {
    seat: Option<Seat>,
    told: Rc<RefCell<Vec<Told>>>,
}

impl Watch for Cell {
    fn before(&mut self, _: Nanos, _: &Cpu, event: EventRef<'_>) {
        if let EventRef::Bind(seat, _) = event {
            self.seat = Some(seat);
        }
    }

    fn after(&mut self, _: Nanos, cpu: &Cpu, _: Outcome) -> Result<(), String> {
        let context = self.seat.and_then(|seat| cpu.entity(seat).ok()).and_then(|entity| entity.context());
        let Some(context) = context else { return Ok(()) };
        let notice = context.notices().peek(NoticeKind::BudgetDepleted);
        let now = notice.map(|notice| (notice.coalesced, notice.sequence));
        if self.told.borrow().last() != Some(&now) {
            self.told.borrow_mut().push(now);
        }
        Ok(())
    }
}

//= ARCH:notify.coalesce
#[test]
fn depletions_before_a_drain_are_one_notice_that_counts_them() {
    let text = r#"
        [machine]
        duration = "30ms"
        floor = "0%"
        [[context]]
        name = "grant"
        budget = "1ms"
        period = "4ms"
        [[thread]]
        name = "greedy"
        context = "grant"
        program = ["run forever"]
        [[thread]]
        name = "operator"
        program = ["sleep 14ms", "drain grant", "sleep 1s"]
    "#;
    let cell = Cell::default();
    let told = Rc::clone(&cell.told);
    let options = Options { watch: Some(Box::new(cell)), ..Options::default() };
    let report = mainspring_sim::run("notices", &workload(text), options).expect("it runs");
    assert_eq!(context(&report, "grant").depletions, 8, "at 1 ms, 5 ms, and so on");
    let four = [Some((1, 1)), Some((2, 2)), Some((3, 3)), Some((4, 4))];
    let four_more = [Some((1, 5)), Some((2, 6)), Some((3, 7)), Some((4, 8))];
    assert_eq!(told.take(), [&[None][..], &four, &[None], &four_more].concat());
}

//= TICK:L6.blocking
#[test]
fn on_borrowed_time_a_server_waits_for_nothing_but_calls_that_pass_it_on() {
    let report = run(r#"
        [machine]
        duration = "100ms"
        [[context]]
        name = "grant"
        budget = "5ms"
        period = "10ms"
        [[thread]]
        name = "client"
        context = "grant"
        program = ["call front", "every 10ms"]
        [[thread]]
        name = "front"
        program = ["recv front", "sleep 3ms", "park 3ms", "call back", "reply"]
        [[thread]]
        name = "back"
        program = ["recv back", "run 1ms", "reply"]
        [[thread]]
        name = "hog"
        program = ["run forever"]
    "#);
    assert_eq!(thread(&report, "front").refusals, 20, "a sleep and a park for each of ten calls");
    assert_eq!(context(&report, "grant").donated_ns, 10_000_000, "the second server works on the same loan");
    assert_eq!(context(&report, "grant").misses, 0);
}

//= TICK:L6.async
#[test]
fn what_is_only_queued_for_a_thread_lends_it_nothing() {
    let report = run(r#"
        [machine]
        cpus = 2
        duration = "100ms"
        [[context]]
        name = "grant"
        budget = "5ms"
        period = "10ms"
        [[ring]]
        name = "disk"
        owner = "client"
        sqpoll = true
        cost = "200us"
        [[thread]]
        name = "client"
        context = "grant"
        program = ["run 1ms", "submit disk 4", "unpark helper", "complete disk 4", "every 10ms"]
        [[thread]]
        name = "poller"
        program = ["poll disk"]
        [[thread]]
        name = "helper"
        program = ["park", "run 500us"]
    "#);
    assert!(report.rings[0].completed >= 40 && thread(&report, "helper").runtime_ns >= 4_500_000);
    let grant = context(&report, "grant");
    assert_eq!((grant.donated_ns, grant.used_ns), (0, thread(&report, "client").runtime_ns));
}
