//! What a thread draws depends on its seed and its steps, and not on what others do in the meantime: so a seed gives the same
//! draws on every machine, however the threads interleave there.

mod common;

use common::{checked, thread, workload};
use mainspring_random::{Random, Range, Stream};
use mainspring_record::check::Bound;
use mainspring_workload::{Start, Step, Workload};

/// Waits for something at every turn, for at most a time that it draws, and computes in between.
const DRAWS: &str = r#"
[[thread]]
name = "draws"
start = "1ms..3ms"
times = 40
program = ["park 1us..2ms", "run 1us..100us", "recv door 1us..2ms", "run 1us..100us", "lock m 1us..2ms",
    "run 1us..100us", "unlock m", "down s 1us..2ms", "run 1us..100us", "join short 1us..2ms", "run 1us..100us",
    "call shop 1us..2ms", "run 1us..100us", "sleep 1us..50us", "complete r 1 timeout 1us..2ms", "run 1us..100us"]
[[thread]]
name = "short"
times = 1
start = "30ms"
program = ["run 5ms"]
[[thread]]
name = "sells"
start = "200ms"
program = ["recv shop", "reply"]
[[thread]]
name = "asks"
start = "5s"
program = ["call door"]
[[mutex]]
name = "m"
[[semaphore]]
name = "s"
value = 0
[[ring]]
name = "r"
owner = "draws"
entries = 8
cost = "1us"
"#;

/// What others do for it: it is unparked, asked, answered, held up and let through, or not.
const OTHERS: &str = r#"
[[thread]]
name = "unparks"
program = ["unpark draws", "sleep 100us..3ms"]
[[thread]]
name = "knocks"
count = 3
program = ["sleep 100us..3ms", "call door 5ms"]
[[thread]]
name = "holds"
program = ["lock m", "sleep 100us..1ms", "unlock m", "up s", "sleep 100us..2ms"]
"#;

/// What the thread with this number computes in all, by the steps of its table alone.
fn computed(workload: &Workload, number: usize, seed: u64) -> u64 {
    let mut random = Random::new(seed, Stream::Thread(number));
    let table = &workload.threads[number];
    let mut draw = |span: mainspring_workload::Span| random.draw(Range::new(span.min, span.max)).get();
    if let Start::At(span) = table.start {
        draw(span);
    }
    let mut sum = 0;
    for _ in 0..table.times.expect("it ends") {
        for step in &table.program {
            match step {
                Step::Run(span) => sum += draw(*span),
                Step::Sleep(span)
                | Step::Park { timeout: Some(span) }
                | Step::Recv { timeout: Some(span), .. }
                | Step::Lock { timeout: Some(span), .. }
                | Step::Down { timeout: Some(span), .. }
                | Step::Join { timeout: Some(span), .. }
                | Step::Complete { timeout: Some(span), .. } => _ = draw(*span),
                Step::Call(call) => _ = draw(call.timeout.expect("it has one")),
                Step::Unlock(_) => {}
                other => panic!("{other:?} is not in the program"),
            }
        }
    }
    sum
}

#[test]
fn a_thread_draws_the_same_whether_or_not_it_has_to_wait() {
    let machine = "[machine]\ncpus = 3\nduration = \"2s\"\n";
    for seed in 0..8 {
        let alone = workload(&format!("{machine}{DRAWS}"));
        let with_others = workload(&format!("{machine}{DRAWS}{OTHERS}"));
        let expected = computed(&alone, 0, seed);
        let waits = |workload: &Workload| {
            let report = checked(workload, seed, Bound::None).report;
            let draws = thread(&report, "draws");
            assert_eq!(draws.runtime_ns, expected, "seed {seed}");
            draws.timeouts
        };
        assert_ne!(waits(&alone), waits(&with_others), "what others do makes a difference to its waits");
    }
}
