//! scratch
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
use mainspring::*;
fn cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}
fn main() {
    let what = std::env::args().nth(1).unwrap();
    let rt = Config::new(Profile::Cluster)
        .workers(1)
        .root_caps(Caps::root(u32::MAX, Budget::MAX, Budget::MAX, 100, 100))
        .build()
        .unwrap();
    for _ in 0..3 {
        let t = cpu();
        match &*what {
            "yield" => {
                let per = 100_000u64;
                rt.run(|cx| {
                    cx.nursery(|n| {
                        for _ in 0..100 {
                            n.builder()
                                .budget(Budget { ops: 1000, ..Budget::ZERO })
                                .spawn(move |cx| {
                                    for _ in 0..per {
                                        cx.yield_now()
                                    }
                                })
                                .unwrap();
                        }
                    })
                    .unwrap()
                })
                .unwrap();
                println!("yield {:.2} ns cpu", (cpu() - t) / (100 * per) as f64);
            }
            "spawn" => {
                rt.run(|cx| {
                    cx.nursery(|n| {
                        for _ in 0..1_000_000 {
                            n.builder().budget(Budget { ops: 100, ..Budget::ZERO }).spawn(|_| ()).unwrap();
                        }
                    })
                    .unwrap()
                })
                .unwrap();
                println!("spawn {:.2} ns cpu", (cpu() - t) / 1e6);
            }
            _ => {}
        }
    }
}
