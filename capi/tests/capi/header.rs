//! The header, made from the sources, and the layouts that C sees.
//!
//! `MAINSPRING_BLESS=1 cargo test -p mainspring-capi --test capi header` writes it anew.

use crate::build::{compile, here, made, said};
use mainspring_abi::ring::{CapCqe, CapSqe, CapSqeV2, RingHeader, RuntimeBootInfo};
use mainspring_capi::{
    janus_budget, janus_context_info, janus_context_notices, janus_nursery_options, janus_nursery_result,
    janus_pool, janus_rate, janus_reservation, janus_scheduler_config, janus_spawn_options,
};
use quote::ToTokens;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;
use syn::{Attribute, Expr, FnArg, Item, ItemFn, Lit, Meta, Pat, ReturnType, Type};

/// The files in the order of the header.
const SOURCES: [&str; 10] = [
    "layout.rs",
    "status.rs",
    "scheduler.rs",
    "nursery.rs",
    "task.rs",
    "budget.rs",
    "channel.rs",
    "endpoint.rs",
    "context.rs",
    "quota.rs",
];

/// A structure of the header: its name, its size, and where its fields are.
type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! layouts {
    ($($name:ident $shown:literal: $($field:ident)*;)*) => {
        vec![$(($shown, size_of::<$name>(), vec![$((stringify!($field), offset_of!($name, $field)),)*]),)*]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        janus_budget "janus_budget": ops memory spawn_count channel_ops syscalls;
        janus_pool "janus_pool": ops memory spawn_count channel_ops syscalls;
        janus_scheduler_config "janus_scheduler_config": worker_count profile deterministic caps deterministic_seed stack_size
            task_limit tenant_count tenant_weights child_budget recharge_limit root_pool context_count context_share_ppm reserved;
        janus_nursery_options "janus_nursery_options": has_pool on_exhausted pool deadline_ns reserved;
        janus_spawn_options "janus_spawn_options": has_budget has_pool caps tenant budget pool recharge_limit stack_size
            context quota context_count context_share_ppm reserved;
        janus_nursery_result "janus_nursery_result": status reserved code task_id;
        janus_reservation "janus_reservation": budget_ns period_ns deadline_ns depleted worker reserved;
        janus_context_info "janus_context_info": budget_ns period_ns deadline_ns remaining_ns used_ns used_on_loan_ns overshoot_ns
            depletions misses worker place;
        janus_context_notices "janus_context_notices": depleted late;
        janus_rate "janus_rate": period_ns when_empty reserved limit burst;
    }
}

fn ring_layouts() -> Vec<Layout> {
    layouts! {
        CapSqe "struct cap_sqe": user_data cap_id op method_id flags call_id params_addr params_len result_len result_addr;
        CapSqeV2 "struct cap_sqe_v2": v1 deadline_ns qos_flags sched_ctx_id;
        CapCqe "struct cap_cqe": user_data result error status flags;
        RingHeader "struct cap_ring_header": magic abi_version entry_sizes sq_entries cq_entries sq_head flags held_back
            sq_wakes sq_tail cq_head cq_tail waiter_flags cq_wakes;
        RuntimeBootInfo "struct cap_runtime_boot_info": ring_addr ring_abi_version sqe_size cqe_size;
    }
}

/// A C declaration of `name` with this Rust type.
fn declared(of: &Type, name: &str) -> String {
    let space = |base: &str| if name.is_empty() { base.to_owned() } else { format!("{base} {name}") };
    match of {
        Type::Ptr(pointer) => {
            let qualifier = if pointer.const_token.is_some() { "const " } else { "" };
            format!("{qualifier}{}*{name}", declared(&pointer.elem, "") + " ")
        }
        Type::Array(array) => {
            let count = array.len.to_token_stream();
            declared(&array.elem, &format!("{name}[{count}]"))
        }
        Type::Path(path) => {
            match path.path.segments.last().expect("a path has an end").ident.to_string().as_str() {
                "i32" => space("int32_t"),
                "u16" => space("uint16_t"),
                "u32" => space("uint32_t"),
                "u64" => space("uint64_t"),
                "i64" => space("int64_t"),
                "usize" => space("size_t"),
                "c_void" => space("void"),
                "c_char" => space("char"),
                ours if ours.starts_with("janus_") => space(ours),
                other => panic!("C has no type for {other}"),
            }
        }
        other => panic!("C has no type for {}", other.to_token_stream()),
    }
}

