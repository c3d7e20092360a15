// The page: what is highlighted, the legend, the tooltip, and the keys that move all of it.

const state = { selected: -1, query: "" };
const order = report.threads.map((_, i) => i).sort((a, b) => report.threads[b].runtime_ns - report.threads[a].runtime_ns);
for (let i = report.threads.length; i < threadCount; i++) order.push(i);
let base = threadColours();

function swatch(thread) {
  const made = element("i");
  made.style.background = css(base[thread]);
  return made;
}

// How many threads share a name but for the instance number.
const instances = new Map();
for (const name of report.names) instances.set(stem(name), (instances.get(stem(name)) || 0) + 1);

function threadChip(thread) {
  const chip = element("button", { "aria-pressed": String(thread === state.selected) }, swatch(thread), report.names[thread]);
  chip.addEventListener("click", () => toggle(thread));
  return chip;
}

function groupChip(group, thread) {
  const chip = element("button", { title: "Filter to these" }, swatch(thread), `${group}.* (×${count(instances.get(group))})`);
  chip.addEventListener("click", () => {
    byId("search").value = `${group}.`;
    filter(`${group}.`);
  });
  return chip;
}

// The busiest threads that match the filter, large groups as one unless filtered; a filter finds the others.
function showLegend() {
  const LISTED = 60, FOLD_ABOVE = 12, match = matches(), folded = new Set();
  const found = order.filter((thread) => {
    const group = stem(report.names[thread]);
    if (match || instances.get(group) <= FOLD_ABOVE || thread === state.selected) return !match || match[thread];
    return !folded.has(group) && folded.add(group);
  });
  const chips = found.slice(0, LISTED).map((thread) => {
    const group = stem(report.names[thread]);
    return !match && folded.has(group) && thread !== state.selected ? groupChip(group, thread) : threadChip(thread);
  });
  if (found.length > LISTED) chips.push(element("span", { class: "quiet" }, `and ${count(found.length - LISTED)} more; filter to find them`));
  if (!found.length && threadCount) chips.push(element("span", { class: "quiet" }, "No thread matches."));
  byId("legend").replaceChildren(...chips);
}

let matched = { query: "", threads: null };

// Which threads the filter keeps; null if it is empty. The same object as long as the query is the same.
function matches() {
  if (matched.query !== state.query) {
    const wanted = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    const keeps = (name) => wanted.some((word) => name.toLowerCase().includes(word));
    matched = { query: state.query, threads: wanted.length ? Uint8Array.from(report.names, (name) => keeps(name) ? 1 : 0) : null };
  }
  return matched.threads;
}

function paint() {
  const match = matches(), lane = variable("--lane"), ink = variable("--ink"), quiet = css(variable("--quiet")), dark = darkScheme.matches;
  const lit = (thread) => state.selected >= 0 ? thread === state.selected : !match || match[thread] === 1;
  const fill = new Uint32Array(threadCount), edge = new Uint32Array(threadCount);
  for (let thread = 0; thread < threadCount; thread++) {
    const colour = lit(thread) ? base[thread] : mix(base[thread], lane, 0.8);
    fill[thread] = packed(colour);
    edge[thread] = packed(mix(colour, dark ? [0, 0, 0] : lane, dark ? 0.35 : 0.55));
  }
  timeline.paint({
    base, fill, edge, lane: packed(lane), panel: packed(variable("--panel")),
    ink: css(ink), quiet, line: css(variable("--line")), accent: css(variable("--accent")),
    debt: css(variable("--debt")), load: css(mix(variable("--accent"), variable("--panel"), 0.45)),
    grid: dark ? "rgb(255 255 255 / .07)" : "rgb(0 0 0 / .07)", shade: dark ? "rgb(0 0 0 / .55)" : "rgb(120 120 115 / .2)",
    tones: Object.fromEntries(TONES.map((tone) => [tone, css(variable(`--${tone}`))])), outline: css(variable("--panel")),
    text: (thread) => lit(thread) ? "rgb(0 0 0 / .82)" : quiet,
  }, state.selected, match);
}

function select(thread) {
  state.selected = thread;
  timeline.cursor = timeline.cursor !== undefined && intervals.thread[timeline.cursor] === thread ? timeline.cursor : undefined;
  tables.threads.select(thread);
  showLegend();
  paint();
}

function toggle(thread) {
  select(thread === state.selected ? -1 : thread);
}

function filter(query) {
  state.query = query.trim();
  const match = matches();
  tables.threads.filter(match ? (thread) => match[thread.number] : null);
  showLegend();
  paint();
}

