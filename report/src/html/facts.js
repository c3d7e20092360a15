// What the page says in words and tables: the facts of the run, what deserves attention, and every row.

function showFacts() {
  const { config } = report;
  byId("title").append(config.workload || "Mainspring", element("span", {}, ` on ${report.machine}`));
  const facts = [
    ["policy", config.policy], ["quantum", instant(config.quantum_ns)], ["tick", instant(config.tick_ns)],
    ["duration", instant(report.duration_ns)], ["CPUs", count(report.totals.cpus)], ["threads", count(report.totals.threads)],
    ["decisions", count(report.decisions)],
    // A record does not have how long its run took.
    ...(report.wall_ns ? [["decided in", duration(report.wall_ns)], ["decisions/s", rate(report.decisions, report.wall_ns)]] : []),
    ["seed", report.seed], ["digest", report.digest, "mono"],
  ];
  for (const [name, value, kind] of facts) {
    byId("facts").append(element("div", {}, element("dt", {}, name), element("dd", { class: kind || "" }, value)));
  }
}

function note(text, kind = "") {
  byId("notes").append(element("li", { class: kind }, text));
}

function showNotes() {
  const list = (title, kind, size, show, all = report.threads) => {
    const found = all.filter((t) => size(t) > 0).sort((a, b) => size(b) - size(a));
    if (!found.length) return;
    const named = found.slice(0, 4).map((t) => `${t.name} ${show(t)}`).join(", ");
    note(`${title}: ${named}${found.length > 4 ? `, and ${count(found.length - 4)} more` : ""}`, kind);
  };
  const quantum = report.config.quantum_ns;
  for (const notice of report.notices) note(notice);
  list("Missed deadlines of contexts", "bad", (c) => c.misses, (c) => count(c.misses), report.contexts);
  list("Used beyond the budget", "", (c) => c.overshoot_max_ns, (c) => duration(c.overshoot_max_ns), report.contexts);
  list("Missed periods", "bad", (t) => t.misses, (t) => count(t.misses));
  list("Refused steps", "bad", (t) => t.refusals, (t) => count(t.refusals));
  const refused = report.threads.filter((t) => t.first_refusal).sort((a, b) => a.first_refusal.time_ns - b.first_refusal.time_ns)[0];
  if (refused) note(`First refused: ${refused.name} at ${instant(refused.first_refusal.time_ns)}: ${refused.first_refusal.reason}`, "bad");
  list(`|lag| beyond one quantum (${instant(quantum)})`, "", (t) => quantum && t.lag_max_ns > quantum ? t.lag_max_ns : 0, (t) => duration(t.lag_max_ns));
  const { intervals: total, states, events, threads } = report.totals;
  if (total === null) note("The run kept no schedule, so there is no timeline.");
  else if (total === 0) note("Nothing ran, so the timeline is empty.");
  if (report.grain_ns) {
    note(`This page is coarser than the run: of ${count(total)} intervals, those shorter than ${duration(report.grain_ns)} that follow each other on a CPU are drawn as one, as tall as the CPU was busy.`);
  }
  if (threads > report.thread_rows && total) {
    note(`The rows by thread show ${count(report.thread_rows)} of ${count(threads)} threads: those with the most missed deadlines, those that waited longest, and some of each table. The rows by CPU and the sums cover all.`);
  }
  if (report.state_grain_ns) {
    note(`In the rows by thread, what took less than ${duration(report.state_grain_ns)} is drawn together with what follows it.`);
  }
  if (total && states === null) note("The run does not tell what threads waited for, so rows by thread show only when they ran.");
  if (report.events.length < events) note(`The timeline holds ${count(report.events.length)} of ${count(events)} events: the first ones, misses before others.`);
}

