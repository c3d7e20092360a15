use super::codes::{CapError, CompletionStatus, UnknownCode};
use core::fmt;
use core::mem::{offset_of, size_of};

/// What a request asks for.
pub mod op {
    /// Nothing; it completes at once.
    pub const NOP: u16 = 0;
    /// Call a method of a capability.
    pub const CALL: u16 = 1;
    /// Receive the next call at an endpoint.
    pub const RECV: u16 = 2;
    /// Answer a received call.
    pub const RETURN: u16 = 3;
    /// Withdraw the request in flight whose `user_data` stands in `params_addr`. It is completed as cancelled, and its
    /// receiver is told so when it answers. Fails if there is no such request, which then has its completion.
    pub const CANCEL: u16 = 4;
    /// RETURN, and then RECV at the same endpoint: the parameters are the answer, the result is the next call. If the answer
    /// fails, nothing is received.
    pub const RETURN_RECV: u16 = 5;
    /// Answer a received call with an exception: the caller's request fails with [`super::CapError::Exception`]. There are no
    /// parameters.
    pub const THROW: u16 = 6;
}

/// In [`CapSqe::flags`]: the request relies on the one submitted before it, and is cancelled if that one has failed or was refused,
/// whether or not one look at the ring found both. One that is in flight has not failed.
pub const SQE_AFTER_PREVIOUS: u32 = 1 << 0;

/// A submission queue entry, version 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CapSqe {
    /// Comes back in the completion, untouched.
    pub user_data: u64,
    /// The capability that is invoked, by its number in the caller's table.
    pub cap_id: u32,
    /// One of [`op`].
    pub op: u16,
    /// Which method of the capability's interface.
    pub method_id: u16,
    /// [`SQE_AFTER_PREVIOUS`], or zero.
    pub flags: u32,
    /// For RETURN: which received call is answered.
    pub call_id: u32,
    /// Where the parameters are.
    pub params_addr: u64,
    /// How many bytes of parameters.
    pub params_len: u32,
    /// How many bytes of result there is room for.
    pub result_len: u32,
    /// Where the result goes.
    pub result_addr: u64,
}

/// A submission queue entry, version 2: version 1, and after it what a deadline needs.
///
/// A request carries a deadline, how to treat it, and on which context it runs. It carries no budget, period,
/// priority, criticality or CPU: those belong to the scheduling context, which is granted and not claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CapSqeV2 {
    /// All fields of version 1, in their order and meaning.
    pub v1: CapSqe,
    /// Absolute monotonic time after which the result is no longer fresh; 0 for none.
    pub deadline_ns: u64,
    /// [`QosFlags`], as bits.
    pub qos_flags: u32,
    /// The scheduling context to run on; 0 for the caller's own.
    pub sched_ctx_id: u32,
}

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CapCqe {
    /// From the request.
    pub user_data: u64,
    /// What the operation returned: bytes, or a value.
    pub result: u32,
    /// A [`CapError`] number, or 0.
    pub error: u16,
    /// A [`CompletionStatus`] number.
    pub status: u8,
    /// None are defined; zero.
    pub flags: u8,
}

