// The page: what is highlighted, the legend, the tooltip, and the keys that move all of it.

const state = { selected: -1, query: "" };
const order = report.threads.map((_, i) => i).sort((a, b) => report.threads[b].runtime_ns - report.threads[a].runtime_ns);
for (let i = report.threads.length; i < firstGroup; i++) order.push(i);
let base = threadColours();

function swatch(thread) {
  const made = element("i");
  made.style.background = css(base[thread]);
  return made;
}

// How many threads share a name but for the instance number.
const instances = new Map();
for (const name of report.names.slice(0, firstGroup)) instances.set(stem(name), (instances.get(stem(name)) || 0) + 1);

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
    states: Object.fromEntries(Object.entries(STATE_INK).map(([name, ink]) => [name, packed(variable(ink))])),
    dimStates: Object.fromEntries(Object.entries(STATE_INK).map(([name, ink]) => [name, packed(mix(variable(ink), lane, 0.6))])),
    plate: css(variable("--lane")), lit,
  }, state.selected, match);
  showKey(timeline.colours);
}

function select(thread) {
  state.selected = thread;
  if (timeline.cursor && timeline.cursor.thread !== thread) timeline.cursor = undefined;
  tables.threads.select(thread);
  showLegend();
  paint();
}

function toggle(thread) {
  select(thread === state.selected ? -1 : thread);
}

// What was pressed in the timeline: a mark, an interval, a stretch of several, or nothing.
function pick(found) {
  if (!found) return letGo();
  if (found.events) return pickEvents(found.events.map((i) => report.events[i]));
  if (found.time === undefined) return found.row === undefined ? letGo() : toggle(found.row);
  if (timeline.mode === "thread") return pickThread(found.row, found.time);
  const thread = found.parts ? found.parts[0][0] : found.interval === undefined ? undefined : cpuRows.thread[found.interval];
  return thread === undefined ? letGo() : pickThread(thread, found.time);
}

function pickThread(thread, time) {
  select(thread);
  timeline.cursor = { thread, time };
  showMoment({ thread, time });
}

function pickEvents(events) {
  const event = events.find((one) => one.kind === "miss") || events[0], thread = threadNumber.get(event.thread);
  if (thread !== undefined) select(thread);
  if (event.kind === "miss") return showMoment({ thread, time: event.time_ns, miss: report.misses.find((miss) => miss.number === event.count) });
  return thread === undefined ? undefined : showMoment({ thread, time: event.time_ns });
}

function showMoment(what) {
  timeline.moment = what.time;
  state.explained = what;
  explain(what);
  timeline.draw();
}

function letGo() {
  byId("explain").hidden = true;
  state.explained = undefined;
  timeline.moment = undefined;
  select(-1);
}

// The miss with its period in the window, and why.
function showMiss(miss) {
  const end = Math.max(miss.time_ns, miss.finish_ns ?? 0), margin = (end - miss.release_ns) / 4, thread = threadNumber.get(miss.thread);
  if (thread !== undefined) select(thread);
  timeline.show(miss.release_ns - margin, end + margin);
  if (thread !== undefined) timeline.scrollTo(thread, miss.time_ns);
  showMoment({ thread, time: miss.time_ns, miss });
}

function nextMiss(direction) {
  if (!report.misses.length) return;
  const at = report.misses.indexOf(state.explained?.miss);
  const next = at < 0 ? (direction > 0 ? 0 : report.misses.length - 1) : Math.min(Math.max(at + direction, 0), report.misses.length - 1);
  showMiss(report.misses[next]);
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
  const name = timeline.names[found.row];
  if (found.parts) {
    const parts = found.parts.slice(0, 5).map(([thread, ns]) => [report.names[thread], `${percent(ns / found.scale)} %`]);
    return [element("b", {}, `${name}: ${count(found.count)} intervals here`), rows([["at", duration(found.time)], ...parts])];
  }
  if (found.times) {
    const parts = ["ran", "ready", "throttled"].map((what, at) => [what, `${percent(Math.min(1, found.times[at] / found.scale))} %`]);
    return [element("b", {}, `${name}: ${count(found.count)} intervals here`), rows([["at", duration(found.time)], ...parts])];
  }
  if (found.interval === undefined) {
    return [element("b", {}, name), rows([["at", duration(found.time)], ["", timeline.mode === "cpu" ? "idle" : "not alive"]])];
  }
  return timeline.mode === "cpu" ? describeCpuInterval(found.interval, found.row, found.time) : describeThreadInterval(found.interval, found.row);
}

