//! Actors of several nodes over a real server, and of one node without any.

mod common;

use common::actors::{
    LONG, actor, caught_up, node, nothing_in_flight, ops, sender, server_of_work, trusting, work,
};
use common::model::Model;
use common::{HANGS, Process, Server, identity, secret, until};
use futures_util::StreamExt as _;
use mainspring::{Pool, Profile, Runtime};
use mainspring_cluster::grant::{Amount, Grant, Receipt, Signed, Worthless, hex, now_ms};
use mainspring_cluster::spent::{Record, Spent};
use mainspring_cluster::text::Text as _;
use mainspring_cluster::{CallError, Config, DurableMailbox, Error, Identity, Node, Terms, connect, wire};
use std::collections::HashMap;
use std::io::BufRead as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn without_a_server_actors_of_one_process_are_reached_by_name() {
    let (runtime, address) = actor(4, work);
    let alone = Node::local(identity("anna"), runtime.clone());
    let exported = futures_util::FutureExt::now_or_never(alone.export("work", address, 4));
    let exported = exported.expect("it waits for no server").expect("it is exported");
    let (reply, spent) = runtime
        .run(|cx| {
            cx.nursery(|n| {
                let before = n.pool().ops;
                let reply = alone.actor("work").ask(cx, b"100".to_vec(), ops(1_000), LONG);
                assert_eq!(alone.actor("nobody").ask(cx, Vec::new(), ops(10), LONG), Err(CallError::NoActor));
                (reply, before - n.pool().ops)
            })
        })
        .expect("it runs")
        .expect("the nursery ends");
    assert_eq!(reply, Ok(b"100".to_vec()));
    assert!((100..300).contains(&spent), "{spent}");
    drop(exported);
}

