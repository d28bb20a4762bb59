// An interactive picture of attention weights. One ES module, two hosts: anywidget in a live notebook, and a static page
// (attention.py then writes this module and a model of four methods into the output). It asks for nothing from outside.
//
// What the reader does changes three things only: the head (model: layer, head), the cell or token under the pointer
// (`hover`), and the one that was clicked (`pin`). Everything on the screen follows from them in `showHead` and `showSpot`.
// A spot is {i, j}: row i gives a weight to column j; one of the two may be null (a token alone).

// Nine colours at equal perceptual distances, from weight 0 to weight 1; on a dark page light means large.
const STOPS = {
  light: ["#f6fbfd", "#c4e7f2", "#8ed0e4", "#5bb4d7", "#3898cb", "#2a7cbb", "#295fa3", "#263f80", "#1d2657"],
  dark: ["#1e222f", "#222f50", "#264378", "#2463a2", "#2284bf", "#35a3d2", "#5cc2e1", "#92e1ef", "#ccfdff"],
};
const MASKED = { light: "#e3e6ea", dark: "#33363d" };
const HATCH = { light: "#b9c0c9", dark: "#565c66" };
const LARGEST_CELL = 40, SMALLEST_LABELLED = 9.5, THUMB_PIXELS = 56; // css pixels; the last one also canvas pixels