const fromTo = (start, end) => [["from", instant(start)], ["to", instant(end)], ["length", instant(end - start)]];

function describeCpuInterval(i, row, time) {
  const thread = cpuRows.thread[i], { start, end, reason, busy } = cpuRows, several = reason[i] === SEVERAL;
  const facts = [["CPU", String(report.row_cpus[row])], ...fromTo(start[i], end[i])];
  if (several) facts.push(["busy", `${percent(busy[i] / Math.max(end[i] - start[i], 1))} %`]);
  else facts.push(["then", report.reasons[reason[i]] || "?"]);
  const steps = waitingOn(row);
  if (steps) facts.push(["ready here", count(waitingAt(steps, time).waiting)]);
  return [element("b", {}, swatch(thread), `${several ? "mostly " : ""}${report.names[thread]}`), rows(facts)];
}

function describeThreadInterval(i, row) {
  const { start, end, kind, cpu, detail } = threadRows, facts = fromTo(start[i], end[i]);
  if (kind[i] === MIXED) {
    const parts = partsOf(i);
    ["ran", "ready", "throttled"].forEach((what, at) => facts.push([what, `${percent(parts[at])} %`]));
  } else {
    facts.unshift([isBlocked(kind[i]) && kind[i] !== SLEEP ? "blocked" : "", kind[i] === SLEEP ? "sleeps" : KINDS[kind[i]]], ["CPU", String(cpu[i])]);
    if (kind[i] === RUNS) facts.push(["then", report.reasons[detail[i]] || "?"]);
    if (kind[i] === READY) facts.push(["instead", runningOn(cpu[i], start[i]) ?? "–"]);
    if (isBlocked(kind[i]) && detail[i]) facts.push(["ended by", report.names[detail[i] - 1]]);
  }
  return [element("b", {}, swatch(row), report.names[row]), rows(facts)];
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

// The next or previous interval in which the highlighted thread ran, from the cursor or else from the middle.
function step(direction) {
  const thread = state.selected;
  if (thread < 0 || thread >= threadRows.count) return;
  const first = threadRows.first[thread], last = threadRows.first[thread + 1];
  const from = timeline.cursor ? timeline.cursor.time : (timeline.from + timeline.to) / 2;
  let at = firstStartingAt(threadRows, first, last, from);
  const wanted = (i) => threadRows.kind[i] === RUNS || threadRows.kind[i] === MIXED;
  if (direction < 0) at--;
  else if (timeline.cursor && threadRows.start[at] === from) at++;
  while (at >= first && at < last && !wanted(at)) at += direction;
  if (at < first || at >= last) return;
  timeline.reveal(thread, at);
  showMoment({ thread, time: threadRows.start[at] });
}

function setMode(mode) {
  byId("by-cpu").setAttribute("aria-pressed", String(mode === "cpu"));
  byId("by-thread").setAttribute("aria-pressed", String(mode === "thread"));
  timeline.scroller.scrollTop = 0;
  timeline.setMode(mode);
}

function setArrows(on) {
  byId("arrows").setAttribute("aria-pressed", String(on));
  timeline.arrows = on;
  timeline.draw();
}

const keys = {
  "+": () => timeline.zoom(0.6), "=": () => timeline.zoom(0.6), "-": () => timeline.zoom(1 / 0.6), "_": () => timeline.zoom(1 / 0.6),
  ArrowLeft: (event) => timeline.pan(event.shiftKey ? -1 : -0.15), ArrowRight: (event) => timeline.pan(event.shiftKey ? 1 : 0.15),
  f: () => timeline.fit(), n: () => step(1), p: () => step(-1),
  t: () => setMode(timeline.mode === "cpu" ? "thread" : "cpu"),
  a: () => setArrows(!timeline.arrows), m: () => nextMiss(1), M: () => nextMiss(-1),
  "/": () => byId("search").focus(),
  Escape: () => {
    byId("help").open = byId("key").open = false;
    showTip();
    letGo();
  },
};
// Only with the timeline in focus: elsewhere they scroll the page.
const rowKeys = {
  Enter: () => timeline.cursor && showMoment(timeline.cursor),
  ArrowUp: () => timeline.scroller.scrollBy(0, -timeline.rowHeight), ArrowDown: () => timeline.scroller.scrollBy(0, timeline.rowHeight),
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
  const action = keys[event.key] || (event.target === timeline.canvas && rowKeys[event.key]);
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
  byId("arrows").addEventListener("click", () => setArrows(!timeline.arrows));
  byId("explain-close").addEventListener("click", letGo);
  byId("search").addEventListener("input", (event) => filter(event.target.value));
  addEventListener("keydown", onKey);
  addEventListener("hashchange", readHash);
  addEventListener("pointerdown", (event) => {
    for (const id of ["key", "help"]) if (!byId(id).contains(event.target)) byId(id).open = false;
  });
  darkScheme.addEventListener("change", () => {
    base = threadColours();
    tables.threads.fill();
    showLegend();
    paint();
  });
}

// The view is in the address, so that it can be sent to somebody: window, rows, highlight, filter and what is explained.
let writtenHash = "", hashTimer = 0;

function writeHash() {
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => {
    const view = new URLSearchParams();
    if (timeline.from > 0 || timeline.to < timeline.span) view.set("t", `${Math.round(timeline.from)}-${Math.round(timeline.to)}`);
    if (timeline.mode === "thread") view.set("by", "thread");
    if (state.selected >= 0) view.set("thread", report.names[state.selected]);
    if (state.query) view.set("filter", state.query);
    if (timeline.arrows) view.set("wakeups", "1");
    if (state.explained?.miss) view.set("miss", String(state.explained.miss.number));
    else if (state.explained) view.set("at", String(Math.round(state.explained.time)));
    writtenHash = view.size ? `#${view}` : "";
    if (writtenHash !== location.hash) history.replaceState(null, "", writtenHash || location.pathname + location.search);
  }, 150);
}

