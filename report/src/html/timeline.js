// The timeline: a window of time over lanes, with an overview above it.
//
// Owns what is visible: window, lanes, scroll position. What is highlighted comes from outside through `paint`;
// what the user picks goes outside through `onPick`. The pointer is handled in pointer.js.

class Timeline {
  constructor(element, { onPick, onHover, onWindow }) {
    this.canvas = element.querySelector("#lanes");
    this.overview = element.querySelector("#overview");
    this.scroller = element.querySelector("#scroller");
    this.spacer = element.querySelector("#spacer");
    Object.assign(this, { onPick, onHover, onWindow });
    let span = report.duration_ns;
    for (let i = 0; i < intervals.length; i++) if (intervals.end[i] > span) span = intervals.end[i];
    this.span = Math.max(span, 1);
    this.from = 0;
    this.to = this.span;
    this.modes = {};
    this.match = null;
    this.selected = -1;
    this.setMode("cpu");
    listen(this);
  }

  // Lanes by CPU or by thread; each is sorted when first asked for.
  setMode(mode) {
    this.mode = mode;
    this.modes[mode] = this.modes[mode] || makeLanes(mode);
    ({ names: this.names, lanes: this.lanes, events: this.events } = this.modes[mode]);
    this.chooseLanes();
  }

  // In the view by thread a filter hides lanes; in the view by CPU it only dims intervals.
  chooseLanes() {
    const all = this.names.map((_, lane) => lane);
    this.shown = this.mode === "thread" && this.match ? all.filter((lane) => this.match[lane]) : all;
    this.layout();
  }

  layout() {
    const room = Math.max(220, innerHeight * 0.62 - 30);
    this.axis = 26;
    this.laneHeight = Math.max(this.mode === "cpu" ? 16 : 18, Math.min(46, Math.floor(room / Math.max(this.shown.length, 1))));
    this.gutter = this.measureGutter();
    const content = this.axis + this.shown.length * this.laneHeight + 6;
    this.height = Math.max(64, Math.min(content, Math.floor(innerHeight * 0.62) - 2));
    this.spacer.style.height = `${Math.max(0, content - this.height)}px`;
    this.canvas.style.height = `${this.height}px`;
    this.ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.overview.width = Math.round(this.overview.clientWidth * this.ratio);
    this.overview.height = Math.round(this.overview.clientHeight * this.ratio);
    this.load = null;
    this.draw();
  }

  measureGutter() {
    const context = this.canvas.getContext("2d");
    context.font = this.font(12);
    let longest = "";
    for (const lane of this.shown) if (this.names[lane].length > longest.length) longest = this.names[lane];
    return Math.min(220, Math.ceil(context.measureText(longest).width) + 22);
  }

  font(size) {
    return `${size}px ${getComputedStyle(document.body).fontFamily}`;
  }

  // Takes the colours: fill, edge and text per thread, and who is highlighted.
  paint(colours, selected, match) {
    const filtered = match !== this.match;
    Object.assign(this, { colours, selected, match });
    this.load = null;
    if (filtered && this.mode === "thread") this.chooseLanes(); else this.draw();
  }

