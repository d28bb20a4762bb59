// Softmax as bars. The model holds `temperature` τ; or, where the scores are given for several widths d, `width`.

const OWN = "view.css";

// The weights softmax(s/τ); subtracting the largest score changes nothing and keeps the exponentials finite.
function softmax(scores, tau) {
  const top = Math.max(...scores), e = scores.map((s) => Math.exp((s - top) / tau)), sum = e.reduce((a, b) => a + b);
  return e.map((x) => x / sum);
}
const entropy = (weights) => weights.reduce((sum, w) => (w > 0 ? sum - w * Math.log(w) : sum), 0);
const spread = (s) => {
  const mean = s.reduce((a, b) => a + b) / s.length;
  return Math.sqrt(s.reduce((a, b) => a + (b - mean) ** 2, 0) / s.length);
};

function render({ model, el }) {
  const { scores, labels, title } = model.get("data"), widths = scores.map(([d]) => d), byWidth = widths[0] > 0;
  const row = () => scores[Math.max(widths.indexOf(model.get("width")), 0)];
  const control = byWidth
    ? slider(model, "width", "width d", { min: 0, max: widths.length - 1, value: (k) => widths[k], place: (d) => widths.indexOf(d), text: (d) => `${d}` })
    : slider(model, "temperature", "temperature τ", { ...powers(-2, 2, 0.05), text: (tau) => number(tau) });
  const reset = make("button", { type: "button" }, "τ = 1");
  reset.addEventListener("click", () => { model.set("temperature", 1); model.save_changes(); });
  const heads = byWidth ? ["key", "score s", "softmax(s)", "softmax(s/√d)"] : ["", "score s", "softmax(s/τ)"];
  const list = rows(byWidth ? "the same scores, as they are and divided by √d" : "weights softmax(s/τ)", heads), words = said();
  // What is told of each column; the derivative of weight a by its own score is a(1 − a) over the temperature it was divided by.
  const facts = [
    ["spread of the scores, σ", (s, weights, tau) => spread(s) / tau], ["largest weight a", (s, weights) => Math.max(...weights)],
    ["entropy", (s, weights) => entropy(weights)], ["largest a(1 − a)", (s, weights) => Math.max(...weights.map((w) => w * (1 - w)))],
  ];
  const sums = rows("in numbers", ["", ...heads.slice(2)]);
  list.node.querySelectorAll("thead th")[1].className = "score";
  list.node.classList.toggle("two", byWidth);
  sums.node.classList.add("sums");

  const stripe = (w, second) => {
    const fill = make("i"), node = make("div", { class: second ? "weight second" : "weight" }, make("div", { class: "track", "aria-hidden": "true" }, fill), data(w, fixed(w)));
    fill.style.width = `${100 * w}%`;
    return node;
  };
  // The largest weight, and the names of all that have it.
  const top = (weights) => {
    const most = Math.max(...weights), names = labels.filter((_, i) => weights[i] === most);
    return [value(most), " (", ...names.flatMap((name, i) => [...(i ? [i < names.length - 1 ? ", " : " and "] : []), make("b", {}, name)]), ")"];
  };
  const value = (x, shown = fixed(x)) => data(x, shown);

  function show() {
    const [d, s] = row(), taus = byWidth ? [1, Math.sqrt(d)] : [model.get("temperature")], all = taus.map((tau) => softmax(s, tau));
    list.show(s.map((x, i) => [make("bdi", {}, labels[i]), data(x, number(x)), ...all.map((weights, k) => stripe(weights[i], k > 0))]));
    sums.show(facts.map(([name, fact]) => [name, ...all.map((weights, k) => data(fact(s, weights, taus[k]), number(fact(s, weights, taus[k]))))]));
    words.replaceChildren(...(byWidth
      ? [`d = ${d}: the largest weight is `, ...top(all[0]), "; with the scores divided by √d = ", value(taus[1], number(taus[1])), " it is ", value(Math.max(...all[1])), "."]
      : [`τ = ${number(taus[0])}: the largest weight is `, ...top(all[0]), "; entropy ", value(entropy(all[0])), ` of at most ln ${s.length} = ${fixed(Math.log(s.length))}.`]));
  }
  for (const name of ["temperature", "width"]) model.on(`change:${name}`, show);
  const bar = make("div", { class: "bar" }, control, ...(byWidth ? [] : [reset]));
  const remove = frame({ el, label: byWidth ? "softmax and the width" : "softmax and its temperature", title, style: OWN, children: [bar, words, list.node, ...(byWidth ? [sums.node] : [])] });
  show();
  return remove;
}

const viewer = { render };
export default viewer;
