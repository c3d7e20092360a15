// Events: what happened at an instant, as marks at the foot of their row; those without a row stand on the axis.

// Where marks share a column the one that matters most is drawn: the last of these. Each has a shape of its own.
const TONES = ["good", "warn", "accent", "bad"];

function toneOf(kind) {
  if (kind === "refill" || kind === "bind" || kind === "nohz-enter") return "good";
  if (kind === "donate" || kind === "return") return "accent";
  if (kind === "deplete" || kind === "revoke" || kind === "miss") return "bad";
  return "warn";
}

// The CPU where a thread was at a time.
function cpuOf(thread, time) {
  const at = intervalAt(threadRows, thread, time) ?? intervalAt(threadRows, thread, time - 1);
  return at === undefined ? undefined : threadRows.cpu[at];
}

// The events of a view, by row and in the order of time.
function eventRows(mode) {
  const axis = [], rows = new Map();
  report.events.forEach((event, i) => {
    const thread = threadNumber.get(event.thread);
    const row = mode === "cpu" ? cpuRow.get(event.cpu ?? cpuOf(thread, event.time_ns)) : thread;
    if (row === undefined || mode === "thread" && row >= threadRows.count) return axis.push(i);
    if (!rows.has(row)) rows.set(row, []);
    return rows.get(row).push(i);
  });
  const byTime = (a, b) => report.events[a].time_ns - report.events[b].time_ns;
  for (const list of [axis, ...rows.values()]) list.sort(byTime);
  return { axis, rows };
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
  for (const { row, y } of view.visibleRows()) {
    const foot = y + view.rowHeight - 1;
    if (foot > view.axis + 8) drawEventList(view, context, view.events.rows.get(row), foot);
  }
  drawEventList(view, context, view.events.axis, view.axis - 1);
}

// At most one mark per column of pixels, however many events there are; ticks where shapes would overlap.
function drawEventList(view, context, list, foot) {
  if (!list) return;
  const first = firstEventAt(list, view.from), last = firstEventAt(list, view.to + 1), room = view.width - view.gutter;
  const dense = last - first > room / 9;
  let at = first;
  while (at < last) {
    const column = Math.floor((report.events[list[at]].time_ns - view.from) / view.scale);
    const next = Math.max(at + 1, firstEventAt(list, view.from + (column + 1) * view.scale));
    let tone = 0, missed = false;
    for (let k = at; k < Math.min(next, at + 64); k++) {
      const { kind } = report.events[list[k]];
      tone = Math.max(tone, TONES.indexOf(toneOf(kind)));
      missed = missed || kind === "miss";
    }
    drawMark(context, view.colours, view.gutter + column + 0.5, foot, missed ? "miss" : TONES[tone], dense && !missed, view.rowHeight);
    at = next;
  }
}

// A triangle is time given, a diamond time lent, a square time that has run out, a disc anything else; a cross with a line
// through the row is a missed deadline.
function drawMark(context, colours, x, foot, tone, dense, height) {
  context.fillStyle = colours.tones[tone === "miss" ? "bad" : tone];
  if (dense) return context.fillRect(x - 0.5, foot - 4, 1, 4);
  context.beginPath();
  if (tone === "miss") {
    const middle = foot - Math.min(height, 16) / 2 + 1;
    context.fillRect(x - 0.75, foot - Math.min(height, 30) + 2, 1.5, Math.min(height, 30) - 2);
    for (const [width, style] of [[5, colours.outline], [2.4, context.fillStyle]]) {
      context.lineWidth = width;
      context.strokeStyle = style;
      context.beginPath();
      context.moveTo(x - 4, middle - 4);
      context.lineTo(x + 4, middle + 4);
      context.moveTo(x + 4, middle - 4);
      context.lineTo(x - 4, middle + 4);
      context.stroke();
    }
    return undefined;
  }
  if (tone === "good") {
    context.moveTo(x, foot - 7);
    context.lineTo(x + 4, foot);
    context.lineTo(x - 4, foot);
  } else if (tone === "accent") {
    context.moveTo(x, foot - 9);
    context.lineTo(x + 4.5, foot - 4.5);
    context.lineTo(x, foot);
    context.lineTo(x - 4.5, foot - 4.5);
  } else if (tone === "bad") {
    context.rect(x - 3.5, foot - 7, 7, 7);
  } else {
    context.arc(x, foot - 3.5, 3.5, 0, 7);
  }
  context.closePath();
  context.lineWidth = 1.5;
  context.strokeStyle = colours.outline;
  context.stroke();
  return context.fill();
}

// The events whose mark is under the pointer; a finger reaches further.
function findEvents(view, x, y, reach = 4) {
  if (x < view.gutter - reach) return undefined;
  const at = Math.floor((y - view.axis + view.scroller.scrollTop) / view.rowHeight), onAxis = y < view.axis;
  const foot = onAxis ? view.axis : view.axis + (at + 1) * view.rowHeight - view.scroller.scrollTop;
  if (foot - y > Math.max(12, 3 * reach)) return undefined;
  const list = onAxis ? view.events.axis : view.events.rows.get(view.shown[at]);
  if (!list) return undefined;
  const from = firstEventAt(list, view.timeAt(x - reach)), to = firstEventAt(list, view.timeAt(x + reach));
  return from < to ? { events: list.slice(from, to) } : undefined;
}

// What an event says, as pairs of name and value.
function eventFacts(event) {
  const times = (refills) => refills.map(([time, amount]) => `${instant(amount)} at ${instant(time)}`).join(", ");
  const shown = { amount_ns: (ns) => ["amount", instant(ns)], refills: (refills) => ["refills", times(refills)] };
  const facts = Object.entries(event).filter(([name]) => name !== "kind" && name !== "time_ns");
  return [["at", instant(event.time_ns)], ...facts.map(([name, value]) => shown[name]?.(value) || [name, String(value)])];
}
