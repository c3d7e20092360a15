//! ProcessSpawner and ProcessHandle, and how a program becomes a process.

use super::message::{with_params, with_result};
use super::new_cap::NewCap;
use super::threads::{NewThread, PlannedThread, Settled, Share, deadline_of, settle_place};
use super::{Answer, Call};
use crate::arch::{AddressSpace, Flags, Frame, MapError, Owner, PAGE};
use crate::object::caps::{Caps, Object};
use crate::object::hold::Hold;
use crate::object::inbox::Awaits;
use crate::object::process::{self, Process, refusal};
use crate::sched::dispatch;
use elf::ElfBytes;
use elf::abi::{PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use heapless::{String, Vec as Few};
use mainspring_abi::kernel::{
    ARGUMENTS, DATA, KILLED_BY_HANDLE, RING_ARENA, STARTUP, STARTUP_CAPS, StartupCap, cap_name,
};
use mainspring_abi::ring::{CapError, RingAbi, RuntimeBootInfo};
use mainspring_kernel_core::ledger::Ledger;
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

/// A process that can be started: its memory is laid out, and nothing can be in the way any more.
pub struct PlannedProcess {
    name: String<32>,
    space: AddressSpace,
    caps: Caps,
    process: Hold<Process>,
    thread: PlannedThread,
    settled: Settled,
}

impl PlannedProcess {
    /// Whether `program` can be started; with `share` of the CPU for its first thread.
    pub fn decide(program: &Program<'_>, share: Share) -> Result<Self, CapError> {
        let process = process::allocate()?;
        let ledger = &process.slot().ledger;
        let mut space = AddressSpace::new(ledger).map_err(refusal)?;
        let entry = load(&mut space, program.elf)?;
        map_bytes(&mut space, DATA, program.data, program.data.len() as u64, Flags::Read)?;
        let caps = tell(&mut space, ledger, program)?;
        let settled = settle_place(&mut space, 0)?;
        let thread = PlannedThread::decide(NewThread { entry, argument: STARTUP, share, cpus: 0 })?;
        let name = program.name.get(..program.name.len().min(32)).unwrap_or("?");
        let name = String::try_from(name).unwrap_or_default();
        Ok(Self { name, space, caps, process, thread, settled })
    }

    /// The slot that it will have.
    fn slot(&self) -> u32 {
        self.process.index()
    }

    /// Starts it. Whoever wants to ask how it ends has the hold.
    pub fn apply(self, essential: bool) -> Hold<Process> {
        let Self { name, space, caps, process, thread, settled } = self;
        process.begin(name, space, caps, essential);
        let _it_is_its_own = thread.apply(process.slot(), settled);
        process
    }
}

fn refuse(error: MapError) -> CapError {
    match error {
        MapError::NoMemory => CapError::NoMemory,
        MapError::Refused(why) => refusal(why),
        MapError::BadAddress | MapError::Occupied | MapError::Busy | MapError::Denied => {
            CapError::InvalidParameter
        }
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
    if len == 0 {
        return Ok(());
    }
    let mut reserve =
        space.reserve(at, (address + len - at).div_ceil(page), Owner::Process).map_err(refusal)?;
    while at < address + len {
        let mut frame = Frame::new().ok_or(CapError::NoMemory)?;
        let from = at.max(address);
        let skip = (from - address) as usize;
        if let Some(rest) = bytes.get(skip..) {
            frame.write((from - at) as usize, rest);
        }
        space.claim_free(at, frame, Owner::Process, &mut reserve).map_err(refuse)?;
        space.show(at, flags);
        at += page;
    }
    Ok(())
}

/// A table of the program's capabilities, and the page that tells it of them.
fn tell(
    space: &mut AddressSpace,
    ledger: &'static Ledger<'static>,
    program: &Program<'_>,
) -> Result<Caps, CapError> {
    let mut page = [0_u8; PAGE];
    let mut write = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    if program.grants.len() > STARTUP_CAPS || program.arguments.len() > ARGUMENTS {
        return Err(CapError::InvalidParameter);
    }
    write(0, &RuntimeBootInfo::new(RING_ARENA, RingAbi::V2).to_bytes());
    write(16, &(program.grants.len() as u32).to_le_bytes());
    write(20, &(program.arguments.len() as u32).to_le_bytes());
    write(24, &(program.data.len() as u64).to_le_bytes());
    let mut caps = Caps::default();
    for (number, (name, object)) in program.grants.iter().enumerate() {
        let object = match object {
            // Whoever holds memory pays for it.
            Object::Memory(memory) => Object::Memory(memory.held_by(ledger)?),
            other => other.clone(),
        };
        let cap = caps.insert(object)?;
        let at = 32 + number * size_of::<StartupCap>();
        write(at, &cap_name(name).ok_or(CapError::InvalidParameter)?);
        write(at + 16, &cap.to_le_bytes());
    }
    write(32 + STARTUP_CAPS * size_of::<StartupCap>(), program.arguments.as_bytes());
    map_bytes(space, STARTUP, &page, PAGE as u64, Flags::Read)?;
    Ok(caps)
}

fn text(text: capnp::Result<capnp::text::Reader<'_>>) -> Result<&str, CapError> {
    text.map_err(|_| CapError::InvalidParameter)?.to_str().map_err(|_| CapError::InvalidParameter)
}

pub fn spawner(call: &Call<'_>) -> Result<Answer, CapError> {
    let ProcessSpawnerMethod::Spawn =
        ProcessSpawnerMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let caller = call.process();
    let cap = NewCap::reserve(caller)?;
    let planned = decide_spawn(call, caller)?;
    // The answer comes first: a process whose maker cannot be told of it is not started.
    let answer = with_result::<wire_handle::Owned>(call, |mut result| {
        result.set_cap(cap.number());
        result.set_slot(planned.slot());
    })?;
    cap.fulfil(Object::ProcessHandle(planned.apply(false)));
    Ok(answer)
}

/// Whether what the parameters name can be started. Its first thread has no more of the CPU than whoever starts it.
fn decide_spawn(call: &Call<'_>, caller: &Process) -> Result<PlannedProcess, CapError> {
    with_params::<process_spawn::Owned, _>(call, |params| {
        let name = text(params.get_program())?;
        let mut grants: Few<(&str, Object), STARTUP_CAPS> = Few::new();
        for grant in params.get_grants().map_err(|_| CapError::InvalidParameter)? {
            let object = caller.state.lock().caps.find(grant.get_cap())?;
            if !object.can_be_granted() {
                return Err(CapError::InvalidParameter);
            }
            grants.push((text(grant.get_name())?, object)).map_err(|_| CapError::InvalidParameter)?;
        }
        let elf = crate::boot::program(name).ok_or(CapError::NotFound)?;
        let arguments = text(params.get_arguments())?;
        let program = Program { name, elf, arguments, data: &[], grants: &grants };
        PlannedProcess::decide(&program, Share::DEFAULT.within(Share::of_caller()))
    })
}

pub fn handle(call: &mut Call<'_>, of: &Hold<Process>) -> Result<Answer, CapError> {
    match ProcessHandleMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        ProcessHandleMethod::Wait => {
            let deadline = deadline_of(call)?;
            let mut state = of.state.lock();
            match state.ending {
                Some(code) if state.ended => return Ok(Answer::Done(code as u32)),
                _ if state.waiters.is_full() => return Err(CapError::Overloaded),
                _ => {}
            }
            let waiter = call.begin(Awaits::Process(of.name()), deadline)?;
            // There is room, as was just seen.
            let _ = state.waiters.push(waiter);
            Ok(Answer::Pending)
        }
        ProcessHandleMethod::Kill => {
            dispatch::end_process(of, KILLED_BY_HANDLE);
            Ok(Answer::Done(0))
        }
        ProcessHandleMethod::Detach => {
            let object = call.process().state.lock().caps.remove(call.request.v1.cap_id)?;
            drop(object);
            Ok(Answer::Done(0))
        }
    }
}