function readHash() {
  if (location.hash === writtenHash) return;
  const view = new URLSearchParams(location.hash.slice(1)), thread = threadNumber.get(view.get("thread")), time = Number(view.get("at"));
  byId("search").value = view.get("filter") || "";
  filter(byId("search").value);
  setMode(view.get("by") === "thread" ? "thread" : "cpu");
  setArrows(view.get("wakeups") === "1");
  select(thread ?? -1);
  const window = (view.get("t") || "").match(/^(\d+)-(\d+)$/);
  const miss = report.misses.find((one) => String(one.number) === view.get("miss"));
  if (miss) showMiss(miss);
  if (window) timeline.show(Number(window[1]), Number(window[2]));
  if (!miss && thread !== undefined && view.has("at") && Number.isFinite(time)) showMoment({ thread, time });
}

showFacts();
showNotes();
const tables = {
  threads: threadTable(), cpus: cpuTable(), contexts: contextTable(), islands: islandTable(), leases: leaseTable(),
  rings: ringTable(), telemetry: telemetryTable(), periods: periodTable(), calls: callTable(), expectations: expectationTable(),
  misses: missTable((miss) => {
    showMiss(miss);
    byId("timeline").scrollIntoView({ block: "start" });
  }),
};
byId("timeline").classList.toggle("empty", !cpuRows.length);
const timeline = new Timeline(byId("timeline"), {
  onPick: pick,
  onHover: (found, event) => showTip(found, event?.clientX, event?.clientY),
  onWindow: (from, to) => {
    // Rounded to what the eye can tell apart at this zoom.
    const grain = 10 ** Math.max(0, Math.floor(Math.log10(to - from)) - 2);
    const near = (time) => instant(Math.round(time / grain) * grain);
    byId("window").textContent = `${near(from)} – ${near(to)}  (${duration(Math.round(to - from))})`;
    const arrows = timeline.arrowsFound, cpus = count(cpuRows.count);
    const wakes = !arrows ? "" : arrows.drawn ? ` · ${count(arrows.drawn)} wakeups` : arrows.found ? ` · ${count(arrows.found)} wakeups are too many to draw: zoom in or highlight a thread` : " · no wakeups here whose origin is known";
    byId("scale").textContent = `Above the rows: the whole run, a full bar is ${cpus === "1" ? "the CPU" : `all ${cpus} CPUs`} busy${report.misses.length ? ", red marks are missed deadlines" : ""}${wakes}`;
    byId("timeline").dataset.drawn ||= String(Math.round(performance.now()));
    writeHash();
  },
});
wire();
showLegend();
paint();
readHash();
