// The page in a real browser: that it opens without an error, that everybody can use it, and what keys, fingers and the
// address do. `make test-page` runs this, with MAINSPRING the command and CHROMIUM the browser.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";

const { MAINSPRING, CHROMIUM = "/usr/bin/chromium", WORKLOADS, PAGES, MODULES } = process.env;
const load = createRequire(`${MODULES}/`);
const { chromium } = load("playwright-core");
const axe = readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");

const NAMES = ["tour", "robot-control", "inversion-off", "voice-agent", "sqpoll-lease", "audio-graph"];
const DESKTOP = { width: 1400, height: 1000 }, PHONE = { width: 390, height: 800 };

const mainspring = (...args) => execFileSync(MAINSPRING, args, { encoding: "utf8", maxBuffer: 1 << 26 });
const pageOf = (name) => `${PAGES}/${name}.html`;
// As the page writes times, so that its words can be compared with the command's.
const pressed = (text) => text.replaceAll("µs", "us").replace(/(\d) (ns|us|ms|s)\b/g, "$1$2");

let browser;
before(async () => {
  mkdirSync(PAGES, { recursive: true });
  for (const name of NAMES) mainspring("run", `${WORKLOADS}/${name}.toml`, "--html", pageOf(name), "--quiet");
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-quic"] });
});
after(() => browser?.close());

// Opens a page; any error or request to the network fails the test that uses it.
async function open(name, { hash = "", viewport = DESKTOP, ...options } = {}) {
  const context = await browser.newContext({ viewport, ...options });
  const page = await context.newPage(), faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  page.on("request", (request) => request.url().startsWith("file:") || faults.push(`asked for ${request.url()}`));
  await page.goto(`${pathToFileURL(pageOf(name))}${hash}`);
  await page.waitForFunction(() => document.getElementById("timeline").dataset.drawn);
  const close = async () => {
    await context.close();
    assert.deepEqual(faults, []);
  };
  const text = (selector) => page.innerText(selector);
  // The view as its address tells it, which is written a moment later.
  const view = async (key) => {
    await page.waitForTimeout(250);
    return new URLSearchParams(new URL(page.url()).hash.slice(1)).get(key);
  };
  return { page, close, text, view };
}

