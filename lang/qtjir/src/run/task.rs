//! A task's state, and what its instructions do outside of its own values.
//!
//! The interpreter and generated code differ in how they compute. What a task allocates, prints, sends, starts and waits for is
//! written here once, so that both do and charge the same.
//!
//! Conserved: `ops` is the sum of all that was counted, and `pending` the part of it that was not paid for.

use super::account::Account;
use super::fault::{Fault, Trap, task_fault};
use super::parcel::{Channel, Heap, Parcel};
use super::program::{Program, TaskEnv};
use super::tasks::{Nest, Order, TaskNest, faults_of};
use crate::ir::{Instr, Op, Type, error_code};
use mainspring::{Budget, Capacity, Refusal};
use std::sync::atomic::Ordering;

/// Nurseries that a task may have open, one inside the other. Each takes some of the task's real stack.
const MAX_OPEN_NURSERIES: u32 = 16;
/// The largest buffer of a channel.
const MAX_CAPACITY: i64 = 1 << 16;
/// The largest object, in words.
const MAX_WORDS: i64 = 1 << 40;

/// What a function came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    Value(Option<u64>),
    Error(i64),
}

impl Returned {
    /// The words that a call or an await gives: its value, if there is one, and the code of its error. Who gives nothing has the code
    /// as the only result.
    pub(super) fn words(self, gives_nothing: bool) -> [u64; 2] {
        let (word, code) = match self {
            Self::Value(word) => (word.unwrap_or(0), 0),
            Self::Error(code) => (0, code as u64),
        };
        if gives_nothing { [code, 0] } else { [word, code] }
    }
}

/// Why an instruction does not come to its end.
#[derive(Debug)]
pub enum Interrupt {
    /// It trapped.
    Trap(Trap),
    /// The task has failed, there.
    Fault(Fault),
    /// A child of the nursery with this number has failed, and the nursery fails with it.
    ChildFailed(u32, Fault),
}

impl From<Trap> for Interrupt {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}

impl Interrupt {
    /// A trap, with its place.
    #[must_use]
    pub fn at(self, program: &Program, function: usize, instr: &Instr) -> Self {
        match self {
            Self::Trap(trap) => Self::Fault(program.trap(function, instr.pos, trap)),
            other => other,
        }
    }
}

/// A task's state, but for the values of its functions.
#[allow(missing_debug_implementations)]
pub struct TaskState<'e, 'c> {
    pub(super) env: TaskEnv<'e>,
    account: Account<'c>,
    pub(super) heap: Heap,
    /// Ops that were counted and not yet paid for.
    pub(super) pending: u64,
    /// Ops that were charged in all.
    pub(super) ops: u64,
    /// How often it looked up.
    pub(super) looks: u64,
    next_nursery: u32,
    open_nurseries: u32,
    /// How the child ended whose error the program saw last.
    last_child: Option<Fault>,
}

impl Drop for TaskState<'_, '_> {
    fn drop(&mut self) {
        self.env.charged.fetch_add(self.ops, Ordering::Relaxed);
    }
}

/// Who has a task's state.
pub(super) trait HasTask<'e, 'c> {
    fn task(&mut self) -> &mut TaskState<'e, 'c>;
}

impl<'e, 'c> HasTask<'e, 'c> for TaskState<'e, 'c> {
    fn task(&mut self) -> &mut TaskState<'e, 'c> {
        self
    }
}

impl<'e, 'c> TaskState<'e, 'c> {
    pub(super) fn new(env: TaskEnv<'e>, account: Account<'c>) -> Self {
        Self {
            env,
            account,
            heap: Heap::default(),
            pending: 0,
            ops: 0,
            looks: 0,
            next_nursery: 0,
            open_nurseries: 0,
            last_child: None,
        }
    }

