//! ProcessSpawner and ProcessHandle, and how a program becomes a process.

use super::message::{with_params, with_result};
use super::new_cap::NewCap;
use super::threads::{NewThread, PlannedThread, Share, ThreadMemory, deadline_of, map_thread_memory};
use super::work::{Job, Step, TAKEN_APART, give_up_caps};
use super::{Answer, Call};
use crate::arch::{AddressSpace, Flags, Frame, MapError, Owner, PAGE, Reserve};
use crate::object::caps::Object;
use crate::object::endpoint::endpoint;
use crate::object::hold::Hold;
use crate::object::inbox::Awaits;
use crate::object::process::{self, PAGES, Process, refusal};
use crate::sched::contexts::{self, SESSIONS_EACH};
use crate::sched::dispatch;
use elf::ElfBytes;
use elf::abi::{PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use heapless::{String, Vec as Few};
use mainspring_abi::kernel::{
    ARGUMENTS, DATA, KILLED_BY_HANDLE, RING_ARENA, STARTUP, STARTUP_CAPS, StartupCap, cap_name,
};
use mainspring_abi::ring::{CapError, RingAbi, RuntimeBootInfo};
use mainspring_driver::sessions::SessionRef;
use mainspring_kernel_core::ledger::Ledger;
use mainspring_sched::context::ContextSpec;
use mainspring_schema::{ProcessHandleMethod, ProcessSpawnerMethod, handle as wire_handle, process_spawn};

/// A program to be started.
#[derive(Debug)]
pub struct Program<'a> {
    /// What the process is called.
    pub name: &'a str,
    /// Its file.
    pub elf: &'static [u8],
    /// The text it is given.
    pub arguments: &'a str,
    /// Bytes that it finds at [`DATA`].
    pub data: &'static [u8],
    /// Capabilities, and what it finds them under.
    pub grants: &'a [(&'a str, Object)],
    /// Scheduling contexts of its own.
    pub contexts: &'a [StartupContext<'a>],
    /// The session that it is in.
    pub session: InSession,
    /// Sessions that it begins, holds and is not in, by what it finds them under: `session:` and a name.
    pub held_sessions: &'a [&'a str],
    /// What contexts that it makes may have of one CPU, in percent.
    pub spare_percent: u64,
    /// The family that it is of, see [`process::allocate`].
    pub family: u32,
}

/// A scheduling context that a process begins with.
#[derive(Debug)]
pub struct StartupContext<'a> {
    /// What the process finds it under.
    pub name: &'a str,
    /// What it grants.
    pub spec: ContextSpec,
    /// The endpoint that is told of its faults.
    pub handler: Option<u32>,
    /// Endpoints whose calls are served on it by threads that have no context.
    pub serves: heapless::Vec<u32, SERVES>,
}

/// Endpoints that one context serves.
const SERVES: usize = 4;

/// Which session a process is in.
#[derive(Clone, Copy, Debug)]
pub enum InSession {
    /// One that it begins, and that ends with it.
    Begins,
    /// The one of the process that starts it, if that is in any.
    Of(Option<SessionRef>),
}

/// Programs lie below this.
const PROGRAM_END: u64 = 0x4000_0000_0000;

/// Segments that a program may have.
const SEGMENTS: usize = 16;
/// Pages that are filled in one piece of work.
const FILLED: u32 = 8;

/// A process in the making, in a slot that nobody else knows. Dropping it gives everything back, unless it has started.
struct Draft {
    process: Hold<Process>,
    started: bool,
}

impl Draft {
    fn new(name: &str, family: u32) -> Result<Self, CapError> {
        let process = process::allocate(family)?;
        let name = name.get(..name.len().min(32)).unwrap_or("?");
        process.prepare(String::try_from(name).unwrap_or_default());
        let draft = Self { process, started: false };
        let space = AddressSpace::new(draft.ledger()).map_err(refusal)?;
        *draft.process.space.lock() = Some(space);
        Ok(draft)
    }

    fn ledger(&self) -> &'static Ledger<'static> {
        &self.process.slot().ledger
    }

    /// Gives back a piece of what it has; whether nothing is left.
    fn undo(&mut self) -> bool {
        if give_up_caps(&self.process) {
            return false;
        }
        let mut space = self.process.space.lock();
        if space.as_mut().is_some_and(|space| !space.take_apart(TAKEN_APART)) {
            return false;
        }
        *space = None;
        true
    }

