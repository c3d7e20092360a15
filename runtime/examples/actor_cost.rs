//! What a call of an actor costs beside the round trip of a channel, on one worker: medians of many short rounds, in turns, so that
//! what the host does meanwhile hits both alike.

use mainspring::{Address, Capacity, Config, Cx, Pool, Profile, Receiver, Sender};
use std::time::{Duration, Instant};

/// Calls of a round: so few that most rounds are not interrupted.
const CALLS: u32 = 1_000;
const ROUNDS: usize = 301;
const GRANT: Pool = Pool { ops: 1_000, spawn_count: 1, ..Pool::ZERO };
const PATIENCE: Duration = Duration::from_secs(10);

/// Nanoseconds of one call.
fn round(mut call: impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..CALLS).for_each(|_| call());
    began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

type Echo = Address<Vec<u8>, Vec<u8>>;

fn measure(cx: &Cx, (to, back): (&Sender<Vec<u8>>, &Receiver<Vec<u8>>), actor: &Echo) {
    let rounds: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| {
            [
                round(|| {
                    to.send(cx, b"x".to_vec()).expect("it listens");
                    back.recv(cx).expect("a reply");
                }),
                round(|| drop(actor.ask(cx, b"x".to_vec(), GRANT).expect("a reply"))),
                round(|| drop(actor.ask_timeout(cx, b"x".to_vec(), GRANT, PATIENCE).expect("a reply"))),
            ]
        })
        .collect();
    println!("                                   median, ns  ratio");
    for (column, what) in ["channel round trip", "actor call", "actor call with a timeout"].iter().enumerate()
    {
        let time = median(rounds.iter().map(|round| round[column]).collect());
        let ratio = median(rounds.iter().map(|round| round[column] / round[0]).collect());
        println!("{what:34} {time:10.1} {ratio:6.2}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Cluster).workers(1).build()?;
    let measured = runtime.run(|cx| {
        cx.nursery(|n| {
            let (to, asks) = cx.channel::<Vec<u8>>(Capacity::Bounded(1)).expect("a channel");
            let (back, replies) = cx.channel::<Vec<u8>>(Capacity::Bounded(1)).expect("a channel");
            n.start(move |cx| {
                asks.iter(cx).map_while(Result::ok).for_each(|ask| back.send(cx, ask).expect("it listens"));
            })
            .expect("it starts");
            let (actor, mailbox) = cx.mailbox::<Vec<u8>, Vec<u8>>(64, Pool::ZERO).expect("a mailbox");
            n.start(move |cx| mailbox.serve(cx, &mut (), |(), _, message| message).expect("it serves"))
                .expect("it starts");
            measure(cx, (&to, &replies), &actor);
            drop(to);
            actor.close();
        })
    });
    Ok(measured??)
}
