// The report and its rows, read from the page. The encodings are described in cpu_rows.rs and thread_rows.rs.

const report = JSON.parse(document.getElementById("report").textContent);
// Numbers up to `threadCount` are threads or names that stand for several; those below `firstGroup` are threads.
const threadCount = report.names.length, firstGroup = report.first_group;
const SEVERAL = 7, MIXED = 15;
// What a thread does, by the code of thread_rows.rs.
const KINDS = ["runs", "ready", "held", "throttled", "sleep", "park", "join", "call", "receive", "ring"];
const [RUNS, READY, HELD, THROTTLED, SLEEP, , , CALL, RECEIVE] = KINDS.keys();
const isBlocked = (kind) => kind >= SLEEP && kind < MIXED;

// A reader of bytes and of LEB128 numbers. Multiplies instead of shifting: a shift would cut at 32 bits.
function reader(id) {
  const CHUNK = 1 << 16; // A multiple of four, so that each piece decodes by itself.
  const element = document.getElementById(id), base64 = element.textContent.trim();
  element.remove(); // The text is as large as the columns and of no more use.
  let offset = 0, bytes = "", at = 0;
  const byte = () => {
    if (at === bytes.length) {
      bytes = atob(base64.slice(offset, offset += CHUNK));
      at = 0;
      if (!bytes) return 0;
    }
    return bytes.charCodeAt(at++);
  };
  const number = () => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const next = byte();
      value += (next & 127) * scale;
      if (next < 128) return value;
    }
  };
  const difference = () => {
    const zigzag = number();
    return zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
  };
  return { byte, number, difference };
}

// Row r holds the intervals first[r] to first[r + 1] - 1, ordered by start.
function readRows(id, count, length, columns, one) {
  const rows = { count, length, first: new Uint32Array(count + 1), start: new Float64Array(length), end: new Float64Array(length), ...columns };
  const input = reader(id);
  let at = 0;
  for (let row = 0; row < count; row++) {
    rows.first[row] = at;
    let before = 0;
    for (let left = input.number(); left > 0; left--, at++) {
      rows.start[at] = before + input.difference();
      before = rows.end[at] = rows.start[at] + input.number();
      one(rows, at, input, row);
    }
  }
  rows.first[count] = at;
  return rows;
}

// What ran on each CPU. `sum` is the running sum of busy time, so that the load of any stretch takes two searches.
const cpuRows = (() => {
  const n = report.intervals;
  const columns = { thread: new Uint32Array(n), reason: new Uint8Array(n), busy: new Float64Array(n), sum: new Float64Array(n + 1) };
  return readRows("cpu-rows", report.row_cpus.length, n, columns, (rows, i, input) => {
    const both = input.number();
    rows.thread[i] = Math.floor(both / 8);
    rows.reason[i] = both % 8;
    const length = rows.end[i] - rows.start[i];
    rows.busy[i] = rows.reason[i] === SEVERAL ? length * input.byte() / 255 : length;
    rows.sum[i + 1] = rows.sum[i] + rows.busy[i];
  });
})();

// What each thread did. `detail` is the reason why a run ended, or who ended a wait plus one, or the parts of a mix.
const threadRows = (() => {
  const n = report.state_intervals;
  const columns = { kind: new Uint8Array(n), cpu: new Uint32Array(n), detail: new Uint32Array(n) };
  return readRows("thread-rows", report.thread_rows, n, columns, (rows, i, input) => {
    const both = input.number();
    rows.cpu[i] = Math.floor(both / 16);
    rows.kind[i] = both % 16;
    if (rows.kind[i] === MIXED) rows.detail[i] = input.byte() | input.byte() << 8 | input.byte() << 16;
    else if (rows.kind[i] === RUNS || isBlocked(rows.kind[i])) rows.detail[i] = input.number();
  });
})();

// The run, ready and throttled parts of a mixed interval, each of 1.
const partsOf = (i) => [0, 8, 16].map((shift) => (threadRows.detail[i] >> shift & 255) / 255);

// Whether each thread has all that it did, so that sums over threads are right.
const isWhole = report.totals.states !== null && report.totals.threads <= report.thread_rows && !report.state_grain_ns;

// Which row a CPU has: CPUs in order of their number, which need not be without gaps.
const cpuRow = new Map(report.row_cpus.map((id, row) => [id, row]));
const threadNumber = new Map();
report.names.forEach((name, number) => threadNumber.has(name) || threadNumber.set(name, number));

// The first position of from..to whose interval ends after `time`.
function firstEndingAfter(rows, from, to, time) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (rows.end[middle] > time) to = middle; else from = middle + 1;
  }
  return from;
}

// The first position of from..to whose interval starts at `time` or later.
function firstStartingAt(rows, from, to, time) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (rows.start[middle] >= time) to = middle; else from = middle + 1;
  }
  return from;
}

// The interval of a row that `time` is in, or undefined.
function intervalAt(rows, row, time) {
  if (row === undefined || row < 0 || row >= rows.count) return undefined;
  const at = firstEndingAfter(rows, rows.first[row], rows.first[row + 1], time);
  return at < rows.first[row + 1] && rows.start[at] <= time ? at : undefined;
}
