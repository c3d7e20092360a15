//! Arithmetic.

use super::body::Body;
use crate::context::{TRAP_DIVIDE, TRAP_OVERFLOW};
use cranelift_codegen::ir;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, types};
use mainspring_qtjir::{Binary, Pos, Type, Unary, Value};

impl Body<'_, '_, '_> {
    pub(super) fn integer(
        &mut self,
        op: Binary,
        left: Value,
        right: Value,
        pos: Pos,
        place: (usize, usize),
    ) -> ir::Value {
        let (a, b) = (self.get(left), self.get(right));
        let compared = match op {
            Binary::Eq => Some(IntCC::Equal),
            Binary::Ne => Some(IntCC::NotEqual),
            Binary::Lt => Some(IntCC::SignedLessThan),
            Binary::Le => Some(IntCC::SignedLessThanOrEqual),
            Binary::Gt => Some(IntCC::SignedGreaterThan),
            Binary::Ge => Some(IntCC::SignedGreaterThanOrEqual),
            _ => None,
        };
        if let Some(compared) = compared {
            let bit = self.builder.ins().icmp(compared, a, b);
            return self.builder.ins().uextend(types::I64, bit);
        }
        match op {
            Binary::AddWrap => self.builder.ins().iadd(a, b),
            Binary::SubWrap => self.builder.ins().isub(a, b),
            Binary::MulWrap => self.builder.ins().imul(a, b),
            Binary::And => self.builder.ins().band(a, b),
            Binary::Or => self.builder.ins().bor(a, b),
            Binary::Xor => self.builder.ins().bxor(a, b),
            Binary::Shl => self.builder.ins().ishl(a, b),
            Binary::Shr => self.builder.ins().sshr(a, b),
            Binary::MinUnsigned if self.facts.is_safe(place) => a,
            Binary::MinUnsigned => self.builder.ins().umin(a, b),
            Binary::Div | Binary::Rem => self.divided(op, a, b, pos, place),
            _ if self.facts.is_safe(place) || self.moves_index(op, a, right) => match op {
                Binary::Add => self.builder.ins().iadd(a, b),
                Binary::Sub => self.builder.ins().isub(a, b),
                _ => self.builder.ins().imul(a, b),
            },
            _ => {
                let (result, over) = self.checked(op, a, b, self.constant(right));
                let site = self.site(pos);
                self.trap_if(over, TRAP_OVERFLOW, site, [None, None]);
                result
            }
        }
    }

    /// Whether a number is added to what was the number of a word before, so that the result fits.
    fn moves_index(&self, op: Binary, a: ir::Value, right: Value) -> bool {
        let by = self.constant(right).filter(|_| matches!(op, Binary::Add | Binary::Sub));
        by.is_some_and(|by| self.seen.moves(a, by))
    }

    /// A result, and whether it does not fit. With a constant on the right one comparison says so.
    fn checked(
        &mut self,
        op: Binary,
        a: ir::Value,
        b: ir::Value,
        constant: Option<i64>,
    ) -> (ir::Value, ir::Value) {
        let goes_up = match (op, constant) {
            (Binary::Add, Some(constant)) => constant >= 0,
            (Binary::Sub, Some(constant)) => constant < 0,
            (Binary::Add, None) => return self.builder.ins().sadd_overflow(a, b),
            (Binary::Sub, None) => return self.builder.ins().ssub_overflow(a, b),
            _ => return self.builder.ins().smul_overflow(a, b),
        };
        let result =
            if op == Binary::Add { self.builder.ins().iadd(a, b) } else { self.builder.ins().isub(a, b) };
        let wrapped = if goes_up { IntCC::SignedLessThan } else { IntCC::SignedGreaterThan };
        (result, self.builder.ins().icmp(wrapped, result, a))
    }

    fn divided(
        &mut self,
        op: Binary,
        a: ir::Value,
        b: ir::Value,
        pos: Pos,
        place: (usize, usize),
    ) -> ir::Value {
        let site = self.site(pos);
        if !self.facts.divides(place) {
            let by_zero = self.builder.ins().icmp_imm_s(IntCC::Equal, b, 0);
            self.trap_if(by_zero, TRAP_DIVIDE, site, [None, None]);
        }
        if !self.facts.is_safe(place) {
            let least = self.builder.ins().icmp_imm_s(IntCC::Equal, a, i64::MIN);
            let negated = self.builder.ins().icmp_imm_s(IntCC::Equal, b, -1);
            let over = self.builder.ins().band(least, negated);
            self.trap_if(over, TRAP_OVERFLOW, site, [None, None]);
        }
        match op {
            Binary::Div => self.builder.ins().sdiv(a, b),
            _ => self.builder.ins().srem(a, b),
        }
    }

    pub(super) fn float(&mut self, op: Binary, a: ir::Value, b: ir::Value) -> ir::Value {
        let compared = match op {
            Binary::Add => return self.builder.ins().fadd(a, b),
            Binary::Sub => return self.builder.ins().fsub(a, b),
            Binary::Mul => return self.builder.ins().fmul(a, b),
            Binary::Div => return self.builder.ins().fdiv(a, b),
            Binary::Eq => FloatCC::Equal,
            Binary::Ne => FloatCC::NotEqual,
            Binary::Lt => FloatCC::LessThan,
            Binary::Le => FloatCC::LessThanOrEqual,
            Binary::Gt => FloatCC::GreaterThan,
            _ => FloatCC::GreaterThanOrEqual,
        };
        let bit = self.builder.ins().fcmp(compared, a, b);
        self.builder.ins().uextend(types::I64, bit)
    }

    pub(super) fn unary(&mut self, op: Unary, a: Value, pos: Pos, place: (usize, usize)) -> ir::Value {
        let value = self.get(a);
        match op {
            Unary::Neg if *self.function.type_of(a) == Type::F64 => self.builder.ins().fneg(value),
            Unary::Neg => {
                if !self.facts.is_safe(place) {
                    let least = self.builder.ins().icmp_imm_s(IntCC::Equal, value, i64::MIN);
                    let site = self.site(pos);
                    self.trap_if(least, TRAP_OVERFLOW, site, [None, None]);
                }
                self.builder.ins().ineg(value)
            }
            Unary::Not => self.builder.ins().bxor_imm_s(value, 1),
            Unary::ToFloat => self.builder.ins().fcvt_from_sint(types::F64, value),
            Unary::ToInt => self.builder.ins().fcvt_to_sint_sat(types::I64, value),
        }
    }
}
