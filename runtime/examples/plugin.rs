//! Untrusted plugins: each gets a budget, no right to spawn, and at most two channels. What they try beyond that is refused
//! or stops at the budget, and the host goes on.
//!
//! `cargo run -p mainspring-runtime --example plugin`

use mainspring::{Budget, Capacity, Config, Cx, Exhaustion, NurseryOptions, Profile, TaskError, budgeted};

#[budgeted]
fn honest(cx: &Cx) -> String {
    let mut sum = 0u64;
    for i in 0..1000u64 {
        sum += i;
    }
    format!("computed {sum}")
}

#[budgeted]
fn endless(cx: &Cx) -> String {
    loop {
        std::hint::spin_loop();
    }
}

fn greedy(cx: &Cx) -> String {
    let spawned = cx.nursery(|n| n.spawn(|_| ()).map(drop).map_err(|error| error.to_string()));
    let channels = (0..).map_while(|_| cx.channel::<u8>(Capacity::Bounded(1)).ok()).count();
    let memory = cx.try_vec::<u8>(1 << 30).map(drop).map_err(|error| error.to_string());
    format!("spawn: {spawned:?}; {channels} channels; a gigabyte: {memory:?}")
}

type Plugin = fn(&Cx) -> String;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Config::new(Profile::Service).build()?;
    let plugins: [(&str, Plugin); 3] = [("honest", honest), ("endless", endless), ("greedy", greedy)];
    runtime.run(|cx| {
        for (name, plugin) in plugins {
            let rights =
                cx.caps().without_spawn().without_budget().without_executor().attenuate_channel(2, 16);
            let options = NurseryOptions::new().caps(cx.caps()).on_exhausted(Exhaustion::Fail);
            let budget = Budget { ops: 50_000, memory: 1 << 20, ..Budget::ZERO };
            let result = cx.nursery_with(options, |n| {
                let child = n.builder().name(name).caps(rights).budget(budget).spawn(plugin)?;
                Ok::<_, mainspring::SpawnError>(child.join(cx))
            });
            match result {
                Ok(Ok(Ok(output))) => println!("{name}: {output}"),
                Err(error) if matches!(error.error, TaskError::BudgetExhausted(_)) => {
                    println!("{name}: {error}");
                }
                other => println!("{name}: {other:?}"),
            }
        }
    })?;
    Ok(())
}
