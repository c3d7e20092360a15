//! Durations that are not uniform.

use alloc::vec::Vec;
use mainspring_abi::Nanos;
use mainspring_random::Random;

/// Nothing that is drawn is longer.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// Durations to draw from. What is drawn depends on the generator alone: the arithmetic is of IEEE's basic operations only, which
/// are the same on every machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Waits between events that know nothing of each other.
    Exponential {
        /// Their mean.
        mean: Nanos,
    },
    /// The sum of many small causes; less than nothing counts as nothing.
    Normal {
        /// The mean.
        mean: Nanos,
        /// The standard deviation.
        deviation: Nanos,
    },
    /// A few that are very long.
    Pareto {
        /// The least.
        least: Nanos,
        /// How quickly long ones become rare, in thousandths; the lower, the longer they are.
        shape_thousandths: u32,
    },
    /// One of these, each equally likely. Never empty.
    Values(Vec<Nanos>),
}

impl Distribution {
    /// Draws a duration, of at most an hour.
    pub fn draw(&self, random: &mut Random) -> Nanos {
        let drawn = match self {
            Self::Exponential { mean } => mean.get() as f64 * exponential(random),
            Self::Normal { mean, deviation } => {
                // Twelve uniform draws have a variance of one.
                let sum: f64 = (0..12).map(|_| unit(random)).sum();
                mean.get() as f64 + deviation.get() as f64 * (sum - 6.0)
            }
            Self::Pareto { least, shape_thousandths } => {
                let shape = f64::from(*shape_thousandths) / 1_000.0;
                least.get() as f64 * exp((exponential(random) / shape).min(40.0))
            }
            Self::Values(values) => {
                let at = random.below(values.len().max(1) as u64) as usize;
                return values.get(at).copied().unwrap_or_default().min(LONGEST);
            }
        };
        Nanos::new(drawn.max(0.0).min(LONGEST.get() as f64) as u64)
    }

    /// Whether something longer than nothing is drawn sooner or later.
    #[must_use]
    pub fn lasts(&self) -> bool {
        match self {
            Self::Exponential { mean } | Self::Normal { mean, .. } => !mean.is_zero(),
            Self::Pareto { least, .. } => !least.is_zero(),
            Self::Values(values) => values.iter().any(|value| !value.is_zero()),
        }
    }
}

/// From above 0 to 1, in steps of 2^-53.
fn unit(random: &mut Random) -> f64 {
    (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64
}

/// With a mean of one.
fn exponential(random: &mut Random) -> f64 {
    -ln(unit(random))
}

/// The natural logarithm of a number above zero, by the series of the inverse hyperbolic tangent.
fn ln(value: f64) -> f64 {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as i32 - 1_023;
    // From 1 to 2.
    let mantissa = f64::from_bits(bits & !(0x7ff << 52) | 1_023 << 52);
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let series = (0..16).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    2.0 * z * series + f64::from(exponent) * core::f64::consts::LN_2
}

/// e to the power of `value`, which is from 0 to 40.
fn exp(value: f64) -> f64 {
    let doublings = (value / core::f64::consts::LN_2) as u32;
    let rest = value - f64::from(doublings) * core::f64::consts::LN_2;
    let series = (1..20).rev().fold(1.0, |sum, n| 1.0 + sum * rest / f64::from(n));
    series * (1u64 << doublings) as f64
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use mainspring_random::Stream;

    fn draws(kind: &Distribution) -> Vec<u64> {
        let mut random = Random::new(7, Stream::Machine);
        let mut drawn: Vec<u64> = (0..40_000).map(|_| kind.draw(&mut random).get()).collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn the_functions_are_those_of_mathematics() {
        for value in [1e-16, 0.001, 0.3, 0.5, 0.999, 1.0, 1.5, 2.0, 1e9] {
            assert!((ln(value) - value.ln()).abs() < 1e-12, "ln {value}: {} {}", ln(value), value.ln());
        }
        for value in [0.0, 0.1, 0.7, 1.0, 5.5, 39.9] {
            assert!((exp(value) / value.exp() - 1.0).abs() < 1e-12, "exp {value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_distribution() {
        let ms = Nanos::from_millis;
        let near = |drawn: u64, expected: f64| (drawn as f64 / expected - 1.0).abs() < 0.03;
        let exponential = draws(&Distribution::Exponential { mean: ms(1) });
        assert!(near(exponential[20_000], 693_147.0) && near(exponential[36_000], 2_302_585.0));
        let normal = draws(&Distribution::Normal { mean: ms(10), deviation: ms(2) });
        assert!(near(normal[20_000], 10e6) && near(normal[33_654], 12e6) && near(normal[6_346], 8e6));
        let pareto = draws(&Distribution::Pareto { least: ms(1), shape_thousandths: 1_500 });
        assert!(
            pareto[0] >= 1_000_000 && near(pareto[20_000], 1_587_401.0) && near(pareto[36_000], 4_641_588.0)
        );
        let values = draws(&Distribution::Values([ms(1), ms(5)].into()));
        assert_eq!((values[0], values[39_999]), (1_000_000, 5_000_000));
        assert!((18_000..22_000).contains(&values.partition_point(|value| *value == 1_000_000)));
    }

    #[test]
    fn extremes_stay_within_an_hour() {
        for kind in [
            Distribution::Exponential { mean: Nanos::MAX },
            Distribution::Normal { mean: Nanos::ZERO, deviation: Nanos::MAX },
            Distribution::Pareto { least: LONGEST, shape_thousandths: 1 },
        ] {
            assert!(draws(&kind).iter().all(|drawn| *drawn <= LONGEST.get()), "{kind:?}");
        }
    }
}
