// The page of one profile: reads the data block, draws, listens. No library, no network.
// Text from the profile reaches the page through textContent and setAttribute only.
(() => {
"use strict";

const framed = window.parent !== window;
const pristine = framed ? "<!doctype html>\n" + document.documentElement.outerHTML : "";
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const T = data.texts;
const SVG = "http://www.w3.org/2000/svg";

// -- writing figures: the same rules as numbaprof/wording.py ---------------------------

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const count = (n) => n.toLocaleString("en-US");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

function duration(ns) {
  if (Number.isInteger(ns) && Math.abs(ns) < 1000) return `${ns} ns`;
  const rounded = Math.abs(Number(ns.toPrecision(3)));
  for (const [size, unit] of UNITS) {
    if (rounded >= size) {
      const value = ns / size, shown = Math.abs(Number(value.toPrecision(3)));
      if (shown >= 100) return `${count(Math.round(value))} ${unit}`;
      return `${value.toFixed(shown >= 10 ? 1 : 2)} ${unit}`;
    }
  }
  return `${ns.toFixed(2)} ns`;
}

function percent(part, whole) {
  if (!whole || part <= 0) return "0 %";
  const share = 100 * part / whole;
  if (share >= 99.95) return share > 99.9999 ? "100 %" : ">99.9 %";
  if (share >= 10) return `${share.toFixed(1)} %`;
  return share >= 0.001 ? `${share.toPrecision(2)} %` : "<0.001 %";
}

// -- elements --------------------------------------------------------------------------

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

function draw(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (parent) parent.append(element);
  return element;
}

// Columns of letters, with two for the wide ones of East Asia.
function fit(text, columns) {
  let used = 0, end = 0;
  for (const letter of text) {
    used += letter.codePointAt(0) > 0x2e7f ? 2 : 1;
    if (used > columns) {
      return columns < 4 ? "" : text.slice(0, Math.max(0, end - 1)) + "…";
    }
    end += letter.length;
  }
  return text;
}

// -- tooltip ---------------------------------------------------------------------------

const tip = {
  node: $("tip"),
  show({ title, lines, figures }, x, y) {
    const list = make("dl");
    for (const [name, short, exact] of figures) {
      list.append(make("dt", {}, name));
      if (exact === undefined) list.append(make("dd", { className: "wide" }, short));
      else list.append(make("dd", {}, short), make("dd", { className: "exact" }, exact));
    }
    this.node.replaceChildren(
      make("b", {}, title), ...lines.filter(Boolean).map((line) => make("p", {}, line)), list);
    this.node.hidden = false;
    this.move(x, y);
  },
  move(x, y) {
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const right = document.documentElement.clientWidth, bottom = window.innerHeight;
    this.node.style.left = `${Math.max(8, Math.min(x, right - width - 8))}px`;
    const above = y + height + 8 > bottom && y - height - 34 > 0;
    this.node.style.top = `${above ? y - height - 34 : Math.max(8, Math.min(y, bottom - height - 8))}px`;
  },
  hide() { this.node.hidden = true; },
};

// -- charts of nested boxes ------------------------------------------------------------

const ROW = 20;

// `layout(width)` returns {boxes, height, ticks}; a box is {key, x, width, y, level,
// label, name, classes, hit}. `describe(key)` fills the tooltip, `open` and `out` zoom.
class Chart {
  constructor(host, title, { layout, describe, open, out }) {
    Object.assign(this, { host, title, layout, describe, open, out });
    this.at = null;
    this.boxes = new Map();
    this.width = 0;
    this.letter = 6.7;
    host.addEventListener("click", (event) => {
      const key = this.keyOf(event);
      if (key === null) return;
      this.at = key;
      tip.hide();
      this.open(key);
    });
    host.addEventListener("pointermove", (event) => {
      const key = this.keyOf(event);
      if (key === null) { tip.hide(); return; }
      if (key !== this.hovered || tip.node.hidden) {
        this.hovered = key;
        tip.show(this.describe(key), event.clientX + 14, event.clientY + 18);
      } else tip.move(event.clientX + 14, event.clientY + 18);
    });
    host.addEventListener("pointerleave", () => tip.hide());
    host.addEventListener("scroll", () => tip.hide(), { passive: true });
    host.addEventListener("focusin", (event) => {
      const key = this.keyOf(event);
      if (key === null || !event.target.matches(":focus-visible")) return;
      this.at = key;
      const place = event.target.getBoundingClientRect();
      tip.show(this.describe(key), Math.max(place.left, 8) + 4, place.bottom + 6);
    });
    host.addEventListener("focusout", () => tip.hide());
    host.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => {
      if (host.clientWidth !== this.width) requestAnimationFrame(() => this.render());
    }).observe(host);
  }

  keyOf(event) {
    const group = event.target.closest ? event.target.closest("g[data-key]") : null;
    return group ? group.dataset.key : null;
  }

  render(keepFocus = false) {
    this.width = this.host.clientWidth;
    if (!this.width) return;
    const { boxes, height, ticks } = this.layout(this.width);
    const svg = draw("svg", {
      role: "tree", "aria-label": this.title, height, viewBox: `0 0 ${this.width} ${height}`,
    });
    for (const { x, y, text } of ticks || []) {
      if (x !== undefined && y === undefined) {
        draw("line", { x1: x + 0.5, x2: x + 0.5, y1: 16, y2: height }, svg);
        draw("text", { x: x + 4, y: 11, class: "axis" }, svg).textContent = text;
      } else draw("text", { x: 2, y, class: "axis" }, svg).textContent = text;
    }
    this.boxes = new Map(boxes.map((box) => [box.key, box]));
    if (!this.boxes.has(this.at)) this.at = boxes.length ? boxes[0].key : null;
    let sifted = false;
    for (const box of boxes) {
      if (box.hit !== undefined) sifted = true;
      const group = draw("g", {
        class: box.classes + (box.hit ? " hit" : ""), role: "treeitem",
        "aria-level": box.level + 1, "aria-label": box.name, "aria-describedby": "tip",
        "data-key": box.key, tabindex: box.key === this.at ? 0 : -1,
      }, svg);
      box.group = group;
      draw("rect", {
        class: `k-${box.kind}`, x: box.x, y: box.y, rx: box.width > 6 ? 2 : 0,
        width: Math.max(0.6, box.width - (box.width > 3 ? 1 : 0.2)), height: ROW - 1,
      }, group);
      const columns = Math.floor((box.width - 9) / this.letter);
      // The colour says "compile"; the word goes first where room is short.
      const brief = box.label.length > columns ? box.label.replace(/^(compile|load) /, "") : box.label;
      const text = fit(brief, columns);
      if (text) draw("text", { x: box.x + 5, y: box.y + 14 }, group).textContent = text;
    }
    // What is below does not jump up when a zoom has fewer rows.
    this.tallest = Math.max(this.tallest || 0, Math.min(height, 12 * ROW));
    this.host.style.minHeight = `${this.tallest}px`;
    this.host.classList.toggle("sifted", sifted);
    this.host.replaceChildren(svg);
    this.measure(svg);
    if (keepFocus && this.at !== null) this.boxes.get(this.at).group.focus();
  }

  measure(svg) {
    if (this.measured) return;
    const probe = draw("text", {}, svg);
    probe.textContent = "0123456789".repeat(4);
    const length = probe.getComputedTextLength() / 40;
    probe.remove();
    this.measured = length > 0;
    if (this.measured && Math.abs(length - this.letter) > 0.05) {
      this.letter = length;
      this.render();
    }
  }

  focus(key) {
    const box = this.boxes.get(key);
    if (!box) return;
    const before = this.boxes.get(this.at);
    if (before) before.group.setAttribute("tabindex", -1);
    this.at = key;
    box.group.setAttribute("tabindex", 0);
    box.group.focus();
    box.group.scrollIntoView({ block: "nearest" });
  }

  press(event) {
    const here = this.boxes.get(this.at);
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...this.boxes.values()];
    const pick = (boxes, value) => boxes.reduce(
      (best, box) => (best === null || value(box) > value(best) ? box : best), null);
    const overlap = (box) =>
      Math.min(box.x + box.width, here.x + here.width) - Math.max(box.x, here.x);
    let next = null;
    switch (event.key) {
      case "ArrowRight":
        next = pick(all.filter((box) => box.y === here.y && box.x > here.x), (box) => -box.x);
        break;
      case "ArrowLeft":
        next = pick(all.filter((box) => box.y === here.y && box.x < here.x), (box) => box.x);
        break;
      case "ArrowDown":
        next = pick(all.filter((box) => box.y > here.y && overlap(box) > 0),
          (box) => -1e6 * box.y + (box.classes === "open" ? 0 : box.width));
        break;
      case "ArrowUp":
        next = pick(all.filter((box) => box.y < here.y && overlap(box) > 0),
          (box) => 1e6 * box.y + overlap(box));
        break;
      case "Home": next = all[0]; break;
      case "Enter": case " ": this.open(this.at); break;
      case "Escape":
        tip.hide();
        if (search.active) search.clear(); else this.out();
        break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (next) this.focus(next.key);
  }
}

// -- the calling contexts --------------------------------------------------------------

const B = data.boxes;
const KINDS = B.kinds;
const kindOf = (i) => KINDS[B.kind[i]];
const widthOf = (i) => B.inclusive[i] + B.dispatch[i];
const rows = data.overloads.rows;
const rowOf = new Map(rows.index.map((overload, row) => [overload, row]));

const calls = (() => {
  const n = B.kind.length;
  const children = Array.from({ length: n }, () => []);
  for (let i = 1; i < n; i++) children[B.parent[i]].push(i);
  const last = (i) => (kindOf(i) === "small" || kindOf(i) === "rest" ? 1 : 0);
  for (const list of children) {
    list.sort((a, b) => last(a) - last(b) || widthOf(b) - widthOf(a) || a - b);
  }
  let focus = 0;
  let matches = null;

  const shade = (i) => {
    // Neighbours of one kind in three strengths, the same for one function everywhere.
    let hash = 0;
    for (const letter of T[B.name[i]].split("(")[0]) hash = (hash * 31 + letter.codePointAt(0)) % 997;
    return hash % 3 ? ` shade${hash % 3}` : "";
  };

  function layout(width) {
    const boxes = [];
    let rowCount = 0;
    const waiting = [[focus, 0, width, 0]];
    while (waiting.length) {
      let [i, x, w, row] = waiting.pop();
      rowCount = Math.max(rowCount, row + 1);
      const kind = kindOf(i), name = T[B.name[i]];
      const hit = matches === null ? undefined : matches[i] === 1;
      const whole = i === focus ? B.inclusive[i] : widthOf(i);
      const inner = whole > 0 ? w * B.inclusive[i] / whole : w;
      const common = { y: row * ROW, level: row, hit };
      if (w - inner >= 0.5) {
        boxes.push({
          ...common, key: `d${i}`, x, width: w - inner, kind: "dispatch", label: "dispatch",
          classes: "part", name: `dispatch of ${name}, ${duration(B.dispatch[i])}`,
        });
      }
      x += w - inner;
      const open = kind === "rest" || kind === "small";
      boxes.push({
        ...common, key: `b${i}`, x, width: inner, kind, label: name,
        classes: open ? "open" : ["overload", "compile", "python"].includes(kind) ? shade(i).trim() : "plain",
        name: `${name}, ${duration(B.inclusive[i])}`
          + (B.calls[i] === null ? "" : `, ${plural(B.calls[i], "call")}`),
      });
      let total = 0;
      for (const child of children[i]) total += widthOf(child);
      total = Math.max(total, B.inclusive[i]);
      for (const child of children[i]) {
        const share = total > 0 ? inner * widthOf(child) / total : 0;
        if (share >= 0.5) waiting.push([child, x, share, row + 1]);
        x += share;
      }
    }
    boxes.sort((a, b) => a.y - b.y || a.x - b.x);
    return { boxes, height: Math.max(1, rowCount) * ROW + 1 };
  }

  function describe(key) {
    const i = Number(key.slice(1)), kind = kindOf(i), own = B.self[i];
    const [title, hint] = data.kinds[key[0] === "d" ? "dispatch" : kind];
    const exact = (ns) => `${count(ns)} ns · ${percent(ns, B.inclusive[0])}`;
    const figures = [];
    if (B.calls[i] !== null) figures.push(["calls", count(B.calls[i]), B.errors[i] ? `${count(B.errors[i])} raised` : ""]);
    figures.push(["inclusive", duration(B.inclusive[i]), exact(B.inclusive[i])]);
    if (own !== null && kind !== "thread") figures.push(["self", duration(own), exact(own)]);
    if (B.dispatch[i]) figures.push(["dispatch", duration(B.dispatch[i]), exact(B.dispatch[i])]);
    if (B.calls[i] > 1) {
      figures.push(["per call", duration(B.inclusive[i] / B.calls[i]),
        B.dispatch[i] ? `and ${duration(B.dispatch[i] / B.calls[i])} dispatch` : ""]);
    }
    const above = B.parent[i];
    if (above >= 0) {
      const called = ["python", "caller"].includes(kindOf(above)) && B.overload[i] >= 0;
      const verb = called ? "called by" : "inside";
      const place = T[B.place[above]];
      figures.push([verb, T[B.name[above]] + (place ? `, ${place}` : "")]);
    }
    const row = rowOf.get(B.overload[i]);
    if (row !== undefined) {
      if (T[rows.why[row]]) figures.push(["why", T[rows.why[row]]]);
      if (T[rows.note[row]]) figures.push(["not seen", T[rows.note[row]]]);
    }
    const place = T[B.place[i]];
    return {
      title: T[B.name[i]], figures,
      lines: [[title, place].filter((text) => text && text !== T[B.name[i]]).join(" · "), hint],
    };
  }

  function zoom(i, keepFocus) {
    focus = i;
    crumbs();
    chart.at = `b${i}`;
    chart.render(keepFocus);
  }

  function open(key) {
    const i = Number(key.slice(1)), keep = chart.host.contains(document.activeElement);
    if (i === focus) out(); else zoom(i, keep);
  }

  function out() {
    const from = focus;
    if (focus === 0) return;
    focus = B.parent[focus];
    crumbs();
    chart.at = `b${from}`;
    chart.render(chart.host.contains(document.activeElement));
  }

  function crumbs() {
    const path = [];
    for (let i = focus; i >= 0; i = B.parent[i]) path.unshift(i);
    const parts = [];
    path.forEach((i, position) => {
      if (position) parts.push(make("span", { "aria-hidden": "true" }, "›"));
      const button = make("button", { type: "button" }, T[B.name[i]]);
      if (i === focus) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => zoom(i, false));
      parts.push(button);
    });
    $("crumbs").replaceChildren(...parts);
  }

  // Marks boxes for which `wanted` holds; returns their number and their time together,
  // what is inside of one counted once.
  function sift(wanted) {
    matches = null;
    let found = 0, time = 0;
    if (wanted) {
      matches = new Uint8Array(n);
      const inside = new Uint8Array(n);
      for (let i = 0; i < n; i++) {
        const above = B.parent[i];
        const covered = above >= 0 && (inside[above] || matches[above]);
        inside[i] = covered ? 1 : 0;
        if (!wanted(i)) continue;
        matches[i] = 1;
        found++;
        if (!covered) time += B.inclusive[i];
      }
    }
    chart.render();
    return { found, time };
  }

  function nextMatch() {
    if (matches === null) return;
    const shown = [...chart.boxes.values()].filter((box) => box.hit && box.key[0] === "b");
    if (!shown.length) {
      const first = matches.indexOf(1);
      if (first >= 0) zoom(B.parent[first] >= 0 ? B.parent[first] : first, false);
      if (first >= 0) chart.focus(`b${first}`);
      return;
    }
    const current = shown.findIndex((box) => box.key === chart.at);
    chart.focus(shown[(current + 1) % shown.length].key);
  }

  const chart = new Chart($("calls"), "Calling contexts", { layout, describe, open, out });
  crumbs();
  return { chart, zoom, out, sift, nextMatch };
})();

