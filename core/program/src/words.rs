//! Steps and distributions as 64-bit words: the form in which a program reaches the kernel's workload program.
//!
//! Conserved: what was written is read back equal, and what was not written by this file is refused, never guessed at.

use crate::{Call, ContextTarget, Distribution, Drawn, Lateness, Span, Step, SyncKind, ThreadTarget, Way};
use alloc::vec::Vec;
use mainspring_abi::{Nanos, Weight};

/// Absent.
const NONE: u64 = u64::MAX;

/// Words, taken from the front one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Words<'w>(&'w [u64]);

impl<'w> Words<'w> {
    /// All of `words`.
    #[must_use]
    pub const fn new(words: &'w [u64]) -> Self {
        Self(words)
    }

    /// The next `N` words; `None` if there are fewer.
    pub fn take<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (piece, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*piece)
    }

    fn word(&mut self) -> Option<u64> {
        self.take::<1>().map(|[word]| word)
    }
}

/// What has a form in words.
pub trait Coded: Sized {
    /// Appends its words.
    fn write(&self, to: &mut Vec<u64>);
    /// Takes its words; `None` if there are none of its kind at the front.
    fn read(from: &mut Words<'_>) -> Option<Self>;
}

/// Codes the variants of an enum: a number, then the fields in their order.
macro_rules! coded_enum {
    ($kind:ident { $($code:literal $variant:ident $(($($unnamed:ident),+))? $({$($named:ident),+})?),+ $(,)? }) => {
        impl Coded for $kind {
            fn write(&self, to: &mut Vec<u64>) {
                match self {
                    $(Self::$variant $(($($unnamed),+))? $({$($named),+})? => {
                        to.push($code);
                        $($($unnamed.write(to);)+)?
                        $($($named.write(to);)+)?
                    })+
                }
            }

            fn read(from: &mut Words<'_>) -> Option<Self> {
                Some(match from.word()? {
                    $($code => {
                        $($(let $unnamed = Coded::read(from)?;)+)?
                        $($(let $named = Coded::read(from)?;)+)?
                        Self::$variant $(($($unnamed),+))? $({$($named),+})?
                    })+
                    _ => return None,
                })
            }
        }
    };
}

/// Codes a struct: its fields in their order.
macro_rules! coded_struct {
    ($kind:ident { $($field:ident),+ }) => {
        impl Coded for $kind {
            fn write(&self, to: &mut Vec<u64>) {
                $(self.$field.write(to);)+
            }

            fn read(from: &mut Words<'_>) -> Option<Self> {
                $(let $field = Coded::read(from)?;)+
                Some(Self { $($field),+ })
            }
        }
    };
}

coded_enum!(Step {
    0 Run(span),
    1 RunDrawn(distribution),
    2 SleepDrawn(distribution),
    3 RunForever,
    4 Sleep(span),
    5 Every(period),
    6 Yield,
    7 Park { timeout },
    8 Unpark(target),
    9 Call(call),
    10 Recv { endpoint, timeout },
    11 Reply,
    12 Throw,
    13 Spawn(table),
    14 Join { target, timeout },
    15 Weight(weight),
    16 Exit,
    17 Alloc(bytes),
    18 Syscall,
    19 Bind(target),
    20 Unbind,
    21 Revoke(target),
    22 Drain(target),
    23 Lease(lease),
    24 Release(lease),
    25 Submit { ring, entries, deadline, late },
    26 Complete { ring, entries, timeout },
    27 Lock { mutex, timeout },
    28 Unlock(mutex),
    29 Down { semaphore, timeout },
    30 Up(semaphore),
    31 Barrier { barrier, timeout },
    32 Wait { condition, mutex, timeout },
    33 Signal(condition),
    34 Broadcast(condition),
    35 Repeat { times, end },
    36 For { span, end },
    37 Either { ways, end },
    38 Or { end },
    39 End { first },
    40 Poll(ring),
});
coded_enum!(Distribution {
    0 Exponential { mean },
    1 Normal { mean, deviation },
    2 Pareto { least, shape_thousandths },
    3 Values(values),
});
coded_enum!(SyncKind {
    0 Mutex { donation },
    1 Semaphore { value },
    2 Barrier { parties },
    3 Condition,
});
coded_enum!(Lateness { 0 Allow, 1 Drop });
coded_enum!(Drawn { 0 Span(span), 1 Distribution(number) });
coded_struct!(Call { endpoint, timeout, needs, deadline, late });
coded_struct!(Span { min, max });
coded_struct!(Way { below_ppm, first });
coded_struct!(ThreadTarget { thread, instance });
coded_struct!(ContextTarget { context, instance });

/// Codes a number that fits into a word.
macro_rules! coded_number {
    ($($kind:ty),+) => {
        $(impl Coded for $kind {
            fn write(&self, to: &mut Vec<u64>) {
                to.push(*self as u64);
            }

            fn read(from: &mut Words<'_>) -> Option<Self> {
                from.word()?.try_into().ok()
            }
        })+
    };
}

coded_number!(u32, u64, usize);

impl Coded for bool {
    fn write(&self, to: &mut Vec<u64>) {
        to.push((*self).into());
    }

