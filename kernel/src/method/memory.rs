//! VirtualMemory: the process's own pages.
//!
//! Every method decides first: it writes its result, charges, and claims each page that it is about. If any of that is
//! refused, the claims are let go of and nothing has changed that a program could see. Then it changes the pages, which cannot
//! fail. Pages that are taken away are kept until every CPU that may have a translation of them has forgotten it.
//!
//! All of it goes a few pages at a time, see [`super::work`].

use super::message::{with_params, with_result};
use super::new_cap::NewCap;
use super::work::{Job, Step};
use super::{Answer, Call};
use crate::arch::{AddressSpace, Flags, Frame, MapError, Owner, PAGE, Reserve};
use crate::devices;
use crate::object::caps::Object;
use crate::object::device::{DeviceId, Registers};
use crate::object::memory::MemoryObject;
use crate::object::process::{Process, refusal};
use crate::sched::flush::{self, Flush};
use mainspring_abi::kernel::{MAPPINGS, STACKS};
use mainspring_abi::ring::CapError;
use mainspring_schema::{Access, VirtualMemoryMethod, handle, map_object, memory_range};

/// Pages that one request may name.
const MOST: u32 = 8192;
/// Pages that are cleared in one piece of work.
const CLEARED: u32 = 8;
/// Pages that are looked at or changed in one piece of work.
const CHANGED: u32 = 64;

pub fn virtual_memory(call: &mut Call<'_>) -> Result<Answer, CapError> {
    let method =
        VirtualMemoryMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    // A thread that has as much in flight as it may begins nothing that can take long.
    call.may_wait()?;
    match method {
        VirtualMemoryMethod::CreateObject => create_object(call),
        VirtualMemoryMethod::MapObject => map_object(call),
        VirtualMemoryMethod::UnmapObject => unmap_object(call),
        VirtualMemoryMethod::Map | VirtualMemoryMethod::Unmap | VirtualMemoryMethod::Protect => {
            range(call, method)
        }
    }
}

fn range(call: &mut Call<'_>, method: VirtualMemoryMethod) -> Result<Answer, CapError> {
    let (mut address, pages, access) = with_params::<memory_range::Owned, _>(call, |params| {
        Ok((params.get_address(), params.get_pages(), flags_of(params.get_access())?))
    })?;
    if pages == 0 || pages > MOST {
        return Err(CapError::InvalidParameter);
    }
    let chosen = method == VirtualMemoryMethod::Map && address == 0;
    if chosen {
        address = somewhere(call, u64::from(pages))?;
    }
    let end = address.checked_add(u64::from(pages) * PAGE as u64).ok_or(CapError::BadAddress)?;
    if !address.is_multiple_of(PAGE as u64) || address < MAPPINGS || end > STACKS {
        return Err(CapError::BadAddress);
    }
    let mut next_mapping = None;
    let (what, len) = match method {
        VirtualMemoryMethod::Map => {
            let told = place_told(call, address, pages)?;
            if chosen {
                next_mapping = Some(take_place(call, address, pages)?);
            }
            (What::Map(access), told)
        }
        VirtualMemoryMethod::Protect => (What::Protect(access), 0),
        _ => (What::Unmap, 0),
    };
    let job = PageJob::new(what, address, pages, len).at_chosen_place(next_mapping);
    Ok(Answer::Work(Job::Pages(job)))
}

fn flags_of(access: Result<Access, capnp::NotInSchema>) -> Result<Flags, CapError> {
    Ok(match access.map_err(|_| CapError::InvalidParameter)? {
        Access::Read => Flags::Read,
        Access::Write => Flags::Write,
        Access::Execute => Flags::Execute,
    })
}

/// An address for so many pages. A page between two mappings is never mapped: running over one is a fault.
fn somewhere(call: &Call<'_>, pages: u64) -> Result<u64, CapError> {
    let address = call.process().state.lock().next_mapping;
    if address + (pages + 1) * PAGE as u64 > STACKS {
        return Err(CapError::NoMemory);
    }
    Ok(address)
}

/// Nobody else gets the address that [`somewhere`] gave; refused if somebody has meanwhile.
/// Where the next mapping goes then.
fn take_place(call: &Call<'_>, address: u64, pages: u32) -> Result<u64, CapError> {
    let mut state = call.process().state.lock();
    if state.next_mapping != address {
        return Err(CapError::Busy);
    }
    state.next_mapping = address + (u64::from(pages) + 1) * PAGE as u64;
    Ok(state.next_mapping)
}