function fillLegend() {
  const used = new Set(B.kind.map((kind) => KINDS[kind]));
  if (B.dispatch.some((ns) => ns > 0)) used.add("dispatch");
  $("legend").replaceChildren(...Object.keys(data.kinds).filter((kind) => used.has(kind)).map((kind) => {
    const [title, hint] = data.kinds[kind];
    return make("li", { title: hint }, make("i", { className: `k-${kind}` }), title);
  }));
  if (data.pruned) {
    const { contexts, calls: n, time_ns: time, limit_ns: limit } = data.pruned;
    $("pruned").textContent = `Not drawn: ${plural(contexts, "small context")} of at most `
      + `${duration(limit)} each, together ${plural(n, "call")} and ${duration(time)} `
      + `(${percent(time, B.inclusive[0])}). They are summed in the boxes “small contexts”; `
      + "the table below has every call.";
    $("pruned").hidden = false;
  }
}

// -- compile timeline ------------------------------------------------------------------

const timeline = (() => {
  const E = data.events.columns, lanes = data.events.lanes, n = E.start.length;
  if (!n) return null;
  $("compiling").hidden = false;
  const depths = new Array(n).fill(-1);
  const depthOf = (i) => {
    const path = [];
    while (depths[i] < 0 && E.parent[i] >= 0 && !path.includes(i)) { path.push(i); i = E.parent[i]; }
    if (depths[i] < 0) depths[i] = 0;
    for (let depth = depths[i]; path.length;) depths[path.pop()] = ++depth;
  };
  for (let i = 0; i < n; i++) depthOf(i);
  const rowsOf = lanes.map(() => 1);
  for (let i = 0; i < n; i++) rowsOf[E.lane[i]] = Math.max(rowsOf[E.lane[i]], depths[i] + 1);
  const span = E.start.reduce((end, start, i) => Math.max(end, start + E.inclusive[i]), data.events.span);
  let view = [0, span || 1];
  let sifted = null;

  function ticksOf(width) {
    const rough = (view[1] - view[0]) / Math.max(2, width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= rough) * power);
    const ticks = [];
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      const x = (at - view[0]) / (view[1] - view[0]) * width;
      if (x < width - 30) ticks.push({ x, text: duration(Math.round(at)) });
    }
    return ticks;
  }

  function layout(width) {
    const ticks = ticksOf(width), tops = [];
    let y = 20;
    lanes.forEach((lane, index) => {
      if (lanes.length > 1) { ticks.push({ y: y + 11, text: lane }); y += 16; }
      tops.push(y);
      y += rowsOf[index] * ROW + 6;
    });
    const boxes = [], scale = width / (view[1] - view[0]);
    for (let i = 0; i < n; i++) {
      const from = Math.max(0, (E.start[i] - view[0]) * scale);
      const to = Math.min(width, (E.start[i] + E.inclusive[i] - view[0]) * scale);
      if (to < 0 || from > width || to - from < 0) continue;
      const name = T[E.name[i]];
      boxes.push({
        key: `e${i}`, x: from, width: Math.max(1, to - from), y: tops[E.lane[i]] + depths[i] * ROW,
        level: depths[i], kind: E.kind[i], label: name, hit: sifted ? sifted(name) : undefined,
        classes: E.outcome[i] === "failed" ? "failed" : E.internal[i] ? "helper" : "plain",
        name: `${name}, ${duration(E.inclusive[i])}, at ${duration(E.start[i])}`,
      });
    }
    boxes.sort((a, b) => a.y - b.y || a.x - b.x);
    return { boxes, height: y, ticks };
  }

  function describe(key) {
    const i = Number(key.slice(1));
    const exact = (ns) => `${count(ns)} ns · ${percent(ns, data.wall)}`;
    const figures = [
      ["start", duration(E.start[i]), `${count(E.start[i])} ns`],
      ["inclusive", duration(E.inclusive[i]), exact(E.inclusive[i])],
      ["self", duration(E.self[i]), exact(E.self[i])],
    ];
    if (T[E.trigger[i]]) figures.push(["caused by", T[E.trigger[i]]]);
    if (T[E.error[i]]) figures.push(["error", T[E.error[i]]]);
    return {
      title: T[E.name[i]], figures,
      lines: [E.internal[i] ? "Numba’s own helper" : "", lanes.length > 1 ? lanes[E.lane[i]] : ""],
    };
  }

  function show(from, to, key) {
    view = [from, Math.max(to, from + 1)];
    $("unzoom").hidden = from === 0 && to === (span || 1);
    const keep = chart.host.contains(document.activeElement);
    if (key) chart.at = key;
    chart.render(keep);
  }

  const whole = () => show(0, span || 1, null);
  function open(key) {
    const i = Number(key.slice(1)), from = E.start[i], to = from + E.inclusive[i];
    if (view[0] === from && view[1] === Math.max(to, from + 1)) whole(); else show(from, to, key);
  }

  const chart = new Chart($("events"), "Compilations over wall time", { layout, describe, open, out: whole });
  $("unzoom").addEventListener("click", whole);
  if (data.events.left_out) {
    $("events-left").textContent = `Not drawn: ${plural(data.events.left_out, "shorter event")}, `
      + `together ${duration(data.events.left_out_ns)}.`;
    $("events-left").hidden = false;
  }
  return { chart, sift(wanted) { sifted = wanted; chart.render(); } };
})();

