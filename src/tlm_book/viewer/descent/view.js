// A path of steps on a surface over the plane. The model holds `surface`, `rule`, `rate` η, `beta` β, `steps`, and the start `x`, `y`.

const OWN = "view.css";
const WIDE = 3, HIGH = 2, LEVELS = [0.1, 0.5, 1.5, 3.5, 7, 13, 22, 35], GUARD = 1e-8, SLOW = 0.99; // ε and β₂ of Adam

// Each surface: its value, its slope, its lowest point, and the curve of height c as a function of an angle.
const ROOT = Math.SQRT1_2;
const SURFACES = {
  valley: {
    f: (x, y) => (x * x + 16 * y * y) / 2, slope: (x, y) => [x, 16 * y], low: [0, 0],
    level: (c, a) => [Math.sqrt(2 * c) * Math.cos(a), Math.sqrt(2 * c) / 4 * Math.sin(a)],
  },
  "turned valley": {
    f: (x, y) => ((x + y) ** 2 + 16 * (y - x) ** 2) / 4, slope: (x, y) => [(x + y) / 2 - 8 * (y - x), (x + y) / 2 + 8 * (y - x)], low: [0, 0],
    level: (c, a) => {
      const u = Math.sqrt(2 * c) * Math.cos(a), v = Math.sqrt(2 * c) / 4 * Math.sin(a);
      return [ROOT * (u - v), ROOT * (u + v)];
    },
  },
  "bent valley": {
    f: (x, y) => (1 - x) ** 2 / 2 + 4 * (y + 1 - x * x / 2) ** 2,
    slope: (x, y) => [x - 1 - 8 * x * (y + 1 - x * x / 2), 8 * (y + 1 - x * x / 2)], low: [1, -0.5],
    level: (c, a) => { const x = 1 + Math.sqrt(2 * c) * Math.cos(a); return [x, x * x / 2 - 1 + Math.sqrt(c) / 2 * Math.sin(a)]; },
  },
};

// The points from the start on; the path ends where it has left for good.
function path(surface, rule, rate, beta, steps, start) {
  const points = [start], m = [0, 0], v = [0, 0];
  for (let t = 1; t <= steps; t++) {
    const w = points[t - 1], g = SURFACES[surface].slope(...w);
    if (!(Math.hypot(...w) < 1e6)) break;
    points.push(w.map((at, j) => {
      if (rule === "gradient descent") return at - rate * g[j];
      if (rule === "momentum") { m[j] = beta * m[j] + g[j]; return at - rate * m[j]; }
      m[j] = beta * m[j] + (1 - beta) * g[j];
      v[j] = SLOW * v[j] + (1 - SLOW) * g[j] * g[j];
      return at - rate * (m[j] / (1 - beta ** t)) / (Math.sqrt(v[j] / (1 - SLOW ** t)) + GUARD);
    }));
  }
  return points;
}

// The part of the segment from a to b that lies in the picture, or null.
function within(a, b) {
  const dx = b[0] - a[0], dy = b[1] - a[1];
  let from = 0, to = 1;
  for (const [p, q] of [[-dx, a[0] + WIDE], [dx, WIDE - a[0]], [-dy, a[1] + HIGH], [dy, HIGH - a[1]]]) {
    if (p === 0 && q < 0) return null;
    if (p < 0) from = Math.max(from, q / p); else if (p > 0) to = Math.min(to, q / p);
  }
  return from > to ? null : [from ? [a[0] + from * dx, a[1] + from * dy] : a, to < 1 ? [a[0] + to * dx, a[1] + to * dy] : b];
}

