//! Acts that need no other task.

use super::live;
use crate::ledger::{Kind, Tracked};
use crate::line::Patience;
use crate::options::Mutant;
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::{Me, thread_here};
use mainspring::sync::Stopped;
use mainspring::{Budget, BudgetError, Component, Cost, Cx, NurseryError, RechargeError, TaskError};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How the fuzzer's own panics are known.
pub const MESSAGE: &str = "a panic of the fuzzer";

pub fn ops(ops: u32) -> Budget {
    Budget { ops, ..Budget::ZERO }
}

pub fn check(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        if me.affords(cx, ops(1)) {
            me.paid(cx, Cost::CALL, || cx.check(), |()| true);
        }
    }
}

pub fn iterations(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let n = rng.pick(&[0, 1, 2, 10, 64, 300]);
    if me.affords(cx, ops(n)) {
        me.paid(cx, Cost::iterations(n), || cx.check_iterations(n), |()| true);
    }
}

pub fn pay(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let (component, cost) = rng.pick(&[
        (Component::ChannelOps, Cost::CHANNEL_OP),
        (Component::Syscalls, Cost::SYSCALL),
        (Component::Ops, Cost::CALL),
    ]);
    if !me.affords(cx, cost.amounts()) {
        return;
    }
    match me.paid(cx, cost, || cx.pay(component), Result::is_ok) {
        Ok(()) if component != Component::Ops && me.has_none(component) => {
            violation(format_args!("a task pays {component}, of which it was granted none"));
        }
        Err(BudgetError::NeverGranted(c)) if c == component && !me.was_granted(component) => {}
        Err(error) => violation(format_args!("{component} is refused: {error}")),
        Ok(()) => {}
    }
}

pub fn alloc(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let size = rng.pick(&[0, 1, 8, 100, 4096]);
    let before = cx.budget();
    let cost = Cost::alloc(size);
    if !me.affords(cx, cost.amounts()) {
        return;
    }
    let result = me.paid(
        cx,
        cost,
        || match rng.below(3) {
            0 => cx.charge_alloc(size),
            1 => cx.try_vec::<u8>(size).map(|vec| assert!(vec.capacity() >= size)),
            _ => cx.charge_alloc(size),
        },
        Result::is_ok,
    );
    match result {
        Ok(()) if me.is_exact && before.memory < size => {
            violation(format_args!("{size} bytes were paid with {}", before.memory));
        }
        // The burst of its quota may be smaller.
        Err(BudgetError::OverRate { retry_in: None, .. }) if me.has_quota.get() => {}
        Err(_) if before.memory >= size && !me.is_half => {
            violation(format_args!("{size} bytes are refused with {} left", before.memory));
        }
        Ok(()) | Err(_) => {}
    }
}

pub fn sleep(cx: &Cx, _: &Me<'_>, rng: &mut Rng) {
    let us = rng.pick(&[1, 10, 50, 200]);
    let before = cx.now();
    cx.sleep(Duration::from_micros(us));
    if cx.now() < before + Duration::from_micros(us) {
        violation("a sleep ends early");
    }
}

pub fn interval(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let mut interval = cx.interval(Duration::from_micros(rng.pick(&[1, 30])));
    for _ in 0..1 + rng.below(3) {
        me.world.count_act();
        interval.tick(cx);
        me.look(cx);
    }
}

