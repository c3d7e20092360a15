//! Deliberate faults, for the model checker only: a model that does not find the fault that it is about checks nothing.
//!
//! Outside of `--cfg loom` no fault exists, and [`broken`] is a constant.

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault, at the one place that asks for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        #[cfg(loom)]
        const ALL: &[Mutant] = &[$(Mutant::$name),*];
    };
}

mutants! {
    /// A commit looks at the note without a fence after its state.
    CommitWithoutFence,
    /// A waker looks at the state again without a fence after its note.
    WakeWithoutFence,
    /// A waker notes nothing for a task that is Ready.
    ReadyNotNoted,
    /// A dispatch forgets what was noted.
    DispatchForgets,
    /// A task that is given a turn forgets what was noted, and so does the one that gives it.
    TurnForgets,
    /// A note is a store, which hides what an earlier note released.
    NoteStored,
    /// A wake that comes first is not looked for by the commit.
    NoteIgnored,
    /// A worker goes in without a fence before it looks whether it still may.
    EnterWithoutFence,
    /// A thread that takes a home or a lock away does not wait until its worker is outside.
    EvictWithoutWaiting,
    /// A pop reads the top without a fence after the bottom.
    PopWithoutFence,
    /// The owner takes the oldest word without a compare against thieves.
    OldestWithoutCompare,
    /// A thief goes on without making owners pass a fence.
    AnnounceWithoutFence,
    /// A push makes the new bottom visible before the word.
    PushWithoutRelease,
    /// A refill that comes sooner than a sleeping worker knows is not told to it.
    RefillSleptOver,
    /// The waker of a thread does not look whether the thread is throttled and is to end.
    ReadiedWithoutLook,
    /// A thread that is admitted does not look whether its group's context has come to rest.
    AdmittedPastGroup,
    /// A thread ends as one without a context, though its group has given it one.
    EndedPastGift,
    /// A worker that begins looks whether the monitor is parked without a fence.
    BeginWithoutFence,
    /// The monitor looks who is busy without a fence after it is parked.
    ParkWithoutFence,
    /// The monitor parks without a last look.
    ParkWithoutLook,
    /// A worker sleeps without a last look.
    SleepWithoutLook,
    /// A worker takes its last look without a fence after it entered the list.
    SleepWithoutFence,
    /// A worker waits outside though it has been woken.
    OutsideWithoutLook,
    /// A worker that waits outside is not called back.
    OuterBellForgotten,
    /// The publisher looks at the sleepers without a fence after the work.
    PublishWithoutFence,
    /// A waker that pushes into an inbox looks at its worker without a fence.
    NotifyWithoutFence,
    /// A push into an inbox does not make the task visible.
    InboxWithoutRelease,
    /// A push into an inbox does not look whether another came between.
    InboxWithoutCompare,
    /// A canceller wakes before it sets the flag.
    WakeBeforeFlag,
    /// A child that enlists does not look whether the cancellation has been.
    EnlistBlindly,
    /// The end of a task says that it is done without making the result visible.
    DoneWithoutRelease,
    /// The end of a reference does not see what the others did.
    LetGoWithoutAcquire,
    /// The first reference takes no hold of the memory.
    NoHold,
    /// The last child does not wake the waiter.
    WaiterLeft,
    /// What is left for a task is announced without a fence before the look at its end.
    AnnounceMailWithoutFence,
    /// A waiter is told before it is woken.
    ToldTooEarly,
    /// The owner of a value looks for a claim without a fence after it went in.
    OwnWithoutFence,
    /// A claimant looks for the owner without a fence after its claim.
    ClaimWithoutFence,
    /// A claimant does not wait until the owner is outside.
    ClaimWithoutWaiting,
    /// The owner of a value leaves without making visible what it did inside.
    LeaveWithoutRelease,
    /// An owner that joins a child looks at the list of the starving without a fence after its announcement.
    JoinWithoutFence,
    /// An owner that waits for all children wakes no starving task.
    AwaitSilently,
    /// Budget is given and no starving task is woken.
    FeedSilently,
    /// The owner puts budget back without the lock, and does not look whether a task starves.
    GiveSilently,
    /// The last child to starve does not wake the others.
    LastStarvesSilently,
    /// What a task was granted is written anew, and then completed by what it was granted before.
    GrantRewritten,
    /// A change grants nothing to those that wait for it.
    LineUnserved,
    /// An attempt that finds nothing forgets what was told since it began.
    ClearWithoutCompare,
    /// A waiter gets in line without a look whether the side has become ready.
    RegisterWithoutLook,
    /// A waiter that gives its turn up does not pass it on.
    TurnLost,
    /// A thread that has run is given to other cores all the same.
    StaysNowhere,
}

/// Whether the process was started with this fault, by its name in `MAINSPRING_FAULT`.
#[inline(always)]
pub(crate) fn broken(mutant: Mutant) -> bool {
    #[cfg(loom)]
    return *FAULT == Some(mutant);
    #[cfg(not(loom))]
    {
        let _ = mutant;
        false
    }
}

/// Of the standard library, since it is no part of a model.
#[cfg(loom)]
static FAULT: std::sync::LazyLock<Option<Mutant>> = std::sync::LazyLock::new(|| {
    let name = std::env::var("MAINSPRING_FAULT").ok()?;
    let fault = ALL.iter().find(|fault| format!("{fault:?}") == name);
    Some(*fault.unwrap_or_else(|| panic!("there is no fault {name}")))
});
