// The spread of a standardized row over the spread σ of the row, ε outside and inside the root. The model holds `epsilon`, `sigma`.

const OWN = "view.css";
const LOW = -12, HIGH = 3, TOP = 40, BOTTOM = 40, LEFT = 32, RIGHT = 12; // powers of ten; css pixels

const outside = (sigma, eps) => sigma / (sigma + eps);
const inside = (sigma, eps) => sigma / Math.sqrt(sigma * sigma + eps);
// What is missing to 1, without subtracting two numbers that are almost equal.
const outsideLacks = (sigma, eps) => eps / (sigma + eps);
const insideLacks = (sigma, eps) => eps / (Math.sqrt(sigma * sigma + eps) * (Math.sqrt(sigma * sigma + eps) + sigma));

function render({ model, el }) {
  const { title } = model.get("data"), epsilon = () => model.get("epsilon"), sigma = () => model.get("sigma");
  const eps = slider(model, "epsilon", "guard ε", { ...powers(-12, 0, 0.1), text: (x) => number(x) });
  const sig = slider(model, "sigma", "spread σ", { ...powers(LOW, HIGH, 0.1), text: (x) => number(x) });
  const swatch = (kind) => svg("svg", { width: 34, height: 8 }, svg("line", { class: kind, x1: 2, x2: 32, y1: 4, y2: 4 }));
  const key = make("div", { class: "key" }, make("span", {}, swatch("outside"), "ε outside: σ/(σ + ε)"), make("span", {}, swatch("inside"), "ε inside: σ/√(σ² + ε)"));
  const drawing = svg("svg", { "aria-hidden": "true" }), plot = make("div", { class: "plot" }, drawing), words = said();
  const list = rows("at the marked σ", ["", "spread kept", "missing to 1", "½ at σ ="]);
  let width = 0;

  const height = () => clamp(width * 0.5, 210, 300);
  const x = (s) => LEFT + ((Math.log10(s) - LOW) / (HIGH - LOW)) * (width - LEFT - RIGHT), y = (v) => TOP + (1 - v) * (height() - TOP - BOTTOM);
  const line = (kind, x1, y1, x2, y2) => svg("line", { class: kind, x1, y1, x2, y2 });
  const text = (words, x, y, anchor = "middle", kind = "") => svg("text", { x, y, "text-anchor": anchor, class: kind }, words);

  function draw() {
    if (!width) return;
    const e = epsilon(), s = sigma(), curve = (f) => Array.from({ length: 151 }, (_, k) => {
      const at = 10 ** (LOW + (k / 150) * (HIGH - LOW));
      return `${x(at).toFixed(1)} ${y(f(at, e)).toFixed(1)}`;
    }).join("L");
    const shapes = [];
    for (const v of [0, 0.5, 1]) shapes.push(line(v ? "grid" : "axis", LEFT, y(v), width - RIGHT, y(v)), text(`${v}`, LEFT - 6, y(v) + 4, "end", "soft"));
    for (let p = LOW; p <= HIGH; p += 3) shapes.push(line("axis", x(10 ** p), y(0), x(10 ** p), y(0) + 4), text(p ? tenTo(p) : "1", x(10 ** p), y(0) + 18, "middle", "soft"));
    shapes.push(text("spread σ of the row", (LEFT + width - RIGHT) / 2, y(0) + 35, "middle", "soft"));
    const near = Math.abs(x(e) - x(Math.sqrt(e))) < 30; // then the two names stand on either side
    for (const [name, at, side] of [["ε", e, near ? "end" : "middle"], ["√ε", Math.sqrt(e), near ? "start" : "middle"]]) {
      shapes.push(line("mark", x(at), y(1) - 6, x(at), y(0)), text(name, x(at), y(1) - 10, side));
    }
    shapes.push(line("sigma", x(s), y(1) - 22, x(s), y(0)), text("σ", x(s), y(1) - 27));
    shapes.push(svg("path", { class: "outside", d: `M${curve(outside)}` }), svg("path", { class: "inside", d: `M${curve(inside)}` }));
    shapes.push(svg("circle", { class: "dot a", cx: x(s), cy: y(outside(s, e)), r: 6 }), svg("circle", { class: "dot b", cx: x(s), cy: y(inside(s, e)), r: 4.5 }));
    drawing.setAttribute("width", width);
    drawing.setAttribute("height", height());
    drawing.replaceChildren(...shapes);
  }
  function show() {
    const e = epsilon(), s = sigma(), a = outside(s, e), b = inside(s, e);
    draw();
    const value = (v) => data(v, fixed(v, 4)), lack = (v) => data(v, number(v));
    words.replaceChildren(`ε = ${number(e)}, σ = ${number(s)}: a standardized row has spread `, value(a), " with ε outside the root and ", value(b), " inside; difference ", data(a - b, fixed(a - b, 4)), ".");
    list.show([
      ["ε outside", value(a), lack(outsideLacks(s, e)), lack(e)],
      ["ε inside", value(b), lack(insideLacks(s, e)), lack(Math.sqrt(e / 3))],
    ]);
  }
  // A pointer held down on the curves moves σ, as its slider does.
  const move = (event) => {
    const box = drawing.getBoundingClientRect(), part = (event.clientX - box.left - LEFT) / (width - LEFT - RIGHT);
    model.set("sigma", +(10 ** clamp(LOW + part * (HIGH - LOW), LOW, HIGH)).toPrecision(3));
    model.save_changes();
  };
  plot.addEventListener("pointerdown", (event) => { plot.setPointerCapture(event.pointerId); move(event); });
  plot.addEventListener("pointermove", (event) => { if (event.buttons) move(event); });
  for (const name of ["epsilon", "sigma"]) model.on(`change:${name}`, show);
  const remove = frame({
    el, label: "the spread of a standardized row", title, style: OWN, children: [eps, sig, key, plot, words, list.node],
    resize: (to) => { width = Math.min(to, 640); draw(); },
  });
  show();
  return remove;
}

const viewer = { render };
export default viewer;
