// An interactive picture of attention weights. base.py puts base.js and the rooms beside this one before it: look.js (colours and sizes), shades.js (weights as
// colours), names.js (the tokens along the sides and in the text), panel.js (one head in detail), words.js (in words and tables), save.js. The whole is one ES
// module with two hosts: anywidget in a live notebook, and a static page. It asks for nothing from outside.
//
// What the reader chooses is in the model (layer, head, pinned, scale, top_k, form, against, difference, reverse); what the
// pointer is on is `hover`. Everything on the screen follows from them, in `showHead` and `showSpot`. A spot is {i, j}: row i
// gives a weight to column j; one of the two may be null (a token alone). A shade is the colour of a cell: 0 to 255 on the
// scale of weights, −255 to 0 for a difference below 0, or MASK.

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
  const place = (l, h) => (several ? `block ${l}, head ${h}` : "");
  const title = ([which, l, h]) => [...(stored.length > 1 ? [picture.names[which]] : []), place(l, h)].filter(Boolean).join(" · ") || "weights";
  const minus = (a, b) => (a[0] === b[0] ? `${title(a)} − ${place(b[1], b[2])}` : [picture.names.join(" − "), place(a[1], a[2])].filter(Boolean).join(" · "));
  const facts = ([which, l, h]) => {
    const distance = picture.distance && picture.distance[which][l][h], entropy = picture.entropy[which][l][h];
    return [["entropy", entropy, "nats"], ...(distance === null ? [] : [["mean distance", distance, "tokens"]])];
  };
  const grid = make("div", { class: "heads", role: "radiogroup", "aria-label": "heads: a row for each block, arrow keys choose" });
  const thumbs = [];
  if (several) {
    grid.append(make("span"), ...Array.from({ length: heads }, (_, h) => make("span", {}, h || heads > 6 ? `${h}` : `head ${h}`)));
    for (let l = 0; l < layers; l++) {
      grid.append(make("span", {}, l || layers > 6 ? `${l}` : `block ${l}`));
      for (let h = 0; h < heads; h++) {
        const name = `block ${l}, head ${h}: ${facts([0, l, h]).map(([what, x, unit]) => `${what} ${fixed(x, 2)} ${unit}`).join(", ")}`;
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
  const layerMenu = menu("block", counted(layers), layer, (l) => choose({ layer: +l }));
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

  const panels = [], stages = make("div", { class: "panels" }), words = said(), lines = make("div");
  const numbers = make("details", {}, make("summary", {}, "numbers, as tables")), tables = make("div", { tabindex: "0", role: "region", "aria-label": "numbers" });
  numbers.append(tables);
  numbers.addEventListener("toggle", () => showTables());
  const save = make("span", { class: "save", role: "group", "aria-label": "save" }, "save");
  for (const [kind, what] of [["PNG", "the picture as PNG"], ["SVG", "the picture as SVG"], ["JSON", "all weights as JSON"], ["CSV", "this head's weights as CSV"]]) {
    const button = make("button", { type: "button", "aria-label": `save ${what}`, title: what }, kind);
    button.addEventListener("click", () => saveAs(kind.toLowerCase(), host));
    save.append(button);
  }
  const foot = make("div", { class: "bar foot" }, ...(cross ? [] : [reverseBox.node]), ...(several || stored.length > 1 ? [againstMenu.node, differenceBox.node] : []), save);
  const panes = make("div", { class: "panes" }, ...(several ? [grid] : []), make("div", { class: "detail" }, bar, stages), make("div", { class: "lower" }, words, lines, foot, numbers));

  // What the other rooms (panel.js, words.js, save.js) may know of this picture.
  const host = {
    picture, layers, heads, n, m, cross, hidden, stored, rowNames, columnNames, pairs, panels, panes,
    get, layer, head, matrix, second, title, minus, facts, pin, spot, resting, pinTo, track, byRow, onText,
    get look() { return look; }, get A() { return A; }, get B() { return B; },
  };

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
    if (!panels[0] || (other && !panels[1])) panels.push(panelOf(panels.length, host));
    if (other && !panels[1]) panels.push(panelOf(1, host));
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
    words.replaceChildren(make("p", {}, ...sentence(i, j, A, host)));
    if (!B) return;
    const name = (to) => make("small", {}, `${to}: `);
    words.firstChild.prepend(name(title([0, layer(), head()])));
    words.append(make("p", {}, name(title(second())), ...sentence(i, j, B, host)));
    if (i !== null && j !== null && !(hidden && hidden[i * m + j])) {
      words.append(make("p", {}, name("difference"), `${fixed((A[i * m + j] - B[i * m + j]) / 255)}`, make("small", {}, " ± 0.004")));
    }
  }

  // The tables are made only while they are open.
  function showTables() { if (numbers.open && A) tables.replaceChildren(...tablesOf(host)); }

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
