//! Sweeps over a real server, with workers and servers that are killed.

mod common;

use common::{Process, Server, finish, mainspring, run, text, until};
use futures_util::StreamExt as _;
use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const FILE: &str = "workloads/robot-control.toml";

fn worker(server: &Server) -> Process {
    let mut command = mainspring();
    command.args(["worker", "--nats", &server.url(), "--jobs", "1"]);
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn sweep(words: &[&str]) -> Command {
    let mut command = mainspring();
    command.args(["sweep", FILE, "--duration", "40ms", "--set", "context.camera.budget=6ms,8ms"]).args(words);
    command
}

fn over(server: &Server, words: &[&str]) -> Command {
    let mut command = sweep(words);
    command.args(["--nats", &server.url(), "--nats-option=--patience=1"]);
    command
}

fn same(one_host: &Output, many: &Output) {
    assert!(!one_host.stdout.is_empty(), "{}", text(&one_host.stderr));
    assert_eq!(text(&one_host.stdout), text(&many.stdout), "{}", text(&many.stderr));
    assert_eq!(one_host.status.code(), many.status.code(), "{}", text(&many.stderr));
}

#[test]
fn workers_make_the_same_table_as_one_host_bit_for_bit() {
    let server = Server::start();
    let _workers = [worker(&server), worker(&server)];
    for form in ["text", "json"] {
        let words = ["--seeds", "1..30", "--report", form];
        same(&run(&mut sweep(&words)), &run(&mut over(&server, &words)));
    }
}

/// The processes that make a worker's runs.
fn runners(worker: &Process) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", worker.0.id())).expect("its threads");
    let children =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    children.collect::<String>().split_whitespace().map(str::to_owned).collect()
}

fn kill_runners(worker: &Process) {
    for runner in runners(worker) {
        let killed = Command::new("kill").args(["-9", &runner]).status().expect("kill runs");
        assert!(killed.success());
    }
}

#[test]
fn killed_workers_and_servers_lose_nothing_and_count_nothing_twice() {
    let rounds: usize =
        std::env::var("MAINSPRING_CHAOS_ROUNDS").map_or(4, |text| text.parse().expect("a number"));
    // Each of the three once at least, and no more than the sweep on one host can keep up with.
    let rounds = rounds.clamp(3, 30);
    let mut server = Server::start();
    let saved = server.folder.0.join("saved.jsonl");
    let saved_name = saved.display().to_string();
    let seeds = format!("1..{}", rounds * 50);
    let words = ["--seeds", seeds.as_str()];
    let mut swept = over(&server, &[&words[..], &["--save", &saved_name]].concat());
    let swept = Process::start(swept.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let lines = || std::fs::read_to_string(&saved).map_or(0, |text| text.lines().count());
    let mut workers = vec![worker(&server), worker(&server)];
    for round in 1..=rounds {
        // Each kill comes while runs are under way: some are done, and some are not.
        until("results come", || lines() >= round * 60);
        match round % 3 {
            0 => {
                // A worker that finds no server when it starts says so and ends. One that makes runs has found it.
                let all_work = || workers.iter().all(|worker| !runners(worker).is_empty());
                until("all workers make runs", || all_work() || lines() == rounds * 100);
                server.kill();
                server.restart();
            }
            1 => {
                workers.remove(0).kill();
                workers.push(worker(&server));
            }
            _ => kill_runners(&workers[0]),
        }
    }
    let swept = finish(swept);
    same(&run(&mut sweep(&words)), &swept);
    let mut count: HashMap<String, u32> = HashMap::new();
    for line in std::fs::read_to_string(&saved).expect("what was saved").lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a result");
        *count.entry(format!("{} {}", line["settings"], line["seed"])).or_default() += 1;
    }
    assert_eq!(count.len(), rounds * 100);
    assert!(count.values().all(|times| *times == 1), "{count:?}");
}

