// The strip above a timeline: the load of the whole run, and where the window is.

// How busy the machine was over the whole run, and the part of it that the highlighted threads had.
function measureLoad(view) {
  const buckets = Math.max(1, view.overview.width), width = view.span / buckets;
  const all = new Float64Array(buckets), part = new Float64Array(buckets);
  const { start, end, thread } = intervals;
  for (let i = 0; i < intervals.length; i++) {
    const marked = view.selected >= 0 ? view.selected === thread[i] : view.match && view.match[thread[i]];
    let bucket = Math.min(buckets - 1, Math.floor(start[i] / width));
    for (let time = start[i]; time < end[i] && bucket < buckets; bucket++) {
      const stop = Math.min(end[i], (bucket + 1) * width);
      if (stop > time) {
        all[bucket] += stop - time;
        if (marked) part[bucket] += stop - time;
        time = stop;
      }
    }
  }
  const capacity = width * Math.max(1, report.cpus.length);
  return { all, part, capacity };
}

function drawOverview(view) {
  const { width, height } = view.overview, context = view.overview.getContext("2d");
  view.load = view.load || measureLoad(view);
  context.clearRect(0, 0, width, height);
  const bars = (sums, colour) => {
    context.fillStyle = colour;
    context.beginPath();
    for (let x = 0; x < sums.length; x++) {
      const tall = Math.min(1, sums[x] / view.load.capacity) * (height - 2);
      if (tall > 0) context.rect(x, height - tall, 1, tall);
    }
    context.fill();
  };
  const some = view.selected >= 0 || view.match;
  bars(view.load.all, some ? view.colours.debt : view.colours.load);
  if (some) bars(view.load.part, view.selected >= 0 ? css(view.colours.base[view.selected]) : view.colours.load);
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
