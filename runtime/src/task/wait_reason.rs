//! Why a task waits, for observers.

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitReason {
    /// Nothing.
    None = 0,
    /// The children of a nursery.
    NurseryAwait = 1,
    /// Another task's result.
    Join = 2,
    /// A channel.
    Channel = 3,
    /// A timer.
    Timer = 4,
    /// A socket or file.
    Io = 5,
    /// A lock, semaphore or once.
    Sync = 6,
    /// The pool of threads.
    BlockingCall = 7,
    /// A future.
    Future = 8,
    /// Budget.
    Budget = 9,
    /// An unpark.
    Park = 10,
    /// The reply to a call.
    Call = 11,
    /// A call.
    Receive = 12,
    /// Its quota.
    Quota = 13,
}

impl WaitReason {
    pub(crate) fn from_u8(value: u8) -> Self {
        use WaitReason as W;
        [
            W::None,
            W::NurseryAwait,
            W::Join,
            W::Channel,
            W::Timer,
            W::Io,
            W::Sync,
            W::BlockingCall,
            W::Future,
            W::Budget,
            W::Park,
            W::Call,
            W::Receive,
            W::Quota,
        ]
        .into_iter()
        .find(|reason| *reason as u8 == value)
        .unwrap_or(W::None)
    }
}
