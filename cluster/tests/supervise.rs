//! Supervised actors of several nodes, over a real server.

mod common;

use common::members::{Driver, child, member, spec, trusting_all};
use common::{HANGS, Server, identity, run, text, until};
use mainspring::Profile;
use mainspring::supervisor::Strategy;
use mainspring_cluster::supervise::state::{BUCKET, Fenced, SaveError};
use mainspring_cluster::supervise::{
    Capacity, Group, Handler, Kinds, Member, MemberConfig, Place, Spec, Stage,
};
use mainspring_cluster::{CallError, Config, DurableMailbox, Error, Node, connect, wire};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LEASE_MS: u64 = 1_500;

fn all_run(group: &Group) -> bool {
    group.states.iter().all(|state| matches!(state.stage, Stage::Running(_)))
}

/// A member of this process.
async fn member_here(name: &str, server: &Server, percent: u32, kinds: Kinds) -> Member {
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let node = Node::join(identity(name), runtime, trusting_all(), on).await.expect("a node");
    let capacity = Capacity { cpus: 1, floor_ppm: 1_000_000 - percent * 10_000, memory: 0 };
    let config = MemberConfig { lease: Duration::from_secs(3), capacity, kinds };
    Member::join(&node, config).await.expect("it joins")
}

/// Replies its generation.
fn generation(place: Place) -> Handler {
    Box::new(move |_, _| format!("x {} 0 0 0", place.generation()).into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_actor_of_a_killed_node_goes_on_elsewhere_with_its_state() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let mut nodes =
        [("a", member("a", &server.url(), LEASE_MS, 90)), ("b", member("b", &server.url(), LEASE_MS, 90))];
    driver.supervise("g", spec(Strategy::OneForOne, vec![child("sum", "sum", "", 10)])).await;
    let mut last = driver.insist("g/sum", "1 10").await;
    assert_eq!((last.generation, last.sum), (1, 10));
    for round in 2..4 {
        let (_, process) = nodes.iter_mut().find(|(name, _)| *name == last.node).expect("one of them");
        process.kill();
        let reply = driver.insist("g/sum", &format!("{round} 10")).await;
        assert_eq!((reply.generation, reply.sum), (last.generation + 1, last.sum + 10));
        assert_ne!(reply.node, last.node);
        if round == 2 {
            // The node that was killed comes back, and waits for its own lease.
            let (name, process) = nodes.iter_mut().find(|(name, _)| *name == last.node).expect("one of them");
            *process = member(name, &server.url(), LEASE_MS, 90);
        }
        last = reply;
    }
    assert_eq!(driver.group("g").await.restarts, 2);
    // An id that was added is not added again.
    assert_eq!(driver.insist("g/sum", "3 10").await.sum, last.sum);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_stopped_for_too_long_neither_answers_nor_writes() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let a = member("a", &server.url(), LEASE_MS, 90);
    driver.supervise("g", spec(Strategy::OneForOne, vec![child("sum", "sum", "", 10)])).await;
    assert_eq!(driver.insist("g/sum", "1 10").await.node, "a");
    let _b = member("b", &server.url(), LEASE_MS, 90);
    a.signal(Signal::STOP);
    let reply = driver.insist("g/sum", "2 10").await;
    assert_eq!((reply.node.as_str(), reply.generation, reply.sum), ("b", 2, 20));
    // What is sent to the first generation waits for it at the server.
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Mainspring-Generation", "1");
    let request = async_nats::Request::new().headers(headers).payload("3 10".into()).timeout(Some(HANGS));
    let stale = tokio::spawn({
        let client = driver.on.client.clone();
        async move { client.send_request(wire::supervised_subject("g/sum", 1), request).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    a.signal(Signal::CONT);
    // It refuses, or its process has ended and nobody answers.
    if let Ok(Ok(Ok(reply))) = tokio::time::timeout(Duration::from_secs(10), stale).await {
        let status = reply.headers.as_ref().and_then(|headers| headers.get("Mainspring-Status"));
        assert_eq!(status.map(|status| status.as_str()), Some("superseded"));
    }
    let reply = driver.insist("g/sum", "3 1").await;
    assert_eq!((reply.generation, reply.sum), (2, 21), "the stale one has added nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_generation_writes_is_refused_by_the_server() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    // The bucket is made by the first member.
    let _member = member_here("a", &server, 90, Kinds::new()).await;
    let store = driver.on.jetstream.get_key_value(BUCKET).await.expect("the bucket");
    let (mut first, saved) = Fenced::take_over(store.clone(), "g/x", 1).await.expect("it is free");
    assert_eq!(saved, None);
    first.save(b"one").await.expect("it is saved");
    let (mut second, saved) = Fenced::take_over(store.clone(), "g/x", 2).await.expect("it is next");
    assert_eq!(saved.as_deref(), Some(&b"one"[..]));
    assert!(matches!(first.save(b"late").await, Err(SaveError::Superseded)));
    second.save(b"two").await.expect("it is saved");
    assert!(matches!(first.save(b"later").await, Err(SaveError::Superseded)));
    assert!(matches!(Fenced::take_over(store.clone(), "g/x", 1).await, Err(SaveError::Superseded)));
    let (_, saved) = Fenced::take_over(store, "g/x", 3).await.expect("it is next");
    assert_eq!(saved.as_deref(), Some(&b"two"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_the_server_does_not_keep_is_not_saved_and_the_actor_is_told_why() {
    let config = "max_payload: 65536\njetstream { max_file_store: 256KB }";
    let server = Server::with(Some(config), &[]);
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let _member = member_here("a", &server, 90, Kinds::new()).await;
    let store = on.jetstream.get_key_value(BUCKET).await.expect("the bucket");
    let (mut state, _) = Fenced::take_over(store.clone(), "g/x", 1).await.expect("it is free");
    state.save(b"small").await.expect("it is saved");
    assert!(matches!(state.save(&[b'x'; 65_536]).await, Err(SaveError::TooLarge)));
    // Others have filled the server.
    let others = DurableMailbox::open(&on, "others", 1_000_000).await.expect("there is room for one more");
    for n in 0.. {
        let told = others.tell(&n.to_string(), vec![b'x'; 8 << 10], Duration::from_secs(1)).await;
        if let Err(full) = told {
            assert_eq!(full, CallError::StorageFull);
            break;
        }
    }
    assert!(matches!(state.save(&[b'x'; 16 << 10]).await, Err(SaveError::StorageFull)));
    on.jetstream.delete_stream("mainspring-mail-others").await.expect("the server");
    state.save(b"later").await.expect("there is room again, and nobody has taken over");
    let (_, saved) = Fenced::take_over(store, "g/x", 2).await.expect("it is next");
    assert_eq!(saved.as_deref(), Some(&b"later"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_carry_actors_takes_none() {
    let server = Server::start();
    let config = mainspring::Config::new(Profile::Service).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let node = Node::join(identity("a"), runtime, trusting_all(), on).await.expect("a node");
    let capacity = Capacity { cpus: 1, floor_ppm: 100_000, memory: 0 };
    let config = MemberConfig { lease: Duration::from_secs(3), capacity, kinds: Kinds::new() };
    let joined = tokio::time::timeout(HANGS, Member::join(&node, config)).await.expect("it ends");
    assert!(matches!(joined, Err(Error::NoHost)), "{joined:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_of_one_name_the_second_does_not_join() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let a = member("a", &server.url(), LEASE_MS, 90);
    driver.supervise("g", spec(Strategy::OneForOne, vec![child("sum", "sum", "", 10)])).await;
    assert_eq!(driver.insist("g/sum", "1 10").await.node, "a");
    let config = mainspring::Config::new(Profile::Cluster).workers(1);
    let runtime = Arc::new(config.build().expect("a runtime"));
    let on = connect(&Config::new(server.url())).await.expect("the server");
    let node = Node::join(identity("a"), runtime, trusting_all(), on).await.expect("a node");
    let config = || MemberConfig {
        lease: Duration::from_millis(LEASE_MS),
        capacity: Capacity { cpus: 1, floor_ppm: 100_000, memory: 0 },
        kinds: Kinds::new(),
    };
    let joined = tokio::time::timeout(HANGS, Member::join(&node, config())).await.expect("it ends");
    match joined {
        Err(Error::NameTaken { name }) => assert_eq!(name, "a"),
        other => panic!("{other:?}"),
    }
    let reply = driver.insist("g/sum", "2 10").await;
    assert_eq!((reply.generation, reply.sum), (1, 20), "the first was not disturbed");
    // When that has gone, the name is free.
    drop(a);
    let joined = tokio::time::timeout(HANGS, Member::join(&node, config())).await.expect("it ends");
    joined.expect("it joins").leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_waits_until_a_node_can_carry_it() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let kinds = || Kinds::new().with("x", generation);
    let a = member_here("a", &server, 60, kinds()).await;
    let children = vec![child("one", "x", "", 40), child("two", "x", "", 40), child("other", "y", "", 1)];
    driver.supervise("g", spec(Strategy::OneForOne, children)).await;
    driver.insist("g/one", "").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(driver.group("g").await.states[1].stage, Stage::Wanted, "there is no room for it");
    let b = member_here("b", &server, 60, kinds()).await;
    driver.insist("g/two", "").await;
    let group = driver.group("g").await;
    assert_eq!(group.states[1].stage.at().map(|at| at.node.as_str()), Some("b"));
    assert_eq!(group.states[2].stage, Stage::Wanted, "nobody starts this kind");
    let view = b.view();
    assert!(view.loads.values().all(|load| load.value.is_admitted() && load.value.reserved.len() == 1));
    // A node that leaves does not make others wait for its lease; its child waits for room.
    a.leave().await;
    let group = driver.until_group("g", |group| group.states[0].stage == Stage::Wanted).await;
    assert_eq!(group.restarts, 1);
    let _c = member_here("c", &server, 60, kinds()).await;
    assert_eq!(driver.insist("g/one", "").await.generation, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_child_fails_too_often_gives_up_and_stops_all() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let lives = Arc::new(AtomicU64::new(0));
    let counted = lives.clone();
    let kinds = Kinds::new().with("x", generation).with("fails", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::new(|_, _| panic!("as it should"))
    });
    let _a = member_here("a", &server, 90, kinds).await;
    let children = vec![child("good", "x", "", 10), child("bad", "fails", "", 10)];
    let spec = Spec { most: 2, within_ms: 600_000, ..spec(Strategy::OneForOne, children) };
    driver.supervise("g", spec).await;
    driver.insist("g/good", "").await;
    let waited = tokio::time::timeout(HANGS, async {
        while driver.group("g").await.gave_up.is_none() {
            assert!(driver.ask("g/bad", "").await.is_err());
        }
    });
    waited.await.expect("it gives up");
    let group =
        driver.until_group("g", |group| group.states.iter().all(|state| state.stage == Stage::Done)).await;
    assert_eq!((group.restarts, group.gave_up.as_deref()), (2, Some("bad")));
    assert_eq!(lives.load(Ordering::Relaxed), 3);
    assert!(driver.ask("g/good", "").await.is_err(), "it has stopped, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_depend_on_a_lost_actor_begin_again_after_it() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let mut nodes = ["a", "b", "c"].map(|name| (name, member(name, &server.url(), LEASE_MS, 90)));
    let children = vec![
        child("first", "sum", "", 50),
        child("second", "sum", "", 50),
        child("relay", "relay", "g/first", 50),
    ];
    driver.supervise("g", spec(Strategy::RestForOne, children)).await;
    let group = driver.until_group("g", all_run).await;
    let nodes_of = |group: &Group| -> Vec<String> {
        group.states.iter().filter_map(|state| Some(state.stage.at()?.node.clone())).collect()
    };
    let placed = nodes_of(&group);
    let mut distinct = placed.clone();
    distinct.sort_unstable();
    assert_eq!(distinct, ["a", "b", "c"], "each node carries one");
    assert_eq!(driver.insist("g/relay", "1 21").await.sum, 42, "one actor asks another, across nodes");
    let (_, process) = nodes.iter_mut().find(|(name, _)| *name == placed[1]).expect("one of them");
    process.kill();
    // No node carries two: the second begins where the third was, which has stopped for that and waits for room.
    let group = driver
        .until_group("g", |group| {
            matches!(group.states[1].stage, Stage::Running(_)) && group.states[2].stage == Stage::Wanted
        })
        .await;
    assert_eq!(group.states.iter().map(|state| state.generation).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(nodes_of(&group)[1], placed[2]);
    let (name, process) = nodes.iter_mut().find(|(name, _)| *name == placed[1]).expect("one of them");
    *process = member(name, &server.url(), LEASE_MS, 90);
    let group = driver.until_group("g", all_run).await;
    assert_eq!(group.states.iter().map(|state| state.generation).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(group.restarts, 1);
    assert_eq!(driver.insist("g/relay", "2 1").await.sum, 44);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_and_the_page_show_nodes_actors_budgets_and_restarts() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let a = member_here("a", &server, 60, Kinds::new().with("x", generation)).await;
    driver.supervise("g", spec(Strategy::OneForOne, vec![child("x", "x", "", 25)])).await;
    driver.insist("g/x", "").await;
    a.leave().await;
    let _b = member_here("b", &server, 80, Kinds::new().with("x", generation)).await;
    assert_eq!(driver.insist("g/x", "").await.generation, 2);
    let page = server.folder.0.join("page.html");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mainspring-cluster"));
    let told = run(command.args(["status", "--nats", &server.url(), "--html"]).arg(&page));
    assert!(told.status.success(), "{}", text(&told.stderr));
    let told = text(&told.stdout);
    let row = |name: &str| -> Vec<String> {
        let line = told.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {told}")).split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("a")[1..3], ["1", "ended"], "{told}");
    assert_eq!(row("b")[1..3], ["1", "live"], "{told}");
    assert_eq!(row("b")[8..], ["1", "25.0", "%", "80.0", "%", "1"], "{told}");
    assert_eq!(row("g/x")[1..], ["x", "runs", "b", "2", "1", "25.0", "%"], "{told}");
    assert_eq!(row("g")[1..3], ["OneForOne", "1"], "{told}");
    assert!(told.contains("Budgets, in ops") && told.contains("settled"), "{told}");
    let page = std::fs::read_to_string(page).expect("the page");
    for cell in ["<td class=\"left\">g/x</td>", "<td>runs</td>", "<td>80.0 %</td>", "Content-Security-Policy"]
    {
        assert!(page.contains(cell), "{cell}");
    }
    assert!(!page.contains("{{") && !page.contains("<script"), "every slot is filled, and nothing runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_superseded_actor_asks_is_refused() {
    let server = Server::start();
    let driver = Driver::join(&server.url()).await;
    let _a = member_here("a", &server, 90, Kinds::new().with("x", generation)).await;
    driver.supervise("g", spec(Strategy::OneForOne, vec![child("x", "x", "", 10)])).await;
    driver.insist("g/x", "").await;
    let asks = async |from: &str| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Mainspring-Generation", "1");
        headers.insert("Mainspring-From", from);
        let client = &driver.on.client;
        let reply = client.request_with_headers(wire::supervised_subject("g/x", 1), headers, "".into()).await;
        let reply = reply.expect("a reply").headers.expect("headers");
        reply.get("Mainspring-Status").expect("a status").as_str().to_owned()
    };
    assert_eq!(asks("g/x 1").await, "done");
    assert_eq!(asks("g/x 0").await, "superseded");
    until("nothing is left", || driver.node.balance().grants_in_flight == 0);
}
