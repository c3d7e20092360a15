// What wheel, pointer and fingers do to a timeline, which is called the view here.

function listen(view) {
  const { canvas } = view;
  view.scroller.addEventListener("scroll", () => view.draw());
  canvas.addEventListener("wheel", (event) => onWheel(view, event), { passive: false });
  canvas.addEventListener("pointerdown", (event) => onPress(view, event));
  canvas.addEventListener("pointermove", (event) => {
    const { offsetX: x, offsetY: y } = event;
    if (!event.buttons && event.pointerType !== "touch") view.onHover(findEvents(view, x, y) || view.find(x, y), event);
  });
  canvas.addEventListener("pointerleave", () => view.onHover(undefined));
  canvas.addEventListener("dblclick", (event) => {
    const found = view.find(event.offsetX, event.offsetY);
    if (found?.interval === undefined) return view.zoom(0.25, view.timeAt(event.offsetX));
    const { start, end } = view.rows, length = end[found.interval] - start[found.interval];
    return view.show(start[found.interval] - length / 4, end[found.interval] + length / 4);
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

// Fingers on the canvas, by their number. The browser scrolls up and down with one; the rest comes here.
const fingers = new Map();

// Drag to move, drag on the axis or with shift to mark and zoom, press without moving to pick; two fingers zoom.
function onPress(view, event) {
  if (event.button !== 0) return;
  const { canvas } = view, touch = event.pointerType === "touch";
  if (touch) fingers.set(event.pointerId, event.clientX);
  const marks = !touch && (event.shiftKey || event.offsetY < view.axis);
  const began = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, scroll: view.scroller.scrollTop };
  const origin = view.timeAt(event.offsetX), box = canvas.getBoundingClientRect();
  let moved = false;
  const { signal, stop } = untilReleased();
  canvas.setPointerCapture(event.pointerId);
  view.onHover(undefined);
  const move = (now) => {
    if (now.pointerId !== event.pointerId) return;
    if (touch && fingers.size > 1) {
      moved = true;
      return pinch(view, box, now);
    }
    const dx = now.clientX - began.x, dy = now.clientY - began.y;
    moved = moved || Math.hypot(dx, dy) > (touch ? 8 : 4);
    if (!moved) return;
    canvas.classList.toggle("dragging", !marks);
    if (marks) {
      view.marking = [origin, Math.min(Math.max(view.timeAt(now.clientX - box.left), view.from), view.to)];
      view.draw();
    } else {
      if (!touch) view.scroller.scrollTop = began.scroll - dy;
      view.show(began.from - dx * view.scale, began.to - dx * view.scale);
    }
  };
  const done = (now) => {
    if (now.pointerId !== event.pointerId) return;
    stop();
    fingers.delete(event.pointerId);
    canvas.classList.remove("dragging");
    const { marking } = view;
    view.marking = undefined;
    if (marking) view.show(Math.min(...marking), Math.max(...marking));
    else if (!moved && now.type === "pointerup") press(view, event, touch);
  };
  canvas.addEventListener("pointermove", move, { signal });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, done, { signal });
}

// One of two fingers has moved: the times under both stay under them.
function pinch(view, box, now) {
  const other = [...fingers].find(([id]) => id !== now.pointerId)[1], before = fingers.get(now.pointerId);
  const was = Math.max(20, Math.abs(before - other)), is = Math.max(20, Math.abs(now.clientX - other));
  view.zoom(was / is, view.timeAt((other + before) / 2 - box.left));
  fingers.set(now.pointerId, now.clientX);
}

function press(view, event, touch) {
  const { offsetX: x, offsetY: y } = event;
  if (x < view.gutter) return view.mode === "thread" ? view.onPick({ row: view.rowAt(y) }) : undefined;
  return view.onPick(findEvents(view, x, y, touch ? 12 : 4) || view.find(x, y));
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
