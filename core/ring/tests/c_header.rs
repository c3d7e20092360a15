//! The layouts for other languages: a C header made from the Rust definitions, checked in, and checked by a C compiler.
//!
//! `MAINSPRING_BLESS=1 cargo test -p mainspring-ring --test c_header` writes it anew.

use mainspring_abi::ring::{
    CQ_HELD_BACK, CQ_WAITING, CapCqe, CapError, CapSqe, CapSqeV2, CompletionStatus, NEED_WAKEUP, QosFlags,
    RING_MAGIC, RingAbi, RingHeader, RuntimeBootInfo, SQE_AFTER_PREVIOUS, op,
};
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// A field's C type and name (with its brackets, if any), and its offset in the Rust definition.
type Field = (&'static str, &'static str, usize);

macro_rules! fields {
    ($rust:ty: $($c:literal $field:ident $($count:literal)?;)*) => {
        &[$(($c, concat!(stringify!($field) $(, "[", $count, "]")?), offset_of!($rust, $field)),)*]
    };
}

fn structs() -> [(&'static str, usize, &'static [Field]); 5] {
    [
        (
            "cap_sqe",
            size_of::<CapSqe>(),
            fields!(CapSqe: "uint64_t" user_data; "uint32_t" cap_id; "uint16_t" op; "uint16_t" method_id;
                "uint32_t" flags; "uint32_t" call_id; "uint64_t" params_addr; "uint32_t" params_len;
                "uint32_t" result_len; "uint64_t" result_addr;),
        ),
        (
            "cap_sqe_v2",
            size_of::<CapSqeV2>(),
            fields!(CapSqeV2: "struct cap_sqe" v1; "uint64_t" deadline_ns; "uint32_t" qos_flags;
                "uint32_t" sched_ctx_id;),
        ),
        (
            "cap_cqe",
            size_of::<CapCqe>(),
            fields!(CapCqe: "uint64_t" user_data; "uint32_t" result; "uint16_t" error; "uint8_t" status;
                "uint8_t" flags;),
        ),
        (
            "cap_ring_header",
            size_of::<RingHeader>(),
            fields!(RingHeader: "uint32_t" magic; "uint32_t" abi_version; "uint32_t" entry_sizes;
                "uint32_t" sq_entries; "uint32_t" cq_entries; "uint32_t" reserved_setup 11;
                "uint32_t" sq_head; "uint32_t" reserved_sq_head 15; "uint32_t" flags; "uint32_t" held_back;
                "uint32_t" sq_wakes; "uint32_t" reserved_flags 13; "uint32_t" sq_tail;
                "uint32_t" reserved_sq_tail 15; "uint32_t" cq_head; "uint32_t" reserved_cq_head 15;
                "uint32_t" cq_tail; "uint32_t" reserved_cq_tail 15; "uint32_t" waiter_flags; "uint32_t" cq_wakes;
                "uint32_t" reserved_waiter 14; "uint32_t" reserved 16;),
        ),
        (
            "cap_runtime_boot_info",
            size_of::<RuntimeBootInfo>(),
            fields!(RuntimeBootInfo: "uint64_t" ring_addr; "uint32_t" ring_abi_version; "uint16_t" sqe_size;
                "uint16_t" cqe_size;),
        ),
    ]
}

fn constants() -> Vec<(String, u64)> {
    let mut all = vec![
        ("CAP_RING_MAGIC".into(), u64::from(RING_MAGIC)),
        ("CAP_RING_ABI_V1".into(), u64::from(RingAbi::V1.version())),
        ("CAP_RING_ABI_V2".into(), u64::from(RingAbi::V2.version())),
        ("CAP_NEED_WAKEUP".into(), u64::from(NEED_WAKEUP)),
        ("CAP_CQ_HELD_BACK".into(), u64::from(CQ_HELD_BACK)),
        ("CAP_CQ_WAITING".into(), u64::from(CQ_WAITING)),
        ("CAP_OP_NOP".into(), u64::from(op::NOP)),
        ("CAP_OP_CALL".into(), u64::from(op::CALL)),
        ("CAP_OP_RECV".into(), u64::from(op::RECV)),
        ("CAP_OP_RETURN".into(), u64::from(op::RETURN)),
        ("CAP_OP_CANCEL".into(), u64::from(op::CANCEL)),
        ("CAP_OP_RETURN_RECV".into(), u64::from(op::RETURN_RECV)),
        ("CAP_OP_THROW".into(), u64::from(op::THROW)),
        ("CAP_SQE_AFTER_PREVIOUS".into(), u64::from(SQE_AFTER_PREVIOUS)),
    ];
    for (name, flag) in [
        ("DROP_IF_LATE", QosFlags::DROP_IF_LATE),
        ("ALLOW_LATE", QosFlags::ALLOW_LATE),
        ("PROPAGATE_DEADLINE", QosFlags::PROPAGATE_DEADLINE),
        ("NO_BLOCKING_PATH", QosFlags::NO_BLOCKING_PATH),
        ("DEADLINE_ORDERED", QosFlags::DEADLINE_ORDERED),
        ("REORDERABLE", QosFlags::REORDERABLE),
    ] {
        all.push((format!("CAP_QOS_{name}"), u64::from(flag.bits())));
    }
    all.extend(CapError::ALL.iter().map(|error| (error.name().to_owned(), u64::from(error.number()))));
    all.extend(
        CompletionStatus::ALL.iter().map(|status| (status.name().to_owned(), u64::from(status.number()))),
    );
    all
}

fn header() -> Result<String, std::fmt::Error> {
    let mut out = String::from(
        "/* Capability rings, ABI versions 1 and 2. Made from the Rust definitions in core/abi/src/ring; do not edit:\n   \
         MAINSPRING_BLESS=1 cargo test -p mainspring-ring --test c_header. All fields are little-endian. */\n\
         #ifndef MAINSPRING_RING_H\n#define MAINSPRING_RING_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n",
    );
    for (name, value) in constants() {
        writeln!(out, "#define {name} {value:#x}u")?;
    }
    for (name, size, fields) in structs() {
        writeln!(out, "\nstruct {name} {{")?;
        for (c_type, field, _) in fields {
            writeln!(out, "    {c_type} {field};")?;
        }
        writeln!(out, "}};\n_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");")?;
        for (_, field, offset) in fields {
            let field = field.split('[').next().unwrap_or(field);
            writeln!(
                out,
                "_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");"
            )?;
        }
    }
    out.push_str("\n#endif\n");
    Ok(out)
}

//= TICK:L4.mirror
#[test]
fn the_c_header_is_current_and_a_c_compiler_agrees_with_its_offsets() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/mainspring_ring.h");
    let made = header().expect("a string takes everything");
    if std::env::var_os("MAINSPRING_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, &made).expect("the header can be written");
    }
    let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(checked_in, made, "write it anew with MAINSPRING_BLESS=1");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c"])
        .arg(&file)
        .status()
        .expect("a C compiler, as the build needs anyway");
    assert!(compiled.success());
}
