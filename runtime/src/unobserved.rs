//! What stands in the place of `observe` without the feature `console`: no task is observed, and of the calls nothing is left.

use crate::config::Config;
use crate::runtime::Inner;
use crate::task::{Task, TaskPtr};
use crate::worker::Worker;
use std::convert::Infallible;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Observed(Infallible);

impl Observed {
    pub(crate) fn if_wanted(_: &Config) -> Option<Arc<Self>> {
        None
    }
}

#[derive(Debug)]
pub(crate) struct Mark;

impl Mark {
    pub(crate) const fn none() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn born(&self, _: &Inner) {}

    #[inline(always)]
    pub(crate) fn adopted(&self, _: &Task) {}

    #[inline(always)]
    pub(crate) fn holds_future(&self) {}

    #[inline(always)]
    pub(crate) fn spawned(&self, _: &Task) {}

    #[inline(always)]
    pub(crate) fn woken(&self, _: TaskPtr) {}

    #[inline(always)]
    pub(crate) fn yielded(&self, _: &Inner) {}

    #[inline(always)]
    pub(crate) fn end(&self, _: &Inner) {}
}

#[inline(always)]
pub(crate) fn note_early_wake(_: &Task, _: Option<&Worker>) {}

#[derive(Debug)]
pub(crate) struct Running;

impl Running {
    pub(crate) const fn none() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn go_on(&self, _: &Task, _: &Inner) {}

    #[inline(always)]
    pub(crate) fn leave(&self, _: &Inner) {}
}
