//! Without a server, or with one that does not fit: a typed error, and nothing hangs.

mod common;

use common::{Server, free_port, mainspring, run, text};
use mainspring_cluster::{Config, Error, connect};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};

async fn refused(url: &str) -> Error {
    match connect(&Config::new(url)).await {
        Ok(_) => panic!("{url} was accepted"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn no_server_is_said_at_once() {
    let url = format!("nats://127.0.0.1:{}", free_port());
    assert!(matches!(refused(&url).await, Error::NoServer { .. }));
    let swept = run(mainspring().args(["sweep", "workloads/tour.toml", "--nats", &url]));
    assert_eq!(swept.status.code(), Some(2));
    let told = text(&swept.stderr);
    assert!(told.contains("no NATS server answers") && told.contains("help: "), "{told}");
    let worker = run(mainspring().args(["worker", "--nats", &url]));
    assert_eq!(worker.status.code(), Some(2));
    assert!(text(&worker.stderr).contains("no NATS server answers"));
}

#[tokio::test]
async fn what_is_no_address_is_said() {
    assert!(matches!(refused("nats://[").await, Error::Address { .. }));
}

#[tokio::test]
async fn wrong_credentials_are_said() {
    let server = Server::with(None, &["--jetstream", "--user", "anna", "--pass", "right"]);
    let with = |who: &str| format!("nats://{who}@127.0.0.1:{}", server.port);
    assert!(matches!(refused(&with("anna:wrong")).await, Error::Credentials { .. }));
    assert!(matches!(refused(&server.url()).await, Error::Credentials { .. }));
    connect(&Config::new(with("anna:right"))).await.expect("the right ones are accepted");
}

#[tokio::test]
async fn files_of_credentials_that_are_not_there_are_said() {
    let server = Server::start();
    let absent = server.folder.0.join("absent");
    let creds = Config { creds: Some(absent.clone()), ..Config::new(server.url()) };
    assert!(matches!(connect(&creds).await, Err(Error::CredentialsFile(_))));
    let ca = Config { tls_ca: Some(absent), ..Config::new(server.url()) };
    assert!(matches!(connect(&ca).await, Err(Error::CredentialsFile(_))));
}

#[tokio::test]
async fn a_server_that_keeps_nothing_is_said() {
    let server = Server::with(None, &[]);
    assert!(matches!(refused(&server.url()).await, Error::NoJetStream));
}

#[tokio::test]
async fn an_older_server_is_said() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its address").port();
    // Says that it is old, and answers pings, as such a server would.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let info = r#"{"server_id":"X","version":"2.1.9","go":"go1","host":"127.0.0.1","port":4222,"max_payload":1048576,"proto":1,"headers":true}"#;
        write!(stream, "INFO {info}\r\n").expect("it reads");
        let lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
        for line in lines.map_while(Result::ok) {
            if line.starts_with("PING") && stream.write_all(b"PONG\r\n").is_err() {
                break;
            }
        }
    });
    match refused(&format!("nats://127.0.0.1:{port}")).await {
        Error::ServerVersion { found } => assert_eq!(found, "2.1.9"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_without_room_is_said() {
    let server = Server::with(Some("jetstream { max_file_store: 64KB }"), &[]);
    let mut command = mainspring();
    command.args(["sweep", "workloads/tour.toml", "--seeds", "1..4000", "--nats", &server.url()]);
    let swept = run(&mut command);
    assert_eq!(swept.status.code(), Some(2));
    assert!(text(&swept.stderr).contains("no room left"), "{}", text(&swept.stderr));
}

#[test]
fn without_the_program_that_talks_to_servers_it_is_said_how_to_get_it() {
    let alone = common::Folder::new();
    let mut found = mainspring();
    let program = alone.0.join("mainspring");
    std::fs::copy(found.get_program(), &program).expect("a copy");
    for words in [
        &["worker"][..],
        &["cluster", "status"],
        &["sweep", "workloads/tour.toml", "--nats", "nats://127.0.0.1:1"],
    ] {
        let told = run(found_at(&mut found, &program).args(words));
        assert_eq!(told.status.code(), Some(2), "{words:?}");
        assert!(text(&told.stderr).contains("make install-cluster"), "{}", text(&told.stderr));
    }
}

fn found_at(like: &mut std::process::Command, program: &std::path::Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env("PATH", "/nowhere");
    if let Some(folder) = like.get_current_dir() {
        command.current_dir(folder);
    }
    command
}
