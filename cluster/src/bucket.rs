//! Key-value buckets of the server.

use crate::connect::Connection;
use crate::error::Error;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use std::time::Duration;

/// Opens a bucket, and makes it if there is none. The client's own way to make one asks the server for what those before 2.10 do not
/// say; a bucket is a stream with these settings.
pub(crate) async fn open(
    on: &Connection,
    name: &str,
    history: i64,
    max_age: Duration,
) -> Result<Store, Error> {
    let config = Config {
        name: format!("KV_{name}"),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: history,
        max_age,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        num_replicas: on.replicas,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..Config::default()
    };
    on.jetstream.get_or_create_stream(config).await.map_err(|error| Error::nats("making a bucket", error))?;
    on.jetstream.get_key_value(name).await.map_err(|error| Error::nats("opening a bucket", error))
}
