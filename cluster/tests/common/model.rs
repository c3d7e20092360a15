//! A model of budgets that sees the records on the server, and nothing of the nodes.

use super::HANGS;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use futures_util::StreamExt as _;
use mainspring_cluster::ledger::Balance;
use mainspring_cluster::spent::{BUCKET, Entry, Record, Value};
use mainspring_cluster::{Config, connect};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the records of the server say of all grants: it knows nothing of the nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub sent: u64,
    pub returned: u64,
    pub used: u64,
    pub lost: u64,
}

impl Model {
    /// What a node says of what it sent.
    pub fn said(balance: &Balance) -> Self {
        let lost = balance.lost.values().map(|amount| amount.ops).sum();
        Self { sent: balance.sent.ops, returned: balance.returned.ops, used: balance.used.ops, lost }
    }

    /// What the records say when no grant is taken any more: they may be a moment behind the receipts. Every message of the bucket is read
    /// from the first on, and each step is checked.
    pub async fn at_rest(url: &str) -> Self {
        let waited = tokio::time::timeout(HANGS, async {
            loop {
                let grants = read_all(url).await;
                let is_taken = |steps: &Vec<Entry>| {
                    steps.last().is_some_and(|last| matches!(last.state, Record::Taken { .. }))
                };
                if !grants.values().any(is_taken) {
                    return grants;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self::of(&waited.await.expect("every grant comes to its end"))
    }

    fn of(grants: &BTreeMap<String, Vec<Entry>>) -> Self {
        let mut model = Self::default();
        for (id, steps) in grants {
            let whole = steps[0].amount.ops;
            assert!(steps.iter().all(|step| step.amount == steps[0].amount), "{id}: {steps:?}");
            model.sent += whole;
            let states: Vec<&Record> = steps.iter().map(|step| &step.state).collect();
            match states.as_slice() {
                [Record::Reclaimed] => model.returned += whole,
                [Record::Taken { by }, Record::Settled { by: settled, rest }]
                    if by == settled && rest.ops <= whole =>
                {
                    model.returned += rest.ops;
                    model.used += whole - rest.ops;
                }
                [Record::Taken { by }, Record::Lost { by: lost }] if by == lost => model.lost += whole,
                // Between two lives that know each other, the first record is the last.
                [Record::Settled { rest, .. }] if rest.ops <= whole => {
                    model.returned += rest.ops;
                    model.used += whole - rest.ops;
                }
                [Record::Lost { .. }] => model.lost += whole,
                other => panic!("{id}: no way that a grant goes: {other:?}"),
            }
        }
        model
    }
}

/// All records of each grant, in the order in which the server kept them.
async fn read_all(url: &str) -> BTreeMap<String, Vec<Entry>> {
    let on = connect(&Config::new(url)).await.expect("the server");
    let mut stream = on.jetstream.get_stream(format!("KV_{BUCKET}")).await.expect("the bucket");
    let count = stream.info().await.expect("the server").state.messages;
    let mut grants: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    if count == 0 {
        return grants;
    }
    let consumer = stream.create_consumer(OrderedConfig::default()).await.expect("a consumer");
    let messages = consumer.messages().await.expect("its messages");
    let mut messages = messages.take(usize::try_from(count).expect("a number"));
    while let Some(message) = messages.next().await {
        let message = message.expect("a message");
        let id = message.subject.rsplit('.').next().expect("a key").to_owned();
        let value: Value = serde_json::from_slice(&message.payload).expect("a value");
        for (id, entry) in value.entries(&id) {
            let steps = grants.entry(id).or_default();
            // Both sides may have recorded the same settlement.
            let is_again = matches!(entry.state, Record::Settled { .. }) && steps.last() == Some(&entry);
            if !is_again {
                steps.push(entry);
            }
        }
    }
    grants
}
