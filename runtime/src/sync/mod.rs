//! What tasks wait for each other with: waiting blocks the task and not its worker, and may cross a yield.
//!
//! | type | for |
//! | --- | --- |
//! | [`Mutex`], [`RwLock`] | a value that one task, or one writer or several readers, may use |
//! | [`Condvar`] | waiting inside of a mutex until the value is as wanted |
//! | [`Semaphore`] | a number of permits |
//! | [`Notify`] | an event without a value |
//! | [`Barrier`] | a meeting of so many tasks |
//! | [`Once`] | a value that the first task makes |
//! | [`oneshot`](crate::Cx::oneshot) | one value, once |
//! | [`watch`](crate::Cx::watch) | the latest of several values, for many |
//! | [`broadcast`](crate::Cx::broadcast) | every value, for many |
//! | [`CancelToken`] | telling tasks anywhere to stop |
//!
//! All of them are fair: first come, first served. All keep what they give out when a waiter is cancelled: what it was granted
//! goes to the next one. Locks, permits and notifications cost nothing; the three kinds of channels cost as channels do.

mod barrier;
mod broadcast;
mod condvar;
mod mutex;
mod notify;
mod oneshot;
mod rwlock;
mod semaphore;
mod token;
mod watch;

pub use barrier::Barrier;
pub use broadcast::{BroadcastError, BroadcastReceiver, BroadcastSender};
pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard, Once};
pub use notify::Notify;
pub use oneshot::{OneshotReceiver, OneshotSender};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use semaphore::{AcquireError, Permit, Semaphore};
pub use token::{CancelToken, Stopped};
pub use watch::{WatchReceiver, WatchSender};
