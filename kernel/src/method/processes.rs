//! ProcessSpawner and ProcessHandle, and how a program becomes a process.

use super::message::{with_params, with_result};
use super::threads::{NewThread, create, deadline_of};
use super::{Answer, Call};
use crate::arch::{AddressSpace, Flags, Frame, MapError, PAGE};
use crate::object::ProcessRef;
use crate::object::caps::Object;
use crate::object::inbox::Awaits;
use crate::object::process::{self, PAGES, Process};
use crate::sched::dispatch;
use elf::ElfBytes;
use elf::abi::{PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use heapless::Vec as Few;
use mainspring_abi::kernel::{
    ARGUMENTS, DATA, KILLED_BY_HANDLE, RING_ARENA, STARTUP, STARTUP_CAPS, StartupCap, cap_name,
};
use mainspring_abi::ring::{CapError, RingAbi, RuntimeBootInfo};
use mainspring_abi::{LatencyClass, Weight};
use mainspring_schema::{ProcessHandleMethod, ProcessSpawnerMethod, handle as wire_handle, process_spawn};

/// A program to be started.
#[derive(Debug)]
pub struct Program<'a> {
    /// What the process is called.
    pub name: &'a str,
    /// Its file.
    pub elf: &'a [u8],
    /// The text it is given.
    pub arguments: &'a str,
    /// Bytes that it finds at [`DATA`].
    pub data: &'a [u8],
    /// Capabilities, and what it finds them under.
    pub grants: &'a [(&'a str, Object)],
}

/// Programs lie below this.
const PROGRAM_END: u64 = 0x4000_0000_0000;

/// Starts a program, of which there are `handles` handles. Nothing is left behind when it is refused.
pub fn start_process(program: &Program<'_>, handles: u32) -> Result<&'static Process, CapError> {
    let mut space = AddressSpace::new().map_err(refuse)?;
    let entry = load(&mut space, program.elf)?;
    map_bytes(&mut space, DATA, program.data, program.data.len() as u64, Flags::Read)?;
    let process = process::allocate(program.name, space)?;
    process.state.lock().handles = handles;
    let started = tell(process, program).and_then(|()| {
        let new = NewThread {
            entry,
            argument: STARTUP,
            weight: Weight::DEFAULT,
            class: LatencyClass::Normal,
            request: None,
            cpus: 0,
        };
        create(process, &new, false)
    });
    match started {
        Ok(_) => Ok(process),
        Err(code) => {
            process.state.lock().handles = 0;
            process.abandon();
            Err(code)
        }
    }
}

fn refuse(error: MapError) -> CapError {
    match error {
        MapError::NoMemory => CapError::NoMemory,
        MapError::BadAddress | MapError::Occupied => CapError::InvalidParameter,
    }
}

/// Maps the segments of a program; where it begins.
fn load(space: &mut AddressSpace, file: &[u8]) -> Result<u64, CapError> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| CapError::InvalidParameter)?;
    for segment in elf.segments().into_iter().flatten().filter(|segment| segment.p_type == PT_LOAD) {
        let bytes = elf.segment_data(&segment).map_err(|_| CapError::InvalidParameter)?;
        let end = segment.p_vaddr.checked_add(segment.p_memsz).ok_or(CapError::InvalidParameter)?;
        let flags = match (segment.p_flags & PF_W != 0, segment.p_flags & PF_X != 0) {
            (true, true) => return Err(CapError::InvalidParameter),
            (true, false) => Flags::Write,
            (false, true) => Flags::Execute,
            (false, false) => Flags::Read,
        };
        if end > PROGRAM_END || segment.p_filesz > segment.p_memsz {
            return Err(CapError::InvalidParameter);
        }
        map_bytes(space, segment.p_vaddr, bytes, segment.p_memsz, flags)?;
    }
    Ok(elf.ehdr.e_entry)
}

/// Maps `len` bytes at `address`: first `bytes`, then zeros.
fn map_bytes(
    space: &mut AddressSpace,
    address: u64,
    bytes: &[u8],
    len: u64,
    flags: Flags,
) -> Result<(), CapError> {
    let page = PAGE as u64;
    let mut at = address & !(page - 1);
    if (address + len - at).div_ceil(page) + space.pages() > PAGES {
        return Err(CapError::QuotaExceeded);
    }
    while at < address + len {
        let mut frame = Frame::new().ok_or(CapError::NoMemory)?;
        let from = at.max(address);
        let skip = (from - address) as usize;
        if let Some(rest) = bytes.get(skip..) {
            frame.write((from - at) as usize, rest);
        }
        space.map(at, frame, flags).map_err(refuse)?;
        at += page;
    }
    Ok(())
}

