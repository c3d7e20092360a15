//! The kernel: its version, its timers, and its rings.

use super::{Finding, read};
use nix::time::{ClockId, clock_getres};
use std::time::Duration;

pub(super) fn examine() -> Vec<Finding> {
    vec![version(), clock(), timers(), io_uring(), pressure()]
}

fn version() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = read("/proc/sys/kernel/version").unwrap_or_default();
    let preemption =
        ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"].into_iter().find(|model| build.contains(model));
    match preemption {
        Some(model) => Finding::good("kernel", format!("Linux {release}, {model}")),
        None => Finding::limited(
            "kernel",
            format!("Linux {release}, which does not preempt itself"),
            "boot a kernel with PREEMPT or PREEMPT_DYNAMIC if milliseconds matter",
        ),
    }
}

fn clock() -> Finding {
    const TOPIC: &str = "clock";
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default();
    match source.as_str() {
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" => {
            Finding::good(TOPIC, source)
        }
        "" => Finding::limited(TOPIC, "the clock source is not told", "mount /sys"),
        _ => Finding::limited(
            TOPIC,
            format!("{source}: reading the time takes a system call"),
            "look in the kernel's log why tsc was given up",
        ),
    }
}

fn timers() -> Finding {
    const TOPIC: &str = "timers";
    match clock_getres(ClockId::CLOCK_MONOTONIC).map(Duration::from) {
        Ok(resolution) if resolution <= Duration::from_micros(1) => {
            Finding::good(TOPIC, "high resolution: a timer fires when it is due, not at the next tick")
        }
        Ok(resolution) => Finding::limited(
            TOPIC,
            format!("a timer fires at the next tick of {resolution:?}"),
            "boot a kernel with high-resolution timers, and without `highres=off`",
        ),
        Err(cause) => Finding::limited(TOPIC, cause.desc(), "the clock cannot be asked"),
    }
}

/// Tried: containers often filter the system call without changing the setting.
fn io_uring() -> Finding {
    const TOPIC: &str = "io-uring";
    match io_uring::IoUring::new(2) {
        Ok(_) => Finding::good(TOPIC, "a ring can be made (tried)"),
        Err(cause) => {
            let disabled = read("/proc/sys/kernel/io_uring_disabled").is_some_and(|value| value != "0");
            let advice = if disabled {
                "`sysctl kernel.io_uring_disabled=0`, or 1 and membership in kernel.io_uring_group"
            } else {
                "let the sandbox's seccomp filter pass io_uring_setup; the runtime works without it"
            };
            Finding::missing(TOPIC, format!("no ring can be made: {cause}"), advice)
        }
    }
}

fn pressure() -> Finding {
    match read("/proc/pressure/cpu") {
        Some(_) => Finding::good("pressure", "the kernel counts how long a tree waits for a CPU"),
        None => Finding::limited(
            "pressure",
            "how long a tree waits for a CPU is not counted",
            "boot with `psi=1`",
        ),
    }
}
