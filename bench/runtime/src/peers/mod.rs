//! The peers, each written as its own users would write it.

mod corosensei;
mod http_mainspring;
mod http_tokio;
mod mainspring;
mod may;
mod rayon;
mod smol;
mod thread;
mod tokio;

use crate::bench::{Bench, Figures, Peer, Work};
use crate::{check, http};

use self::mainspring::Started;
pub(crate) use self::mainspring::runtime;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Measures one peer once, in this process. None if it takes no part.
pub fn measure(bench: Bench, peer: Peer, work: &Work) -> Option<Figures> {
    if bench == Bench::Check && peer == Peer::Mainspring {
        return Some(check::measure(work));
    }
    let on_load = match bench {
        Bench::Http => Some(http::quiet as fn(SocketAddr, Duration) -> Figures),
        Bench::HttpOverstay => Some(http::beside_stalls as fn(SocketAddr, Duration) -> Figures),
        _ => None,
    };
    if let Some(load) = on_load {
        let measure = |address| load(address, work.window);
        return match peer {
            Peer::Mainspring => Some(http_mainspring::serve(measure)),
            Peer::Tokio => Some(http_tokio::serve(measure)),
            _ => None,
        };
    }
    let value = match peer {
        Peer::Mainspring => mainspring::measure(bench, work, Started::Stay),
        Peer::MainspringMoving => mainspring::measure(bench, work, Started::Move),
        Peer::Tokio => tokio::measure(bench, work),
        Peer::May => may::measure(bench, work),
        Peer::Smol => smol::measure(bench, work),
        Peer::Rayon => rayon::measure(bench, work),
        Peer::Corosensei => corosensei::measure(bench, work),
        Peer::Thread => thread::measure(bench, work),
        Peer::Go => None,
    };
    value.map(|value| vec![("", value)])
}

/// The processor time that the whole process has used: with one worker that is never idle, the time it took, less what
/// other programs took from it.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(now).expect("it is not negative")
}

fn processor_timed(f: impl FnOnce()) -> Duration {
    let began = processor_time();
    f();
    processor_time() - began
}

fn timed(f: impl FnOnce()) -> Duration {
    let began = Instant::now();
    f();
    began.elapsed()
}

fn ns_each(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e9 / f64::from(count)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("the second field of statm is a number") * 4096.0
}

/// The sum of the leaves' numbers, which each peer's tree must give.
fn leaf_sum(leaves: u64) -> u64 {
    leaves * (leaves - 1) / 2
}