pub fn recharge(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let amount = Budget {
        ops: rng.pick(&[0, 100, 3000]),
        channel_ops: rng.pick(&[0, 5]),
        syscalls: rng.pick(&[0, 2]),
        ..Budget::ZERO
    };
    let (before, total) = (cx.budget(), me.recharged.get());
    let result = cx.recharge(amount);
    let sum: [u64; 5] = std::array::from_fn(|i| total[i] + amount.get(Component::ALL[i]));
    let is_within = |limit: Budget| Component::ALL.into_iter().all(|c| sum[c as usize] <= limit.get(c));
    match (result, me.authority.budget) {
        (Err(RechargeError::NotPermitted), None) => {}
        (other, None) => violation(format_args!("a task without CapBudget recharges itself: {other:?}")),
        (Err(RechargeError::NotPermitted), Some(_)) => {
            violation("a task with CapBudget may not recharge itself")
        }
        (Ok(()), Some(limit)) if !is_within(limit) && !me.is_half => {
            violation(format_args!("a task recharges itself beyond {limit:?}: {sum:?}"));
        }
        (Ok(()), Some(_)) => {
            me.recharged.set(sum);
            let after = cx.budget();
            for component in Component::ALL {
                let most = before.get(component) + amount.get(component);
                if me.is_exact && after.get(component) != most {
                    violation(format_args!(
                        "{component}: {} after a recharge to {most}",
                        after.get(component)
                    ));
                }
            }
        }
        (Err(_), Some(_)) => {}
    }
}

pub fn own(cx: &Cx, me: &Me<'_>) {
    me.authority.check(&cx.caps(), "a task");
    if cx.worker() >= me.world.setting.all_workers() {
        violation("a task runs on a worker that is not there");
    }
    std::hint::black_box((cx.id(), cx.ops_used(), cx.is_cancelled(), cx.now()));
}

pub fn thread_local(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    thread_local! {
        static NOTE: Cell<u64> = const { Cell::new(0) };
    }
    #[inline(never)]
    fn address() -> usize {
        NOTE.with(|note| std::hint::black_box(std::ptr::from_ref(note).addr()))
    }
    let (before, thread) = (address(), thread_here());
    NOTE.set(me.uid);
    match rng.below(3) {
        0 => cx.yield_now(),
        1 => cx.sleep(Duration::from_micros(rng.below(20))),
        _ => cx.look_up(),
    }
    if address() != before && !me.world.options.may_move {
        violation("the address of a thread-local changes under a task");
    }
    if thread_here() != thread && !me.world.options.may_move {
        violation("a task changes threads");
    }
}

pub fn thread_scope(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if me.world.setting.is_deterministic() || !me.world.take_thread() {
        return;
    }
    let mut sum = 0;
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| 7);
        if rng.one_in(2) {
            cx.look_up();
        }
        sum = thread.join().unwrap_or(0);
    });
    if sum != 7 {
        violation("a scoped thread has no result");
    }
}

/// A lock of the standard library, held across nothing that may give way: what takes no context, and questions to the context.
pub fn std_mutex(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let Ok(mut twins) = me.world.std_mutex.lock() else {
        violation("a mutex of the standard library is poisoned, and no holder panicked")
    };
    if twins.0 != twins.1 {
        violation("two are in the lock of the standard library");
    }
    twins.0 += 1;
    let runs = me.looks_here();
    for _ in 0..1 + rng.below(6) {
        match rng.below(8) {
            0 => me.world.parkers[0].unpark(),
            1 => drop(me.world.lines[0].tx.clone()),
            2 => drop(std::hint::black_box(cx.now())),
            3 => drop(std::hint::black_box(cx.budget())),
            4 => drop(std::hint::black_box(cx.ops_used())),
            5 => drop(std::hint::black_box(cx.is_cancelled())),
            6 => drop(std::hint::black_box((cx.caps(), cx.id(), cx.worker(), cx.yield_interval()))),
            _ => {}
        }
    }
    if me.looks_here() != runs {
        violation("another task ran while a question was asked, or an action without a context was taken");
    }
    twins.1 += 1;
}

mainspring::task_local! {
    static NUMBER: u64;
}

pub fn has_local(cx: &Cx) -> bool {
    NUMBER.get(cx).is_some()
}

/// A value of a scope is found inside of it, by halves of joins too, and nowhere else.
pub fn local(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let (before, number) = (NUMBER.get(cx), rng.draw());
    let mut inside = rng.fork();
    NUMBER.scope(cx, number, |cx| {
        live(cx, me, &mut inside, 2);
        if NUMBER.get(cx) != Some(number) {
            violation("a scope has another's value");
        }
        if me.affords(cx, ops(200)) && !me.cleans_up.get() {
            let price = Cost::iterations(2);
            me.may_cost(price);
            me.has_joined.set(true);
            let found = cx.join(|cx| NUMBER.get(cx), |cx| NUMBER.get(cx));
            me.did_cost(price);
            if found != (Some(number), Some(number)) {
                violation("a half of a join has another's value");
            }
        }
    });
    if NUMBER.get(cx) != before {
        violation("a value is found after its scope");
    }
}

