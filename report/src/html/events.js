// Events: what happened at an instant, as marks at the foot of their lane; those without a lane stand on the axis.

const threadNumber = new Map();
report.names.forEach((name, number) => threadNumber.has(name) || threadNumber.set(name, number));

// Where marks share a column the one that matters most is drawn: the last of these.
const TONES = ["good", "warn", "accent", "bad"];

function toneOf(kind) {
  if (kind === "refill" || kind === "bind" || kind === "nohz-enter") return "good";
  if (kind === "donate" || kind === "return") return "accent";
  if (kind === "deplete" || kind === "revoke" || kind === "miss") return "bad";
  return "warn";
}

// The events of a view, by lane and in the order of time.
function eventLanes(mode) {
  const axis = [], lanes = new Map();
  report.events.forEach((event, i) => {
    const lane = mode === "cpu" ? cpuLane.get(event.cpu) : threadNumber.get(event.thread);
    if (lane === undefined) return axis.push(i);
    if (!lanes.has(lane)) lanes.set(lane, []);
    return lanes.get(lane).push(i);
  });
  const byTime = (a, b) => report.events[a].time_ns - report.events[b].time_ns;
  for (const list of [axis, ...lanes.values()]) list.sort(byTime);
  return { axis, lanes };
}

// The first position of a list whose event is at `time` or later.
function firstEventAt(list, time) {
  let from = 0, to = list.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (report.events[list[middle]].time_ns >= time) to = middle; else from = middle + 1;
  }
  return from;
}

function drawEvents(view, context) {
  for (const { lane, y } of view.visibleLanes()) {
    const foot = y + view.laneHeight - 1;
    if (foot > view.axis + 8) drawEventList(view, context, view.events.lanes.get(lane), foot);
  }
  drawEventList(view, context, view.events.axis, view.axis - 1);
}

// At most one mark per column of pixels, however many events there are; ticks where triangles would overlap.
function drawEventList(view, context, list, foot) {
  if (!list) return;
  const first = firstEventAt(list, view.from), last = firstEventAt(list, view.to), room = view.width - view.gutter;
  const dense = last - first > room / 9;
  let at = first;
  while (at < last) {
    const column = Math.floor((report.events[list[at]].time_ns - view.from) / view.scale);
    const next = Math.max(at + 1, firstEventAt(list, view.from + (column + 1) * view.scale));
    let tone = 0;
    for (let k = at; k < Math.min(next, at + 16); k++) tone = Math.max(tone, TONES.indexOf(toneOf(report.events[list[k]].kind)));
    drawMark(view, context, view.gutter + column + 0.5, foot, TONES[tone], dense);
    at = next;
  }
}

function drawMark(view, context, x, foot, tone, dense) {
  context.fillStyle = view.colours.tones[tone];
  if (dense) return context.fillRect(x - 0.5, foot - 4, 1, 4);
  context.beginPath();
  context.moveTo(x, foot - 7);
  context.lineTo(x + 4, foot);
  context.lineTo(x - 4, foot);
  context.closePath();
  context.lineWidth = 1.5;
  context.strokeStyle = view.colours.outline;
  context.stroke();
  return context.fill();
}

// The events whose mark is under the pointer.
function findEvents(view, x, y) {
  const REACH = 4;
  if (x < view.gutter - REACH) return undefined;
  const row = Math.floor((y - view.axis + view.scroller.scrollTop) / view.laneHeight), onAxis = y < view.axis;
  const foot = onAxis ? view.axis : view.axis + (row + 1) * view.laneHeight - view.scroller.scrollTop;
  if (foot - y > 10) return undefined;
  const list = onAxis ? view.events.axis : view.events.lanes.get(view.shown[row]);
  if (!list) return undefined;
  const from = firstEventAt(list, view.timeAt(x - REACH)), to = firstEventAt(list, view.timeAt(x + REACH));
  return from < to ? { events: list.slice(from, to) } : undefined;
}

// What an event says, as pairs of name and value.
function eventFacts(event) {
  const times = (refills) => refills.map(([time, amount]) => `${instant(amount)} at ${instant(time)}`).join(", ");
  const shown = { amount_ns: (ns) => ["amount", instant(ns)], refills: (refills) => ["refills", times(refills)] };
  const facts = Object.entries(event).filter(([name]) => name !== "kind" && name !== "time_ns");
  return [["at", instant(event.time_ns)], ...facts.map(([name, value]) => shown[name]?.(value) || [name, String(value)])];
}
