use core::fmt;

/// A number that names no code of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownCode(pub u16);

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no code of ring ABI versions up to {}", self.0, super::ABI_VERSION_MAX)
    }
}

impl core::error::Error for UnknownCode {}

/// Declares an enum whose numbers, names and texts stand in one table, so that none can be forgotten.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident: $repr:ty { $($(#[$doc:meta])* $variant:ident = $number:literal, $c:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr($repr)]
        pub enum $name { $($(#[$doc])* $variant = $number,)* }

        impl $name {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable number.
            #[must_use]
            pub const fn number(self) -> $repr {
                self as $repr
            }

            /// The name that other languages use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $c,)* }
            }

            /// What it means, and what can be done about it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl TryFrom<$repr> for $name {
            type Error = UnknownCode;
            fn try_from(number: $repr) -> Result<Self, UnknownCode> {
                match number { $($number => Ok(Self::$variant),)* other => Err(UnknownCode(other.into())) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} ({})", self.text(), self.name())
            }
        }
    };
}

codes! {
    /// Why a call on a ring, or a request in it, failed. Zero is no error and never appears here.
    CapError: u16 {
        /// The ring was made for a version that this side does not speak.
        UnsupportedRingAbi = 1, "CAP_ERR_UNSUPPORTED_RING_ABI", "the ring ABI version is not supported; map a ring of a supported one";
        /// The entry sizes do not fit the ring's version.
        UnsupportedSqeVersion = 2, "CAP_ERR_UNSUPPORTED_SQE_VERSION", "the entry sizes are not those of the ring's version; rebuild against its layout";
        /// The request's deadline had passed before it began.
        DeadlineExpired = 3, "CAP_ERR_DEADLINE_EXPIRED", "the deadline had passed before the request began";
        /// The scheduling context that would have paid is depleted.
        BudgetExhausted = 4, "CAP_ERR_BUDGET_EXHAUSTED", "the scheduling context is depleted; wait for its replenishment";
        /// The request asked for a path that cannot block, and the target has none.
        RealtimeUnsafePath = 5, "CAP_ERR_REALTIME_UNSAFE_PATH", "the method is not declared realtime-safe; drop NO_BLOCKING_PATH or call another";
        /// A realtime reservation was refused.
        RealtimeAdmissionDenied = 6, "CAP_ERR_REALTIME_ADMISSION_DENIED", "the reservation does not fit what is admitted already";
        /// The work ran longer than its reservation allows.
        Overrun = 7, "CAP_ERR_OVERRUN", "the work ran past its reserved budget";
        /// The data that the request would have worked on is older than allowed.
        StaleInput = 8, "CAP_ERR_STALE_INPUT", "the input is older than the request allows; produce it again";
        /// The caller's right to consume the submission queue has ended; nothing was consumed.
        StaleSqConsumer = 9, "CAP_ERR_STALE_SQ_CONSUMER", "the lease on the submission queue has ended; nothing was consumed";
        /// Another caller is consuming the submission queue now, or changing the same pages; nothing was
        /// done.
        Busy = 10, "CAP_ERR_BUSY", "the submission queue or the pages are being worked on by another; try again";
        /// A word that the peer writes has a value that no honest peer writes.
        RingCorrupt = 11, "CAP_ERR_RING_CORRUPT", "a shared index lies outside its ring; nothing was consumed";
        /// The request is not well formed: unknown operation, unknown or contradictory flags.
        InvalidRequest = 12, "CAP_ERR_INVALID_REQUEST", "the request has an unknown operation or contradictory flags";
        /// An earlier request that this one depends on did not complete.
        DependencyFailed = 13, "CAP_ERR_DEPENDENCY_FAILED", "a request that this one depends on did not complete";
        /// The ring is being torn down.
        RingClosed = 14, "CAP_ERR_RING_CLOSED", "the ring is being torn down; read what is left and unmap it";
        /// The number names no capability of the caller, or one that has been revoked.
        InvalidCapability = 15, "CAP_ERR_INVALID_CAPABILITY", "no such capability, or no longer; use one that was granted";
        /// The capability does not have the method, or not the right to it.
        NoSuchMethod = 16, "CAP_ERR_NO_SUCH_METHOD", "the capability has no such method";
        /// An address is not the caller's to read or write.
        BadAddress = 17, "CAP_ERR_BAD_ADDRESS", "an address is not mapped for that, or the buffer is too small or too large";
        /// A parameter makes no sense.
        InvalidParameter = 18, "CAP_ERR_INVALID_PARAMETER", "a parameter is missing, malformed or out of range";
        /// The process has as many of these as it may.
        QuotaExceeded = 19, "CAP_ERR_QUOTA_EXCEEDED", "the process has as many as it may; let one end first";
        /// There is no memory for it.
        NoMemory = 20, "CAP_ERR_NO_MEMORY", "no memory left for it; free some and try again";
        /// What was asked for by name is not there.
        NotFound = 21, "CAP_ERR_NOT_FOUND", "nothing has that name";
        /// The other side has ended.
        PeerGone = 22, "CAP_ERR_PEER_GONE", "the other side has ended; there will be no answer";
        /// The time was over before it happened.
        TimedOut = 23, "CAP_ERR_TIMED_OUT", "the deadline passed before it happened";
        /// A queue that the request needs is full.
        Overloaded = 24, "CAP_ERR_OVERLOADED", "a queue that it needs is full; try again later";
        /// The request, or the call that is being answered, was withdrawn by its caller.
        Cancelled = 25, "CAP_ERR_CANCELLED", "the side that asked for it withdrew it; there is nothing to do";
        /// A request in registers cannot be carried out at once; nothing has changed.
        NotDirect = 26, "CAP_ERR_NOT_DIRECT", "the other side does not wait for it now; send it through the ring";
        /// It would be more than the caller may have: an object that was mapped writable is to be mapped executable, or the other
        /// way round; a context would grant more than the one that it is made from, or be bound where its time is not.
        Denied = 27, "CAP_ERR_DENIED", "more than the caller may have: write or execute but not both, no more time than is held, on the context's own CPU";
        /// The caller's context cannot be lent on: it has been lent as often as it may, or would come to a thread that waits for it.
        DonationRefused = 28, "CAP_ERR_DONATION_REFUSED", "the caller's context has been lent as often as it may, or to that thread; make the chain of calls shorter";
        /// A thread that serves a call on its caller's time wanted to wait for something that is no call.
        BorrowedTime = 29, "CAP_ERR_BORROWED_TIME", "a thread that serves on its caller's time may wait for calls alone; answer first";
        /// The server answered the call with an exception.
        Exception = 30, "CAP_ERR_EXCEPTION", "the server answered with an exception; what it could not do is between the two";
        /// The poller of a ring cannot carry it out.
        NotPolled = 31, "CAP_ERR_NOT_POLLED", "the method needs its thread's own CPU; call it from a thread whose ring is not polled";
    }
}