// -- overloads -------------------------------------------------------------------------

const table = (() => {
  const n = rows.index.length, FIRST = 200;
  const some = (name) => rows[name].some((value) => value);
  const same = rows.total.every((total, row) => total === rows.self[row]);
  const columns = [
    ["calls", "calls", "Calls from Python"],
    ["errors", "errors", "Calls that raised", some("errors")],
    ["cost", "cost", "Own run time, dispatch, compiling and loading together"],
    ["total", "total", "Time inside, with what it called"],
    ["self", "self", "Total without the overloads and compilations inside", !same],
    ["mean", "mean", "Total per call"],
    ["min", "min", "Shortest call", some("min"), "lesser"],
    ["p50", "p50", "Median, accurate to a factor of 2", some("p50"), "lesser"],
    ["p99", "p99", "99th percentile, accurate to a factor of 2", some("p50"), "lesser"],
    ["max", "max", "Longest call", some("max"), "lesser"],
    ["dispatch", "dispatch", "Finding the overload, over all calls"],
    ["compile", "compile", "Compiling it and Numba’s helpers for it, without your other functions compiled for it"],
    ["cache_load", "load", "Loading it from the cache", some("cache_load")],
  ].filter((column) => column[3] !== false);
  const counted = new Set(["calls", "errors"]);
  const gauges = { cost: "thread", total: "overload", compile: "compile" };
  const largest = Object.fromEntries(Object.keys(gauges).map(
    (name) => [name, rows[name].reduce((most, value) => Math.max(most, value || 0), 1)]));
  let sort = data.sort, down = data.sort !== "name", order = [...Array(n).keys()];
  let filter = null, all = false, picked = -1;

  const write = (name, value) => value === null || value === undefined ? "–"
    : counted.has(name) ? count(value) : duration(value);

  function cell(row, [name, , , , classes]) {
    const value = rows[name][row];
    const td = make("td", { className: (classes || "") + (value ? "" : " nil") }, write(name, value));
    if (value === null) td.title = name === "calls" ? T[rows.note[row]] : "cannot be had";
    else if (!counted.has(name)) td.title = `${count(value)} ns`;
    if (gauges[name] && value) {
      const bar = make("span", { className: `gauge k-${gauges[name]}` });
      bar.style.width = `${Math.max(1, 100 * value / largest[name])}%`;
      td.append(bar);
    }
    return td;
  }

  function line(row) {
    const label = T[rows.label[row]], at = label.indexOf("(");
    const name = make("code", {}, make("b", {}, at < 0 ? label : label.slice(0, at)),
      at < 0 ? "" : label.slice(at));
    const button = make("button", { type: "button", title: `show where it ran: ${T[rows.full[row]]}` }, name);
    button.setAttribute("aria-pressed", row === picked);
    button.addEventListener("click", () => pick(row === picked ? -1 : row));
    const notes = [T[rows.place[row]], T[rows.why[row]], T[rows.note[row]]];
    const small = make("small", {}, notes.filter((note, i) => note && notes.indexOf(note) === i).join(" · "));
    return make("tr", { className: row === picked ? "picked" : "" },
      make("td", { className: "name" }, button, small),
      ...columns.map((column) => cell(row, column)));
  }

  function head(name, title, hint, classes) {
    const active = name === sort;
    const button = make("button", { type: "button", title: hint }, title + (active ? (down ? " ▾" : " ▴") : ""));
    button.dataset.sort = name;
    button.addEventListener("click", () => {
      down = active ? !down : name !== "name";
      sort = name;
      arrange();
      render();
      $("overloads").querySelector(`th button[data-sort="${name}"]`).focus();
    });
    const th = make("th", { scope: "col", className: classes || "" }, button);
    if (active) th.setAttribute("aria-sort", down ? "descending" : "ascending");
    return th;
  }

  function arrange() {
    const sign = down ? -1 : 1;
    order = [...Array(n).keys()].sort((a, b) => {
      if (sort === "name") return sign * T[rows.label[a]].localeCompare(T[rows.label[b]]) || a - b;
      const x = rows[sort][a], y = rows[sort][b];
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return sign * (x - y) || a - b;
    });
  }

  function render() {
    const listed = filter ? order.filter((row) => filter(row)) : order;
    const shown = all ? listed : listed.slice(0, FIRST);
    const foot = data.overloads.sums.map(([title, sums]) => make("tr", {},
      make("td", { className: "name" }, title),
      ...columns.map(([name, , , , classes]) => make("td", { className: classes || "" },
        name in sums ? write(name, sums[name]) : name === "total" && same ? write(name, sums.self) : ""))));
    const body = make("tbody", {}, ...shown.map(line));
    const parts = [make("table", {},
      make("thead", {}, make("tr", {}, head("name", "overload", "By name", "name"),
        ...columns.map(([name, title, hint, , classes]) => head(name, title, hint, classes)))),
      body, make("tfoot", {}, ...foot))];
    if (listed.length > shown.length) {
      const more = make("button", { type: "button", className: "more" }, `show all ${count(listed.length)}`);
      more.addEventListener("click", () => { all = true; render(); });
      parts.push(more);
    }
    $("overloads").replaceChildren(...parts);
    $("shown").textContent = listed.length === n ? count(n) : `${count(listed.length)} of ${count(n)}`;
  }

  function pick(row) {
    if (row >= 0) search.clear();
    picked = row;
    render();
    if (row < 0) { calls.sift(null); return; }
    const overload = rows.index[row], full = T[rows.full[row]];
    const verbs = new Set(["compile", "load", "failed"].map((verb) => `${verb} ${full}`));
    const { found } = calls.sift((i) => B.overload[i] === overload || verbs.has(T[B.name[i]]));
    $("hits").textContent = found ? "" : "not in the picture: called from compiled code only";
    const button = $("overloads").querySelector("tr.picked button");
    if (button) button.focus({ preventScroll: true });
  }

  return {
    render,
    sift(wanted) { filter = wanted; picked = -1; render(); },
    get picked() { return picked >= 0; },
    unpick() { pick(-1); },
  };
})();

