//! What `#[budgeted]` costs: real loops with and without it, turn by turn.
//!
//! The `check` figure is the geometric mean of the loops' overheads. A loop that is faster with checks counts as one that is
//! as fast: the compiler happened to choose better, which makes no other loop cheaper. `gap` is the longest time between
//! two checks.

use crate::bench::{Figures, Work};
use crate::drive::median;
use crate::gauge;
use crate::loops::{gauged, metered, plain};
use crate::peers::runtime;
use mainspring::Cx;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// One loop with its input: plain, metered, gauged.
struct Loop {
    name: &'static str,
    plain: Box<dyn FnMut(&Cx) + Send>,
    metered: Box<dyn FnMut(&Cx) + Send>,
    gauged: Box<dyn FnMut(&gauge::Cx) + Send>,
}

/// The same call of three modules, each with its own copy of the input.
macro_rules! a_loop {
    ($name:literal, $input:expr, |$cx:ident, $state:ident, $module:ident| $call:expr) => {{
        let (mut for_plain, mut for_metered, mut for_gauged) = ($input, $input, $input);
        Loop {
            name: $name,
            plain: Box::new(move |$cx| {
                use plain as $module;
                let $state = &mut for_plain;
                $call;
            }),
            metered: Box::new(move |$cx| {
                use metered as $module;
                let $state = &mut for_metered;
                $call;
            }),
            gauged: Box::new(move |$cx| {
                use gauged as $module;
                let $state = &mut for_gauged;
                $call;
            }),
        }
    }};
}

fn loops() -> [Loop; 6] {
    const SIDE: usize = 96;
    let numbers = |n: usize| -> Vec<u32> {
        let mut x = 1u32;
        let step = |_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x
        };
        (0..n).map(step).collect()
    };
    let document = || {
        let items = (0..2000)
            .map(|i| format!(r#"{{"id":{i},"name":"item \"{i}\"","tags":[1,22,333],"next":{}}}"#, i + 1));
        format!("[{}] ", items.collect::<Vec<_>>().join(",")).into_bytes()
    };
    let planets = || {
        let place: Vec<[f64; 3]> = (0..5).map(|i| [f64::from(i), f64::from(i * i) * 0.5, 1.0]).collect();
        (place, vec![[0.0, 0.1, 0.0]; 5], vec![1.0, 0.1, 0.2, 0.3, 0.4])
    };
    let matrices = || {
        let filled = |scale: f64| -> Vec<f64> { (0..SIDE * SIDE).map(|i| i as f64 * scale).collect() };
        (filled(0.5), filled(0.25), vec![0.0; SIDE * SIDE])
    };
    [
        a_loop!("matrix", matrices(), |cx, state, of| of::matrix(cx, &state.0, &state.1, &mut state.2, SIDE)),
        a_loop!("hash", vec![7u8; 300_000], |cx, state, of| black_box(of::hash(cx, state))),
        a_loop!("sort", (numbers(10_000), Vec::new()), |cx, state, of| {
            state.1.clone_from(&state.0);
            of::sort(cx, &mut state.1);
        }),
        a_loop!("json", document(), |cx, state, of| black_box(of::json(cx, state, &mut 0))),
        a_loop!("sieve", vec![false; 200_000], |cx, state, of| black_box(of::sieve(cx, state))),
        a_loop!("nbody", planets(), |cx, state, of| of::bodies(
            cx,
            &mut state.0,
            &mut state.1,
            &state.2,
            5000
        )),
    ]
}

/// Measures all loops.
pub fn measure(work: &Work) -> Figures {
    let times = work.loop_times;
    let figures = runtime(1).run(move |cx| {
        let mut figures = Figures::new();
        let (mut product, mut longest) = (1.0, Duration::ZERO);
        let mut all = loops();
        for each in &mut all {
            let overhead = overhead(cx, each, times);
            product *= overhead.max(1.0);
            figures.push((each.name, (overhead - 1.0) * 100.0));
            longest = longest.max(gap(cx.yield_interval(), each));
        }
        let mean = f64::powf(product, 1.0 / all.len() as f64);
        figures.push(("", (mean - 1.0) * 100.0));
        figures.push(("gap", longest.as_secs_f64() * 1e6));
        figures
    });
    figures.expect("the task does not fail")
}

/// The time with checks divided by that without. Turn by turn, each pair a ratio, and the middle of them.
fn overhead(cx: &Cx, each: &mut Loop, times: u32) -> f64 {
    let timed = |f: &mut dyn FnMut(&Cx)| {
        let began = Instant::now();
        f(cx);
        began.elapsed().as_secs_f64()
    };
    timed(&mut each.plain);
    timed(&mut each.metered);
    let ratios = (0..times).map(|turn| {
        if turn % 2 == 0 {
            let plain = timed(&mut each.plain);
            timed(&mut each.metered) / plain
        } else {
            let metered = timed(&mut each.metered);
            metered / timed(&mut each.plain)
        }
    });
    median(ratios).expect("it was timed at least once")
}

/// The longest gap of the run that was disturbed least.
fn gap(interval: u32, each: &mut Loop) -> Duration {
    let runs = (0..10).map(|_| {
        let cx = gauge::Cx::new(interval);
        (each.gauged)(&cx);
        cx.longest()
    });
    runs.min().unwrap_or_default()
}