/// The documentation as a C comment. What Rust calls safety is what the caller promises.
fn comment(attributes: &[Attribute], indent: &str) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(value) if value.path.is_ident("doc") => match &value.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().replace('`', "")),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    let mut text = lines.join(&format!("\n{indent}   ")).replace("# Safety", "The caller promises:");
    if let Some(rest) = text.strip_prefix("The caller promises:") {
        text = rest.to_owned();
    }
    format!("{indent}/* {text} */\n")
}

fn function(out: &mut String, item: &ItemFn) {
    let params: Vec<String> = item
        .sig
        .inputs
        .iter()
        .map(|input| match input {
            FnArg::Typed(input) => match &*input.pat {
                Pat::Ident(name) => declared(&input.ty, &name.ident.to_string()),
                _ => panic!("a parameter without a name"),
            },
            FnArg::Receiver(_) => panic!("no method is exported"),
        })
        .collect();
    let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
    let name = format!("{}({params})", item.sig.ident);
    let declaration = match &item.sig.output {
        ReturnType::Default => format!("void {name}"),
        ReturnType::Type(_, of) => declared(of, &name),
    };
    writeln!(out, "\n{}{declaration};", comment(&item.attrs, "")).expect("a string takes everything");
}

fn is_exported(item: &ItemFn) -> bool {
    item.sig.abi.is_some() && item.sig.ident.to_string().starts_with("janus_")
}

/// The statuses stand in a macro: its documentation and numbers, line by line.
fn statuses(out: &mut String, source: &str) {
    let inside =
        source.split("statuses! {").nth(1).expect("the statuses").split("\n}").next().expect("their end");
    for line in inside.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            writeln!(out, "/* {} */", text.trim().replace('`', "")).expect("a string takes everything");
        } else if let Some((name, rest)) = line.split_once(" = ") {
            let number = rest.split(',').next().expect("a number");
            writeln!(out, "#define {name} {number}").expect("a string takes everything");
        }
    }
}

