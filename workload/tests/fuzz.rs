//! No input makes the reader panic or hang: valid files, mutated byte by byte and word by word, are read or refused
//! with errors that have a place and help.
//!
//! A failure prints its seed; `WORKLOAD_FUZZ_SEED=N cargo test -p mainspring-workload --test fuzz` runs that one.

use mainspring_workload::{Errors, parse};
use proptest::prelude::*;
use std::path::PathBuf;

const INPUTS: u64 = 20_000;

/// `MAINSPRING_FUZZ_INPUTS=N` takes more, as `make soak` does.
fn inputs() -> u64 {
    std::env::var("MAINSPRING_FUZZ_INPUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(INPUTS)
}

/// Words that mean something somewhere.
const WORDS: [&str; 93] = [
    "[[mutex]]",
    "[[semaphore]]",
    "[[barrier]]",
    "[[condition]]",
    "[[distribution]]",
    "[[interrupt]]",
    "lock",
    "unlock",
    "down",
    "up",
    "barrier",
    "wait",
    "signal",
    "broadcast",
    "donation",
    "parties",
    "kind",
    "\"pareto\"",
    "\"values\"",
    "shape",
    "wakes",
    "run",
    "forever",
    "sleep",
    "every",
    "yield",
    "park",
    "unpark",
    "call",
    "recv",
    "reply",
    "spawn",
    "join",
    "weight",
    "exit",
    "\"",
    "'",
    "[",
    "]",
    "[[thread]]",
    "{",
    "}",
    "=",
    "#",
    "..",
    "0",
    "-1",
    "1ms",
    "\u{b5}s",
    "\"spawn\"",
    "18446744073709551616",
    "count",
    "name",
    "start",
    "cpus",
    "\"0-4096\"",
    "\u{0}",
    "\\u0000",
    "\"\"\"",
    "a.0",
    "4096",
    "[[context]]",
    "[[endpoint]]",
    "[[lease]]",
    "[[island]]",
    "[[ring]]",
    "[[session]]",
    "[[at]]",
    "[policy]",
    "budget",
    "period",
    "deadline",
    "context",
    "thread",
    "nodes",
    "\"ledger\"",
    "bind",
    "unbind",
    "revoke",
    "drain",
    "lease",
    "release",
    "submit",
    "complete",
    "poll",
    "throw",
    "needs",
    "timeout",
    "drop",
    "late",
    "adjust",
    "policy",
    "epoch",
];

/// SplitMix64: enough to choose places.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn corpus() -> Vec<String> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "workloads"].iter().collect();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    // The order of a folder is the file system's; a seed must mean the same file everywhere.
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("readable")).collect()
}

fn mutate_bytes(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.next() as u8),
            _ => bytes.truncate(bytes.len() - random.below(bytes.len() / 4)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mutate_words(text: &str, random: &mut Random) -> String {
    // Split after each blank, comma, quote and line end, so that joining the words gives the text again.
    let mut words: Vec<&str> = text.split_inclusive([' ', ',', '"', '\n']).collect();
    for _ in 0..=random.below(6) {
        let (a, b) = (random.below(words.len()), random.below(words.len()));
        if words.is_empty() {
            break;
        }
        match random.below(5) {
            0 => words.swap(a, b),
            1 => drop(words.remove(a)),
            2 => words.insert(a, words[b]),
            3 => words[a] = WORDS[random.below(WORDS.len())],
            _ => words.insert(a, WORDS[random.below(WORDS.len())]),
        }
    }
    words.concat()
}

fn check_errors(errors: &Errors, text: &str) {
    let lines = text.split('\n').count();
    assert!(errors.count() > 0);
    let mut last = (0, 0);
    for error in errors {
        let place = (error.line(), error.column());
        assert!((1..=lines).contains(&place.0) && place.1 >= 1, "{place:?} of {lines} lines");
        assert!(last <= place, "errors are in the order of the file");
        assert!(!error.help().is_empty() && error.to_string().contains('^'));
        last = place;
    }
}

/// Prints how to run the input again if it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("WORKLOAD_FUZZ_SEED={seed} cargo test -p mainspring-workload --test fuzz");
        }
    }
}

#[test]
fn mutated_files_are_read_or_refused_in_good_order() {
    let corpus = corpus();
    let seeds = match std::env::var("WORKLOAD_FUZZ_SEED").map(|seed| seed.parse::<u64>()) {
        Ok(seed) => {
            let seed = seed.expect("WORKLOAD_FUZZ_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..inputs(),
    };
    let (mut read, mut refused) = (0, 0);
    for seed in seeds.clone() {
        let replay = Replay(seed);
        let mut random = Random(seed);
        let file = &corpus[random.below(corpus.len())];
        let text =
            if seed % 2 == 0 { mutate_bytes(file, &mut random) } else { mutate_words(file, &mut random) };
        match parse("fuzz.toml", &text) {
            Ok(_) => read += 1,
            Err(errors) => {
                check_errors(&errors, &text);
                refused += 1;
            }
        }
        drop(replay);
    }
    // Mutations that never hit, or always break the TOML, would test nothing.
    let enough = INPUTS / 20;
    assert!(
        seeds.end - seeds.start < INPUTS || (read > enough && refused > enough),
        "{read} read, {refused} refused"
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_good_order(text in "(?s).{0,200}") {
        if let Err(errors) = parse("any.toml", &text) {
            check_errors(&errors, &text);
        }
    }

    #[test]
    fn any_operation_is_read_or_refused_in_good_order(
        text in "(revoke|adjust|logout|exit|revoke-lease|leave|close|policy( weight| profile)?)( [0-9a-z.%\u{b5}]{0,8}){0,5}"
    ) {
        let text = format!(
            "[policy]\nservice = 'a'\n[[thread]]\nname = 'a'\nprogram = ['run 1ms']\n\
             [[at]]\ntime = '1ms'\ndo = '{text}'\n"
        );
        if let Err(errors) = parse("any.toml", &text) {
            check_errors(&errors, &text);
        }
    }

    #[test]
    fn any_step_is_read_or_refused_in_good_order(step in "[a-z]{0,8}( [0-9a-z.%\u{b5}]{0,12}){0,3}") {
        let text = format!("[[thread]]\nname = 'a'\nprogram = ['run 1ms', '{step}']\n");
        if let Err(errors) = parse("any.toml", &text) {
            check_errors(&errors, &text);
        }
    }
}