// -- search ----------------------------------------------------------------------------

const search = {
  box: $("search"),
  text: "",
  get active() { return this.text !== "" || table.picked; },
  clear() {
    if (table.picked) table.unpick();
    if (this.text) this.run("");
    $("hits").textContent = "";
  },
  run(text) {
    this.text = text.trim().toLowerCase();
    if (this.box.value !== text) this.box.value = text;
    const has = (value) => value.toLowerCase().includes(this.text);
    const wanted = this.text === "" ? null : has;
    const { found, time } = calls.sift(wanted && ((i) => has(T[B.name[i]]) || has(T[B.place[i]])));
    if (timeline) timeline.sift(wanted);
    table.sift(wanted && ((row) => has(T[rows.label[row]]) || has(T[rows.full[row]]) || has(T[rows.place[row]])));
    $("hits").textContent = wanted
      ? `${plural(found, "box").replace("boxs", "boxes")}, ${duration(time)}, ${percent(time, B.inclusive[0])}` : "";
  },
};
search.box.addEventListener("input", () => search.run(search.box.value));
search.box.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); calls.nextMatch(); }
  if (event.key === "Escape") {
    event.preventDefault();
    event.stopPropagation();
    if (search.text) search.clear(); else search.box.blur();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !event.target.matches("input")) {
    event.preventDefault();
    search.box.focus();
    search.box.select();
  } else if (event.key === "Escape") {
    tip.hide();
    if (search.active) search.clear(); else calls.out();
  }
});
for (const button of document.querySelectorAll("button[data-find]")) {
  button.addEventListener("click", () => {
    search.run(button.dataset.find);
    $("h-calls").scrollIntoView({ block: "center" });
  });
}

// -- colours and saving ----------------------------------------------------------------

const THEMES = [["", "as the system", "◐"], ["dark", "dark", "●"], ["light", "light", "○"]];
let theme = 0;
$("theme").addEventListener("click", () => {
  theme = (theme + 1) % THEMES.length;
  const [name, title, sign] = THEMES[theme];
  document.documentElement.dataset.theme = name;
  $("theme").textContent = sign;
  $("theme").setAttribute("aria-label", `Colours: ${title}`);
});
if (framed) {
  $("save").hidden = false;
  $("save").addEventListener("click", () => {
    const link = make("a", { download: "numbaprof.html" });
    link.href = URL.createObjectURL(new Blob([pristine], { type: "text/html" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
}

fillLegend();
calls.chart.render();
if (timeline) timeline.chart.render();
table.render();
document.body.dataset.ready = "1";
})();
