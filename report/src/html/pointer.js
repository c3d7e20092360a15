// What wheel and pointer do to a timeline, which is called the view here.

function listen(view) {
  const { canvas } = view;
  view.scroller.addEventListener("scroll", () => view.draw());
  canvas.addEventListener("wheel", (event) => onWheel(view, event), { passive: false });
  canvas.addEventListener("pointerdown", (event) => onPress(view, event));
  canvas.addEventListener("pointermove", (event) => {
    const { offsetX: x, offsetY: y } = event;
    if (!event.buttons) view.onHover(findEvents(view, x, y) || view.find(x, y), event);
  });
  canvas.addEventListener("pointerleave", () => view.onHover(undefined));
  canvas.addEventListener("dblclick", (event) => {
    const found = view.find(event.offsetX, event.offsetY);
    if (!found) return;
    if (found.interval === undefined) return view.zoom(0.25, view.timeAt(event.offsetX));
    const { start, end } = intervals, length = end[found.interval] - start[found.interval];
    view.show(start[found.interval] - length / 4, end[found.interval] + length / 4);
  });
  view.overview.addEventListener("pointerdown", (event) => onPressOverview(view, event));
  new ResizeObserver(() => {
    if (view.width !== canvas.clientWidth) view.layout();
  }).observe(canvas);
  addEventListener("resize", () => view.layout());
}

function onWheel(view, event) {
  const lines = event.deltaMode === 1 ? 16 : 1;
  if (event.offsetX < view.gutter) return; // The scroller takes it.
  event.preventDefault();
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.pan(sideways * lines / (view.width - view.gutter));
  else view.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY * lines)) * 0.0022), view.timeAt(event.offsetX));
  view.onHover(undefined);
}

// Ends all listeners of one press together, whichever way it ends.
function untilReleased() {
  const controller = new AbortController();
  return { signal: controller.signal, stop: () => controller.abort() };
}

// Drag to move, drag on the axis or with shift to mark and zoom, press without moving to pick.
function onPress(view, event) {
  if (event.button !== 0) return;
  const { canvas } = view, marks = event.shiftKey || event.offsetY < view.axis;
  const began = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, scroll: view.scroller.scrollTop };
  const origin = view.timeAt(event.offsetX), box = canvas.getBoundingClientRect();
  let moved = false;
  const { signal, stop } = untilReleased();
  canvas.setPointerCapture(event.pointerId);
  view.onHover(undefined);
  const move = (now) => {
    const dx = now.clientX - began.x, dy = now.clientY - began.y;
    moved = moved || Math.hypot(dx, dy) > 4;
    if (!moved) return;
    canvas.classList.toggle("dragging", !marks);
    if (marks) {
      view.marking = [origin, Math.min(Math.max(view.timeAt(now.clientX - box.left), view.from), view.to)];
      view.draw();
    } else {
      view.scroller.scrollTop = began.scroll - dy;
      view.show(began.from - dx * view.scale, began.to - dx * view.scale);
    }
  };
  const done = (now) => {
    stop();
    canvas.classList.remove("dragging");
    const { marking } = view;
    view.marking = undefined;
    if (marking) view.show(Math.min(...marking), Math.max(...marking));
    else if (!moved && now.type === "pointerup") pick(view, event);
  };
  canvas.addEventListener("pointermove", move, { signal });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, done, { signal });
}

function pick(view, event) {
  if (view.mode === "thread" && event.offsetX < view.gutter) return view.onPick(view.laneAt(event.offsetY) ?? -1);
  const found = view.find(event.offsetX, event.offsetY);
  if (!found) return view.onPick(-1);
  view.cursor = found.interval;
  return view.onPick(found.interval === undefined ? found.parts[0][0] : intervals.thread[found.interval]);
}

// In the overview: drag the window, or mark a new one outside it.
function onPressOverview(view, event) {
  const { overview } = view, box = overview.getBoundingClientRect();
  const time = (now) => Math.min(Math.max((now.clientX - box.left) / box.width, 0), 1) * view.span;
  const origin = time(event), length = view.to - view.from;
  const inside = origin >= view.from && origin <= view.to && length < view.span * 0.999;
  const { from } = view, { signal, stop } = untilReleased();
  overview.setPointerCapture(event.pointerId);
  const move = (now) => {
    const at = time(now);
    if (inside) view.show(from + at - origin, from + at - origin + length);
    else if (Math.abs(at - origin) > view.span / 500) view.show(Math.min(at, origin), Math.max(at, origin));
  };
  const done = (now) => {
    stop();
    const click = Math.abs(time(now) - origin) <= view.span / 500;
    if (click && !inside && length < view.span * 0.999) view.show(origin - length / 2, origin + length / 2);
  };
  overview.addEventListener("pointermove", move, { signal });
  for (const kind of ["pointerup", "pointercancel"]) overview.addEventListener(kind, done, { signal });
}
