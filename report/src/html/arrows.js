// Who woke whom, as arrows on demand: a call, its reply, or another wakeup.

// Every wait that a known thread ended, by time: {time, by, thread, kind}.
let wakeList = null;

function wakeups() {
  if (wakeList) return wakeList;
  wakeList = [];
  for (let thread = 0; thread < threadRows.count; thread++) {
    for (let i = threadRows.first[thread]; i < threadRows.first[thread + 1]; i++) {
      const kind = threadRows.kind[i];
      if (!isBlocked(kind) || !threadRows.detail[i]) continue;
      wakeList.push({ time: threadRows.end[i], by: threadRows.detail[i] - 1, thread, kind, next: i + 1 });
    }
  }
  return wakeList.sort((a, b) => a.time - b.time);
}

// The row where each end of an arrow stands, if it has one.
function arrowEnds(view, wake) {
  if (view.mode === "thread") return [view.placeOf.get(wake.by), view.placeOf.get(wake.thread)];
  const there = wake.next < threadRows.first[wake.thread + 1] ? threadRows.cpu[wake.next] : undefined;
  return [cpuOf(wake.by, wake.time - 1) ?? cpuOf(wake.by, wake.time), there].map((cpu) => view.placeOf.get(cpuRow.get(cpu)));
}

// Draws those of the window, or of the highlighted thread alone. Returns how many there are and how many are drawn.
function drawArrows(view, context) {
  const MOST = 1200, all = wakeups();
  let from = 0, to = all.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (all[middle].time >= view.from) to = middle; else from = middle + 1;
  }
  const inWindow = [];
  for (let k = from; k < all.length && all[k].time <= view.to; k++) {
    const { by, thread } = all[k];
    if (view.selected >= 0 && by !== view.selected && thread !== view.selected) continue;
    if (view.match && !view.match[by] && !view.match[thread]) continue;
    inWindow.push(all[k]);
  }
  if (inWindow.length > MOST) return { found: inWindow.length, drawn: 0 };
  const middle = (place) => view.axis + place * view.rowHeight - view.scroller.scrollTop + view.rowHeight / 2;
  let drawn = 0;
  context.save();
  context.beginPath();
  context.rect(view.gutter, view.axis, view.width - view.gutter, view.height - view.axis);
  context.clip();
  for (const wake of inWindow) {
    const [a, b] = arrowEnds(view, wake);
    if (a === undefined || b === undefined || a === b && view.mode === "thread") continue;
    drawArrow(context, view.colours, view.gutter + (wake.time - view.from) / view.scale, middle(a), middle(b), wake.kind);
    drawn++;
  }
  context.restore();
  return { found: inWindow.length, drawn };
}

// A call is a solid line, its reply a dashed one, another wakeup a dotted one; the head stands where the thread was woken.
function drawArrow(context, colours, x, from, to, kind) {
  const way = Math.sign(to - from) || 1;
  context.strokeStyle = context.fillStyle = colours.ink;
  context.lineWidth = 1.4;
  context.setLineDash(kind === RECEIVE ? [] : kind === CALL ? [6, 3] : [1.5, 3]);
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, to - 5 * way);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.arc(x, from, 2, 0, 7);
  context.fill();
  context.beginPath();
  context.moveTo(x, to);
  context.lineTo(x - 3.5, to - 7 * way);
  context.lineTo(x + 3.5, to - 7 * way);
  context.closePath();
  context.fill();
}
