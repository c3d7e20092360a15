// Drawing one row of the timeline into a buffer of pixels.
//
// Wide intervals are boxes and patterns. Where a column of pixels holds several, it becomes a stack: in the row of a CPU
// its height is the load in that stretch of time and its layers are the threads' parts of it; in the row of a thread its
// layers are the time that it ran, was ready and was throttled. Zoomed out, a row thus turns into an area chart instead of
// noise. The work per column is bounded: beyond WALK intervals a column is sampled; the height of a CPU's stays exact.

const WALK = 24;

// target: {pixels, stride, top, height, width, unit}; view: {from, scale}, nanoseconds per column. `one` draws an interval
// that has columns to itself, `several` a column that is shared. Returns what is wide enough for a label.
function drawRow(target, rows, row, view, labelWidth, one, several) {
  const last = rows.first[row + 1], wide = [];
  let at = rows.first[row], x = 0;
  while (x < target.width) {
    const left = view.from + x * view.scale, right = left + view.scale;
    at = firstEndingAfter(rows, at, nearEnd(rows, at, last, left), left);
    if (at >= last) break;
    if (rows.start[at] >= right) {
      x = Math.max(x + 1, Math.floor((rows.start[at] - view.from) / view.scale));
    } else if (rows.start[at] <= left && rows.end[at] >= right) {
      const to = Math.min(target.width, Math.max(x + 1, Math.floor((rows.end[at] - view.from) / view.scale)));
      one(at, x, to, rows.start[at] > view.from);
      if (to - x >= labelWidth) wide.push({ i: at, from: x, to });
      x = to;
    } else {
      several(x, at, firstStartingAt(rows, at, last, right), left, right);
      x++;
    }
  }
  return wide;
}

// A bound for the search, found by doubling: the next interval is nearly always close.
function nearEnd(rows, at, last, time) {
  let step = 1;
  while (at + step < last && rows.end[at + step] <= time) step *= 2;
  return Math.min(last, at + step + 1);
}

function box(target, from, to, colour, edge, startsHere) {
  const edged = startsHere && to - from >= 5;
  for (let y = target.top; y < target.top + target.height; y++) {
    const line = y * target.stride;
    target.pixels.fill(colour, line + from, line + to);
    if (edged) target.pixels[line + from] = edge;
  }
}

// Layers from the foot up: [[part of 1, draw(top, bottom)], …]. What there is at all is at least one line of pixels.
function stack(target, layers) {
  let foot = target.top + target.height, sum = 0;
  for (const [part, draw] of layers) {
    if (!(part > 0)) continue;
    sum += part;
    const y = Math.max(target.top, Math.min(foot - 1, Math.round(target.top + target.height * (1 - sum))));
    draw(y, foot);
    foot = Math.max(y, target.top + 1);
  }
}

function drawCpuRow(target, row, view, colours, labelWidth) {
  const { fill, edge } = colours, { start, end, thread, reason, busy } = cpuRows;
  const solid = (colour, from, to) => (top, bottom) => {
    for (let y = top; y < bottom; y++) target.pixels.fill(colour, y * target.stride + from, y * target.stride + to);
  };
  const one = (i, from, to, startsHere) => {
    if (reason[i] !== SEVERAL) return box(target, from, to, fill[thread[i]], edge[thread[i]], startsHere);
    return stack(target, [[busy[i] / Math.max(end[i] - start[i], 1), solid(fill[thread[i]], from, to)]]);
  };
  const several = (x, from, to, left, right) => {
    const scale = right - left;
    if (to - from <= 2) {
      // The border of two boxes, or of one and idle time: a box ends cleanly, in whole columns.
      for (let i = from; i < to; i++) {
        const overlap = Math.min(end[i], right) - Math.max(start[i], left);
        if (end[i] - start[i] < 2 * scale || reason[i] === SEVERAL) continue;
        if (overlap * 2 >= scale) return box(target, x, x + 1, fill[thread[i]], 0, false);
        if (to - from === 1) return undefined;
      }
    }
    return stack(target, shares(from, to, left, right).map(([t, ns]) => [ns / scale, solid(fill[t], x, x + 1)]));
  };
  return drawRow(target, cpuRows, row, view, labelWidth, one, several);
}

// Who ran in a stretch of time, and how long: [[thread, ns], …] by thread number. Sampled if there are many.
// The sums live in one array that is cleared by those who were touched: a frame asks this for every column.
const shareSums = new Float64Array(threadCount);

