// The timeline: a window of time over rows, with an overview above it.
//
// Owns what is visible: window, rows, scroll position. What is highlighted comes from outside through `paint`;
// what the user picks goes outside through `onPick`. The pointer is handled in pointer.js.

class Timeline {
  constructor(element, { onPick, onHover, onWindow }) {
    this.canvas = element.querySelector("#lanes");
    this.overview = element.querySelector("#overview");
    this.scroller = element.querySelector("#scroller");
    this.spacer = element.querySelector("#spacer");
    Object.assign(this, { onPick, onHover, onWindow });
    let span = report.duration_ns;
    for (let i = 0; i < cpuRows.length; i++) if (cpuRows.end[i] > span) span = cpuRows.end[i];
    this.span = Math.max(span, 1);
    this.from = 0;
    this.to = this.span;
    this.modes = {};
    this.match = null;
    this.selected = -1;
    this.arrows = false;
    this.setMode("cpu");
    listen(this);
  }

  // Rows by CPU or by thread; each view is made when first asked for.
  setMode(mode) {
    this.mode = mode;
    this.modes[mode] = this.modes[mode] || {
      names: mode === "cpu" ? report.row_cpus.map((id) => `CPU ${id}`) : report.names.slice(0, threadRows.count),
      rows: mode === "cpu" ? cpuRows : threadRows, events: eventRows(mode),
    };
    ({ names: this.names, rows: this.rows, events: this.events } = this.modes[mode]);
    this.chooseRows();
  }

  // In the view by thread a filter hides rows; in the view by CPU it only dims intervals.
  chooseRows() {
    const all = this.names.map((_, row) => row);
    this.shown = this.mode === "thread" && this.match ? all.filter((row) => this.match[row]) : all;
    this.placeOf = new Map(this.shown.map((row, place) => [row, place]));
    this.layout();
  }

  layout() {
    const most = innerHeight * (innerWidth < 600 ? 0.5 : 0.62), room = Math.max(220, most - 30);
    this.axis = 26;
    this.rowHeight = Math.max(20, Math.min(46, Math.floor(room / Math.max(this.shown.length, 1))));
    this.width = this.canvas.clientWidth;
    this.gutter = this.measureGutter();
    const content = this.axis + this.shown.length * this.rowHeight + 6;
    this.height = Math.max(64, Math.min(content, Math.floor(most) - 2));
    this.spacer.style.height = `${Math.max(0, content - this.height)}px`;
    this.canvas.style.height = `${this.height}px`;
    this.ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.overview.width = Math.round(this.overview.clientWidth * this.ratio);
    this.overview.height = Math.round(this.overview.clientHeight * this.ratio);
    this.load = null;
    // For tests and scripts, which cannot ask a canvas where its rows are.
    Object.assign(this.canvas.dataset, { gutter: this.gutter, row: this.rowHeight });
    this.draw();
  }

  measureGutter() {
    const context = this.canvas.getContext("2d");
    context.font = this.font(12);
    // The widest is among those with the most letters, but need not be the one with the most.
    const LOOKED_AT = 200, longest = this.shown.length > LOOKED_AT ? Math.max(...this.shown.map((row) => this.names[row].length)) : 0;
    let widest = 0;
    for (const row of this.shown) if (this.names[row].length >= longest) widest = Math.max(widest, context.measureText(this.names[row].slice(-60)).width);
    return Math.min(220, Math.max(64, this.width * 0.3), Math.ceil(widest) + 26);
  }

  font(size) {
    return `${size}px ${getComputedStyle(document.body).fontFamily}`;
  }

  // Takes the colours: fill, edge and text per thread, and who is highlighted.
  paint(colours, selected, match) {
    const filtered = match !== this.match;
    Object.assign(this, { colours, selected, match });
    this.load = null;
    if (filtered && this.mode === "thread") this.chooseRows(); else this.draw();
  }

