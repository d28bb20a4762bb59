// Sinusoidal positions as clock hands. The model holds `position` p and `offset` k. Hand i stands at the angle omega[i] · p,
// clockwise from the top, so its point is (sin, cos): right and up.

const OWN = "view.css";
const ROUNDS = 2; // a turn is drawn as a spiral of at most so many whole rounds; its number is written out in full

const at = (angle, r) => [r * Math.sin(angle), -r * Math.cos(angle)];

// The turn from one angle on, as a spiral with an arrow head at its end.
function turn(from, by) {
  const whole = Math.trunc(by / (2 * Math.PI)), drawn = by - 2 * Math.PI * (whole - clamp(whole, -ROUNDS, ROUNDS));
  const steps = Math.max(2, Math.ceil(Math.abs(drawn) * 16)), radius = (t) => 12 + 3.2 * (Math.abs(drawn) / (2 * Math.PI)) * t + 2;
  const points = Array.from({ length: steps + 1 }, (_, s) => at(from + (drawn * s) / steps, radius(s / steps)).map((c) => c.toFixed(2)).join(" "));
  const end = from + drawn, [x, y] = at(end, radius(1)), ahead = Math.sign(by) * Math.min(4, Math.abs(drawn) * 14);
  const [ux, uy] = [Math.cos(end), Math.sin(end)], [nx, ny] = at(end, 1); // along the turn, and outwards
  const head = [[x, y], [x - ux * ahead + nx * 2.6, y - uy * ahead + ny * 2.6], [x - ux * ahead - nx * 2.6, y - uy * ahead - ny * 2.6]];
  return [svg("path", { class: "turn", d: `M${points.join("L")}` }), svg("polygon", { class: "tip", points: head.map((c) => c.map((v) => v.toFixed(2)).join()).join(" ") })];
}

function render({ model, el }) {
  const { omega, max_position, max_offset, title } = model.get("data");
  const p = slider(model, "position", "position p", { min: 0, max: max_position });
  const signed = (x) => `${x}`.replace("-", "−");
  const k = slider(model, "offset", "offset k", { min: -max_offset, max: max_offset, text: signed });
  const swatch = (kind) => svg("svg", { width: 26, height: 8 }, svg("line", { class: kind, x1: 4, x2: 22, y1: 4, y2: 4 }));
  const hereKey = make("span"), thereKey = make("span"), turnKey = make("span");
  const key = make("div", { class: "key" }, make("span", {}, swatch("here"), hereKey), make("span", {}, swatch("there"), thereKey), make("span", {}, swatch("turn"), turnKey));
  const clocks = make("div", { class: "clocks", "aria-hidden": "true" }), words = said();
  const list = rows("(sin, cos) of each hand; in the last column the hand at p was turned by k·ω", ["hand", "ω", "k·ω", "at p", "at p + k", "turned"]);

  const faces = omega.map((w, i) => {
    const hands = svg("g"), note = make("div");
    const ticks = Array.from({ length: 12 }, (_, h) => {
      const [x1, y1] = at((h * Math.PI) / 6, 44), [x2, y2] = at((h * Math.PI) / 6, h % 3 ? 47 : 49);
      return svg("line", { class: "tick", x1, y1, x2, y2 });
    });
    const face = svg("svg", { viewBox: "-52 -52 104 104" }, svg("circle", { class: "face", r: 50 }), ...ticks, hands, svg("circle", { class: "pin", r: 3 }));
    clocks.append(make("div", {}, face, note));
    return { hands, note };
  });
  const pair = (s, c) => {
    const both = make("span");
    both.append(data(s, fixed(s)), ", ", data(c, fixed(c)));
    return both;
  };

  function show() {
    const p = model.get("position"), k = model.get("offset");
    omega.forEach((w, i) => {
      const [x, y] = at(p * w, 36), [u, v] = at((p + k) * w, 42);
      faces[i].hands.replaceChildren(
        svg("line", { class: "here", x2: x, y2: y }), svg("line", { class: "there", x2: u, y2: v }), ...(k ? turn(p * w, k * w) : []),
      );
      const rounds = (k * w) / (2 * Math.PI);
      faces[i].note.textContent = `hand ${i}\n${Math.abs(rounds) < 1 ? `${fixed((k * w * 180) / Math.PI, 1)}°` : `${fixed(rounds, 2)} rounds`}`;
    });
    const [here, there] = [`at p = ${p}`, `at p + k = ${signed(p + k)}`];
    hereKey.textContent = here;
    thereKey.textContent = there;
    turnKey.textContent = `the turn by k·ω, k = ${signed(k)}`;
    const angles = omega.slice(0, 3).map((w) => number(k * w)).join(", ");
    words.textContent = `From p = ${p} to p + k = ${signed(p + k)} the hands turn by ${angles}${omega.length > 3 ? ", …" : ""} (radians): k·ω, whatever p is.`;
    list.show(omega.map((w, i) => {
      const s = Math.sin(p * w), c = Math.cos(p * w), S = Math.sin(k * w), C = Math.cos(k * w);
      return [`${i}`, data(w, number(w)), data(k * w, number(k * w)), pair(s, c), pair(Math.sin((p + k) * w), Math.cos((p + k) * w)), pair(C * s + S * c, C * c - S * s)];
    }));
  }
  for (const name of ["position", "offset"]) model.on(`change:${name}`, show);
  const remove = frame({ el, label: "positions as clock hands", title, style: OWN, children: [p, k, key, clocks, words, list.node] });
  show();
  return remove;
}

const viewer = { render };
export default viewer;