function shares(from, to, left, right) {
  const { start, end, thread, busy, sum } = cpuRows, touched = [];
  const inside = (i) => busy[i] * Math.max(0, Math.min(end[i], right) - Math.max(start[i], left)) / Math.max(end[i] - start[i], 1);
  const stride = Math.max(1, (to - from) / WALK);
  let sampled = 0;
  for (let step = from; step < to; step += stride) {
    const i = Math.floor(step), length = inside(i), t = thread[i];
    if (!touched.includes(t)) touched.push(t);
    shareSums[t] += length;
    sampled += length;
  }
  // Exact: the whole sum, less what hangs out at both ends.
  const cut = (i) => busy[i] - inside(i);
  const ran = sum[to] - sum[from] - cut(from) - (to - 1 > from ? cut(to - 1) : 0);
  const correction = sampled > 0 ? ran / sampled : 0;
  if (touched.length > 1) touched.sort((a, b) => a - b);
  return touched.map((t) => {
    const ns = shareSums[t] * correction;
    shareSums[t] = 0;
    return [t, ns];
  });
}

function drawThreadRow(target, row, view, colours, labelWidth) {
  const { kind } = threadRows, ink = colours.lit(row) ? colours.states : colours.dimStates;
  const bottom = target.top + target.height;
  const layers = (parts, from, to) => stack(target, ["runs", "ready", "throttled"].map((name, at) =>
    [parts[at], (top, foot) => fillPattern(target, name, from, to, top, foot, at ? ink[name] : colours.fill[row])]));
  const one = (i, from, to, startsHere) => {
    if (kind[i] === RUNS) return box(target, from, to, colours.fill[row], colours.edge[row], startsHere);
    if (kind[i] === MIXED) return layers(partsOf(i), from, to);
    return fillPattern(target, KINDS[kind[i]], from, to, target.top, bottom, ink[KINDS[kind[i]]]);
  };
  const several = (x, from, to, left, right) => {
    const parts = timesIn(from, to, left, right).map((ns) => ns / (right - left));
    layers(parts, x, x + 1);
    if (parts[0] + parts[1] + parts[2] < 0.5) fillPattern(target, "receive", x, x + 1, target.top, bottom, ink.receive);
  };
  return drawRow(target, threadRows, row, view, labelWidth, one, several);
}

// How long a thread ran, was ready and was throttled in a stretch of time, of its intervals from..to.
function timesIn(from, to, left, right) {
  const { start, end, kind } = threadRows, times = [0, 0, 0], stride = Math.max(1, Math.floor((to - from) / WALK));
  for (let i = from; i < to; i += stride) {
    const length = (Math.min(end[i], right) - Math.max(start[i], left)) * stride;
    if (kind[i] === MIXED) partsOf(i).forEach((part, at) => times[at] += part * length);
    else if (kind[i] <= THROTTLED) times[kind[i] === RUNS ? 0 : kind[i] === THROTTLED ? 2 : 1] += length;
  }
  return times;
}

// How many threads are ready on each CPU, from when: known only if the page has all of what every thread did.
let waitingSteps = null;

function waitingOn(row) {
  if (!isWhole || threadRows.length > 400000) return null;
  if (!waitingSteps) {
    waitingSteps = Array.from({ length: cpuRows.count }, () => []);
    for (let i = 0; i < threadRows.length; i++) {
      if (threadRows.kind[i] !== READY) continue;
      const steps = waitingSteps[cpuRow.get(threadRows.cpu[i])];
      if (steps) steps.push([threadRows.start[i], 1], [threadRows.end[i], -1]);
    }
    waitingSteps = waitingSteps.map((steps) => {
      steps.sort((a, b) => a[0] - b[0]);
      let waiting = 0;
      return steps.map(([time, change]) => [time, waiting += change]);
    });
  }
  return waitingSteps[row];
}

// The number of threads that wait at a time.
function waitingAt(steps, time) {
  let from = 0, to = steps.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (steps[middle][0] <= time) from = middle + 1; else to = middle;
  }
  return { waiting: from ? steps[from - 1][1] : 0, next: from };
}

// Along the head of a CPU's row: a line of stripes for each thread that waits there, up to four.
function drawWaiting(target, row, view, colour) {
  const steps = waitingOn(row);
  if (!steps || !steps.length) return;
  const { unit } = target;
  let { waiting, next } = waitingAt(steps, view.from);
  for (let x = 0; x < target.width; x++) {
    const right = view.from + (x + 1) * view.scale;
    let most = waiting;
    for (; next < steps.length && steps[next][0] < right; next++) most = Math.max(most, waiting = steps[next][1]);
    const lines = Math.min(4, most) * unit;
    for (let y = 0; y < lines; y++) if ((Math.floor(x / unit) + Math.floor(y / unit)) % 3 < 2) target.pixels[(target.top + y) * target.stride + x] = colour;
  }
}
