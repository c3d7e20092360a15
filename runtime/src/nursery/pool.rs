//! The pool of a nursery: what its owner hands out and its children draw on.
//!
//! Conserved: an amount is in the pool, in `returned`, or with its taker; every method here moves amounts and makes none.
//!
//! The owner pays for spawns and messages without a lock, until a child needs more than was given back: then the child claims the pool,
//! and the owner takes the lock as well, until no child has claimed it for a while.
#![allow(unsafe_code)]

use super::core::{NurseryCore, Shared};
use crate::budget::{Budget, Component, Pool, Unpayable};

impl NurseryCore {
    /// Takes from the pool, all or nothing. The owner only.
    pub(crate) fn carve(&self, amount: &Pool) -> Result<(), Unpayable> {
        // SAFETY: the owner calls this, and `take` comes back at once.
        match unsafe { self.pool.try_own(|pool| pool.take(amount)) } {
            Some(Ok(())) => Ok(()),
            _ => {
                self.restock(|| self.whole(), amount);
                self.with_whole(|pool| pool.take(amount))
            }
        }
    }

    /// Takes what was asked for from the pool, or half of it. The owner only.
    pub(crate) fn take_part(&self, asked: Option<Pool>) -> Result<Pool, Unpayable> {
        if let Some(amount) = asked.filter(|amount| self.take_at_hand(amount)) {
            return Ok(amount);
        }
        self.with_whole(|pool| {
            let part = asked.unwrap_or_else(|| pool.part(2));
            pool.take(&part).map(|()| part)
        })
    }

    /// Takes from the pool without a lock. False, and nothing taken, if a child claims the pool, or it does not have all of it at hand. The
    /// owner only.
    #[inline]
    pub(crate) fn take_at_hand(&self, amount: &Pool) -> bool {
        // SAFETY: the owner calls this, and `take` comes back at once.
        matches!(unsafe { self.pool.try_own(|pool| pool.take(amount)) }, Some(Ok(())))
    }

    /// As [`NurseryCore::put_back`], without a lock while no child claims the pool. The owner only.
    #[inline]
    pub(crate) fn put_own(&self, amount: &Pool) {
        let put = |pool: &mut Pool| pool.plus(amount).map(|sum| *pool = sum);
        // SAFETY: the owner calls this, and the closure comes back at once.
        match unsafe { self.pool.try_own(put) } {
            Some(Ok(())) => self.hunger.owner_gave(&self.wait_group),
            _ => self.put_back(amount),
        }
    }

    /// Takes from the root pool what the pool lacks of `need`, if this is a nursery that may.
    pub(crate) fn restock(&self, have: impl FnOnce() -> Pool, need: &Pool) {
        if self.draws_on_root {
            let drawn = self.rt().draw_root_pool(&have(), need);
            if drawn != Pool::ZERO {
                self.put_back(&drawn);
            }
        }
    }

    /// Takes a child's grant, and the spawn itself, from the pool. False, and nothing taken, if the pool does not have all of
    /// it at hand. The owner only.
    #[inline(always)]
    pub(crate) fn pay_for_child(&self, grant: &Budget) -> bool {
        let price = Pool { spawn_count: 1, ..Pool::from(*grant) };
        let pay = |pool: &mut Pool| {
            let covered = pool.ops >= price.ops
                && pool.memory >= price.memory
                && pool.spawn_count >= price.spawn_count
                && pool.channel_ops >= price.channel_ops
                && pool.syscalls >= price.syscalls;
            if covered {
                pool.ops -= price.ops;
                pool.memory -= price.memory;
                pool.spawn_count -= price.spawn_count;
                pool.channel_ops -= price.channel_ops;
                pool.syscalls -= price.syscalls;
            }
            covered
        };
        // SAFETY: the owner calls this, and the closure comes back at once.
        unsafe { self.pool.try_own(pay) }.unwrap_or(false)
    }

    /// Uses the whole pool, with what children have given back. The owner only.
    pub(crate) fn with_whole<R>(&self, f: impl FnOnce(&mut Pool) -> R) -> R {
        self.wait_group.with(|shared| {
            let returned = std::mem::take(&mut shared.returned);
            // SAFETY: the owner calls this, under the lock.
            unsafe {
                self.pool.own_locked(|pool| {
                    pool.put(&returned);
                    f(pool)
                })
            }
        })
    }

    /// What is left to hand out without what children have given back, if that is enough; otherwise all. The owner only.
    pub(crate) fn at_hand(&self, is_enough: impl FnOnce(&Pool) -> bool) -> Pool {
        // SAFETY: the owner calls this, and the closure comes back at once.
        match unsafe { self.pool.try_own(|pool| *pool) } {
            Some(pool) if is_enough(&pool) => pool,
            _ => self.whole(),
        }
    }

    /// What is left to hand out. The owner only.
    pub(crate) fn whole(&self) -> Pool {
        self.with_whole(|pool| *pool)
    }

    /// What is left to hand out, for others than the owner.
    pub(crate) fn whole_for_others(&self) -> Pool {
        self.wait_group.with(|shared| self.claim(shared, |pool| *pool))
    }

    /// Uses the whole pool from anywhere.
    fn claim<R>(&self, shared: &mut Shared, f: impl FnOnce(&mut Pool) -> R) -> R {
        let returned = std::mem::take(&mut shared.returned);
        // SAFETY: the caller holds the lock, since it has what is behind it.
        unsafe {
            self.pool.claim(|pool| {
                pool.put(&returned);
                f(pool)
            })
        }
    }

    /// Takes from the pool, all or nothing, for a caller with the right to it.
    pub(crate) fn draw(&self, amount: &Pool) -> Result<(), Unpayable> {
        self.wait_group.with(|shared| match shared.returned.take(amount) {
            Ok(()) => Ok(()),
            Err(_) => self.claim(shared, |pool| pool.take(amount)),
        })
    }

    /// Takes up to `most` from the pool, if that has at least so much of a component; otherwise nothing.
    pub(crate) fn draw_up_to(&self, component: Component, least: u64, most: &Pool) -> Pool {
        self.restock(|| self.whole_for_others(), &Pool::only(component, least));
        self.wait_group.with(|shared| {
            if shared.returned.take(most).is_ok() {
                return *most;
            }
            self.claim(
                shared,
                |pool| {
                    if pool.get(component) < least { Pool::ZERO } else { pool.take_up_to(most) }
                },
            )
        })
    }

    /// Takes what `choose` says of the whole pool, which must be no more than that.
    pub(crate) fn draw_part(&self, choose: impl FnOnce(&Pool) -> Pool) -> Result<Pool, Unpayable> {
        self.wait_group.with(|shared| {
            self.claim(shared, |pool| {
                let part = choose(pool);
                pool.take(&part).map(|()| part)
            })
        })
    }

    /// Puts into the pool what came from it, or what it is topped up with. Tasks that wait for budget look again.
    pub(crate) fn put_back(&self, amount: &Pool) {
        self.wait_group.with(|shared| {
            shared.returned.put(amount);
            shared.starving.feed();
        });
    }

    /// All that is left, at the end.
    pub(super) fn empty_pool(&self, shared: &mut Shared) -> Pool {
        let returned = std::mem::take(&mut shared.returned);
        // SAFETY: the owner calls this, under the lock.
        let mut pool = unsafe { self.pool.own_locked(std::mem::take) };
        pool.put(&returned);
        pool
    }
}
