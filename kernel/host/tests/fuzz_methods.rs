//! The kernel's fuzzer asks for everything that there is: its table of methods is compared with the schema, and with the operations
//! that the kernel takes. A method that is added to either fails here until the fuzzer has it.

#[path = "../../../user/src/bin/fuzz/methods.rs"]
#[allow(dead_code, reason = "the fuzzer uses all of it")]
mod methods;

use methods::{INTERFACES, Method};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

fn source(path: &str) -> String {
    fs::read_to_string(mainspring_conformance::project().join(path))
        .expect("the file is part of this repository")
}

/// The methods of each interface, by number: `enum TimerMethod { now @0; sleep @1; }` is `Timer` with both.
fn interfaces_of(schema: &str) -> BTreeMap<String, BTreeMap<usize, String>> {
    let code: String =
        schema.lines().map(|line| line.split('#').next().unwrap_or("").to_owned() + "\n").collect();
    let mut interfaces = BTreeMap::new();
    for part in code.split("enum ").skip(1) {
        let (name, rest) = part.split_once('{').expect("an enum has a body");
        let Some(interface) = name.trim().strip_suffix("Method") else { continue };
        let (body, _) = rest.split_once('}').expect("a body has an end");
        let methods = body.split(';').filter_map(|entry| {
            let (name, number) = entry.split_once('@')?;
            Some((number.trim().parse().expect("a number"), name.trim().to_owned()))
        });
        interfaces.insert(interface.to_owned(), methods.collect());
    }
    interfaces
}

#[test]
fn the_fuzzer_calls_each_method_of_the_schema() {
    let schema = interfaces_of(&source("schema/mainspring.capnp"));
    let fuzzed: BTreeMap<String, BTreeMap<usize, String>> = INTERFACES
        .iter()
        .filter(|interface| !interface.name.is_empty())
        .map(|interface| {
            let names = interface.methods.iter().map(|(name, _)| (*name).to_owned());
            (interface.name.to_owned(), names.enumerate().collect())
        })
        .collect();
    assert!(schema.len() > 15, "the schema was read: {schema:?}");
    assert_eq!(fuzzed, schema, "left: what the fuzzer has, right: what the schema has");
}

#[test]
fn the_fuzzer_uses_each_operation_that_the_kernel_takes() {
    let dispatch = source("kernel/src/method/mod.rs");
    let named = dispatch.split("op::").skip(1).map(|rest| {
        rest.chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect::<String>()
    });
    let taken: BTreeSet<String> = named.filter(|name| !name.is_empty()).collect();
    let operations = INTERFACES.iter().filter(|interface| interface.name.is_empty());
    let fuzzed: BTreeSet<String> =
        operations.flat_map(|interface| interface.methods).map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(fuzzed, taken, "left: what the fuzzer has, right: what the kernel takes");
}

#[test]
fn each_method_is_drawn_as_often_as_the_table_says() {
    let drawn: Vec<Method> = (0..Method::draws()).map(Method::drawn).collect();
    for (interface, known) in INTERFACES.iter().enumerate() {
        for (number, (name, share)) in known.methods.iter().enumerate() {
            let of = |method: &&Method| {
                INTERFACES[..interface].iter().map(|known| known.methods.len()).sum::<usize>() + number
                    == method.index()
            };
            assert_eq!(drawn.iter().filter(of).count() as u64, *share, "{}.{name}", known.name);
            assert!(*share > 0, "{}.{name} is never asked for", known.name);
        }
    }
}
