//! Without a server, or with one that does not fit: a typed error, and nothing hangs.

mod common;

use common::{HANGS, Server, free_port, identity, mainspring, run, text};
use mainspring_cluster::{Config, Error, Node, Terms, connect};
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
async fn somebody_who_listens_and_says_nothing_is_no_server() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("nats://{}", listener.local_addr().expect("its address"));
    let refused = tokio::time::timeout(HANGS, refused(&url)).await.expect("it does not hang");
    assert!(matches!(refused, Error::NoServer { .. }), "{refused:?}");
}

/// A certificate for loopback, and its key.
fn certificate(folder: &std::path::Path) -> [std::path::PathBuf; 2] {
    let paths = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    let mut command = std::process::Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = run(command.arg("-out").arg(&paths[0]).arg("-keyout").arg(&paths[1]));
    assert!(made.status.success(), "{}", text(&made.stderr));
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_node_joins_whoever_has_the_authority_and_nobody_else_does() {
    let folder = common::Folder::new();
    let [certificate, key] = certificate(&folder.0);
    let config =
        format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", certificate.display(), key.display());
    let server = Server::with(Some(&config), &["--jetstream"]);
    let with = |tls_ca| Config { tls_ca, ..Config::new(server.url()) };
    assert!(matches!(connect(&with(None)).await, Err(Error::Tls { .. })), "nobody vouches for it");
    let [stranger, _] = self::certificate(&server.folder.0);
    assert!(matches!(connect(&with(Some(stranger))).await, Err(Error::Tls { .. })), "another one does");
    let on = connect(&with(Some(certificate.clone()))).await.expect("this one does");
    // Its second connection, which the runtime drives, has what the first one has.
    let config = mainspring::Config::new(mainspring::Profile::Cluster).workers(1);
    let runtime = std::sync::Arc::new(config.build().expect("a runtime"));
    Node::join(identity("a"), runtime, Terms::default(), on).await.expect("a node");
    // And a server without TLS is not taken for one with it.
    let plain = Server::start();
    let with_tls = Config { tls_ca: Some(certificate), ..Config::new(plain.url()) };
    let refused = connect(&with_tls).await;
    assert!(matches!(refused, Err(Error::Tls { .. })), "{refused:?}");
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
