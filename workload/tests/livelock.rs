//! Time passes in every workload that is accepted, shown against an executor that runs programs step by step within
//! one instant: it must come to rest.

use mainspring_workload::{Start, Step, Workload, parse};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

fn accepted(text: &str) -> bool {
    parse("w.toml", text).is_ok()
}

fn threads(programs: &[(&str, &str)]) -> String {
    programs.iter().map(|(name, rest)| format!("[[thread]]\nname = \"{name}\"\n{rest}\n")).collect()
}

#[test]
fn threads_that_only_wake_each_other_are_refused() {
    for programs in [
        [("a", "program = ['call e']"), ("b", "program = ['recv e', 'reply']")],
        [("a", "program = ['unpark b', 'park']"), ("b", "program = ['unpark a', 'park']")],
        [("a", "program = ['spawn b', 'park']"), ("b", "start = 'spawn'\ntimes = 1\nprogram = ['unpark a']")],
        [("a", "program = ['spawn b', 'join b']"), ("b", "start = 'spawn'\nprogram = ['exit']")],
        [("a", "program = ['join b']"), ("b", "program = ['run 1ms']\ntimes = 1")],
    ] {
        assert!(!accepted(&threads(&programs)), "{programs:?}");
    }
}

#[test]
fn waiting_for_what_takes_time_is_fine() {
    for programs in [
        [("a", "program = ['call e']"), ("b", "program = ['recv e', 'run 1us', 'reply']")],
        [("a", "program = ['call e', 'run 1us']"), ("b", "program = ['recv e', 'reply']")],
        [("a", "program = ['park']"), ("b", "program = ['unpark a', 'sleep 1ms']")],
        [("a", "program = ['park 1ms']"), ("b", "program = ['recv e 1ms']")],
        [("a", "program = ['recv e']"), ("b", "program = ['call e']\ntimes = 3")],
        [
            ("a", "program = ['spawn b', 'join b']"),
            ("b", "start = 'spawn'\ntimes = 1\nprogram = ['run 1ms']"),
        ],
        [("a", "program = ['join b']"), ("b", "program = ['run 1ms']")],
        [("a", "program = ['yield']\ntimes = 9"), ("b", "program = ['weight 3', 'exit']")],
        [("a", "program = ['run 0..1ns']"), ("b", "program = ['every 1ns']")],
    ] {
        assert!(accepted(&threads(&programs)), "{programs:?}");
    }
}

/// A thread within one instant.
struct Live {
    table: usize,
    step: usize,
    rounds: u64,
    permit: bool,
    waiting_for_reply: bool,
    replied: bool,
    owes: Option<usize>,
    /// In a step that takes time.
    busy: bool,
    ended: bool,
}

impl Live {
    fn is_active(&self) -> bool {
        !self.busy && !self.ended
    }
}

/// What became of one step.
enum Outcome {
    Done,
    Blocked,
    TakesTime,
    Ended,
}

struct Instant<'w> {
    workload: &'w Workload,
    threads: Vec<Live>,
    requests: HashMap<usize, VecDeque<usize>>,
}

