//! The requests of the protocol.

use crate::publisher::{Publisher, Refused, WATCHERS};
use console_api::instrument::instrument_server::Instrument;
use console_api::instrument::{
    InstrumentRequest, PauseRequest, PauseResponse, ResumeRequest, ResumeResponse, State, StateRequest,
    TaskDetailsRequest, Temporality, Update,
};
use console_api::tasks::TaskDetails;
use mainspring::TaskId;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, async_trait};

/// Answers requests by what the publisher has.
pub(crate) struct Service(Arc<Mutex<Publisher>>);

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(publisher: Arc<Mutex<Publisher>>) -> Self {
        Self(publisher)
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher> {
        self.0.lock().expect("no panic while it is held")
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::TooMany => Self::resource_exhausted(format!(
                "{WATCHERS} consoles watch this already; close one of them and try again"
            )),
            Refused::TooOften => {
                Self::resource_exhausted("too many have begun to watch this second; try again")
            }
            Refused::NoSuchTask => Self::not_found("there is no such task, or it ended long ago"),
        }
    }
}

#[async_trait]
impl Instrument for Service {
    type WatchUpdatesStream = Messages<Update>;
    type WatchTaskDetailsStream = Messages<TaskDetails>;
    type WatchStateStream = Messages<State>;

    async fn watch_updates(
        &self,
        _: Request<InstrumentRequest>,
    ) -> Result<Response<Self::WatchUpdatesStream>, Status> {
        let updates = ReceiverStream::new(self.publisher().watch_updates()?);
        // Those that several watch are shared until one of them is to be written.
        Ok(Response::new(Box::pin(updates.map(|update| Ok(Arc::unwrap_or_clone(update))))))
    }

    async fn watch_task_details(
        &self,
        request: Request<TaskDetailsRequest>,
    ) -> Result<Response<Self::WatchTaskDetailsStream>, Status> {
        let asked =
            request.into_inner().id.ok_or_else(|| Status::invalid_argument("name the task by its id"))?;
        let details = ReceiverStream::new(self.publisher().watch_details(TaskId(asked.id))?);
        Ok(Response::new(Box::pin(details.map(Ok))))
    }

    async fn watch_state(
        &self,
        _: Request<StateRequest>,
    ) -> Result<Response<Self::WatchStateStream>, Status> {
        let states = ReceiverStream::new(self.publisher().watch_state()?);
        Ok(Response::new(Box::pin(states.map(Ok))))
    }

    async fn pause(&self, _: Request<PauseRequest>) -> Result<Response<PauseResponse>, Status> {
        self.publisher().set_temporality(Temporality::Paused);
        Ok(Response::new(PauseResponse {}))
    }

    async fn resume(&self, _: Request<ResumeRequest>) -> Result<Response<ResumeResponse>, Status> {
        self.publisher().set_temporality(Temporality::Live);
        Ok(Response::new(ResumeResponse {}))
    }
}
