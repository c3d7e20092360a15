// The report and its intervals, read from the page. The encoding is described in intervals.rs.

const report = JSON.parse(document.getElementById("report").textContent);
const threadCount = report.names.length;

// The intervals as columns, in the order of their start.
const intervals = decode(document.getElementById("intervals"), report.intervals);

function decode(element, length) {
  const start = new Float64Array(length), end = new Float64Array(length);
  const cpu = new Uint32Array(length), thread = new Uint32Array(length), reason = new Uint8Array(length);
  const next = numbers(element.textContent.trim());
  let before = 0;
  for (let i = 0; i < length; i++) {
    const zigzag = next();
    before += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    start[i] = before;
    end[i] = before + next();
    cpu[i] = next();
    const both = next();
    thread[i] = Math.floor(both / 8);
    reason[i] = both % 8;
  }
  element.remove(); // The text is as large as the columns and of no more use.
  return { length, start, end, cpu, thread, reason };
}

// A reader of LEB128 numbers. Multiplies instead of shifting: a shift would cut at 32 bits.
function numbers(base64) {
  const CHUNK = 1 << 16; // A multiple of four, so that each piece decodes by itself.
  let offset = 0, bytes = "", at = 0;
  return () => {
    let value = 0, scale = 1;
    for (;;) {
      if (at === bytes.length) {
        bytes = atob(base64.slice(offset, offset += CHUNK));
        at = 0;
        if (!bytes) return value;
      }
      const byte = bytes.charCodeAt(at++);
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  };
}

// Intervals sorted into lanes: lane l holds order[first[l]] to order[first[l + 1] - 1], still ordered by start.
// `busy` is the running sum of their lengths, so that the load of any stretch takes two searches.
function sortIntoLanes(key, lanes) {
  const first = new Uint32Array(lanes + 1);
  for (let i = 0; i < intervals.length; i++) first[key[i] + 1]++;
  for (let lane = 0; lane < lanes; lane++) first[lane + 1] += first[lane];
  const order = new Uint32Array(intervals.length), fill = first.slice(0, lanes);
  for (let i = 0; i < intervals.length; i++) order[fill[key[i]]++] = i;
  const busy = new Float64Array(intervals.length + 1);
  for (let k = 0; k < intervals.length; k++) busy[k + 1] = busy[k] + intervals.end[order[k]] - intervals.start[order[k]];
  return { count: lanes, first, order, busy };
}

// Which lane a CPU has: CPUs in order of their number, which need not be without gaps.
const cpuLane = new Map();
{
  const ids = new Set(report.cpus.map((cpu) => cpu.id));
  for (let i = 0; i < intervals.length; i++) ids.add(intervals.cpu[i]);
  for (const id of [...ids].sort((a, b) => a - b)) cpuLane.set(id, cpuLane.size);
}

// The lanes of a view: by "cpu" or by "thread".
function makeLanes(mode) {
  const events = eventLanes(mode);
  if (mode === "thread") return { names: report.names, lanes: sortIntoLanes(intervals.thread, threadCount), events };
  const key = intervals.cpu.map((id) => cpuLane.get(id));
  return { names: [...cpuLane.keys()].map((id) => `CPU ${id}`), lanes: sortIntoLanes(key, cpuLane.size), events };
}

// The first position in order[from..to) whose interval ends after `time`.
function firstEndingAfter(lanes, from, to, time) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (intervals.end[lanes.order[middle]] > time) to = middle; else from = middle + 1;
  }
  return from;
}

// The first position in order[from..to) whose interval starts at `time` or later.
function firstStartingAt(lanes, from, to, time) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (intervals.start[lanes.order[middle]] >= time) to = middle; else from = middle + 1;
  }
  return from;
}
