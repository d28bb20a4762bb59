// An interactive picture of attention weights. base.py puts base.js before it, and the whole is one ES module with two hosts:
// anywidget in a live notebook, and a static page. It asks for nothing from outside.
//
// What the reader chooses is in the model (layer, head, pinned, scale, top_k, form, against, difference, reverse); what the
// pointer is on is `hover`. Everything on the screen follows from them, in `showHead` and `showSpot`. A spot is {i, j}: row i
// gives a weight to column j; one of the two may be null (a token alone). A shade is the colour of a cell: 0 to 255 on the
// scale of weights, −255 to 0 for a difference below 0, or MASK.

// Nine colours at equal perceptual distances, from weight 0 to weight 1; on a dark page light means large. Then the same for
// a difference from 0 to −1.
const STOPS = {
  light: ["#f6fbfd", "#c4e7f2", "#8ed0e4", "#5bb4d7", "#3898cb", "#2a7cbb", "#295fa3", "#263f80", "#1d2657"],
  dark: ["#1e222f", "#222f50", "#264378", "#2463a2", "#2284bf", "#35a3d2", "#5cc2e1", "#92e1ef", "#ccfdff"],
};
const BELOW = {
  light: ["#f6fbfd", "#fbe3c8", "#f8c894", "#f0a95f", "#e28632", "#c9671a", "#a64d12", "#7f370f", "#58240b"],
  dark: ["#1e222f", "#3c2a22", "#5d3718", "#834a12", "#aa6114", "#cf7f24", "#ec9f46", "#fdc382", "#ffe9cd"],
};
const MASKED = { light: "#e3e6ea", dark: "#33363d" }, HATCH = { light: "#b9c0c9", dark: "#565c66" };
const MASK = 256, STEP = 1 / 510; // half a step of the stored weights: what they are off by at most
const LARGEST_CELL = 40, SMALLEST_LABELLED = 9.5, THUMB_PIXELS = 56, MOST_EDGES = 3000; // css pixels; the thumb's also canvas pixels

// How a weight becomes a place on the colour scale, and what is written at its ends and middle. The root spends more colours on
// small weights: a row of a hundred tokens rarely gives any one of them more than 0.1. The logarithm begins at half a step.
const SCALES = {
  root: { name: "root", place: Math.sqrt, ticks: ["0", "0.25", "1"] },
  linear: { name: "linear", place: (w) => w, ticks: ["0", "0.5", "1"] },
  log: { name: "logarithm", place: (w) => (w > STEP ? 1 - Math.log(w) / Math.log(STEP) : 0), ticks: ["0.002", "0.044", "1"] },
  top: { name: "k largest", place: Math.sqrt, ticks: ["0", "0.25", "1"] },
};

const OWN = `
.all { --mark: #d55e00; --hatch: #cbd0d7; --masked: #eceef1; max-width: 60rem; }
.all.dark { --mark: #ffb000; --hatch: #474c55; --masked: #2b2e34; color-scheme: dark; }
.panes { display: grid; gap: .75rem 1.5rem; grid-template: "heads detail" auto "lower detail" 1fr / var(--left) minmax(0, 1fr); }
.stacked .panes { grid-template: "heads" auto "detail" auto "lower" auto / minmax(0, 1fr); }
.alone .panes { grid-template: "detail" auto "lower" auto / minmax(0, 1fr); }
.detail { grid-area: detail; min-width: 0; }
.lower { grid-area: lower; min-width: 0; }
.heads { grid-area: heads; display: grid; gap: 4px; align-items: center; justify-content: start; }
.heads > span { color: var(--soft); font-size: 12px; text-align: center; line-height: 1.2; }
.heads button { padding: 0; border: 1px solid var(--line); border-radius: 3px; background: none; cursor: pointer;
  display: block; width: 100%; min-width: 0; aspect-ratio: 1; overflow: hidden; position: relative; }
.heads button:hover { border-color: var(--soft); }
.heads button[aria-checked="true"] { border-color: var(--mark); box-shadow: 0 0 0 2px var(--mark); }
.heads button.second { outline: 2px dashed var(--ink); outline-offset: 1px; }
.heads button:focus-visible { outline: 3px solid var(--mark); outline-offset: 3px; }
.heads canvas { width: 100%; height: 100%; display: block; }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 3px; border-radius: 2px; }
.bar { gap: .35rem 1rem; }
.bar label { display: inline-flex; align-items: center; white-space: nowrap; max-width: 100%; }
select, input[type="number"] { font: inherit; color: inherit; background: var(--field); border: 1px solid var(--soft); border-radius: 4px;
  padding: .1rem .3rem; margin-left: .35rem; min-height: 26px; min-width: 0; }
input[type="number"] { width: 4.2rem; }
input[type="checkbox"] { flex: none; width: 24px; height: 24px; margin: 0 .35rem 0 0; accent-color: var(--one); }
.foot { margin: .8rem 0 0; }
.foot button { min-height: 28px; min-width: 0; padding: .05rem .5rem; }
.save { display: inline-flex; flex-wrap: wrap; gap: .35rem; align-items: center; }
.scale { display: flex; flex-wrap: wrap; gap: .4rem .9rem; align-items: center; color: var(--soft); font-size: 12px; line-height: 1.2; }
.scale canvas { width: 120px; height: 10px; display: block; border-radius: 2px; border: 1px solid var(--line); }
.ticks { display: grid; grid-template-columns: 1fr 1fr 1fr; font-size: 11px; }
.ticks :nth-child(2) { text-align: center; }
.ticks :nth-child(3) { text-align: right; }
.scale i { display: inline-block; width: 16px; height: 12px; border: 1px solid var(--line); margin-right: .4rem; vertical-align: -1px; }
.hatch { background: repeating-linear-gradient(135deg, var(--hatch) 0 1px, var(--masked) 1px 5px); }
.panels { display: flex; flex-wrap: wrap; gap: .75rem 1.5rem; align-items: flex-end; }
.beside .panel { width: calc(50% - .75rem); }
.facts { color: var(--soft); font-size: 12px; margin: 0 0 .3rem; font-variant-numeric: tabular-nums; }
.facts b { color: var(--ink); font-weight: 600; margin-right: .9em; }
.facts span { white-space: nowrap; margin-right: .9em; }
.stage { display: grid; grid-template: ". columns ." auto "rows cells ends" auto / auto auto auto; justify-content: start; }
.name { position: absolute; white-space: pre; overflow: hidden; text-overflow: ellipsis; color: var(--soft);
  unicode-bidi: isolate; cursor: pointer; }
.name.on { color: var(--ink); font-weight: 600; }
.rows, .columns, .ends { position: relative; cursor: pointer; }
.rows { grid-area: rows; }
.columns { grid-area: columns; }
.ends { grid-area: ends; }
.rows .name { right: 6px; max-width: calc(100% - 6px); text-align: right; }
.ends .name { left: 6px; max-width: calc(100% - 6px); }
.columns .name { bottom: 6px; writing-mode: vertical-rl; transform: rotate(180deg); max-height: 100%; }
.columns.few .name { writing-mode: horizontal-tb; transform: translateX(-50%); max-width: 100px; bottom: 3px; }
.cells { grid-area: cells; position: relative; cursor: crosshair; touch-action: pan-y; border-radius: 2px; }
.cells canvas { position: absolute; inset: 0; width: 100%; height: 100%; border-radius: 2px; }
.edges .cells { cursor: pointer; }
.back { will-change: transform; }
.edges .back.dim { opacity: .2; }
.band { position: absolute; pointer-events: none; outline: 1.5px solid var(--mark); border-radius: 2px; }
.band.cell { outline: 2px solid var(--ink); box-shadow: 0 0 0 3.5px var(--mark); }
/* The sentence has a fixed height: were it to grow, the tokens below would slip away from under the pointer. */
.said { height: 4.4em; min-height: 0; overflow-y: auto; margin: 0 0 .3rem; }
.two .said { height: 7.3em; }
.two.narrow .said { height: 9em; }
.said p { margin: 0; }
.said b { white-space: pre; display: inline-block; max-width: 8.5em; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }
.said small { color: var(--soft); font-size: 12px; }
.caption { color: var(--soft); font-size: 12px; margin: .4rem 0 .1rem; }
.text, .said { contain: content; }
.cells { contain: layout; }
.text { line-height: 1.95; max-height: 16rem; overflow: auto; padding: 2px; border-radius: 4px; }
.text span { display: inline-block; max-width: min(16em, 100%); overflow: hidden; text-overflow: ellipsis; white-space: pre;
  vertical-align: top; line-height: 1.5; margin: 2px 1px; padding: 0 4px; border-radius: 4px; unicode-bidi: isolate;
  cursor: pointer; min-width: 1.2em; text-align: center; color: var(--ink); border: 2px solid transparent; }
.text span.short { overflow: visible; } /* a thousand boxes that clip are slow to paint */
.text span.hatch { color: var(--soft); }
.text span.on { border-color: var(--mark); }
.text span.pinned { border-color: var(--mark); text-decoration: underline 2px var(--mark); text-underline-offset: 3px; }
summary { cursor: pointer; min-height: 28px; padding: .2rem 0; width: max-content; max-width: 100%; }
details > div { overflow: auto; max-height: 24rem; border-radius: 4px; }
td bdi, th bdi { white-space: pre-wrap; overflow-wrap: anywhere; }
[hidden] { display: none !important; }
@media print {
  .all.dark { --mark: #d55e00; --hatch: #cbd0d7; --masked: #eceef1; }
  .foot, .bar label, details:not([open]) { display: none; }
}
`;