fn item(out: &mut String, item: &Item) -> std::fmt::Result {
    match item {
        Item::Const(constant) if constant.ident.to_string().starts_with("JANUS_") => {
            let value = match constant.expr.to_token_stream().to_string().as_str() {
                "u64 :: MAX" => "UINT64_MAX".to_owned(),
                number => format!("{number}u"),
            };
            writeln!(out, "{}#define {} {value}", comment(&constant.attrs, ""), constant.ident)
        }
        Item::Type(alias) if alias.ident == "janus_task_fn" => {
            writeln!(out, "\n{}typedef int64_t (*janus_task_fn)(void *arg);", comment(&alias.attrs, ""))
        }
        Item::Type(alias) => {
            let name = &alias.ident;
            writeln!(out, "\n{}typedef struct {name}_s *{name};", comment(&alias.attrs, ""))
        }
        Item::Struct(made) if made.ident.to_string().starts_with("janus_") => {
            writeln!(out, "\n{}typedef struct {} {{", comment(&made.attrs, ""), made.ident)?;
            for field in &made.fields {
                let name = field.ident.as_ref().expect("a name").to_string();
                writeln!(out, "{}    {};", comment(&field.attrs, "    "), declared(&field.ty, &name))?;
            }
            writeln!(out, "}} {};", made.ident)?;
            let layouts = layouts();
            let layout = layouts.iter().find(|(name, ..)| made.ident == name);
            let (name, size, fields) = layout.unwrap_or_else(|| panic!("{}: no layout", made.ident));
            assert_eq!(fields.len(), made.fields.len(), "{name}: fields without an offset");
            writeln!(out, "JANUS_LAYOUT(sizeof({name}) == {size}, \"{name}\");")?;
            for (field, offset) in fields {
                writeln!(out, "JANUS_LAYOUT(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");")?;
            }
            Ok(())
        }
        Item::Fn(exported) if is_exported(exported) => {
            function(out, exported);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn header() -> String {
    let mut out = String::from(
        "/* Budgeted tasks, nurseries and channels for C. Made from capi/src; do not edit:\n   MAINSPRING_BLESS=1 cargo test -p \
         mainspring-capi --test capi header. The guide is docs/capi.md. */\n#ifndef MAINSPRING_H\n#define MAINSPRING_H\n\n\
         #include <stddef.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\n#define JANUS_LAYOUT static_assert\nextern \"C\" {\n\
         #else\n#define JANUS_LAYOUT _Static_assert\n#endif\n\n",
    );
    for name in SOURCES {
        let path = here().join("src").join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        if name == "status.rs" {
            out.push('\n');
            statuses(&mut out, &text);
        }
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        file.items.iter().for_each(|found| item(&mut out, found).expect("a string takes everything"));
    }
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    out
}

#[test]
fn the_header_is_current() {
    let (file, made) = (here().join("include/mainspring.h"), header());
    if std::env::var_os("MAINSPRING_BLESS").is_some() {
        std::fs::write(&file, &made).expect("the header can be written");
    }
    let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(checked_in == made, "write it anew with MAINSPRING_BLESS=1");
}

/// Compilers of both languages agree with every size and offset, since the header asserts them.
#[test]
fn the_header_is_c_and_cpp() {
    let header = here().join("include/mainspring.h");
    for (compiler, standard, language) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "c++")] {
        let checked = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language])
            .arg(&header)
            .output()
            .expect("a C compiler, as the build needs anyway");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// Every function that the sources export is in the header, and the library has it.
#[test]
fn the_library_exports_what_the_header_declares() {
    let text = header();
    let declared: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with("JANUS") && !line.contains("(*"))
        .map(|line| line.split('(').next().expect("a name").rsplit([' ', '*']).next().expect("a name"))
        .collect();
    assert!(declared.len() > 30, "{declared:?}");
    let source = made("exports.c");
    let table = declared.join(", (void *)");
    let program = format!(
        "#include <mainspring.h>\n#include <stdio.h>\nvoid *table[] = {{(void *){table}}};\n\
         int main(void) {{ printf(\"%zu\\n\", sizeof table / sizeof *table); return 0; }}\n"
    );
    std::fs::write(&source, program).expect("a program");
    // A function that the library does not have is not linked.
    let output = Command::new(compile(&source, "exports", &[])).output().expect("it starts");
    assert_eq!(said(&output).trim(), declared.len().to_string());
}

/// What a C program sees of the structures that it shares with a kernel or a scheduler is what Rust has.
//= TICK:L4.mirror SCHED:3.1.1
#[test]
fn c_sees_the_sizes_and_offsets_that_rust_has() {
    let mut lines = String::new();
    let mut wanted = String::new();
    for (name, size, fields) in ring_layouts().into_iter().chain(layouts()) {
        writeln!(lines, "    printf(\"{name} %zu\\n\", sizeof({name}));").expect("a string takes everything");
        writeln!(wanted, "{name} {size}").expect("a string takes everything");
        for (field, offset) in fields {
            writeln!(lines, "    printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));")
                .expect("a string takes everything");
            writeln!(wanted, "{name}.{field} {offset}").expect("a string takes everything");
        }
    }
    let source = made("layouts.c");
    let program = format!(
        "#include <mainspring.h>\n#include <mainspring_ring.h>\n#include <stdio.h>\nint main(void) {{\n{lines}    return 0;\n}}\n"
    );
    std::fs::write(&source, program).expect("a program");
    let ring = format!("-I{}", here().join("../core/ring/include").display());
    let output = Command::new(compile(&source, "layouts", &[&ring])).output().expect("it starts");
    assert_eq!(said(&output), wanted);
}
