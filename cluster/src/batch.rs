//! Settlements of grants between lives that know each other, recorded many at a time, off the path of calls.
//!
//! Conserved: a number counts as recorded when the server has its record. Until then the receiver keeps the receipt, and records it itself if
//! this node does not.

use crate::session::Outgoing;
use crate::spent::{Settlement, Spent};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How long settlements are collected.
const COLLECTED: Duration = Duration::from_millis(20);
/// At most so many are in one record.
const MOST: usize = 256;
/// One takes less than this in its record, whatever the names and amounts in it.
const LONGEST: usize = 1_024;

type Item = (Settlement, Arc<Outgoing>, u64);

/// Settlements that wait for their record.
#[derive(Clone, Debug)]
pub(crate) struct Batches(mpsc::UnboundedSender<Item>);

impl Batches {
    /// Starts to record. It ends when the node has gone, and all is recorded.
    pub(crate) fn start(tokio: &tokio::runtime::Handle, spent: Spent, client: async_nats::Client) -> Self {
        let (tx, mut rx) = mpsc::unbounded_channel::<Item>();
        tokio.spawn(async move {
            let mut items = Vec::new();
            // What the server takes may change with the server.
            let most = || (client.max_payload() / LONGEST).clamp(1, MOST);
            while rx.recv_many(&mut items, most()).await > 0 {
                sleep(COLLECTED).await;
                while items.len() < most()
                    && let Ok(item) = rx.try_recv()
                {
                    items.push(item);
                }
                let key = client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned();
                let many: Vec<Settlement> = items.iter().map(|(settled, _, _)| settled.clone()).collect();
                while !spent.settle_many(&key, &many).await {
                    sleep(Duration::from_millis(300)).await;
                }
                for (_, session, number) in items.drain(..) {
                    session.recorded(number);
                }
            }
        });
        Self(tx)
    }

    pub(crate) fn add(&self, settled: Settlement, session: Arc<Outgoing>, number: u64) {
        // The other side lives as long as this does.
        let _ = self.0.send((settled, session, number));
    }
}
