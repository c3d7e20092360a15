// The tables of granted CPU time, each only if the run had any.

function authorityTable(place, columns, rows) {
  byId(`${place}-section`).hidden = !rows.length;
  return rows.length ? new Table(byId(place), columns, rows) : undefined;
}

const named = (title, value) => ({ title, left: true, value, show: (row) => String(value(row)) });
const timed = (title, value, about = "") => ({ title, about, value, show: (row) => duration(value(row)), kind: (row) => value(row) ? "" : "zero" });
const counted = (title, value, about = "") => ({ title, about, value });

function contextTable() {
  const term = (title, value) => ({ title, value, show: (c) => instant(value(c)) });
  const failed = (title, value, show) => ({ title, value, show: (c) => show(value(c)), kind: (c) => value(c) ? "bad" : "zero" });
  return authorityTable("contexts", [
    named("context", (c) => c.name),
    { title: "cpu", value: (c) => c.cpu ?? -1, show: (c) => c.cpu === null ? "–" : String(c.cpu), kind: () => "" },
    term("budget", (c) => c.budget_ns), term("period", (c) => c.period_ns), term("deadline", (c) => c.deadline_ns),
    counted("criticality", (c) => c.criticality), counted("priority", (c) => c.priority),
    timed("granted", (c) => c.granted_ns, "all that its refills made available"), timed("used", (c) => c.used_ns),
    { title: "used, 0 to 100 % of granted", left: true, value: (c) => c.used_ns / Math.max(c.granted_ns, 1), show: (c) => meter(c.used_ns, undefined, c.granted_ns) },
    timed("donated", (c) => c.donated_ns, "the part that others used while they served calls"),
    counted("depleted", (c) => c.depletions),
    failed("misses", (c) => c.misses, count), failed("overshoot max", (c) => c.overshoot_max_ns, duration),
    counted("generation", (c) => c.generation), named("state", (c) => c.state),
  ], report.contexts);
}

function islandTable() {
  return authorityTable("islands", [
    named("island", (i) => i.name),
    { title: "admitted", left: true, value: (i) => Number(i.admitted), show: (i) => i.admitted ? "yes" : "no", kind: (i) => i.admitted ? "" : "bad" },
    { ...named("reason", (i) => i.reason), wide: true },
  ], report.islands);
}

function leaseTable() {
  const exits = (lease) => Object.entries(lease.exits).map(([reason, n]) => `${reason} ${count(n)}`).join(", ");
  return authorityTable("leases", [
    named("lease", (l) => l.name), named("cpus", (l) => l.cpus.join(", ")), named("thread", (l) => l.thread),
    named("state", (l) => l.state), timed("tickless", (l) => l.tickless_ns), counted("suppressed", (l) => l.ticks_suppressed, "ticks"),
    counted("activated", (l) => l.activations), { ...named("exits", exits), wide: true },
  ], report.leases);
}

function ringTable() {
  return authorityTable("rings", [
    named("ring", (r) => r.name), named("mode", (r) => r.mode),
    counted("submitted", (r) => r.submitted), counted("completed", (r) => r.completed), counted("dropped", (r) => r.dropped),
    counted("late", (r) => r.late), counted("overflow", (r) => r.overflow), counted("wakeups", (r) => r.wakeups),
    counted("sleeps", (r) => r.sleeps), timed("spun", (r) => r.spins_ns), timed("busy", (r) => r.busy_ns),
  ], report.rings);
}
