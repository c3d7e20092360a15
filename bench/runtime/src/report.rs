//! The table, and the same as JSON.

use crate::bench::{Attack, Peer};
use crate::drive::{PROCESSOR, Results};
use crate::target::verdict;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

/// Where the figures go.
pub fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from).join("bench")
}

/// The bench's name in the file: of its own figure, or of one beside it.
fn full_name(results: &Results, figure: &str) -> String {
    if figure.is_empty() {
        results.bench.name().to_owned()
    } else {
        format!("{}-{figure}", results.bench.name())
    }
}

fn unit(results: &Results, figure: &str) -> &'static str {
    match figure {
        "gap" | "p99" | "quiet-p99" => "us",
        PROCESSOR => "ms, in all",
        _ => results.bench.unit(),
    }
}

/// For each peer, its median in the attack that hurts its victim most.
fn worst_attack(all: &[Results]) -> BTreeMap<Peer, f64> {
    let mut worst = BTreeMap::new();
    let with_ticks = |results: &&Results| {
        !results.bench.has_deadlines() && results.bench.attack().is_some_and(|it| it != Attack::None)
    };
    for results in all.iter().filter(with_ticks) {
        for row in &results.rows {
            if let Some(p99) = row.median("") {
                let most = worst.entry(row.peer).or_insert(p99);
                *most = p99.max(*most);
            }
        }
    }
    worst
}

/// Prints the table and writes the file.
pub fn write(all: &[Results], rounds: u32) -> Result<(), Box<dyn Error>> {
    println!("medians of {rounds} interleaved rounds; less is better");
    println!("{:<20} {:<11} {:>12}  {:<17} {:>22}", "bench", "peer", "median", "", "least .. most");
    let mut records = Vec::new();
    let (mut reached, mut targets) = (0, 0);
    for results in all {
        for row in &results.rows {
            for (figure, values) in &row.figures {
                let Some(value) = row.median(figure) else { continue };
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let (name, unit) = (full_name(results, figure), unit(results, figure));
                println!(
                    "{name:<20} {:<11} {value:>12.1}  {unit:<17} {least:>10.1} .. {most:.1}",
                    row.peer.name()
                );
                records.push(serde_json::json!({
                    "bench": name,
                    "peer": row.peer.name(),
                    "value": value,
                    "unit": unit,
                    "lower_is_better": true,
                }));
            }
            if let Some(failure) = &row.failure {
                println!("{:<20} {:<11} {failure}", results.bench.name(), row.peer.name());
            }
        }
        if let Some(verdict) = verdict(results) {
            targets += 1;
            reached += u32::from(verdict.reached == Some(true));
            let word = match verdict.reached {
                Some(true) => "reached",
                Some(false) => "MISSED",
                None => "not known",
            };
            println!("{:<20} target {word}: {}", "", verdict.text);
        }
    }
    for (peer, worst) in worst_attack(all) {
        println!(
            "{:<20} {:<11} {worst:>12.1}  us, p99 lateness  in the worst attack",
            "hostile",
            peer.name()
        );
        records.push(serde_json::json!({
            "bench": "hostile",
            "peer": peer.name(),
            "value": worst,
            "unit": "us, p99 lateness",
            "lower_is_better": true,
        }));
    }
    let file = folder().join("runtime.json");
    std::fs::create_dir_all(folder())?;
    std::fs::write(&file, serde_json::to_string_pretty(&records)? + "\n")?;
    println!("\n{reached} of {targets} targets reached; {}", file.display());
    Ok(())
}
