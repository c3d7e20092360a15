//! Groups of tasks: sets whose results come as they end, supervisors, actors, and guests that spawn.

use super::alone::{self, MESSAGE, ops};
use super::live;
use super::messages::admitted;
use super::scope::{Ask, OpenNursery, Opened, check_end, check_nursery, closure, little, with_open_nursery};
use crate::ledger::{Kind, Tracked};
use crate::model::{Fate, Scope, ScopeEnd, TaskUse};
use crate::rng::Rng;
use crate::verdict::violation;
use crate::world::Me;
use mainspring::actor::{AskError, MailboxError, ServeError};
use mainspring::supervisor::{Child, Restart, Strategy, Supervisor, SupervisorError};
use mainspring::{
    Budget, Component, Cost, Cx, Exhaustion, JoinSet, NurseryOptions, Pool, Profile, Refusal, SpawnError,
    Spawner, TaskId,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

fn may_spawn(me: &Me<'_>, budget: Budget) -> bool {
    me.depth < 4
        && !me.cleans_up.get()
        && me.authority.spawn.is_some_and(|(_, most)| most.lacking(&budget).is_none())
}

/// Each child's result comes once, and those that fail do not take others with them.
pub fn join_set(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let budget = Budget { channel_ops: 10, ..ops(300) };
    if !may_spawn(me, budget) {
        return;
    }
    let scope = Scope::isolating(&me.around(), me.life);
    let _end = ScopeEnd(scope.clone());
    let opened = Opened::new(me, &scope);
    me.endow(None);
    let options = NurseryOptions::new().on_exhausted(Exhaustion::Fail).isolate();
    let result = cx.nursery_with(options, |n| {
        let open = OpenNursery { me, n, scope: scope.clone(), authority: me.authority, refills: false };
        let mut set = JoinSet::new(n);
        let mut fates: Vec<(TaskId, Arc<Fate>)> = Vec::new();
        for _ in 0..rng.below(5) {
            if !me.world.take_task() {
                break;
            }
            let (ask, fate, seed) = (Ask::plain(budget), Fate::new(false), rng.draw());
            let body = move |cx: &Cx, me: &Me<'_>| {
                let mut rng = Rng::new(seed);
                let acts = rng.below(4);
                live(cx, me, &mut rng, acts);
                if rng.one_in(3) {
                    alone::panic_here(me, &mut rng);
                }
                false
            };
            let authority = open.authority.usual();
            let f = closure(me.world, &scope, &fate, authority, &ask, me.depth + 1, body);
            let (pool, live) = (n.pool(), n.live());
            me.may_cost(Cost::SPAWN);
            let spawned =
                set.spawn_with(n.builder().budget(budget), |cx| f(cx).unwrap_or_else(|_| unreachable!()));
            me.look(cx);
            match spawned {
                Ok(id) => {
                    me.did_cost(Cost::SPAWN);
                    fates.push((id, fate));
                }
                Err(error) => {
                    me.used.did_not_cost(Cost::SPAWN);
                    open.check_refusal(error, &ask, pool, live);
                }
            }
            if rng.one_in(4) {
                super::live(cx, me, rng, 1);
            }
        }
        if rng.one_in(5) {
            fates.iter().for_each(|(_, fate)| fate.cancelled.store(true, Ordering::SeqCst));
            set.cancel_all();
        }
        loop {
            me.world.count_act();
            if set.len() != fates.len() {
                violation(format_args!("a set has {} children of {}", set.len(), fates.len()));
            }
            if rng.one_in(12) {
                // The nursery waits for the rest.
                return;
            }
            let ended = if rng.one_in(3) {
                match set.join_next_timeout(cx, Duration::from_micros(rng.below(100))) {
                    Ok(ended) => ended,
                    Err(_) => continue,
                }
            } else {
                set.join_next(cx)
            };
            me.look(cx);
            let Some((id, result)) = ended else { break };
            let Some(place) = fates.iter().position(|(known, _)| *known == id) else {
                violation("a set hands out a child that it does not have, or twice");
            };
            check_end(&scope, &fates.swap_remove(place).1, result);
        }
        if !fates.is_empty() && !me.cleans_up.get() {
            violation(format_args!("a set lost {} children", fates.len()));
        }
    });
    drop(opened);
    me.look(cx);
    check_nursery(&scope, false, &result);
}