/// The mapping at `address`, for which [`take_place`] gave `next_mapping`, is not made. Its place is free again, unless
/// somebody has the one after it.
fn give_place_back(process: &Process, address: u64, next_mapping: u64) {
    let mut state = process.state.lock();
    if state.next_mapping == next_mapping {
        state.next_mapping = address;
    }
}

/// Says in the request's result where the mapping will be. Told first: a result that cannot be told is refused.
fn place_told(call: &Call<'_>, address: u64, pages: u32) -> Result<u32, CapError> {
    let told = with_result::<memory_range::Owned>(call, |mut result| {
        result.set_address(address);
        result.set_pages(pages);
    })?;
    Ok(told.result())
}

fn create_object(call: &Call<'_>) -> Result<Answer, CapError> {
    let pages = with_params::<memory_range::Owned, _>(call, |params| Ok(params.get_pages()))?;
    if pages == 0 || pages > MOST {
        return Err(CapError::InvalidParameter);
    }
    let process = call.process();
    let object = MemoryObject::new(&process.ledger, pages as usize)?;
    let cap = NewCap::reserve(process)?;
    let told = with_result::<handle::Owned>(call, |mut result| result.set_cap(cap.number()))?;
    Ok(Answer::Work(Job::Object(ObjectJob::new(object, pages, cap, told.result(), None))))
}

fn map_object(call: &Call<'_>) -> Result<Answer, CapError> {
    let (cap, access) = with_params::<map_object::Owned, _>(call, |params| {
        Ok((params.get_cap(), flags_of(params.get_access())?))
    })?;
    let found = call.process().state.lock().caps.find(cap)?;
    let (what, pages) = match found {
        Object::Memory(object) | Object::DmaMemory(object) => {
            let pages = object.len() as u32;
            (What::MapObject(object, access), pages)
        }
        Object::DeviceMemory(_) if access == Flags::Execute => return Err(CapError::Denied),
        Object::DeviceMemory(bar) if bar.pages() <= u64::from(MOST) => {
            (What::MapDevice(bar, access), bar.pages() as u32)
        }
        _ => return Err(CapError::InvalidCapability),
    };
    let address = somewhere(call, u64::from(pages))?;
    let len = place_told(call, address, pages)?;
    let next_mapping = take_place(call, address, pages)?;
    let job = PageJob::new(what, address, pages, len);
    Ok(Answer::Work(Job::Pages(job.at_chosen_place(Some(next_mapping)))))
}

fn unmap_object(call: &Call<'_>) -> Result<Answer, CapError> {
    let address = with_params::<memory_range::Owned, _>(call, |params| Ok(params.get_address()))?;
    if !address.is_multiple_of(PAGE as u64) || !(MAPPINGS..STACKS).contains(&address) {
        return Err(CapError::BadAddress);
    }
    Ok(Answer::Work(Job::Pages(PageJob::new(What::UnmapObject, address, MOST, 0))))
}

/// An object that is being made.
pub struct ObjectJob {
    object: MemoryObject,
    pages: u32,
    cap: Option<NewCap>,
    len: u32,
    /// The device that keeps it, if it is for one.
    device: Option<DeviceId>,
    /// Why it will not be made: what there is of it is given back first.
    refused: Option<CapError>,
}

impl ObjectJob {
    pub fn new(object: MemoryObject, pages: u32, cap: NewCap, len: u32, device: Option<DeviceId>) -> Self {
        Self { object, pages, cap: Some(cap), len, device, refused: None }
    }

    pub fn step(&mut self, process: &Process) -> Step {
        if let Some(code) = self.refused {
            return if self.object.unfill(CHANGED) { Step::Done(Err(code)) } else { Step::More };
        }
        let made = self.object.len() as u32;
        if made < self.pages {
            let filled = (0..CLEARED.min(self.pages - made)).try_for_each(|_| self.object.fill());
            self.refused = filled.err();
            return Step::More;
        }
        // The capability takes the charges with it: it ends after the device has given the object up, see `Ending`.
        let rest = self.object.clone();
        let object = core::mem::replace(&mut self.object, rest);
        let made = match self.device {
            None => Object::Memory(object),
            Some(device) if devices::keep(device, process, object.clone()) => Object::DmaMemory(object),
            Some(_) => {
                (self.object, self.refused) = (object, Some(CapError::QuotaExceeded));
                return Step::More;
            }
        };
        if let Some(cap) = self.cap.take() {
            cap.fulfil(made);
        }
        Step::Done(Ok(self.len))
    }

