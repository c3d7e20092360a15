//! Intervals of integers: what a value can be, at least and at most.
//!
//! An operation on intervals contains the result of the operation on any of their members that does not trap.

use mainspring_qtjir::Binary;

/// From `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

impl Interval {
    pub(crate) const ALL: Self = Self { lo: i64::MIN, hi: i64::MAX };

    pub(crate) const fn new(lo: i64, hi: i64) -> Self {
        Self { lo, hi }
    }

    pub(crate) const fn one(value: i64) -> Self {
        Self { lo: value, hi: value }
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// What is in both, if anything is.
    pub(crate) fn meet(self, other: Self) -> Option<Self> {
        let both = Self { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) };
        (both.lo <= both.hi).then_some(both)
    }

    /// The members for which `self op other` can hold. `None` if it holds for none.
    pub(crate) fn where_it(self, op: Binary, other: Self) -> Option<Self> {
        let bounds = match op {
            Binary::Lt => Self { lo: i64::MIN, hi: other.hi.checked_sub(1)? },
            Binary::Le => Self { lo: i64::MIN, hi: other.hi },
            Binary::Gt => Self { lo: other.lo.checked_add(1)?, hi: i64::MAX },
            Binary::Ge => Self { lo: other.lo, hi: i64::MAX },
            Binary::Eq => other,
            _ => Self::ALL,
        };
        self.meet(bounds)
    }

    /// The bounds of a sum, a difference or a product before it must fit.
    fn exact(self, op: Binary, other: Self) -> Option<(i128, i128)> {
        let [a, b, c, d] = [self.lo, self.hi, other.lo, other.hi].map(i128::from);
        match op {
            Binary::Add | Binary::AddWrap => Some((a + c, b + d)),
            Binary::Sub | Binary::SubWrap => Some((a - d, b - c)),
            Binary::Mul | Binary::MulWrap => {
                let all = [a * c, a * d, b * c, b * d];
                Some((all.into_iter().min()?, all.into_iter().max()?))
            }
            _ => None,
        }
    }

    /// Whether a sum, a difference or a product always fits.
    pub(crate) fn fits(self, op: Binary, other: Self) -> bool {
        self.exact(op, other).is_some_and(|(lo, hi)| i64::try_from(lo).is_ok() && i64::try_from(hi).is_ok())
    }

    /// What the operation can give if it does not trap. `None` if it always traps.
    pub(crate) fn apply(self, op: Binary, other: Self) -> Option<Self> {
        let both_at_least_zero = self.lo >= 0 && other.lo >= 0;
        Some(match op {
            Binary::Add | Binary::Sub | Binary::Mul => {
                let (lo, hi) = self.exact(op, other)?;
                let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
                if lo > most || hi < least {
                    return None;
                }
                Self::new(lo.max(least) as i64, hi.min(most) as i64)
            }
            Binary::AddWrap | Binary::SubWrap | Binary::MulWrap => {
                let (lo, hi) = self.exact(op, other)?;
                match (i64::try_from(lo), i64::try_from(hi)) {
                    (Ok(lo), Ok(hi)) => Self::new(lo, hi),
                    _ => Self::ALL,
                }
            }
            Binary::Div if self.lo >= 0 && other.lo >= 1 => Self::new(self.lo / other.hi, self.hi / other.lo),
            Binary::Rem if self.lo >= 0 && other.lo >= 1 => Self::new(0, self.hi.min(other.hi - 1)),
            Binary::Rem if other.lo >= 1 => Self::new(1 - other.hi, other.hi - 1),
            Binary::And if both_at_least_zero => Self::new(0, self.hi.min(other.hi)),
            Binary::And if self.lo >= 0 => Self::new(0, self.hi),
            Binary::And if other.lo >= 0 => Self::new(0, other.hi),
            Binary::Or | Binary::Xor if both_at_least_zero => {
                let bits = 64 - (self.hi | other.hi).leading_zeros();
                Self::new(0, ((1u64 << bits) - 1) as i64)
            }
            Binary::Shr if other.lo == other.hi => {
                Self::new(self.lo >> (other.lo & 63), self.hi >> (other.lo & 63))
            }
            Binary::Shr if self.lo >= 0 => Self::new(0, self.hi),
            Binary::MinUnsigned if both_at_least_zero => {
                Self::new(self.lo.min(other.lo), self.hi.min(other.hi))
            }
            Binary::MinUnsigned if self.lo >= 0 => Self::new(0, self.hi),
            Binary::MinUnsigned if other.lo >= 0 => Self::new(0, other.hi),
            _ => Self::ALL,
        })
    }
}

