// The page of a run that goes on: asks for a frame twice a second and shows it. Names come from files: they are only ever text.
"use strict";

const EVERY_MS = 500, HISTORY = 240;
const $ = (id) => document.getElementById(id);

const nanos = (ns) => {
  if (ns === null || ns === undefined) return "–";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toPrecision(4))} ${unit}`;
  }
  return `${ns} ns`;
};
const percent = (part) => `${(100 * part).toFixed(1)} %`;
const clamp = (part) => Math.min(1, Math.max(0, part));

// The newest frame, and one of about a second ago, from which use at present is told.
let frame = null, earlier = [], history = [], paused = false, failures = 0;

function meter(part, label, bad) {
  const track = document.createElement("div"), fill = document.createElement("i");
  track.className = bad ? "track bad" : "track";
  track.setAttribute("role", "meter");
  track.setAttribute("aria-label", label);
  track.setAttribute("aria-valuemin", "0");
  track.setAttribute("aria-valuemax", "100");
  track.setAttribute("aria-valuenow", String(Math.round(100 * part)));
  fill.style.width = `${100 * clamp(part)}%`;
  track.append(fill);
  return track;
}

// A table from its columns (title, class) and rows of text or nodes. A table without rows hides its section.
function table(id, columns, rows) {
  const section = $(id).closest("section"), head = document.createElement("tr");
  section.hidden = rows.length === 0 && id !== "threads";
  for (const [title, kind] of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.className = kind ?? "";
    cell.textContent = title;
    head.append(cell);
  }
  const lines = rows.map((row) => {
    const line = document.createElement("tr");
    row.forEach((content, at) => {
      const cell = document.createElement("td");
      cell.className = columns[at][1] ?? "";
      if (content instanceof Node) cell.append(content);
      else {
        cell.textContent = content;
        if (columns[at][1] === "name") cell.title = content;
        if (["runs", "ready", "throttled"].includes(content)) cell.classList.add(content);
      }
      line.append(cell);
    });
    return line;
  });
  $(id).replaceChildren(head, ...lines);
}

function draw() {
  const before = earlier[0] ?? { time_ns: 0, cpus: [], threads: [] };
  const passed = Math.max(1, frame.time_ns - before.time_ns);
  const used = (now, then) => clamp(((now ?? 0) - (then ?? 0)) / passed);
  $("workload").textContent = frame.workload || "A run";
  $("machine").textContent = frame.machine ? `on ${frame.machine}` : "";
  document.title = `${frame.workload || "Mainspring"}, live`;
  const whole = frame.end_ns ? clamp(frame.time_ns / frame.end_ns) : 0;
  $("progress").firstElementChild.style.width = `${100 * whole}%`;
  $("progress").setAttribute("aria-valuenow", String(Math.round(100 * whole)));

  const of = new Map(before.cpus.map((cpu) => [cpu.id, cpu]));
  const loads = frame.cpus.map((cpu) => used(cpu.busy_ns, of.get(cpu.id)?.busy_ns));
  table("cpus", [["CPU"], ["in use", "meter"], ["%", "number"], ["ready", "number"], ["stolen", "number"], ["runs", "name"]],
    frame.cpus.map((cpu, at) => [String(cpu.id), meter(loads[at], `CPU ${cpu.id} in use`), (100 * loads[at]).toFixed(1), String(cpu.ready), String(cpu.steals), cpu.running ?? "idle"]));

  const mean = loads.length ? loads.reduce((sum, load) => sum + load, 0) / loads.length : 0;
  history.push([frame.time_ns, mean]);
  history = history.slice(-HISTORY);
  const first = history[0][0], span = Math.max(1, history.at(-1)[0] - first);
  $("load").firstElementChild.setAttribute("points", history.map(([at, load]) => `${(600 * (at - first)) / span},${58 - 56 * load}`).join(" "));
  const spoken = `All CPUs together: ${percent(mean)} in use; the line goes from ${nanos(first)} to ${nanos(frame.time_ns)}, from none to all`;
  $("load-scale").textContent = spoken;

  table("contexts", [["context", "name"], ["budget left", "meter"], ["left", "number"], ["of", "number"], ["per", "number"], ["used up", "number"], ["held by", "name"]],
    frame.contexts.map((one) => [one.name, meter(one.left_ns / Math.max(1, one.budget_ns), `Budget left of ${one.name}`, one.throttled),
      nanos(one.left_ns), nanos(one.budget_ns), nanos(one.period_ns), `${one.depletions} ×`, one.holder]));
  table("queues", [["endpoint", "name"], ["callers waiting", "number"], ["servers idle", "number"]],
    frame.queues.map((one) => [one.name, String(one.waiting), String(one.servers_idle)]));
  table("leases", [["lease", "name"], ["CPUs"], ["for", "name"], ["state"]],
    frame.leases.map((one) => [one.name, one.cpus.join(", "), one.thread, one.state]));

  const then = new Map(before.threads.map((thread) => [thread.name, thread]));
  const words = $("filter").value.toLowerCase();
  const threads = frame.threads.filter((thread) => thread.name.toLowerCase().includes(words))
    .map((thread) => [used(thread.runtime_ns, then.get(thread.name)?.runtime_ns), thread])
    .sort(([a, one], [b, other]) => b - a || (other.runtime_ns ?? 0) - (one.runtime_ns ?? 0));
  table("threads", [["thread", "name"], ["state"], ["CPU", "number"], ["in use", "number"], ["CPU time", "number"], ["longest wait to run", "number"]],
    threads.map(([share, thread]) => [thread.name, thread.state, thread.cpu === null ? "–" : String(thread.cpu), percent(share), nanos(thread.runtime_ns), nanos(thread.wake_max_ns)]));
  const beyond = frame.threads_total - frame.threads.length;
  $("beyond").textContent = beyond > 0 ? `and ${beyond} more, which are not listed` : "";
}

function say(text, bad = false) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = bad ? "bad" : "";
}

function told() {
  const time = frame.end_ns ? `${nanos(frame.time_ns)} of ${nanos(frame.end_ns)}` : nanos(frame.time_ns);
  const misses = frame.misses === 0 ? "no deadline missed" : frame.misses === 1 ? "1 deadline missed" : `${frame.misses} deadlines missed`;
  const threads = frame.threads_total === 1 ? "1 thread" : `${frame.threads_total} threads`;
  return `${time}, ${threads}, ${misses}`;
}

async function look() {
  if (!paused) {
    try {
      const answer = await fetch("frame.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const next = await answer.json();
      failures = 0;
      if (frame === null || next.time_ns > frame.time_ns) {
        if (frame !== null) earlier.push(frame);
        if (earlier.length > 1) earlier = earlier.slice(-2);
        frame = next;
        draw();
        say(told(), frame.misses > 0);
      }
    } catch {
      // One failure may be a hiccup of this host.
      if (++failures >= 2) {
        say(frame === null ? "The run cannot be reached." : `The run has ended. Last seen: ${told()}.`);
        document.body.dataset.ended = "1";
        if (frame !== null) return;
      }
    }
  }
  setTimeout(look, EVERY_MS);
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
});
$("filter").addEventListener("input", () => frame !== null && draw());
look();