const STYLE = `
:host { display: block; margin: 0.5rem 0 1rem; font-size: 14px; line-height: 1.45; color: var(--ink); }
* { box-sizing: border-box; }
.all { --ink: #1f2933; --soft: #5d6673; --line: #cfd5dd; --mark: #d55e00; --hatch: #cbd0d7; --masked: #eceef1; --field: #ffffff;
  color: var(--ink); max-width: 60rem; font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.all.dark { --ink: #e8ebf0; --soft: #a3acb8; --line: #464d58; --mark: #ffb000; --hatch: #474c55; --masked: #2b2e34; --field: #1a1d23; }
.title { font-weight: 600; margin: 0 0 .5rem; overflow-wrap: anywhere; }
.panes { display: grid; gap: .75rem 1.5rem; grid-template: "heads detail" auto "lower detail" 1fr / var(--left) minmax(0, 1fr); }
.stacked .panes { grid-template: "heads" auto "detail" auto "lower" auto / minmax(0, 1fr); }
.detail { grid-area: detail; }
.lower { grid-area: lower; min-width: 0; }
.heads { grid-area: heads; display: grid; gap: 4px; align-items: center; justify-content: start; }
.heads > span { color: var(--soft); font-size: 12px; text-align: center; line-height: 1.2; }
.heads button { padding: 0; border: 1px solid var(--line); border-radius: 3px; background: none; cursor: pointer;
  display: block; width: 100%; min-width: 0; aspect-ratio: 1; overflow: hidden; position: relative; }
.heads button:hover { border-color: var(--soft); }
.heads button[aria-checked="true"] { border-color: var(--mark); box-shadow: 0 0 0 2px var(--mark); }
.heads canvas { width: 100%; height: 100%; display: block; }
:focus { outline: none; }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 3px; }
.bar { display: flex; flex-wrap: wrap; gap: .35rem 1rem; align-items: center; margin-bottom: .6rem; }
select { font: inherit; color: inherit; background: var(--field); border: 1px solid var(--line); border-radius: 4px;
  padding: .1rem .3rem; margin-left: .3rem; min-height: 24px; }
.scale { display: flex; gap: .4rem; align-items: center; color: var(--soft); font-size: 12px; line-height: 1.2; }
.scale canvas { width: 120px; height: 10px; display: block; border-radius: 2px; border: 1px solid var(--line); }
.ticks { display: grid; grid-template-columns: 1fr 1fr 1fr; font-size: 11px; }
.ticks :nth-child(2) { text-align: center; }
.ticks :nth-child(3) { text-align: right; }
.scale i { width: 16px; height: 12px; border: 1px solid var(--line); margin-left: .5rem; }
.hatch { background: repeating-linear-gradient(135deg, var(--hatch) 0 1px, var(--masked) 1px 5px); }
.stage { display: grid; grid-template-columns: auto auto; justify-content: start; }
.name { position: absolute; white-space: pre; overflow: hidden; text-overflow: ellipsis; color: var(--soft);
  unicode-bidi: isolate; cursor: pointer; }
.name.on { color: var(--ink); font-weight: 600; }
.few .name:not(.on) { visibility: hidden; }
.rows, .columns { position: relative; }
.rows .name { right: 6px; max-width: 100%; text-align: right; }
.columns .name { bottom: 6px; writing-mode: vertical-rl; transform: rotate(180deg); max-height: 100%; }
.columns.few .name { writing-mode: horizontal-tb; transform: translateX(-50%); max-width: 100px; bottom: 3px; }
.cells { position: relative; cursor: crosshair; touch-action: pan-y; border-radius: 2px; }
.cells canvas { position: absolute; inset: 0; width: 100%; height: 100%; border-radius: 2px; }
.band { position: absolute; pointer-events: none; outline: 1.5px solid var(--mark); border-radius: 2px; }
.band.cell { outline: 2px solid var(--ink); box-shadow: 0 0 0 3.5px var(--mark); }
/* The sentence has a fixed height: were it to grow, the tokens below would slip away from under the pointer. */
.said { height: 4.4em; overflow-y: auto; margin: 0 0 .3rem; font-variant-numeric: tabular-nums; }
.said b { font-weight: 600; unicode-bidi: isolate; white-space: pre; display: inline-block; max-width: 8.5em; overflow: hidden;
  text-overflow: ellipsis; vertical-align: bottom; }
.said small { color: var(--soft); font-size: 12px; }
.caption { color: var(--soft); font-size: 12px; margin: .4rem 0 .1rem; }
.text { line-height: 1.95; max-height: 16rem; overflow: auto; padding: 2px; border-radius: 4px; }
.text span { display: inline-block; max-width: min(16em, 100%); overflow: hidden; text-overflow: ellipsis; white-space: pre;
  vertical-align: top; line-height: 1.5; margin: 2px 1px; padding: 0 4px; border-radius: 4px; unicode-bidi: isolate;
  cursor: pointer; min-width: 1.2em; text-align: center; color: var(--ink); border: 2px solid transparent; }
.text span.hatch { color: var(--soft); }
.text span.on { border-color: var(--mark); }
.text span.pinned { border-color: var(--mark); text-decoration: underline 2px var(--mark); text-underline-offset: 3px; }
`;

const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// Colour of each of the 256 stored weights. The square root spends more colours on small weights: a row of a hundred
// tokens rarely gives any one of them more than 0.1.
function colours(stops) {
  const ends = stops.map(rgb);
  return Array.from({ length: 256 }, (_, q) => {
    const t = Math.sqrt(q / 255) * (ends.length - 1), k = Math.min(Math.floor(t), ends.length - 2);
    return ends[k].map((c, a) => Math.round(c + (t - k) * (ends[k + 1][a] - c)));
  });
}