/// Puts its capabilities into the process's table and writes the page that tells it.
fn tell(process: &Process, program: &Program<'_>) -> Result<(), CapError> {
    let mut page = [0_u8; PAGE];
    let mut write = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    if program.grants.len() > STARTUP_CAPS || program.arguments.len() > ARGUMENTS {
        return Err(CapError::InvalidParameter);
    }
    write(0, &RuntimeBootInfo::new(RING_ARENA, RingAbi::V2).to_bytes());
    write(16, &(program.grants.len() as u32).to_le_bytes());
    write(20, &(program.arguments.len() as u32).to_le_bytes());
    write(24, &(program.data.len() as u64).to_le_bytes());
    for (number, (name, object)) in program.grants.iter().enumerate() {
        let cap = process.state.lock().caps.insert(object.clone())?;
        if let Object::ThreadHandle(_) | Object::ProcessHandle(_) = object {
            // A handle counts who can ask; those of others are not for passing on.
            return Err(CapError::InvalidParameter);
        }
        let at = 32 + number * size_of::<StartupCap>();
        write(at, &cap_name(name).ok_or(CapError::InvalidParameter)?);
        write(at + 16, &cap.to_le_bytes());
    }
    write(32 + STARTUP_CAPS * size_of::<StartupCap>(), program.arguments.as_bytes());
    process.with_space(|space| map_bytes(space, STARTUP, &page, PAGE as u64, Flags::Read))?
}

fn text(text: capnp::Result<capnp::text::Reader<'_>>) -> Result<&str, CapError> {
    text.map_err(|_| CapError::InvalidParameter)?.to_str().map_err(|_| CapError::InvalidParameter)
}

pub fn spawner(call: &Call<'_>) -> Result<Answer, CapError> {
    let ProcessSpawnerMethod::Spawn =
        ProcessSpawnerMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let caller = call.process();
    let cap = caller.state.lock().caps.insert(Object::Reserved)?;
    let name = spawn(call, caller).inspect_err(|_| {
        let _ = caller.state.lock().caps.remove(cap);
    })?;
    caller.state.lock().caps.fulfil(cap, Object::ProcessHandle(name));
    with_result::<wire_handle::Owned>(call, |mut result| {
        result.set_cap(cap);
        result.set_slot(name.index);
    })
}

/// Starts what the parameters name, with one handle.
fn spawn(call: &Call<'_>, caller: &Process) -> Result<ProcessRef, CapError> {
    with_params::<process_spawn::Owned, _>(call, |params| {
        let name = text(params.get_program())?;
        let mut grants: Few<(&str, Object), STARTUP_CAPS> = Few::new();
        for grant in params.get_grants().map_err(|_| CapError::InvalidParameter)? {
            let object = caller.state.lock().caps.find(grant.get_cap())?;
            grants.push((text(grant.get_name())?, object)).map_err(|_| CapError::InvalidParameter)?;
        }
        let elf = crate::boot::program(name).ok_or(CapError::NotFound)?;
        let arguments = text(params.get_arguments())?;
        start_process(&Program { name, elf, arguments, data: &[], grants: &grants }, 1).map(Process::name)
    })
}

pub fn handle(call: &mut Call<'_>, name: ProcessRef) -> Result<Answer, CapError> {
    let process = process::slot(name.index);
    match ProcessHandleMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ProcessHandleMethod::Wait => {
            let deadline = deadline_of(call)?;
            let waiter = call.begin(Awaits::Process(name), deadline)?;
            let mut state = process.state.lock();
            let outcome = match state.ending {
                Some(code) if state.ended => Ok(code as u32),
                _ => match state.waiters.push(waiter) {
                    Ok(()) => return Ok(Answer::Pending),
                    Err(_) => Err(CapError::Overloaded),
                },
            };
            drop(state);
            let _ = call.thread.inbox.lock().finish(waiter, outcome);
            Ok(Answer::Pending)
        }
        ProcessHandleMethod::Kill => {
            dispatch::end_process(process, KILLED_BY_HANDLE);
            Ok(Answer::Done(0))
        }
        ProcessHandleMethod::Detach => {
            call.process().state.lock().caps.remove(call.request.v1.cap_id)?;
            process.drop_handle(name);
            Ok(Answer::Done(0))
        }
    }
}
