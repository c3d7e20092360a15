//! What a task does, drawn from its seed, and what must come of it.

mod alone;
mod calls;
mod fork;
mod future;
mod groups;
mod latest;
mod leases;
mod messages;
mod metered;
mod outside;
mod rates;
mod scope;
mod shared;
mod sockets;
mod time;
mod waiting;

use crate::options::Mutant;
use crate::rng::Rng;
use crate::world::Me;
use mainspring::Cx;
use std::sync::atomic::{AtomicU64, Ordering};

pub use alone::MESSAGE;
pub use calls::{Calls, Pending};
pub use leases::{Leases, lease};
pub use outside::host_thread;
pub use rates::quotas;
pub use scope::{host_costs, run_root};
pub use time::Time;

macro_rules! acts {
    ($($act:ident $name:literal $weight:literal,)*) => {
        /// Something that a task does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Act { $($act,)* }

        impl Act {
            const ALL: &[(Self, &str, u64)] = &[$((Self::$act, $name, $weight),)*];
        }
    };
}

acts! {
    Yield "yield" 14,
    LookUp "look-up" 2,
    Check "check" 14,
    Iterations "iterations" 8,
    Pay "pay" 3,
    Alloc "alloc" 5,
    SleepZero "sleep-zero" 3,
    Sleep "sleep" 3,
    Interval "interval" 1,
    Recharge "recharge" 3,
    Own "own" 4,
    Channel "channel" 3,
    Send "send" 12,
    Receive "receive" 12,
    Select "select" 8,
    Len "len" 2,
    Pipeline "pipeline" 2,
    PingPong "ping-pong" 2,
    Mutex "mutex" 6,
    Semaphore "semaphore" 5,
    Once "once" 2,
    RwLock "rwlock" 5,
    Event "event" 4,
    Meeting "meeting" 4,
    Timeout "timeout" 3,
    Token "token" 2,
    Choose "choose" 3,
    Park "park" 3,
    Unpark "unpark" 4,
    Handshake "handshake" 3,
    Ready "ready" 3,
    Woken "woken" 3,
    StaleWaker "stale-waker" 3,
    Blocking "blocking" 2,
    Bridge "bridge" 2,
    ThreadLocal "thread-local" 4,
    ThreadScope "thread-scope" 1,
    StdMutex "std-mutex" 4,
    DeepStack "deep-stack" 3,
    Cleanup "cleanup" 3,
    Destructor "destructor" 3,
    CatchPanic "catch-panic" 3,
    Swallow "swallow" 3,
    Panic "panic" 1,
    Overflow "overflow" 1,
    Nursery "nursery" 10,
    Join "join" 8,
    Budgeted "budgeted" 4,
    Echo "echo" 1,
    Late "late" 1,
    Hangup "hangup" 1,
    Datagram "datagram" 1,
    File "file" 1,
    Exhaust "exhaust" 1,
    SilentPark "silent-park" 1,
    LongRoot "long-root" 1,
    Context "context" 5,
    Weights "weights" 2,
    Call "call" 6,
    Serve "serve" 8,
    Service "service" 3,
    Quota "quota" 3,
    Oneshot "oneshot" 3,
    Watch "watch" 2,
    Broadcast "broadcast" 2,
    JoinSet "join-set" 3,
    Supervisor "supervisor" 2,
    Actor "actor" 3,
    Spawner "spawner" 3,
    Local "local" 3,
    Unix "unix" 1,
    // Ways of a nursery and of the host, here so that they can be left out.
    Refill "refill" 0,
    Tended "tended" 0,
    TopUp "top-up" 0,
    Explosive "explosive" 0,
    HostNursery "host-nursery" 0,
    Roots "roots" 0,
    Lease "lease" 0,
}

impl Act {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(act, _, _)| *act)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(act, _, _)| *act == self).map_or("", |(_, name, _)| name)
    }

    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(_, name, _)| *name).collect()
    }

    fn draw(rng: &mut Rng) -> Self {
        const TOTAL: u64 = {
            let (mut total, mut i) = (0, 0);
            while i < Act::ALL.len() {
                total += Act::ALL[i].2;
                i += 1;
            }
            total
        };
        let mut place = rng.below(TOTAL);
        for (act, _, weight) in Self::ALL {
            if place < *weight {
                return *act;
            }
            place -= weight;
        }
        Self::Yield
    }
}

/// What a program must not depend on: for the test that it would be noticed.
static OTHERWISE: AtomicU64 = AtomicU64::new(0);

/// So many acts of a task, or as many as are left.
pub fn live(cx: &Cx, me: &Me<'_>, rng: &mut Rng, acts: u64) {
    let Some(_level) = me.nest() else { return };
    for _ in 0..acts {
        let act = Act::draw(rng);
        // Drawn whether the act is left out or not: leaving one out must not change the others.
        let mut own = rng.fork();
        if !me.world.has(act) {
            continue;
        }
        if !me.world.take_act() {
            return;
        }
        perform(cx, me, &mut own, act);
        me.look(cx);
    }
    if me.world.options.mutant == Some(Mutant::Trace)
        && OTHERWISE.fetch_add(1, Ordering::Relaxed).is_multiple_of(7)
    {
        cx.yield_now();
    }
}

