"""The trace, decoded with the published schema of Perfetto (the `perfetto` package) and compared with the JSON report.

What Perfetto's own tables would hold is computed here from the scheduler events alone: who ran where and when, and how long each
thread was runnable and asleep. `make test-trace` runs this.
"""

import collections
import json
import subprocess
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

RUNNABLE = {0, 256}


def check(mainspring, workload, out):
    command = [mainspring, "run", workload, "--quiet", "--report", "json", "--schedule", "--trace", out]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    trace = schema.Trace()
    with open(out, "rb") as file:
        trace.ParseFromString(file.read())

    events = []
    for packet in trace.packet:
        for event in packet.ftrace_events.event:
            events.append((event.timestamp, event.HasField("sched_switch"), packet.ftrace_events.cpu, event))
    events.sort(key=lambda event: event[:3])
    names = {thread.tid: thread.name for packet in trace.packet for thread in packet.process_tree.threads}

    ran = collections.Counter()
    runnable = collections.Counter()
    state = {}  # Of each thread: since when, and whether it is runnable.
    running = {}
    for time, is_switch, cpu, event in events:
        if not is_switch:
            waking = event.sched_waking
            assert names[waking.pid] == waking.comm, waking
            state[waking.pid] = (time, True)
            continue
        switch = event.sched_switch
        assert running.get(cpu, (0, 0))[0] == switch.prev_pid, f"CPU {cpu} at {time}"
        if switch.prev_pid:
            ran[switch.prev_comm] += time - running[cpu][1]
            state[switch.prev_pid] = (time, switch.prev_state in RUNNABLE)
        if switch.next_pid:
            assert switch.next_pid in state and state[switch.next_pid][1], f"{switch.next_comm} runs at {time}, not awake"
            runnable[switch.next_comm] += time - state.pop(switch.next_pid)[0]
        running[cpu] = (switch.next_pid, time)

    for thread in report["threads"]:
        assert ran[thread["name"]] == thread["runtime_ns"], f"{workload}: {thread['name']} ran {ran[thread['name']]}"
    ready = collections.Counter()
    begun = {(entry["thread"], entry["start_ns"]) for entry in report["states"] + report["schedule"]}
    for entry in report["states"]:
        # A thread that was ended while it was ready has not run, so no event closes that.
        if entry["state"] in ("ready", "held") and (entry["thread"], entry["end_ns"]) in begun:
            ready[entry["thread"]] += entry["end_ns"] - entry["start_ns"]
    for name, time in ready.items():
        assert runnable[name] == time, f"{workload}: {name} was runnable {runnable[name]}, not {time}"

    flows = collections.Counter()
    for packet in trace.packet:
        flows.update(packet.track_event.flow_ids)
        flows.update(packet.track_event.terminating_flow_ids)
    assert all(count == 2 for count in flows.values()), "a flow has two ends"
    misses = sum(packet.track_event.name == "miss" for packet in trace.packet)
    assert misses == len(report["misses"]), f"{workload}: {misses} misses of {len(report['misses'])}"
    switches = sum(event[1] for event in events)
    print(f"{workload}: {switches} switches, {len(events) - switches} wakings, {len(flows)} flows, {misses} misses")


if __name__ == "__main__":
    for workload in sys.argv[3:]:
        check(sys.argv[1], workload, sys.argv[2])