const luminance = (c) => {
  const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

const parts = (colour) => (/^rgb/.test(colour) ? colour.match(/[\d.]+/g).map(Number) : [0, 0, 0, 0]); // red, green, blue, alpha

// Dark ground? A box around the picture with a colour of its own decides. Else the page's theme, which Sphinx, Colab, VS Code
// and JupyterLab write into an attribute. Else the colour of the text around: right even where a page ignores the reader's
// `prefers-color-scheme`. That is asked only where the colour cannot be read.
function isDark(el) {
  const html = document.documentElement, body = document.body;
  for (let box = el; box && box !== body && box !== html; box = box.parentElement) {
    const [r, g, b, alpha = 1] = parts(getComputedStyle(box).backgroundColor);
    if (alpha > 0.5) return luminance([r, g, b]) < 0.3;
  }
  const said = html.dataset.theme ?? html.getAttribute("theme") ?? body.dataset.theme ?? body.dataset.vscodeThemeKind;
  if (said && said !== "auto") return /dark|high-contrast$/.test(said);
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  const [r, g, b, alpha = 1] = parts(getComputedStyle(el).color);
  return alpha > 0 ? luminance([r, g, b]) > 0.3 : matchMedia("(prefers-color-scheme: dark)").matches;
}

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children); // strings become text nodes: a token is never read as HTML
  return node;
}

