//! A capability that a request is about to make.

use crate::object::caps::Object;
use crate::object::process::Process;
use mainspring_abi::ring::CapError;

/// A number set aside in a process's table. It is free again if the request is refused.
pub struct NewCap {
    process: &'static Process,
    number: u32,
    fulfilled: bool,
}

impl NewCap {
    /// Sets one aside.
    pub fn reserve(process: &'static Process) -> Result<Self, CapError> {
        let number = process.state.lock().caps.reserve(&process.ledger)?;
        Ok(Self { process, number, fulfilled: false })
    }

    /// The number that the capability will have.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number means `object` from now on.
    pub fn fulfil(mut self, object: Object) {
        self.fulfilled = true;
        self.process.state.lock().caps.fulfil(self.number, object);
    }
}

impl Drop for NewCap {
    fn drop(&mut self) {
        if !self.fulfilled {
            self.process.state.lock().caps.release(self.number);
        }
    }
}
