//! Our rings under the three ways of driving them, in one process and across two.

use crate::measure::Trip;
use mainspring_abi::ring::{CapCqe, CapSqeV2, NEED_WAKEUP, RingAbi, word};
use mainspring_ring::linux::{Client, Served, Server, SharedRing, open};
use mainspring_ring::sync::Ordering;
use mainspring_ring::{
    CapEnter, Completer, CqPlace, Endpoint, Geometry, HeapRegion, Push, Reap, Reaper, Region, Submitter,
};
use std::error::Error;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

const ENTRIES: u32 = 64;
/// As many as the largest batch; the poller has nothing else to be fair to.
const SERVE_LIMIT: u32 = 32;
const PATIENCE: Duration = Duration::from_secs(2);

type Memory = Arc<HeapRegion>;

fn geometry() -> Geometry {
    Geometry::new(RingAbi::V2, ENTRIES, ENTRIES).expect("powers of two")
}

fn heap() -> Memory {
    let region = Arc::new(HeapRegion::new(&geometry()));
    geometry().format(&region).expect("it was made for it");
    region
}

fn nop<R: Region>(request: CapSqeV2, place: CqPlace, cq: &mut Completer<R>) {
    cq.complete(place, &CapCqe::completed(request.v1.user_data, 0));
}

/// The caller drains its own ring.
pub struct Caller {
    submitter: Submitter<Memory>,
    reaper: Reaper<Memory>,
    endpoint: Endpoint<Memory>,
}

impl Caller {
    pub fn new() -> Self {
        let region = heap();
        Self {
            submitter: Submitter::new(region.clone(), geometry()),
            reaper: Reaper::new(region.clone(), geometry()),
            endpoint: Endpoint::attach(region).expect("just formatted"),
        }
    }
}

impl Trip for Caller {
    fn trip(&mut self, batch: u32) {
        for id in 0..u64::from(batch) {
            assert_eq!(self.submitter.push(&CapSqeV2::nop(id)), Push::Queued);
        }
        self.submitter.publish_for_caller();
        let entered = self.endpoint.cap_enter(batch, &mut nop);
        assert_eq!(entered, CapEnter::Available { completions: batch });
        for id in 0..u64::from(batch) {
            let Reap::Completion(cqe) = self.reaper.reap() else { panic!("all of them are there") };
            assert_eq!(cqe.user_data, id);
        }
        self.reaper.publish_for_caller();
    }
}

fn round_trip<R: Region + Clone>(client: &mut Client<R>, batch: u32) {
    for id in 0..u64::from(batch) {
        assert_eq!(client.push(&CapSqeV2::nop(id)), Push::Queued);
    }
    client.publish();
    for id in 0..u64::from(batch) {
        loop {
            match client.reap() {
                Reap::Completion(cqe) => break assert_eq!(cqe.user_data, id),
                Reap::Empty => std::hint::spin_loop(),
                Reap::Fault(fault) => panic!("{fault}"),
            }
        }
    }
    client.give_back();
}

fn sleeps(region: &impl Region) -> bool {
    region.word(word::FLAGS).load(Ordering::Acquire) & NEED_WAKEUP != 0
}

fn serve_until<R: Region + Clone>(mut server: Server<R>, stop: impl Fn() -> bool) {
    while !stop() {
        match server.serve(SERVE_LIMIT, &mut nop) {
            Served::Requests(_) => {}
            Served::Nothing | Served::HeldBack => {
                let _ = server.idle(Duration::from_millis(100));
            }
            Served::Fault(fault) => panic!("{fault}"),
        }
    }
}

/// A poller thread of this process.
pub struct PollerThread {
    region: Memory,
    client: Client<Memory>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PollerThread {
    pub fn new(spin: Duration) -> Self {
        let region = heap();
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server::new(region.clone(), geometry(), spin);
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            crate::measure::pin(crate::measure::POLLER_CPU);
            serve_until(server, || stopped.load(Ordering::Relaxed));
        });
        Self { client: Client::new(region.clone(), geometry()), region, stop, thread: Some(thread) }
    }
}

impl Trip for PollerThread {
    fn trip(&mut self, batch: u32) {
        round_trip(&mut self.client, batch);
    }

    fn asleep(&mut self) -> bool {
        sleeps(&self.region)
    }
}

impl Drop for PollerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the poller does not panic");
        }
    }
}

/// A poller in another process.
pub struct PollerProcess {
    region: SharedRing,
    client: Client<SharedRing>,
    child: Child,
}

impl PollerProcess {
    pub fn new(spin: Duration) -> Result<Self, Box<dyn Error>> {
        let (client, file) = Client::create(geometry())?;
        let (region, _) = open(&file)?;
        let spin_us = spin.as_micros().to_string();
        let child = Command::new(std::env::current_exe()?).args(["serve", &spin_us]).stdin(file).spawn()?;
        let mut process = Self { region, client, child };
        // Until it has answered once, it is still starting.
        assert_eq!(process.client.push(&CapSqeV2::nop(0)), Push::Queued);
        process.client.publish();
        match process.client.wait(PATIENCE)? {
            Some(_) => {
                process.client.give_back();
                Ok(process)
            }
            None => Err("the serving process does not answer".into()),
        }
    }
}

impl Trip for PollerProcess {
    fn trip(&mut self, batch: u32) {
        round_trip(&mut self.client, batch);
    }

    fn asleep(&mut self) -> bool {
        sleeps(&self.region)
    }
}

impl Drop for PollerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does, until it is killed or its parent is gone.
pub fn serve(spin: Duration) -> Result<(), Box<dyn Error>> {
    crate::measure::pin(crate::measure::POLLER_CPU);
    let parent = rustix::process::getppid();
    let server = Server::open(std::io::stdin().as_fd(), spin)?;
    let looks = std::cell::Cell::new(0_u32);
    serve_until(server, || {
        looks.set(looks.get().wrapping_add(1));
        // A system call at every look would be what we measure.
        looks.get().is_multiple_of(1 << 20) && rustix::process::getppid() != parent
    });
    Ok(())
}
