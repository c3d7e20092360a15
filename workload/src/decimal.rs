//! Exact decimal fractions of a unit: "1.5" of 1,000,000 is 1,500,000. Floating point would make the same text
//! mean different numbers of nanoseconds on its way through.

/// Why a number cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalError {
    /// Not digits, optionally a point and digits.
    Malformed,
    /// Not a whole number of the smallest unit.
    TooFine,
    /// More than 64 bits hold.
    TooLarge,
}

/// More digits than this after the point cannot be exact in any unit that we have.
const MAX_FRACTION_DIGITS: usize = 18;

/// `text` times `unit`, exactly.
pub(crate) fn scaled(text: &str, unit: u64) -> Result<u64, DecimalError> {
    let (whole, fraction) = match text.split_once('.') {
        None => (digits(text)?, ""),
        Some((whole, fraction)) => (digits(whole)?, digits(fraction)?),
    };
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > MAX_FRACTION_DIGITS {
        return Err(DecimalError::TooFine);
    }
    let whole = number(whole)?.checked_mul(u128::from(unit)).ok_or(DecimalError::TooLarge)?;
    let part = number(fraction)? * u128::from(unit);
    let divisor = 10_u128.pow(fraction.len() as u32);
    if !part.is_multiple_of(divisor) {
        return Err(DecimalError::TooFine);
    }
    let sum = whole.checked_add(part / divisor).ok_or(DecimalError::TooLarge)?;
    u64::try_from(sum).map_err(|_| DecimalError::TooLarge)
}

fn digits(text: &str) -> Result<&str, DecimalError> {
    let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if fine { Ok(text) } else { Err(DecimalError::Malformed) }
}

fn number(digits: &str) -> Result<u128, DecimalError> {
    digits.bytes().try_fold(0_u128, |sum, digit| {
        sum.checked_mul(10)
            .and_then(|sum| sum.checked_add(u128::from(digit - b'0')))
            .ok_or(DecimalError::TooLarge)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_or_refused() {
        for (text, unit, expected) in [
            ("1.5", 1_000_000, Ok(1_500_000)),
            ("0", 7, Ok(0)),
            ("007", 1, Ok(7)),
            ("0.000000001", 1_000_000_000, Ok(1)),
            ("1.500000000000000000000000000000", 10, Ok(15)),
            ("1.5", 1, Err(DecimalError::TooFine)),
            ("0.0000000000000000001", 1, Err(DecimalError::TooFine)),
            ("18446744073709551615", 1, Ok(u64::MAX)),
            ("18446744073709551616", 1, Err(DecimalError::TooLarge)),
            ("340282366920938463463374607431768211456", 1, Err(DecimalError::TooLarge)),
            ("", 1, Err(DecimalError::Malformed)),
            ("1.", 1, Err(DecimalError::Malformed)),
            (".5", 10, Err(DecimalError::Malformed)),
            ("1.2.3", 10, Err(DecimalError::Malformed)),
            ("-1", 1, Err(DecimalError::Malformed)),
            ("1e3", 1, Err(DecimalError::Malformed)),
        ] {
            assert_eq!(scaled(text, unit), expected, "{text} of {unit}");
        }
    }
}
