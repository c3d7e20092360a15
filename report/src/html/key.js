// The key: every mark of the timeline, drawn by the code that draws it there.

const KEY = [
  ["runs", "runs, in its thread's colour"], ["ready", "ready: waits for a CPU"], ["throttled", "throttled: its budget is used up"],
  ["held", "held: may not be chosen"], ["sleep", "sleeps"], ["call", "blocked: waits for a reply"], ["receive", "blocked: waits for a request"],
  ["park", "blocked: parked"], ["join", "blocked: waits for a thread's end"], ["ring", "blocked: waits for completions"],
];
const KEY_MARKS = [
  ["miss", "missed deadline; press it to see why"], ["good", "time given: refill, bind"], ["accent", "time lent or returned"],
  ["bad", "time that ran out or was taken away"], ["warn", "anything else"],
];
const KEY_ARROWS = [[RECEIVE, "call"], [CALL, "reply"], [SLEEP, "other wakeup"]];

function keySample(draw) {
  const WIDTH = 44, HEIGHT = 22, ratio = devicePixelRatio || 1;
  const canvas = element("canvas", { width: String(Math.round(WIDTH * ratio)), height: String(Math.round(HEIGHT * ratio)), "aria-hidden": "true" });
  canvas.style.cssText = `width:${WIDTH}px;height:${HEIGHT}px`;
  draw(canvas.getContext("2d"), canvas, ratio, WIDTH, HEIGHT);
  return canvas;
}

function showKey(colours) {
  const states = KEY.map(([name, words]) => [keySample((context, canvas, ratio) => {
    const image = context.createImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer);
    pixels.fill(colours.lane);
    const target = { pixels, stride: canvas.width, top: 0, height: canvas.height, width: canvas.width, unit: Math.max(1, Math.round(ratio)) };
    fillPattern(target, name, 0, canvas.width, 0, canvas.height, name === "runs" ? packed(mix(variable("--accent"), variable("--panel"), 0.35)) : colours.states[name]);
    context.putImageData(image, 0, 0);
  }), words]);
  const marks = KEY_MARKS.map(([tone, words]) => [keySample((context, canvas, ratio, width, height) => {
    context.scale(ratio, ratio);
    drawMark(context, colours, width / 2, height - 3, tone, false, height);
  }), words]);
  const arrows = KEY_ARROWS.map(([kind, words]) => [keySample((context, canvas, ratio, width, height) => {
    context.scale(ratio, ratio);
    context.translate(0, height);
    context.rotate(-Math.PI / 2);
    drawArrow(context, colours, height / 2, 4, width - 4, kind);
  }), words]);
  const several = [["", "a column that holds several intervals: its height is the part of the time, the whole row is 100 %"],
    ["", "stripes along the head of a CPU's row: threads that are ready there, one line each, at most four"]];
  byId("key-list").replaceChildren(...[...states, ...marks, ...arrows, ...several].map(([sample, words]) => element("li", {}, sample, element("span", {}, words))));
}