codes! {
    /// How a request ended, apart from its error code: what a deadline or a policy did to it.
    CompletionStatus: u8 {
        /// It ran, and ended in time or had no deadline.
        Completed = 0, "CAP_STATUS_COMPLETED", "ran, and ended in time";
        /// It ran, and ended after its deadline.
        CompletedLate = 1, "CAP_STATUS_COMPLETED_LATE", "ran, and ended after its deadline";
        /// It never ran, because its deadline had passed.
        NotStartedLate = 2, "CAP_STATUS_NOT_STARTED_LATE", "never ran: the deadline had passed";
        /// It never ran, because a policy refused it.
        Dropped = 3, "CAP_STATUS_DROPPED", "never ran: refused by policy";
        /// It never ran, because the context that would have paid is depleted.
        Throttled = 4, "CAP_STATUS_THROTTLED", "never ran: no budget to run it on";
        /// It never ran, because an earlier request that it depends on did not complete.
        DependencyCancelled = 5, "CAP_STATUS_DEPENDENCY_CANCELLED", "never ran: a request before it failed";
        /// It ran, and failed for a reason of its own.
        Failed = 6, "CAP_STATUS_FAILED", "ran, and failed";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= TICK:L7.errors
    #[test]
    fn the_realtime_failures_have_their_own_numbers_and_names() {
        let expected = [
            (3, "CAP_ERR_DEADLINE_EXPIRED"),
            (4, "CAP_ERR_BUDGET_EXHAUSTED"),
            (5, "CAP_ERR_REALTIME_UNSAFE_PATH"),
            (6, "CAP_ERR_REALTIME_ADMISSION_DENIED"),
            (7, "CAP_ERR_OVERRUN"),
            (8, "CAP_ERR_STALE_INPUT"),
        ];
        for (number, name) in expected {
            assert_eq!(CapError::try_from(number).map(CapError::name), Ok(name));
        }
    }

    #[test]
    fn numbers_are_dense_and_come_back_as_what_they_were() {
        for (code, number) in CapError::ALL.iter().zip(1..) {
            assert_eq!(code.number(), number);
            assert_eq!(CapError::try_from(number), Ok(*code));
            assert!(!code.text().is_empty());
        }
        for (status, number) in CompletionStatus::ALL.iter().zip(0..) {
            assert_eq!(status.number(), number);
            assert_eq!(CompletionStatus::try_from(number), Ok(*status));
        }
        assert_eq!(CapError::try_from(0), Err(UnknownCode(0)), "zero is no error");
        assert_eq!(CapError::try_from(999), Err(UnknownCode(999)));
    }
}
