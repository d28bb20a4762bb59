// An interactive picture of attention weights. base.py puts base.js, look.js, shades.js and names.js before it, and the whole is one ES module with two hosts:
// anywidget in a live notebook, and a static page. It asks for nothing from outside.
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