function threadTable() {
  const whole = Math.max(report.duration_ns, 1);
  const scale = report.threads.reduce((most, t) => Math.max(most, t.runtime_ns, t.entitled_ns), 0);
  const time = (title, value, extra) => ({ title, value, show: (t) => duration(value(t)), kind: (t) => value(t) ? "" : "zero", ...extra });
  const latency = (name) => ({
    title: `wake ${name}`, about: "from wakeup to running", value: (t) => t.wakeups ? t.wake_latency_ns[name] : -1,
    show: (t) => t.wakeups ? duration(t.wake_latency_ns[name]) : "–", kind: (t) => t.wakeups ? "" : "zero",
  });
  const most = percent(scale / whole);
  byId("threads-note").textContent = report.threads.length < report.totals.threads
    ? `${count(report.threads.length)} of ${count(report.totals.threads)} threads: the most missed deadlines, the longest waits, and some of each table.` : "";
  const columns = [
    { title: "thread", left: true, value: (t) => t.name, show: (t) => [swatch(t.number), t.name] },
    { title: "weight", value: (t) => t.weight },
    { title: "share %", about: "of one CPU", value: (t) => t.runtime_ns, show: (t) => percent(t.runtime_ns / whole) },
    { title: "owed %", about: "of one CPU", value: (t) => t.entitled_ns, show: (t) => percent(t.entitled_ns / whole) },
    { title: `share against owed, 0 to ${most} %`, left: true, about: "the mark is what was owed; sorts by the difference",
      value: (t) => t.runtime_ns - t.entitled_ns, show: (t) => meter(t.runtime_ns, t.entitled_ns, scale) },
    time("ready", (t) => t.ready_ns), time("blocked", (t) => t.blocked_ns),
    latency("p50"), latency("p99"), latency("max"),
    time("|lag|", (t) => t.lag_max_ns, { kind: (t) => report.config.quantum_ns && t.lag_max_ns > report.config.quantum_ns ? "warn" : "" }),
    { title: "preempt", value: (t) => t.preemptions }, { title: "migrate", value: (t) => t.migrations },
    { title: "misses", value: (t) => t.misses, kind: (t) => t.misses ? "bad" : "zero" },
  ];
  const rows = report.threads.map((thread, number) => ({ ...thread, number }));
  return new Table(byId("threads"), columns, rows, { onRow: toggle, rowKey: (t) => t.number });
}

// All the time of each CPU, by what it went to: what threads did, each kind of overhead, and idle time. They add up to the run.
function cpuTable() {
  const load = (cpu) => cpu.busy_ns / Math.max(cpu.busy_ns + cpu.idle_ns, 1);
  const spent = (cpu) => Object.values(cpu.overhead_ns).reduce((sum, ns) => sum + ns, 0);
  const kinds = ["switch", "migration", "interrupt", "tick", "network", "stall"].filter((kind) => report.cpus.some((cpu) => cpu.overhead_ns[kind]));
  return new Table(byId("cpus"), [
    { title: "cpu", left: true, value: (c) => c.id, show: (c) => String(c.id), kind: () => "" },
    { title: "busy %", value: load, show: (c) => percent(load(c)) },
    { title: "load, 0 to 100 %", left: true, value: load, show: (c) => meter(load(c), undefined, 1) },
    timed("work", (c) => c.busy_ns - spent(c), "time in which a thread got on"),
    ...kinds.map((kind) => timed(kind, (c) => c.overhead_ns[kind] || 0, "time in which no thread got on")),
    timed("idle", (c) => c.idle_ns),
    { title: "ticks", value: (c) => c.ticks }, { title: "suppressed", value: (c) => c.ticks_suppressed },
    { title: "reschedules", value: (c) => c.reschedules }, { title: "steals", value: (c) => c.steals },
    { title: "timer interrupts", value: (c) => c.timer_interrupts }, { title: "queue max", value: (c) => c.queue_depth_max },
  ], report.cpus);
}

// Counters that are kept per CPU are summed; what stands behind the comma of a key is the label.
function telemetryTable() {
  const rows = Object.entries(report.telemetry).map(([name, value]) => {
    if (typeof value === "number") return { name, total: value, detail: "" };
    const labels = new Map();
    let total = 0;
    for (const [key, n] of Object.entries(value)) {
      const label = key.includes(",") ? key.slice(key.indexOf(",") + 1) : "";
      labels.set(label, (labels.get(label) || 0) + n);
      total += n;
    }
    labels.delete("");
    return { name, total, detail: [...labels].filter(([, n]) => n > 0).map(([label, n]) => `${label} ${count(n)}`).join(", ") };
  });
  return new Table(byId("telemetry"), [
    { title: "counter", left: true, value: (r) => r.name, show: (r) => r.name },
    { title: "value", value: (r) => r.total },
    { title: "by label", left: true, wide: true, value: (r) => r.detail, show: (r) => r.detail },
  ], rows.filter((row) => row.total > 0));
}