impl Instant<'_> {
    /// Starts one more instance, unless as many live as may.
    fn start(&mut self, table: usize) {
        let living = self.threads.iter().filter(|thread| thread.table == table && !thread.ended).count();
        if living == self.workload.threads[table].instances() {
            return;
        }
        self.threads.push(Live {
            table,
            step: 0,
            rounds: 0,
            permit: false,
            waiting_for_reply: false,
            replied: false,
            owes: None,
            busy: false,
            ended: false,
        });
    }

    /// Runs until no thread can go on without time passing; `false` if that does not happen within `limit` steps.
    fn comes_to_rest(&mut self, limit: usize) -> bool {
        let mut steps = 0;
        loop {
            let active: Vec<usize> =
                (0..self.threads.len()).filter(|n| self.threads[*n].is_active()).collect();
            let mut moved = false;
            for n in active {
                let outcome = self.step(n);
                moved |= matches!(outcome, Outcome::Done);
                self.threads[n].busy |= matches!(outcome, Outcome::TakesTime);
                self.threads[n].ended |= matches!(outcome, Outcome::Ended);
                steps += 1;
            }
            if !moved || steps > limit {
                return !moved;
            }
        }
    }

    fn step(&mut self, n: usize) -> Outcome {
        let spec = &self.workload.threads[self.threads[n].table];
        let step = spec.program[self.threads[n].step].clone();
        match step {
            Step::Run(span) | Step::Sleep(span) if !span.max.is_zero() => return Outcome::TakesTime,
            Step::RunForever | Step::Every(_) => return Outcome::TakesTime,
            Step::Exit => return Outcome::Ended,
            Step::Park { .. } if !std::mem::take(&mut self.threads[n].permit) => return Outcome::Blocked,
            Step::Unpark(target) => {
                for thread in self.threads.iter_mut().filter(|thread| thread.table == target.thread) {
                    thread.permit = true;
                }
            }
            Step::Call(mainspring_workload::Call { endpoint, .. }) => {
                if !self.threads[n].waiting_for_reply {
                    self.threads[n].waiting_for_reply = true;
                    self.requests.entry(endpoint).or_default().push_back(n);
                    return Outcome::Done;
                }
                if !std::mem::take(&mut self.threads[n].replied) {
                    return Outcome::Blocked;
                }
                self.threads[n].waiting_for_reply = false;
            }
            Step::Recv { endpoint, .. } => match self.requests.entry(endpoint).or_default().pop_front() {
                None => return Outcome::Blocked,
                Some(caller) => self.threads[n].owes = Some(caller),
            },
            Step::Reply => {
                if let Some(caller) = self.threads[n].owes.take() {
                    self.threads[caller].replied = true;
                }
            }
            Step::Spawn(table) => self.start(table),
            _ => {}
        }
        let thread = &mut self.threads[n];
        thread.step += 1;
        if thread.step == spec.program.len() {
            thread.step = 0;
            thread.rounds += 1;
            if spec.times == Some(thread.rounds) {
                return Outcome::Ended;
            }
        }
        Outcome::Done
    }
}

fn any_thread() -> impl Strategy<Value = String> {
    let step = prop::sample::select(vec![
        "yield",
        "park",
        "park 1ms",
        "unpark t0",
        "unpark t1",
        "unpark t2",
        "call e",
        "call f",
        "recv e",
        "recv f",
        "reply",
        "spawn kid",
        "weight 3",
        "run 0",
        "run 1us",
    ]);
    let times = prop::sample::select(vec!["", "", "", "times = 2"]);
    (prop::collection::vec(step, 1..5), times)
        .prop_map(|(steps, times)| format!("{times}\nprogram = {steps:?}\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn whatever_is_accepted_comes_to_rest(tables in prop::collection::vec(any_thread(), 3), kid in any_thread()) {
        let mut text: String =
            tables.iter().enumerate().map(|(n, rest)| format!("[[thread]]\nname = 't{n}'\n{rest}")).collect();
        text += &format!("[[thread]]\nname = 'kid'\nstart = 'spawn'\n{kid}");
        // Keeps the generator from being refused for other reasons; it never wakes a thread at the start.
        text += "[[thread]]\nname = 'z'\nprogram = ['run 1us', 'recv e 1ms', 'recv f 1ms', 'spawn kid']\n";
        if let Ok(workload) = parse("w.toml", &text) {
            let mut instant = Instant { workload: &workload, threads: Vec::new(), requests: HashMap::new() };
            for (table, spec) in workload.threads.iter().enumerate() {
                if spec.start != Start::Spawned {
                    instant.start(table);
                }
            }
            prop_assert!(instant.comes_to_rest(20_000), "{}", text);
        }
    }
}