    fn read(from: &mut Words<'_>) -> Option<Self> {
        match from.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Coded for Nanos {
    fn write(&self, to: &mut Vec<u64>) {
        to.push(self.get());
    }

    fn read(from: &mut Words<'_>) -> Option<Self> {
        from.word().map(Self::new)
    }
}

impl Coded for Weight {
    fn write(&self, to: &mut Vec<u64>) {
        to.push(self.get().into());
    }

    fn read(from: &mut Words<'_>) -> Option<Self> {
        Self::new(from.word()?).ok()
    }
}

/// Absence is one word that no present value begins with: none of these is as great as `NONE`.
impl<T: Coded> Coded for Option<T> {
    fn write(&self, to: &mut Vec<u64>) {
        match self {
            Some(value) => value.write(to),
            None => to.push(NONE),
        }
    }

    fn read(from: &mut Words<'_>) -> Option<Self> {
        if from.0.first() == Some(&NONE) {
            from.word()?;
            return Some(None);
        }
        T::read(from).map(Some)
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn write(&self, to: &mut Vec<u64>) {
        self.len().write(to);
        self.iter().for_each(|one| one.write(to));
    }

    fn read(from: &mut Words<'_>) -> Option<Self> {
        let count = usize::read(from)?;
        // Each takes a word at least, so that a count alone takes no memory.
        if count > from.0.len() {
            return None;
        }
        (0..count).map(|_| T::read(from)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos() -> impl Strategy<Value = Nanos> {
        (0..u64::MAX).prop_map(Nanos::new)
    }

    fn span() -> impl Strategy<Value = Span> {
        (nanos(), nanos()).prop_map(|(min, max)| Span { min, max })
    }

    fn thread() -> impl Strategy<Value = ThreadTarget> {
        (0..9_usize, any::<Option<u32>>()).prop_map(|(thread, instance)| ThreadTarget { thread, instance })
    }

    fn context() -> impl Strategy<Value = ContextTarget> {
        (0..9_usize, any::<Option<u32>>()).prop_map(|(context, instance)| ContextTarget { context, instance })
    }

    fn late() -> impl Strategy<Value = Lateness> {
        prop_oneof![Just(Lateness::Allow), Just(Lateness::Drop)]
    }

    fn way() -> impl Strategy<Value = Way> {
        (any::<u32>(), 0..99_usize).prop_map(|(below_ppm, first)| Way { below_ppm, first })
    }

    /// Step `kind` of all kinds, with these fields.
    fn step() -> impl Strategy<Value = Step> {
        let timeout = proptest::option::of(span());
        let deadline = || proptest::option::of(nanos());
        let ways = proptest::collection::vec(way(), 0..4);
        let fields = (0..41_u8, 0..99_usize, 0..99_usize, any::<u32>(), span(), timeout);
        let more = (deadline(), deadline(), late(), thread(), context(), ways);
        (fields, more).prop_map(|((kind, n, m, entries, span, timeout), more)| {
            let (needs, deadline, late, thread, context, ways) = more;
            match kind {
                0 => Step::Run(span),
                1 => Step::RunDrawn(n),
                2 => Step::SleepDrawn(n),
                3 => Step::RunForever,
                4 => Step::Sleep(span),
                5 => Step::Every(span.min),
                6 => Step::Yield,
                7 => Step::Park { timeout },
                8 => Step::Unpark(thread),
                9 => Step::Call(Call { endpoint: n, timeout, needs, deadline, late }),
                10 => Step::Recv { endpoint: n, timeout },
                11 => Step::Reply,
                12 => Step::Throw,
                13 => Step::Spawn(n),
                14 => Step::Join { target: thread, timeout },
                15 => Step::Weight(Weight::new(1 + n as u64).expect("a weight")),
                16 => Step::Exit,
                17 => Step::Alloc(span.max.get()),
                18 => Step::Syscall,
                19 => Step::Bind(context),
                20 => Step::Unbind,
                21 => Step::Revoke(context),
                22 => Step::Drain(context),
                23 => Step::Lease(n),
                24 => Step::Release(n),
                25 => Step::Submit { ring: n, entries, deadline, late },
                26 => Step::Complete { ring: n, entries, timeout },
                27 => Step::Lock { mutex: n, timeout },
                28 => Step::Unlock(n),
                29 => Step::Down { semaphore: n, timeout },
                30 => Step::Up(n),
                31 => Step::Barrier { barrier: n, timeout },
                32 => Step::Wait { condition: n, mutex: m, timeout },
                33 => Step::Signal(n),
                34 => Step::Broadcast(n),
                35 => Step::Repeat { times: span.min.get(), end: n },
                36 => Step::For { span, end: n },
                37 => Step::Either { ways, end: n },
                38 => Step::Or { end: n },
                39 => Step::End { first: needs.map(|_| m) },
                _ => Step::Poll(n),
            }
        })
    }

    fn distribution() -> impl Strategy<Value = Distribution> {
        prop_oneof![
            nanos().prop_map(|mean| Distribution::Exponential { mean }),
            (nanos(), nanos()).prop_map(|(mean, deviation)| Distribution::Normal { mean, deviation }),
            (nanos(), any::<u32>())
                .prop_map(|(least, shape_thousandths)| Distribution::Pareto { least, shape_thousandths }),
            proptest::collection::vec(nanos(), 0..5).prop_map(Distribution::Values),
        ]
    }

    fn sync_kind() -> impl Strategy<Value = SyncKind> {
        prop_oneof![
            any::<bool>().prop_map(|donation| SyncKind::Mutex { donation }),
            any::<u32>().prop_map(|value| SyncKind::Semaphore { value }),
            any::<u32>().prop_map(|parties| SyncKind::Barrier { parties }),
            Just(SyncKind::Condition),
        ]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back_to_the_last_word(
            steps in proptest::collection::vec(step(), 0..20),
            kinds in proptest::collection::vec(distribution(), 0..5),
            objects in proptest::collection::vec(sync_kind(), 0..5),
        ) {
            let mut words = Vec::new();
            steps.write(&mut words);
            kinds.write(&mut words);
            objects.write(&mut words);
            let mut from = Words::new(&words);
            prop_assert_eq!(Vec::<Step>::read(&mut from), Some(steps));
            prop_assert_eq!(Vec::<Distribution>::read(&mut from), Some(kinds));
            prop_assert_eq!(Vec::<SyncKind>::read(&mut from), Some(objects));
            prop_assert_eq!(from.take::<1>(), None);
        }

        #[test]
        fn any_words_are_read_or_refused(words in proptest::collection::vec(prop_oneof![0..50_u64, any::<u64>()], 0..60)) {
            let mut from = Words::new(&words);
            if let Some(steps) = Vec::<Step>::read(&mut from) {
                let mut again = Vec::new();
                steps.write(&mut again);
                prop_assert_eq!(&words[..again.len()], &again[..], "another form of the same");
            }
        }
    }
}
