//! A module as text.

use super::PROFILES;
use crate::ir::{Function, Instr, Module, Op, Target, Terminator, Type, Value};
use std::fmt::Write;

/// A module as text.
pub fn print(module: &Module) -> String {
    let mut out = String::new();
    let profile =
        PROFILES.iter().find(|(profile, _)| *profile == module.profile).map_or("core", |named| named.1);
    line(&mut out, format_args!("profile {profile}"));
    if let Some(interval) = module.yield_interval {
        line(&mut out, format_args!("interval {interval}"));
    }
    for error in &module.errors {
        line(&mut out, format_args!("error {error}"));
    }
    for def in &module.structs {
        let fields: Vec<String> =
            def.fields.iter().map(|(name, of)| format!("{name}: {}", type_text(module, of))).collect();
        line(&mut out, format_args!("struct {} {{ {} }}", def.name, fields.join(", ")));
    }
    for function in &module.functions {
        out.push('\n');
        print_function(&mut out, module, function);
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all");
}

/// A type as text.
pub fn type_text(module: &Module, of: &Type) -> String {
    match of {
        Type::Unit => "unit".to_owned(),
        Type::I64 => "i64".to_owned(),
        Type::F64 => "f64".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Slice(inner) => format!("slice<{}>", type_text(module, inner)),
        Type::Struct(at) => {
            module.structs.get(*at as usize).map_or_else(|| format!("struct#{at}"), |def| def.name.clone())
        }
        Type::Task(inner) => format!("task<{}>", type_text(module, inner)),
        Type::Future { result, fails } => {
            format!("future{}<{}>", if *fails { "!" } else { "" }, type_text(module, result))
        }
        Type::Nursery => "nursery".to_owned(),
        Type::Chan(inner) => format!("chan<{}>", type_text(module, inner)),
        Type::CapSpawn => "CapSpawn".to_owned(),
        Type::CapBudget => "CapBudget".to_owned(),
    }
}

fn typed(module: &Module, function: &Function, values: &[Value]) -> String {
    let parts: Vec<String> = values
        .iter()
        .map(|value| {
            let of = function.values.get(value.0 as usize).unwrap_or(&Type::Unit);
            format!("{value}: {}", type_text(module, of))
        })
        .collect();
    parts.join(", ")
}

fn list(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

fn print_function(out: &mut String, module: &Module, function: &Function) {
    let params = function.blocks.first().map_or(&[][..], |block| &block.params);
    let fails = if function.fails { " fails" } else { "" };
    line(
        out,
        format_args!(
            "fn @{}({}) -> {}{fails} {{",
            function.name,
            typed(module, function, params),
            type_text(module, &function.result)
        ),
    );
    for (at, block) in function.blocks.iter().enumerate() {
        if at == 0 || block.params.is_empty() {
            line(out, format_args!("b{at}:"));
        } else {
            line(out, format_args!("b{at}({}):", typed(module, function, &block.params)));
        }
        for instr in &block.instrs {
            line(out, format_args!("  {}", instr_text(module, function, instr)));
        }
        line(out, format_args!("  {}", end_text(&block.end)));
    }
    line(out, format_args!("}}"));
}

fn instr_text(module: &Module, function: &Function, instr: &Instr) -> String {
    let name = instr.op.name();
    let what = match &instr.op {
        Op::Int(value) => format!("{name} {value}"),
        Op::Float(value) if value.is_finite() => format!("{name} {value:?}"),
        Op::Float(value) => format!("{name} bits {}", value.to_bits()),
        Op::Bool(value) => format!("{name} {value}"),
        Op::Call(callee, args) => format!("{name} @{callee}({})", list(args)),
        Op::SliceNew(of, len) | Op::ChannelNew(of, len) => format!("{name} {}, {len}", type_text(module, of)),
        Op::StructNew(at, fields) => {
            format!("{name} {}({})", type_text(module, &Type::Struct(*at)), list(fields))
        }
        Op::Field(of, field) => format!("{name} {of}, {field}"),
        Op::SetField(of, field, value) => format!("{name} {of}, {field}, {value}"),
        Op::Spawn(tenancy, callee, args) | Op::AsyncCall(tenancy, callee, args) => {
            format!("{name} [{tenancy}] @{callee}({})", list(args))
        }
        Op::TaskCreate(tenancy, callee, args, budget) => {
            format!("{name} [{tenancy}] @{callee}({}), budget({})", list(args), list(budget))
        }
        Op::PrintText(text) => format!("{name} {}", quoted(text)),
        other => {
            let operands = list(&other.operands());
            if operands.is_empty() { name.to_owned() } else { format!("{name} {operands}") }
        }
    };
    if instr.results.is_empty() {
        what
    } else {
        format!("{} = {what}", typed(module, function, &instr.results))
    }
}

/// A text in quotes, with unprintable characters as numbers.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            other if other.is_control() => {
                write!(out, "\\u{{{:x}}}", u32::from(other)).expect("a string takes all");
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn target_text(target: &Target) -> String {
    if target.args.is_empty() {
        target.block.to_string()
    } else {
        format!("{}({})", target.block, list(&target.args))
    }
}

fn end_text(end: &Terminator) -> String {
    match end {
        Terminator::Jump(to) => format!("Jump {}", target_text(to)),
        Terminator::Branch(condition, yes, no) => {
            format!("Branch {condition}, {}, {}", target_text(yes), target_text(no))
        }
        Terminator::Return(None) => "Return".to_owned(),
        Terminator::Return(Some(value)) => format!("Return {value}"),
        Terminator::Fail(code) => format!("Fail {code}"),
        Terminator::Raise(code) => format!("Raise {code}"),
    }
}
