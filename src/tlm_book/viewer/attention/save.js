// ---- saving: the picture as PNG and SVG, all weights as JSON, one head as CSV --------------------------------------------
function saveAs(kind, host) {
  const { layer, head } = host;
  const name = `attention-block${layer()}-head${head()}.${kind}`, drop = (content, type) => {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  if (kind === "json") drop(asJson(host), "application/json");
  if (kind === "csv") drop(asCsv(host), "text/csv;charset=utf-8");
  if (kind !== "svg" && kind !== "png") return;
  const drawing = asSvg(host), text = new XMLSerializer().serializeToString(drawing);
  if (kind === "svg") { drop(text, "image/svg+xml"); return; }
  const image = new Image(), canvas = make("canvas", { width: 2 * drawing.getAttribute("width"), height: 2 * drawing.getAttribute("height") });
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => drop(blob, "image/png"));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function asJson(host) {
  const { picture, n, m, layers, heads, hidden, stored, rowNames, layer, head, matrix } = host;
  const table = (M) => Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) => (hidden && hidden[i * m + j] ? null : +(M[i * m + j] / 255).toFixed(4))));
  const all = (which) => Array.from({ length: layers }, (_, l) => Array.from({ length: heads }, (_, h) => table(matrix(which, l, h))));
  return JSON.stringify({
    title: picture.title, tokens: rowNames, columns: picture.columns, layer: layer(), head: head(), weights_within: STEP, entropy: picture.entropy[0],
    distance: picture.distance && picture.distance[0], weights: all(0), ...(stored.length > 1 ? { names: picture.names, compare: all(1) } : {}),
  });
}

// One line for each weight. A quote before =, +, − and @ keeps spreadsheets from running a token as a formula.
function asCsv(host) {
  const { n, m, A, B, hidden, rowNames, columnNames } = host;
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
function asSvg(host) {
  const { picture, n, m, B, look, panes, panels, rowNames, columnNames, get, pin, layer, head, second, title, minus } = host;
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
