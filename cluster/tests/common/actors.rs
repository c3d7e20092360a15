//! Nodes of the test's own process, with actors on them and without.

use super::{HANGS, Server, identity};
use mainspring::{Cx, Pool, Profile, Runtime};
use mainspring_cluster::{Actor, Config, Exported, Message, Node, Terms, Trusted, connect};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Long enough for anything that does come.
pub const LONG: Duration = Duration::from_secs(60);

pub fn ops(ops: u64) -> Pool {
    Pool { ops, spawn_count: 1, ..Pool::ZERO }
}

/// A runtime with one actor on it. The actor ends with the last address.
pub fn actor(
    room: u32,
    handler: impl Fn(&mut u64, &Cx, Message) -> Vec<u8> + Send + Sync + 'static,
) -> (Arc<Runtime>, Actor) {
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let (tx, rx) = mpsc::channel();
    let serving = runtime.clone();
    std::thread::spawn(move || {
        serving.run(|cx| {
            let (address, mailbox) = cx.mailbox(room, Pool::ZERO).expect("a mailbox");
            tx.send(address).expect("the test waits");
            mailbox.serve(cx, &mut 0, handler).expect("it serves");
        })
    });
    (runtime, rx.recv().expect("the actor"))
}

/// Uses as many ops as it is told to.
pub fn work(sum: &mut u64, cx: &Cx, message: Message) -> Vec<u8> {
    let ops: u32 = String::from_utf8(message.payload).expect("text").parse().expect("a number");
    cx.check_iterations(ops);
    *sum += u64::from(ops);
    sum.to_string().into_bytes()
}

pub fn trusting(names: &[&str], limit: Pool) -> Terms {
    let trusted = names.iter().fold(Trusted::new(), |trusted, name| {
        trusted.believe(*name, &identity(name).public(), limit).expect("a key")
    });
    Terms { trusted, grace: Duration::from_secs(1), ..Terms::default() }
}

pub async fn node(name: &str, server: &Server, runtime: &Arc<Runtime>, terms: Terms) -> Node {
    let on = connect(&Config::new(server.url())).await.expect("the server");
    Node::join(identity(name), runtime.clone(), terms, on).await.expect("a node")
}

/// A node that only sends.
pub async fn sender(name: &str, server: &Server) -> (Arc<Runtime>, Node) {
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let node = node(name, server, &runtime, trusting(&["anna", "bert"], Pool::AMPLE)).await;
    (runtime, node)
}

/// A node that serves `work`.
pub async fn server_of_work(server: &Server, room: u32, limit: Pool) -> (Arc<Runtime>, Node, Exported) {
    let (runtime, address) = actor(room, work);
    let bert = node("bert", server, &runtime, trusting(&["anna"], limit)).await;
    let exported = bert.export("work", address, room as usize).await.expect("it is exported");
    (runtime, bert, exported)
}

pub async fn nothing_in_flight(node: &Node) {
    let waited = tokio::time::timeout(HANGS, async {
        while node.balance().grants_in_flight > 0 || node.unrecorded() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.expect("what is in flight comes to an end");
}

/// Returns when the server has done what the client asked of it before: it answers in order.
pub async fn caught_up(client: &async_nats::Client) {
    client.request("$JS.API.INFO", "".into()).await.expect("the server");
}
