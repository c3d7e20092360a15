//! The smallest program: a nursery, three children that borrow, and their results.
//!
//! `cargo run -p mainspring-runtime --example hello_nursery`

use mainspring::{Config, Profile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Service).build()?;
    let names = ["spring", "wheel", "escapement"];
    let greetings = runtime.run(|cx| {
        cx.nursery(|n| {
            let children =
                names.map(|name| n.spawn(move |cx| format!("{name} says hello from {:?}", cx.id())));
            children.map(|child| child.expect("the pool pays for three").join(cx).expect("it does not fail"))
        })
    })??;
    // Here every child has ended, whatever happened above.
    for greeting in greetings {
        println!("{greeting}");
    }
    Ok(())
}
