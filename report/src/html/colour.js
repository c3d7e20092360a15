// A colour per thread, the same in every view and on every run of a workload: a hue per name, a shade per
// instance. Hues go round by the golden angle, so that neighbours in the file differ most.

const darkScheme = matchMedia("(prefers-color-scheme: dark)");

function stem(name) {
  return name.replace(/(.)\.(\d+|\*)$/, "$1");
}

// OKLCH to 8-bit sRGB. In this space equal lightness looks equally light, which HSL does not give.
function oklch(lightness, chroma, degrees) {
  const a = chroma * Math.cos(degrees * Math.PI / 180), b = chroma * Math.sin(degrees * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
  ].map((linear) => {
    const v = Math.min(Math.max(linear, 0), 1);
    return Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055));
  });
}

function threadColours() {
  const hues = new Map(), seen = new Map(), dark = darkScheme.matches;
  return report.names.map((name) => {
    const group = stem(name);
    if (!hues.has(group)) hues.set(group, hues.size);
    const instance = seen.get(group) || 0;
    seen.set(group, instance + 1);
    const shade = [0, 0.07, -0.06, 0.035, -0.03][instance % 5];
    const drift = instance ? (instance * 61) % 45 - 22 : 0;
    return oklch((dark ? 0.67 : 0.75) + shade, dark ? 0.12 : 0.125, 250 + hues.get(group) * 137.508 + drift);
  });
}

const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
const packed = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
const mix = (from, to, part) => from.map((value, i) => Math.round(value + (to[i] - value) * part));

// A colour of the style sheet, as three numbers.
function variable(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
