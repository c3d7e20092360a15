//! What a server does not take, and what whoever reaches it may ask of nodes: typed errors, and nothing is made, lost or left waiting.

mod common;

use common::actors::{
    LONG, actor, caught_up, node, nothing_in_flight, ops, sender, server_of_work, trusting,
};
use common::model::Model;
use common::{HANGS, Server};
use futures_util::{FutureExt as _, StreamExt as _};
use mainspring::Pool;
use mainspring_cluster::grant::{Grant, Signed};
use mainspring_cluster::spent::{BUCKET, Spent};
use mainspring_cluster::text::Text as _;
use mainspring_cluster::{CallError, Config, DurableMailbox, Error, Terms, connect, wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_replies_to_inboxes_and_publishes_nowhere_else_for_others() {
    let server = Server::start();
    let (_there, bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    let client = async_nats::connect(server.url()).await.expect("the server");
    // Bert may publish what this client may not be allowed to: the end of all records, a value of one, a message of somebody else.
    let forbidden = [
        format!("$JS.API.STREAM.DELETE.KV_{BUCKET}"),
        format!("$KV.{BUCKET}.goodgrant1"),
        "mainspring.victim".to_owned(),
    ];
    let mut seen = client.subscribe("mainspring.victim").await.expect("the server");
    caught_up(&client).await;
    for reply in forbidden {
        // One that is handled, and one that is refused.
        for payload in ["1", ""] {
            let mut headers = async_nats::HeaderMap::new();
            if payload.is_empty() {
                headers.insert(wire::GRANT, "no grant");
            }
            let subject = wire::actor_subject("work");
            let sent = client.publish_with_reply_and_headers(subject, reply.clone(), headers, payload.into());
            sent.await.expect("the server");
        }
    }
    // A message after them is answered, so they have been dealt with.
    let asked = client.request(wire::actor_subject("work"), "1".into()).await.expect("a reply");
    assert_eq!(asked.payload, "1", "the others were not handled");
    caught_up(&client).await;
    assert!(seen.next().now_or_never().is_none(), "nobody else is told anything");
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let records = Spent::open(&on).await.expect("the bucket");
    assert_eq!(records.read("goodgrant1").await.expect("the bucket is as it was"), None);
    drop(bert);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_the_id_of_another_does_not_keep_that_from_being_cancelled() {
    let server = Server::start();
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    let (there, address) = actor(8, move |_, cx, _| {
        while !is_open.load(Ordering::Relaxed) {
            cx.blocking(|| std::thread::sleep(Duration::from_millis(10))).expect("it may block");
        }
        Vec::new()
    });
    let much = Pool { syscalls: 100_000, ..Terms::default().unpaid };
    let bert =
        node("bert", &server, &there, Terms { unpaid: much, ..trusting(&["anna"], Pool::AMPLE) }).await;
    let _work = bert.export("work", address, 8).await.expect("it is exported");
    let (_here, anna) = sender("anna", &server).await;
    let client = async_nats::connect(server.url()).await.expect("the server");
    let send = async |id: Option<&str>| {
        let mut headers = async_nats::HeaderMap::new();
        if let Some(id) = id {
            headers.insert("Mainspring-Id", id);
        }
        let reply = client.new_inbox();
        let subject = wire::actor_subject("work");
        let sent = client.publish_with_reply_and_headers(subject, reply, headers, "".into()).await;
        sent.expect("the server");
        caught_up(&client).await;
    };
    send(None).await;
    // The actor is at work. Anna's message waits, and somebody has seen its id.
    let mut seen = client.subscribe(wire::actor_subject("work")).await.expect("the server");
    caught_up(&client).await;
    let work = anna.actor("work");
    let grant = Pool { ops: 100_000, spawn_count: 1, syscalls: 10_000, ..Pool::ZERO };
    let (asked, ()) = tokio::join!(work.ask_outside(Vec::new(), grant, Duration::from_secs(2)), async {
        let message = tokio::time::timeout(HANGS, seen.next()).await.expect("a message").expect("a message");
        let headers = message.headers.expect("headers");
        let signed = Signed::of_line(headers.get(wire::GRANT).expect("a grant").as_str());
        send(Some(&Grant::read(&signed.text).expect("a grant").id)).await;
    });
    assert_eq!(asked, Err(CallError::TimedOut));
    tokio::time::sleep(Duration::from_millis(300)).await;
    open.store(true, Ordering::Relaxed);
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.lost.is_empty(), "{balance:?}");
    assert_eq!(balance.used.spawn_count, 0, "nobody waited for it any more when its turn came: {balance:?}");
}

/// A server that takes messages of so many bytes.
fn taking(max_payload: usize) -> Server {
    Server::with(Some(&format!("max_payload: {max_payload}")), &["--jetstream"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_or_a_reply_that_is_too_large_is_said_at_once_and_costs_what_was_used() {
    let server = taking(64 << 10);
    let (there, address) = actor(4, |_, _, message| {
        let bytes: usize = String::from_utf8_lossy(&message.payload).parse().unwrap_or(0);
        vec![b'x'; bytes]
    });
    let bert = node("bert", &server, &there, trusting(&["anna"], Pool::AMPLE)).await;
    let _echo = bert.export("echo", address, 4).await.expect("it is exported");
    let (here, anna) = sender("anna", &server).await;
    let (before, echo) = (here.root_pool(), anna.actor("echo"));
    let ask = async |payload: Vec<u8>| {
        let asked = echo.ask_outside(payload, ops(1_000), LONG);
        tokio::time::timeout(LONG / 2, asked).await.expect("it does not wait for its timeout")
    };
    // The first grant is signed, later ones are not; and the reply fits with our headers, or does not.
    for _ in 0..2 {
        assert_eq!(ask(b"65000".to_vec()).await, Err(CallError::ReplyTooLarge));
        assert_eq!(ask(b"65536".to_vec()).await, Err(CallError::ReplyTooLarge));
        assert_eq!(ask(b"64512".to_vec()).await.map(|reply| reply.len()), Ok(64_512));
        assert_eq!(ask(vec![b'x'; 65_450]).await, Err(CallError::TooLarge));
        assert_eq!(ask(vec![b'x'; 65_536]).await, Err(CallError::TooLarge));
    }
    let unpaid = echo.ask_unpaid(b"65000".to_vec(), LONG);
    let unpaid = tokio::time::timeout(LONG / 2, unpaid).await.expect("it does not wait for its timeout");
    assert_eq!(unpaid, Err(CallError::ReplyTooLarge));
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.lost.is_empty(), "{balance:?}");
    assert_eq!(balance.used.spawn_count, 6, "those that were handled are paid for");
    assert_eq!(here.root_pool().ops, before.ops - balance.used.ops);
    assert_eq!(Model::at_rest(&server.url()).await, Model::said(&balance));
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_are_recorded_however_little_the_server_takes_at_a_time() {
    let server = taking(4 << 10);
    let (_there, _bert, _work) = server_of_work(&server, 64, Pool::AMPLE).await;
    let (_here, anna) = sender("anna", &server).await;
    assert!(anna.actor("work").ask_outside(b"1".to_vec(), ops(1_000), LONG).await.is_ok());
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let work = anna.actor("work");
            tokio::spawn(async move { work.ask_outside(b"1".to_vec(), ops(1_000), LONG).await })
        })
        .collect();
    for call in calls {
        assert!(call.await.expect("it ends").is_ok());
    }
    nothing_in_flight(&anna).await;
    assert_eq!(Model::at_rest(&server.url()).await, Model::said(&anna.balance()));
}

#[tokio::test]
async fn an_id_that_cannot_stand_in_a_header_is_refused() {
    let server = Server::start();
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let mail = DurableMailbox::open(&on, "log", 3).await.expect("a mailbox");
    for id in ["a\r\nb", "a\n", "\r"] {
        assert_eq!(mail.tell(id, Vec::new(), LONG).await, Err(CallError::BadId), "{id:?}");
    }
    assert!(mail.is_empty().await.expect("the server"));
}

/// Fills what the server has room for, by messages of a mailbox.
async fn fill(mail: &DurableMailbox) -> CallError {
    let filling = async {
        for n in 0.. {
            if let Err(error) = mail.tell(&n.to_string(), vec![b'x'; 32 << 10], Duration::from_secs(2)).await
            {
                return error;
            }
        }
        unreachable!("no server has room for ever")
    };
    tokio::time::timeout(HANGS, filling).await.expect("it comes to an end")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_is_said_and_nothing_of_a_budget_is_lost() {
    let server = match Server::on_disk("2m") {
        Ok(server) => server,
        Err(why) => return println!("no full disk: {why}"),
    };
    let (_there, _bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    let (here, anna) = sender("anna", &server).await;
    let before = here.root_pool();
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let mail = DurableMailbox::open(&on, "log", 1_000_000).await.expect("a mailbox");
    assert_eq!(fill(&mail).await, CallError::StorageFull);
    let refused = anna.actor("work").ask_outside(b"1".to_vec(), ops(1_000), LONG).await;
    assert_eq!(refused, Err(CallError::Unrecorded), "nobody spends what cannot be recorded");
    let joined = tokio::time::timeout(HANGS, connect(&Config::new(server.url()))).await;
    let joined = joined.expect("it does not hang").map(drop);
    assert!(matches!(joined, Ok(()) | Err(Error::StorageFull | Error::NoJetStream)), "{joined:?}");
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.used.ops == 0 && balance.lost.is_empty(), "{balance:?}");
    assert_eq!(here.root_pool().ops, before.ops - balance.in_flight.ops);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_is_said_by_mailboxes_and_calls() {
    let server = Server::with(Some("jetstream { max_file_store: 256KB }"), &[]);
    let (_there, _bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    let (here, anna) = sender("anna", &server).await;
    let before = here.root_pool();
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let mail = DurableMailbox::open(&on, "log", 1_000_000).await.expect("a mailbox");
    assert_eq!(fill(&mail).await, CallError::StorageFull);
    let refused = anna.actor("work").ask_outside(b"1".to_vec(), ops(1_000), LONG).await;
    assert_eq!(refused, Err(CallError::Unrecorded), "nobody spends what cannot be recorded");
    let another = DurableMailbox::open(&on, "more", 1).await;
    assert!(matches!(another, Ok(_) | Err(Error::StorageFull)), "{another:?}");
    assert!(anna.balance().is_conserved());
    // With room again, all of it comes to its end.
    on.jetstream.delete_stream("mainspring-mail-log").await.expect("the server");
    nothing_in_flight(&anna).await;
    assert_eq!(here.root_pool(), before);
    assert!(anna.actor("work").ask_outside(b"1".to_vec(), ops(1_000), LONG).await.is_ok());
}