// One canvas pixel for each k × k block of cells, its largest weight: a thin diagonal survives being made small.
function paint(canvas, head, n, m, look, causal, most) {
  const k = Math.max(1, Math.ceil(Math.max(n, m) / most));
  const height = Math.ceil(n / k), width = Math.ceil(m / k), image = new ImageData(width, height), masked = rgb(look.masked);
  for (let a = 0; a < height; a++) {
    for (let b = 0; b < width; b++) {
      let q = 0;
      for (let i = a * k; i < Math.min(n, a * k + k); i++) {
        for (let j = b * k; j < Math.min(m, b * k + k); j++) q = Math.max(q, head[i * m + j]);
      }
      image.data.set([...(causal && b > a ? masked : look.colours[q]), 255], 4 * (a * width + b));
    }
  }
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function render({ model, el }) {
  const picture = model.get("picture"), weights = bytes(picture.weights);
  const [layers, heads, n, m] = picture.shape, causal = picture.causal, cross = picture.columns !== null;
  const rowNames = picture.tokens, columnNames = cross ? picture.columns : picture.tokens;
  const looks = Object.fromEntries(["light", "dark"].map((theme) =>
    [theme, { colours: colours(STOPS[theme]), masked: MASKED[theme], hatch: HATCH[theme] }]));
  let look = null, hover = null, pin = null;
  const layer = () => model.get("layer"), head = () => model.get("head");
  const matrix = (l, h) => weights.subarray((l * heads + h) * n * m, (l * heads + h + 1) * n * m);
  const hidden = (i, j) => causal && j > i;

  // ---- the elements, made once ----------------------------------------------------------------------------------------
  const host = make("div"), root = host.attachShadow({ mode: "open" }); // the page's styles stay out, ours stay in
  const all = make("div", { class: "all", role: "group", "aria-label": picture.title ?? "attention weights" });
  const grid = make("div", { class: "heads", role: "radiogroup", "aria-label": "heads: a row for each layer, arrow keys choose" });
  const thumbs = [];
  if (layers * heads > 1) {
    grid.append(make("span"), ...Array.from({ length: heads }, (_, h) => make("span", {}, h || heads > 6 ? `${h}` : `head ${h}`)));
    for (let l = 0; l < layers; l++) {
      grid.append(make("span", {}, l || layers > 6 ? `${l}` : `layer ${l}`));
      for (let h = 0; h < heads; h++) {
        const thumb = make("button", { type: "button", role: "radio", "aria-label": `layer ${l}, head ${h}`, title: `layer ${l}, head ${h}` }, make("canvas"));
        thumb.addEventListener("click", () => choose(l, h));
        thumbs.push(thumb);
        grid.append(thumb);
      }
    }
  }
  const menu = (name, size) => {
    const select = make("select", { "aria-label": name }, ...Array.from({ length: size }, (_, k) => make("option", { value: k }, `${k}`)));
    select.addEventListener("change", () => choose(...(name === "layer" ? [+select.value, head()] : [layer(), +select.value])));
    return [make("label", {}, name, select), select];
  };
  const [layerLabel, layerMenu] = menu("layer", layers), [headLabel, headMenu] = menu("head", heads);
  const scaleCanvas = make("canvas", { width: 120, height: 1 });
  const ticks = make("div", { class: "ticks" }, ...["0", "0.25", "1"].map((tick) => make("span", {}, tick)));
  const scale = make("div", { class: "scale", "aria-hidden": "true" }, make("div", {}, scaleCanvas, ticks));
  if (causal) scale.append(make("i", { class: "hatch" }), "masked");
  const bar = make("div", { class: "bar" });
  if (layers * heads > 1) bar.append(layerLabel, headLabel);
  bar.append(scale);

  const label = (names, axis) => names.map((name, k) => {
    const node = make("div", { class: "name", title: name }, name);
    track(node, () => (axis === "row" ? { i: k, j: null } : { i: null, j: k }));
    return node;
  });
  const rowLabels = label(rowNames, "row"), columnLabels = label(columnNames, "column");
  const rows = make("div", { class: "rows", "aria-hidden": "true" }, ...rowLabels);
  const columns = make("div", { class: "columns", "aria-hidden": "true" }, ...columnLabels);
  const canvas = make("canvas"), cells = make("div", {
    class: "cells", tabindex: "0", role: "application", "aria-roledescription": "attention matrix",
    "aria-label": `${n} rows, ${m} columns: arrow keys move, enter pins, escape lets go`,
  }, canvas);
  const bands = ["row", "column", "cell"].map((kind) => make("div", { class: `band ${kind}` }));
  cells.append(...bands);
  const stage = make("div", { class: "stage" }, make("div"), columns, rows, cells);
  const said = make("div", { class: "said", role: "status" });

  const line = (names, axis, caption) => {
    const tokens = names.map((name, k) => {
      const node = make("span", { role: "option", title: name, id: `${axis}${k}` }, name);
      track(node, () => (axis === "row" ? { i: k, j: null } : { i: null, j: k }));
      return node;
    });
    const text = make("div", { class: "text", role: "listbox", tabindex: "0", "aria-label": caption }, ...tokens);
    text.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const now = spot()[axis === "row" ? "i" : "j"];
      if (step) pinTo(axis === "row" ? { i: clamp((now ?? -1) + step, 0, n - 1), j: null } : { i: null, j: clamp((now ?? -1) + step, 0, m - 1) });
      if (step) event.preventDefault();
    });
    return [make("div", { class: "caption", "aria-hidden": "true" }, caption), text, tokens];
  };
  const [rowCaption, rowText, rowTokens] = line(rowNames, "row", cross ? "the tokens that attend (rows)" : "the text, shaded by the marked token's weights; click to keep a token marked");
  const [columnCaption, columnText, columnTokens] = cross ? line(columnNames, "column", "the tokens attended to (columns)") : [null, null, rowTokens];
  const lower = make("div", { class: "lower" }, said, rowCaption, rowText, ...(cross ? [columnCaption, columnText] : []));
  const panes = make("div", { class: "panes" });
  if (thumbs.length) panes.append(grid);
  panes.append(make("div", { class: "detail" }, bar, stage), lower);
  if (picture.title) all.append(make("div", { class: "title" }, picture.title));
  all.append(panes);
  root.append(make("style", {}, STYLE), all);
  el.replaceChildren(host); // the static table gives way
  // Sphinx themes lay a light box under HTML outputs on dark pages; this picture has dark colours of its own.
  const laid = el.closest(".cell_output .text_html");
  if (laid) Object.assign(laid.style, { background: "none", padding: 0 });

  // ---- what the reader does -------------------------------------------------------------------------------------------
  function choose(l, h) {
    model.set("layer", clamp(l, 0, layers - 1));
    model.set("head", clamp(h, 0, heads - 1));
    model.save_changes();
  }

  // The spot shown: under the pointer, else pinned, else the last row, so that there is something to see at once.
  function spot() { return hover ?? pin ?? { i: n - 1, j: null }; }
  const same = (a, b) => a !== null && b !== null && a.i === b.i && a.j === b.j;
  function pinTo(next) { pin = next; hover = null; showSpot(); }

  function track(node, where) {
    node.addEventListener("pointermove", (event) => { const next = where(event); if (!same(hover, next)) { hover = next; showSpot(); } });
    node.addEventListener("pointerleave", () => { hover = null; showSpot(); });
    node.addEventListener("click", (event) => {
      const next = where(event);
      pin = same(pin, next) ? null : next;
      if (event.pointerType === "touch") hover = null; // a finger leaves no pointer behind
      showSpot();
    });
  }
  track(cells, (event) => {
    const box = cells.getBoundingClientRect();
    return {
      i: clamp(Math.floor(((event.clientY - box.top) / box.height) * n), 0, n - 1),
      j: clamp(Math.floor(((event.clientX - box.left) / box.width) * m), 0, m - 1),
    };
  });

  cells.addEventListener("keydown", (event) => {
    const { i, j } = spot(), at = { i: i ?? n - 1, j: j ?? (cross ? 0 : i ?? 0) };
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -m], End: [0, m], PageUp: [-n, 0], PageDown: [n, 0] };
    if (event.key in moves) {
      const [di, dj] = moves[event.key];
      pinTo({ i: clamp(at.i + di, 0, n - 1), j: clamp(at.j + dj, 0, m - 1) });
    } else if (event.key === "Enter" || event.key === " ") pinTo(at);
    else return;
    event.preventDefault();
  });
  all.addEventListener("keydown", (event) => { if (event.key === "Escape") pinTo(null); });
  grid.addEventListener("keydown", (event) => {
    const [dl, dh] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!dl && !dh) return;
    choose(layer() + dl, head() + dh);
    thumbs[layer() * heads + head()].focus();
    event.preventDefault();
  });

  // ---- what the reader sees -------------------------------------------------------------------------------------------
  function showHead() {
    thumbs.forEach((thumb, k) => {
      const chosen = k === layer() * heads + head();
      thumb.setAttribute("aria-checked", chosen);
      thumb.tabIndex = chosen ? 0 : -1;
    });
    layerMenu.value = layer();
    headMenu.value = head();
    drawCells();
    showSpot();
  }

  function drawThumbs() {
    thumbs.forEach((thumb, k) => {
      const small = thumb.firstChild;
      paint(small, matrix(Math.floor(k / heads), k % heads), n, m, look, causal, THUMB_PIXELS);
      small.style.imageRendering = Math.max(n, m) <= THUMB_PIXELS ? "pixelated" : "auto";
    });
    const ink = scaleCanvas.getContext("2d");
    for (let x = 0; x < 120; x++) { // the bar runs over the root of the weight, as the colours do
      ink.fillStyle = `rgb(${look.colours[Math.round(255 * (x / 119) ** 2)]})`;
      ink.fillRect(x, 0, 1, 1);
    }
  }

  // Cells as large as the page allows; token names beside them where they fit, else only the marked row's and column's.
  // Heads and text stand beside the matrix unless that would leave no room for its names.
  function layOut() {
    const wide = host.clientWidth;
    if (!wide) return; // not on the screen yet: the observer calls again
    const longest = (names) => Math.max(...names.map((name) => [...name].length));
    const rowSpace = clamp(longest(rowNames) * 7 + 10, 24, wide < 600 ? 76 : 96);
    const left = clamp(heads * 68 + 50, 250, wide * 0.42), beside = wide - left - 24 - rowSpace;
    const stacked = wide < 600 || beside / m < SMALLEST_LABELLED;
    all.classList.toggle("stacked", stacked);
    all.style.setProperty("--left", `${left}px`);
    grid.style.gridTemplateColumns = `auto repeat(${heads}, ${clamp(Math.floor(((stacked ? wide : left) - 50) / heads) - 4, 8, 64)}px)`;
    const room = Math.min(stacked ? wide - rowSpace : beside, 640) - 2;
    let width = Math.min(LARGEST_CELL, room / m), height = cross ? Math.min(LARGEST_CELL, Math.max(room, 320) / n) : width;
    if (cross && Math.abs(width - height) < 8) width = height = Math.min(width, height);
    Object.assign(cells.style, { width: `${width * m}px`, height: `${height * n}px` });
    const fewRows = height < SMALLEST_LABELLED, fewColumns = width < SMALLEST_LABELLED;
    Object.assign(rows.style, { width: `${rowSpace}px`, fontSize: `${fewRows ? 12 : clamp(height - 1, 9, 12.5)}px` });
    Object.assign(columns.style, {
      height: `${fewColumns ? 24 : clamp(longest(columnNames) * 7 + 10, 24, 90)}px`, fontSize: `${fewColumns ? 12 : clamp(width - 1, 9, 12.5)}px`,
    });
    rows.classList.toggle("few", fewRows);
    columns.classList.toggle("few", fewColumns);
    const thick = (size) => Math.max(size, 16), edge = Math.min(50, (width * m) / 2);
    rowLabels.forEach((node, i) => Object.assign(node.style, { top: `${(i + 0.5) * height - thick(height) / 2}px`, lineHeight: `${thick(height)}px` }));
    columnLabels.forEach((node, j) => Object.assign(node.style, {
      left: `${fewColumns ? clamp((j + 0.5) * width, edge, width * m - edge) : (j + 0.5) * width - thick(width) / 2}px`, lineHeight: `${thick(width)}px`,
    }));
    drawCells();
    showSpot();
  }

  function drawCells() {
    const dots = window.devicePixelRatio || 1, width = Math.round(parseFloat(cells.style.width) * dots), height = Math.round(parseFloat(cells.style.height) * dots);
    if (!width) return;
    Object.assign(canvas, { width, height });
    const ink = canvas.getContext("2d"), small = document.createElement("canvas"), w = width / m, h = height / n;
    paint(small, matrix(layer(), head()), n, m, look, causal, Infinity);
    ink.imageSmoothingEnabled = Math.min(w, h) < 1;
    ink.drawImage(small, 0, 0, width, height);
    if (causal) hatch(ink, w, h, dots);
    if (Math.min(w, h) < 7 * dots) return;
    for (let j = 1; j < m; j++) ink.clearRect(Math.round(j * w), 0, 1, height); // thin gaps, so that cells can be counted
    for (let i = 1; i < n; i++) ink.clearRect(0, Math.round(i * h), width, 1);
  }

  // Lines across the masked triangle: no weight can be there, which is not the same as a weight of 0.
  function hatch(ink, w, h, dots) {
    ink.save();
    ink.beginPath();
    for (let i = 0; i < n; i++) ink.rect((i + 1) * w, i * h, (m - i - 1) * w, h);
    ink.clip();
    ink.beginPath();
    for (let x = -n * h; x < m * w; x += 5 * dots) { ink.moveTo(x, n * h); ink.lineTo(x + n * h, 0); }
    Object.assign(ink, { strokeStyle: look.hatch, lineWidth: dots * 0.75 });
    ink.stroke();
    ink.restore();
  }

  function showSpot() {
    const { i, j } = spot(), A = matrix(layer(), head());
    const box = (node, show, left, top, width, height) => Object.assign(node.style, {
      display: show ? "block" : "none", left: `${(100 * left) / m}%`, top: `${(100 * top) / n}%`, width: `${(100 * width) / m}%`, height: `${(100 * height) / n}%`,
    });
    box(bands[0], i !== null, 0, i, m, 1);
    box(bands[1], j !== null, j, 0, 1, n);
    box(bands[2], i !== null && j !== null, j, i, 1, 1);
    rowLabels.forEach((node, k) => node.classList.toggle("on", k === i));
    columnLabels.forEach((node, k) => node.classList.toggle("on", k === j));
    // A marked row shades the columns' tokens by its weights; a marked column alone shades the rows' tokens by theirs for it.
    const byRow = i !== null, shaded = byRow ? columnTokens : rowTokens;
    if (cross) (byRow ? rowTokens : columnTokens).forEach((node) => tint(node, null));
    shaded.forEach((node, k) => tint(node, byRow ? A[i * m + k] : A[k * m + j], byRow ? hidden(i, k) : hidden(k, j)));
    rowTokens.forEach((node, k) => mark(node, k === i || (!cross && !byRow && k === j), pin !== null && pin.i === k));
    if (cross) columnTokens.forEach((node, k) => mark(node, k === j, pin !== null && pin.j === k));
    point(rowText, i, `row${i}`);
    if (cross) point(columnText, j, `column${j}`);
    said.replaceChildren(...sentence(i, j, A));
  }

  function tint(node, q, masked = false) {
    const fill = q === null || masked ? null : look.colours[q];
    node.classList.toggle("hatch", masked);
    node.style.backgroundColor = fill ? `rgb(${fill})` : "";
    node.style.color = fill ? (luminance(fill) > 0.18 ? "#10151c" : "#ffffff") : "";
  }

  function point(text, k, id) { // tells a screen reader which token of the line is marked
    if (k === null) text.removeAttribute("aria-activedescendant");
    else text.setAttribute("aria-activedescendant", id);
  }

  function mark(node, on, pinned) {
    node.classList.toggle("on", on);
    node.classList.toggle("pinned", pinned);
    node.setAttribute("aria-selected", on);
  }

  // The same in words. A stored weight is within 1/510 of the true one, and is shown as such.
  function sentence(i, j, A) {
    const name = (names, k) => [make("b", {}, names[k]), ` (${k})`], value = (q) => (q / 255).toFixed(3);
    const about = () => make("small", {}, " ± 0.002");
    if (i !== null && j !== null) {
      const arrow = [...name(rowNames, i), " → ", ...name(columnNames, j)];
      return hidden(i, j) ? [...arrow, ": masked"] : [...arrow, ": ", value(A[i * m + j]), about()];
    }
    const byRow = i !== null, weight = (k) => (byRow ? A[i * m + k] : A[k * m + j]), names = byRow ? columnNames : rowNames;
    const best = names.map((_, k) => k).filter((k) => weight(k) > 0).sort((a, b) => weight(b) - weight(a)).slice(0, 3);
    const parts = best.flatMap((k, place) => [place ? ", " : "", ...name(names, k), " ", value(weight(k))]);
    const verb = byRow ? " attends most to " : " is attended to most by ";
    return [...name(byRow ? rowNames : columnNames, byRow ? i : j), verb, ...(parts.length ? [...parts, about()] : ["no token"])];
  }

  // ---- follow the page and the kernel ---------------------------------------------------------------------------------
  function follow() {
    const dark = isDark(el), next = dark ? looks.dark : looks.light;
    if (next === look) return;
    look = next;
    all.classList.toggle("dark", dark);
    drawThumbs();
    showHead();
  }
  const resized = new ResizeObserver(() => layOut());
  resized.observe(host);
  const themed = new MutationObserver(follow), scheme = matchMedia("(prefers-color-scheme: dark)");
  for (const node of [document.documentElement, document.body]) themed.observe(node, { attributes: true, attributeFilter: ["class", "data-theme", "theme", "data-jp-theme-light", "data-vscode-theme-kind"] });
  scheme.addEventListener("change", follow);
  model.on("change:layer", showHead);
  model.on("change:head", showHead);
  follow();
  layOut();
  return () => { resized.disconnect(); themed.disconnect(); scheme.removeEventListener("change", follow); };
}

const viewer = { render };
export default viewer;