/// Frames with values on both sides of a yield.
pub fn deep_stack(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    #[inline(never)]
    fn descend(cx: &Cx, me: &Me<'_>, depth: u64, yields: bool) -> u64 {
        let frame = std::hint::black_box([depth ^ 0xabcd; 120]);
        let value = Tracked::new(Kind::Local);
        let below = if depth == 0 {
            if yields {
                cx.yield_now();
                me.look(cx);
            }
            0
        } else {
            descend(cx, me, depth - 1, yields)
        };
        value.check();
        if frame.iter().any(|&word| word != depth ^ 0xabcd) {
            violation("a frame of a task was written over");
        }
        below + 1
    }
    let depth = rng.below(40);
    if descend(cx, me, depth, rng.one_in(2)) != depth + 1 {
        violation("a recursion lost its way");
    }
}

pub fn cleanup(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let (mut inside, mut after) = (rng.fork(), rng.fork());
    let done = Cell::new(false);
    let value = Tracked::new(Kind::Local);
    cx.with_cleanup(
        |cx| {
            live(cx, me, &mut inside, 3);
            done.set(true);
        },
        |cx| {
            value.check();
            if done.get() {
                violation("a cleanup runs after its body has returned");
            }
            me.cleans_up.set(true);
            for _ in 0..after.below(4) {
                me.world.count_act();
                match after.below(6) {
                    0 => cx.yield_now(),
                    1 => cx.sleep(Duration::from_micros(after.below(30))),
                    2 => me.paid(cx, Cost::iterations(10), || cx.check_iterations(10), |()| true),
                    3 => {
                        let limit = Duration::from_micros(after.below(30));
                        let ended = cx.timeout(limit, |cx| cx.sleep(Duration::MAX));
                        if ended != Err(Stopped::TimedOut) {
                            violation(format_args!("a timeout in a cleanup: {ended:?}"));
                        }
                    }
                    4 => {
                        let (one, two) = me.paid(cx, Cost::iterations(2), || cx.join(|_| 1, |_| 2), |_| true);
                        if (one, two) != (1, 2) {
                            violation("a join in a cleanup");
                        }
                    }
                    _ => drop(me.world.lines[0].rx.recv(cx, me, Patience::None)),
                }
            }
            me.cleans_up.set(false);
        },
    );
}

/// A destructor that does what destructors may do while a task unwinds.
pub fn destructor(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    struct Last<'a, 'w>(&'a Cx, &'a Me<'w>, Tracked, u64);
    impl Drop for Last<'_, '_> {
        fn drop(&mut self) {
            self.2.check();
            let (cx, me) = (self.0, self.1);
            if !std::thread::panicking() {
                return;
            }
            me.world.count_act();
            match self.3 % 7 {
                0 => cx.yield_now(),
                1 => cx.sleep(Duration::from_micros(10)),
                2 => drop(me.world.mutexes[0].lock(cx)),
                3 => me.world.parkers[0].unpark(),
                4 => {
                    // Both halves run here.
                    if cx.join(|_| 1, |_| 2) != (1, 2) {
                        violation("a join in a destructor has another's results");
                    }
                }
                5 => {
                    let opened =
                        cx.nursery(|_| violation("a nursery opens in a destructor of a task that unwinds"));
                    if !matches!(opened, Err(NurseryError { error: TaskError::Unwinding, .. })) {
                        violation(format_args!("a nursery in a destructor: {opened:?}"));
                    }
                }
                _ => cx.look_up(),
            }
            if !std::thread::panicking() {
                violation("a destructor of a task that unwinds goes on on a thread that does not");
            }
        }
    }
    let _last = Last(cx, me, Tracked::new(Kind::Local), rng.draw());
    let mut inside = rng.fork();
    live(cx, me, &mut inside, 2);
}

pub fn catch_panic(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let value = Tracked::new(Kind::Local);
    let yields = rng.one_in(2);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _inner = Tracked::new(Kind::Local);
        if yields {
            cx.yield_now();
        }
        std::panic::panic_any(MESSAGE);
    }));
    value.check();
    me.look(cx);
    match caught {
        Err(payload) if payload.downcast_ref::<&str>() == Some(&MESSAGE) => {}
        // Cancelled at the yield.
        Err(payload) => resume_unwind(payload),
        Ok(()) => violation("a panic did not unwind"),
    }
}