#[test]
fn a_result_that_comes_again_counts_once() {
    let server = Server::start();
    let url = server.url();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    // Everything that a worker answers is said three times, without the id by which the server would know it again.
    let echo = runtime.spawn(async move {
        let client = async_nats::connect(url).await.expect("the server");
        let mut results = client.subscribe("mainspring.sweep.result.>").await.expect("results");
        while let Some(result) = results.next().await {
            let is_workers =
                result.headers.as_ref().is_some_and(|headers| headers.get("Nats-Msg-Id").is_some());
            for _ in 0..if is_workers { 2 } else { 0 } {
                client.publish(result.subject.clone(), result.payload.clone()).await.expect("it is sent");
            }
        }
    });
    let _worker = worker(&server);
    let words = ["--seeds", "1..20"];
    same(&run(&mut sweep(&words)), &run(&mut over(&server, &words)));
    assert!(!echo.is_finished());
    echo.abort();
}

#[test]
fn results_that_differ_are_an_error() {
    let server = Server::start();
    let url = server.url();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let liar = runtime.spawn(async move {
        let client = async_nats::connect(url).await.expect("the server");
        let mut results = client.subscribe("mainspring.sweep.result.>").await.expect("results");
        while let Some(result) = results.next().await {
            if result.headers.is_some_and(|headers| headers.get("Nats-Msg-Id").is_some()) {
                let lie = text(&result.payload).replacen("\"misses\":", "\"misses\":1", 1);
                client.publish(result.subject, lie.into()).await.expect("it is sent");
            }
        }
    });
    let _worker = worker(&server);
    let swept = run(&mut over(&server, &["--seeds", "1..40"]));
    liar.abort();
    assert_eq!(swept.status.code(), Some(2));
    assert!(text(&swept.stderr).contains("two runs of it have different results"), "{}", text(&swept.stderr));
}

#[test]
fn the_records_of_the_worst_runs_come_back() {
    let server = Server::start();
    let _worker = worker(&server);
    let (here, there) = (server.folder.0.join("here"), server.folder.0.join("there"));
    let at = |folder: &std::path::Path| {
        ["--seeds".to_owned(), "1..10".into(), "--records".into(), folder.display().to_string()]
    };
    let one_host = run(sweep(&[]).args(at(&here)));
    let many = run(over(&server, &[]).args(at(&there)));
    same(&one_host, &many);
    let files = |folder: &std::path::Path| {
        let names = std::fs::read_dir(folder).expect("records").map(|file| file.expect("a file").path());
        let mut files: Vec<_> = names
            .map(|path| (path.file_name().map(ToOwned::to_owned), std::fs::read(&path).expect("a record")))
            .collect();
        files.sort();
        files
    };
    let (here_files, there_files) = (files(&here), files(&there));
    assert_eq!(here_files.len(), 2);
    assert_eq!(here_files, there_files, "a record is a function of the workload and the seed");
    let replayed =
        run(mainspring().arg("replay").arg(there.join(there_files[0].0.as_ref().expect("a name"))));
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
}

#[test]
fn a_run_that_fails_on_a_worker_fails_as_it_does_here() {
    let server = Server::start();
    let _worker = worker(&server);
    let words = ["--seeds", "1..20", "--fail-on", "misses", "--set", "context.camera.budget=1ms"];
    same(&run(&mut sweep(&words)), &run(&mut over(&server, &words)));
}

#[test]
fn another_version_is_refused_and_not_run() {
    use std::io::Write as _;
    let mut command = mainspring();
    let mut runner =
        command.arg("sweep-runner").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let text_of = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/tour.toml"))
        .expect("a workload");
    let workload = serde_json::json!({ "workload": { "of": "0123456789abcdef", "name": "tour", "fail_on": null, "text": text_of } });
    let job = serde_json::json!({ "run": { "of": "0123456789abcdef", "seed": 1 } });
    let mut asks = runner.stdin.take().expect("its input");
    writeln!(asks, "{workload}\n{job}").expect("it reads");
    drop(asks);
    let told = text(&finish(Process(runner)).stdout);
    let mut lines = told.lines();
    assert!(
        lines.next().is_some_and(|line| line.contains("refused") && line.contains("another version")),
        "{told}"
    );
    assert!(lines.next().is_some_and(|line| line.contains("failed")), "{told}");
}

