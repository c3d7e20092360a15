// What people wait for: periods of threads, calls through endpoints, and the deadlines that were missed.

const worstOf = (part, title, value) => ({
  title, value: (row) => value(row)?.[part] ?? -1,
  show: (row) => value(row) ? (part === "max_at_ns" ? instant : duration)(value(row)[part]) : "–", kind: () => "",
});

function periodTable() {
  const response = (t) => t.jobs.response_ns;
  const slack = (t) => t.jobs.slack_min_ns;
  return authorityTable("periods", [
    named("thread", (t) => t.name), counted("jobs", (t) => t.jobs.finished, "that ended, in time or late"),
    worstOf("p50", "response p50", response), worstOf("p99", "response p99", response), worstOf("max", "response max", response),
    worstOf("max_at_ns", "released at", response),
    { title: "least slack", value: (t) => slack(t) ?? 0, kind: (t) => slack(t) < 0 ? "bad" : "",
      show: (t) => slack(t) === null ? "–" : `${slack(t) < 0 ? "−" : ""}${duration(Math.abs(slack(t)))}` },
    { title: "misses", value: (t) => t.misses, kind: (t) => t.misses ? "bad" : "zero" },
    { title: "first miss at", value: (t) => t.jobs.first_miss_ns ?? -1, kind: () => "",
      show: (t) => t.jobs.first_miss_ns === null ? "–" : instant(t.jobs.first_miss_ns) },
  ], report.threads.filter((t) => t.jobs));
}

function callTable() {
  const latency = (e) => e.latency_ns;
  return authorityTable("calls", [
    named("endpoint", (e) => e.name), counted("calls", (e) => e.calls),
    { title: "replies/s", value: (e) => e.replies, show: (e) => rate(e.replies, report.duration_ns) },
    worstOf("p50", "call to reply p50", latency), worstOf("p99", "p99", latency), worstOf("max", "max", latency),
    worstOf("max_at_ns", "called at", latency),
    counted("failed", (e) => e.failures), counted("unanswered", (e) => e.pending),
  ], report.endpoints);
}

function expectationTable() {
  return authorityTable("expectations", [
    { title: "held", left: true, value: (e) => Number(e.held), show: (e) => e.held ? "yes" : "no", kind: (e) => e.held ? "" : "bad" },
    named("expected", (e) => e.what), { ...named("found", (e) => e.found), wide: true },
  ], report.expectations);
}

// A press on a miss shows its period in the timeline.
function missTable(show) {
  const rows = report.misses, time = (title, value) => ({
    title, value: (m) => value(m) ?? -1, show: (m) => value(m) === undefined ? "–" : instant(value(m)), kind: () => "",
  });
  byId("misses-section").hidden = !rows.length;
  if (!rows.length) return undefined;
  const shown = rows.length < report.misses_total ? `The first ${count(rows.length)} of ${count(report.misses_total)}. ` : "";
  byId("misses-note").textContent =
    `${shown}Press one to see its period above and what held it up.`;
  return new Table(byId("misses"), [
    counted("number", (m) => m.number), time("deadline", (m) => m.time_ns),
    named("thread", (m) => m.thread ?? "–"), named("context", (m) => m.context ?? "–"), named("how", (m) => m.kind),
    time("released", (m) => m.release_ns), time("started", (m) => m.start_ns), time("finished", (m) => m.finish_ns),
  ], rows, { onRow: (number) => show(rows[number - 1]), rowKey: (m) => m.number });
}