const _: () = {
    assert!(size_of::<CapSqe>() == 48 && align_of::<CapSqe>() == 8);
    assert!(offset_of!(CapSqe, user_data) == 0 && offset_of!(CapSqe, cap_id) == 8);
    assert!(offset_of!(CapSqe, op) == 12 && offset_of!(CapSqe, method_id) == 14);
    assert!(offset_of!(CapSqe, flags) == 16 && offset_of!(CapSqe, call_id) == 20);
    assert!(offset_of!(CapSqe, params_addr) == 24 && offset_of!(CapSqe, params_len) == 32);
    assert!(offset_of!(CapSqe, result_len) == 36 && offset_of!(CapSqe, result_addr) == 40);
    // One cache line; a request is written by one core and read by another.
    assert!(size_of::<CapSqeV2>() == 64 && align_of::<CapSqeV2>() == 8);
    assert!(offset_of!(CapSqeV2, v1) == 0 && offset_of!(CapSqeV2, deadline_ns) == 48);
    assert!(offset_of!(CapSqeV2, qos_flags) == 56 && offset_of!(CapSqeV2, sched_ctx_id) == 60);
    assert!(size_of::<CapCqe>() == 16 && align_of::<CapCqe>() == 8);
    assert!(offset_of!(CapCqe, result) == 8 && offset_of!(CapCqe, error) == 12);
    assert!(offset_of!(CapCqe, status) == 14 && offset_of!(CapCqe, flags) == 15);
};

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl CapSqe {
    /// How many 64-bit words an entry has.
    pub const WORDS: usize = size_of::<Self>() / 8;

    /// A request that does nothing.
    #[must_use]
    pub const fn nop(user_data: u64) -> Self {
        Self {
            user_data,
            cap_id: 0,
            op: op::NOP,
            method_id: 0,
            flags: 0,
            call_id: 0,
            params_addr: 0,
            params_len: 0,
            result_len: 0,
            result_addr: 0,
        }
    }

    /// As the little-endian words that stand in the slot.
    #[must_use]
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        [
            self.user_data,
            pair(self.cap_id, self.op as u32 | (self.method_id as u32) << 16),
            pair(self.flags, self.call_id),
            self.params_addr,
            pair(self.params_len, self.result_len),
            self.result_addr,
        ]
    }

    /// From the words of a slot. Every pattern of bits is an entry; whether it makes sense is asked later.
    #[must_use]
    pub const fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [user_data, target, marks, params_addr, lengths, result_addr] = *words;
        Self {
            user_data,
            cap_id: low(target),
            op: high(target) as u16,
            method_id: (high(target) >> 16) as u16,
            flags: low(marks),
            call_id: high(marks),
            params_addr,
            params_len: low(lengths),
            result_len: high(lengths),
            result_addr,
        }
    }
}

impl CapSqeV2 {
    /// How many 64-bit words an entry has.
    pub const WORDS: usize = size_of::<Self>() / 8;

    /// A request that does nothing, without a deadline.
    #[must_use]
    pub const fn nop(user_data: u64) -> Self {
        Self::from_v1(CapSqe::nop(user_data))
    }

    /// A version 1 request: no deadline, no flags, the caller's own context.
    #[must_use]
    pub const fn from_v1(v1: CapSqe) -> Self {
        Self { v1, deadline_ns: 0, qos_flags: 0, sched_ctx_id: 0 }
    }

    /// As the little-endian words that stand in the slot.
    #[must_use]
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        let [a, b, c, d, e, f] = self.v1.to_words();
        [a, b, c, d, e, f, self.deadline_ns, pair(self.qos_flags, self.sched_ctx_id)]
    }

    /// From the words of a slot. Every pattern of bits is an entry; whether it makes sense is asked later.
    #[must_use]
    pub const fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [a, b, c, d, e, f, deadline_ns, qos] = *words;
        let v1 = CapSqe::from_words(&[a, b, c, d, e, f]);
        Self { v1, deadline_ns, qos_flags: low(qos), sched_ctx_id: high(qos) }
    }

    /// The flags, if all are known and none contradicts another.
    pub const fn qos(&self) -> Result<QosFlags, UnknownFlags> {
        QosFlags::from_bits(self.qos_flags)
    }
}

impl CapCqe {
    /// How many 64-bit words an entry has.
    pub const WORDS: usize = size_of::<Self>() / 8;

    /// A request that ran and ended in time.
    #[must_use]
    pub const fn completed(user_data: u64, result: u32) -> Self {
        Self { user_data, result, error: 0, status: CompletionStatus::Completed as u8, flags: 0 }
    }

    /// A request that ended as `status` says, because of `error`.
    #[must_use]
    pub const fn failed(user_data: u64, status: CompletionStatus, error: CapError) -> Self {
        Self { user_data, result: 0, error: error as u16, status: status as u8, flags: 0 }
    }

