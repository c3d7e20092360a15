//! What the runtime tells of its tasks, in the words of the protocol.

use console_api as api;
use console_api::field::{Name, Value};
use console_api::instrument::Update;
use console_api::tasks::{Stats, Task, TaskUpdate, task};
use mainspring::observe::{ObservedTask, TaskKind};
use prost::Message;
use prost_types::Timestamp;
use std::panic::Location;
use std::time::{Duration, SystemTime};

/// All tasks have the same metadata.
const METADATA: u64 = 1;
/// An update is cut at about this size: `tokio-console` takes no message of more than 4 MiB.
const UPDATE_BYTES: usize = 1 << 20;
/// Of a name or a path, no more than this is told.
const TEXT_BYTES: usize = 256;

fn text(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

fn timestamp(began: SystemTime, since: Duration) -> Timestamp {
    Timestamp::from(began + since)
}

fn duration(duration: Duration) -> prost_types::Duration {
    // All are shorter than the process has run.
    prost_types::Duration::try_from(duration).unwrap_or_default()
}

fn field(name: &str, value: Value) -> api::Field {
    api::Field {
        name: Some(Name::StrName(name.to_owned())),
        value: Some(value),
        metadata_id: Some(api::MetaId { id: METADATA }),
    }
}

/// What every watcher must know before the first task.
fn metadata() -> api::RegisterMetadata {
    let metadata = api::Metadata {
        name: "task".to_owned(),
        target: "mainspring".to_owned(),
        module_path: String::new(),
        location: None,
        kind: api::metadata::Kind::Span.into(),
        level: api::metadata::Level::Trace.into(),
        field_names: Vec::new(),
    };
    let new = api::register_metadata::NewMetadata {
        id: Some(api::MetaId { id: METADATA }),
        metadata: Some(metadata),
    };
    api::RegisterMetadata { metadata: vec![new] }
}

fn location(location: &Location<'_>) -> api::Location {
    api::Location {
        file: Some(text(location.file())),
        module_path: None,
        line: Some(location.line()),
        column: Some(location.column()),
    }
}

/// The words of the kind: `tokio-console` knows `task`, and takes any other as it is.
fn kind(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Future => "future",
        TaskKind::Half => "half",
        _ => "task",
    }
}

fn new_task(seen: &ObservedTask) -> Task {
    let mut fields = vec![
        field("task.id", Value::U64Val(seen.id.0)),
        field("kind", Value::StrVal(kind(seen.kind).to_owned())),
        field("nursery", Value::U64Val(seen.nursery)),
    ];
    fields.extend(seen.name.map(|name| field("task.name", Value::StrVal(text(name)))));
    fields.extend(seen.tenant.map(|tenant| field("tenant", Value::U64Val(tenant as u64))));
    Task {
        id: Some(api::Id { id: seen.id.0 }),
        metadata: Some(api::MetaId { id: METADATA }),
        kind: task::Kind::Spawn.into(),
        fields,
        parents: Vec::new(),
        location: seen.location.map(location),
    }
}

fn stats(seen: &ObservedTask, began: SystemTime) -> Stats {
    let at = |since: Option<Duration>| since.map(|since| timestamp(began, since));
    Stats {
        created_at: Some(timestamp(began, seen.spawned)),
        dropped_at: at(seen.ended),
        wakes: seen.wakes,
        waker_clones: seen.wakers,
        waker_drops: if seen.ended.is_some() { seen.wakers } else { 0 },
        // A new task is ready: `tokio-console` shows one whose wake is later than its last poll as scheduled.
        last_wake: Some(timestamp(began, seen.ready)),
        poll_stats: Some(api::PollStats {
            polls: seen.polls,
            first_poll: at(seen.first_poll),
            last_poll_started: at(seen.poll_began),
            last_poll_ended: at(seen.poll_ended),
            busy_time: Some(duration(seen.busy)),
        }),
        self_wakes: seen.self_wakes,
        scheduled_time: Some(duration(seen.scheduled)),
    }
}

/// What is to be told of a task.
pub(crate) struct News<'a> {
    pub(crate) task: &'a ObservedTask,
    pub(crate) is_new: bool,
}

/// The news as updates, each small enough for a client. There is always one: it tells the time.
pub(crate) fn updates<'a>(
    began: SystemTime,
    now: Duration,
    news: impl Iterator<Item = News<'a>>,
    missed: u64,
    with_metadata: bool,
) -> Vec<Update> {
    let empty = || (TaskUpdate::default(), 0);
    let (mut current, mut bytes) = empty();
    let mut whole = Vec::new();
    for News { task, is_new } in news {
        let stats = stats(task, began);
        bytes += stats.encoded_len();
        if is_new {
            let new = new_task(task);
            bytes += new.encoded_len();
            current.new_tasks.push(new);
        }
        current.stats_update.insert(task.id.0, stats);
        if bytes >= UPDATE_BYTES {
            whole.push(current);
            (current, bytes) = empty();
        }
    }
    current.dropped_events = missed;
    whole.push(current);
    let update = |(at, tasks): (usize, TaskUpdate)| Update {
        now: Some(timestamp(began, now)),
        new_metadata: (at == 0 && with_metadata).then(metadata),
        task_update: Some(tasks),
        resource_update: None,
        async_op_update: None,
    };
    whole.into_iter().enumerate().map(update).collect()
}

/// The time, for those who are told of one task.
pub(crate) fn time(began: SystemTime, now: Duration) -> Timestamp {
    timestamp(began, now)
}
