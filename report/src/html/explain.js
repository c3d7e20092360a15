// Why a thread ran or did not at a time, from what the page holds: in the words of `mainspring explain`, with the chain of
// who waits for whom as a picture. What only a record knows (who was ahead in the queue) is left to the command.

const CHAIN_LONGEST = 8;

function tableOf(name) {
  return stem(name);
}

// What a thread did at a time: {kind, since, until, cpu, by}, or undefined if it did not live or the page does not know.
function stateAt(thread, time) {
  const i = intervalAt(threadRows, thread, time);
  if (i === undefined) return undefined;
  const kind = threadRows.kind[i], detail = threadRows.detail[i];
  return {
    kind, since: threadRows.start[i], until: threadRows.end[i], cpu: threadRows.cpu[i],
    by: isBlocked(kind) && detail ? detail - 1 : undefined, reason: kind === RUNS ? report.reasons[detail] : undefined,
  };
}

// The name of what ran on a CPU at a time.
function runningOn(cpu, time) {
  const i = intervalAt(cpuRows, cpuRow.get(cpu), time);
  if (i === undefined) return undefined;
  return cpuRows.reason[i] === SEVERAL ? `mostly ${report.names[cpuRows.thread[i]]}` : report.names[cpuRows.thread[i]];
}

// One sentence about a thread at a time.
function doing(thread, time) {
  const state = stateAt(thread, time);
  if (!state) return "did not live, or the page does not hold what it did";
  const span = `from ${instant(state.since)} to ${instant(state.until)}`;
  const ended = state.by === undefined ? "" : `; ${report.names[state.by]} ended that`;
  switch (state.kind) {
    case RUNS: return `ran on CPU ${state.cpu}, ${span}, then ${state.reason ?? "?"}`;
    case READY: {
      const other = runningOn(state.cpu, time);
      return `was ready, ${span}, ${other === undefined ? `while CPU ${state.cpu} was about to begin` : `while CPU ${state.cpu} ran ${other}`}`;
    }
    case HELD: return `was held in the queue of CPU ${state.cpu}, ${span}`;
    case THROTTLED: return `was throttled, ${span}: its context was used up`;
    case SLEEP: return `slept, ${span}`;
    case MIXED: return `did several things, ${span}, too short for this page to hold apart`;
    default: return `was blocked (${KINDS[state.kind]}), ${span}${ended}`;
  }
}

// How a thread spent the time from one instant to another, as pairs of words and nanoseconds.
function spent(thread, from, to) {
  const { start, end, kind, cpu } = threadRows, times = new Map(), rivals = new Map();
  const add = (map, key, ns) => map.set(key, (map.get(key) || 0) + ns);
  let known = 0;
  for (let i = firstEndingAfter(threadRows, threadRows.first[thread], threadRows.first[thread + 1], from); i < threadRows.first[thread + 1] && start[i] < to; i++) {
    const a = Math.max(start[i], from), b = Math.min(end[i], to);
    known += b - a;
    if (kind[i] === MIXED) {
      const parts = partsOf(i);
      parts.forEach((part, at) => add(times, ["ran", "was ready", "was throttled"][at], part * (b - a)));
      add(times, "was blocked", (1 - Math.min(1, parts[0] + parts[1] + parts[2])) * (b - a));
      continue;
    }
    const words = kind[i] === RUNS ? "ran" : isBlocked(kind[i]) ? `was blocked (${KINDS[kind[i]]})` : `was ${KINDS[kind[i]]}`;
    add(times, words, b - a);
    if (kind[i] === READY) othersOn(cpu[i], a, b, (name, ns) => add(rivals, name, ns));
  }
  if (to - from - known > 0.5) add(times, "did not live", to - from - known);
  return { times, rivals };
}

// Who ran on a CPU from one instant to another.
function othersOn(cpu, from, to, tell) {
  const row = cpuRow.get(cpu);
  if (row === undefined) return;
  for (let i = firstEndingAfter(cpuRows, cpuRows.first[row], cpuRows.first[row + 1], from); i < cpuRows.first[row + 1] && cpuRows.start[i] < to; i++) {
    const length = Math.min(cpuRows.end[i], to) - Math.max(cpuRows.start[i], from);
    tell(report.names[cpuRows.thread[i]], length * cpuRows.busy[i] / Math.max(cpuRows.end[i] - cpuRows.start[i], 1));
  }
}

// Who waits for whom: [{name, says, link}] from a thread to what holds it up. `link` names what it waits at.
function chainOf(thread, time) {
  const chain = [], seen = new Set();
  let at = thread;
  while (at !== undefined && chain.length < CHAIN_LONGEST) {
    const state = stateAt(at, time), name = report.names[at];
    if (seen.has(at)) {
      chain.push({ name, says: "a deadlock: they wait for each other", kind: "bad" });
      break;
    }
    seen.add(at);
    const step = { name, thread: at, kind: state ? KINDS[state.kind] ?? "mixed" : "absent", says: state ? shortState(state) : "not alive" };
    chain.push(step);
    at = undefined;
    if (state?.kind === READY || state?.kind === HELD) {
      const other = runningOn(state.cpu, time);
      if (other !== undefined) chain.push({ name: `CPU ${state.cpu}`, says: `runs ${other}`, kind: "cpu" });
      step.link = "waits for";
    } else if (state?.kind === CALL) {
      const served = serverOf(name, time, state.by);
      step.link = served ? `calls ${served.endpoint}` : "calls an endpoint";
      if (served?.several) chain.push({ name: served.endpoint, says: "the run does not say which", kind: "call" });
      else if (served?.server === undefined) chain.push({ name: served ? served.endpoint : "?", says: "nobody serves it", kind: "bad" });
      else at = served.server;
    } else if (state && isBlocked(state.kind) && state.kind !== SLEEP && state.by !== undefined) {
      step.link = `${KINDS[state.kind]}, ended by`;
      at = state.by < threadRows.count ? state.by : undefined;
      if (at !== undefined && state.kind === RECEIVE) {
        chain.push({ name: report.names[at], thread: at, says: "sends it a request later", kind: "call" });
        at = undefined;
      }
    }
  }
  return chain;
}

