//! The network process: drives the card, runs TCP/IP, and serves sockets.
//!
//! One thread does all of it. It waits for whatever comes first: a message of the card, a call of a client, or the time at which
//! TCP wants to act. That time is the timeout of an ordinary wait, so a machine on which only TCP timers are pending takes no
//! ticks. If the process was granted a context called `context:net`, the thread runs on it, and takes packets only as long as
//! budget is left: a flood costs what the context grants, and nobody else.
//!
//! The capabilities `serve:net0` to `serve:net2` are the endpoints of its clients. The argument is its address: `10.0.2.15/24`.
#![no_std]
#![no_main]

extern crate alloc;

mod budget;
mod card;
mod sockets;

use budget::Budget;
use card::{Came, Card};
use mainspring_abi::kernel::{FOREVER, MAX_MESSAGE, ReceivedCall};
use mainspring_user::arch::virtio::NetworkCard;
use mainspring_user::caps::{self, Device};
use mainspring_user::client::{self, Ticket};
use mainspring_user::net::NetUsage;
use mainspring_user::{CapError, say};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use sockets::Sockets;

mainspring_user::program!(main);

/// Clients at the most.
const CLIENTS: usize = 3;
/// Packets that are taken before the budget is looked at.
const PACKETS: u32 = 32;
/// How long to wait for a card that has not sent anything yet of what it was given.
const FULL_NS: u64 = 100_000;

fn main() -> i64 {
    let Some(budget) = Budget::find() else { return serve(None) };
    // A thread can use a context on the context's CPU only.
    let options = caps::ThreadOptions { cpus: 1 << budget.cpu(), ..caps::ThreadOptions::default() };
    let thread = caps::spawn(options, move || match budget.bind() {
        Ok(()) => serve(Some(budget)),
        Err(code) => {
            say!("net: cannot be bound to its context: {code}");
            1
        }
    });
    match thread.and_then(|thread| thread.join()) {
        Ok(code) => code.into(),
        Err(code) => {
            say!("net: no thread: {code}");
            1
        }
    }
}

fn now() -> Instant {
    Instant::from_micros((caps::now() / 1000) as i64)
}

fn serve(budget: Option<Budget>) -> i64 {
    let card = match NetworkCard::open(Device(caps::need("device:1af4.1041"))) {
        Ok(card) => card,
        Err(why) => {
            say!("net: no card: {why:?}");
            return 1;
        }
    };
    let Ok(address) = caps::arguments().parse::<IpCidr>() else {
        say!("net: the argument is no address: {}", caps::arguments());
        return 1;
    };
    let interrupt = card.interrupt;
    let mut card = Card::new(card);
    let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(card.address())));
    config.random_seed = caps::now();
    let mut interface = Interface::new(config, &mut card, now());
    interface.update_ip_addrs(|addresses| {
        // There is room for more than one.
        let _ = addresses.push(address);
    });
    let mut set = SocketSet::new(alloc::vec::Vec::with_capacity(sockets::SOCKETS));
    let mut sockets = match Sockets::new(&mut set) {
        Ok(sockets) => sockets,
        Err(code) => {
            say!("net: no memory for sockets: {code}");
            return 1;
        }
    };
    let mut clients: heapless::Vec<Client, CLIENTS> = ["serve:net0", "serve:net1", "serve:net2"]
        .into_iter()
        .filter_map(caps::find)
        .map(Client::new)
        .collect();
    say!("net: up address={address}");
    let mut message: Option<Ticket> = None;
    let mut packets = 0;
    // When TCP wants to act, if nothing comes for it before. `None` if it does not.
    let mut due = Some(Instant::ZERO);
    loop {
        if let Some(ticket) = message
            && matches!(client::poll(ticket), Ok(Some(_)))
        {
            message = None;
        }
        let throttled = budget.is_some_and(|budget| !budget.allows_packets());
        let (mut came, mut for_stack) = (Came::Useless, false);
        let time = now();
        for _ in 0..if throttled { 0 } else { PACKETS } {
            came = card.fetch();
            let stuck = came == Came::Packet
                && interface.poll_ingress_single(time, &mut card, &mut set) == PollIngressSingleResult::None;
            if stuck || came == Came::Nothing {
                break;
            }
            packets += 1;
            for_stack |= core::mem::replace(&mut came, Came::Useless) == Came::Packet;
            // A call waits for one packet at the most.
            if client::any_completed() {
                break;
            }
        }
        card.tell();
        // Packets of no use are no reason to look at all sockets, which costs as much as many of them.
        if for_stack || client::any_completed() || due.is_some_and(|due| due <= time) {
            interface.poll_egress(time, &mut card, &mut set);
            card.tell();
            for (number, client) in clients.iter_mut().enumerate() {
                if let Err(code) = client.take(number, &mut sockets, &mut set, || usage(budget, packets)) {
                    say!("net: client {number} cannot be served: {code}");
                    return 1;
                }
            }
            let answered =
                sockets.answer_all(&mut set, |client, call, answer| clients[client].answer(call, answer));
            if answered {
                interface.poll_egress(time, &mut card, &mut set);
                card.tell();
            }
            due = interface.poll_at(time, &set);
        }
        if throttled {
            // Packets wait in the card, and are lost when it has no room: that is all a flood comes to.
            wait(budget.map_or(0, |budget| budget.rest_ns()));
            continue;
        }
        match came {
            Came::Nothing => {}
            Came::Useless => continue,
            // The stack does not take it before the card has room for an answer.
            Came::Packet => {
                wait(FULL_NS);
                continue;
            }
        }
        if message.is_none() {
            match client::submit(interrupt.wait_request()) {
                Ok(ticket) => message = Some(ticket),
                Err(code) => {
                    say!("net: cannot wait for the card: {code}");
                    return 1;
                }
            }
        }
        // Packets that came since the last look end the wait at once: the card's message is held back until it is waited for.
        let until = due.map(|due| if due > time { (due - time).total_micros() } else { 0 });
        wait(until.map_or(FOREVER, |micros| (micros * 1000).max(1)));
    }
}