/// A runner that refuses each workload, as a `mainspring` of another version does.
fn other_version(server: &Server) -> std::path::PathBuf {
    let path = server.folder.0.join("other-version");
    let script = "#!/bin/sh\nwhile read -r ask; do echo '{\"refused\":\"it is of another version\"}'; done\n";
    std::fs::write(&path, script).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("it is ours");
    path
}

#[test]
fn a_sweep_whose_workers_are_all_of_another_version_says_so_and_ends() {
    let server = Server::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainspring-cluster"));
    command.args(["worker", "--nats", &server.url(), "--jobs", "1", "--mainspring"]);
    command.arg(other_version(&server)).stdout(Stdio::null()).stderr(Stdio::null());
    let other = Process::start(&mut command);
    let swept = run(over(&server, &["--seeds", "1..3"]).arg("--nats-option=--give-up=5"));
    assert_eq!(swept.status.code(), Some(2));
    assert!(text(&swept.stderr).contains("of this version"), "{}", text(&swept.stderr));
    // Beside one of this version they harm nothing.
    let _worker = worker(&server);
    let words = ["--seeds", "1..10"];
    same(&run(&mut sweep(&words)), &run(&mut over(&server, &words)));
    drop(other);
}

/// What the server has of one kind of messages of sweeps, as it comes.
async fn watch(url: &str, kind: &str) -> (async_nats::Client, async_nats::Subscriber) {
    let client = async_nats::connect(url).await.expect("the server");
    let seen = client.subscribe(format!("mainspring.sweep.{kind}.>")).await.expect("the server");
    client.flush().await.expect("the server");
    (client, seen)
}

fn read(message: &async_nats::Message) -> serde_json::Value {
    serde_json::from_slice(&message.payload).expect("it is ours")
}

/// The subject of the results of the sweep that a message is of.
fn results_of(message: &async_nats::Message) -> String {
    message.subject.replacen(".job.", ".result.", 1)
}

#[test]
fn a_result_that_cannot_be_read_ends_the_sweep_and_does_not_hang_it() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    for line in [serde_json::json!({}), serde_json::json!({ "of": "x", "seed": 1 }), serde_json::json!(7)] {
        let (client, mut jobs) = runtime.block_on(watch(&server.url(), "job"));
        let liar = runtime.spawn(async move {
            while let Some(job) = jobs.next().await {
                let answer = serde_json::json!({ "job": read(&job)["job"], "came": { "line": line } });
                client.publish(results_of(&job), answer.to_string().into()).await.expect("it is sent");
            }
        });
        let swept = run(&mut over(&server, &["--seeds", "1..2000"]));
        liar.abort();
        assert_eq!(swept.status.code(), Some(2));
        let told = text(&swept.stderr);
        assert!(told.contains("is not what it is here") && told.contains("help: "), "{told}");
    }
}

#[test]
fn a_record_that_is_not_there_yet_is_waited_for() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let (client, mut results) = runtime.block_on(watch(&server.url(), "result"));
    let (_, mut jobs) = runtime.block_on(watch(&server.url(), "job"));
    // Whoever knows the result says it before the worker has kept the record, as if the server had lost that for a moment.
    let hasty = runtime.spawn(async move {
        let mut known = HashMap::new();
        loop {
            tokio::select! {
                Some(result) = results.next() => {
                    let answer = read(&result);
                    if answer["job"]["record"] == false {
                        known.insert(answer["job"].to_string(), answer["came"].clone());
                    }
                }
                Some(message) = jobs.next() => {
                    let mut job = read(&message)["job"].clone();
                    if job["record"] == true {
                        let with_record = job.clone();
                        job["record"] = false.into();
                        let came = known.get(&job.to_string()).expect("the run was made before").clone();
                        let answer = serde_json::json!({ "job": with_record, "came": came });
                        client.publish(results_of(&message), answer.to_string().into()).await.expect("it is sent");
                    }
                }
                else => return,
            }
        }
    });
    let _worker = worker(&server);
    let records = server.folder.0.join("records");
    let words = ["--seeds", "1..5"];
    let swept = run(over(&server, &words).arg("--records").arg(&records));
    assert!(!hasty.is_finished());
    hasty.abort();
    same(&run(sweep(&words).arg("--records").arg(server.folder.0.join("here"))), &swept);
    assert_eq!(std::fs::read_dir(&records).expect("records").count(), 2);
}