    fn start(mut self, essential: bool) -> Hold<Process> {
        self.started = true;
        self.process.begin(essential);
        self.process.clone()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        while !self.started && !self.undo() {}
    }
}

/// A process that is laid out a piece at a time. Nobody can see any of it before it is started.
// In this order what is charged to the process is given back before the process.
pub struct PlannedProcess {
    elf: &'static [u8],
    data: &'static [u8],
    thread: PlannedThread,
    next: Part,
    /// What the last part is being filled with.
    filling: Option<Filling>,
    draft: Draft,
}

/// What is laid out next.
enum Part {
    Segment(usize),
    Data,
    Place,
    /// Nothing is: it can be started, and nothing can be in the way any more.
    Whole(ThreadMemory),
}

impl PlannedProcess {
    /// Begins to lay `program` out; with `share` of the CPU for its first thread. Everything is checked that does not grow
    /// with the program.
    pub fn begin(program: &Program<'_>, share: Share) -> Result<Self, CapError> {
        let entry = check(program.elf)?;
        let draft = Draft::new(program.name, program.family)?;
        tell(&draft, program)?;
        let new = NewThread { entry, argument: STARTUP, share, cpus: 0 };
        let thread = PlannedThread::decide(new, draft.ledger())?;
        let (elf, data) = (program.elf, program.data);
        Ok(Self { draft, elf, data, thread, next: Part::Segment(0), filling: None })
    }

    /// Lays `program` out in one go.
    pub fn decide(program: &Program<'_>, share: Share) -> Result<Self, CapError> {
        let mut planned = Self::begin(program, share)?;
        while !planned.step()? {}
        Ok(planned)
    }

    /// Lays out a piece; whether it is whole.
    fn step(&mut self) -> Result<bool, CapError> {
        let process = &self.draft.process;
        if let Some(filling) = &mut self.filling {
            if process.with_space(|space| filling.step(space))?? {
                self.filling = None;
            }
            return Ok(false);
        }
        match self.next {
            Part::Segment(number) => match segments(self.elf)?.nth(number) {
                Some(segment) => {
                    self.filling =
                        process.with_space(|space| Filling::segment(space, self.elf, &segment))??;
                    self.next = Part::Segment(number + 1);
                }
                None => self.next = Part::Data,
            },
            Part::Data => {
                let len = self.data.len() as u64;
                self.filling =
                    process.with_space(|space| Filling::new(space, DATA, self.data, len, Flags::Read))??;
                self.next = Part::Place;
            }
            Part::Place => {
                self.next = Part::Whole(process.with_space(|space| map_thread_memory(space, 0))??);
            }
            Part::Whole(_) => return Ok(true),
        }
        Ok(false)
    }

    /// The slot that it will have.
    fn slot(&self) -> u32 {
        self.draft.process.index()
    }

    /// Starts it, if it is whole. Whoever wants to ask how it ends has the hold.
    pub fn apply(self, essential: bool) -> Option<Hold<Process>> {
        let Self { draft, thread, next: Part::Whole(memory), .. } = self else { return None };
        let process = draft.start(essential);
        let _it_is_its_own = thread.apply(process.slot(), memory);
        Some(process)
    }
}

/// A request for a process, which is made a piece at a time.
pub struct SpawnJob {
    /// `None` once it has been started.
    planned: Option<PlannedProcess>,
    /// Why it will not be: what there is of it is given back first.
    refused: Option<CapError>,
    cap: Option<NewCap>,
    len: u32,
}

impl SpawnJob {
    pub fn step(&mut self) -> Step {
        if let Some(code) = self.refused {
            return if self.undo() { Step::Done(Err(code)) } else { Step::More };
        }
        match self.planned.as_mut().map_or(Err(CapError::InvalidRequest), PlannedProcess::step) {
            Ok(false) => Step::More,
            Ok(true) => {
                let process = self.planned.take().and_then(|planned| planned.apply(false));
                if let (Some(process), Some(cap)) = (process, self.cap.take()) {
                    cap.fulfil(Object::ProcessHandle(process));
                }
                Step::Done(Ok(self.len))
            }
            Err(code) => {
                self.refused = Some(code);
                Step::More
            }
        }
    }

