//! The card, as the TCP/IP stack wants it: packets are copied on their way in and written in place on their way out.

use alloc::rc::Rc;
use core::cell::RefCell;
use mainspring_user::arch::virtio::NetworkCard;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// The longest packet of Ethernet.
const PACKET: usize = 1514;

/// The card.
pub struct Card {
    card: Rc<RefCell<NetworkCard>>,
    /// A packet that was taken from the card, and its length until the stack has asked for it.
    packet: [u8; PACKET],
    next: Option<usize>,
}

/// What came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// No packet.
    Nothing,
    /// One that has no use here. It is gone.
    Useless,
    /// One for the stack.
    Packet,
}

/// ARP, and ICMP and TCP over IPv4: all that the stack serves. Refusing anything else costs more than the sender's packet is worth.
fn has_use(packet: &[u8]) -> bool {
    match packet.get(12..14) {
        Some([0x08, 0x06]) => true,
        Some([0x08, 0x00]) => matches!(packet.get(23), Some(1 | 6)),
        _ => false,
    }
}

impl Card {
    /// Wraps the card.
    pub fn new(card: NetworkCard) -> Self {
        Self { card: Rc::new(RefCell::new(card)), packet: [0; PACKET], next: None }
    }

    /// Its address.
    pub fn address(&self) -> [u8; 6] {
        self.card.borrow().address()
    }

    /// Tells the card of what it was given since the last time.
    pub fn tell(&self) {
        self.card.borrow().tell();
    }

    /// Takes a packet from the card, unless the stack still has to take the last one.
    pub fn fetch(&mut self) -> Came {
        if self.next.is_none() {
            let Some(len) = self.card.borrow_mut().receive(&mut self.packet) else { return Came::Nothing };
            if !has_use(&self.packet[..len]) {
                return Came::Useless;
            }
            self.next = Some(len);
        }
        Came::Packet
    }
}

impl Device for Card {
    type RxToken<'a> = Packet<'a>;
    type TxToken<'a> = Room;

    fn receive(&mut self, _: Instant) -> Option<(Packet<'_>, Room)> {
        // An answer may be due: without room for it, the packet waits.
        let room = self.transmit(Instant::ZERO)?;
        let len = self.next.take()?;
        Some((Packet(&self.packet[..len]), room))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room> {
        self.card.borrow_mut().can_send().then(|| Room(Rc::clone(&self.card)))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = PACKET;
        capabilities
    }
}

/// A packet that has come in.
pub struct Packet<'a>(&'a [u8]);

impl RxToken for Packet<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, act: F) -> R {
        act(self.0)
    }
}

/// Room for a packet on its way out.
pub struct Room(Rc<RefCell<NetworkCard>>);

impl TxToken for Room {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, act: F) -> R {
        self.0.borrow_mut().send(len, act)
    }
}