function rows(pairs) {
  return element("dl", {}, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// One event in full, or several in a line each.
function describeEvents(found) {
  const LISTED = 8, events = found.events.map((i) => report.events[i]);
  if (events.length === 1) return [element("b", {}, events[0].kind), rows(eventFacts(events[0]))];
  const about = (event) => [event.context || event.lease || event.ring || event.thread, event.to && `to ${event.to}`, event.reason].filter(Boolean).join(", ");
  const listed = events.slice(0, LISTED).map((event) => [event.kind, `${about(event)} at ${instant(event.time_ns)}`]);
  if (events.length > LISTED) listed.push(["and", `${count(events.length - LISTED)} more`]);
  return [element("b", {}, `${count(events.length)} events here`), rows(listed)];
}

function describe(found) {
  if (found.events) return describeEvents(found);
  if (found.interval === undefined) {
    const parts = found.parts.slice(0, 5).map(([thread, ns]) => [report.names[thread], `${percent(ns / found.scale)} %`]);
    return [element("b", {}, `${found.lane}: ${count(found.count)} intervals here`), rows([["at", duration(found.left)], ...parts])];
  }
  const i = found.interval, thread = intervals.thread[i];
  return [
    element("b", {}, swatch(thread), report.names[thread]),
    rows([
      ["CPU", String(intervals.cpu[i])], ["from", instant(intervals.start[i])], ["to", instant(intervals.end[i])],
      ["length", instant(intervals.end[i] - intervals.start[i])], ["then", report.reasons[intervals.reason[i]] || "?"],
    ]),
  ];
}

function showTip(found, x, y) {
  const tip = byId("tip");
  tip.hidden = !found;
  if (!found) return;
  tip.replaceChildren(...describe(found));
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
  const top = y + 18 + height > innerHeight ? y - height - 12 : y + 18;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

// The next or previous interval of the highlighted thread, from the cursor or else from the middle.
function step(direction) {
  if (state.selected < 0 || !intervals.length) return;
  timeline.modes.thread = timeline.modes.thread || makeLanes("thread");
  const { lanes } = timeline.modes.thread;
  const first = lanes.first[state.selected], last = lanes.first[state.selected + 1];
  if (first === last) return;
  const from = timeline.cursor === undefined ? (timeline.from + timeline.to) / 2 : intervals.start[timeline.cursor];
  let at = firstStartingAt(lanes, first, last, from);
  if (direction < 0) at--;
  else if (timeline.cursor !== undefined) at++;
  const i = lanes.order[Math.min(Math.max(at, first), last - 1)];
  timeline.reveal(i);
  byId("said").textContent = `${report.names[intervals.thread[i]]} on CPU ${intervals.cpu[i]}, from ${instant(intervals.start[i])} for ${instant(intervals.end[i] - intervals.start[i])}, then ${report.reasons[intervals.reason[i]]}`;
  requestAnimationFrame(() => {
    const box = timeline.canvas.getBoundingClientRect();
    const x = box.left + timeline.gutter + (intervals.end[i] - timeline.from) / timeline.scale;
    showTip({ interval: i }, Math.min(x, box.right - 260), box.top + timeline.axis + 8);
  });
}

function setMode(mode) {
  byId("by-cpu").setAttribute("aria-pressed", String(mode === "cpu"));
  byId("by-thread").setAttribute("aria-pressed", String(mode === "thread"));
  timeline.scroller.scrollTop = 0;
  timeline.setMode(mode);
}

const keys = {
  "+": () => timeline.zoom(0.6), "=": () => timeline.zoom(0.6), "-": () => timeline.zoom(1 / 0.6), "_": () => timeline.zoom(1 / 0.6),
  ArrowLeft: (event) => timeline.pan(event.shiftKey ? -1 : -0.15), ArrowRight: (event) => timeline.pan(event.shiftKey ? 1 : 0.15),
  f: () => timeline.fit(), n: () => step(1), p: () => step(-1),
  t: () => setMode(timeline.mode === "cpu" ? "thread" : "cpu"),
  "/": () => byId("search").focus(),
  Escape: () => {
    byId("help").open = false;
    showTip();
    select(-1);
  },
};
// Only with the timeline in focus: elsewhere they scroll the page.
const laneKeys = {
  ArrowUp: () => timeline.scroller.scrollBy(0, -timeline.laneHeight), ArrowDown: () => timeline.scroller.scrollBy(0, timeline.laneHeight),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === byId("search")) {
    if (event.key === "Escape") {
      byId("search").value = "";
      filter("");
      byId("search").blur();
    }
    return;
  }
  const action = keys[event.key] || (event.target === timeline.canvas && laneKeys[event.key]);
  if (!action) return;
  event.preventDefault();
  action(event);
}

function wire() {
  byId("by-cpu").addEventListener("click", () => setMode("cpu"));
  byId("by-thread").addEventListener("click", () => setMode("thread"));
  byId("zoom-in").addEventListener("click", () => timeline.zoom(0.6));
  byId("zoom-out").addEventListener("click", () => timeline.zoom(1 / 0.6));
  byId("fit").addEventListener("click", () => timeline.fit());
  byId("search").addEventListener("input", (event) => filter(event.target.value));
  addEventListener("keydown", onKey);
  darkScheme.addEventListener("change", () => {
    base = threadColours();
    tables.threads.fill();
    showLegend();
    paint();
  });
}

showFacts();
showNotes();
const tables = {
  threads: threadTable(), cpus: cpuTable(), contexts: contextTable(), islands: islandTable(), leases: leaseTable(),
  rings: ringTable(), telemetry: telemetryTable(), periods: periodTable(), calls: callTable(), expectations: expectationTable(),
  misses: missTable((miss) => {
    const end = Math.max(miss.time_ns, miss.finish_ns ?? 0), margin = (end - miss.release_ns) / 4;
    if (miss.thread !== undefined && threadNumber.has(miss.thread)) select(threadNumber.get(miss.thread));
    timeline.show(miss.release_ns - margin, end + margin);
    timeline.canvas.scrollIntoView({ block: "center" });
  }),
};
byId("timeline").classList.toggle("empty", !intervals.length);
const timeline = new Timeline(byId("timeline"), {
  onPick: toggle,
  onHover: (found, event) => showTip(found, event?.clientX, event?.clientY),
  onWindow: (from, to) => {
    // Rounded to what the eye can tell apart at this zoom.
    const grain = 10 ** Math.max(0, Math.floor(Math.log10(to - from)) - 2);
    const near = (time) => instant(Math.round(time / grain) * grain);
    byId("window").textContent = `${near(from)} – ${near(to)}  (${duration(Math.round(to - from))})`;
  },
});
wire();
showLegend();
paint();
