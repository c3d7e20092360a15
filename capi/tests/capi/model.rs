//! Random sequences of calls against a model of what each must say.
//!
//! One actor acts at a time: the thread of the test, or the root task of a run while the thread waits for it. Children are simple:
//! they return a value, fail with one, or wait until they are cancelled. When a child that fails does so is not known, so that the
//! model then allows more than one answer; everything else is exact.
//!
//! `MAINSPRING_SEQUENCES=100000` asks for more, `MAINSPRING_SEED=n` for one. A failure prints its seed.
#![allow(unsafe_code)]

use mainspring_capi::*;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;

type Address = usize;

fn handle(address: Address) -> *mut Opaque {
    std::ptr::without_provenance_mut(address)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Returns(i64),
    Fails(i64),
    Waits,
}

#[derive(Debug)]
struct Nursery {
    owner: usize,
    /// The scheduler of a nursery of the thread; 0 for the default one.
    scheduler: Address,
    is_open: bool,
    is_gone: bool,
    is_cancelled: bool,
    /// A child may have failed, or may fail yet.
    may_fail: bool,
    /// A child fails for certain, unless it is cancelled before.
    codes: Vec<i64>,
    must_fail: bool,
    children: usize,
    waits: bool,
    result: Option<janus_nursery_result>,
}

#[derive(Debug)]
struct Task {
    nursery: Address,
    kind: Kind,
    is_gone: bool,
    is_cancelled: bool,
}

#[derive(Debug)]
struct Channel {
    room: usize,
    words: VecDeque<u64>,
    is_closed: bool,
    is_gone: bool,
}

#[derive(Debug)]
struct Context {
    scheduler: Address,
    is_revoked: bool,
    is_gone: bool,
    bound_to: Option<usize>,
}

/// What a scheduler with contexts may have.
const MOST_CONTEXTS: u32 = 2;

struct World {
    rng: SplitMix64,
    log: Vec<String>,
    /// 0 is the thread.
    actor: usize,
    actors: usize,
    current: Option<Address>,
    schedulers: HashMap<Address, bool>,
    nurseries: HashMap<Address, Nursery>,
    tasks: HashMap<Address, Task>,
    channels: HashMap<Address, Channel>,
    contexts: HashMap<Address, Context>,
    /// Schedulers that have contexts.
    timed: HashSet<Address>,
    /// The scheduler that the root task runs on; 0 for the default one.
    home: Address,
    given: Vec<Address>,
    /// Open nurseries of the actor, the innermost last.
    open: Vec<Address>,
    never: janus_channel,
    /// They stay where they are.
    children: Vec<Arc<Child>>,
    acts_in_task: usize,
}

struct Child {
    kind: Kind,
    never: usize,
}

unsafe extern "C-unwind" fn child(arg: *mut c_void) -> i64 {
    // SAFETY: the world keeps its children until all schedulers are over.
    let child = unsafe { &*arg.cast::<Child>() };
    match child.kind {
        Kind::Returns(value) => {
            janus_scheduler_yield();
            value
        }
        Kind::Fails(code) => code,
        Kind::Waits => {
            let mut word = 0;
            // SAFETY: the word can be written to.
            let status = unsafe { janus_channel_recv(handle(child.never), &raw mut word, JANUS_FOREVER) };
            assert_eq!(status, JANUS_CANCELLED);
            0
        }
    }
}

unsafe extern "C-unwind" fn root(arg: *mut c_void) -> i64 {
    // SAFETY: the thread lends the world to the run and waits for it.
    let world = unsafe { &mut *arg.cast::<World>() };
    world.act_in_task()
}

/// What the model says about a handle.
enum Found {
    Bad(i32),
    Good,
}

impl World {
    fn note(&mut self, text: &str) {
        self.log.push(format!("{}: {text}", self.actor));
    }

