//! A machine of ordinary memory, as far as the kernel's objects need one: nothing is mapped, run or shared.

use mainspring_abi::Nanos;
use mainspring_kernel_core::ledger::{Ledger, Refused};
use mainspring_ring::HeapRegion;
use std::sync::{Arc, PoisonError, RwLock};

/// Where the memory of every process begins.
pub const BASE: u64 = 0x1000;
/// How much of it there is; the last quarter can only be read.
pub const BYTES: u64 = 0x1000;
const WRITABLE: u64 = BYTES / 4 * 3;

/// The time, which stands still: what is due is due in both worlds.
pub fn now() -> Nanos {
    Nanos::new(1_000)
}

pub type RingMemory = HeapRegion;
pub type Ring = Arc<RingMemory>;

#[derive(Debug)]
pub struct StaticRef<T: 'static>(RwLock<&'static T>);

impl<T> StaticRef<T> {
    pub fn new(to: &'static T) -> Self {
        Self(RwLock::new(to))
    }

    pub fn get(&self) -> &'static T {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, to: &'static T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

/// An address that is not mapped for that.
#[derive(Debug)]
pub struct BadAddress;

/// The memory of one process.
#[derive(Debug)]
pub struct AddressSpace {
    pub bytes: Vec<u8>,
}

impl AddressSpace {
    pub fn new(_ledger: &'static Ledger<'static>) -> Result<Self, Refused> {
        Ok(Self { bytes: vec![0; BYTES as usize] })
    }

    pub fn frames(&self) -> u64 {
        0
    }

    pub fn tables(&self) -> u64 {
        0
    }

    fn range(address: u64, len: usize, end: u64) -> Result<std::ops::Range<usize>, BadAddress> {
        let from = address.checked_sub(BASE).ok_or(BadAddress)?;
        let to = from.checked_add(len as u64).filter(|to| *to <= end).ok_or(BadAddress)?;
        Ok(from as usize..to as usize)
    }

    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), BadAddress> {
        if !to.is_empty() {
            to.copy_from_slice(&self.bytes[Self::range(address, to.len(), BYTES)?]);
        }
        Ok(())
    }

    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        if !from.is_empty() {
            self.bytes[Self::range(address, from.len(), WRITABLE)?].copy_from_slice(from);
        }
        Ok(())
    }
}

/// No thread runs here.
#[derive(Debug, Default)]
pub struct Context;

#[derive(Debug, Default)]
pub struct ContextCell {}

impl ContextCell {
    pub fn bind(&self) -> &'static mut Context {
        unimplemented!("nobody runs here")
    }

    pub fn unbind(&self) {}
}

/// Nothing is mapped here.
#[derive(Debug)]
pub struct Frame;

impl Frame {
    pub fn new() -> Option<Self> {
        None
    }
}

/// What a page may be used for.
#[derive(Clone, Copy, Debug)]
pub enum Flags {
    Read,
    Write,
    Execute,
}

#[derive(Debug)]
pub struct FrameList;

impl FrameList {
    pub const fn new() -> Self {
        Self
    }

    pub fn overhead(_len: usize) -> usize {
        0
    }

    pub fn len(&self) -> usize {
        0
    }

    pub fn frames(&self) -> u64 {
        0
    }

    pub fn push(&mut self, _frame: Frame) -> Option<()> {
        None
    }

    pub fn get(&self, _number: usize) -> Option<Frame> {
        None
    }

    pub fn pop(&mut self) -> Option<Frame> {
        None
    }
}