  draw() {
    if (this.scheduled || !this.colours) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.drawRows();
      drawOverview(this);
      this.onWindow(this.from, this.to);
    });
  }

  // Nanoseconds per CSS pixel.
  get scale() {
    return (this.to - this.from) / Math.max(this.width - this.gutter, 1);
  }

  drawRows() {
    const { ratio } = this, context = this.canvas.getContext("2d");
    const gutter = Math.round(this.gutter * ratio), top = Math.round(this.axis * ratio);
    const width = this.canvas.width - gutter, height = this.canvas.height - top;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (width <= 0 || height <= 0) return;
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(this.colours.panel);
    const view = { from: this.from, scale: this.scale / ratio }, labels = [];
    for (const { row, y } of this.visibleRows()) {
      const from = Math.round((y - this.axis + 2) * ratio), to = Math.round((y - this.axis + this.rowHeight - 1) * ratio);
      this.drawOneRow({ pixels, stride: width, width, unit: Math.max(1, Math.round(ratio)) }, row, Math.max(from, 0), Math.min(to, height), view, labels);
    }
    context.putImageData(image, gutter, top);
    context.scale(ratio, ratio);
    this.drawLabels(context, labels);
    this.drawNames(context);
    this.drawAxis(context);
    this.arrowsFound = this.arrows ? drawArrows(this, context) : null;
    drawEvents(this, context);
    this.drawMarks(context);
  }

  drawOneRow(buffer, row, top, bottom, view, labels) {
    if (bottom <= top) return;
    const end = Math.min(buffer.width, Math.ceil((this.span - view.from) / view.scale));
    for (let y = top; y < bottom; y++) buffer.pixels.fill(this.colours.lane, y * buffer.stride, y * buffer.stride + Math.max(end, 0));
    const target = { ...buffer, top, height: bottom - top }, labelWidth = 30 * this.ratio;
    const draw = this.mode === "cpu" ? drawCpuRow : drawThreadRow;
    const wide = draw(target, row, view, this.colours, labelWidth);
    if (this.mode === "cpu") drawWaiting(target, row, view, this.colours.states.ready);
    for (const { i, from, to } of wide) {
      labels.push({ i, x: this.gutter + from / this.ratio, width: (to - from) / this.ratio, y: this.axis + (top + bottom) / 2 / this.ratio });
    }
  }

  *visibleRows() {
    const scrolled = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(scrolled / this.rowHeight));
    for (let place = first; place < this.shown.length; place++) {
      const y = this.axis + place * this.rowHeight - scrolled;
      if (y > this.height) return;
      yield { row: this.shown[place], place, y };
    }
  }

  // What an interval is called inside its box, and in which colour; a state stands on a plate, so that it can be read.
  labelOf(i) {
    if (this.mode === "cpu") {
      const name = report.names[cpuRows.thread[i]], colour = this.colours.text(cpuRows.thread[i]);
      return cpuRows.reason[i] === SEVERAL ? { text: `mostly ${name}`, colour, whole: true } : { text: name, colour };
    }
    const kind = threadRows.kind[i], row = this.rowOfInterval(i);
    if (kind === RUNS) return { text: `CPU ${threadRows.cpu[i]}`, colour: this.colours.text(row) };
    if (kind === MIXED) return { text: "", colour: "" };
    return { text: KINDS[kind], colour: this.colours.ink, plate: true, whole: true };
  }

  rowOfInterval(i) {
    let from = 0, to = this.rows.count;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (this.rows.first[middle + 1] > i) to = middle; else from = middle + 1;
    }
    return from;
  }

  drawLabels(context, labels) {
    context.font = this.font(11.5);
    context.textBaseline = "middle";
    for (const { i, x, y, width } of labels) {
      const { text, colour, plate, whole } = this.labelOf(i), room = width - 8, wanted = context.measureText(text).width;
      // A name cut short is still a name, but three letters of it are noise.
      if (!text || wanted > room && (room < 40 || whole)) continue;
      if (plate) {
        context.fillStyle = this.colours.plate;
        context.fillRect(x + 3, y - 7, wanted + 4, 14);
      }
      context.fillStyle = colour;
      context.fillText(byEnd(context, text, room), x + 5, y + 0.5);
    }
  }

  drawNames(context) {
    context.font = this.font(12);
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, this.axis, this.gutter - 6, this.height);
    context.clip();
    for (const { row, y } of this.visibleRows()) {
      const isThread = this.mode === "thread", middle = y + this.rowHeight / 2 + 0.5, left = isThread ? 17 : 10;
      if (isThread) {
        context.fillStyle = css(this.colours.base[row]);
        context.fillRect(8, middle - 5.5, 4, 10);
      }
      context.fillStyle = isThread && this.selected >= 0 && row !== this.selected ? this.colours.quiet : this.colours.ink;
      context.fillText(byEnd(context, this.names[row], this.gutter - left - 7), left, middle);
    }
    context.restore();
  }

  drawAxis(context) {
    const { gutter, width, axis, from, to } = this;
    const step = niceStep(to - from, (width - gutter) / 115), format = axisFormat(to, step);
    context.fillStyle = this.colours.line;
    context.fillRect(0, axis - 1, width, 1);
    context.font = this.font(11.5);
    context.textBaseline = "middle";
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = Math.round(gutter + (tick - from) / this.scale);
      context.fillStyle = this.colours.grid;
      context.fillRect(x, axis - 6, 1, this.height);
      context.fillStyle = this.colours.quiet;
      if (x + 4 + context.measureText(format(tick)).width < width) context.fillText(format(tick), x + 4, axis / 2);
    }
  }

  drawMarks(context) {
    context.fillStyle = context.strokeStyle = this.colours.accent;
    if (this.marking) {
      const [a, b] = this.marking.map((time) => this.gutter + (time - this.from) / this.scale);
      context.globalAlpha = 0.22;
      context.fillRect(Math.min(a, b), 0, Math.abs(b - a), this.height);
      context.globalAlpha = 1;
    }
    if (this.moment !== undefined && this.moment >= this.from && this.moment <= this.to) {
      context.fillRect(Math.round(this.gutter + (this.moment - this.from) / this.scale) - 0.5, this.axis - 8, 1.5, this.height);
    }
    const cursor = this.cursorHere();
    if (cursor === undefined) return;
    const place = this.placeOf.get(this.rowOfInterval(cursor)), y = this.axis + place * this.rowHeight - this.scroller.scrollTop;
    const x = this.gutter + (this.rows.start[cursor] - this.from) / this.scale;
    const width = Math.max(3, (this.rows.end[cursor] - this.rows.start[cursor]) / this.scale);
    context.lineWidth = 2;
    if (place !== undefined && y >= this.axis) context.strokeRect(x - 1, y + 1, width + 2, this.rowHeight - 1);
  }

  // The interval of this view that the cursor is on: {thread, time} in any view.
  cursorHere() {
    if (!this.cursor) return undefined;
    const { thread, time } = this.cursor, inThread = intervalAt(threadRows, thread, time);
    if (this.mode === "thread") return inThread;
    return inThread === undefined || threadRows.kind[inThread] !== RUNS ? undefined : intervalAt(cpuRows, cpuRow.get(threadRows.cpu[inThread]), time);
  }

  show(from, to) {
    const least = Math.min(20, this.span); // Nanoseconds; closer there is nothing to see.
    const length = Math.min(Math.max(to - from, least), this.span);
    this.from = Math.min(Math.max(0, from + (to - from - length) / 2), this.span - length);
    this.to = this.from + length;
    this.draw();
  }

  fit() {
    this.show(0, this.span);
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(fraction) {
    const by = (this.to - this.from) * fraction;
    this.show(this.from + by, this.to + by);
  }

  timeAt(x) {
    return this.from + (x - this.gutter) * this.scale;
  }

  rowAt(y) {
    const place = Math.floor((y - this.axis + this.scroller.scrollTop) / this.rowHeight);
    return y < this.axis ? undefined : this.shown[place];
  }

  // What is under the pointer: one interval, or the threads that share a column of pixels.
  find(x, y) {
    const row = this.rowAt(y), { rows } = this;
    if (row === undefined || x < this.gutter) return undefined;
    const left = this.timeAt(x), right = left + this.scale;
    const from = firstEndingAfter(rows, rows.first[row], rows.first[row + 1], left);
    const to = firstStartingAt(rows, from, rows.first[row + 1], right);
    if (to - from < 1) return { row, time: left };
    if (to - from === 1) return { row, interval: from, time: Math.max(left, rows.start[from]) };
    const found = { row, count: to - from, scale: this.scale, time: left };
    if (this.mode === "thread") return { ...found, times: timesIn(from, to, left, right) };
    return { ...found, parts: shares(from, to, left, right).sort((a, b) => b[1] - a[1]) };
  }

  // Brings the row of a thread, or of the CPU where it was, into sight.
  scrollTo(thread, time) {
    const place = this.placeOf.get(this.mode === "thread" ? thread : cpuRow.get(cpuOf(thread, time)));
    if (place === undefined) return;
    const y = place * this.rowHeight, { scrollTop } = this.scroller, room = this.height - this.axis - this.rowHeight;
    if (y < scrollTop || y > scrollTop + room) this.scroller.scrollTop = y - room / 2;
  }

  // Shows an interval of a thread that was reached by key: in the window, not too small, and its row in sight.
  reveal(thread, i) {
    const start = threadRows.start[i], length = threadRows.end[i] - start, span = this.to - this.from;
    this.cursor = { thread, time: start };
    if (length < span / 200) this.show(start - length * 20, start + length * 21);
    else if (start < this.from || start + length > this.to) this.show(start - span / 3, start + span * 2 / 3);
    this.scrollTo(thread, start);
    this.draw();
  }
}

// A text that fits into `room`, if need be without its beginning: names differ at their end.
function byEnd(context, text, room) {
  const wanted = context.measureText(text).width;
  if (wanted <= room) return text;
  let cut = text.slice(text.length - Math.max(1, Math.floor(text.length * room / wanted)));
  while (cut.length > 1 && context.measureText(`…${cut}`).width > room) cut = cut.slice(1);
  return `…${cut}`;
}