    /// Gives back a piece of what there is of the process; whether nothing is left.
    pub fn undo(&mut self) -> bool {
        let Some(planned) = &mut self.planned else { return true };
        // Its rings hold pages of it.
        planned.next = Part::Place;
        planned.filling = None;
        planned.draft.undo()
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

/// The segments of a program that are loaded.
fn segments(file: &'static [u8]) -> Result<impl Iterator<Item = ProgramHeader>, CapError> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| CapError::InvalidParameter)?;
    let all = elf.segments().into_iter().flat_map(|table| table.into_iter());
    Ok(all.filter(|segment| segment.p_type == PT_LOAD))
}

/// Whether a program can be loaded, as far as its file can say; where it begins.
fn check(file: &'static [u8]) -> Result<u64, CapError> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| CapError::InvalidParameter)?;
    let mut count = 0;
    for segment in segments(file)? {
        count += 1;
        let end = segment.p_vaddr.checked_add(segment.p_memsz).ok_or(CapError::InvalidParameter)?;
        let writable_code = segment.p_flags & PF_W != 0 && segment.p_flags & PF_X != 0;
        if count > SEGMENTS || writable_code || end > PROGRAM_END || segment.p_filesz > segment.p_memsz {
            return Err(CapError::InvalidParameter);
        }
        elf.segment_data(&segment).map_err(|_| CapError::InvalidParameter)?;
        // So many cannot be charged, and to count the tables they need would take long.
        if segment.p_memsz / PAGE as u64 > PAGES {
            return Err(CapError::QuotaExceeded);
        }
    }
    Ok(elf.ehdr.e_entry)
}

/// A range of a new address space that is being filled: first with bytes, then with zeros.
struct Filling {
    bytes: &'static [u8],
    address: u64,
    end: u64,
    flags: Flags,
    /// The next page.
    at: u64,
    reserve: Reserve,
}

impl Filling {
    /// `len` bytes at `address`. Nothing is to be filled if there are none.
    fn new(
        space: &AddressSpace,
        address: u64,
        bytes: &'static [u8],
        len: u64,
        flags: Flags,
    ) -> Result<Option<Self>, CapError> {
        let page = PAGE as u64;
        let (at, end) = (address & !(page - 1), address + len);
        if len == 0 {
            return Ok(None);
        }
        let reserve = space.reserve(at, (end - at).div_ceil(page), Owner::Process).map_err(refusal)?;
        Ok(Some(Self { bytes, address, end, flags, at, reserve }))
    }

    /// A segment that was [checked](check).
    fn segment(
        space: &AddressSpace,
        file: &'static [u8],
        segment: &ProgramHeader,
    ) -> Result<Option<Self>, CapError> {
        let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| CapError::InvalidParameter)?;
        let bytes = elf.segment_data(segment).map_err(|_| CapError::InvalidParameter)?;
        let flags = if segment.p_flags & PF_W != 0 {
            Flags::Write
        } else if segment.p_flags & PF_X != 0 {
            Flags::Execute
        } else {
            Flags::Read
        };
        Self::new(space, segment.p_vaddr, bytes, segment.p_memsz, flags)
    }

    /// Fills a few pages; whether those were the last.
    fn step(&mut self, space: &mut AddressSpace) -> Result<bool, CapError> {
        for _ in 0..FILLED {
            if self.at >= self.end {
                break;
            }
            let mut frame = Frame::new().ok_or(CapError::NoMemory)?;
            let from = self.at.max(self.address);
            if let Some(rest) = self.bytes.get((from - self.address) as usize..) {
                frame.write((from - self.at) as usize, rest);
            }
            space.claim_free(self.at, frame, Owner::Process, &mut self.reserve).map_err(refuse)?;
            space.show(self.at, self.flags);
            self.at += PAGE as u64;
        }
        Ok(self.at >= self.end)
    }
}

/// Gives the process the program's capabilities, and the page that tells it of them.
fn tell(draft: &Draft, program: &Program<'_>) -> Result<(), CapError> {
    let session = match program.session {
        InSession::Begins => {
            let begun = contexts::open_session(&draft.process).map_err(|_| CapError::QuotaExceeded)?;
            Some(("session", Object::UserSession(begun)))
        }
        InSession::Of(of) => {
            *draft.process.session.lock() = of.map(|session| (session, false));
            None
        }
    };
    let mut held: heapless::Vec<(&str, SessionRef), SESSIONS_EACH> = heapless::Vec::new();
    for name in program.held_sessions {
        let begun = contexts::hold_session(&draft.process).map_err(|_| CapError::QuotaExceeded)?;
        held.push((*name, begun)).map_err(|_| CapError::QuotaExceeded)?;
    }
    let count = program.grants.len() + program.contexts.len() + usize::from(session.is_some()) + held.len();
    if count > STARTUP_CAPS || program.arguments.len() > ARGUMENTS {
        return Err(CapError::InvalidParameter);
    }
    let mut page = Frame::new().ok_or(CapError::NoMemory)?;
    page.write(0, &RuntimeBootInfo::new(RING_ARENA, RingAbi::V2).to_bytes());
    page.write(16, &(count as u32).to_le_bytes());
    page.write(20, &(program.arguments.len() as u32).to_le_bytes());
    page.write(24, &(program.data.len() as u64).to_le_bytes());
    let granted = program.contexts.iter().map(|context| &context.spec);
    contexts::open_ledger(&draft.process, granted, program.spare_percent)
        .map_err(|_| CapError::QuotaExceeded)?;
    let contexts = program.contexts.iter().map(|context| {
        let made = contexts::grant(&draft.process, context.spec.clone());
        let who = made.map_err(|_| CapError::RealtimeAdmissionDenied)?;
        if let Some(endpoint) = context.handler {
            contexts::handle_faults(who, endpoint);
        }
        context.serves.iter().for_each(|index| endpoint(*index).lock().serve_on(who, None));
        Ok((context.name, Object::SchedulingContext(who)))
    });
    let sessions = session.into_iter().chain(held.iter().map(|(name, of)| (*name, Object::UserSession(*of))));
    let grants = program.grants.iter().map(|(name, object)| Ok((*name, object.clone())));
    for (number, granted) in grants.chain(contexts).chain(sessions.map(Ok)).enumerate() {
        let (name, object) = granted?;
        let name = cap_name(name).ok_or(CapError::InvalidParameter)?;
        let object = match object {
            // Whoever holds memory pays for it.
            Object::Memory(memory) => Object::Memory(memory.held_by(draft.ledger())?),
            other => other,
        };
        let cap = draft.process.state.lock().caps.insert(object, draft.ledger())?;
        let at = 32 + number * size_of::<StartupCap>();
        page.write(at, &name);
        page.write(at + 16, &cap.to_le_bytes());
    }
    page.write(32 + STARTUP_CAPS * size_of::<StartupCap>(), program.arguments.as_bytes());
    draft.process.with_space(|space| {
        let mut reserve = space.reserve(STARTUP, 1, Owner::Process).map_err(refusal)?;
        space.claim_free(STARTUP, page, Owner::Process, &mut reserve).map_err(refuse)?;
        space.show(STARTUP, Flags::Read);
        Ok(())
    })?
}

fn text(text: capnp::Result<capnp::text::Reader<'_>>) -> Result<&str, CapError> {
    text.map_err(|_| CapError::InvalidParameter)?.to_str().map_err(|_| CapError::InvalidParameter)
}

pub fn spawner(call: &Call<'_>) -> Result<Answer, CapError> {
    let ProcessSpawnerMethod::Spawn =
        ProcessSpawnerMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let caller = call.process();
    let cap = NewCap::reserve(caller)?;
    // A thread that has as much in flight as it may begins nothing that can take long.
    call.may_wait()?;
    let planned = decide_spawn(call, caller)?;
    // The answer comes first: a process whose maker cannot be told of it is not started.
    let told = with_result::<wire_handle::Owned>(call, |mut result| {
        result.set_cap(cap.number());
        result.set_slot(planned.slot());
    })?;
    let job = SpawnJob { planned: Some(planned), refused: None, cap: Some(cap), len: told.result() };
    Ok(Answer::Work(Job::Spawn(job)))
}

/// Begins to lay out what the parameters name. Its first thread has no more of the CPU than whoever starts it.
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
        let session = InSession::Of(caller.session.lock().map(|(session, _)| session));
        let program = Program {
            name,
            elf,
            arguments,
            data: &[],
            grants: &grants,
            contexts: &[],
            session,
            held_sessions: &[],
            spare_percent: 0,
            family: caller.family(),
        };
        PlannedProcess::begin(&program, Share::DEFAULT.within(Share::of_caller()))
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
