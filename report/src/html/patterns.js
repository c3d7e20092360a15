// What each state looks like, in pixels: told apart by shape, and by colour besides.
//
// A pattern says of a pixel whether it is drawn; x and y count from the corner of the row, in units of a CSS pixel.

const PATTERNS = {
  runs: () => true,
  ready: (x, y, h) => y >= h * 0.3 && (x + y) % 6 < 2,
  held: (x, y, h) => y >= h * 0.3 && (Math.floor(x / 3) + Math.floor(y / 3)) % 2 === 0,
  throttled: (x) => x % 4 < 2,
  sleep: (x, y, h) => y >= h - 3 && y < h - 1 && x % 6 < 2,
  call: (x, y, h) => Math.abs(y - h / 2) < 2,
  receive: (x, y, h) => Math.abs(y - h / 2) < 0.75,
  park: (x, y, h) => Math.abs(y - h / 2) < 1 && x % 12 < 7,
  join: (x, y, h) => Math.abs(Math.abs(y - h / 2) - 2) < 0.75,
  ring: (x, y, h) => Math.abs(y - h / 2) < 1 && (x % 14 < 6 || x % 14 >= 9 && x % 14 < 11),
};

// The colour of a state on the style sheet; running has that of its thread.
const STATE_INK = { ready: "--warn", held: "--quiet", throttled: "--bad", sleep: "--quiet", call: "--accent", receive: "--quiet", park: "--quiet", join: "--quiet", ring: "--accent" };

// Fills columns from..to of the rows top..bottom of pixels with a pattern.
function fillPattern(target, name, from, to, top, bottom, colour) {
  const { pixels, stride, unit } = target, pattern = PATTERNS[name], height = target.height / unit;
  for (let y = top; y < bottom; y++) {
    const inRow = Math.floor((y - target.top) / unit);
    for (let x = from; x < to; x++) if (pattern(Math.floor(x / unit), inRow, height)) pixels[y * stride + x] = colour;
  }
}