function render({ model, el }) {
  const { title } = model.get("data"), KEYS = ["surface", "rule", "rate", "beta", "steps", "x", "y"];
  const select = (key, name, options) => {
    const node = make("select", {}, ...options.map((option) => make("option", { value: option }, option)));
    const show = () => { node.value = model.get(key); };
    node.addEventListener("change", () => { model.set(key, node.value); model.save_changes(); });
    model.on(`change:${key}`, show);
    show();
    return make("label", {}, name, node);
  };
  const bar = make("div", { class: "bar" }, select("surface", "surface", Object.keys(SURFACES)), select("rule", "rule", ["gradient descent", "momentum", "Adam"]));
  const controls = [
    slider(model, "rate", "rate η", { ...powers(-3, 0, 0.01), text: (x) => number(x) }),
    slider(model, "beta", "momentum β", { min: 0, max: 0.99, step: 0.01, text: (x) => fixed(x, 2) }),
    slider(model, "steps", "steps", { min: 0, max: 200 }),
    slider(model, "x", "start, across", { min: -WIDE, max: WIDE, step: 0.05, text: (x) => fixed(x, 2) }),
    slider(model, "y", "start, up", { min: -HIGH, max: HIGH, step: 0.05, text: (x) => fixed(x, 2) }),
  ];
  const drawing = svg("svg", { "aria-hidden": "true" }), plot = make("div", { class: "plot" }, drawing), words = said();
  const list = rows("along the path", ["step", "across", "up", "f"]);
  let width = 0;
  const unit = () => width / (2 * WIDE), px = ([x, y]) => [(x + WIDE) * unit(), (HIGH - y) * unit()];
  const at = (p) => px(p).map((v) => v.toFixed(1)).join(" ");
  const line = (points) => {
    let d = "", last = null;
    for (let t = 1; t < points.length; t++) {
      const part = within(points[t - 1], points[t]);
      if (!part) continue;
      d += `${part[0] === last ? "" : `M${at(part[0])}`}L${at(part[1])}`;
      last = part[1];
    }
    return d;
  };

  function show() {
    const [surface, rule, rate, beta, steps, x, y] = KEYS.map((key) => model.get(key)), { f, low, level } = SURFACES[surface];
    const points = path(surface, rule, rate, beta, steps, [x, y]), end = points[points.length - 1], lost = !(Math.hypot(...end) < 1e6);
    words.replaceChildren(
      "Start: f = ", data(f(x, y), number(f(x, y))), `. After ${points.length - 1} steps: `,
      ...(lost ? ["the path has left for good."] : ["f = ", data(f(...end), number(f(...end))), ", at ", data(end[0], fixed(end[0])), ", ", data(end[1], fixed(end[1])), "."]),
    );
    const last = points.length - 1, shown = [0, 1, 2, 5, 10, 20, 50, 100].filter((t) => t < last).concat(last);
    list.show(shown.map((t) => [`${t}`, ...points[t].map((v) => data(v, number(v))), data(f(...points[t]), number(f(...points[t])))]));
    if (!width) return;
    const shapes = LEVELS.map((c) => svg("path", { class: "level", d: line(Array.from({ length: 121 }, (_, k) => level(c, (k / 60) * Math.PI))) }));
    const [cx, cy] = px(low), near = points.filter(([x, y]) => Math.abs(x) <= WIDE && Math.abs(y) <= HIGH);
    shapes.push(svg("path", { class: "low", d: `M${cx - 5} ${cy}H${cx + 5}M${cx} ${cy - 5}V${cy + 5}` }), svg("path", { class: "path", d: line(points) }));
    near.forEach((p, t) => { const [cx, cy] = px(p); shapes.push(svg("circle", { class: t ? "dot" : "start", cx, cy, r: t ? 2.6 : 5 })); });
    drawing.setAttribute("width", width);
    drawing.setAttribute("height", 2 * HIGH * unit());
    drawing.replaceChildren(...shapes);
  }
  // A pointer put down on the surface moves the start there, as the two sliders do.
  const move = (event) => {
    const box = drawing.getBoundingClientRect();
    model.set("x", +clamp((event.clientX - box.left) / unit() - WIDE, -WIDE, WIDE).toFixed(2));
    model.set("y", +clamp(HIGH - (event.clientY - box.top) / unit(), -HIGH, HIGH).toFixed(2));
    model.save_changes();
  };
  plot.addEventListener("pointerdown", (event) => { plot.setPointerCapture(event.pointerId); move(event); });
  plot.addEventListener("pointermove", (event) => { if (event.buttons) move(event); });
  for (const key of KEYS) model.on(`change:${key}`, show);
  const remove = frame({
    el, label: "a path of descent on a surface", title, style: OWN, children: [bar, ...controls, plot, words, list.node],
    resize: (to) => { width = Math.min(to, 620); show(); },
  });
  show();
  return remove;
}

const viewer = { render };
export default viewer;
