//! What must be reached, and whether it was: from the figures of this run alone.

use crate::bench::{Bench, Peer};
use crate::drive::{PROCESSOR, Results, median};

/// A target and what became of it.
#[derive(Debug)]
pub struct Verdict {
    /// Whether it is reached; none if it could not be told.
    pub reached: Option<bool>,
    /// In words, with the figures.
    pub text: String,
}

enum Target {
    /// At most this many times the best of these.
    Times(f64, &'static [Peer]),
    /// At most this, in the benchmark's unit.
    Most(f64),
    /// At most as much as this one, in its own figure and in this one beside it.
    NoWorse(Peer, &'static str),
}

fn target(bench: Bench) -> Option<Target> {
    use Peer::{Go, May, Rayon, Smol, Tokio};
    Some(match bench {
        // corosensei alone schedules nothing: it is shown, and is no peer here.
        Bench::Yield | Bench::PingPong => Target::Times(1.0 / 4.0, &[Tokio, May, Smol, Go]),
        Bench::Spawn => Target::Times(1.0 / 3.0, &[Tokio, Smol, Rayon, Go]),
        Bench::Skynet => Target::Times(1.0 / 6.0, &[Go, Tokio]),
        Bench::Fib => Target::Times(1.0, &[Rayon]),
        Bench::Memory => Target::Most(4700.0),
        Bench::MemoryFuture | Bench::MemoryUnstarted => Target::Most(300.0),
        Bench::Check => Target::Most(2.0),
        Bench::Http => Target::NoWorse(Tokio, "p99"),
        Bench::HttpOverstay => Target::Most(3.0),
        _ if bench.has_deadlines() => Target::Most(1.0),
        _ => return None,
    })
}

/// The verdict on a benchmark that has a target.
pub fn verdict(results: &Results) -> Option<Verdict> {
    let unknown = |text: &str| Verdict { reached: None, text: text.to_owned() };
    Some(match target(results.bench)? {
        Target::Most(most) => match results.row(Peer::Mainspring).and_then(|row| row.median("")) {
            Some(ours) => Verdict {
                reached: Some(ours <= most),
                text: format!("{ours:.1} of at most {most} {}", results.bench.unit()),
            },
            None => unknown("not measured"),
        },
        Target::NoWorse(peer, beside) => match (ratio(results, peer, ""), ratio(results, peer, beside)) {
            (Some(own), Some(other)) => Verdict {
                reached: Some(own <= 1.0 && other <= 1.0),
                text: format!("{own:.3} times {}, {beside} {other:.3} times, of at most 1", peer.name()),
            },
            _ => unknown("no peer to compare with"),
        },
        Target::Times(most, peers) => match ratio_to_best(results, peers) {
            Some((times, best)) => {
                let processor = ratio(results, best, PROCESSOR);
                let processor =
                    processor.map_or(String::new(), |it| format!("; {it:.3} of its processor time"));
                Verdict {
                    reached: Some(times <= most),
                    text: format!("{times:.3} times {}, of at most {most:.3}{processor}", best.name()),
                }
            }
            None => unknown("no peer to compare with"),
        },
    })
}

/// Our figure divided by that of the peer with the best median, and which that is.
fn ratio_to_best(results: &Results, peers: &[Peer]) -> Option<(f64, Peer)> {
    let best = results
        .rows
        .iter()
        .filter(|row| peers.contains(&row.peer))
        .filter_map(|row| Some((row, row.median("")?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?
        .0;
    Some((ratio(results, best.peer, "")?, best.peer))
}

/// The median, over rounds, of our figure of this name divided by the one of `peer`.
fn ratio(results: &Results, peer: Peer, figure: &str) -> Option<f64> {
    let ours = results.row(Peer::Mainspring)?.figures.get(figure)?;
    let theirs = results.row(peer)?.figures.get(figure)?;
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}