    /// Gives back a piece of what there is of the object; whether nothing is left.
    pub fn undo(&mut self) -> bool {
        self.cap = None;
        self.object.unfill(CHANGED)
    }
}

/// What is to be done with pages.
#[derive(Debug)]
enum What {
    Map(Flags),
    MapObject(MemoryObject, Flags),
    MapDevice(Registers, Flags),
    Unmap,
    UnmapObject,
    Protect(Flags),
}

/// How far an operation is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Whether all places are free, and charging for them.
    Survey,
    /// Claiming each page.
    Claim,
    /// It is refused: letting go of what was claimed.
    LetGo(CapError),
    /// Taking away what excludes what is to come: no CPU may have the one when another has the other.
    Retract,
    /// Changing each page.
    Apply,
    /// Other CPUs are forgetting translations.
    Flushing(Flush),
    /// Giving back each page that was hidden.
    Free,
}

/// An operation on pages.
#[derive(Debug)]
pub struct PageJob {
    what: What,
    address: u64,
    pages: u32,
    phase: Phase,
    /// The page that the phase has arrived at.
    next: u32,
    reserve: Option<Reserve>,
    /// A page that is to be executable is writable now, or the other way round.
    retracts: bool,
    /// Where the next mapping goes, if the place of this one was chosen by [`somewhere`].
    chosen: Option<u64>,
    len: u32,
}

fn told(why: MapError) -> CapError {
    match why {
        MapError::BadAddress | MapError::Occupied => CapError::BadAddress,
        MapError::Busy => CapError::Busy,
        MapError::Denied => CapError::Denied,
        MapError::Refused(why) => refusal(why),
        MapError::NoMemory => CapError::NoMemory,
    }
}

impl PageJob {
    fn new(what: What, address: u64, pages: u32, len: u32) -> Self {
        let phase = match what {
            What::Map(_) | What::MapObject(..) | What::MapDevice(..) => Phase::Survey,
            What::Unmap | What::UnmapObject | What::Protect(_) => Phase::Claim,
        };
        Self { what, address, pages, phase, next: 0, reserve: None, retracts: false, chosen: None, len }
    }

    /// At a place that [`take_place`] took, and that is free again if the mapping is refused.
    fn at_chosen_place(self, next_mapping: Option<u64>) -> Self {
        Self { chosen: next_mapping, ..self }
    }

    fn page(&self, number: u32) -> u64 {
        self.address + u64::from(number) * PAGE as u64
    }

    fn begin(&mut self, phase: Phase) {
        (self.phase, self.next) = (phase, 0);
    }

    pub fn step(&mut self, process: &Process) -> Step {
        let step = self.step_on(process);
        if let (Step::Done(Err(_)), Some(next_mapping)) = (&step, self.chosen) {
            give_place_back(process, self.address, next_mapping);
        }
        step
    }

    fn step_on(&mut self, process: &Process) -> Step {
        let done = match self.phase {
            Phase::Flushing(flush) => {
                if !flush.is_done() {
                    return Step::Wait;
                }
                match self.what {
                    What::Protect(_) if core::mem::take(&mut self.retracts) => {
                        self.begin(Phase::Apply);
                        None
                    }
                    What::Protect(_) => Some(Ok(self.len)),
                    _ => {
                        self.begin(Phase::Free);
                        None
                    }
                }
            }
            Phase::Claim if matches!(self.what, What::Map(_)) => self.claim_cleared(process),
            _ => match process.with_space(|space| self.step_in(space)) {
                Ok(Some(Next::Flush)) => {
                    self.begin(Phase::Flushing(flush::shoot_down(process)));
                    None
                }
                Ok(Some(Next::Done(outcome))) => Some(outcome),
                Ok(None) => None,
                Err(code) => Some(Err(code)),
            },
        };
        done.map_or(Step::More, Step::Done)
    }

    /// New pages are cleared with the address space unlocked.
    fn claim_cleared(&mut self, process: &Process) -> Option<Result<u32, CapError>> {
        for _ in 0..CLEARED.min(self.pages - self.next) {
            let page = self.page(self.next);
            let claimed = Frame::new().ok_or(MapError::NoMemory).and_then(|frame| {
                let reserve = self.reserve.as_mut().ok_or(MapError::NoMemory)?;
                let claim = |space: &mut AddressSpace| space.claim_free(page, frame, Owner::Process, reserve);
                process.with_space(claim).unwrap_or(Err(MapError::NoMemory))
            });
            if let Err(why) = claimed {
                self.let_go(why);
                return None;
            }
            self.next += 1;
        }
        if self.next == self.pages {
            self.begin(Phase::Apply);
        }
        None
    }