// ---- numbers and colours --------------------------------------------------------------------------------------------

function bytes(base64) {
  const text = atob(base64), all = new Uint8Array(text.length);
  for (let k = 0; k < all.length; k++) all[k] = text.charCodeAt(k);
  return all;
}
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

// The colours of the shades 0 to 255 between the stops.
function ramp(stops) {
  const ends = stops.map(rgb);
  return Array.from({ length: 256 }, (_, s) => {
    const t = (s / 255) * (ends.length - 1), k = Math.min(Math.floor(t), ends.length - 2);
    return ends[k].map((c, a) => Math.round(c + (t - k) * (ends[k + 1][a] - c)));
  });
}

// Shade s has the colour colours[255 + s]; `pixels` holds the same as a canvas does.
function lookOf(theme) {
  const colours = [...ramp(BELOW[theme]).slice(1).reverse(), ...ramp(STOPS[theme]), rgb(MASKED[theme])];
  return { colours, pixels: Uint32Array.from(colours, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r), hatch: HATCH[theme] };
}

// The shade of every cell of a head A; of A − B, where there is a B.
function shadesOf(A, B, hidden, n, m, scale, k) {
  const place = Int16Array.from({ length: 256 }, (_, q) => Math.round(255 * SCALES[scale].place(q / 255))), s = new Int16Array(n * m);
  for (let c = 0; c < n * m; c++) {
    if (hidden && hidden[c]) s[c] = MASK;
    else if (!B) s[c] = place[A[c]];
    else s[c] = A[c] < B[c] ? -place[B[c] - A[c]] : place[A[c] - B[c]];
  }
  if (scale !== "top" || B) return s;
  const count = new Uint32Array(256); // of each row the k largest; of equals those that stand first
  for (let i = 0; i < n; i++) {
    count.fill(0);
    for (let j = 0; j < m; j++) count[A[i * m + j]]++;
    let least = 255, room = k; // what is above `least` stays, and `room` of those equal to it
    while (least > 0 && count[least] < room) room -= count[least--];
    for (let c = i * m; c < (i + 1) * m; c++) if (s[c] !== MASK && (A[c] < least || (A[c] === least && room-- <= 0))) s[c] = 0;
  }
  return s;
}

// One block for each k × k cells, so that there are at most `most` on a side: its largest shade, so that a thin diagonal survives.
function blocks(s, n, m, most) {
  const k = Math.max(1, Math.ceil(Math.max(n, m) / most)), height = Math.ceil(n / k), width = Math.ceil(m / k);
  if (k === 1) return { k, height, width, s };
  const t = new Int16Array(height * width).fill(MASK);
  for (let i = 0; i < n; i++) {
    const a = Math.floor(i / k) * width;
    for (let j = 0; j < m; j++) {
      const v = s[i * m + j], at = a + Math.floor(j / k);
      if (v !== MASK && (t[at] === MASK || Math.abs(v) > Math.abs(t[at]))) t[at] = v;
    }
  }
  return { k, height, width, s: t };
}

