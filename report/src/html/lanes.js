// Drawing one lane into a buffer of pixels.
//
// Wide intervals are boxes. Where a column of pixels holds several, it becomes a stack: its height is the load in
// that stretch of time and its layers are the threads' parts of it. Zoomed out, a lane thus turns into an area
// chart instead of noise. The work per column is bounded, so a lane of a million intervals costs no more than a
// lane of a thousand: beyond WALK intervals a column is sampled, its height stays exact.

const WALK = 24;

// target: {pixels, stride, top, height, width}; view: {from, scale}, nanoseconds per column.
// fill and edge: a packed colour per thread. Returns the boxes that are wide enough for a label.
function drawLane(target, lanes, lane, view, fill, edge, labelWidth) {
  const { order } = lanes, { start, end, thread } = intervals;
  const last = lanes.first[lane + 1], boxes = [];
  let at = lanes.first[lane], x = 0;
  while (x < target.width) {
    const left = view.from + x * view.scale, right = left + view.scale;
    at = firstEndingAfter(lanes, at, nearEnd(lanes, at, last, left), left);
    if (at >= last) break;
    const i = order[at];
    if (start[i] >= right) {
      x = Math.max(x + 1, Math.floor((start[i] - view.from) / view.scale));
    } else if (start[i] <= left && end[i] >= right) {
      const to = Math.min(target.width, Math.max(x + 1, Math.floor((end[i] - view.from) / view.scale)));
      box(target, x, to, fill[thread[i]], edge[thread[i]], start[i] > view.from);
      if (to - x >= labelWidth) boxes.push({ i, from: x, to });
      x = to;
    } else {
      column(target, lanes, x, at, firstStartingAt(lanes, at, last, right), left, right, fill);
      x++;
    }
  }
  return boxes;
}

// A bound for the search, found by doubling: the next interval is nearly always close.
function nearEnd(lanes, at, last, time) {
  let step = 1;
  while (at + step < last && intervals.end[lanes.order[at + step]] <= time) step *= 2;
  return Math.min(last, at + step + 1);
}

function box(target, from, to, colour, edge, startsHere) {
  const edged = startsHere && to - from >= 5;
  for (let y = target.top; y < target.top + target.height; y++) {
    const row = y * target.stride;
    target.pixels.fill(colour, row + from, row + to);
    if (edged) target.pixels[row + from] = edge;
  }
}

// Who ran in a stretch of time, and how long: [[thread, ns], …] by thread number. Sampled if there are many.
// The sums live in one array that is cleared by those who were touched: a frame asks this for every column.
const shareSums = new Float64Array(threadCount);

function shares(lanes, from, to, left, right) {
  const { order } = lanes, { start, end, thread } = intervals, touched = [];
  const inside = (k) => Math.min(end[order[k]], right) - Math.max(start[order[k]], left);
  const stride = Math.max(1, (to - from) / WALK);
  let sampled = 0;
  for (let step = from; step < to; step += stride) {
    const k = Math.floor(step), length = Math.max(0, inside(k));
    const t = thread[order[k]];
    if (!touched.includes(t)) touched.push(t);
    shareSums[t] += length;
    sampled += length;
  }
  // Exact: the whole sum, less what hangs out at both ends.
  const cut = (k) => end[order[k]] - start[order[k]] - inside(k);
  const busy = lanes.busy[to] - lanes.busy[from] - cut(from) - (to - 1 > from ? cut(to - 1) : 0);
  const correction = sampled > 0 ? busy / sampled : 0;
  if (touched.length > 1) touched.sort((a, b) => a - b);
  return touched.map((t) => {
    const ns = shareSums[t] * correction;
    shareSums[t] = 0;
    return [t, ns];
  });
}

function column(target, lanes, x, from, to, left, right, fill) {
  const { order } = lanes, { start, end, thread } = intervals, scale = right - left;
  if (to - from <= 2) {
    // The border of two boxes, or of one and idle time: a box ends cleanly, in whole columns.
    for (let k = from; k < to; k++) {
      const i = order[k], overlap = Math.min(end[i], right) - Math.max(start[i], left);
      if (end[i] - start[i] < 2 * scale) continue;
      if (overlap * 2 >= scale) return box(target, x, x + 1, fill[thread[i]], 0, false);
      if (to - from === 1) return undefined;
    }
  }
  const parts = shares(lanes, from, to, left, right);
  let bottom = target.top + target.height, load = 0;
  for (const [t, ns] of parts) {
    load += ns;
    // What ran at all is at least one row of pixels.
    const y = Math.min(bottom - 1, Math.round(target.top + target.height * (1 - load / scale)));
    for (let row = Math.max(y, target.top); row < bottom; row++) target.pixels[row * target.stride + x] = fill[t];
    bottom = Math.max(y, target.top + 1);
  }
  return undefined;
}
