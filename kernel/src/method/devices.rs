//! Device, DmaMemory and Interrupt.

use super::memory::ObjectJob;
use super::message::{with_params, with_result};
use super::new_cap::NewCap;
use super::threads::deadline_of;
use super::work::Job;
use super::{Answer, Call};
use crate::devices::{self, Waits};
use crate::object::caps::Object;
use crate::object::device::{DeviceId, LineId};
use crate::object::inbox::Awaits;
use crate::object::memory::MemoryObject;
use mainspring_abi::ring::CapError;
use mainspring_schema as schema;
use mainspring_schema::{DeviceMethod, DmaMemoryMethod, InterruptMethod};

pub fn device(call: &mut Call<'_>, id: DeviceId) -> Result<Answer, CapError> {
    match DeviceMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)? {
        DeviceMethod::Info => {
            let ((vendor, kind), messages) = devices::info(id)?;
            with_result::<schema::device_info::Owned>(call, |mut result| {
                result.set_vendor(vendor);
                result.set_kind(kind);
                result.set_interrupts(messages);
            })
        }
        DeviceMethod::Config => {
            let register = number(call)?;
            let register = u8::try_from(register).map_err(|_| CapError::InvalidParameter)?;
            Ok(Answer::Done(devices::config(id, register)?))
        }
        DeviceMethod::Memory => memory(call, id),
        DeviceMethod::CreateDma => create_dma(call, id),
        DeviceMethod::Interrupt => {
            let message = u16::try_from(number(call)?).map_err(|_| CapError::InvalidParameter)?;
            let cap = NewCap::reserve(call.process())?;
            let told = with_result::<schema::handle::Owned>(call, |mut result| result.set_cap(cap.number()))?;
            cap.fulfil(Object::Interrupt(devices::open_line(id, call.process(), message)?));
            Ok(told)
        }
    }
}

fn number(call: &Call<'_>) -> Result<u32, CapError> {
    with_params::<schema::device_number::Owned, _>(call, |params| Ok(params.get_number()))
}

fn memory(call: &Call<'_>, id: DeviceId) -> Result<Answer, CapError> {
    let bar = number(call)? as usize;
    let registers = devices::registers(id, bar)?;
    let cap = NewCap::reserve(call.process())?;
    let told = with_result::<schema::device_registers::Owned>(call, |mut result| {
        result.set_cap(cap.number());
        result.set_address(registers.address);
        result.set_bytes(registers.bytes);
    })?;
    devices::drive(id, call.process())?;
    cap.fulfil(Object::DeviceMemory(registers));
    Ok(told)
}

fn create_dma(call: &Call<'_>, id: DeviceId) -> Result<Answer, CapError> {
    let pages = with_params::<schema::memory_range::Owned, _>(call, |params| Ok(params.get_pages()))?;
    let process = call.process();
    call.may_wait()?;
    if pages == 0 || pages as usize > devices::MEMORY_PAGES {
        return Err(CapError::InvalidParameter);
    }
    let object = MemoryObject::new(&process.ledger, pages as usize)?;
    let cap = NewCap::reserve(process)?;
    let told = with_result::<schema::handle::Owned>(call, |mut result| result.set_cap(cap.number()))?;
    devices::drive_with_memory(id, process, pages as usize)?;
    Ok(Answer::Work(Job::Object(ObjectJob::new(object, pages, cap, told.result(), Some(id)))))
}

pub fn dma_memory(call: &Call<'_>, object: &MemoryObject) -> Result<Answer, CapError> {
    let DmaMemoryMethod::Address =
        DmaMemoryMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let frame = object.page(number(call)? as usize).ok_or(CapError::InvalidParameter)?;
    let address = frame.device_address();
    with_result::<schema::dma_address::Owned>(call, |mut result| result.set_address(address))
}

/// Waits for a message. The request is in flight before the line is armed: from then on the interrupt finds it.
pub fn interrupt(call: &mut Call<'_>, line: LineId) -> Result<Answer, CapError> {
    let InterruptMethod::Wait =
        InterruptMethod::try_from(call.request.v1.method_id).map_err(|_| CapError::NoSuchMethod)?;
    let deadline = deadline_of(call)?;
    if call.thread.inbox.lock().has_awaiting(Awaits::Interrupt(line)) {
        return Err(CapError::Busy);
    }
    let waiter = call.begin(Awaits::Interrupt(line), deadline)?;
    let armed = devices::wait(line, call.thread.name());
    if armed == Ok(Waits::Armed) || !call.retract(waiter) {
        return Ok(Answer::Pending);
    }
    armed.map(|_over| Answer::Done(0))
}
