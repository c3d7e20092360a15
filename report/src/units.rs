//! Numbers for people: durations with three significant digits, counts with separators, shares in percent.

const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];

/// A duration with three significant digits: `17ns`, `1.23ms`, `12.3s`.
pub(crate) fn duration(ns: u64) -> String {
    let (number, unit) = split(ns);
    format!("{number}{unit}")
}

/// As [`duration`], the unit padded to two characters, so that the digits of a right-aligned column line up.
pub(crate) fn aligned_duration(ns: u64) -> String {
    let (number, unit) = split(ns);
    format!("{number}{unit:<2}")
}

/// A time to the nanosecond, in the largest unit that it fills and without trailing zeros: `12.345678ms`.
#[must_use]
pub fn instant(ns: u64) -> String {
    let (scale, digits, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, 3, "us"),
        1_000_000..1_000_000_000 => (1_000_000, 6, "ms"),
        _ => (1_000_000_000, 9, "s"),
    };
    let fraction = format!("{:0digits$}", ns % scale);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{unit}", ns / scale)
}

fn split(ns: u64) -> (String, &'static str) {
    if ns < 1_000 {
        return (ns.to_string(), "ns");
    }
    // The limit is what still prints as 999, so that 999.7us reads 1.00ms and not 1000us.
    let fits = |&&(scale, _): &&(f64, &str)| (ns as f64 / scale) < 999.5;
    let &(scale, unit) = UNITS[1..].iter().find(fits).unwrap_or(&UNITS[3]);
    (three_digits(ns as f64 / scale), unit)
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A count with separators, `12,345`; from ten million on with three digits and a prefix, `12.3M`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..10_000_000 => separated(n),
        n if (n as f64) < 999.5e6 => three_digits(n as f64 / 1e6) + "M",
        n => three_digits(n as f64 / 1e9) + "G",
    }
}

fn separated(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate per second with three digits: `3.85M/s`. Unknown, as `-`, when no time has passed.
pub(crate) fn rate(n: u64, ns: u64) -> String {
    if ns == 0 {
        return "-/s".to_owned();
    }
    let per_second = n as f64 / (ns as f64 / 1e9);
    match per_second {
        r if r < 999.5 => format!("{}/s", three_digits(r)),
        r if r < 999.5e3 => format!("{}k/s", three_digits(r / 1e3)),
        r if r < 999.5e6 => format!("{}M/s", three_digits(r / 1e6)),
        r => format!("{}G/s", three_digits(r / 1e9)),
    }
}

/// `part` of `whole` as a fraction; zero when there is no whole.
pub(crate) fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A fraction in percent with one decimal: `33.3`.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{:.1}", fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_significant_digits_and_never_four() {
        let shown: Vec<String> = [0, 17, 999, 1_000, 1_234, 12_345, 999_499, 999_700, 1_500_000, 999_999_999]
            .into_iter()
            .map(duration)
            .collect();
        assert_eq!(
            shown,
            ["0ns", "17ns", "999ns", "1.00us", "1.23us", "12.3us", "999us", "1.00ms", "1.50ms", "1.00s"]
        );
    }

    #[test]
    fn instants_are_exact() {
        let shown: Vec<String> =
            [0, 999, 1_000, 1_050, 2_666_667, 25_000_000, 1_000_000_001].map(instant).into();
        assert_eq!(shown, ["0ns", "999ns", "1us", "1.05us", "2.666667ms", "25ms", "1.000000001s"]);
    }

    #[test]
    fn durations_beyond_the_largest_unit_stay_in_seconds() {
        assert_eq!(duration(u64::MAX), "18446744074s");
    }

    #[test]
    fn counts_are_separated_and_large_ones_get_a_prefix() {
        let shown: Vec<String> =
            [0, 999, 1_000, 1_234_567, 12_345_678, 1_000_000_000].into_iter().map(count).collect();
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "12.3M", "1.00G"]);
    }

    #[test]
    fn a_rate_over_no_time_is_unknown() {
        assert_eq!(rate(5, 0), "-/s");
        assert_eq!(rate(3_850, 1_000_000), "3.85M/s");
    }
}