    /// The program that the task runs.
    pub fn program(&self) -> &'e Program {
        self.env.program
    }

    /// The first word of the heap. It moves when something is allocated, received or awaited.
    pub fn heap_words(&mut self) -> *mut u64 {
        self.heap.words.as_mut_ptr()
    }

    /// Takes over ops that generated code counted.
    pub fn count_ops(&mut self, counted: u64) {
        self.pending += counted;
        self.ops += counted;
    }

    /// Hands what is not paid for to generated code, which goes on counting.
    pub fn hand_over_pending(&mut self) -> u64 {
        let pending = std::mem::take(&mut self.pending);
        self.ops -= pending;
        pending
    }

    /// How the child ended whose error the program saw last.
    pub fn take_last_child(&mut self) -> Option<Fault> {
        self.last_child.take()
    }

    /// Pays for what was counted.
    pub fn settle(&mut self) -> Result<(), Trap> {
        // Before the payment, which may unwind: what it pays for must not be paid for again.
        match std::mem::take(&mut self.pending) {
            0 => Ok(()),
            pending => {
                self.looks += 1;
                self.account.pay(u32::try_from(pending).unwrap_or(u32::MAX))
            }
        }
    }

    /// Looks up, as a check does that pays for nothing.
    pub fn look_up(&mut self) -> Result<(), Trap> {
        self.account.look_up()
    }

    /// A new object of so many zeros.
    pub fn allocate(&mut self, len: i64) -> Result<u64, Trap> {
        if !(0..MAX_WORDS).contains(&len) {
            return Err(Trap::BadSize(len));
        }
        self.account.allocate((len as usize + 1) * 8)?;
        self.ops += 1;
        self.heap.allocate(len as usize).ok_or(Trap::NoMemory)
    }

    /// Prints a line.
    pub fn print(&mut self, text: &str) -> Result<(), Trap> {
        self.settle()?;
        self.account.system_call()?;
        self.ops += 1;
        self.env.output.line(text);
        Ok(())
    }

    /// Prints a word of this type.
    pub fn print_word(&mut self, word: u64, of: &Type) -> Result<(), Trap> {
        let text = match of {
            Type::F64 => format!("{:?}", f64::from_bits(word)),
            Type::Bool => (word != 0).to_string(),
            _ => (word as i64).to_string(),
        };
        self.print(&text)
    }

    /// A copy of values for another task, which this one pays for.
    pub(super) fn pack(&mut self, values: &[(u64, Type)]) -> Result<Parcel, Trap> {
        let parcel = self.heap.pack(self.env.program.module(), values);
        if parcel.bytes() > 0 {
            self.account.allocate(parcel.bytes())?;
            self.ops += 1;
        }
        Ok(parcel)
    }

    fn unpack_one(&mut self, parcel: Parcel, of: &Type) -> u64 {
        let module = self.env.program.module();
        self.heap.unpack(module, parcel, std::slice::from_ref(of)).first().copied().unwrap_or(0)
    }

    fn channel(&self, word: u64) -> Result<Channel, Trap> {
        self.heap.channel(word).ok_or(Trap::Empty)
    }

    /// Executes an instruction that needs the scheduler, but for the two ends of a nursery. `operands` are the words of its operands, in their
    /// order. Gives the words of its results.
    pub fn act(
        &mut self,
        function: usize,
        instr: &Instr,
        operands: &[u64],
        nest: Option<&dyn Nest>,
    ) -> Result<[u64; 2], Interrupt> {
        let cx = self.account.cx()?;
        self.settle()?;
        let body = &self.env.program.module().functions[function];
        let amount = |word: u64| u32::try_from((word as i64).max(0)).unwrap_or(u32::MAX);
        let mut words = [0; 2];
        match &instr.op {
            Op::Yield => cx.yield_now(),
            Op::ChannelNew(..) => {
                let capacity = match operands[0] as i64 {
                    0 => Capacity::Rendezvous,
                    room @ 1..=MAX_CAPACITY => Capacity::Bounded(room as u32),
                    room => return Err(Trap::BadSize(room).into()),
                };
                let (sender, receiver) = cx.channel(capacity).map_err(Trap::Channel)?;
                words[0] = self.heap.hold(Channel { sender, receiver });
            }
            Op::Send(_, value) => {
                let parcel = self.pack(&[(operands[1], body.type_of(*value).clone())])?;
                let sent = self.channel(operands[0])?.sender.send(cx, parcel).map_err(|refused| refused.why);
                self.ops += 1;
                words[0] = refusal_code(sent)?;
            }
            Op::Recv(_) => {
                let received = self.channel(operands[0])?.receiver.recv(cx);
                self.ops += 1;
                let received = match received {
                    Ok(parcel) => {
                        words[0] = self.unpack_one(parcel, body.type_of(instr.results[0]));
                        Ok(())
                    }
                    Err(refused) => Err(refused),
                };
                words[1] = refusal_code(received)?;
            }
            Op::Close(_) => self.channel(operands[0])?.sender.close(),
            Op::Spawn(_, name, args) | Op::TaskCreate(_, name, args, _) | Op::AsyncCall(_, name, args) => {
                let nest = nest.ok_or(Trap::NoScheduler)?;
                let values: Vec<(u64, Type)> = args
                    .iter()
                    .zip(operands)
                    .map(|(arg, word)| (*word, body.type_of(*arg).clone()))
                    .collect();
                let parcel = self.pack(&values)?;
                let budget = match &instr.op {
                    Op::TaskCreate(..) => {
                        operands.last_chunk().map(|words| amounts(words.map(|word| word as i64)))
                    }
                    _ => None,
                };
                let order = Order {
                    function: self.env.program.by_name[name],
                    args: parcel,
                    caps: values.into_iter().map(|(_, of)| of).collect(),
                    budget,
                    is_async: matches!(instr.op, Op::AsyncCall(..)),
                };
                words[0] = nest.spawn(cx, order)?;
                self.ops += 1;
            }
            Op::Await(task) | Op::TaskJoin(task) => {
                let joined = nest.ok_or(Trap::StaleHandle)?.join(cx, operands[0]);
                let (of, is_future) = match body.type_of(*task) {
                    Type::Future { result, .. } => (&**result, true),
                    Type::Task(result) => (&**result, false),
                    other => (other, false),
                };
                self.ops += u64::from(is_future);
                let gives_nothing = *of == Type::Unit;
                let returned = match joined? {
                    Ok(parcel) => Returned::Value((!gives_nothing).then(|| self.unpack_one(parcel, of))),
                    Err(code) => Returned::Error(code),
                };
                words = returned.words(gives_nothing);
            }
            Op::Recharge(..) => {
                nest.ok_or(Trap::StaleHandle)?.recharge(cx, operands[0], amount(operands[1]))?;
            }
            Op::RechargeSelf(_) => {
                let ops = amount(operands[0]);
                cx.recharge(Budget { ops, ..Budget::ZERO }).map_err(Trap::Recharge)?;
            }
            Op::NurseryCancel(_) => nest.ok_or(Trap::StaleHandle)?.cancel(operands[0])?,
            other => unreachable!("{} is executed elsewhere", other.name()),
        }
        Ok(words)
    }

    /// Opens a nursery, runs its inside, which is told the nursery's number, and closes it. Gives the code of its error, which is zero only
    /// if it ended well.
    pub fn nursery(
        &mut self,
        outer: Option<&dyn Nest>,
        inside: impl FnOnce(&mut Self, u32, &dyn Nest) -> Result<(), Interrupt>,
    ) -> Result<i64, Interrupt> {
        in_nursery(self, outer, inside)
    }
}

