//! Rational numbers: the exact schedule exactly.

use mainspring_record::check::Number;
use num_bigint::BigInt;
use num_rational::BigRational;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rational(BigRational);

impl Number for Rational {
    fn whole(n: i128) -> Self {
        Self(BigRational::from_integer(BigInt::from(n)))
    }
    fn plus(&self, other: &Self) -> Self {
        Self(&self.0 + &other.0)
    }
    fn minus(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }
    fn scaled(&self, times: u64, over: u64) -> Self {
        Self(&self.0 * BigRational::new(BigInt::from(times), BigInt::from(over)))
    }
    fn units(&self) -> i128 {
        let units = (&self.0 * BigInt::from(1 << 20)).floor().to_integer();
        i128::try_from(units).expect("times of a test fit")
    }
}
