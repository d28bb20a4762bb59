// ---- one head in detail: its matrix or its edges, and the text shaded by it -------------------------------------------------

// `order` is 0, or 1 for the head compared with; `host` is the picture (see view.js).
function panelOf(order, host) {
  const { n, m, cross, hidden, rowNames, columnNames, get, pin, spot, pinTo, track, byRow, onText } = host;
  const rows = namesAlong(rowNames, "rows"), columns = namesAlong(columnNames, "columns"), ends = namesAlong(columnNames, "ends");
  const back = make("canvas", { class: "back" }), front = make("canvas"), bands = ["row", "column", "cell"].map((kind) => make("div", { class: `band ${kind}` }));
  const cells = make("div", { class: "cells", tabindex: "0", role: "application", "aria-roledescription": "attention picture" }, back, front, ...bands);
  const stage = make("div", { class: "stage" }, columns.node, rows.node, cells, ends.node), told = make("div", { class: "facts" });
  const captions = cross ? ["the tokens that attend (rows)", "the tokens attended to (columns)"] : [""];
  const texts = captions.map((caption, k) => textLine(k ? columnNames : rowNames, `${k ? "column" : "row"}${order}-`, caption));
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
      Object.assign(ink, { strokeStyle: `rgb(${host.look.colours[255 + shade]})`, lineWidth: thickness(shade) });
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
    Object.assign(ink, { strokeStyle: host.look.hatch, lineWidth: dots() * 0.75 });
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
      if (!host.look) return;
      const ink = sized(back), { width, height } = back, small = document.createElement("canvas");
      if (get("form") === "edges") {
        ink.scale(dots(), dots());
        strokes(ink, edgesOf(s, n, m));
        return;
      }
      const x = width / m, y = height / n;
      paint(small, s, n, m, host.look, Math.max(width, height));
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
        texts[0].tint(along ? () => null : shade, host.look);
        texts[1].tint(along ? shade : () => null, host.look);
        texts[0].mark(i, null, pinned.i);
        texts[1].mark(j, null, pinned.j);
      } else {
        texts[0].tint(shade, host.look);
        texts[0].mark(along ? i : j, along ? j : i, along ? pinned.i : pinned.j);
      }
    },
  };
}
