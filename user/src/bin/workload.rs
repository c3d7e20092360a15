//! Plays one process of a workload: a thread per instance, each doing its steps until the time is over.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use mainspring_abi::Nanos;
use mainspring_abi::kernel::FOREVER;
use mainspring_abi::plan::{HEADER_WORDS, MAGIC, NONE, Note, STEP_WORDS, TABLE_WORDS, step};
use mainspring_random::{Random, Range, Stream};
use mainspring_user::caps::{self, ThreadOptions};
use mainspring_user::schema::LatencyClass;
use mainspring_user::{CapError, arch, client, say};
use spin::{Mutex, Once};

mainspring_user::program!(main);

struct Table {
    process: u64,
    first: usize,
    instances: usize,
    options: ThreadOptions,
    start: Option<(u64, u64)>,
    times: u64,
    steps: Vec<[u64; STEP_WORDS]>,
}

/// What others see of an instance.
#[derive(Default)]
struct Instance {
    table: usize,
    /// What it draws from, in all its lives; taken by the life under way.
    random: Mutex<Option<Random>>,
    /// 1 if an unpark waits for its park.
    permit: AtomicU32,
    /// Odd while it lives; counts its beginnings and ends.
    lives: AtomicU32,
    misses: AtomicU64,
    timeouts: AtomicU64,
    refusals: AtomicU64,
}

struct Plan {
    duration: u64,
    seed: u64,
    began: u64,
    tables: Vec<Table>,
    instances: Vec<Instance>,
}

static PLAN: Once<Plan> = Once::new();
/// Making a thread and saying which slot it got are one act, so that the lines are in order.
static MAKING: Mutex<()> = Mutex::new(());

fn plan() -> &'static Plan {
    PLAN.get().expect("the plan is read first")
}

fn read(bytes: &[u8]) -> Option<Plan> {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8]))).collect();
    let [magic, duration, seed, tables] = words.get(..HEADER_WORDS)?.try_into().ok()?;
    if magic != MAGIC {
        return None;
    }
    let mut plan = Plan { duration, seed, began: 0, tables: Vec::new(), instances: Vec::new() };
    let mut at = HEADER_WORDS;
    for table in 0..tables as usize {
        let head: [u64; TABLE_WORDS] = words.get(at..at + TABLE_WORDS)?.try_into().ok()?;
        at += TABLE_WORDS;
        let [process, instances, weight, class, request_ns, cpus, earliest, latest, times, steps] = head;
        let steps = words.get(at..at + steps as usize * STEP_WORDS)?.chunks_exact(STEP_WORDS);
        let steps: Vec<_> = steps.filter_map(|step| step.try_into().ok()).collect();
        at += steps.len() * STEP_WORDS;
        let class = match class {
            0 => LatencyClass::Interactive,
            1 => LatencyClass::Normal,
            _ => LatencyClass::Batch,
        };
        plan.tables.push(Table {
            process,
            first: plan.instances.len(),
            instances: instances as usize,
            options: ThreadOptions { weight: weight as u32, class, request_ns, cpus },
            start: (earliest != NONE).then_some((earliest, latest)),
            times,
            steps,
        });
        plan.instances.extend((0..instances).map(|_| Instance { table, ..Instance::default() }));
    }
    Some(plan)
}

fn main() -> i64 {
    let Some(mut read) = read(arch::data()) else {
        say!("workload: the plan makes no sense");
        return 1;
    };
    let Ok(mine) = caps::arguments().parse::<u64>() else {
        say!("workload: which process of the plan this is must be told");
        return 1;
    };
    read.began = caps::now();
    PLAN.call_once(|| read);
    let plan = plan();
    let mut starts: Vec<(u64, usize)> = Vec::new();
    for table in &plan.tables {
        if let Some(span) = table.start {
            let numbers = (table.first..table.first + table.instances).filter(|_| table.process == mine);
            // An instance's start is the first that it draws.
            starts.extend(numbers.map(|number| {
                let mut random = plan.instances[number].random.lock();
                (draw(random.get_or_insert_with(|| stream(number)), span.0, span.1), number)
            }));
        }
    }
    starts.sort_unstable();
    for (at, instance) in starts {
        if at > 0 {
            let _ = caps::sleep_until(plan.began + at);
        }
        begin(instance);
    }
    let _ = caps::sleep_until(plan.began + plan.duration);
    for (number, instance) in plan.instances.iter().enumerate() {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (misses, timeouts, refusals) =
            (read(&instance.misses), read(&instance.timeouts), read(&instance.refusals));
        if misses + timeouts + refusals > 0 {
            tell(Note::Counted { instance: number as u32, misses, timeouts, refusals });
        }
    }
    say!("workload: done");
    0
}