async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`);
}

describe("everybody can use the page", () => {
  for (const name of NAMES) {
    for (const [size, viewport] of [["a desk", DESKTOP], ["a phone", PHONE]]) {
      test(`${name} on ${size}`, async () => {
        for (const colorScheme of ["light", "dark"]) {
          const { page, close } = await open(name, { viewport, colorScheme });
          assert.deepEqual(await violations(page), [], colorScheme);
          await page.click("#by-thread");
          await page.click("#arrows");
          await page.click("#key summary");
          assert.deepEqual(await violations(page), [], `${colorScheme}, by thread, with the key`);
          await page.click("#title"); // A press elsewhere closes the key.
          await page.click("#legend button");
          assert.deepEqual(await violations(page), [], `${colorScheme}, with a thread highlighted`);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(overflow <= 0, `the page is ${overflow} pixels too wide`);
          await close();
        }
      });
    }
  }
});

test("keys zoom, move, choose rows, and go from miss to miss with the words of the command", async () => {
  const record = `${PAGES}/robot-control.msr`;
  mainspring("run", `${WORKLOADS}/robot-control.toml`, "--record", record, "--quiet");
  const { page, close, text, view } = await open("robot-control");
  await page.focus("#lanes");
  await page.keyboard.press("+");
  await page.keyboard.press("+");
  const [from, to] = (await view("t")).split("-").map(Number);
  assert.ok(to - from < 4e8 && from > 0, `${from} to ${to}`);
  await page.keyboard.press("ArrowRight");
  assert.ok(Number((await view("t")).split("-")[0]) > from);
  await page.keyboard.press("f");
  assert.equal(await view("t"), null);
  await page.keyboard.press("t");
  assert.equal(await view("by"), "thread");
  for (const number of [1, 2]) {
    await page.keyboard.press("m");
    assert.equal(await view("miss"), String(number));
    const told = pressed(mainspring("explain", record, "--miss", String(number)));
    const shown = pressed(await text("#explain"));
    for (const words of [/released at [\d.]+ms, due at [\d.]+ms: late, it ended [\d.]+us after its deadline/, /was throttled for [\d.]+ms/, /ran for [\d.]+ms/, /was ready for [\d.]+[mu]s, while its CPU ran [^\n]+/]) {
      const said = told.match(words)?.[0];
      assert.ok(said && shown.includes(said), `${words} of:\n${told}\nin:\n${shown}`);
    }
  }
  await page.keyboard.press("M");
  assert.equal(await view("miss"), "1");
  await page.keyboard.press("n");
  assert.match(await text("#explain-title"), /^camera at /);
  await page.keyboard.press("Escape");
  assert.equal(await page.isVisible("#explain"), false);
  await page.keyboard.press("/");
  await page.keyboard.type("servo");
  assert.equal(await view("filter"), "servo");
  assert.deepEqual(await page.$$eval("#legend button", (chips) => chips.map((chip) => chip.textContent)), ["servo"]);
  await close();
});

test("a press on the mark of a miss shows why it was missed", async () => {
  const { page, close, text } = await open("robot-control", { hash: "#by=thread&t=100000000-140000000" });
  const place = await page.evaluate(() => {
    const canvas = document.getElementById("lanes"), box = canvas.getBoundingClientRect();
    return { left: box.left, top: box.top, width: box.width };
  });
  // camera is the third row; its deadline at 132 ms is at four fifths of the window.
  const gutter = await page.evaluate(() => Number(document.getElementById("lanes").dataset.gutter));
  const row = await page.evaluate(() => Number(document.getElementById("lanes").dataset.row));
  const x = place.left + gutter + (place.width - gutter) * 0.8, y = place.top + 26 + 3 * row - 4;
  await page.mouse.click(x, y);
  assert.equal(await text("#explain-title"), "Miss 1: camera");
  assert.match(await text("#explain-body"), /was throttled for 22\.210741 ms/);
  await close();
});

test("the chain of waits is a picture that names each link", async () => {
  const { page, close } = await open("inversion-off", { hash: "#by=thread&thread=control&at=15000000" });
  const steps = await page.$$eval("#explain .chain .step", (all) => all.map((step) => [...step.children].map((part) => part.textContent)));
  assert.deepEqual(steps, [["control", "blocked (call)", "calls store"], ["store", "ready", "waits for"], ["CPU 0", "runs hog.1"]]);
  await close();
});

test("of several endpoints the chain names the one that is waited at, or says that it does not know", async () => {
  const thread = (name, ...program) => `[[thread]]\nname = "${name}"\nprogram = ${JSON.stringify(program)}\n`;
  const file = `${PAGES}/several.toml`;
  writeFileSync(file, `[machine]\nduration = "100ms"\n${thread("web", "run 1ms", "call db", "call log")}` +
    thread("db", "recv db", "sleep 10ms", "reply") + thread("log", "recv log", "sleep 10ms", "reply") + thread("lost", "run 1ms", "call none", "call db") +
    thread("none", "recv none", "park"));
  mainspring("run", file, "--html", pageOf("several"), "--quiet");
  const links = async (who, ms) => {
    const { page, close } = await open("several", { hash: `#by=thread&thread=${who}&at=${ms}000000` });
    const steps = await page.$$eval("#explain .chain .step", (all) => all.map((step) => [...step.children].map((part) => part.textContent)));
    await close();
    return steps;
  };
  assert.deepEqual(await links("web", 5), [["web", "blocked (call)", "calls db"], ["db", "sleeps"]]);
  assert.deepEqual(await links("web", 15), [["web", "blocked (call)", "calls log"], ["log", "sleeps"]]);
  assert.deepEqual((await links("lost", 50))[0], ["lost", "blocked (call)", "calls db or none"]);
});

test("the address brings the same view back", async () => {
  const hash = "#t=9000000-30000000&by=thread&thread=control&filter=o&wakeups=1&at=15000000";
  const { page, close, text, view } = await open("inversion-off", { hash });
  assert.match(await text("#window"), /^9 ms – 30 ms/);
  assert.match(await text("#scale"), /2 wakeups/);
  assert.equal(await text("#explain-title"), "control at 15 ms");
  await page.click("#zoom-in");
  await view("t");
  const again = await open("inversion-off", { hash: new URL(page.url()).hash });
  assert.equal(await again.text("#window"), await text("#window"));
  await again.close();
  await close();
});

test("fingers move, zoom and pick", async () => {
  const { page, close, view } = await open("tour", { viewport: PHONE, hasTouch: true, isMobile: true });
  const client = await page.context().newCDPSession(page);
  await page.locator("#lanes").scrollIntoViewIfNeeded();
  const box = await page.locator("#lanes").boundingBox();
  const y = box.y + 60, at = (x) => ({ x: box.x + x, y });
  const touch = (type, ...points) => client.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x], id) => ({ ...at(x), id })) });
  await touch("touchStart", [180], [240]);
  for (let step = 1; step <= 8; step++) await touch("touchMove", [180 - step * 8], [240 + step * 8]);
  await touch("touchEnd");
  const [from, to] = (await view("t")).split("-").map(Number);
  assert.ok(to - from < 7e8, `two fingers have not zoomed: ${from} to ${to}`);
  await touch("touchStart", [300]);
  for (let step = 1; step <= 8; step++) await touch("touchMove", [300 - step * 10]);
  await touch("touchEnd");
  assert.ok(Number((await view("t")).split("-")[0]) > from, "a finger has not moved the window");
  await page.touchscreen.tap(box.x + 200, box.y + 50);
  assert.equal(await page.isVisible("#explain"), true);
  await close();
});