/// So many run now. None does when its owner goes on.
struct Running<'a>(&'a AtomicI64);

impl<'a> Running<'a> {
    fn one(count: &'a AtomicI64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct NoneRuns<'a>(&'a AtomicI64);

impl Drop for NoneRuns<'_> {
    fn drop(&mut self) {
        if self.0.load(Ordering::SeqCst) != 0 {
            violation("a supervisor ended before its children");
        }
    }
}

/// Children that fail so often and then do their work: restarts are as many as failures, and no more than allowed.
pub fn supervisor(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let (most, budget) = (rng.pick(&[0, 1, 3]), ops(60));
    let starts = 2 * (1 + most);
    if !may_spawn(me, budget) || !me.scope.is_ample || me.is_half || !me.affords(cx, ops(starts)) {
        return;
    }
    let strategy = rng.pick(&[Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne]);
    let fails = [rng.below(3) as u32, rng.below(3) as u32];
    let panics = rng.one_in(2);
    let lives = [AtomicU32::new(0), AtomicU32::new(0)];
    let running = AtomicI64::new(0);
    let _none_runs = NoneRuns(&running);
    let totals = &me.world.totals;
    let child = |number: usize| {
        let (lives, running) = (&lives[number], &running);
        let body = move |cx: &Cx| {
            let _running = Running::one(running);
            let (life, used) = (lives.fetch_add(1, Ordering::SeqCst), TaskUse::new(totals));
            let value = Tracked::new(Kind::Local);
            cx.yield_now();
            used.may_cost(Cost::iterations(3));
            cx.check_iterations(3);
            used.did_cost(Cost::iterations(3));
            value.check();
            match life < fails[number] {
                true if panics => resume_unwind(Box::new(MESSAGE)),
                true => Err("an error of the fuzzer"),
                false => Ok(()),
            }
        };
        Child::new("fuzz", body).options(move |spawn| spawn.budget(budget)).restart(Restart::Transient)
    };
    let supervisor =
        Supervisor::new(strategy).intensity(most, Duration::from_secs(3600)).child(child(0)).child(child(1));
    me.world.count_act();
    me.endow(None);
    (0..starts).for_each(|_| me.may_cost(Cost::SPAWN));
    let result = supervisor.run(cx);
    me.look(cx);
    let lived = [&lives[0], &lives[1]].map(|lives| lives.load(Ordering::SeqCst));
    (0..lived[0] + lived[1]).for_each(|_| me.did_cost(Cost::SPAWN));
    let failures: u32 = fails.iter().sum();
    let alone = strategy == Strategy::OneForOne;
    let is_right = match &result {
        Ok(restarts) => {
            *restarts <= most.into()
                && lived[0] > fails[0]
                && lived[1] > fails[1]
                && (!alone || *restarts == u64::from(failures) && lived[0] + lived[1] == failures + 2)
        }
        Err(SupervisorError::TooManyRestarts { restarts, .. }) => {
            *restarts == u64::from(most) && (!alone || failures > most)
        }
        Err(SupervisorError::NotStarted { error, .. }) => may_refuse(me, *error),
        Err(_) => me.around().cancels() || me.cleans_up.get(),
    };
    if !is_right {
        violation(format_args!(
            "{strategy:?} of {fails:?}, at most {most} restarts, lived {lived:?}: {result:?}"
        ));
    }
}

/// A spawn may be refused for want of something that the model does not follow here.
fn may_refuse(me: &Me<'_>, error: SpawnError) -> bool {
    match error {
        SpawnError::NotPermitted => me.world.setting.profile == Profile::Sovereign,
        SpawnError::NurseryNotActive => true,
        SpawnError::SpawnBudgetExhausted | SpawnError::Pool(_) | SpawnError::TaskLimit(_) => true,
        SpawnError::Ledger(_) | SpawnError::Thread(_) => true,
        _ => false,
    }
}

/// What was sent to an actor, and what came of it.
#[derive(Default)]
struct Served {
    handled: AtomicU64,
}

/// A message is handled once, on its sender's account, one after the other.
pub fn actor(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    const MESSAGES: u64 = 5;
    let room = 1 + rng.below(3) as u32;
    let made = cx.mailbox::<(Tracked, u32), u64>(room, Pool::ZERO);
    let (address, mailbox) = match (made, me.world.setting.profile) {
        (Err(MailboxError::NotCluster), Profile::Cluster) => violation("no actors in the cluster profile"),
        (Err(MailboxError::NotCluster), _) => return,
        (Ok(_), profile) if profile != Profile::Cluster => {
            violation("an actor outside of the cluster profile")
        }
        (Err(MailboxError::Channel(error)), _) => return admitted(me, room, &Err::<(), _>(error)),
        (Err(error), _) => violation(format_args!("a mailbox: {error}")),
        (Ok(ends), _) => ends,
    };
    admitted(me, room, &Ok(()));
    let actors = Budget { channel_ops: 2 * MESSAGES as u16 + 4, ..ops(200) };
    let own = Budget { channel_ops: MESSAGES as u16, ..ops(100) };
    if me.is_half || !me.scope.is_ample || !may_spawn(me, actors) || !me.affords(cx, own) {
        return;
    }
    // What messages leave of their grants comes to it.
    me.has_pool.set(true);
    let served = Arc::new(Served::default());
    let totals = &me.world.totals;
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let known = served.clone();
        open.spawn(cx, actors, move |cx, me| {
            // Each message is received, and handled by a task.
            for _ in 0..MESSAGES {
                me.may_cost(Cost::CHANNEL_OP);
                me.may_cost(Cost::SPAWN);
            }
            me.may_cost(Cost::CHANNEL_OP);
            let mut state = 0;
            let result = mailbox.serve(cx, &mut state, |state, cx, (value, work)| {
                value.check();
                *state += 1;
                let now = known.handled.fetch_add(1, Ordering::SeqCst) + 1;
                if now != *state {
                    violation("two messages are handled at once, or one twice");
                }
                let used = TaskUse::new(totals);
                used.may_cost(Cost::iterations(work));
                cx.yield_now();
                cx.check_iterations(work);
                used.did_cost(Cost::iterations(work));
                now
            });
            me.look(cx);
            (0..state).for_each(|_| {
                me.did_cost(Cost::CHANNEL_OP);
                me.did_cost(Cost::SPAWN);
            });
            match result {
                Ok(()) | Err(ServeError::Receive(Refusal::Unwinding)) => {}
                Err(_) if me.scope.cancels() => {}
                Err(error) => violation(format_args!("an actor ends: {error}")),
            }
        });
        let (me, mut last) = (open.me, 0);
        for _ in 0..1 + rng.below(MESSAGES) {
            me.world.count_act();
            let work = rng.pick(&[1, 20, 60]);
            let grant = Pool { ops: rng.pick(&[0, 10, 80]), spawn_count: 1, ..Pool::ZERO };
            let message = (Tracked::new(Kind::Message), work);
            me.may_cost(Cost::CHANNEL_OP);
            let is_short = grant.ops <= u64::from(work) + 4;
            let answer = match rng.below(4) {
                0 => address.tell(cx, message, grant).map(|()| None).map_err(|unsent| unsent.why),
                1 => address.try_tell(cx, message, grant).map(|()| None).map_err(|unsent| unsent.why),
                2 => {
                    let time = Duration::from_micros(rng.pick(&[0, 50, 500]));
                    match address.ask_timeout(cx, message, grant, time) {
                        Err(AskError::TimedOut) => Ok(None),
                        Err(AskError::Refused(Refusal::WouldBlock | Refusal::TimedOut)) => Ok(None),
                        answer => answer.map(Some),
                    }
                }
                _ => address.ask(cx, message, grant).map(Some),
            };
            me.look(cx);
            match answer {
                Ok(Some(number)) if number > last && grant.ops >= u64::from(work) => last = number,
                Ok(Some(number)) => {
                    violation(format_args!("the answer {number} after {last}, for {grant:?}"))
                }
                Ok(None) => {}
                Err(AskError::TooLittle(_)) if grant.ops == 0 => {}
                Err(AskError::Unpayable(_)) => {}
                Err(AskError::Refused(Refusal::WouldBlock)) => {}
                // The actor was not spawned, or has ended with its nursery.
                Err(AskError::Refused(Refusal::Closed) | AskError::Failed) => {}
                Err(AskError::Refused(Refusal::Unwinding) | AskError::Unwinding) if me.cleans_up.get() => {}
                Err(AskError::Exhausted(Component::Ops)) if is_short => {}
                Err(AskError::NotSpawned(error)) if may_refuse(me, error) => {}
                Err(error) => violation(format_args!("a message with {grant:?} for {work}: {error}")),
            }
        }
        drop(address);
    });
}