fn perform(cx: &Cx, me: &Me<'_>, rng: &mut Rng, act: Act) {
    match act {
        Act::Yield => cx.yield_now(),
        Act::LookUp => cx.look_up(),
        Act::Check => apart(|| alone::check(cx, me, rng)),
        Act::Iterations => apart(|| alone::iterations(cx, me, rng)),
        Act::Pay => apart(|| alone::pay(cx, me, rng)),
        Act::Alloc => apart(|| alone::alloc(cx, me, rng)),
        Act::SleepZero => cx.sleep(std::time::Duration::ZERO),
        Act::Sleep => apart(|| alone::sleep(cx, me, rng)),
        Act::Interval => apart(|| alone::interval(cx, me, rng)),
        Act::Recharge => apart(|| alone::recharge(cx, me, rng)),
        Act::Own => alone::own(cx, me),
        Act::ThreadLocal => apart(|| alone::thread_local(cx, me, rng)),
        Act::ThreadScope => apart(|| alone::thread_scope(cx, me, rng)),
        Act::StdMutex => apart(|| alone::std_mutex(cx, me, rng)),
        Act::DeepStack => apart(|| alone::deep_stack(cx, me, rng)),
        Act::Cleanup => apart(|| alone::cleanup(cx, me, rng)),
        Act::Destructor => apart(|| alone::destructor(cx, me, rng)),
        Act::CatchPanic => apart(|| alone::catch_panic(cx, me, rng)),
        Act::Swallow => apart(|| alone::swallow(cx, me, rng)),
        Act::Panic => apart(|| alone::panic_here(me, rng)),
        Act::Overflow => apart(|| alone::overflow(cx, me, rng)),
        Act::Exhaust => apart(|| alone::exhaust(cx, me, rng)),
        Act::LongRoot => apart(|| alone::long_root(cx, me, rng)),
        Act::Channel => apart(|| messages::channel(cx, me, rng)),
        Act::Send => apart(|| messages::send(cx, me, rng)),
        Act::Receive => apart(|| messages::receive(cx, me, rng)),
        Act::Select => apart(|| messages::select(cx, me, rng)),
        Act::Len => apart(|| messages::len(me, rng)),
        Act::Pipeline => apart(|| messages::pipeline(cx, me, rng)),
        Act::PingPong => apart(|| messages::ping_pong(cx, me, rng)),
        Act::Mutex => apart(|| shared::mutex(cx, me, rng)),
        Act::Semaphore => apart(|| shared::semaphore(cx, me, rng)),
        Act::Once => apart(|| shared::once(cx, me, rng)),
        Act::RwLock => apart(|| waiting::rwlock(cx, me, rng)),
        Act::Event => apart(|| waiting::event(cx, me, rng)),
        Act::Meeting => apart(|| waiting::meeting(cx, me, rng)),
        Act::Timeout => apart(|| waiting::timeout(cx, me, rng)),
        Act::Token => apart(|| waiting::token(cx, me, rng)),
        Act::Choose => apart(|| waiting::choose(cx, me, rng)),
        Act::Park => apart(|| shared::park(cx, me, rng)),
        Act::Unpark => apart(|| shared::unpark(cx, me, rng)),
        Act::Handshake => apart(|| shared::handshake(cx, me, rng)),
        Act::Ready => apart(|| future::ready(cx, me, rng)),
        Act::Woken => apart(|| future::woken(cx, me, rng)),
        Act::StaleWaker => apart(|| future::stale_waker(me, rng)),
        Act::Blocking => apart(|| outside::blocking(cx, me, rng)),
        Act::Bridge => apart(|| outside::bridge(cx, me, rng)),
        Act::Context => apart(|| time::context(cx, me, rng)),
        Act::Weights => apart(|| time::weights(cx, me, rng)),
        Act::Call => apart(|| calls::call(cx, me, rng)),
        Act::Serve => apart(|| calls::serve(cx, me, rng)),
        Act::Quota => apart(|| rates::quota(cx, me, rng)),
        Act::Service => apart(|| calls::service(cx, me, rng)),
        Act::Oneshot => apart(|| latest::oneshot(cx, me, rng)),
        Act::Watch => apart(|| latest::watch(cx, me, rng)),
        Act::Broadcast => apart(|| latest::broadcast(cx, me, rng)),
        Act::JoinSet => apart(|| groups::join_set(cx, me, rng)),
        Act::Supervisor => apart(|| groups::supervisor(cx, me, rng)),
        Act::Actor => apart(|| groups::actor(cx, me, rng)),
        Act::Spawner => apart(|| groups::spawner(cx, me, rng)),
        Act::Local => apart(|| alone::local(cx, me, rng)),
        Act::Unix => apart(|| sockets::unix(cx, me, rng)),
        Act::Nursery => apart(|| scope::nursery(cx, me, rng)),
        Act::SilentPark => apart(|| scope::silent_park(cx, me, rng)),
        Act::Join => apart(|| fork::join(cx, me, rng)),
        Act::Budgeted => apart(|| metered::budgeted(cx, me, rng)),
        Act::Echo => apart(|| sockets::echo(cx, me, rng)),
        Act::Late => apart(|| sockets::late(cx, me, rng)),
        Act::Hangup => apart(|| sockets::hangup(cx, me, rng)),
        Act::Datagram => apart(|| sockets::datagram(cx, me, rng)),
        Act::File => apart(|| sockets::file(cx, me, rng)),
        Act::Refill
        | Act::Tended
        | Act::TopUp
        | Act::Explosive
        | Act::HostNursery
        | Act::Roots
        | Act::Lease => {}
    }
}

/// Calls it in a frame of its own: all acts in the frame of one would be too much for the stack of a task, several levels deep.
#[inline(never)]
fn apart(act: impl FnOnce()) {
    act();
}
