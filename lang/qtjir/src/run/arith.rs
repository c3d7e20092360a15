//! Arithmetic on words. Generated code must agree with it.

use super::fault::Trap;
use crate::ir::{Binary, Type, Unary};

/// An operation on two words of one type.
pub fn binary(op: Binary, of: &Type, a: u64, b: u64) -> Result<u64, Trap> {
    if *of == Type::F64 {
        return Ok(float(op, f64::from_bits(a), f64::from_bits(b)));
    }
    let (x, y) = (a as i64, b as i64);
    let fits = |result: Option<i64>| result.map(|value| value as u64).ok_or(Trap::Overflow);
    match op {
        Binary::Add => fits(x.checked_add(y)),
        Binary::Sub => fits(x.checked_sub(y)),
        Binary::Mul => fits(x.checked_mul(y)),
        Binary::Div | Binary::Rem if y == 0 => Err(Trap::DivideByZero),
        Binary::Div => fits(x.checked_div(y)),
        Binary::Rem => fits(x.checked_rem(y)),
        Binary::AddWrap => Ok(a.wrapping_add(b)),
        Binary::SubWrap => Ok(a.wrapping_sub(b)),
        Binary::MulWrap => Ok(a.wrapping_mul(b)),
        Binary::And => Ok(a & b),
        Binary::Or => Ok(a | b),
        Binary::Xor => Ok(a ^ b),
        Binary::Shl => Ok(a << (b & 63)),
        Binary::Shr => Ok((x >> (b & 63)) as u64),
        Binary::MinUnsigned => Ok(a.min(b)),
        Binary::Eq => Ok((x == y).into()),
        Binary::Ne => Ok((x != y).into()),
        Binary::Lt => Ok((x < y).into()),
        Binary::Le => Ok((x <= y).into()),
        Binary::Gt => Ok((x > y).into()),
        Binary::Ge => Ok((x >= y).into()),
    }
}

fn float(op: Binary, x: f64, y: f64) -> u64 {
    match op {
        Binary::Add => (x + y).to_bits(),
        Binary::Sub => (x - y).to_bits(),
        Binary::Mul => (x * y).to_bits(),
        Binary::Div => (x / y).to_bits(),
        Binary::Eq => (x == y).into(),
        Binary::Ne => (x != y).into(),
        Binary::Lt => (x < y).into(),
        Binary::Le => (x <= y).into(),
        Binary::Gt => (x > y).into(),
        Binary::Ge => (x >= y).into(),
        _ => unreachable!("the verifier refuses the others"),
    }
}

/// An operation on one word.
pub fn unary(op: Unary, of: &Type, a: u64) -> Result<u64, Trap> {
    match (op, of) {
        (Unary::Neg, Type::F64) => Ok((-f64::from_bits(a)).to_bits()),
        (Unary::Neg, _) => (a as i64).checked_neg().map(|value| value as u64).ok_or(Trap::Overflow),
        (Unary::Not, _) => Ok(a ^ 1),
        (Unary::ToFloat, _) => Ok((a as i64 as f64).to_bits()),
        (Unary::ToInt, _) => Ok(f64::from_bits(a) as i64 as u64),
    }
}