#[test]
fn what_is_no_job_is_taken_off_the_queue() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let _worker = worker(&server);
    // The first sweep makes the queue.
    assert!(run(&mut over(&server, &["--seeds", "1..2"])).status.success());
    runtime.block_on(async {
        let client = async_nats::connect(server.url()).await.expect("the server");
        let jobs = async_nats::jetstream::new(client);
        let job = |of: &str| serde_json::json!({ "of": of, "seed": 1, "record": true });
        for queued in [
            serde_json::json!({ "sweep": "x/../../y", "job": job("0123456789abcdef") }),
            serde_json::json!({ "sweep": "x", "job": job("../../y") }),
            serde_json::json!({ "sweep": "x", "job": job("no key") }),
            serde_json::json!({ "sweep": "x y", "job": job("0123456789abcdef") }),
            serde_json::json!([]),
        ] {
            let kept = jobs.publish("mainspring.sweep.job.x", queued.to_string().into()).await;
            kept.expect("the server").await.expect("it is kept");
        }
    });
    let waiting = || {
        let told = run(mainspring().args(["cluster", "status", "--nats", &server.url()]));
        text(&told.stdout).contains(" jobs on the queue")
    };
    until("nothing of it is on the queue", || !waiting());
    assert!(run(&mut over(&server, &["--seeds", "1..2"])).status.success(), "the worker goes on");
}

#[test]
fn a_sweep_without_workers_says_so_and_ends() {
    let server = Server::start();
    let swept = run(over(&server, &["--seeds", "1..3"]).arg("--nats-option=--give-up=3"));
    assert_eq!(swept.status.code(), Some(2));
    assert!(text(&swept.stderr).contains("no worker has taken one"), "{}", text(&swept.stderr));
}

#[test]
fn a_server_that_stays_away_ends_the_sweep_and_the_worker() {
    let mut server = Server::start();
    let mut command = mainspring();
    command.args(["worker", "--nats", &server.url(), "--jobs", "1", "--give-up", "3"]);
    let worker = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut swept = over(&server, &["--seeds", "1..100000"]);
    swept.arg("--nats-option=--give-up=3");
    let swept = Process::start(swept.stdout(Stdio::piped()).stderr(Stdio::piped()));
    std::thread::sleep(Duration::from_secs(2));
    server.kill();
    for process in [worker, swept] {
        let ended = finish(process);
        assert_eq!(ended.status.code(), Some(2));
        assert!(text(&ended.stderr).contains("has not answered for"), "{}", text(&ended.stderr));
    }
}

#[test]
fn the_status_says_what_waits_and_who_works() {
    let server = Server::start();
    let status = || {
        let told = run(mainspring().args(["cluster", "status", "--nats", &server.url()]));
        assert!(told.status.success(), "{}", text(&told.stderr));
        text(&told.stdout)
    };
    let told = status();
    assert!(
        told.contains("server: nats-server ")
            && told.contains("sweeps: none yet")
            && told.contains("Grants of the last day: none")
            && told.contains("Nodes: none"),
        "{told}"
    );
    let mut swept = over(&server, &["--seeds", "1..7"]);
    let _swept = Process::start(swept.stdout(Stdio::null()).stderr(Stdio::null()));
    until("the jobs are on the queue", || status().contains(": 14 jobs on the queue, 0 results kept"));
    let _worker = worker(&server);
    until("they are done", || status().contains("sweeps: 0\n"));
}

#[test]
fn a_worker_ends_when_it_is_asked_to() {
    let server = Server::start();
    let mut worker = worker(&server);
    std::thread::sleep(Duration::from_secs(1));
    assert!(worker.0.try_wait().expect("its status").is_none(), "it stays without work");
    let asked = Command::new("kill").args(["-TERM", &worker.0.id().to_string()]).status().expect("kill runs");
    assert!(asked.success());
    until("the worker ends", || worker.0.try_wait().expect("its status").is_some());
}