// The endpoint that a caller waits at, and who serves it: the thread `by` that ended the wait, if it is a server, else one that does
// not wait for requests. A caller of several endpoints, whose wait no server ended, may be at any of them.
function serverOf(caller, time, by) {
  const calls = report.endpoints.filter((e) => e.callers.includes(tableOf(caller)));
  const serves = (endpoint, thread) => endpoint.servers.includes(tableOf(report.names[thread]));
  if (by !== undefined && by < threadRows.count) {
    const answered = calls.find((endpoint) => serves(endpoint, by));
    if (answered) return { endpoint: answered.name, server: by };
  }
  if (calls.length > 1) return { endpoint: calls.map((e) => e.name).join(" or "), several: true };
  for (let thread = 0; calls.length && thread < threadRows.count; thread++) {
    const state = serves(calls[0], thread) ? stateAt(thread, time) : undefined;
    if (state && state.kind !== RECEIVE) return { endpoint: calls[0].name, server: thread };
  }
  return calls.length ? { endpoint: calls[0].name } : undefined;
}

function shortState(state) {
  if (state.kind === RUNS) return `runs on CPU ${state.cpu}`;
  if (state.kind === MIXED) return "several things";
  return isBlocked(state.kind) && state.kind !== SLEEP ? `blocked (${KINDS[state.kind]})` : state.kind === SLEEP ? "sleeps" : KINDS[state.kind];
}

// The chain as a picture, which is also readable as a list.
function chainPicture(chain) {
  const list = element("ol", { class: "chain", "aria-label": "Who waits for whom" });
  chain.forEach((step, at) => {
    const node = element("li", { class: `step ${step.kind}` }, element("b", {}, step.thread === undefined ? "" : swatch(step.thread), step.name), element("span", {}, step.says));
    list.append(node);
    if (at < chain.length - 1) node.append(element("em", {}, step.link || "waits for"));
  });
  return list;
}

// How the time was spent, as a bar of parts and in words.
function spentPicture(thread, from, to) {
  const { times, rivals } = spent(thread, from, to), whole = Math.max(to - from, 1);
  const bar = element("div", { class: "spent", role: "img", "aria-label": `From ${instant(from)} to ${instant(to)}` });
  const words = element("ul", {});
  for (const [what, ns] of [...times].sort((a, b) => b[1] - a[1])) {
    if (ns < 0.5) continue;
    const kind = what.replace(/^was (blocked \(|)?|\)$/g, "").replace(/ /g, "-");
    const part = element("span", { class: `part ${kind}` });
    part.style.width = `${ns / whole * 100}%`;
    bar.append(part);
    const by = what === "was ready" && rivals.size
      ? `, while its CPU ran ${[...rivals].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([name, time]) => `${name} ${instant(Math.round(time))}`).join(", ")}` : "";
    words.append(element("li", {}, element("i", { class: `part ${kind}` }), `${what} for ${instant(Math.round(ns))}${by}`));
  }
  return [bar, words];
}

// Fills the panel below the timeline.
function explain({ thread, time, miss }) {
  const panel = byId("explain"), name = thread === undefined ? undefined : report.names[thread];
  panel.hidden = false;
  const body = [], title = miss ? `Miss ${miss.number}: ${miss.context ? `context ${miss.context}` : name}` : `${name} at ${instant(Math.round(time))}`;
  if (miss) {
    const late = miss.finish_ns === undefined ? "" : `, it ended ${instant(miss.finish_ns - miss.time_ns)} after its deadline`;
    body.push(element("p", {}, `${miss.context ? `held by ${name}, ` : ""}released at ${instant(miss.release_ns)}, due at ${instant(miss.time_ns)}: ${miss.kind}${late}`));
    if (thread !== undefined && thread < threadRows.count) body.push(...spentPicture(thread, miss.release_ns, miss.time_ns));
  }
  if (thread !== undefined && thread < threadRows.count) {
    body.push(element("p", {}, `${miss ? `At ${instant(miss.time_ns)} ${name} ` : "It "}${doing(thread, time)}.`));
    const chain = chainOf(thread, time);
    if (chain.length > 1) body.push(chainPicture(chain));
  } else {
    body.push(element("p", {}, "This page does not hold what this thread did one by one."));
  }
  const command = miss ? `mainspring explain RECORD --miss ${miss.number}` : `mainspring explain RECORD --thread ${name} --at ${Math.round(time)}ns`;
  body.push(element("p", { class: "quiet" }, "With a record: ", element("code", {}, command)));
  byId("explain-title").textContent = title;
  byId("explain-body").replaceChildren(...body);
  byId("said").textContent = `${title}. ${[...byId("explain-body").querySelectorAll("p")].slice(0, -1).map((p) => p.textContent).join(" ")}`;
}