/// The comparison with its sides exchanged.
pub(crate) fn exchanged(op: Binary) -> Binary {
    match op {
        Binary::Lt => Binary::Gt,
        Binary::Le => Binary::Ge,
        Binary::Gt => Binary::Lt,
        Binary::Ge => Binary::Le,
        other => other,
    }
}

/// The comparison that holds where this one does not.
pub(crate) fn negated(op: Binary) -> Binary {
    match op {
        Binary::Lt => Binary::Ge,
        Binary::Le => Binary::Gt,
        Binary::Gt => Binary::Le,
        Binary::Ge => Binary::Lt,
        Binary::Eq => Binary::Ne,
        _ => Binary::Eq,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values near the ends, near zero and near powers of two.
    fn samples() -> Vec<i64> {
        let mut samples = vec![i64::MIN, i64::MIN + 1, -4097, -64, -3, -1, 0, 1, 2, 3, 63, 64, 4096];
        samples.extend([1 << 31, (1 << 40) - 1, i64::MAX - 1, i64::MAX]);
        samples
    }

    /// As the interpreter computes.
    fn computed(op: Binary, a: i64, b: i64) -> Option<i64> {
        mainspring_qtjir::binary(op, &mainspring_qtjir::Type::I64, a as u64, b as u64)
            .ok()
            .map(|word| word as i64)
    }

    #[test]
    fn an_interval_has_every_result_of_its_members() {
        let samples = samples();
        let pairs: Vec<Interval> = samples
            .iter()
            .flat_map(|&lo| samples.iter().filter(move |&&hi| lo <= hi).map(move |&hi| Interval::new(lo, hi)))
            .collect();
        for (op, name) in Binary::NAMES.into_iter().filter(|(op, _)| !op.compares()) {
            for one in &pairs {
                for other in &pairs {
                    let all = one.apply(op, *other);
                    let members = samples.iter().filter(|a| one.lo <= **a && **a <= one.hi);
                    for a in members {
                        for b in samples.iter().filter(|b| other.lo <= **b && **b <= other.hi) {
                            let Some(result) = computed(op, *a, *b) else {
                                let checked = matches!(op, Binary::Add | Binary::Sub | Binary::Mul);
                                assert!(
                                    !(checked && one.fits(op, *other)),
                                    "{name} {a} {b}: it does not fit"
                                );
                                continue;
                            };
                            let all = all.unwrap_or_else(|| panic!("{name} {a} {b}: {one:?} {other:?}"));
                            assert!(
                                all.lo <= result && result <= all.hi,
                                "{name} {a} {b} = {result}: {all:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_condition_keeps_every_member_for_which_it_holds() {
        let samples = samples();
        for (op, name) in Binary::NAMES.into_iter().filter(|(op, _)| op.compares()) {
            for a in &samples {
                for b in &samples {
                    let holds = computed(op, *a, *b) == Some(1);
                    let [one, other] = [Interval::new((*a).min(0), (*a).max(0)), Interval::one(*b)];
                    let kept = one.where_it(if holds { op } else { negated(op) }, other);
                    let kept = kept.unwrap_or_else(|| panic!("{name} {a} {b}"));
                    assert!(kept.lo <= *a && *a <= kept.hi, "{name} {a} {b}");
                    assert_eq!(computed(exchanged(op), *b, *a) == Some(1), holds, "{name} {a} {b}");
                }
            }
        }
    }
}
