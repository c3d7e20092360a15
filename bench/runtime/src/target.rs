//! What must be reached, and whether it was: from the figures of this run alone.

use crate::bench::{Bench, Peer};
use crate::drive::{Results, median};

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
        Target::Times(most, peers) => match ratio_to_best(results, peers) {
            Some((ratio, best)) => Verdict {
                reached: Some(ratio <= most),
                text: format!("{ratio:.3} times {}, of at most {most:.3}", best.name()),
            },
            None => unknown("no peer to compare with"),
        },
    })
}

/// The median, over rounds, of our figure divided by the figure of the peer with the best median.
fn ratio_to_best(results: &Results, peers: &[Peer]) -> Option<(f64, Peer)> {
    let ours = results.row(Peer::Mainspring)?.figures.get("")?;
    let best = results
        .rows
        .iter()
        .filter(|row| peers.contains(&row.peer))
        .filter_map(|row| Some((row, row.median("")?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?
        .0;
    let theirs = best.figures.get("")?;
    let ratio = median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))?;
    Some((ratio, best.peer))
}