  draw() {
    if (this.scheduled || !this.colours) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.drawLanes();
      drawOverview(this);
      this.onWindow(this.from, this.to);
    });
  }

  // Nanoseconds per CSS pixel.
  get scale() {
    return (this.to - this.from) / Math.max(this.width - this.gutter, 1);
  }

  drawLanes() {
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
    for (const { lane, y } of this.visibleLanes()) {
      const from = Math.round((y - this.axis + 2) * ratio), to = Math.round((y - this.axis + this.laneHeight - 1) * ratio);
      this.drawOneLane({ pixels, stride: width, width, height }, lane, Math.max(from, 0), Math.min(to, height), view, labels);
    }
    context.putImageData(image, gutter, top);
    context.scale(ratio, ratio);
    this.drawLabels(context, labels);
    this.drawNames(context);
    this.drawAxis(context);
    drawEvents(this, context);
    this.drawMarks(context);
  }

  drawOneLane(buffer, lane, top, bottom, view, labels) {
    if (bottom <= top) return;
    const end = Math.min(buffer.width, Math.ceil((this.span - view.from) / view.scale));
    for (let y = top; y < bottom; y++) buffer.pixels.fill(this.colours.lane, y * buffer.stride, y * buffer.stride + Math.max(end, 0));
    const target = { ...buffer, top, height: bottom - top };
    const boxes = drawLane(target, this.lanes, lane, view, this.colours.fill, this.colours.edge, 34 * this.ratio);
    for (const { i, from, to } of boxes) {
      labels.push({ i, x: this.gutter + from / this.ratio, width: (to - from) / this.ratio, y: this.axis + (top + bottom) / 2 / this.ratio });
    }
  }

  *visibleLanes() {
    const scrolled = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(scrolled / this.laneHeight));
    for (let row = first; row < this.shown.length; row++) {
      const y = this.axis + row * this.laneHeight - scrolled;
      if (y > this.height) return;
      yield { lane: this.shown[row], row, y };
    }
  }

  drawLabels(context, labels) {
    context.font = this.font(11.5);
    context.textBaseline = "middle";
    for (const { i, x, y, width } of labels) {
      if (this.laneHeight < 15) break;
      const text = this.mode === "cpu" ? report.names[intervals.thread[i]] : `CPU ${intervals.cpu[i]}`;
      const room = width - 8, wanted = context.measureText(text).width;
      // A name cut short is still a name, but three letters of it are noise.
      if (wanted > room && room < 40) continue;
      context.fillStyle = this.colours.text(intervals.thread[i]);
      context.fillText(wanted > room ? `${text.slice(0, Math.floor(text.length * room / wanted) - 1)}…` : text, x + 5, y + 0.5);
    }
  }

  drawNames(context) {
    context.font = this.font(12);
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, this.axis, this.gutter - 6, this.height);
    context.clip();
    for (const { lane, y } of this.visibleLanes()) {
      const isThread = this.mode === "thread", middle = y + this.laneHeight / 2 + 0.5;
      if (isThread) {
        context.fillStyle = css(this.colours.base[lane]);
        context.fillRect(8, middle - 5.5, 4, 10);
      }
      context.fillStyle = isThread && this.selected >= 0 && lane !== this.selected ? this.colours.quiet : this.colours.ink;
      context.fillText(this.names[lane], isThread ? 17 : 10, middle);
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
      if (x + 30 < width) context.fillText(format(tick), x + 4, axis / 2);
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
    if (this.cursor !== undefined) {
      const row = this.rowOf(this.cursor), y = this.axis + row * this.laneHeight - this.scroller.scrollTop;
      const x = this.gutter + (intervals.start[this.cursor] - this.from) / this.scale;
      const width = Math.max(3, (intervals.end[this.cursor] - intervals.start[this.cursor]) / this.scale);
      context.lineWidth = 2;
      if (row >= 0 && y >= this.axis) context.strokeRect(x - 1, y + 1, width + 2, this.laneHeight - 1);
    }
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

  // The row that shows an interval; -1 if a filter hides it.
  rowOf(i) {
    return this.shown.indexOf(this.mode === "cpu" ? cpuLane.get(intervals.cpu[i]) : intervals.thread[i]);
  }

  laneAt(y) {
    const row = Math.floor((y - this.axis + this.scroller.scrollTop) / this.laneHeight);
    return y < this.axis ? undefined : this.shown[row];
  }

  // What is under the pointer: one interval, or the threads that share a column of pixels.
  find(x, y) {
    const lane = this.laneAt(y);
    if (lane === undefined || x < this.gutter) return undefined;
    const { lanes } = this, left = this.timeAt(x), right = left + this.scale;
    const from = firstEndingAfter(lanes, lanes.first[lane], lanes.first[lane + 1], left);
    const to = firstStartingAt(lanes, from, lanes.first[lane + 1], right);
    if (to - from < 1) return undefined;
    if (to - from === 1) return { interval: lanes.order[from] };
    const parts = shares(lanes, from, to, left, right).sort((a, b) => b[1] - a[1]);
    return { lane: this.names[lane], count: to - from, parts, scale: this.scale, left };
  }

  // Shows an interval that was reached by key: in the window, not too small, and its lane in sight.
  reveal(i) {
    this.cursor = i;
    const start = intervals.start[i], length = intervals.end[i] - start, span = this.to - this.from;
    if (length < span / 200) this.show(start - length * 20, start + length * 21);
    else if (start < this.from || start + length > this.to) this.show(start - span / 3, start + span * 2 / 3);
    const y = this.rowOf(i) * this.laneHeight;
    const { scrollTop } = this.scroller, room = this.height - this.axis - this.laneHeight;
    if (y < scrollTop || y > scrollTop + room) this.scroller.scrollTop = y - room / 2;
    this.draw();
  }
}