#[test]
fn the_end_of_an_export_leaves_a_later_one_of_the_name() {
    let (runtime, address) = actor(4, work);
    let alone = Node::local(identity("anna"), runtime.clone());
    let export = |actor| {
        let exported = futures_util::FutureExt::now_or_never(alone.export("work", actor, 4));
        exported.expect("it waits for no server").expect("it is exported")
    };
    let (first, second) = (export(address.clone()), export(address));
    drop(first);
    assert!(alone.hosts("work"));
    drop(second);
    assert!(!alone.hosts("work"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sender_pays_for_what_is_used_on_another_node_and_has_the_rest_back() {
    let server = Server::start();
    let (_there, _bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    let there_before = _there.root_pool();
    let (here, anna) = sender("anna", &server).await;
    let before = here.root_pool();
    let reply = anna.actor("work").ask_outside(b"1000".to_vec(), ops(5_000), LONG).await;
    assert_eq!(reply, Ok(b"1000".to_vec()));
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.grants_in_flight == 0, "{balance:?}");
    assert_eq!(balance.sent.ops, 5_000);
    assert!((1_000..1_200).contains(&balance.used.ops), "{balance:?}");
    assert_eq!(here.root_pool().ops, before.ops - balance.used.ops);
    assert_eq!(_there.root_pool(), there_before, "the other node neither paid nor gained");
    let exhausted = anna.actor("work").ask_outside(b"1000000".to_vec(), ops(5_000), LONG).await;
    assert_eq!(exhausted, Err(CallError::Exhausted(mainspring::Component::Ops)));
    assert!(anna.balance().is_conserved());
    // And from a task, whose own pool pays.
    let task_anna = anna.clone();
    let runtime = here.clone();
    let spent = tokio::task::spawn_blocking(move || {
        runtime.run(|cx| {
            cx.nursery(|n| {
                let before = n.pool().ops;
                task_anna.actor("work").ask(cx, b"1000".to_vec(), ops(5_000), LONG).expect("a reply");
                before - n.pool().ops
            })
        })
    });
    let spent = spent.await.expect("it runs").expect("it runs").expect("the nursery ends");
    assert!((1_000..1_300).contains(&spent), "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_mailbox_makes_its_senders_wait_on_other_nodes_too() {
    let server = Server::start();
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let begun = Arc::new(AtomicU64::new(0));
    let (opened, counted) = (gate.clone(), begun.clone());
    let (runtime, address) = actor(2, move |_, cx, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let opened = opened.clone();
        let waited = cx.blocking(move || {
            let mut open = opened.0.lock().expect("no panic");
            while !*open {
                open = opened.1.wait(open).expect("no panic");
            }
        });
        waited.expect("it may block");
        Vec::new()
    });
    let bert = node("bert", &server, &runtime, trusting(&["anna"], Pool::AMPLE)).await;
    let _work = bert.export("work", address, 2).await.expect("it is exported");
    let (_here, anna) = sender("anna", &server).await;
    let grant = Pool { ops: 1_000, spawn_count: 1, syscalls: 10, ..Pool::ZERO };
    let ask = |wait: Duration| {
        let work = anna.actor("work");
        tokio::spawn(async move { work.ask_outside(Vec::new(), grant, wait).await })
    };
    let taken = [ask(LONG), ask(LONG)];
    until("both are taken", || begun.load(Ordering::Relaxed) >= 1 && anna.balance().grants_in_flight == 2);
    tokio::time::sleep(Duration::from_millis(300)).await;
    // On a busy host the last attempt may have no time left to hear that there is no room.
    let mut refused = Err(CallError::TimedOut);
    for _ in 0..20 {
        refused = ask(Duration::from_millis(300)).await.expect("it ends");
        if refused != Err(CallError::TimedOut) {
            break;
        }
    }
    assert_eq!(refused, Err(CallError::Busy));
    nothing_but(&anna, 2).await;
    let waiting = [ask(LONG), ask(LONG), ask(LONG)];
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(begun.load(Ordering::Relaxed) <= 2, "no more than there is room for");
    *gate.0.lock().expect("no panic") = true;
    gate.1.notify_all();
    for reply in taken.into_iter().chain(waiting) {
        assert_eq!(reply.await.expect("it ends"), Ok(Vec::new()));
    }
    assert_eq!(begun.load(Ordering::Relaxed), 5);
    nothing_in_flight(&anna).await;
    assert!(anna.balance().is_conserved());
    assert!(anna.balance().lost.is_empty());
}

/// Waits until no more than `n` grants are in flight.
async fn nothing_but(node: &Node, n: usize) {
    let waited = tokio::time::timeout(HANGS, async {
        while node.balance().grants_in_flight > n {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("it comes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_cannot_be_made_changed_replayed_or_diverted() {
    let server = Server::start();
    let (there, _bert, _work) = server_of_work(&server, 4, Pool { spawn_count: 100, ..ops(10_000) }).await;
    let before = there.root_pool();
    let client = async_nats::connect(server.url()).await.expect("the server");
    let anna = identity("anna");
    let grant = |id: &str, amount: u64| Grant {
        id: id.into(),
        from: "anna".into(),
        to: "work".into(),
        amount: Amount::from(ops(amount)),
        expires_ms: now_ms() + 30_000,
        within: None,
    };
    let send = async |text: String, signature: String| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(wire::GRANT, Signed { text, signature }.line());
        let reply = client
            .request_with_headers(wire::actor_subject("work"), headers, "10".into())
            .await
            .expect("a reply");
        let headers = reply.headers.expect("headers");
        (headers.get("Mainspring-Status").expect("a status").as_str().to_owned(), text_of(&reply.payload))
    };
    let signed = anna.sign(&grant("goodgrant1", 1_000));
    assert_eq!(send(signed.text.clone(), signed.signature.clone()).await, ("done".into(), "10".into()));
    // Again, at once and after the node has started again: it was spent.
    for _ in 0..3 {
        assert_eq!(send(signed.text.clone(), signed.signature.clone()).await.0, "worthless spent");
    }
    let more = signed.text.replace(" 1000 ", " 9000 ");
    assert_ne!(more, signed.text);
    assert_eq!(send(more, signed.signature.clone()).await.0, "worthless forged");
    let impostor = Identity::new("anna", &[9; 32]).sign(&grant("badgrant01", 1_000));
    assert_eq!(send(impostor.text, impostor.signature).await.0, "worthless forged");
    let stranger = identity("otto").sign(&Grant { from: "otto".into(), ..grant("badgrant02", 1) });
    assert_eq!(send(stranger.text, stranger.signature).await.0, "worthless unknown-signer");
    let elsewhere = anna.sign(&Grant { to: "other".into(), ..grant("badgrant03", 1_000) });
    assert_eq!(send(elsewhere.text, elsewhere.signature).await.0, "worthless not-for-this");
    let old = anna.sign(&Grant { expires_ms: now_ms() - 1, ..grant("badgrant04", 1_000) });
    assert_eq!(send(old.text, old.signature).await.0, "worthless expired");
    let large = anna.sign(&grant("badgrant05", 10_001));
    assert_eq!(send(large.text, large.signature).await.0, "worthless over-limit");
    let garbage = send("{}".into(), "zz".into()).await;
    assert_eq!(garbage.0, "worthless malformed");
    assert_eq!(there.root_pool(), before, "nothing of this cost or brought the node anything");
    // The next life of the node does not know what this one did, but the record does.
    drop(_work);
    let (again, _bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    assert_eq!(send(signed.text.clone(), signed.signature.clone()).await.0, "worthless spent");
    drop(again);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_name_cannot_stand_in_a_subject_does_not_join() {
    let server = Server::start();
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    for name in ["", "a.b", "a b", "*", ">", "a#b"] {
        let on = connect(&Config::new(server.url())).await.expect("the server");
        let joined = Node::join(Identity::new(name, &[7; 32]), runtime.clone(), Terms::default(), on).await;
        assert!(matches!(joined, Err(Error::Name { .. })), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_between_two_lives_is_spent_once_and_by_that_life_alone() {
    let server = Server::start();
    let (there, bert, work) = server_of_work(&server, 4, Pool::AMPLE).await;
    let (_here, anna) = sender("anna", &server).await;
    let client = async_nats::connect(server.url()).await.expect("the server");
    let mut seen = client.subscribe("mainspring.life.>").await.expect("the server");
    caught_up(&client).await;
    for _ in 0..2 {
        assert!(anna.actor("work").ask_outside(b"10".to_vec(), ops(1_000), LONG).await.is_ok());
    }
    let captured = tokio::time::timeout(HANGS, seen.next()).await.expect("the second names the life");
    let captured = captured.expect("a message");
    let before = there.root_pool();
    let replay = async |subject: String, change: &dyn Fn(String) -> String| {
        let mut headers = captured.headers.clone().expect("headers");
        let grant = change(headers.get(wire::GRANT).expect("a grant").as_str().to_owned());
        headers.insert(wire::GRANT, grant.as_str());
        let reply = client.request_with_headers(subject, headers, "10".into()).await.expect("a reply");
        reply.headers.expect("headers").get("Mainspring-Status").expect("a status").as_str().to_owned()
    };
    let to_life = || captured.subject.to_string();
    let same = |grant: String| grant;
    assert_eq!(replay(to_life(), &same).await, "worthless spent");
    assert_eq!(replay(wire::actor_subject("work"), &same).await, "worthless spent");
    let again = |grant: String| grant.strip_suffix(" 1 1").expect("number and recorded").to_owned() + " 9 1";
    assert_eq!(replay(to_life(), &again).await, "worthless forged");
    let unsigned = |grant: String| grant.rsplitn(5, ' ').nth(4).expect("it names two lives").to_owned();
    assert_eq!(replay(to_life(), &unsigned).await, "worthless malformed");
    assert_eq!(there.root_pool(), before, "nothing of this cost or brought the node anything");
    // The next life knows nothing of this one, and need not.
    drop((work, bert));
    let (_there, _bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    assert_eq!(replay(wire::actor_subject("work"), &same).await, "worthless not-for-this");
    // The sender finds the next life by itself, once nobody listens in any more.
    seen.unsubscribe().await.expect("the server");
    caught_up(&client).await;
    assert!(anna.actor("work").ask_outside(b"10".to_vec(), ops(1_000), LONG).await.is_ok());
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.lost.is_empty(), "{balance:?}");
    assert_eq!(Model::at_rest(&server.url()).await, Model::said(&balance));
}

/// A node that is believed, and hostile: it replies to one message to `work` with a receipt that says what `forge` makes of the grant.
async fn forging(
    server: &Server,
    queue: bool,
    forge: impl AsyncFn(&Grant) -> Receipt + Send + 'static,
) -> impl Future<Output = ()> {
    let client = async_nats::connect(server.url()).await.expect("the server");
    let subject = wire::actor_subject("work");
    let mut seen = match queue {
        true => client.queue_subscribe(subject, "actor".into()).await.expect("the server"),
        false => client.subscribe(subject).await.expect("the server"),
    };
    caught_up(&client).await;
    async move {
        let message = tokio::time::timeout(HANGS, seen.next()).await.expect("a message").expect("a message");
        let headers = message.headers.expect("headers");
        let grant = Signed::of_line(headers.get(wire::GRANT).expect("a grant").as_str());
        let signed = identity("otto").sign(&forge(&Grant::read(&grant.text).expect("a grant")).await);
        let mut answer = async_nats::HeaderMap::new();
        answer.insert("Mainspring-Status", "done");
        answer.insert(wire::RECEIPT, signed.line());
        let reply = message.reply.expect("a reply is asked for");
        client.publish_with_headers(reply, answer, "forged".into()).await.expect("the server");
        caught_up(&client).await;
    }
}

/// A node that believes two others, and only sends.
async fn believing_two(server: &Server) -> (Arc<Runtime>, Node) {
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let anna = node("anna", server, &runtime, trusting(&["anna", "bert", "otto"], Pool::AMPLE)).await;
    (runtime, anna)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_of_a_node_that_did_not_take_the_grant_brings_nothing_back() {
    let server = Server::start();
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    let (there, address) = actor(4, move |sum, cx, message| {
        while !is_open.load(Ordering::Relaxed) {
            cx.blocking(|| std::thread::sleep(Duration::from_millis(20))).expect("it may block");
        }
        work(sum, cx, message)
    });
    let bert = node("bert", &server, &there, trusting(&["anna"], Pool::AMPLE)).await;
    let _work = bert.export("work", address, 4).await.expect("it is exported");
    let (here, anna) = believing_two(&server).await;
    let before = here.root_pool().ops;
    // Otto sees the message, and says before bert does that all of it is left: bert would have used it for nothing.
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let records = Spent::open(&on).await.expect("the bucket");
    let otto = forging(&server, false, async move |grant: &Grant| {
        while records.read(&grant.id).await.expect("the server").is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Receipt { id: grant.id.clone(), by: "otto#1/0".into(), rest: grant.amount }
    });
    let (otto, work) = (otto.await, anna.actor("work"));
    let grant = Pool { syscalls: 10_000, ..ops(5_000) };
    let (reply, ()) = tokio::join!(work.ask_outside(b"1000".to_vec(), grant, LONG), otto);
    assert_eq!(reply, Err(CallError::Failed), "nobody who took the grant said this");
    open.store(true, Ordering::Relaxed);
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.lost.is_empty(), "{balance:?}");
    assert!((1_000..2_000).contains(&balance.used.ops), "{balance:?}");
    assert_eq!(here.root_pool().ops, before - balance.used.ops);
    assert_eq!(Model::at_rest(&server.url()).await, Model::said(&balance));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_whose_grant_nobody_took_is_not_believed() {
    let server = Server::start();
    let (here, anna) = believing_two(&server).await;
    let before = here.root_pool().ops;
    // Otto serves the name, takes nothing, and says that it has used half of it.
    let otto = forging(&server, true, async |grant: &Grant| Receipt {
        id: grant.id.clone(),
        by: "otto#1/0".into(),
        rest: Amount { ops: grant.amount.ops / 2, ..grant.amount },
    });
    let (otto, work) = (otto.await, anna.actor("work"));
    let (reply, ()) = tokio::join!(work.ask_outside(b"1000".to_vec(), ops(5_000), LONG), otto);
    assert_eq!(reply, Err(CallError::Failed), "nobody took the grant, so nobody did the work");
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.lost.is_empty() && balance.used.ops == 0, "{balance:?}");
    assert_eq!(here.root_pool().ops, before, "all of it is back");
    assert_eq!(Model::at_rest(&server.url()).await, Model::said(&balance));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_it_is_another_life_does_not_keep_senders_from_an_actor() {
    let server = Server::start();
    let (_here, anna) = believing_two(&server).await;
    // Otto serves the name once, takes the grant as it may, and says that it is a life of its own whose subject is bert's.
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let records = Spent::open(&on).await.expect("the bucket");
    let (told, token) = tokio::sync::oneshot::channel::<String>();
    let token = tokio::sync::Mutex::new(Some(token));
    let otto = forging(&server, true, async move |grant: &Grant| {
        let token = token.lock().await.take().expect("once").await.expect("a token");
        let by = format!("otto#{token}/0");
        let taken = Record::Taken { by: by.clone() };
        records.first(&grant.id, grant.amount, taken).await.expect("the server");
        Receipt { id: grant.id.clone(), by, rest: grant.amount }
    });
    let (otto, work) = (otto.await, anna.actor("work"));
    let client = async_nats::connect(server.url()).await.expect("the server");
    let (reply, (), ()) = tokio::join!(work.ask_outside(b"10".to_vec(), ops(1_000), LONG), otto, async {
        let _ = told.send("bertslife".into());
    });
    assert_eq!(reply, Ok(b"forged".to_vec()), "it was believed, and took it");
    // Bert's life refuses what is not for it, as it does by itself.
    let mut refused = client.subscribe("mainspring.life.>").await.expect("the server");
    caught_up(&client).await;
    tokio::spawn(async move {
        while let Some(message) = refused.next().await {
            let mut answer = async_nats::HeaderMap::new();
            answer.insert("Mainspring-Status", "worthless not-for-this");
            if let Some(reply) = message.reply {
                let _ = client.publish_with_headers(reply, answer, "".into()).await;
            }
        }
    });
    let (_there, _bert, _work) = server_of_work(&server, 4, Pool::AMPLE).await;
    let diverted = work.ask_outside(b"10".to_vec(), ops(1_000), Duration::from_secs(2)).await;
    assert_eq!(diverted, Err(CallError::Worthless(Worthless::NotForThis)));
    let next = work.ask_outside(b"10".to_vec(), ops(1_000), LONG).await;
    assert_eq!(next, Ok(b"10".to_vec()), "the next message goes to whoever serves the name");
    nothing_in_flight(&anna).await;
    assert!(anna.balance().is_conserved());
    assert_eq!(
        anna.balance().lost.values().map(|lost| lost.ops).sum::<u64>(),
        1_000,
        "nobody can say what it became"
    );
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_timeout_what_is_left_comes_back_when_it_is_known() {
    let server = Server::start();
    let slow = Arc::new(AtomicBool::new(true));
    let is_slow = slow.clone();
    let (there, address) = actor(8, move |_, cx, _| {
        while is_slow.load(Ordering::Relaxed) {
            cx.blocking(|| std::thread::sleep(Duration::from_millis(20))).expect("it may block");
        }
        Vec::new()
    });
    let bert = node("bert", &server, &there, trusting(&["anna"], Pool::AMPLE)).await;
    let _work = bert.export("work", address, 8).await.expect("it is exported");
    let (here, anna) = sender("anna", &server).await;
    let before = here.root_pool();
    let grant = Pool { ops: 100_000, spawn_count: 1, syscalls: 10_000, ..Pool::ZERO };
    let work = anna.actor("work");
    let (first, second) =
        tokio::join!(work.ask_outside(Vec::new(), grant, Duration::from_millis(700)), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            work.ask_outside(Vec::new(), grant, Duration::from_millis(400)).await
        });
    assert_eq!((first, second), (Err(CallError::TimedOut), Err(CallError::TimedOut)));
    assert!(anna.balance().is_conserved(), "{:?}", anna.balance());
    slow.store(false, Ordering::Relaxed);
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved() && balance.lost.is_empty(), "{balance:?}");
    assert_eq!(here.root_pool().ops, before.ops - balance.used.ops);
    assert_eq!(
        balance.used.spawn_count, 1,
        "the second had not begun when nobody waited any more: {balance:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_nobody_ends_and_costs_nothing() {
    let server = Server::start();
    let (here, anna) = sender("anna", &server).await;
    let before = here.root_pool();
    let reply = anna.actor("nobody").ask_outside(Vec::new(), ops(10), Duration::from_millis(200)).await;
    assert_eq!(reply, Err(CallError::NoActor));
    nothing_in_flight(&anna).await;
    assert_eq!(here.root_pool(), before);
    assert_eq!(anna.actor("a.b").ask_unpaid(Vec::new(), LONG).await, Err(CallError::NoActor));
    assert!(
        anna.actor("work").ask_outside(Vec::new(), Pool { ops: u64::MAX, ..Pool::ZERO }, LONG).await.is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_grant_are_paid_by_the_actors_node() {
    let server = Server::start();
    let (there, _bert, _work) = server_of_work(&server, 4, Pool::ZERO).await;
    let (here, anna) = sender("anna", &server).await;
    let (before, there_before) = (here.root_pool(), there.root_pool());
    assert_eq!(anna.actor("work").ask_unpaid(b"1000".to_vec(), LONG).await, Ok(b"1000".to_vec()));
    assert_eq!(here.root_pool(), before);
    let used = there_before.ops - there.root_pool().ops;
    assert!((1_000..1_200).contains(&used), "{used}");
    let paid = anna.actor("work").ask_outside(b"1".to_vec(), ops(10), LONG).await;
    assert_eq!(paid, Err(CallError::Worthless(Worthless::OverLimit)), "it believes nobody for anything");
}

/// A node in a process of its own, which can be killed.
fn child(name: &str, server: &Server) -> Process {
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_mainspring-cluster"))
        .with_file_name("examples")
        .join("node");
    let mut command = Command::new(path);
    command.args([
        name,
        &hex(&secret(name)),
        &server.url(),
        "8",
        &format!("anna={}", hex(&identity("anna").public())),
    ]);
    let mut process =
        Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut line = String::new();
    let out = process.0.stdout.as_mut().expect("its output");
    std::io::BufReader::new(out).read_line(&mut line).expect("it says that it is ready");
    assert_eq!(line, "ready\n");
    process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_nodes_and_servers_neither_make_nor_lose_budget_unaccounted() {
    let rounds: u32 =
        std::env::var("MAINSPRING_CHAOS_ROUNDS").map_or(4, |text| text.parse().expect("a number"));
    let mut server = Server::start();
    let (here, anna) = sender("anna", &server).await;
    let before = here.root_pool();
    let mut nodes = vec![child("bert", &server), child("bert", &server)];
    let (stop, replies) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let senders: Vec<_> = (0..6_u64)
        .map(|n| {
            let (work, stop, replies) = (anna.actor("work"), stop.clone(), replies.clone());
            tokio::spawn(async move {
                let mut turn = n;
                let mut outcomes: HashMap<&str, u32> = HashMap::new();
                while !stop.load(Ordering::Relaxed) {
                    turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (uses, has) = (turn >> 33 & 0xFFFF, turn >> 40 & 0xFFFF);
                    let asked =
                        work.ask_outside(uses.to_string().into(), ops(has + 1), Duration::from_secs(2)).await;
                    let outcome = match asked {
                        Ok(_) => "replied",
                        Err(CallError::Exhausted(_)) => "exhausted",
                        Err(CallError::TimedOut) => "timed out",
                        Err(_) => "refused",
                    };
                    *outcomes.entry(outcome).or_default() += 1;
                    replies.fetch_add(u64::from(outcome == "replied"), Ordering::Relaxed);
                }
                outcomes
            })
        })
        .collect();
    for round in 0..rounds {
        let target = replies.load(Ordering::Relaxed) + 30;
        until("calls go on", || replies.load(Ordering::Relaxed) >= target);
        if round % 4 == 3 {
            server.kill();
            tokio::time::sleep(Duration::from_millis(200)).await;
            server.restart();
        } else {
            nodes.remove(0).kill();
            nodes.push(child("bert", &server));
        }
    }
    let target = replies.load(Ordering::Relaxed) + 30;
    until("calls go on", || replies.load(Ordering::Relaxed) >= target);
    stop.store(true, Ordering::Relaxed);
    let mut outcomes = Vec::new();
    for sender in senders {
        outcomes.push(sender.await.expect("it ends"));
    }
    nothing_in_flight(&anna).await;
    let balance = anna.balance();
    assert!(balance.is_conserved(), "{balance:?}");
    let said = Model::said(&balance);
    assert_eq!(here.root_pool().ops, before.ops - said.used - said.lost, "{outcomes:?}");
    assert_eq!(Model::at_rest(&server.url()).await, said, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_message_is_handled_again_after_a_crash_with_the_same_id() {
    let mut server = Server::start();
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let mail = DurableMailbox::open(&on, "log", 3).await.expect("a mailbox");
    for id in ["one", "two", "three"] {
        mail.tell(id, id.into(), LONG).await.expect("there is room");
    }
    mail.tell("three", "three".into(), LONG).await.expect("it is there already, once");
    assert_eq!(mail.len().await.expect("the server"), 3);
    let full = mail.tell("four", "four".into(), Duration::from_millis(300)).await;
    assert_eq!(full, Err(CallError::Busy), "it has room for three");
    // What the server has taken survives its end.
    server.kill();
    server.restart();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let crash = Arc::new(AtomicBool::new(true));
    let serve = async |crashes: bool| {
        let (seen, crash) = (handled.clone(), crash.clone());
        let (runtime, address) = actor(2, move |_, cx, message| {
            seen.lock().expect("no panic").push(message.id.clone());
            // Its node dies in the middle of the second, for all that the server knows.
            while crashes && message.id == "two" && crash.load(Ordering::Relaxed) {
                cx.blocking(|| std::thread::sleep(Duration::from_millis(20))).expect("it may block");
            }
            Vec::new()
        });
        let bert = node(
            "bert",
            &server,
            &runtime,
            Terms { unpaid: Pool { syscalls: 100_000, ..Terms::default().unpaid }, ..Terms::default() },
        )
        .await;
        (mail.serve(&bert, address).await.expect("it serves"), bert)
    };
    let (first, _first_node) = serve(true).await;
    until("the second is under way", || handled.lock().expect("no panic").iter().any(|id| id == "two"));
    drop(first);
    let (_second, _second_node) = serve(false).await;
    until("all are handled", || handled.lock().expect("no panic").iter().any(|id| id == "three"));
    let waited = tokio::time::timeout(HANGS, async {
        while !mail.is_empty().await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.expect("it is emptied");
    crash.store(false, Ordering::Relaxed);
    assert_eq!(*handled.lock().expect("no panic"), ["one", "two", "two", "three"]);
}
