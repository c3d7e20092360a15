//! Runs of a sweep that workers on other machines make: this side writes what is wanted, and reads what came of it.
//!
//! Conserved: one result is taken for each place that was asked for. A run that a worker could not make is made here, for its error.

use super::{JobIndex, Result, Variant};
use crate::args::FailOn;
use crate::cluster;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;

/// The workers of one sweep, by way of `mainspring-cluster`.
pub struct Remote {
    process: Child,
    asks: Option<BufWriter<ChildStdin>>,
    replies: BufReader<ChildStdout>,
}

/// What a worker made of a run.
enum Came {
    Result(Result),
    Failed(String),
}

impl Remote {
    /// Connects to the server at `url`, and makes the workloads known. `more` are other words about it.
    pub fn start(
        url: &str,
        more: &[String],
        name: &str,
        fail_on: Option<FailOn>,
        variants: &[Variant],
    ) -> std::result::Result<Self, Failure> {
        let mut command = cluster::program();
        command.args(["dispatch", "--nats", url]).args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(cluster::absent)?;
        let (Some(asks), Some(replies)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(cluster::absent(io::ErrorKind::BrokenPipe.into()));
        };
        let mut remote = Self { process, asks: Some(BufWriter::new(asks)), replies: BufReader::new(replies) };
        let fail_on = fail_on.map(|FailOn::Misses| "misses");
        for variant in variants {
            let workload =
                json!({ "of": variant.fingerprint, "name": name, "fail_on": fail_on, "text": variant.text });
            remote.ask(&json!({ "workload": workload }))?;
        }
        Ok(remote)
    }

    fn ask(&mut self, ask: &Value) -> std::result::Result<(), Failure> {
        let written =
            self.asks.as_mut().map_or(Ok(()), |asks| writeln!(asks, "{ask}").and_then(|()| asks.flush()));
        written.or_else(|_| self.ended())
    }

    /// The other program has ended, and has said why.
    fn ended<T>(&mut self) -> std::result::Result<T, Failure> {
        self.asks = None;
        let status = self.process.wait().map_err(cluster::absent)?;
        Err(Failure::Cluster { status })
    }

    /// Has all of `todo` run, and hands every result over as it comes.
    pub fn run_all(
        &mut self,
        variants: &[Variant],
        todo: &[JobIndex],
        first_seed: u64,
        again: impl Fn(JobIndex) -> std::result::Result<Result, Failure>,
        mut done: impl FnMut(JobIndex, Result) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), Failure> {
        let job = |&(v, s): &JobIndex| (variants[v].fingerprint.as_str(), first_seed + s as u64);
        // Two variants may be the same text: they share their runs.
        let mut places: HashMap<(String, u64), Vec<JobIndex>> = HashMap::new();
        for place in todo {
            let (of, seed) = job(place);
            places.entry((of.to_owned(), seed)).or_default().push(*place);
        }
        let Some(mut asks) = self.asks.take() else { return self.ended() };
        // The other side stops reading while too much is under way; so writing must not keep us from reading.
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for (of, seed) in todo.iter().map(job) {
                    writeln!(asks, "{}", json!({ "run": { "of": of, "seed": seed } }))?;
                }
                asks.flush()?;
                Ok::<_, io::Error>(asks)
            });
            let read = (|| {
                while !places.is_empty() {
                    let Some((of, seed, came)) = self.reply()? else { return self.ended() };
                    let Some(at) = places.remove(&(of, seed)) else { continue };
                    for place in at {
                        match &came {
                            Came::Result(result) => done(place, result.clone())?,
                            // The error of a run is not known from its text: the same seed has it here.
                            Came::Failed(why) => match again(place) {
                                Ok(_) => return Err(Failure::WorkerFailed { seed, why: why.clone() }),
                                Err(failure) => return Err(failure),
                            },
                        }
                    }
                }
                Ok(())
            })();
            if read.is_err() {
                // The writer may wait for a reader: there is none any more.
                let _ = self.process.kill();
            }
            match writer.join() {
                Ok(Ok(asks)) => self.asks = Some(asks),
                _ => return read.and_then(|()| self.ended()),
            }
            read
        })
    }

    /// Has the flight record of one run written to a file. Returns the digest of the run that was recorded.
    pub fn record(&mut self, of: &str, seed: u64, to: &Path) -> std::result::Result<String, Failure> {
        let to = to.display().to_string();
        self.ask(&json!({ "run": { "of": of, "seed": seed, "record": true, "to": to } }))?;
        match self.reply()? {
            Some((_, _, Came::Result(result))) => Ok(result.digest),
            Some((_, seed, Came::Failed(why))) => Err(Failure::WorkerFailed { seed, why }),
            None => self.ended(),
        }
    }

    /// The next result; `None` if there will be none.
    fn reply(&mut self) -> std::result::Result<Option<(String, u64, Came)>, Failure> {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Ok(None),
        }
        let understood = || {
            let reply: Value = serde_json::from_str(&line).ok()?;
            let done = reply.get("done")?;
            let of = done.get("of")?.as_str()?.to_owned();
            let seed = done.get("seed")?.as_u64()?;
            let came = done.get("came")?;
            let came = match (came.get("line"), came.get("failed")) {
                // Whoever may write to the server may have said it.
                (Some(line), _) => match Result::read(line).filter(|(of_line, _)| *of_line == of) {
                    Some((_, result)) if result.seed == seed => Came::Result(result),
                    _ => Came::Failed("its result is none of this run".to_owned()),
                },
                (None, why) => Came::Failed(why?.as_str()?.to_owned()),
            };
            Some((of, seed, came))
        };
        let understood = understood();
        if understood.is_none() {
            // A program of another version, which may wait for what this one never writes.
            let _ = self.process.kill();
        }
        Ok(understood)
    }

    /// Nothing more is wanted.
    pub fn end(mut self) -> std::result::Result<(), Failure> {
        self.ask(&json!("end"))?;
        self.asks = None;
        let status = self.process.wait().map_err(cluster::absent)?;
        if status.success() { Ok(()) } else { Err(Failure::Cluster { status }) }
    }
}