    /// As the little-endian words that stand in the slot.
    #[must_use]
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        let ending = self.error as u32 | (self.status as u32) << 16 | (self.flags as u32) << 24;
        [self.user_data, pair(self.result, ending)]
    }

    /// From the words of a slot.
    #[must_use]
    pub const fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [user_data, rest] = *words;
        let ending = high(rest);
        Self {
            user_data,
            result: low(rest),
            error: ending as u16,
            status: (ending >> 16) as u8,
            flags: (ending >> 24) as u8,
        }
    }

    /// The error, if any; the peer may have written a number that is none.
    pub fn error(&self) -> Result<Option<CapError>, UnknownCode> {
        match self.error {
            0 => Ok(None),
            number => CapError::try_from(number).map(Some),
        }
    }

    /// The status; the peer may have written a number that is none.
    pub fn status(&self) -> Result<CompletionStatus, UnknownCode> {
        CompletionStatus::try_from(self.status)
    }
}

/// How a request's deadline is to be treated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QosFlags(u32);

/// Bits that this version does not know, or flags that contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnknownFlags {
    /// These bits mean nothing in this version; guessing could drop a request that was meant to run.
    Unknown(u32),
    /// DROP_IF_LATE and ALLOW_LATE exclude each other.
    DropAndAllow,
}

impl fmt::Display for UnknownFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(bits) => write!(f, "QoS flag bits {bits:#x} are not defined"),
            Self::DropAndAllow => f.write_str("DROP_IF_LATE and ALLOW_LATE exclude each other"),
        }
    }
}

impl core::error::Error for UnknownFlags {}

