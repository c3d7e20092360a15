#!/usr/bin/env bash
# Runs workloads on the kernel and has the flight record of each judged by checkers that share no code with the scheduler
# (`record/src/check`): every event of every CPU, with a model and an exact schedule of their own. Each run must also have had what it
# is here for. `make run-records` runs it.
#
# usage: records.sh MAINSPRING    (MAINSPRING_KERNEL_DIR says where the kernel is)
set -euo pipefail

mainspring=$1
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT

# The sum of a number that the report has once or several times.
sum() {
    grep -o "\"$1\": *[0-9]*" "$report" | awk -F: '{ sum += $2 } END { print sum + 0 }'
}

# judged NAME [WHAT LEAST]: runs a workload under the eyes of all checkers, and replays its record. What it reports is in $report. If it
# is to have had so much of something, it is run again until it has: on a busy host it may have had less. Each run is judged.
judged() {
    local name=$1 what=${2:-} least=${3:-0} round
    report="$out/$name.json"
    for round in 1 2 3 4 5; do
        if ! "$mainspring" run "workloads/$name.toml" --on qemu --verify --quiet --report json --record "$out/$name.msr" >"$report"; then
            echo "records: $name FAILED" >&2
            exit 1
        fi
        "$mainspring" replay "$out/$name.msr" --quiet >"$out/replayed"
        if [ -z "$what" ] || [ "$(sum "$what")" -ge "$least" ]; then
            echo "records: $name judged=ok"
            return
        fi
    done
    echo "records: $name had $(sum "$what") $what in its last of $round runs, not $least: it shows nothing" >&2
    exit 1
}

# Threads of many processes start, wait, call, are stolen and end on four CPUs: each is in one place at a time and leaves one before it
# comes to another, with its lag and its virtual runtime; each stretch of each CPU is charged to one thread or idle; tags are computed
# anew at each enqueue, queues stand in their order, and the choice of each CPU is the exact schedule's.
#= ARCH:inv.one-owner ARCH:inv.queue-once EVO:S1.single-owner ARCH:inv.migration ARCH:migr.vruntime ARCH:steal.position
#= EVO:S2.account EVO:S2.coverage ARCH:queue.order ARCH:vfinish.derive EVO:S3.eevdf
judged many-processes steals 1

# The same with the simpler policy.
#= EVO:S3.eevdf ARCH:queue.order
judged wfq-six-flows preemptions 1

# Threads that have used their contexts up stand by, and hide nobody.
#= ARCH:queue.scan ARCH:retry-later
judged inversion-off depletions 1

# Servers come to the contexts of their endpoints from other CPUs, and give them back with each reply.
judged passive-servers used_ns 1

# Sleeps, parks, joins and spawns queue a thread on its CPU; only a call hands the CPU over.
#= ARCH:wake.policy
judged spawn-join
if [ "$(sum handoffs)" -ne 0 ]; then
    echo "records: a wake that is no call has handed the CPU over" >&2
    exit 1
fi
judged handoff-pingpong handoffs 1

# An idle CPU does without its tick, with a one-shot for what is due next and after 100 ms at the latest; a CPU with a thread ticks.
#= TICK:L1.states ARCH:tickless.bound
judged idle ticks_suppressed 10

# A busy CPU without a tick has a one-shot on its way after every event.
#= ARCH:nohz.armed-timer
judged sqpoll-lease activations 1

# Hogs beside threads that sleep, and siblings of one process; processes and handoffs are above.
#= EVO:gate.fairness
for load in interactive-vs-hogs sleepers siblings; do
    judged "$load" preemptions 1
done
echo "records: all=ok"
