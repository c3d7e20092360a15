//! A driver of the machine's card that never starts it: it asks for all that a driver needs, uses it as far as that cannot make the
//! card write memory, and is ended in the middle of anything. `generate/devices.rs` says why it goes no further.
//!
//! Registers are mapped to be read. Memory that the card could reach is this process's alone as long as the card is not told of it:
//! it begins cleared, and keeps what is written.

use crate::child::CARD;
use crate::methods::{Kind, Method};
use crate::random::Random;
use crate::shared;
use core::sync::atomic::Ordering;
use mainspring_abi::ring::CapError;
use mainspring_user::arch;
use mainspring_user::caps::{self, Device, DmaMemory};
use mainspring_user::say;
use mainspring_user::schema::Access;

/// Rounds of one driver.
const ROUNDS: u64 = 60;
/// Words of a page.
const WORDS: u64 = 512;
/// The longest wait for a message that does not come.
const LONGEST_WAIT_NS: u64 = 2_000_000;

/// A driver with this seed.
pub fn run(seed: u64) -> i64 {
    shared::attach();
    let (Some(card), mut random) = (caps::find(CARD), Random::new(seed, 33)) else { return 0 };
    let card = Device(card);
    for _ in 0..1 + random.below(ROUNDS) {
        if shared::read(shared::STOP) != 0 {
            break;
        }
        if let Err(what) = round(card, &mut random) {
            say!("fuzz: HARM {what}");
            return 1;
        }
    }
    0
}

/// Something of what a driver does. What it is refused is no matter: another process may drive the card.
fn round(card: Device, random: &mut Random) -> Result<(), &'static str> {
    match random.below(8) {
        0 => {
            if let Ok(info) = told(0, || card.info())
                && (info.vendor, info.kind) != (0x1af4, 0x1041)
            {
                return Err("the card is another");
            }
        }
        1 => {
            let register = random.word() as u8;
            let _ = told(1, || card.config(register));
        }
        2 => read_registers(card, random),
        3..6 => return use_memory(card, random),
        _ => {
            let message = random.below(4) as u32;
            if let Ok(line) = told(4, || card.interrupt(message)) {
                let until = caps::now() + random.below(LONGEST_WAIT_NS);
                let _ = counted(Method::find(Kind::Interrupt, 0), || line.wait_until(until));
            }
        }
    }
    Ok(())
}

fn read_registers(card: Device, random: &mut Random) {
    let number = random.below(6) as u32;
    let Ok(registers) = told(2, || card.registers(number)) else { return };
    if let Ok(at) = caps::map_object(registers.cap, Access::Read) {
        let word = random.below(registers.bytes / 8);
        let _any = arch::word(at + 8 * word).load(Ordering::Relaxed);
        if random.once_in(2) {
            let _ = caps::unmap_object(at);
        }
    }
}

fn use_memory(card: Device, random: &mut Random) -> Result<(), &'static str> {
    let pages = 1 + random.below(8);
    let Ok(memory) = told(3, || card.create_dma(pages as u32)) else { return Ok(()) };
    let mut last = None;
    for page in 0..pages {
        let address = counted(Method::find(Kind::Dma, 0), || memory.address(page as u32));
        let address = address.map_err(|_| "memory of the card's own has no address")?;
        if address % 4096 != 0 || last.replace(address) == Some(address) {
            return Err("two pages of the card's memory are one");
        }
    }
    if memory.address(pages as u32).is_ok() {
        return Err("the card has a page that nobody made");
    }
    holds_words(memory, pages, random)
}

/// Its memory is cleared, and holds what is written to it.
fn holds_words(memory: DmaMemory, pages: u64, random: &mut Random) -> Result<(), &'static str> {
    let Ok(at) = caps::map_object(memory.0, Access::Write) else { return Ok(()) };
    let mut words = (0..pages * WORDS).map(|number| arch::word(at + 8 * number));
    if words.any(|word| word.load(Ordering::Relaxed) != 0) {
        return Err("memory of the card was not cleared");
    }
    let (word, value) = (arch::word(at + 8 * random.below(pages * WORDS)), random.word());
    word.store(value, Ordering::Relaxed);
    arch::spin(random.below(20_000));
    if word.load(Ordering::Relaxed) != value {
        return Err("memory of the card changed");
    }
    if random.once_in(2) {
        let _ = caps::unmap_object(at);
    }
    Ok(())
}

/// Asks the card for something, and counts that.
fn told<T>(method: u16, ask: impl FnOnce() -> Result<T, CapError>) -> Result<T, CapError> {
    counted(Method::find(Kind::Device, method), ask)
}

fn counted<T>(method: Option<Method>, ask: impl FnOnce() -> Result<T, CapError>) -> Result<T, CapError> {
    shared::count(shared::CALLS, 1);
    let answer = ask();
    if let Some(method) = method {
        shared::asked(method);
        if answer.is_ok() {
            shared::done(method);
        }
    }
    answer
}
