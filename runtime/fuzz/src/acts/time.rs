//! Scheduling contexts: who may make one, where it is, and that no time is made.

use super::alone::ops;
use super::scope::{OpenNursery, little, with_open_nursery};
use super::{calls, live};
use crate::options::Mutant;
use crate::rng::Rng;
use crate::setting::Discipline;
use crate::verdict::violation;
use crate::world::{Me, World};
use mainspring::context::{ContextState, Depleted};
use mainspring::{ContextError, ContextInfo, Cost, Cx, Reservation, SchedulingContext, Weight};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Periods are short, so that no task waits long for a refill.
fn wish(rng: &mut Rng, workers: usize) -> (Reservation, Duration, Duration) {
    let period = us(rng.pick(&[400, 1000, 3000]));
    let budget = period / rng.pick(&[4, 10, 50]);
    let mut wish = Reservation::new(budget, period);
    if rng.one_in(3) {
        wish = wish.deadline(period / 2);
    }
    if rng.one_in(4) {
        wish = wish.when_depleted(Depleted::BestEffort);
    }
    if rng.one_in(4) {
        wish = wish.criticality(rng.below(3) as u8).priority(rng.below(3) as u16);
    }
    if rng.one_in(4) {
        wish = wish.donation_depth(1 + rng.below(3) as u8);
    }
    if rng.one_in(4) {
        wish = wish.on_worker(rng.below(workers as u64) as usize);
    }
    (wish, budget, period)
}

/// A context that the model counts: given back in the accounts before it goes, so that they never have more than there is.
pub struct Lease<'w> {
    world: &'w World,
    pub context: SchedulingContext,
    /// In billionths of a worker; zero once it is given back.
    share: Cell<u64>,
    began: Duration,
}

impl<'w> Lease<'w> {
    /// Makes a context, which the task's authority decides.
    pub fn make(cx: &Cx, me: &Me<'w>, rng: &mut Rng) -> Option<Self> {
        let world = me.world;
        let (wish, budget, period) = wish(rng, world.setting.workers);
        let began = cx.now();
        let made = cx.create_context(wish);
        me.look(cx);
        let there_can_be = world.setting.discipline == Discipline::ByTask && world.setting.contexts > 0;
        match (&made, me.authority.context) {
            (Err(ContextError::NotPermitted), None) => None,
            (_, None) => violation(format_args!("without CapContext: {made:?}")),
            (Err(ContextError::NoContexts), Some(_)) if !there_can_be => None,
            _ if !there_can_be => violation(format_args!("where there are no contexts: {made:?}")),
            (
                Err(
                    ContextError::ContextLimit { .. }
                    | ContextError::ShareLimit { .. }
                    | ContextError::NotAdmitted(_)
                    | ContextError::Full(_),
                ),
                Some(_),
            ) => None,
            (Err(error), Some(_)) => violation(format_args!("a context is refused: {error}")),
            (Ok(_), Some((_, most))) => {
                let share = (budget.as_nanos() * 1_000_000_000 / period.as_nanos()) as u64;
                if share > u64::from(most) * 1000 {
                    violation(format_args!("{share} billionths of a worker, with {most} millionths"));
                }
                world.time.add(world, share);
                let context = made.ok()?;
                Some(Self { world, context, share: Cell::new(share), began })
            }
        }
    }

    fn give_back(&self) {
        self.world.time.give_back(self.share.replace(0));
    }

    pub fn revoke(&self) {
        self.give_back();
        match self.context.revoke() {
            Ok(()) | Err(ContextError::Revoked(_)) => {}
            Err(error) => violation(format_args!("a revocation is refused: {error}")),
        }
    }

    /// What is known of it; `None` if it was revoked. No more was used than there was.
    fn info(&self, cx: &Cx) -> Option<ContextInfo> {
        let info = match self.context.info() {
            Ok(info) => info,
            Err(ContextError::Revoked(_)) => return None,
            Err(error) => violation(format_args!("a context says {error}")),
        };
        let periods = (cx.now() - self.began).as_nanos() / info.period.as_nanos() + 1;
        let overshoot = info.overshoot * u32::try_from(info.depletions + 1).unwrap_or(u32::MAX);
        let most = info.budget * u32::try_from(periods).unwrap_or(u32::MAX) + overshoot;
        if info.used > most {
            violation(format_args!("{:?} were used of at most {most:?}: {info:?}", info.used));
        }
        Some(info)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The task is bound to a context, until this is dropped on any way out.
struct OnContext<'a>(&'a Cell<bool>);

impl Drop for OnContext<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Where the context is, by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    AtRest,
    Bound,
    Gone,
}

