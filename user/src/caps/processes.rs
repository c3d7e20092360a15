//! ProcessSpawner and ProcessHandle.

use super::{call_for, find, need, with_params_of};
use crate::client;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;

/// A process that was made.
#[derive(Debug)]
pub struct Process {
    cap: u32,
    slot: u32,
}

/// Starts a program with the capabilities named, each a name that this process has it under.
pub fn start(program: &str, arguments: &str, grants: &[&str]) -> Result<Process, CapError> {
    start_with(program, arguments, grants, &[])
}

/// Starts a program with capabilities by the names that this process has them under, and others by number.
pub fn start_with(
    program: &str,
    arguments: &str,
    grants: &[&str],
    others: &[(&str, u32)],
) -> Result<Process, CapError> {
    let method = schema::ProcessSpawnerMethod::Spawn as u16;
    start_by(program, arguments, grants, others, |bytes| {
        call_for::<schema::handle::Owned, _>(need("processes"), method, bytes, |made| Process {
            cap: made.get_cap(),
            slot: made.get_slot(),
        })
    })?
}

/// Asks for a process whose handle is to be written to `address`, which need not be the caller's: for programs that try what
/// they may not.
pub fn start_with_answer_at(program: &str, arguments: &str, address: u64) -> Result<u32, CapError> {
    let method = schema::ProcessSpawnerMethod::Spawn as u16;
    start_by(program, arguments, &[], &[], |bytes| {
        client::call_with_answer_at(need("processes"), method, bytes, address)
    })?
}

fn start_by<T>(
    program: &str,
    arguments: &str,
    grants: &[&str],
    others: &[(&str, u32)],
    work: impl FnOnce(&[u8]) -> T,
) -> Result<T, CapError> {
    let named = grants.iter().map(|name| (*name, find(name).unwrap_or(0)));
    let all = named.chain(others.iter().copied());
    with_params_of::<schema::process_spawn::Owned, _, 128>(
        |mut params| {
            params.set_program(program);
            params.set_arguments(arguments);
            let mut list = params.init_grants((grants.len() + others.len()) as u32);
            for (number, (name, cap)) in (0..).zip(all) {
                let mut grant = list.reborrow().get(number);
                grant.set_name(name);
                grant.set_cap(cap);
            }
        },
        work,
    )
}

impl Process {
    /// Waits for its end; its exit code, negative if it was killed.
    pub fn wait(&self) -> Result<i32, CapError> {
        client::call(self.cap, schema::ProcessHandleMethod::Wait as u16, &[], &mut []).map(|code| code as i32)
    }

    /// As [`Process::wait`], for `timeout_ns` at most: then [`CapError::TimedOut`].
    pub fn wait_for(&self, timeout_ns: u64) -> Result<i32, CapError> {
        let request = client::request(self.cap, schema::ProcessHandleMethod::Wait as u16, &[], &mut []);
        client::call_for(request, timeout_ns).map(|code| code as i32)
    }

    /// Forgets it; it goes on.
    pub fn detach(self) -> Result<(), CapError> {
        client::call(self.cap, schema::ProcessHandleMethod::Detach as u16, &[], &mut []).map(|_| ())
    }

    /// Ends it.
    pub fn kill(&self) -> Result<(), CapError> {
        client::call(self.cap, schema::ProcessHandleMethod::Kill as u16, &[], &mut []).map(|_| ())
    }

    /// Its number, which after `detach` is stale.
    #[must_use]
    pub fn cap(&self) -> u32 {
        self.cap
    }

    /// Its place in the kernel's table.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }
}