fn usage(budget: Option<Budget>, packets: u64) -> NetUsage {
    let none = NetUsage { packets, ..NetUsage::default() };
    budget.map_or(none, |budget| budget.usage(packets))
}

/// Waits until something in flight is completed, or for `timeout_ns`.
fn wait(timeout_ns: u64) {
    // A refusal says that a completion queue cannot be read, which is found out when it is.
    let _ = client::wait_any(timeout_ns);
}

/// The endpoint of one client.
struct Client {
    endpoint: u32,
    receive: Option<Ticket>,
    buffer: alloc::boxed::Box<[u8; BUFFER]>,
}

const BUFFER: usize = 16 + MAX_MESSAGE;

impl Client {
    fn new(endpoint: u32) -> Self {
        Self { endpoint, receive: None, buffer: alloc::boxed::Box::new([0; BUFFER]) }
    }

    /// Takes the calls that have come.
    fn take(
        &mut self,
        number: usize,
        sockets: &mut Sockets,
        set: &mut SocketSet<'static>,
        usage: impl Fn() -> NetUsage,
    ) -> Result<(), CapError> {
        loop {
            let ticket = match self.receive.take() {
                Some(ticket) => ticket,
                None => {
                    let ticket = client::submit(caps::receive_request(self.endpoint, &mut *self.buffer))?;
                    client::enter(0, 0)?;
                    ticket
                }
            };
            let Some(completion) = client::poll(ticket)? else {
                self.receive = Some(ticket);
                return Ok(());
            };
            let len = client::outcome(&completion)? as usize;
            let head: [u8; 16] = self.buffer[..16].try_into().map_err(|_| CapError::BadAddress)?;
            let call = ReceivedCall::from_bytes(&head);
            let message = &self.buffer[16..len.max(16)];
            if let Some(answer) = sockets.begin(number, call.call_id, message, set, &usage) {
                self.answer(call.call_id, &answer);
            }
        }
    }

    /// Answers a call. A caller that has given up is none.
    fn answer(&self, call: u32, answer: &[u8]) {
        let _gave_up = client::carry_out(caps::return_request(self.endpoint, call, answer));
    }
}