/// Code that catches everything does not keep a task from being stopped: what it caught stops the task again.
pub fn swallow(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if me.cleans_up.get() {
        return;
    }
    let value = Tracked::new(Kind::Local);
    for _ in 0..1 + rng.below(3) {
        let caught = catch_unwind(AssertUnwindSafe(|| match rng.below(3) {
            0 => cx.sleep(Duration::from_micros(5)),
            _ => cx.yield_now(),
        }));
        me.look(cx);
        value.check();
        let Err(payload) = caught else { continue };
        if rng.one_in(2) {
            // Goes on to unwind, if the task still has to stop.
            drop(payload);
        } else {
            std::mem::forget(payload);
        }
    }
}

/// More stack than there is, found out where there is room to unwind.
pub fn overflow(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    #[inline(never)]
    fn descend(cx: &Cx, me: &Me<'_>, depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 64]);
        let value = Tracked::new(Kind::Local);
        drop(me.world.mutexes[0].lock(cx));
        let below = if depth == 0 { 0 } else { descend(cx, me, depth - 1) };
        value.check();
        below + frame[63]
    }
    let Some(life) = me.life.filter(|_| !me.cleans_up.get() && !me.is_half) else { return };
    if me.depth == 0 || !rng.one_in(4) {
        return;
    }
    me.open.borrow().iter().for_each(|scope| scope.will_cancel());
    life.overflows();
    descend(cx, me, 1 << 20);
    violation("a recursion without end has an end");
}

/// The task ends here.
pub fn panic_here(me: &Me<'_>, rng: &mut Rng) {
    let Some(life) = me.life.filter(|_| !me.cleans_up.get()) else { return };
    if !rng.one_in(3) {
        return;
    }
    me.open.borrow().iter().for_each(|scope| scope.will_cancel());
    if me.world.options.mutant != Some(Mutant::Panic) {
        life.panics();
    }
    if rng.one_in(2) {
        std::panic::panic_any(MESSAGE);
    }
    resume_unwind(Box::new(MESSAGE));
}

/// Uses up what is left of something, and goes on.
pub fn exhaust(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if me.scope.is_ample || me.cleans_up.get() {
        return;
    }
    let component = rng.pick(&[Component::Ops, Component::ChannelOps, Component::Syscalls]);
    let left = cx.budget().get(component).min(3000);
    for _ in 0..left {
        let cost = match component {
            Component::ChannelOps => Cost::CHANNEL_OP,
            Component::Syscalls => Cost::SYSCALL,
            _ => Cost::CALL,
        };
        if me.paid(cx, cost, || cx.pay(component), Result::is_ok).is_err() {
            return;
        }
    }
}

/// A root that goes on for longer than any counter of a task.
pub fn long_root(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    if me.depth > 0 || me.is_half || me.cleans_up.get() || !rng.one_in(20) {
        return;
    }
    me.world.long_roots.fetch_add(1, Ordering::Relaxed);
    for _ in 0..70_000 {
        me.may_cost(Cost::CHANNEL_OP);
        if let Err(error) = cx.pay(Component::ChannelOps) {
            violation(format_args!("the root is refused: {error}"));
        }
        me.did_cost(Cost::CHANNEL_OP);
    }
    crate::verdict::count_act();
}