function paint(canvas, s, n, m, look, most) {
  const small = blocks(s, n, m, most), image = new ImageData(small.width, small.height), pixels = new Uint32Array(image.data.buffer);
  for (let c = 0; c < pixels.length; c++) pixels[c] = look.pixels[255 + small.s[c]];
  Object.assign(canvas, { width: small.width, height: small.height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The edges to draw, as [i, j, shade] from faint to strong: of very many, the strongest.
function edgesOf(s, n, m, most = MOST_EDGES) {
  const count = new Uint32Array(256), edges = [];
  for (const v of s) if (v !== MASK) count[Math.abs(v)]++;
  let least = 256, room = most;
  while (least > 1 && count[least - 1] <= room) room -= count[--least];
  for (let c = 0; c < n * m; c++) if (s[c] !== MASK && Math.abs(s[c]) >= least) edges.push([Math.floor(c / m), c % m, s[c]]);
  return edges.sort((a, b) => Math.abs(a[2]) - Math.abs(b[2]));
}

const longest = (names) => names.reduce((most, name) => Math.max(most, [...name].length), 0);
const share = (q) => (q / 255).toFixed(3);

// ---- the names along one side: all where they fit, else only the marked one, which walks along ----------------------------

function namesAlong(names, side) {
  const node = make("div", { class: side, "aria-hidden": "true" }), made = [];
  let size = 0, long = 0, few = false, marked = null;
  const label = (k) => (made[k] ??= make("div", { class: "name", title: names[k] }, names[k]));
  function place(k) {
    const thick = Math.max(size, 16), middle = (k + 0.5) * size, edge = Math.min(50, long / 2), style = { lineHeight: `${thick}px` };
    if (side !== "columns") style.top = `${middle - thick / 2}px`;
    else style.left = `${few ? clamp(middle, edge, long - edge) : middle - thick / 2}px`;
    Object.assign(label(k).style, style);
  }
  return {
    node,
    at: (event) => {
      const box = node.getBoundingClientRect(), along = side === "columns" ? event.clientX - box.left : event.clientY - box.top;
      return clamp(Math.floor(along / size), 0, names.length - 1);
    },
    lay(cell, space) {
      size = cell; long = cell * names.length; few = cell < SMALLEST_LABELLED;
      node.classList.toggle("few", few);
      node.style.fontSize = `${few ? 12 : clamp(size - 1, 9, 12.5)}px`;
      node.style[side === "columns" ? "height" : "width"] = `${side === "columns" && few ? 24 : space}px`;
      const all = few ? (marked === null ? [] : [marked]) : [...names.keys()];
      all.forEach(place);
      node.replaceChildren(...all.map(label));
    },
    mark(k) {
      if (k === marked) return;
      if (marked !== null) label(marked).classList.remove("on");
      if (k !== null) label(k).classList.add("on");
      marked = k;
      if (!few) return;
      if (k !== null) place(k);
      node.replaceChildren(...(k === null ? [] : [label(k)]));
    },
  };
}

// ---- the text, a token after the other, shaded ---------------------------------------------------------------------------

function textLine(names, axis, caption) {
  const short = (name) => (/^[\x20-\x7e␣⏎]{1,10}$/.test(name) ? "short" : "");
  const tokens = names.map((name, k) => make("span", { class: short(name), role: "option", title: name, id: `${axis}${k}`, "aria-selected": "false" }, name));
  const places = new Map(tokens.map((node, k) => [node, k])), shown = new Array(tokens.length).fill(null);
  const node = make("div", { class: "text", role: "listbox", tabindex: "0", "aria-label": caption }, ...tokens);
  const above = make("div", { class: "caption", "aria-hidden": "true" }, caption);
  let marks = [];
  return {
    nodes: [above, node], node,
    say(words) { above.textContent = words; node.setAttribute("aria-label", words); },
    at: (event) => places.get(event.target.closest("span")) ?? null,
    forget: () => shown.fill(null), // the colours have changed
    tint(shade, look) { // shade(k) is null where the token has none
      tokens.forEach((token, k) => {
        const s = shade(k) ?? -999;
        if (shown[k] === s) return;
        shown[k] = s;
        const fill = s === -999 || s === MASK ? null : look.colours[255 + s];
        token.classList.toggle("hatch", s === MASK);
        token.style.backgroundColor = fill ? `rgb(${fill})` : "";
        token.style.color = fill ? (luminance(fill) > 0.179 ? "#000" : "#fff") : ""; // at least 4.5 to 1, whatever the ground
      });
    },
    mark(k, also, pinned) { // `also`: marked too, but not the one the keys are on
      for (const token of marks) { token.classList.remove("on", "pinned"); token.setAttribute("aria-selected", "false"); }
      marks = [k, also].filter((place) => place !== null).map((place) => tokens[place]);
      for (const token of marks) { token.classList.add("on"); token.setAttribute("aria-selected", "true"); }
      if (pinned !== null) { tokens[pinned].classList.add("pinned"); marks.push(tokens[pinned]); }
      // Tells a screen reader which token of the line is marked.
      if (k === null) node.removeAttribute("aria-activedescendant");
      else node.setAttribute("aria-activedescendant", tokens[k].id);
    },
  };
}

function render({ model, el }) {
  const picture = model.get("data"), [layers, heads, n, m] = picture.shape, cross = picture.columns !== null;
  const rowNames = picture.tokens, columnNames = cross ? picture.columns : picture.tokens, several = layers * heads > 1;
  const get = (key) => model.get(key), layer = () => get("layer"), head = () => get("head");
  const looks = { light: lookOf("light"), dark: lookOf("dark") }, paper = matchMedia("print");
  let look = null, hover = null, width = 0;

  // ---- the weights: what is masked is not stored ----------------------------------------------------------------------
  const bits = picture.mask && picture.mask !== "causal" ? bytes(picture.mask) : null;
  const hidden = picture.mask && Uint8Array.from({ length: n * m }, (_, c) => (bits ? (bits[c >> 3] >> (7 - (c & 7))) & 1 : c % m > c / m));
  const stored = picture.weights.map(bytes), size = hidden ? hidden.reduce((left, h) => left - h, n * m) : n * m;
  function matrix(which, l, h) {
    const part = stored[which].subarray((l * heads + h) * size, (l * heads + h + 1) * size);
    if (!hidden) return part;
    const A = new Uint8Array(n * m);
    for (let c = 0, from = 0; c < n * m; c++) if (!hidden[c]) A[c] = part[from++];
    return A;
  }
  // The head compared with, as [which weights, layer, head]; null without one.
  const second = () => { const to = get("against"); return to === null ? null : to === "other" ? [1, layer(), head()] : [0, ...to]; };
  let A = null, B = null; // the weights of the head in detail, and of the one compared with

  // ---- the elements, made once ----------------------------------------------------------------------------------------
  const place = (l, h) => (several ? `layer ${l}, head ${h}` : "");
  const title = ([which, l, h]) => [...(stored.length > 1 ? [picture.names[which]] : []), place(l, h)].filter(Boolean).join(" · ") || "weights";
  const minus = (a, b) => (a[0] === b[0] ? `${title(a)} − ${place(b[1], b[2])}` : [picture.names.join(" − "), place(a[1], a[2])].filter(Boolean).join(" · "));
  const facts = ([which, l, h]) => {
    const distance = picture.distance && picture.distance[which][l][h], entropy = picture.entropy[which][l][h];
    return [["entropy", entropy, "nats"], ...(distance === null ? [] : [["mean distance", distance, "tokens"]])];
  };
  const grid = make("div", { class: "heads", role: "radiogroup", "aria-label": "heads: a row for each layer, arrow keys choose" });
  const thumbs = [];
  if (several) {
    grid.append(make("span"), ...Array.from({ length: heads }, (_, h) => make("span", {}, h || heads > 6 ? `${h}` : `head ${h}`)));
    for (let l = 0; l < layers; l++) {
      grid.append(make("span", {}, l || layers > 6 ? `${l}` : `layer ${l}`));
      for (let h = 0; h < heads; h++) {
        const name = `layer ${l}, head ${h}: ${facts([0, l, h]).map(([what, x, unit]) => `${what} ${fixed(x, 2)} ${unit}`).join(", ")}`;
        const thumb = make("button", { type: "button", role: "radio", "aria-label": name, title: name }, make("canvas"));
        thumb.addEventListener("click", () => choose({ layer: l, head: h }));
        thumbs.push(thumb);
        grid.append(thumb);
      }
    }
  }
  function menu(name, options, value, pick) { // options: [value, text]; `value()` is the one chosen now
    const select = make("select", { "aria-label": name }, ...options.map(([key, text]) => make("option", { value: key }, text)));
    select.addEventListener("change", () => pick(select.value));
    return { node: make("label", {}, name, select), show: () => { select.value = value(); } };
  }
  function box(name, key, pick = (on) => ({ [key]: on })) {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => choose(pick(input.checked)));
    return { node: make("label", {}, input, name), show: () => { input.checked = get(key); } };
  }
  const counted = (size) => Array.from({ length: size }, (_, k) => [k, `${k}`]);
  const layerMenu = menu("layer", counted(layers), layer, (l) => choose({ layer: +l }));
  const headMenu = menu("head", counted(heads), head, (h) => choose({ head: +h }));
  const formMenu = menu("as", [["matrix", "matrix"], ["edges", "edges"]], () => get("form"), (form) => choose({ form }));
  const scaleMenu = menu("colours", Object.entries(SCALES).map(([key, { name }]) => [key, name]), () => get("scale"), (scale) => choose({ scale }));
  const many = make("input", { type: "number", min: 1, max: m, step: 1, "aria-label": "k, how many of each row" });
  many.addEventListener("change", () => { choose({ top_k: clamp(Math.round(+many.value) || 1, 1, m) }); many.value = get("top_k"); });
  const manyLabel = make("label", {}, "k", many);
  const pairs = Array.from({ length: layers * heads }, (_, k) => [Math.floor(k / heads), k % heads]);
  const againstMenu = menu("compare with", [["", "nothing"], ...(stored.length > 1 ? [["other", several ? `the same head of ${picture.names[1]}` : picture.names[1]]] : []),
    ...(several ? pairs.map(([l, h]) => [`${l},${h}`, title([0, l, h])]) : [])],
  () => `${get("against") ?? ""}`, (to) => choose({ against: to === "" ? null : to === "other" ? to : to.split(",").map(Number) }));
  const differenceBox = box("difference", "difference");
  // Turning the direction turns the marked token with it: the same token, asked the other way round.
  const reverseBox = box("shade by who looks at the token", "reverse", (on) => {
    const [i, j] = get("pinned") ?? [null, null];
    return { reverse: on, ...(i === null || j === null ? { pinned: i === null && j === null ? null : [j, i] } : {}) };
  });
  const controls = [layerMenu, headMenu, formMenu, scaleMenu, againstMenu, differenceBox, reverseBox];

  function legend(...marks) {
    const canvas = make("canvas", { width: 120, height: 1 }), ticks = make("div", { class: "ticks" }, ...marks.map((mark) => make("span", {}, mark)));
    return { node: make("div", {}, canvas, ticks), canvas, ticks };
  }
  const weightLegend = legend("0", "", "1"), differenceLegend = legend("−1", "0", "1");
  const scale = make("div", { class: "scale", "aria-hidden": "true" }, weightLegend.node, differenceLegend.node);
  if (hidden) scale.append(make("span", {}, make("i", { class: "hatch" }), "masked"));
  const bar = make("div", { class: "bar" }, ...(several ? [layerMenu.node, headMenu.node] : []), formMenu.node, scaleMenu.node, manyLabel, scale);

  // One head in detail: its matrix or its edges, and the text shaded by it. The second exists from the first comparison on.
  function panel(order) {
    const rows = namesAlong(rowNames, "rows"), columns = namesAlong(columnNames, "columns"), ends = namesAlong(columnNames, "ends");
    const back = make("canvas", { class: "back" }), front = make("canvas"), bands = ["row", "column", "cell"].map((kind) => make("div", { class: `band ${kind}` }));
    const cells = make("div", { class: "cells", tabindex: "0", role: "application", "aria-roledescription": "attention picture" }, back, front, ...bands);
    const stage = make("div", { class: "stage" }, columns.node, rows.node, cells, ends.node), told = make("div", { class: "facts" });
    const captions = cross ? ["the tokens that attend (rows)", "the tokens attended to (columns)"] : [""];
    const texts = captions.map((caption, k) => textLine(k ? columnNames : rowNames, `${k ? "column" : "row"}${order}-`, caption));
    track(rows.node, (event) => ({ i: rows.at(event), j: null }));
    track(columns.node, (event) => ({ i: null, j: columns.at(event) }));
    track(ends.node, (event) => ({ i: null, j: ends.at(event) }));
    track(cells, (event) => {
      const area = cells.getBoundingClientRect(), x = (event.clientX - area.left) / area.width, y = (event.clientY - area.top) / area.height;
      const place = (t, count, most = count) => clamp(Math.floor(t * most), 0, count - 1), most = Math.max(n, m);
      if (get("form") === "matrix") return { i: place(y, n), j: place(x, m) };
      return x < 0.5 ? { i: place(y, n, most), j: null } : { i: null, j: place(y, m, most) };
    });
    cells.addEventListener("keydown", (event) => {
      const { i, j } = spot(), next = get("form") === "matrix" ? moveCell(event.key, i, j) : moveEnd(event.key, i, j);
      if (next) { pinTo(next); event.preventDefault(); }
    });
    texts.forEach((text, k) => {
      track(text.node, (event) => { const at = text.at(event); return at === null ? null : onText(k, at); });
      text.node.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -n - m, End: n + m }[event.key], { i, j } = spot();
        const now = cross ? (k ? j : i) : byRow(i, j) ? i : j, most = (k ? m : n) - 1;
        if (step) pinTo(onText(k, clamp((now ?? -1) + step, 0, most)));
        else if (event.key === "Enter" || event.key === " ") pinTo(onText(k, now ?? 0));
        else return;
        event.preventDefault();
      });
    });
    const dots = () => window.devicePixelRatio || 1;
    let s = null, w = 0, h = 0, wide = 0, high = 0; // shades; width and height of a cell, and of all, in css pixels
    const curve = (ink, i, j) => {
      const [a, b] = [(i + 0.5) * h, (j + 0.5) * h];
      ink.moveTo(0, a);
      ink.bezierCurveTo(wide / 2, a, wide / 2, b, wide, b);
    };
    const thickness = (shade) => clamp(h / 6, 0.6, 1.4) * (0.4 + (1.8 * Math.abs(shade)) / 255);
    // Lines of one shade are one stroke.
    function strokes(ink, edges) {
      for (let k = 0; k < edges.length; ) {
        const shade = edges[k][2];
        ink.beginPath();
        for (; k < edges.length && edges[k][2] === shade; k++) curve(ink, edges[k][0], edges[k][1]);
        Object.assign(ink, { strokeStyle: `rgb(${look.colours[255 + shade]})`, lineWidth: thickness(shade) });
        ink.stroke();
      }
    }
    function sized(canvas) {
      const size = { width: Math.round(wide * dots()), height: Math.round(high * dots()) }, ink = canvas.getContext("2d");
      if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
      ink.setTransform(1, 0, 0, 1, 0, 0);
      ink.clearRect(0, 0, size.width, size.height);
      return ink;
    }
    // Lines across what is masked: no weight can be there, which is not the same as a weight of 0.
    function hatch(ink, x, y) {
      ink.save();
      ink.beginPath();
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < m; j++) {
          const from = j;
          while (j < m && hidden[i * m + j]) j++;
          if (j > from) ink.rect(from * x, i * y, (j - from) * x, y);
        }
      }
      ink.clip();
      ink.beginPath();
      for (let t = -n * y; t < m * x; t += 5 * dots()) { ink.moveTo(t, n * y); ink.lineTo(t + n * y, 0); }
      Object.assign(ink, { strokeStyle: look.hatch, lineWidth: dots() * 0.75 });
      ink.stroke();
      ink.restore();
    }
    return {
      node: make("div", { class: "panel" }, told, stage), texts, cells, shades: () => s,
      forget: () => texts.forEach((text) => text.forget()),
      describe(name, numbers) {
        told.replaceChildren(make("b", {}, name), ...numbers.flatMap(([what, x, unit]) => [" ", make("span", {}, `${what} `, data(x, fixed(x)), ` ${unit}`)]));
        const keys = get("form") === "matrix" ? "arrow keys move" : "up and down move, left: where the token looks, right: who looks at it";
        cells.setAttribute("aria-label", `${name}: ${n} rows, ${m} columns: ${keys}, enter pins, escape lets go`);
      },
      lay(cellWidth, cellHeight, rowSpace, columnSpace) {
        const matrix = get("form") === "matrix";
        w = cellWidth; h = cellHeight;
        stage.classList.toggle("edges", !matrix);
        columns.node.hidden = !matrix; ends.node.hidden = matrix;
        rows.lay(h, rowSpace);
        if (matrix) columns.lay(w, columnSpace);
        else ends.lay(h, rowSpace);
        // In a drawing of edges the given width is that of the whole.
        wide = matrix ? w * m : w;
        high = h * (matrix ? n : Math.max(n, m));
        Object.assign(cells.style, { width: `${wide}px`, height: `${high}px` });
      },
      draw(shades) {
        s = shades;
        if (!look) return;
        const ink = sized(back), { width, height } = back, small = document.createElement("canvas");
        if (get("form") === "edges") {
          ink.scale(dots(), dots());
          strokes(ink, edgesOf(s, n, m));
          return;
        }
        const x = width / m, y = height / n;
        paint(small, s, n, m, look, Math.max(width, height));
        ink.imageSmoothingEnabled = false; // blocks have sharp edges
        ink.drawImage(small, 0, 0, width, height);
        if (hidden) hatch(ink, x, y);
        if (Math.min(x, y) < 7 * dots()) return;
        for (let j = 1; j < m; j++) ink.clearRect(Math.round(j * x), 0, 1, height); // thin gaps, so that cells can be counted
        for (let i = 1; i < n; i++) ink.clearRect(0, Math.round(i * y), width, 1);
      },
      mark(i, j, active) {
        rows.mark(i);
        columns.mark(j);
        ends.mark(j);
        const matrix = get("form") === "matrix", cut = (t) => `${100 * t}%`;
        const frame = (node, show, left, top, across, down) => Object.assign(node.style, {
          display: matrix && show ? "block" : "none", left: cut(left / m), top: cut(top / n), width: cut(across / m), height: cut(down / n),
        });
        frame(bands[0], i !== null, 0, i, m, 1);
        frame(bands[1], j !== null, j, 0, 1, n);
        frame(bands[2], i !== null && j !== null, j, i, 1, 1);
        front.hidden = matrix;
        back.classList.toggle("dim", !matrix && active);
        if (!matrix) {
          const ink = sized(front), edges = [];
          ink.scale(dots(), dots());
          if (active) {
            if (i !== null) for (let c = 0; c < m; c++) edges.push([i, c, s[i * m + c]]);
            else for (let r = 0; r < n; r++) edges.push([r, j, s[r * m + j]]);
            if (i !== null && j !== null) {
              ink.beginPath();
              curve(ink, i, j);
              Object.assign(ink, { strokeStyle: getComputedStyle(cells).getPropertyValue("--mark"), lineWidth: 5 });
              ink.stroke();
            }
            strokes(ink, edges.filter(([, , v]) => v && v !== MASK).sort((a, b) => Math.abs(a[2]) - Math.abs(b[2])));
          }
        }
        // A marked row shades the columns' tokens by its weights, a marked column the rows' tokens by theirs for it.
        const along = byRow(i, j), shade = (k) => (along ? s[i * m + k] : s[k * m + j]), pinned = pin() ?? { i: null, j: null };
        if (cross) {
          texts[0].tint(along ? () => null : shade, look);
          texts[1].tint(along ? shade : () => null, look);
          texts[0].mark(i, null, pinned.i);
          texts[1].mark(j, null, pinned.j);
        } else {
          texts[0].tint(shade, look);
          texts[0].mark(along ? i : j, along ? j : i, along ? pinned.i : pinned.j);
        }
      },
    };
  }

  const panels = [], stages = make("div", { class: "panels" }), words = said(), lines = make("div");
  const numbers = make("details", {}, make("summary", {}, "numbers, as tables")), tables = make("div", { tabindex: "0", role: "region", "aria-label": "numbers" });
  numbers.append(tables);
  numbers.addEventListener("toggle", () => showTables());
  const save = make("span", { class: "save", role: "group", "aria-label": "save" }, "save");
  for (const [kind, what] of [["PNG", "the picture as PNG"], ["SVG", "the picture as SVG"], ["JSON", "all weights as JSON"], ["CSV", "this head's weights as CSV"]]) {
    const button = make("button", { type: "button", "aria-label": `save ${what}`, title: what }, kind);
    button.addEventListener("click", () => saveAs(kind.toLowerCase()));
    save.append(button);
  }
  const foot = make("div", { class: "bar foot" }, ...(cross ? [] : [reverseBox.node]), ...(several || stored.length > 1 ? [againstMenu.node, differenceBox.node] : []), save);
  const panes = make("div", { class: "panes" }, ...(several ? [grid] : []), make("div", { class: "detail" }, bar, stages), make("div", { class: "lower" }, words, lines, foot, numbers));

  // ---- what the reader does -------------------------------------------------------------------------------------------
  function choose(changes) {
    for (const [key, value] of Object.entries(changes)) model.set(key, value);
    model.save_changes();
  }
  function pin() { const at = get("pinned"); return at && { i: at[0], j: at[1] }; }
  // The spot shown: under the pointer, else pinned, else one token, so that there is something to see at once.
  function resting() { return pin() ?? (get("reverse") && !cross ? { i: null, j: 0 } : { i: n - 1, j: null }); }
  function spot() { return hover ?? resting(); }
  // Do the row's weights shade the text (where it looks), or the column's (who looks at it)?
  function byRow(i, j) { return i !== null && (j === null || cross || !get("reverse")); }
  function onText(line, k) { return (cross ? line === 0 : !get("reverse")) ? { i: k, j: null } : { i: null, j: k }; }
  const same = (a, b) => a === b || (a !== null && b !== null && a.i === b.i && a.j === b.j);
  function pinTo(next) {
    hover = null;
    choose({ pinned: next && [next.i, next.j] });
    showSpot();
  }
  function track(node, where) {
    node.addEventListener("pointermove", (event) => { const next = where(event); if (!same(hover, next)) { hover = next; showSpot(); } });
    node.addEventListener("pointerleave", () => { hover = null; showSpot(); });
    node.addEventListener("click", (event) => {
      const next = where(event);
      if (!next) return;
      choose({ pinned: same(pin(), next) ? null : [next.i, next.j] });
      showSpot();
      showTables();
    });
  }
  function moveCell(key, i, j) {
    const at = { i: i ?? n - 1, j: j ?? (cross ? 0 : i ?? 0) };
    if (key === "Enter" || key === " ") return at;
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -m], End: [0, m], PageUp: [-n, 0], PageDown: [n, 0] }[key];
    return step && { i: clamp(at.i + step[0], 0, n - 1), j: clamp(at.j + step[1], 0, m - 1) };
  }
  function moveEnd(key, i, j) {
    const left = i !== null, k = left ? i : j, end = (k, left) => (left ? { i: clamp(k, 0, n - 1), j: null } : { i: null, j: clamp(k, 0, m - 1) });
    if (key === "Enter" || key === " ") return end(k, left);
    if (key === "ArrowLeft" || key === "ArrowRight") return end(k, key === "ArrowLeft");
    const step = { ArrowUp: -1, ArrowDown: 1, Home: -n - m, End: n + m }[key];
    return step && end(k + step, left);
  }
  panes.addEventListener("keydown", (event) => { if (event.key === "Escape") pinTo(null); });
  grid.addEventListener("keydown", (event) => {
    const [dl, dh] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!dl && !dh) return;
    choose({ layer: clamp(layer() + dl, 0, layers - 1), head: clamp(head() + dh, 0, heads - 1) });
    thumbs[layer() * heads + head()].focus();
    event.preventDefault();
  });

  // ---- what the reader sees -------------------------------------------------------------------------------------------
  const shadesFor = (A, B = null) => shadesOf(A, B, hidden, n, m, get("scale"), get("top_k"));

  function showHead() {
    const first = [0, layer(), head()], other = second(), difference = other && get("difference");
    A = matrix(...first);
    B = other && matrix(...other);
    if (!panels[0] || (other && !panels[1])) panels.push(panel(panels.length));
    if (other && !panels[1]) panels.push(panel(1));
    const shown = panels.slice(0, other ? 2 : 1);
    if (stages.childElementCount !== shown.length) {
      stages.replaceChildren(...shown.map((part) => part.node));
      lines.replaceChildren(...shown.flatMap((part) => part.texts.flatMap((text) => text.nodes)));
    }
    thumbs.forEach((thumb, k) => {
      const chosen = k === layer() * heads + head();
      thumb.setAttribute("aria-checked", chosen);
      thumb.tabIndex = chosen ? 0 : -1;
      thumb.classList.toggle("second", Boolean(other) && other[0] === 0 && k === other[1] * heads + other[2]);
    });
    for (const control of controls) control.show();
    many.value = get("top_k");
    manyLabel.hidden = get("scale") !== "top";
    differenceBox.node.hidden = !other;
    SCALES[get("scale")].ticks.forEach((tick, k) => { weightLegend.ticks.children[k].textContent = tick; });
    differenceLegend.node.hidden = !difference;
    panes.parentElement?.classList.toggle("two", Boolean(other));
    panels[0].describe(title(first), facts(first));
    if (other) {
      let apart = 0;
      for (let c = 0; c < n * m; c++) apart += Math.abs(A[c] - B[c]);
      const name = difference ? minus(first, other) : title(other);
      panels[1].describe(name, [...(difference ? [] : facts(other)), ["mean ½ Σ |a − b|", apart / 510 / n, ""]]);
    }
    shown.forEach((part, order) => part.texts.forEach((text, k) => {
      const what = cross ? (k ? "the tokens attended to (columns)" : "the tokens that attend (rows)")
        : `the text, shaded by ${get("reverse") ? "who looks at the marked token" : "where the marked token looks"}`;
      text.say(!other ? `${what}${cross ? "" : "; click to keep it marked"}` : `${what}: ${order ? (difference ? minus(first, other) : title(other)) : title(first)}`);
    }));
    layOut(width);
  }

  function drawThumbs() {
    thumbs.forEach((thumb, k) => {
      const small = thumb.firstChild;
      paint(small, shadesFor(matrix(0, ...pairs[k])), n, m, look, THUMB_PIXELS);
      small.style.imageRendering = Math.max(n, m) <= THUMB_PIXELS ? "pixelated" : "auto";
    });
    const bars = [[weightLegend.canvas, (x) => 255 * x], [differenceLegend.canvas, (x) => 510 * x - 255]];
    for (const [canvas, shade] of bars) {
      const ink = canvas.getContext("2d");
      for (let x = 0; x < 120; x++) {
        ink.fillStyle = `rgb(${look.colours[255 + Math.round(shade(x / 119))]})`;
        ink.fillRect(x, 0, 1, 1);
      }
    }
  }

  // Cells as large as the page allows. Heads and text stand beside the matrix unless that would leave no room for its names.
  function layOut(wide) {
    width = wide;
    if (!wide || !panels.length) return;
    const all = panes.parentElement, two = Boolean(second()), matrix = get("form") === "matrix", most = Math.max(n, m);
    const rowSpace = clamp(Math.max(longest(rowNames), get("form") === "edges" ? longest(columnNames) : 0) * 8 + 14, 28, wide < 600 ? 76 : 96), columnSpace = clamp(longest(columnNames) * 7 + 10, 24, 90);
    const left = clamp(heads * 68 + 50, 250, wide * 0.42), beside = wide - left - 24 - rowSpace;
    const stacked = wide < 600 || two || !several || (matrix && beside / m < SMALLEST_LABELLED);
    all.classList.toggle("stacked", stacked);
    all.classList.toggle("alone", !several);
    all.classList.toggle("beside", two && wide >= 600);
    all.style.setProperty("--left", `${left}px`);
    grid.style.gridTemplateColumns = `auto repeat(${heads}, ${clamp(Math.floor(((stacked ? wide : left) - 50) / heads) - 4, 8, 64)}px)`;
    const whole = two && wide >= 600 ? wide / 2 - 12 : wide, room = Math.min(stacked ? whole - rowSpace : beside, 640) - 2;
    let across, down;
    if (matrix) {
      across = Math.min(LARGEST_CELL, room / m);
      down = cross ? Math.min(LARGEST_CELL, Math.max(room, 320) / n) : across;
      if (cross && Math.abs(across - down) < 8) across = down = Math.min(across, down);
    } else {
      across = clamp(room - rowSpace, 60, 280);
      down = Math.min(22, 640 / most);
    }
    panels.slice(0, two ? 2 : 1).forEach((part, order) => {
      part.lay(across, down, rowSpace, columnSpace);
      if (look) part.draw(order ? (get("difference") ? shadesFor(A, B) : shadesFor(B)) : shadesFor(A));
    });
    showSpot();
    showTables();
  }

  function showSpot() {
    if (!look || !panels[0]?.shades()) return;
    const { i, j } = spot(), active = Boolean(hover ?? pin());
    panels.slice(0, B ? 2 : 1).forEach((part) => part.mark(i, j, active));
    words.replaceChildren(make("p", {}, ...sentence(i, j, A)));
    if (!B) return;
    const name = (to) => make("small", {}, `${to}: `);
    words.firstChild.prepend(name(title([0, layer(), head()])));
    words.append(make("p", {}, name(title(second())), ...sentence(i, j, B)));
    if (i !== null && j !== null && !(hidden && hidden[i * m + j])) {
      words.append(make("p", {}, name("difference"), `${fixed((A[i * m + j] - B[i * m + j]) / 255)}`, make("small", {}, " ± 0.004")));
    }
  }

  // The same in words. A stored weight is within 1/510 of the true one, and is shown as such.
  function sentence(i, j, A) {
    const name = (names, k) => [make("b", {}, names[k]), ` (${k})`], about = () => make("small", {}, " ± 0.002");
    if (i !== null && j !== null) {
      const arrow = [...name(rowNames, i), " → ", ...name(columnNames, j)];
      return hidden && hidden[i * m + j] ? [...arrow, ": masked"] : [...arrow, ": ", share(A[i * m + j]), about()];
    }
    const along = i !== null, weight = (k) => (along ? A[i * m + k] : A[k * m + j]), names = along ? columnNames : rowNames;
    const best = [...names.keys()].filter((k) => weight(k) > 0).sort((a, b) => weight(b) - weight(a)).slice(0, 3);
    const parts = best.flatMap((k, place) => [place ? ", " : "", ...name(names, k), " ", share(weight(k))]);
    const verb = along ? " attends most to " : " is attended to most by ";
    return [...name(along ? rowNames : columnNames, along ? i : j), verb, ...(parts.length ? [...parts, about()] : ["no token"])];
  }

  // The numbers as tables: of the marked token (pinned, not under the pointer), and of all heads. Made only while they are open.
  function showTables() {
    if (!numbers.open || !A) return;
    const { i, j } = resting(), both = [A, ...(B ? [B] : [])], tell = (k) => (B ? ` (${title(k ? second() : [0, layer(), head()])})` : "");
    const cell = (M, a, b) => (hidden && hidden[a * m + b] ? "masked" : data(M[a * m + b] / 255, share(M[a * m + b])));
    const full = cross ? (i !== null ? rowNames[i] : columnNames[j]) : rowNames[i ?? j], k = i ?? j, token = `“${[...full].length > 20 ? `${[...full].slice(0, 19).join("")}…` : full}”`;
    const looks = i !== null || !cross, looked = i === null || !cross;
    const one = rows(`${token} (${k}) and each token; weights ± 0.002`, ["token",
      ...(looks ? both.map((_, which) => `${token} looks at it${tell(which)}`) : []), ...(looked ? both.map((_, which) => `it looks at ${token}${tell(which)}`) : [])]);
    one.show((looks ? columnNames : rowNames).map((name, t) => [make("span", {}, make("bdi", {}, name), ` (${t})`),
      ...(looks ? both.map((M) => cell(M, k, t)) : []), ...(looked ? both.map((M) => cell(M, t, k)) : [])]));
    const all = rows("each head: the mean over its rows", ["head", "entropy (nats)", ...(cross ? [] : ["distance (tokens)"])]);
    all.show(stored.flatMap((_, which) => pairs.map(([l, h]) => [title([which, l, h]), ...facts([which, l, h]).map(([, x]) => data(x, fixed(x)))])));
    one.node.classList.add("token");
    all.node.classList.add("each");
    tables.replaceChildren(one.node, all.node);
  }

  // ---- saving ---------------------------------------------------------------------------------------------------------
  function saveAs(kind) {
    const name = `attention-layer${layer()}-head${head()}.${kind}`, drop = (content, type) => {
      const link = make("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    };
    if (kind === "json") drop(asJson(), "application/json");
    if (kind === "csv") drop(asCsv(), "text/csv;charset=utf-8");
    if (kind !== "svg" && kind !== "png") return;
    const drawing = asSvg(), text = new XMLSerializer().serializeToString(drawing);
    if (kind === "svg") { drop(text, "image/svg+xml"); return; }
    const image = new Image(), canvas = make("canvas", { width: 2 * drawing.getAttribute("width"), height: 2 * drawing.getAttribute("height") });
    image.onload = () => {
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => drop(blob, "image/png"));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }

  function asJson() {
    const table = (M) => Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) => (hidden && hidden[i * m + j] ? null : +(M[i * m + j] / 255).toFixed(4))));
    const all = (which) => Array.from({ length: layers }, (_, l) => Array.from({ length: heads }, (_, h) => table(matrix(which, l, h))));
    return JSON.stringify({
      title: picture.title, tokens: rowNames, columns: picture.columns, layer: layer(), head: head(), weights_within: STEP, entropy: picture.entropy[0],
      distance: picture.distance && picture.distance[0], weights: all(0), ...(stored.length > 1 ? { names: picture.names, compare: all(1) } : {}),
    });
  }

  // One line for each weight. A quote before =, +, − and @ keeps spreadsheets from running a token as a formula.
  function asCsv() {
    const quoted = (text) => `"${(/^[=+\-@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
    const lines = [`row,token,column,attends_to,weight${B ? ",compared_weight" : ""}`];
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < m; j++) {
        if (hidden && hidden[i * m + j]) continue;
        lines.push([i, quoted(rowNames[i]), j, quoted(columnNames[j]), ...[A, ...(B ? [B] : [])].map((M) => (M[i * m + j] / 255).toFixed(4))].join(","));
      }
    }
    return `${lines.join("\r\n")}\r\n`;
  }

  // What stands in detail, as a drawing: one path for each colour.
  function asSvg() {
    const style = getComputedStyle(panes), ink = style.color, soft = style.getPropertyValue("--soft"), ground = style.getPropertyValue("--field"), mark = style.getPropertyValue("--mark");
    const matrix = get("form") === "matrix", most = Math.max(n, m), c = matrix ? clamp(Math.floor(560 / most), 2, 24) : clamp(640 / most, 1, 22), size = clamp(c - 1, 8, 12);
    const space = (names) => clamp(longest(names) * 0.62 * size + 10, 20, 150), left = space(rowNames), named = c >= SMALLEST_LABELLED, cut = (name) => ([...name].length > 22 ? `${[...name].slice(0, 21).join("")}…` : name);
    const small = panels.slice(0, B ? 2 : 1).map((part) => blocks(part.shades(), n, m, 256)), { k } = small[0], side = matrix ? Math.max(2, Math.floor(c * k)) / k : c;
    const across = matrix ? side * m : 220, top = 46 + (matrix && named ? space(columnNames) : 8), high = side * (matrix ? n : most), each = left + across + (matrix ? 24 : space(columnNames) + 12);
    const word = (text, x, y, more = {}) => svg("text", { x, y, fill: ink, "font-size": size, ...more }, text), { i, j } = pin() ?? { i: null, j: null };
    const parts = small.map((part, order) => {
      const s = panels[order].shades(), shapes = new Map(), group = svg("g", { transform: `translate(${12 + order * each + left} ${top})` });
      const add = (shade, d) => shapes.set(shade, (shapes.get(shade) ?? "") + d);
      if (matrix) part.s.forEach((v, t) => add(v, `M${(t % part.width) * k * side} ${Math.floor(t / part.width) * k * side}h${k * side}v${k * side}h${-k * side}z`));
      else {
        const chosen = i === null && j === null ? edgesOf(s, n, m) : edgesOf(s, n, m, Infinity).filter(([a, b]) => (i === null || a === i) && (j === null || b === j));
        for (const [a, b, v] of chosen) add(v, `M0 ${(a + 0.5) * side}C${across / 2} ${(a + 0.5) * side} ${across / 2} ${(b + 0.5) * side} ${across} ${(b + 0.5) * side}`);
      }
      for (const [v, d] of shapes) {
        const colour = `rgb(${look.colours[255 + v]})`;
        group.append(svg("path", { d, "data-shade": v, ...(matrix ? { fill: colour } : { fill: "none", stroke: colour, "stroke-width": 0.5 + (2 * Math.abs(v)) / 255 }) }));
      }
      if (matrix && shapes.has(MASK)) {
        const strokes = []; // a line across each masked block
        part.s.forEach((v, t) => { if (v === MASK) strokes.push(`M${(t % part.width) * k * side} ${(Math.floor(t / part.width) + 1) * k * side}l${k * side} ${-k * side}`); });
        group.append(svg("path", { d: strokes.join(""), stroke: look.hatch, "stroke-width": 0.75, fill: "none", class: "masked" }));
      }
      if (named) {
        rowNames.forEach((name, r) => group.append(word(cut(name), -6, (r + 0.5) * side + size * 0.35, { "text-anchor": "end" })));
        columnNames.forEach((name, t) => group.append(matrix
          ? word(cut(name), 0, 0, { transform: `translate(${(t + 0.5) * side + size * 0.35} -6) rotate(-90)` }) : word(cut(name), across + 6, (t + 0.5) * side + size * 0.35)));
      }
      const box = (x, y, width, height) => group.append(svg("rect", { x, y, width, height, fill: "none", stroke: mark, "stroke-width": 1.5 }));
      if (matrix && i !== null) box(0, i * side, across, side);
      if (matrix && j !== null) box(j * side, 0, side, high);
      const here = [0, layer(), head()], told = order ? (get("difference") ? minus(here, second()) : title(second())) : title(here);
      group.append(word(told, 0, 34 - top, { fill: soft, "font-size": 12 }));
      return group;
    });
    const bottom = top + high + 16, bars = [[SCALES[get("scale")].ticks, (x) => 255 * x], ...(B && get("difference") ? [[["−1", "0", "1"], (x) => 510 * x - 255]] : [])];
    const legend = bars.map(([ticks, shade], order) => svg("g", { class: "legend", transform: `translate(${12 + left + 180 * order} ${bottom})` },
      ...Array.from({ length: 40 }, (_, x) => svg("rect", { x: 3 * x, width: 3.1, height: 8, fill: `rgb(${look.colours[255 + Math.round(shade(x / 39))]})` })),
      ...ticks.map((tick, t) => word(tick, 60 * t, 20, { fill: soft, "font-size": 10, "text-anchor": ["start", "middle", "end"][t] }))));
    const width = Math.ceil(Math.max(24 + each * parts.length, 24 + left + 180 * bars.length)), height = Math.ceil(bottom + 28);
    return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, DejaVu Sans, sans-serif" },
      svg("rect", { width, height, fill: ground }), word(picture.title ?? "Attention weights", 12, 18, { "font-size": 14, "font-weight": 600 }), ...parts, ...legend);
  }

  // ---- follow the page and the kernel ---------------------------------------------------------------------------------
  const remove = frame({ el, label: "attention weights", title: picture.title, style: OWN, children: [panes], resize: (wide) => layOut(wide) });
  const all = panes.parentElement;
  function follow() { // the frame says whether the page is dark; paper never is
    const next = looks[all.classList.contains("dark") && !paper.matches ? "dark" : "light"];
    if (next === look) return;
    look = next;
    for (const part of panels) part.forget();
    drawThumbs();
    showHead();
  }
  const themed = new MutationObserver(follow);
  themed.observe(all, { attributes: true, attributeFilter: ["class"] });
  paper.addEventListener("change", follow);
  for (const key of ["layer", "head", "form", "against", "difference", "reverse"]) model.on(`change:${key}`, showHead);
  for (const key of ["scale", "top_k"]) model.on(`change:${key}`, () => { drawThumbs(); showHead(); });
  model.on("change:pinned", () => { showSpot(); showTables(); });
  follow();
  return () => { remove(); themed.disconnect(); paper.removeEventListener("change", follow); };
}

const viewer = { render };
export default viewer;