impl QosFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Past its deadline the request is not executed.
    pub const DROP_IF_LATE: Self = Self(1 << 0);
    /// Past its deadline the request is executed, and marked late.
    pub const ALLOW_LATE: Self = Self(1 << 1);
    /// A call passes the deadline on to the request that the server sees.
    pub const PROPAGATE_DEADLINE: Self = Self(1 << 2);
    /// Refuse the request rather than take a path that may block.
    pub const NO_BLOCKING_PATH: Self = Self(1 << 3);
    /// The consumer may serve this request by deadline, within its window.
    pub const DEADLINE_ORDERED: Self = Self(1 << 4);
    /// The submitter declares that this request may change places with its neighbours.
    pub const REORDERABLE: Self = Self(1 << 5);

    const KNOWN: u32 = (1 << 6) - 1;

    /// The set that `bits` names, if it is one.
    pub const fn from_bits(bits: u32) -> Result<Self, UnknownFlags> {
        if bits & !Self::KNOWN != 0 {
            return Err(UnknownFlags::Unknown(bits & !Self::KNOWN));
        }
        let both = Self::DROP_IF_LATE.0 | Self::ALLOW_LATE.0;
        if bits & both == both { Err(UnknownFlags::DropAndAllow) } else { Ok(Self(bits)) }
    }

    /// As the bits of [`CapSqeV2::qos_flags`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Both sets together. A contradiction is found when the request is read.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for QosFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::DROP_IF_LATE, "DROP_IF_LATE"),
            (Self::ALLOW_LATE, "ALLOW_LATE"),
            (Self::PROPAGATE_DEADLINE, "PROPAGATE_DEADLINE"),
            (Self::NO_BLOCKING_PATH, "NO_BLOCKING_PATH"),
            (Self::DEADLINE_ORDERED, "DEADLINE_ORDERED"),
            (Self::REORDERABLE, "REORDERABLE"),
        ];
        let mut set = f.debug_set();
        for (flag, name) in names {
            if self.has(flag) {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: CapSqe = CapSqe {
        user_data: 0x0102_0304_0506_0708,
        cap_id: 0x1112_1314,
        op: 0x2122,
        method_id: 0x3132,
        flags: 0x4142_4344,
        call_id: 0x5152_5354,
        params_addr: 0x6162_6364_6566_6768,
        params_len: 0x7172_7374,
        result_len: 0x8182_8384,
        result_addr: 0x9192_9394_9596_9798,
    };

    fn bytes<const N: usize, const B: usize>(words: [u64; N]) -> [u8; B] {
        let mut out = [0; B];
        for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    fn u32_at(bytes: &[u8], offset: usize) -> u32 {
        u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
    }

    //= TICK:L4.sqe-v2
    #[test]
    fn version_two_begins_with_all_of_version_one() {
        let v2 = CapSqeV2 { v1: V1, deadline_ns: 0xa1a2, qos_flags: 0xb1b2, sched_ctx_id: 0xc1c2 };
        let (old, new): ([u8; 48], [u8; 64]) = (bytes(V1.to_words()), bytes(v2.to_words()));
        assert_eq!(new[..48], old, "the same bytes at the same places");
        assert_eq!(u32_at(&new, 48), 0xa1a2);
        assert_eq!(u32_at(&new, 56), 0xb1b2);
        assert_eq!(u32_at(&new, 60), 0xc1c2);
        let widened = CapSqeV2::from_v1(V1);
        assert_eq!(widened.v1, V1);
        assert_eq!((widened.deadline_ns, widened.qos_flags, widened.sched_ctx_id), (0, 0, 0));
    }

    #[test]
    fn words_stand_where_the_layout_says() {
        let old: [u8; 48] = bytes(V1.to_words());
        assert_eq!(u32_at(&old, offset_of!(CapSqe, cap_id)), V1.cap_id);
        assert_eq!(old[offset_of!(CapSqe, op)..][..2], V1.op.to_le_bytes());
        assert_eq!(old[offset_of!(CapSqe, method_id)..][..2], V1.method_id.to_le_bytes());
        assert_eq!(u32_at(&old, offset_of!(CapSqe, flags)), V1.flags);
        assert_eq!(u32_at(&old, offset_of!(CapSqe, call_id)), V1.call_id);
        assert_eq!(u32_at(&old, offset_of!(CapSqe, params_len)), V1.params_len);
        assert_eq!(u32_at(&old, offset_of!(CapSqe, result_len)), V1.result_len);
        let cqe = CapCqe { user_data: 1, result: 0x0203_0405, error: 0x0607, status: 0x08, flags: 0x09 };
        let shown: [u8; 16] = bytes(cqe.to_words());
        assert_eq!(u32_at(&shown, offset_of!(CapCqe, result)), cqe.result);
        assert_eq!(shown[offset_of!(CapCqe, error)..][..2], cqe.error.to_le_bytes());
        assert_eq!((shown[14], shown[15]), (cqe.status, cqe.flags));
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(CapSqe::from_words(&V1.to_words()), V1);
        let v2 = CapSqeV2 { v1: V1, deadline_ns: u64::MAX, qos_flags: 7, sched_ctx_id: u32::MAX };
        assert_eq!(CapSqeV2::from_words(&v2.to_words()), v2);
        let cqe = CapCqe::failed(9, CompletionStatus::NotStartedLate, CapError::DeadlineExpired);
        assert_eq!(CapCqe::from_words(&cqe.to_words()), cqe);
        assert_eq!(cqe.error(), Ok(Some(CapError::DeadlineExpired)));
        assert_eq!(cqe.status(), Ok(CompletionStatus::NotStartedLate));
        assert_eq!(CapCqe { status: 77, ..cqe }.status(), Err(UnknownCode(77)));
    }

    //= TICK:nongoal.sqe-policy
    #[test]
    fn a_request_has_no_room_for_cpu_policy() {
        // Every byte of an entry belongs to a named field, and no field is a budget, period, priority,
        // criticality or CPU: this pattern fails to compile when one is added.
        let CapSqeV2 { v1, deadline_ns: _, qos_flags: _, sched_ctx_id: _ } = CapSqeV2::nop(0);
        let CapSqe {
            user_data: _,
            cap_id: _,
            op: _,
            method_id: _,
            flags: _,
            call_id: _,
            params_addr: _,
            params_len: _,
            result_len: _,
            result_addr: _,
        } = v1;
        assert_eq!(8 + 4 + 2 + 2 + 4 + 4 + 8 + 4 + 4 + 8, size_of::<CapSqe>());
        assert_eq!(size_of::<CapSqe>() + 8 + 4 + 4, size_of::<CapSqeV2>());
    }

    #[test]
    fn unknown_and_contradictory_flags_are_refused() {
        assert_eq!(QosFlags::from_bits(1 << 9), Err(UnknownFlags::Unknown(1 << 9)));
        assert_eq!(QosFlags::from_bits(3), Err(UnknownFlags::DropAndAllow));
        let flags = QosFlags::DEADLINE_ORDERED.with(QosFlags::REORDERABLE);
        assert_eq!(QosFlags::from_bits(flags.bits()), Ok(flags));
    }
}
