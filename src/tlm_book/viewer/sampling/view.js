// Drawing the next token. The model holds `temperature` τ, `top_k`, `top_p` and `draws`; the tokens stand in the order of their
// scores. What was drawn follows from the seed and the number of draws, so moving a slider draws the same numbers u anew.

const MOST_DRAWS = 100000;
const OWN = "view.css";

// The counts of `draws` draws from a seed, and the last token drawn: the first at which the sums exceed u.
function drawn(weights, draws, seed) {
  const F = sums(weights), all = F[F.length - 1], counts = new Array(weights.length).fill(0);
  let state = seed >>> 0, last = null;
  for (let t = 0; t < draws; t++) {
    state = (Math.imul(1664525, state) + 1013904223) >>> 0;
    const u = (state / 4294967296) * all;
    let low = 0, high = F.length - 1; // the answer lies between them
    while (low < high) {
      const middle = (low + high) >> 1;
      if (F[middle] > u) high = middle; else low = middle + 1;
    }
    counts[low]++;
    last = low;
  }
  return { counts, last };
}

function render({ model, el }) {
  const { scores, tokens, seed, shown, title } = model.get("data"), V = scores.length, others = V - shown;
  const controls = [
    slider(model, "temperature", "temperature τ", { ...powers(-1, 1, 0.02), text: (tau) => number(tau) }),
    slider(model, "top_k", "top-k", topK(V)),
    slider(model, "top_p", "top-p", { min: 0.01, max: 1, step: 0.01, text: (p) => fixed(p, 2) }),
  ];
  const button = (name, act) => {
    const node = make("button", { type: "button" }, name);
    node.addEventListener("click", () => { model.set("draws", clamp(act(model.get("draws")), 0, MOST_DRAWS)); model.save_changes(); });
    return node;
  };
  const bar = make("div", { class: "bar", role: "group", "aria-label": "draw" }, ...[1, 100, 10000].map((more) => button(`draw ${more}`, (now) => now + more)), button("forget draws", () => 0));
  const list = rows("", ["next token", "the model's probability", "after", "sum so far", "drawn"]), words = said();
  list.node.querySelectorAll("thead th").forEach((node, k) => { node.className = ["", "", "", "sum", "count"][k]; });
  const before = tempered(scores, 1), total = (weights) => weights.slice(shown).reduce((a, b) => a + b, 0);

  // A bar is as long as its share of `full`; a tick stands where the share of the draws is.
  const stripe = (w, full, after, tick = null) => {
    const fill = make("i"), track = make("div", { class: "track", "aria-hidden": "true" }, fill);
    fill.style.width = `${100 * w / full}%`;
    if (tick !== null) {
      track.append(make("b"));
      track.lastChild.style.left = `${Math.min(100 * tick / full, 100)}%`;
    }
    return make("div", { class: after ? "weight after" : "weight" }, track, data(w, fixed(w)));
  };

  function show() {
    const tau = model.get("temperature"), k = model.get("top_k"), p = model.get("top_p"), draws = model.get("draws");
    const { after, F } = choice(scores, tau, k, p), { counts, last } = drawn(after, draws, seed), kept = after.filter((w) => w > 0).length;
    const largest = Math.max(before[0], after[0]), full = [0.05, 0.1, 0.2, 0.5, 1].find((x) => x >= largest) ?? 1;
    const count = (c) => [data(c, `${c}`), ...(draws ? [make("small", {}, fixed(c / draws))] : [])];
    const lines = tokens.slice(0, shown).map((token, j) => [make("bdi", {}, token), stripe(before[j], full, false), stripe(after[j], full, true, draws ? counts[j] / draws : null),
      j >= k ? "cut by k" : after[j] > 0 ? data(F[j], fixed(F[j])) : "cut by p", make("div", { class: "counted" }, ...count(counts[j]))]);
    if (others) {
      const rest = total(counts);
      lines.push([`the other ${others}`, data(total(before), fixed(total(before))), data(total(after), fixed(total(after))), data(1, "1.000"), make("div", { class: "counted" }, ...count(rest))]);
    }
    list.show(lines);
    [...list.node.tBodies[0].rows].forEach((row, j) => row.classList.toggle("cut", j < shown ? !(after[j] > 0) : !(total(after) > 0)));
    list.node.caption.textContent = `probabilities, bars up to ${full}; the sum is that of the k kept, by which top-p decides${draws ? "; tick: share of the draws" : ""}`;
    const apart = Math.max(...after.map((w, j) => Math.abs(w - counts[j] / Math.max(draws, 1))));
    words.replaceChildren(
      make("p", {}, data(kept, `${kept}`), ` of ${V} tokens can be drawn. Entropy: `, data(entropy(before), fixed(entropy(before))), " before, ", data(entropy(after), fixed(entropy(after))), " after."),
      make("p", {}, ...(draws ? [`Drawn ${draws}, the last one `, make("b", {}, tokens[last]), ": shares and probabilities differ by at most ", data(apart, fixed(apart)), "."] : ["Nothing drawn yet."])),
    );
  }
  for (const name of ["temperature", "top_k", "top_p", "draws"]) model.on(`change:${name}`, show);
  const remove = frame({ el, label: "sampling the next token", title, style: OWN, children: [...controls, bar, words, list.node] });
  show();
  return remove;
}

const viewer = { render };
export default viewer;