test("the largest machine opens in two seconds and at most 8 MB, and says that it is coarser", async () => {
  mainspring("run", `${WORKLOADS}/huge.toml`, "--html", pageOf("huge"), "--quiet");
  assert.ok(statSync(pageOf("huge")).size <= 8e6, `${statSync(pageOf("huge")).size} bytes`);
  const times = [];
  for (let round = 0; round < 3; round++) {
    const { page, close, text } = await open("huge");
    times.push(await page.evaluate(() => Number(document.getElementById("timeline").dataset.drawn)));
    assert.match(await text("#notes"), /coarser than the run/);
    assert.match(await text("#notes"), /of 100,000 threads/);
    if (round === 0) {
      await page.click("#by-thread");
      assert.deepEqual(await violations(page), []);
    }
    await close();
  }
  console.log(`huge.html: ${statSync(pageOf("huge")).size} bytes, drawn after ${times.join(", ")} ms`);
  assert.ok(Math.min(...times) < 2000, `drawn after ${times} ms`);
});

// A run on Linux that goes on for a minute, with the address of its page and what ends it.
function live() {
  const child = spawn(MAINSPRING, ["run", `${WORKLOADS}/robot-control.toml`, "--on", "linux", "--duration", "60s", "--live", "--quiet"], { stdio: ["ignore", "ignore", "pipe"] });
  return new Promise((resolve, reject) => {
    let told = "";
    child.on("error", reject);
    child.stderr.on("data", (text) => {
      told += text;
      const url = told.match(/live: (http:\S+)/)?.[1];
      if (url && /live: mainspring top \S+\n/.test(told)) resolve({ url, end: () => new Promise((ended) => (child.exitCode === null && child.signalCode === null ? child.on("exit", ended) && child.kill("SIGTERM") : ended())) });
    });
  });
}

describe("a run that goes on is shown", () => {
  for (const [size, viewport] of [["a desk", DESKTOP], ["a phone", PHONE]]) {
    test(`on ${size}: CPUs, contexts and threads, the newest frame, and its end`, async () => {
      const { url, end } = await live();
      try {
        for (const colorScheme of ["light", "dark"]) {
          const context = await browser.newContext({ viewport, colorScheme });
          const page = await context.newPage(), faults = [];
          page.on("pageerror", (error) => faults.push(String(error)));
          page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
          page.on("request", (request) => request.url().startsWith(url) || request.url().startsWith("data:") || faults.push(`asked for ${request.url()}`));
          await page.goto(url);
          await page.waitForFunction(() => document.querySelectorAll("#threads tr").length > 5 && document.querySelectorAll("#contexts tr").length > 1);
          assert.deepEqual(await violations(page), [], colorScheme);
          assert.match(await page.innerText("h1"), /robot-control\.toml on linux/);
          assert.match(await page.innerText("#state"), /of 60 s, \d+ threads, (no|\d+) deadlines? missed/);
          assert.equal(await page.locator("#cpus tr").count(), 3);
          const names = await page.$$eval("#threads td.name", (cells) => cells.map((cell) => cell.textContent));
          assert.ok(names.includes("camera") && names.includes("train.0"), names.join());
          // Time goes on, unless it is paused.
          const before = await page.innerText("#state");
          await page.waitForFunction((text) => document.getElementById("state").innerText !== text, before);
          await page.click("#pause");
          assert.equal(await page.getAttribute("#pause", "aria-pressed"), "true");
          await page.fill("#filter", "camera");
          assert.deepEqual(await page.$$eval("#threads td.name", (cells) => cells.map((cell) => cell.textContent)), ["camera"]);
          await page.fill("#filter", "");
          await page.click("#pause");
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(overflow <= 0, `the page is ${overflow} pixels too wide`);
          await page.screenshot({ path: `${PAGES}/live-${size.split(" ")[1]}-${colorScheme}.png`, fullPage: true });
          if (colorScheme === "dark") {
            assert.deepEqual(faults, []);
            await end();
            await page.waitForFunction(() => document.body.dataset.ended);
            assert.match(await page.innerText("#state"), /^The run has ended\. Last seen: /);
          }
          await context.close();
          if (colorScheme === "light") assert.deepEqual(faults, []);
        }
      } finally {
        await end();
      }
    });
  }
});
