// Numbers for people. All times are nanoseconds.

const UNITS = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];

function unitOf(ns) {
  let unit = UNITS[0];
  for (const candidate of UNITS) if (Math.abs(ns) >= candidate[1] * 0.9995) unit = candidate;
  return unit;
}

// Three significant digits: 1.23 ms.
function duration(ns) {
  if (ns < 1000) return `${Math.round(ns)} ns`;
  const [name, scale] = unitOf(ns);
  const value = ns / scale;
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${name}`;
}

// To the nanosecond, without trailing zeros: 12.345678 ms.
function instant(ns) {
  if (ns === 0) return "0";
  const [name, scale] = unitOf(ns);
  const digits = (ns / scale).toFixed(Math.log10(scale));
  return `${digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits} ${name}`;
}

function count(n) {
  return n.toLocaleString("en-US");
}

function rate(n, ns) {
  if (!ns) return "–";
  const value = n / (ns / 1e9);
  const [scale, prefix] = value >= 999.5e6 ? [1e9, "G"] : value >= 999.5e3 ? [1e6, "M"] : value >= 999.5 ? [1e3, "k"] : [1, ""];
  return `${(value / scale).toPrecision(3)} ${prefix}`;
}

function percent(fraction) {
  return (fraction * 100).toFixed(1);
}

// A step of 1, 2 or 5 times a power of ten, of which about `room` fit into `span`.
function niceStep(span, room) {
  const raw = Math.max(span / Math.max(room, 1), 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
}

// Labels for an axis that ends at `last`, one unit for all: the largest in which they stay short.
function axisFormat(last, step) {
  const fits = (scale) => step / scale >= 0.9e-6 && last / scale >= 1;
  const [name, scale] = [...UNITS].reverse().find(([, candidate]) => fits(candidate)) || UNITS[0];
  const decimals = Math.max(0, Math.ceil(Math.log10(scale / step) - 1e-9));
  return (ns) => ns === 0 ? "0" : `${(ns / scale).toFixed(decimals)} ${name}`;
}