/// A guest uses the builder for its options to spawn, and does not hand it back.
fn start_and_unwind<'scope>(
    cx: &Cx,
    spawner: &Spawner<'scope>,
    f: impl FnOnce(&Cx) + Send + 'scope,
) -> Result<(), SpawnError> {
    let mut started = None;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        spawner.start_with(
            cx,
            |child| {
                started = Some(child.budget(little()).start(f));
                resume_unwind(Box::new(MESSAGE))
            },
            |_| violation("what was never spawned runs"),
        )
    }));
    match unwound {
        // It may not even come to its options.
        Ok(refused) => refused,
        Err(payload) if payload.downcast_ref::<&str>() == Some(&MESSAGE) => {
            started.expect("it was started, or refused")
        }
        // A stop.
        Err(payload) => resume_unwind(payload),
    }
}

/// A child spawns siblings: with no more than both have, and the nursery waits for them too.
pub fn spawner(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let world = me.world;
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let (spawner, scope, all) = (open.n.spawner(), open.scope.clone(), open.authority);
        let (depth, seed) = (me.depth + 2, rng.draw());
        let inherits = me.has_quota.get();
        open.spawn(cx, ops(100), move |cx, me| {
            let mut rng = Rng::new(seed);
            for _ in 0..1 + rng.below(3) {
                if !world.take_task() {
                    return;
                }
                let (ask, fate, seed) = (Ask::plain(little()), Fate::new(false), rng.draw());
                let authority = all.usual().and(me.authority.usual());
                let body = move |cx: &Cx, me: &Me<'_>| {
                    if inherits && cx.quota().is_none() {
                        violation("a guest's child gets away from its quota");
                    }
                    let mut rng = Rng::new(seed);
                    let acts = rng.below(3);
                    live(cx, me, &mut rng, acts);
                    false
                };
                let f = closure(world, &scope, &fate, authority, &ask, depth, body);
                // A refusal may cost an op.
                me.may_cost(Cost::SPAWN);
                let started = if rng.one_in(4) {
                    start_and_unwind(cx, &spawner, |cx| drop(f(cx)))
                } else {
                    spawner.start_with(cx, |child| child.budget(little()), |cx| drop(f(cx)))
                };
                me.look(cx);
                match started {
                    Ok(()) if me.authority.spawn.is_none() => violation("a guest without CapSpawn spawns"),
                    Ok(()) => me.did_cost(Cost::SPAWN),
                    Err(SpawnError::NotPermitted) if me.authority.spawn.is_none() => {}
                    Err(error) if may_refuse(me, error) => {}
                    Err(error) => violation(format_args!("a guest's spawn is refused: {error}")),
                }
                if rng.one_in(3) {
                    cx.yield_now();
                    me.look(cx);
                }
            }
        });
        if rng.one_in(6) {
            open.cancel();
        }
    });
}