/// As [`TaskState::nursery`], for whoever has the task's state.
pub(super) fn in_nursery<'e, 'c, T: HasTask<'e, 'c>>(
    owner: &mut T,
    outer: Option<&dyn Nest>,
    inside: impl FnOnce(&mut T, u32, &dyn Nest) -> Result<(), Interrupt>,
) -> Result<i64, Interrupt> {
    let task = owner.task();
    let cx = task.account.cx()?;
    task.settle()?;
    let around = task.open_nurseries;
    if around >= MAX_OPEN_NURSERIES {
        return Err(Trap::StackOverflow.into());
    }
    task.next_nursery += 1;
    task.open_nurseries = around + 1;
    let (env, serial, faults) = (task.env, task.next_nursery, faults_of());
    let mut interrupted = None;
    let ended = cx.nursery(|nursery| {
        let nest = TaskNest::new(nursery, env, serial, outer, faults.clone());
        if let Err(interrupt) = inside(owner, serial, &nest) {
            // A nursery that has failed stops its children itself.
            if !matches!(interrupt, Interrupt::ChildFailed(of, _) if of == serial) {
                nursery.cancel();
            }
            interrupted = Some(interrupt);
        }
    });
    let task = owner.task();
    // Those inside of it that were unwound are not open any more.
    task.open_nurseries = around;
    match interrupted {
        None => {}
        Some(Interrupt::ChildFailed(of, _)) if of == serial && ended.is_err() => {}
        Some(Interrupt::ChildFailed(of, fault)) if of == serial => return Err(Interrupt::Fault(fault)),
        Some(other) => return Err(other),
    }
    let Err(error) = ended else { return Ok(0) };
    let fault = faults.of(&error).unwrap_or_else(|| task_fault(&error.error));
    let code = fault.code();
    task.last_child = Some(fault);
    // A nursery that failed says so, also where the child's error has no number.
    Ok(if code == 0 { error_code("Trapped").unwrap_or(1) } else { code })
}

/// A budget from amounts that a program computed. What does not fit is as much as fits.
fn amounts([ops, memory, spawn_count, channel_ops, syscalls]: [i64; 5]) -> Budget {
    fn fit<T: TryFrom<i64>>(amount: i64, most: T) -> T {
        T::try_from(amount.max(0)).unwrap_or(most)
    }
    Budget {
        ops: fit(ops, u32::MAX),
        memory: fit(memory, usize::MAX),
        spawn_count: fit(spawn_count, u16::MAX),
        channel_ops: fit(channel_ops, u16::MAX),
        syscalls: fit(syscalls, u16::MAX),
    }
}

/// The code of a refused send or receive.
fn refusal_code(result: Result<(), Refusal>) -> Result<u64, Trap> {
    match result {
        Ok(()) => Ok(0),
        Err(Refusal::Budget(error)) => Err(Trap::Budget(error)),
        Err(_) => Ok(error_code("Closed").unwrap_or(0) as u64),
    }
}