    /// What was claimed is let go of, and then the request is refused.
    fn let_go(&mut self, why: MapError) {
        self.pages = self.next;
        self.begin(Phase::LetGo(told(why)));
    }

    fn step_in(&mut self, space: &mut AddressSpace) -> Option<Next> {
        let end = self.pages.min(self.next + CHANGED);
        match self.phase {
            Phase::Survey => {
                if (self.next..end).any(|number| !space.is_free(self.page(number))) {
                    return Some(Next::Done(Err(CapError::BadAddress)));
                }
                if end == self.pages {
                    let owner = match self.what {
                        What::MapObject(..) => Owner::Object { first: true },
                        What::MapDevice(..) => Owner::Device { first: true },
                        _ => Owner::Process,
                    };
                    match space.reserve(self.address, u64::from(self.pages), owner) {
                        Ok(reserve) => self.reserve = Some(reserve),
                        Err(why) => return Some(Next::Done(Err(refusal(why)))),
                    }
                    self.begin(Phase::Claim);
                    return None;
                }
            }
            Phase::Claim => return self.claim(space, end),
            Phase::LetGo(code) => {
                (self.next..end).for_each(|number| space.let_go(self.page(number)));
                if end == self.pages {
                    return Some(Next::Done(Err(code)));
                }
            }
            Phase::Retract => {
                if let What::Protect(access) = self.what {
                    (self.next..end).for_each(|number| space.retract(self.page(number), access));
                }
                if end == self.pages {
                    return Some(Next::Flush);
                }
            }
            Phase::Apply => {
                for number in self.next..end {
                    let page = self.page(number);
                    match self.what {
                        What::Map(access) | What::MapObject(_, access) | What::MapDevice(_, access) => {
                            space.show(page, access);
                        }
                        What::Unmap | What::UnmapObject => space.hide(page),
                        What::Protect(access) => space.protect(page, access),
                    }
                }
                if end == self.pages {
                    return Some(match self.what {
                        What::Map(_) | What::MapObject(..) | What::MapDevice(..) => Next::Done(Ok(self.len)),
                        _ => Next::Flush,
                    });
                }
            }
            Phase::Free => {
                (self.next..end).for_each(|number| space.free(self.page(number)));
                if end == self.pages {
                    return Some(Next::Done(Ok(0)));
                }
            }
            Phase::Flushing(_) => {}
        }
        self.next = end;
        None
    }

    fn claim(&mut self, space: &mut AddressSpace, end: u32) -> Option<Next> {
        while self.next < end {
            let (page, first) = (self.page(self.next), self.next == 0);
            let claimed = match &self.what {
                What::Unmap => space.claim_own(page).map(|_| ()),
                What::Protect(access) => {
                    space.claim_own(page).map(|now| self.retracts |= now.excludes(*access))
                }
                What::UnmapObject => match space.claim_object(page, first) {
                    // It has as many pages as have been found.
                    Ok(false) if !first => {
                        self.pages = self.next;
                        break;
                    }
                    Ok(found) => {
                        if found {
                            Ok(())
                        } else {
                            Err(MapError::BadAddress)
                        }
                    }
                    Err(why) => Err(why),
                },
                What::Map(_) => Ok(()),
                What::MapObject(object, _) => match (object.page(self.next as usize), &mut self.reserve) {
                    (Some(frame), Some(reserve)) => {
                        space.claim_free(page, frame, Owner::Object { first }, reserve)
                    }
                    _ => Err(MapError::NoMemory),
                },
                What::MapDevice(bar, _) => {
                    let registers = bar.address + u64::from(self.next) * PAGE as u64;
                    match &mut self.reserve {
                        Some(reserve) => space.claim_device(page, registers, first, reserve),
                        None => Err(MapError::NoMemory),
                    }
                }
            };
            if let Err(why) = claimed {
                self.let_go(why);
                return None;
            }
            self.next += 1;
        }
        if self.next == self.pages {
            match &self.what {
                // The last that can be refused.
                What::MapObject(object, access) if !object.allow(*access) => self.let_go(MapError::Denied),
                What::Protect(_) if self.retracts => self.begin(Phase::Retract),
                _ => self.begin(Phase::Apply),
            }
        }
        None
    }
}

/// What comes after a phase.
enum Next {
    Flush,
    Done(Result<u32, CapError>),
}