/// Tells the host what the kernel's record cannot know.
fn tell(note: Note) {
    if let Err(code) = caps::note(&note.to_bytes()) {
        say!("workload: {note:?} was refused: {code:?}");
    }
}

/// Starts an instance; whether it could be.
fn begin(number: usize) -> bool {
    let instance = &plan().instances[number];
    let table = &plan().tables[instance.table];
    instance.lives.fetch_add(1, Ordering::AcqRel);
    let _making = MAKING.lock();
    match caps::spawn(table.options, move || live(number)) {
        Ok(thread) => {
            tell(Note::Started { instance: number as u32, slot: thread.slot() });
            true
        }
        Err(_) => {
            instance.lives.fetch_add(1, Ordering::AcqRel);
            false
        }
    }
}

/// What instance `number` draws from, before its first draw.
fn stream(number: usize) -> Random {
    Random::new(plan().seed, Stream::Thread(number))
}

fn draw(random: &mut Random, least: u64, most: u64) -> u64 {
    random.draw(Range::new(Nanos::new(least), Nanos::new(most))).get()
}

/// A thread's own state.
struct Player {
    number: usize,
    random: Random,
    started: u64,
    /// The multiple of `every` that it last waited for.
    last_multiple: u64,
    serving: Option<(usize, u32)>,
    /// The instance of each table that it spawned last.
    spawned: Vec<Option<(usize, u32)>>,
    /// Where answers and calls go: kept for ever, since one may come late.
    buffer: &'static mut [u8],
}

