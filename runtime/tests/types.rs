//! What the public types allow across threads and unwinding: one table, so that a change of any of it shows.
//!
//! The wrong uses that must not compile are doctests beside the types (`compile_fail`): `Cx`, `Handle`, `Meter`,
//! `sync::MutexGuard`, `Nursery`.

use mainspring::endpoint::Reply;
use mainspring::io::{
    Async, File, Ready, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use mainspring::meter::{Meter, Metered};
use mainspring::metrics::Metrics;
use mainspring::signal::Signals;
use mainspring::sync::{
    AcquireError, Barrier, BroadcastError, BroadcastReceiver, BroadcastSender, CancelToken, Condvar, Mutex,
    MutexGuard, Notify, Once, OneshotReceiver, OneshotSender, Permit, ReadGuard, RwLock, Semaphore, Stopped,
    WatchReceiver, WatchSender, WriteGuard,
};
use mainspring::time::{Interval, Sleep, Timer};
use mainspring::{
    Address, BlockingError, Budget, BudgetError, CallError, CallRefusal, CapContext, Caps, ChannelError,
    Config, ConfigError, ContextError, ContextInfo, Cx, Durations, Endpoint, FairTaskSettings, Handle,
    Mailbox, Nursery, NurseryError, NurseryOptions, Overstay, Parker, Pool, Quota, QuotaError, Rate,
    Receiver, RechargeError, Refusal, Reservation, Runtime, Schedule, SchedulingContext, Select, SendError,
    Sender, Snapshot, SpawnBuilder, SpawnError, Spawner, StackError, Supervisor, TaskError, TaskId,
    TaskLocal, ThreadSpawner, Watchdog, WorkerRecord, WorkerStats,
};
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;

/// Asks a type what it implements: the associated constants are found where the bound holds, the trait's constants
/// elsewhere.
struct Ask<T>(PhantomData<T>);

trait Otherwise {
    const SEND: bool = false;
    const SYNC: bool = false;
    const UNWIND: bool = false;
    const REF_UNWIND: bool = false;
    const COPY: bool = false;
}

impl<T> Otherwise for Ask<T> {}

impl<T: Send> Ask<T> {
    const SEND: bool = true;
}

impl<T: Sync> Ask<T> {
    const SYNC: bool = true;
}

impl<T: UnwindSafe> Ask<T> {
    const UNWIND: bool = true;
}

impl<T: RefUnwindSafe> Ask<T> {
    const REF_UNWIND: bool = true;
}

impl<T: Copy> Ask<T> {
    const COPY: bool = true;
}

/// `S`end, `Y` for Sync, `U`nwindSafe, `R`efUnwindSafe, `C`opy: each present or a dash.
macro_rules! table {
    ($($type:ty: $expected:literal)*) => {
        [$((
            stringify!($type),
            [
                (Ask::<$type>::SEND, 'S'),
                (Ask::<$type>::SYNC, 'Y'),
                (Ask::<$type>::UNWIND, 'U'),
                (Ask::<$type>::REF_UNWIND, 'R'),
                (Ask::<$type>::COPY, 'C'),
            ]
            .map(|(is, letter)| if is { letter } else { '-' })
            .iter()
            .collect::<String>(),
            $expected,
        )),*]
    };
}

/// Neither of a thread alone nor shared: `Cell` is Send and not Sync, `Rc` is neither, a raw guard is Sync and not Send.
type OneThread = Rc<()>;
type NotShared = Cell<u8>;

#[test]
fn public_types_say_no_more_about_threads_than_they_keep() {
    let table = table! {
        // What acts for a task stays with it.
        Cx: "-----"
        &'static Cx: "----C"
        Meter<Metered<'static>>: "-----"
        Metered<'static>: "----C"
        Nursery<'static, 'static>: "-----"
        &'static Nursery<'static, 'static>: "----C"
        SpawnBuilder<'static, 'static, 'static>: "-----"
        Handle<'static, u8>: "-----"
        Handle<'static, OneThread>: "-----"
        // What tasks and threads share.
        Runtime: "SY---"
        Sender<u8>: "SY---"
        Sender<NotShared>: "SY---"
        Sender<OneThread>: "-----"
        Receiver<u8>: "SY---"
        Receiver<OneThread>: "-----"
        Parker: "SYU--"
        Semaphore: "SYU--"
        Permit<'static>: "SY---"
        Mutex<u8>: "SYU--"
        Mutex<NotShared>: "SYU--"
        Mutex<OneThread>: "--U--"
        MutexGuard<'static, u8>: "SY---"
        // A shared guard is a shared value.
        MutexGuard<'static, NotShared>: "S----"
        MutexGuard<'static, OneThread>: "-----"
        Once<u8>: "SYU--"
        Once<OneThread>: "--U--"
        RwLock<u8>: "SYU--"
        // Readers share the value.
        RwLock<NotShared>: "S-U--"
        RwLock<OneThread>: "--U--"
        ReadGuard<'static, u8>: "SY---"
        ReadGuard<'static, NotShared>: "-----"
        WriteGuard<'static, u8>: "SY---"
        WriteGuard<'static, NotShared>: "-----"
        Notify: "SYU--"
        Condvar: "SYU--"
        Barrier: "SYU--"
        CancelToken: "SY---"
        OneshotSender<u8>: "SY---"
        OneshotSender<OneThread>: "-----"
        OneshotReceiver<OneThread>: "-----"
        WatchSender<u8>: "SY---"
        WatchReceiver<u8>: "SY---"
        BroadcastSender<u8>: "SY---"
        BroadcastReceiver<u8>: "SY---"
        TaskLocal<u8>: "SYUR-"
        Address<u8, u8>: "SY---"
        Address<OneThread, u8>: "-----"
        Mailbox<u8, u8>: "SY---"
        Supervisor<'static>: "SY---"
        TcpListener: "SY---"
        Async<std::net::TcpStream>: "SY---"
        Spawner<'static>: "SY--C"
        ThreadSpawner<'static>: "SY--C"
        Signals: "SY---"
        Metrics: "SYUR-"
        Timer: "SY---"
        Sleep: "SY---"
        TcpStream: "SY---"
        UdpSocket: "SY---"
        UnixStream: "SY---"
        UnixListener: "SY---"
        UnixDatagram: "SY---"
        Ready<std::fs::File>: "SY---"
        File: "SYUR-"
        SchedulingContext: "SY---"
        Quota: "SYUR-"
        Endpoint<u8, u8>: "SY---"
        Endpoint<NotShared, NotShared>: "SY---"
        Endpoint<OneThread, u8>: "-----"
        Endpoint<u8, OneThread>: "-----"
        Reply<u8, u8>: "SY---"
        Reply<OneThread, u8>: "-----"
        Reply<u8, OneThread>: "-----"
        // A select refers to values in its caller's frame and runs closures of any kind there.
        Select<'static, u8>: "-----"
        // Plain values.
        Interval: "SYUR-"
        Budget: "SYURC"
        Pool: "SYURC"
        Caps: "SYURC"
        TaskId: "SYURC"
        NurseryOptions: "SYURC"
        Config: "SYUR-"
        CapContext: "SYURC"
        Watchdog: "SYURC"
        Overstay: "SYURC"
        Rate: "SYURC"
        Reservation: "SYURC"
        ContextInfo: "SYUR-"
        Schedule: "SYUR-"
        FairTaskSettings: "SYUR-"
        Snapshot: "SYUR-"
        WorkerStats: "SYURC"
        Durations: "SYUR-"
        WorkerRecord: "SYUR-"
        // Errors.
        TaskError: "SY---"
        NurseryError: "SY---"
        SpawnError: "SYURC"
        BudgetError: "SYURC"
        RechargeError: "SYURC"
        ChannelError: "SYURC"
        Refusal: "SYURC"
        SendError<u8>: "SYURC"
        SendError<OneThread>: "--UR-"
        BlockingError: "SYURC"
        ContextError: "SYURC"
        QuotaError: "SYURC"
        CallRefusal: "SYURC"
        CallError<u8>: "SYURC"
        CallError<OneThread>: "--UR-"
        AcquireError: "SYURC"
        BroadcastError: "SYURC"
        Stopped: "SYURC"
        StackError: "SY---"
        ConfigError: "SY---"
    };
    let wrong: Vec<String> = table
        .iter()
        .filter(|(_, is, expected)| is != expected)
        .map(|(name, is, expected)| format!("{name}: {is}, the table says {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