/// Makes a context and does things with it.
pub fn context(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let Some(lease) = Lease::make(cx, me, rng) else { return };
    let context = &lease.context;
    let mut is = Is::AtRest;
    let mut bound = None;
    for _ in 0..1 + rng.below(6) {
        match rng.below(9) {
            0 if is == Is::AtRest => {
                match context.bind(cx) {
                    Ok(()) if me.on_context.get() => violation("a task has two contexts"),
                    Ok(()) => {
                        is = Is::Bound;
                        me.on_context.set(true);
                        bound = Some(OnContext(&me.on_context));
                    }
                    Err(ContextError::HasOne) if me.on_context.get() || me.may_be_lent.get() => {}
                    Err(ContextError::Elsewhere(worker)) if worker != cx.worker() => {}
                    Err(error) => violation(format_args!("a bind is refused: {error}")),
                }
                me.look(cx);
            }
            1 => {
                let unbound = context.unbind(cx);
                match (is, &unbound) {
                    (Is::Bound, Ok(true)) => {
                        is = Is::AtRest;
                        bound = None;
                    }
                    (Is::AtRest, Ok(false)) | (Is::Gone, Err(ContextError::Revoked(_))) => {}
                    _ => violation(format_args!("an unbind of one that is {is:?}: {unbound:?}")),
                }
                me.look(cx);
            }
            2 => match (is, context.notices()) {
                (Is::Gone, Err(ContextError::Revoked(_))) | (Is::AtRest | Is::Bound, Ok(_)) => {}
                (_, notices) => violation(format_args!("notices of one that is {is:?}: {notices:?}")),
            },
            3 => match (is, context.wait_notices(cx, Some(us(rng.below(60))))) {
                (Is::Gone, Err(ContextError::Revoked(_))) | (Is::AtRest | Is::Bound, Ok(_)) => {}
                (_, notices) => violation(format_args!("a wait for one that is {is:?}: {notices:?}")),
            },
            4 => calls::call(cx, me, rng),
            5 => {
                let acts = rng.below(3);
                live(cx, me, rng, acts);
            }
            6 if me.affords(cx, ops(64)) => {
                me.paid(cx, Cost::iterations(64), || cx.check_iterations(64), |()| true);
                cx.look_up();
                me.look(cx);
            }
            7 if is == Is::AtRest => on_it(cx, me, rng, &lease),
            8 if rng.one_in(3) => {
                lease.revoke();
                is = Is::Gone;
                bound = None;
            }
            _ => {}
        }
        check(cx, me, &lease, is);
    }
    drop(bound);
}

/// The context is where the model has it, and in no second place.
fn check(cx: &Cx, me: &Me<'_>, lease: &Lease<'_>, is: Is) {
    let (place, held) = (lease.info(cx).map(|info| info.state), cx.context());
    if cx.is_cancelled() {
        // If it was throttled, it has lost its context, so that it ends at once.
        return;
    }
    let is_right = match is {
        Is::Gone => place.is_none(),
        Is::AtRest => place == Some(ContextState::AtRest),
        Is::Bound => place == Some(ContextState::Bound),
    };
    if !is_right {
        violation(format_args!("a context that is {is:?} is {place:?}"));
    }
    let knows = !me.may_be_lent.get();
    if knows && held.is_some() != me.on_context.get() {
        violation(format_args!("a task holds {held:?}; bound: {}", me.on_context.get()));
    }
}

/// Children on a context, one after the other: only one can have it at a time, and it is at rest afterwards.
fn on_it(cx: &Cx, me: &Me<'_>, rng: &mut Rng, lease: &Lease<'_>) {
    with_open_nursery(cx, me, rng, |cx, open: &OpenNursery<'_, '_, '_>, rng| {
        let (seed, context) = (rng.draw(), &lease.context);
        open.spawn_on(cx, little(), context, move |cx, me| {
            let _bound = OnContext(&me.on_context);
            me.on_context.set(true);
            let mut rng = Rng::new(seed);
            for _ in 0..rng.below(4) {
                match rng.below(4) {
                    0 => cx.sleep(us(rng.below(80))),
                    1 => cx.look_up(),
                    _ => cx.yield_now(),
                }
                me.look(cx);
            }
            // A throttled task that is cancelled loses its context, so that it ends at once.
            if cx.context().is_none() && !cx.is_cancelled() {
                violation(format_args!(
                    "a task that was spawned on a context has none: {:?}",
                    context.info()
                ));
            }
        });
        match rng.below(6) {
            0 => open.cancel(),
            1 => live(cx, open.me, rng, 1),
            _ => {}
        }
    });
    me.look(cx);
}

/// No task gives itself more weight than it was given.
pub fn weights(cx: &Cx, me: &Me<'_>, rng: &mut Rng) {
    let by_task = me.world.setting.discipline == Discipline::ByTask;
    let weight = Weight::new(rng.pick(&[1, 64, 65, u64::from(u16::MAX)])).unwrap_or_default();
    let set = cx.set_weight(weight);
    let is_root = me.depth == 0 || me.is_half;
    if set && (!by_task || weight > Weight::DEFAULT && !is_root) {
        violation(format_args!("a task sets its weight to {}", weight.get()));
    }
    me.look(cx);
}

/// What the contexts of a run come to, by the model.
#[derive(Debug, Default)]
pub struct Time {
    contexts: std::sync::atomic::AtomicI64,
    share: std::sync::atomic::AtomicU64,
}

impl Time {
    fn add(&self, world: &World, share: u64) {
        let contexts = self.contexts.fetch_add(1, Ordering::SeqCst) + 1;
        let shares = self.share.fetch_add(share, Ordering::SeqCst) + share;
        let runtimes = world.setting.runtimes as u64;
        let given = world.setting.authority.context.filter(|_| world.options.mutant != Some(Mutant::Time));
        let (most, most_share) = given.unwrap_or((0, 0));
        if contexts as u64 > u64::from(most) * runtimes || shares > u64::from(most_share) * 1000 * runtimes {
            violation(format_args!(
                "{contexts} contexts with {shares} billionths live: more than the root was given"
            ));
        }
    }

    /// Once for each share: 0 has been given back.
    fn give_back(&self, share: u64) {
        if share > 0 {
            self.contexts.fetch_sub(1, Ordering::SeqCst);
            self.share.fetch_sub(share, Ordering::SeqCst);
        }
    }
}