fn live(number: usize) -> i64 {
    let instance = &plan().instances[number];
    let table = &plan().tables[instance.table];
    let mut player = Player {
        number,
        random: instance.random.lock().take().unwrap_or_else(|| stream(number)),
        started: caps::now(),
        last_multiple: 0,
        serving: None,
        spawned: alloc::vec![None; plan().tables.len()],
        buffer: Box::leak(Box::new([0; 64])),
    };
    let mut round = 0;
    'life: while round != table.times {
        for step in &table.steps {
            if step[0] == step::EXIT {
                break 'life;
            }
            if let Err(code) = player.take(*step) {
                let counter =
                    if code == CapError::TimedOut { &instance.timeouts } else { &instance.refusals };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        round += 1;
    }
    *instance.random.lock() = Some(player.random);
    instance.lives.fetch_add(1, Ordering::AcqRel);
    let _ = caps::unpark(instance.lives.as_ptr() as u64, u32::MAX);
    0
}

impl Player {
    fn me(&self) -> &'static Instance {
        &plan().instances[self.number]
    }

    fn take(&mut self, [what, a, b, c]: [u64; STEP_WORDS]) -> Result<(), CapError> {
        match what {
            step::RUN => run(draw(&mut self.random, a, b)),
            step::RUN_FOREVER => loop {
                arch::spin(1 << 20);
            },
            step::SLEEP => caps::sleep(draw(&mut self.random, a, b)),
            step::EVERY => self.every(a),
            step::YIELD => {
                caps::yield_now();
                Ok(())
            }
            step::PARK => {
                let deadline = self.deadline(a, b);
                self.park(deadline)
            }
            step::UNPARK => {
                for number in instances(a, b) {
                    let instance = &plan().instances[number];
                    instance.permit.store(1, Ordering::Release);
                    caps::unpark(instance.permit.as_ptr() as u64, 1)?;
                }
                Ok(())
            }
            step::CALL => self.call(a as usize, b, c),
            step::RECV => self.receive(a as usize, b, c),
            step::REPLY => self.reply(),
            step::SPAWN => self.spawn(a as usize),
            step::JOIN => self.join(a, b, c),
            step::WEIGHT => caps::set_weight(a).map(|_| ()),
            _ => Err(CapError::InvalidRequest),
        }
    }

    fn deadline(&mut self, least: u64, most: u64) -> u64 {
        if least == NONE { 0 } else { caps::now() + draw(&mut self.random, least, most) }
    }

    fn every(&mut self, period: u64) -> Result<(), CapError> {
        let passed = (caps::now() - self.started) / period;
        let missed = passed.saturating_sub(self.last_multiple);
        self.me().misses.fetch_add(missed, Ordering::Relaxed);
        self.last_multiple = passed + 1;
        caps::sleep_until(self.started + self.last_multiple * period)
    }

    fn park(&mut self, deadline: u64) -> Result<(), CapError> {
        let permit = &self.me().permit;
        while permit.swap(0, Ordering::Acquire) == 0 {
            caps::park(permit.as_ptr() as u64, 0, deadline)?;
        }
        Ok(())
    }

    /// Waits for a request, but not for ever if there is a timeout.
    fn wait(&mut self, ticket: client::Ticket, least: u64, most: u64) -> Result<u32, CapError> {
        if least == NONE {
            return client::wait(ticket);
        }
        let deadline = caps::now() + draw(&mut self.random, least, most);
        loop {
            let left = deadline.saturating_sub(caps::now());
            if let Some(result) = client::wait_for(ticket, left.min(FOREVER - 1))? {
                return Ok(result);
            }
            if left == 0 {
                return match client::cancel(ticket) {
                    Err(CapError::Cancelled) => Err(CapError::TimedOut),
                    outcome => outcome,
                };
            }
        }
    }

    fn call(&mut self, endpoint: usize, least: u64, most: u64) -> Result<(), CapError> {
        let cap = caps::need(&format!("call:{endpoint}"));
        let ticket = client::submit(client::request(cap, 0, &[], self.buffer))?;
        self.wait(ticket, least, most).map(|_| ())
    }

    fn receive(&mut self, endpoint: usize, least: u64, most: u64) -> Result<(), CapError> {
        let cap = caps::need(&format!("serve:{endpoint}"));
        let ticket = client::submit(caps::receive_request(cap, self.buffer))?;
        self.wait(ticket, least, most)?;
        let call = self.buffer.first_chunk().map(mainspring_abi::kernel::ReceivedCall::from_bytes);
        self.serving = call.map(|call| (endpoint, call.call_id));
        Ok(())
    }

    fn reply(&mut self) -> Result<(), CapError> {
        let Some((endpoint, call_id)) = self.serving.take() else { return Err(CapError::InvalidRequest) };
        let cap = caps::need(&format!("serve:{endpoint}"));
        match client::wait(client::submit(caps::return_request(cap, call_id, &[]))?) {
            // The caller has not waited so long.
            Ok(_) | Err(CapError::Cancelled) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn spawn(&mut self, table: usize) -> Result<(), CapError> {
        let Table { first, instances, .. } = plan().tables[table];
        for number in first..first + instances {
            let lives = &plan().instances[number].lives;
            if lives.load(Ordering::Acquire).is_multiple_of(2) {
                if !begin(number) {
                    break;
                }
                self.spawned[table] = Some((number, lives.load(Ordering::Acquire)));
                return Ok(());
            }
        }
        Err(CapError::QuotaExceeded)
    }

    fn join(&mut self, table: u64, instance: u64, timeout: u64) -> Result<(), CapError> {
        let deadline = if timeout == NONE { 0 } else { caps::now() + timeout };
        if plan().tables[table as usize].start.is_none() {
            let Some((number, life)) = self.spawned[table as usize] else { return Ok(()) };
            return ended(number, life, deadline);
        }
        for number in instances(table, instance) {
            let life = plan().instances[number].lives.load(Ordering::Acquire);
            if !life.is_multiple_of(2) {
                ended(number, life, deadline)?;
            }
        }
        Ok(())
    }
}

/// Waits until an instance is not in that life any more.
fn ended(number: usize, life: u32, deadline: u64) -> Result<(), CapError> {
    let lives = &plan().instances[number].lives;
    while lives.load(Ordering::Acquire) == life {
        caps::park(lives.as_ptr() as u64, life, deadline)?;
    }
    Ok(())
}

fn instances(table: u64, instance: u64) -> core::ops::Range<usize> {
    let Table { first, instances, .. } = plan().tables[table as usize];
    if instance == NONE {
        first..first + instances
    } else {
        first + instance as usize..first + instance as usize + 1
    }
}

/// CPU time that the calling thread has had, the interval in progress included.
fn cpu_time() -> Result<u64, CapError> {
    let account = caps::account()?;
    Ok(account.runtime_ns + caps::now().saturating_sub(account.last_started_ns))
}

/// Computes until the thread has had `ns` more of the CPU.
fn run(ns: u64) -> Result<(), CapError> {
    let end = cpu_time()? + ns;
    loop {
        let left = end.saturating_sub(cpu_time()?);
        if left == 0 {
            return Ok(());
        }
        // Somewhat less than what is left, and then a look at the clock.
        arch::spin((left / 4).clamp(200, 100_000));
    }
}
