//! A node with one actor, `work`: it uses as many ops as a message says, and replies how many.
//!
//! `node NAME SECRET URL ROOM PEER=PUBLIC...`: keys are 64 hexadecimal digits. It serves until it is killed, or its input closes.

use mainspring::{Config as RuntimeConfig, Pool, Profile};
use mainspring_cluster::grant::unhex;
use mainspring_cluster::{Config, Identity, Message, Node, Terms, Trusted, connect};
use std::sync::{Arc, mpsc};

type Failed = Box<dyn std::error::Error>;

fn key(text: &str) -> Result<[u8; 32], Failed> {
    let bytes = unhex(text).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.ok_or_else(|| "a key is 64 hexadecimal digits".into())
}

fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, secret, url, room, peers @ ..] = words.as_slice() else {
        return Err("usage: node NAME SECRET URL ROOM PEER=PUBLIC...".into());
    };
    let mut trusted = Trusted::new();
    for peer in peers {
        let (name, public) = peer.split_once('=').ok_or("a peer is NAME=PUBLIC")?;
        trusted = trusted.believe(name, &key(public)?, Pool::AMPLE)?;
    }
    let runtime = Arc::new(RuntimeConfig::new(Profile::Cluster).workers(1).build()?);
    let (tx, rx) = mpsc::channel();
    let room: u32 = room.parse()?;
    std::thread::spawn({
        let runtime = runtime.clone();
        move || {
            let ended = runtime.run(|cx| {
                let (address, mailbox) = cx.mailbox(room, Pool::ZERO).expect("the root may make mailboxes");
                tx.send(address).expect("the main thread waits");
                mailbox.serve(cx, &mut (), |(), cx, message: Message| {
                    let ops = String::from_utf8_lossy(&message.payload).parse().unwrap_or(0);
                    cx.check_iterations(ops);
                    message.payload
                })
            });
            eprintln!("the actor has ended: {ended:?}");
        }
    });
    let actor = rx.recv()?;
    let tokio = tokio::runtime::Runtime::new()?;
    tokio.block_on(async {
        let on = connect(&Config::new(url)).await?;
        let terms = Terms { trusted, ..Terms::default() };
        let node = Node::join(Identity::new(name, &key(secret)?), runtime, terms, on).await?;
        let exported = node.export("work", actor, room as usize).await?;
        println!("ready");
        let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        closed.await??;
        drop(exported);
        Ok(())
    })
}
