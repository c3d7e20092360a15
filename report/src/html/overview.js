// The strip above a timeline: the load of the whole run, and where the window is.

// How busy the machine was over the whole run, and the part of it that the highlighted threads had.
function measureLoad(view) {
  const buckets = Math.max(1, view.overview.width), width = view.span / buckets;
  const all = new Float64Array(buckets), part = new Float64Array(buckets);
  const { start, end, thread, busy } = cpuRows;
  for (let i = 0; i < cpuRows.length; i++) {
    const marked = view.selected >= 0 ? view.selected === thread[i] : view.match && view.match[thread[i]];
    const density = busy[i] / Math.max(end[i] - start[i], 1);
    let bucket = Math.min(buckets - 1, Math.floor(start[i] / width));
    for (let time = start[i]; time < end[i] && bucket < buckets; bucket++) {
      const stop = Math.min(end[i], (bucket + 1) * width);
      if (stop > time) {
        all[bucket] += (stop - time) * density;
        if (marked) part[bucket] += (stop - time) * density;
        time = stop;
      }
    }
  }
  const missed = new Set(report.misses.map((miss) => Math.min(buckets - 1, Math.floor(miss.time_ns / width))));
  return { all, part, capacity: width * Math.max(1, cpuRows.count), missed };
}

// What ran at all is at least a pixel tall, and so is what the highlighted thread ran: a short run is never lost.
function drawOverview(view) {
  const { width, height } = view.overview, context = view.overview.getContext("2d"), unit = view.ratio;
  view.load = view.load || measureLoad(view);
  context.clearRect(0, 0, width, height);
  const bars = (sums, colour, least) => {
    context.fillStyle = colour;
    context.beginPath();
    for (let x = 0; x < sums.length; x++) {
      if (sums[x] > 0) context.rect(x, height, 1, -Math.max(least, Math.min(1, sums[x] / view.load.capacity) * (height - 2)));
    }
    context.fill();
  };
  const some = view.selected >= 0 || view.match;
  bars(view.load.all, some ? view.colours.debt : view.colours.load, 2 * unit);
  if (some) bars(view.load.part, view.selected >= 0 ? css(view.colours.base[view.selected]) : view.colours.load, 5 * unit);
  context.fillStyle = view.colours.tones.bad;
  for (const x of view.load.missed) context.fillRect(x - unit, 0, 2 * unit, 7 * unit);
  const from = view.from / view.span * width, to = view.to / view.span * width;
  if (to - from < width - 1) {
    context.fillStyle = view.colours.shade;
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.fillStyle = view.colours.accent;
    context.fillRect(Math.min(from, width - 2), 0, 2, height);
    context.fillRect(Math.max(to - 2, from), 0, 2, height);
  }
}