    fn expect(&mut self, what: &str, got: i32, allowed: &[i32]) {
        self.note(&format!("{what} -> {got}, allowed {allowed:?}"));
        assert!(allowed.contains(&got), "{what} said {got}, and the model allows {allowed:?}");
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn in_task(&self) -> bool {
        self.actor != 0
    }

    /// A call that may wait may find its task stopped by a nursery around it that has failed.
    fn may_be_stopped(&self) -> bool {
        self.in_task() && self.open.iter().any(|open| self.nurseries[open].may_fail)
    }

    /// Any handle that there ever was, or none.
    fn any_handle(&mut self) -> Address {
        let below = self.below(10);
        match below {
            0 => 0,
            1 => self.rng.next_u64() as usize,
            2 if !self.given.is_empty() => {
                // A place or generation that was never given out.
                let bits = [0, 1, 3, 27, 59, 62, 63];
                let (at, bit) = (self.below(self.given.len() as u64), self.below(bits.len() as u64));
                self.given[at as usize] ^ 1 << bits[bit as usize]
            }
            _ if self.given.is_empty() => 16,
            _ => {
                // The latest are the most interesting.
                let back = self.below(self.given.len().min(12) as u64) as usize;
                self.given[self.given.len() - 1 - back]
            }
        }
    }

    fn nursery(&self, at: Address) -> Found {
        match self.nurseries.get(&at) {
            None => Found::Bad(JANUS_INVALID_HANDLE),
            Some(nursery) if nursery.is_gone => Found::Bad(JANUS_STALE_HANDLE),
            Some(nursery) if nursery.owner != self.actor => Found::Bad(JANUS_NOT_OWNER),
            Some(_) => Found::Good,
        }
    }

    fn task(&self, at: Address) -> Found {
        match self.tasks.get(&at) {
            None => Found::Bad(JANUS_INVALID_HANDLE),
            Some(task) if task.is_gone => Found::Bad(JANUS_STALE_HANDLE),
            Some(task) if self.nurseries[&task.nursery].owner != self.actor => Found::Bad(JANUS_NOT_OWNER),
            Some(_) => Found::Good,
        }
    }

    fn create_scheduler(&mut self) {
        let mut config = janus_scheduler_config_default();
        config.worker_count = self.below(3) as u32;
        config.deterministic = u32::from(self.below(4) == 0);
        let is_timed = config.deterministic == 0 && self.below(2) == 0;
        if is_timed {
            (config.context_count, config.context_share_ppm) = (MOST_CONTEXTS, 500_000);
        }
        let few = self.schedulers.values().filter(|alive| **alive).count() < 3;
        let fits = config.worker_count > 0;
        if !few {
            return;
        }
        // SAFETY: there are no tenants.
        let made = unsafe { janus_scheduler_create(config) }.addr();
        self.note(&format!("create scheduler of {} -> {made:#x}", config.worker_count));
        assert_eq!(made != 0, fits && !self.in_task());
        if made != 0 {
            assert!(self.schedulers.insert(made, true).is_none(), "a name that was used before");
            self.given.push(made);
            if is_timed {
                self.timed.insert(made);
            }
            self.current.get_or_insert(made);
        }
    }

    fn scheduler(&self, at: Address) -> i32 {
        match self.schedulers.get(&at) {
            _ if self.in_task() => JANUS_IN_TASK,
            None => JANUS_INVALID_HANDLE,
            Some(false) => JANUS_STALE_HANDLE,
            Some(true) => JANUS_OK,
        }
    }

    fn enter_scheduler(&mut self) {
        let at = self.any_handle();
        let wanted = if at == 0 && !self.in_task() { JANUS_OK } else { self.scheduler(at) };
        let got = janus_scheduler_enter(handle(at));
        self.expect(&format!("enter {at:#x}"), got, &[wanted]);
        if got == JANUS_OK {
            self.current = (at != 0).then_some(at);
        }
    }

    fn shut_down(&mut self, at: Address) {
        let wanted = self.scheduler(at);
        let got = janus_scheduler_shutdown(handle(at));
        self.expect(&format!("shut down {at:#x}"), got, &[wanted]);
        if got != JANUS_OK {
            return;
        }
        self.schedulers.insert(at, false);
        self.current.take_if(|current| *current == at);
        let names: Vec<Address> = self.nurseries.keys().copied().collect();
        for name in names {
            let nursery = self.nurseries.get_mut(&name).unwrap();
            if nursery.scheduler == at && nursery.is_open && nursery.owner == 0 {
                nursery.is_cancelled = true;
                // Its thread has not looked: it is still the innermost.
                let open = self.open.clone();
                self.ended(name);
                self.open = open;
            }
        }
    }

    /// A nursery has ended: its tasks are gone.
    fn ended(&mut self, at: Address) {
        self.nurseries.get_mut(&at).unwrap().is_open = false;
        self.open.retain(|open| *open != at);
        self.tasks.values_mut().filter(|task| task.nursery == at).for_each(|task| task.is_gone = true);
    }

    fn run(&mut self) {
        let at = self.any_handle();
        let wanted = match at {
            0 if !self.in_task() => JANUS_OK,
            _ => self.scheduler(at),
        };
        let mut result = -1;
        let home = if at == 0 { self.current.unwrap_or(0) } else { at };
        let before = std::mem::replace(&mut self.home, home);
        let me: *mut World = self;
        // The thread's open nurseries wait while the root acts.
        let (open, actor) = (std::mem::take(&mut self.open), self.actor);
        // SAFETY: the root uses the world while this waits for it.
        let got = unsafe { janus_scheduler_run(handle(at), Some(root), me.cast(), &raw mut result) };
        self.home = before;
        if wanted != JANUS_OK {
            self.open = open;
            return self.expect(&format!("run on {at:#x}"), got, &[wanted]);
        }
        let (id, left_open) = (self.actors, !self.open.is_empty());
        self.contexts.values_mut().filter(|one| one.bound_to == Some(id)).for_each(|one| one.bound_to = None);
        for name in self.open.clone() {
            self.ended(name);
        }
        self.nurseries
            .values_mut()
            .filter(|nursery| nursery.owner == id)
            .for_each(|nursery| nursery.is_gone = true);
        (self.open, self.actor) = (open, actor);
        let wanted = match result {
            _ if left_open => JANUS_NURSERY_LEFT_OPEN,
            0.. => JANUS_OK,
            _ => JANUS_TASK_FAILED,
        };
        self.expect(&format!("run on {at:#x} returned {result}"), got, &[wanted]);
    }

    fn act_in_task(&mut self) -> i64 {
        self.actors += 1;
        self.actor = self.actors;
        self.open.clear();
        for _ in 0..self.acts_in_task {
            self.act();
        }
        self.below(5) as i64 - 1
    }

    fn create_nursery(&mut self) {
        let scheduler = self.current.unwrap_or(0);
        if self.open.len() >= 6 {
            return;
        }
        let made = janus_nursery_create().addr();
        self.note(&format!("create nursery -> {made:#x}"));
        assert!(made != 0 || self.may_be_stopped(), "no nursery");
        if made == 0 {
            return;
        }
        let owner = self.actor;
        let nursery = Nursery {
            owner,
            scheduler: if owner == 0 { scheduler } else { usize::MAX },
            is_open: true,
            is_gone: false,
            is_cancelled: false,
            may_fail: false,
            must_fail: false,
            codes: Vec::new(),
            children: 0,
            waits: false,
            result: None,
        };
        assert!(self.nurseries.insert(made, nursery).is_none(), "a name that was used before");
        self.given.push(made);
        self.open.push(made);
    }

    fn spawn(&mut self, by_name: bool) {
        let at = if by_name { self.any_handle() } else { self.open.last().copied().unwrap_or(0) };
        let known = match self.nursery(at) {
            Found::Bad(_) if !by_name => Err(JANUS_NURSERY_NOT_ACTIVE),
            Found::Bad(status) => Err(status),
            Found::Good => Ok(()),
        };
        if self.nurseries.get(&at).is_some_and(|nursery| nursery.children >= 12) {
            return;
        }
        let kind = match self.below(8) {
            0 => Kind::Fails(-1 - self.below(100) as i64),
            1 => Kind::Waits,
            _ => Kind::Returns(self.below(1000) as i64),
        };
        let arg = Arc::new(Child { kind, never: self.never.addr() });
        let arg_at = Arc::as_ptr(&arg).cast_mut().cast();
        self.children.push(arg);
        // SAFETY: the world keeps the child's argument.
        let (made, status) = unsafe {
            match by_name {
                true => (janus_nursery_spawn(handle(at), Some(child), arg_at).addr(), None),
                false => (0, Some(janus_scheduler_spawn(Some(child), arg_at))),
            }
        };
        let started = made != 0 || status == Some(JANUS_OK);
        self.note(&format!("spawn {kind:?} into {at:#x} -> {made:#x} {status:?}"));
        if let Err(wanted) = known {
            assert!(!started, "spawned into what is no nursery");
            match status {
                Some(status) => assert_eq!(status, wanted),
                None => assert_eq!(last_error(), text(wanted)),
            }
            return;
        }
        let stopped = self.may_be_stopped();
        let nursery = self.nurseries.get_mut(&at).unwrap();
        let refuses = !nursery.is_open || nursery.is_cancelled;
        assert!(!(started && refuses), "spawned into a nursery that takes none");
        assert!(started || refuses || nursery.may_fail || stopped, "refused: {}", last_error());
        if !started && !stopped {
            return;
        }
        // A spawn that a stop interrupts may have started its child.
        nursery.children += 1;
        nursery.waits |= kind == Kind::Waits;
        if let Kind::Fails(code) = kind {
            nursery.codes.push(code);
            nursery.may_fail = true;
            nursery.must_fail |= started && made == 0;
        }
        if made != 0 {
            let task = Task { nursery: at, kind, is_gone: false, is_cancelled: false };
            assert!(self.tasks.insert(made, task).is_none(), "a name that was used before");
            self.given.push(made);
        }
    }

    fn await_nursery(&mut self, destroys: bool) {
        let at = self.any_handle();
        if let Some(nursery) = self.nurseries.get(&at)
            && nursery.owner == self.actor
            && nursery.is_open
            && nursery.waits
        {
            // It would wait for ever.
            janus_nursery_cancel(handle(at));
            self.nurseries.get_mut(&at).unwrap().is_cancelled = true;
        }
        let (result, status) = match destroys {
            false => (Some(janus_nursery_await(handle(at))), None),
            true => (None, Some(janus_nursery_destroy(handle(at)))),
        };
        let got = status.or(result.map(|result| result.status)).unwrap();
        let what = format!("{} {at:#x}", if destroys { "destroy" } else { "await" });
        if let Found::Bad(wanted) = self.nursery(at) {
            return self.expect(&what, got, &[wanted]);
        }
        let is_outer = self.in_task() && self.open.contains(&at) && self.open.last() != Some(&at);
        if is_outer {
            return self.expect(&what, got, &[JANUS_NOT_INNERMOST]);
        }
        let stopped =
            self.in_task() && self.open.iter().any(|open| *open != at && self.nurseries[open].may_fail);
        let nursery = &self.nurseries[&at];
        let was_open = nursery.is_open;
        let mut allowed = Vec::new();
        if destroys {
            allowed.push(JANUS_OK);
        } else if let Some(known) = nursery.result {
            assert_eq!(result, Some(known), "{what}: another result than before");
            allowed.push(known.status);
        } else {
            if nursery.may_fail {
                allowed.push(JANUS_TASK_FAILED);
            }
            if nursery.is_cancelled {
                allowed.push(JANUS_CANCELLED);
            }
            if !nursery.is_cancelled && !nursery.must_fail {
                allowed.push(JANUS_OK);
            }
        }
        if stopped && was_open {
            allowed.push(JANUS_CANCELLED);
        }
        if let Some(result) = result
            && result.status == JANUS_TASK_FAILED
        {
            assert!(nursery.codes.contains(&result.code), "{what}: nobody returned {}", result.code);
        }
        self.expect(&what, got, &allowed);
        self.ended(at);
        let nursery = self.nurseries.get_mut(&at).unwrap();
        if destroys && got == JANUS_OK {
            nursery.is_gone = true;
        } else if !destroys {
            nursery.result = result;
        } else {
            // A destroy that a stop interrupted has ended the nursery and kept its name, with this result.
            nursery.result = Some(janus_nursery_result { status: JANUS_CANCELLED, ..Default::default() });
        }
    }

    fn cancel_nursery(&mut self) {
        let at = self.any_handle();
        let wanted = match self.nurseries.get(&at) {
            None => JANUS_INVALID_HANDLE,
            Some(nursery) if nursery.is_gone => JANUS_STALE_HANDLE,
            Some(nursery) if nursery.is_open => JANUS_OK,
            Some(_) => JANUS_NURSERY_NOT_ACTIVE,
        };
        let got = janus_nursery_cancel(handle(at));
        self.expect(&format!("cancel {at:#x}"), got, &[wanted]);
        if got == JANUS_OK {
            self.nurseries.get_mut(&at).unwrap().is_cancelled = true;
        }
    }

    /// The status of what needs an open nursery.
    fn needs_open(&self, at: Address) -> i32 {
        match self.nursery(at) {
            Found::Bad(status) => status,
            Found::Good => {
                let nursery = &self.nurseries[&at];
                let is_over = self.schedulers.get(&nursery.scheduler) == Some(&false);
                match nursery.is_open {
                    true => JANUS_OK,
                    false if is_over => JANUS_SHUT_DOWN,
                    false => JANUS_NURSERY_NOT_ACTIVE,
                }
            }
        }
    }

    fn look_at_nursery(&mut self) {
        let at = self.any_handle();
        let wanted = self.needs_open(at);
        let (mut pool, mut live) = (janus_pool::default(), u64::MAX);
        // SAFETY: both can be written to.
        let got = unsafe {
            [janus_nursery_pool(handle(at), &raw mut pool), janus_nursery_live(handle(at), &raw mut live)]
        };
        self.expect(&format!("pool {at:#x}"), got[0], &[wanted]);
        self.expect(&format!("live {at:#x} {live}"), got[1], &[wanted]);
        if wanted == JANUS_OK {
            assert!(live <= self.nurseries[&at].children as u64);
        }
        let none = janus_pool { ops: u64::MAX, ..Default::default() };
        let wanted = if wanted == JANUS_OK { JANUS_POOL_EXHAUSTED } else { wanted };
        let got = janus_nursery_top_up(handle(at), none);
        self.expect(&format!("top up {at:#x}"), got, &[wanted]);
    }

    fn join(&mut self) {
        let at = self.any_handle();
        let found = self.task(at);
        if let (Found::Good, Some(task)) = (&found, self.tasks.get_mut(&at))
            && task.kind == Kind::Waits
        {
            task.is_cancelled = true;
            assert_eq!(janus_task_cancel(handle(at)), JANUS_OK);
        }
        let mut value = i64::MIN;
        // SAFETY: the value can be written to.
        let got = unsafe { janus_task_join(handle(at), &raw mut value) };
        let what = format!("join {at:#x} {value}");
        if let Found::Bad(wanted) = found {
            return self.expect(&what, got, &[wanted]);
        }
        let (task, stopped) = (&self.tasks[&at], self.may_be_stopped());
        let (kind, nursery) = (task.kind, &self.nurseries[&task.nursery]);
        let may_be_cancelled = task.is_cancelled || nursery.is_cancelled || nursery.may_fail || stopped;
        let mut allowed = vec![match kind {
            Kind::Returns(_) => JANUS_OK,
            Kind::Fails(_) => JANUS_TASK_FAILED,
            Kind::Waits => JANUS_CANCELLED,
        }];
        if may_be_cancelled {
            allowed.push(JANUS_CANCELLED);
        }
        self.expect(&what, got, &allowed);
        match (got, kind) {
            (JANUS_OK, Kind::Returns(wanted)) | (JANUS_TASK_FAILED, Kind::Fails(wanted)) => {
                assert_eq!(value, wanted);
            }
            _ => assert_eq!(value, i64::MIN, "a value without a result"),
        }
        // A task that is stopped on the way in keeps the handle.
        let is_gone = janus_task_id(handle(at)) == 0;
        assert!(is_gone || (got == JANUS_CANCELLED && stopped));
        self.tasks.get_mut(&at).unwrap().is_gone = is_gone;
    }

    fn look_at_task(&mut self) {
        let at = self.any_handle();
        let mut state = u32::MAX;
        // SAFETY: the state can be written to.
        let got = unsafe { janus_task_state(handle(at), &raw mut state) };
        let found = self.task(at);
        let wanted = if let Found::Bad(status) = found { status } else { JANUS_OK };
        self.expect(&format!("state {at:#x} {state}"), got, &[wanted]);
        assert_eq!(janus_task_id(handle(at)) == 0, wanted != JANUS_OK);
        if self.below(3) == 0 {
            let got = janus_task_cancel(handle(at));
            self.expect(&format!("cancel task {at:#x}"), got, &[wanted]);
            if wanted == JANUS_OK {
                let task = self.tasks.get_mut(&at).unwrap();
                task.is_cancelled = true;
            }
        } else if self.below(3) == 0 {
            let amount = janus_budget { ops: 10, ..Default::default() };
            let got = janus_task_recharge(handle(at), amount);
            // A child that has ended takes no more.
            let allowed = if wanted == JANUS_OK { vec![JANUS_OK, JANUS_STALE_HANDLE] } else { vec![wanted] };
            self.expect(&format!("recharge {at:#x}"), got, &allowed);
        } else if self.below(3) == 0 {
            let got = janus_task_detach(handle(at));
            self.expect(&format!("detach {at:#x}"), got, &[wanted]);
            if wanted == JANUS_OK {
                self.tasks.get_mut(&at).unwrap().is_gone = true;
            }
        }
    }

    fn create_channel(&mut self) {
        let room = self.below(4) as u32;
        let made = janus_channel_create(room).addr();
        self.note(&format!("create channel of {room} -> {made:#x}"));
        assert!(made != 0 || self.may_be_stopped());
        if made != 0 {
            let channel =
                Channel { room: room as usize, words: VecDeque::new(), is_closed: false, is_gone: false };
            assert!(self.channels.insert(made, channel).is_none(), "a name that was used before");
            self.given.push(made);
        }
    }

    fn use_channel(&mut self) {
        let (at, act, word) = (self.any_handle(), self.below(10), self.rng.next_u64());
        let mut received = 0;
        let (what, got) = match act {
            0..4 => ("send", janus_channel_send(handle(at), word, 0)),
            // SAFETY: the word can be written to.
            4..8 => ("receive", unsafe { janus_channel_recv(handle(at), &raw mut received, 0) }),
            8 => ("close", janus_channel_close(handle(at))),
            _ => ("destroy", janus_channel_destroy(handle(at))),
        };
        let stopped = self.may_be_stopped() && act < 8;
        let wanted = match self.channels.get_mut(&at) {
            None => JANUS_INVALID_HANDLE,
            Some(channel) if channel.is_gone => JANUS_STALE_HANDLE,
            Some(_) if stopped && got == JANUS_CANCELLED => JANUS_CANCELLED,
            Some(channel) => match act {
                0..4 if channel.is_closed => JANUS_CLOSED,
                0..4 if channel.words.len() < channel.room => {
                    channel.words.push_back(word);
                    JANUS_OK
                }
                0..4 => JANUS_WOULD_BLOCK,
                4..8 => match channel.words.pop_front() {
                    Some(word) => {
                        assert_eq!(received, word);
                        JANUS_OK
                    }
                    None if channel.is_closed => JANUS_CLOSED,
                    None => JANUS_WOULD_BLOCK,
                },
                8 => {
                    channel.is_closed = true;
                    JANUS_OK
                }
                _ => {
                    channel.is_gone = true;
                    JANUS_OK
                }
            },
        };
        self.expect(&format!("{what} {at:#x}"), got, &[wanted]);
    }

    fn create_context(&mut self) {
        let asked = janus_reservation {
            budget_ns: 2_000_000,
            period_ns: 10_000_000,
            deadline_ns: 0,
            depleted: JANUS_DEPLETED_BEST_EFFORT,
            worker: JANUS_ANY_WORKER,
            reserved: [0; 2],
        };
        let scheduler = if self.in_task() { self.home } else { self.current.unwrap_or(0) };
        let live = self.contexts.values().filter(|one| one.scheduler == scheduler && !one.is_revoked).count();
        let fits = self.timed.contains(&scheduler) && live < MOST_CONTEXTS as usize;
        // SAFETY: it can be read.
        let made = unsafe { janus_context_create(&raw const asked) }.addr();
        self.note(&format!("create context on {scheduler:#x} -> {made:#x}"));
        assert!(made == 0 || fits, "a context that nobody granted");
        assert!(made != 0 || !fits || self.may_be_stopped(), "no context: {}", last_error());
        if made != 0 {
            let context = Context { scheduler, is_revoked: false, is_gone: false, bound_to: None };
            assert!(self.contexts.insert(made, context).is_none(), "a name that was used before");
            self.given.push(made);
        }
    }

    fn use_context(&mut self) {
        let (at, act) = (self.any_handle(), self.below(7));
        let (mut info, mut notices) = (janus_context_info::default(), janus_context_notices::default());
        let (what, got) = match act {
            0 => ("bind", janus_context_bind(handle(at))),
            1 => ("unbind", janus_context_unbind(handle(at))),
            // SAFETY: what is asked for can be written to.
            2 => ("info of", unsafe { janus_context_get_info(handle(at), &raw mut info) }),
            3 => ("revoke", janus_context_revoke(handle(at))),
            // SAFETY: as above.
            4 => ("notices of", unsafe { janus_context_take_notices(handle(at), &raw mut notices) }),
            // SAFETY: as above.
            5 => ("wait for", unsafe { janus_context_wait(handle(at), &raw mut notices, 0) }),
            _ => ("destroy", janus_context_destroy(handle(at))),
        };
        let (actor, in_task, home, stopped) = (self.actor, self.in_task(), self.home, self.may_be_stopped());
        let is_alive = |scheduler: Address| self.schedulers.get(&scheduler) == Some(&true);
        let has_one = self.contexts.values().any(|one| one.bound_to == Some(actor) && !one.is_revoked);
        let known = self.contexts.get(&at).map(|one| (one.is_gone, is_alive(one.scheduler)));
        let allowed: Vec<i32> = match (known, act) {
            (None, _) => vec![JANUS_INVALID_HANDLE],
            (Some((true, _)), _) => vec![JANUS_STALE_HANDLE],
            (_, 6) => vec![JANUS_OK],
            (_, 0 | 1 | 5) if !in_task => vec![JANUS_NOT_A_TASK],
            (_, 0 | 1 | 5) if self.contexts[&at].scheduler != home => vec![JANUS_INVALID_HANDLE],
            (Some((_, false)), _) => vec![JANUS_SHUT_DOWN],
            _ if stopped && got == JANUS_CANCELLED && [0, 1, 5].contains(&act) => vec![JANUS_CANCELLED],
            _ if self.contexts[&at].is_revoked => vec![JANUS_REVOKED],
            (_, 0) if has_one || self.contexts[&at].bound_to.is_some() => vec![JANUS_IN_USE],
            // Its time may be on the other worker.
            (_, 0) => vec![JANUS_OK, JANUS_ELSEWHERE],
            (_, 1) if self.contexts[&at].bound_to == Some(actor) => vec![JANUS_OK],
            (_, 1) => vec![JANUS_NOT_OWNER],
            // A task that runs on it may have used it up.
            (_, 5) => vec![JANUS_TIMED_OUT, JANUS_OK],
            _ => vec![JANUS_OK],
        };
        if let (JANUS_OK, Some(context)) = (got, self.contexts.get_mut(&at)) {
            match act {
                0 => context.bound_to = Some(actor),
                1 => context.bound_to = None,
                3 => (context.is_revoked, context.bound_to) = (true, None),
                6 => (context.is_revoked, context.is_gone, context.bound_to) = (true, true, None),
                _ => {}
            }
        }
        self.expect(&format!("{what} {at:#x}"), got, &allowed);
        if (got, act) == (JANUS_OK, 2) {
            let bound = self.contexts[&at].bound_to.is_some();
            let place = if bound { JANUS_PLACE_BOUND } else { JANUS_PLACE_AT_REST };
            assert_eq!((info.budget_ns, info.place), (2_000_000, place), "{at:#x}");
        }
    }

    fn charge(&mut self) {
        let before = janus_budget_get_current();
        let ops = self.below(2000) as u32;
        let got = janus_budget_charge(ops);
        let after = janus_budget_get_current();
        if !self.in_task() {
            assert_eq!((before, after), Default::default());
            self.expect("charge", got, &[JANUS_NOT_A_TASK]);
            let got = janus_scheduler_yield();
            return self.expect("yield", got, &[JANUS_NOT_A_TASK]);
        }
        let mut allowed = vec![JANUS_OK];
        if self.may_be_stopped() {
            allowed.push(JANUS_CANCELLED);
        }
        self.expect(&format!("charge {ops}"), got, &allowed);
        if got == JANUS_OK {
            assert_eq!(before.ops - after.ops, ops);
        }
        let got = janus_scheduler_yield();
        self.expect("yield", got, &allowed);
        assert_eq!(janus_budget_get_current(), after, "a yield is free");
        let got = janus_budget_recharge(janus_budget { ops: 1, ..Default::default() });
        allowed[0] = JANUS_NOT_PERMITTED;
        self.expect("recharge", got, &allowed);
    }

    fn act(&mut self) {
        match self.below(28) {
            0 => self.create_scheduler(),
            1 => self.enter_scheduler(),
            2 => {
                let at = self.any_handle();
                self.shut_down(at);
            }
            3 => self.run(),
            4..7 => self.create_nursery(),
            7..12 => self.spawn(true),
            12 => self.spawn(false),
            13 | 14 => self.await_nursery(false),
            15 => self.await_nursery(true),
            16 => self.cancel_nursery(),
            17 => self.look_at_nursery(),
            18 | 19 => self.join(),
            20 => self.look_at_task(),
            21 => self.create_channel(),
            22 => self.use_channel(),
            23 => self.create_context(),
            24..27 => self.use_context(),
            _ => self.charge(),
        }
    }

    /// Gives everything back.
    fn clear(&mut self) {
        for at in self.schedulers.clone().into_keys() {
            self.shut_down(at);
        }
        let owned: Vec<Address> =
            self.nurseries.iter().filter(|(_, n)| n.owner == 0 && !n.is_gone).map(|(at, _)| *at).collect();
        for at in owned {
            janus_nursery_cancel(handle(at));
            assert_eq!(janus_nursery_destroy(handle(at)), JANUS_OK);
        }
        for (at, channel) in &self.channels {
            assert_eq!(janus_channel_destroy(handle(*at)) == JANUS_OK, !channel.is_gone);
        }
        for (at, context) in &self.contexts {
            assert_eq!(janus_context_destroy(handle(*at)) == JANUS_OK, !context.is_gone);
        }
        assert_eq!(janus_scheduler_enter(handle(0)), JANUS_OK);
    }
}

fn text(status: i32) -> String {
    // SAFETY: the texts of statuses live as long as the library.
    unsafe { std::ffi::CStr::from_ptr(janus_status_text(status)) }.to_str().unwrap().to_owned()
}

fn last_error() -> String {
    let mut text = vec![0u8; 512];
    // SAFETY: there is room for so many bytes.
    let len = unsafe { janus_error_text(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(len.min(511));
    String::from_utf8(text).unwrap()
}

fn sequence(seed: u64) {
    let never = janus_channel_create(0);
    let before = live_handles();
    let mut world = World {
        rng: SplitMix64::seed_from_u64(seed),
        log: Vec::new(),
        actor: 0,
        actors: 0,
        current: None,
        schedulers: HashMap::new(),
        nurseries: HashMap::new(),
        tasks: HashMap::new(),
        channels: HashMap::new(),
        contexts: HashMap::new(),
        timed: HashSet::new(),
        home: 0,
        given: Vec::new(),
        open: Vec::new(),
        never,
        children: Vec::new(),
        acts_in_task: 40,
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..60 {
            world.act();
        }
        world.clear();
        assert_eq!(live_handles(), before, "what was given back is gone");
    }));
    if let Err(why) = ended {
        let lines = world.log.join("\n");
        eprintln!("{lines}\nMAINSPRING_SEED={seed} cargo test -p mainspring-capi --test capi model");
        // Tasks may still use their arguments.
        std::mem::forget(world);
        std::panic::resume_unwind(why);
    }
    assert_eq!(janus_channel_destroy(never), JANUS_OK);
}

#[test]
fn random_calls_say_what_the_model_says() {
    let asked = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match asked("MAINSPRING_SEED") {
        Some(seed) => sequence(seed),
        None => (0..asked("MAINSPRING_SEQUENCES").unwrap_or(400)).for_each(sequence),
    }
}
