//! Channels, and waiting for several of them.

use crate::spin::{Table, ZERO};
use mainspring::{Capacity, Select};

/// What a task does with channels.
pub(crate) const CHANNELS: Table = &[
    ("Runtime::channel", |_, spin| spin.run(|| drop(spin.runtime.channel::<()>(Capacity::Rendezvous)))),
    ("Sender::send", |cx, spin| {
        let (tx, rx) = cx.channel(Capacity::Bounded(1)).unwrap();
        drop(rx);
        spin.run(|| assert!(tx.send(cx, ()).is_err()));
    }),
    ("Sender::send_timeout", |cx, spin| {
        let (tx, _rx) = cx.channel(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(tx.send_timeout(cx, (), ZERO).is_err()));
    }),
    ("Sender::try_send", |cx, spin| {
        let (tx, _rx) = cx.channel(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(tx.try_send(cx, ()).is_err()));
    }),
    ("Sender::close", |cx, spin| {
        let (tx, _rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| tx.close());
    }),
    ("Sender::clone", |cx, spin| {
        let (tx, _rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| drop(tx.clone()));
    }),
    ("Receiver::recv", |cx, spin| {
        let (tx, rx) = cx.channel::<()>(Capacity::Bounded(1)).unwrap();
        drop(tx);
        spin.run(|| assert!(rx.recv(cx).is_err()));
    }),
    ("Receiver::recv_timeout", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(rx.recv_timeout(cx, ZERO).is_err()));
    }),
    ("Receiver::try_recv", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| assert!(rx.try_recv(cx).is_err()));
    }),
    ("Receiver::iter", |cx, spin| {
        let (tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        drop(tx);
        spin.run(|| assert_eq!(rx.iter(cx).count(), 0));
    }),
    ("Receiver::len", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| _ = rx.len());
    }),
    ("Receiver::is_empty", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| _ = rx.is_empty());
    }),
    ("Receiver::clone", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| drop(rx.clone()));
    }),
    ("Select::run", |cx, spin| {
        let (tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        drop(tx);
        spin.run(|| assert!(Select::new().recv(&rx, |got| got.is_err()).run(cx).unwrap()));
    }),
    ("Select::run_timeout", |cx, spin| {
        let (_tx, rx) = cx.channel::<()>(Capacity::Rendezvous).unwrap();
        spin.run(|| Select::new().recv(&rx, |_| ()).run_timeout(cx, ZERO, || ()).unwrap());
    }),
];
