// The merges of a text, one at a time. The model holds one number, `step`: how many merges are applied.

const OWN = "view.css";
const PAUSE = 1100; // milliseconds between two steps of the film

function render({ model, el }) {
  const { names, start, merges, title } = model.get("data"), last = merges.length;
  const states = [start];
  for (const { token, at } of merges) {
    const left = new Set(at), right = new Set(at.map((i) => i + 1)), state = states.at(-1);
    states.push(state.map((t, i) => (left.has(i) ? token : t)).filter((_, i) => !right.has(i)));
  }
  const step = () => model.get("step");
  const name = (t) => make("bdi", {}, names[t]), pair = ([a, b]) => [name(a), " + ", name(b)];
  const plural = (k, one) => `${k} ${one}${k === 1 ? "" : "s"}`;

  const button = (label, sign, act) => {
    const node = make("button", { type: "button", "aria-label": label, title: label }, sign);
    node.addEventListener("click", () => { if (node.getAttribute("aria-disabled") !== "true") act(); });
    return node;
  };
  const go = (k) => { model.set("step", clamp(k, 0, last)); model.save_changes(); };
  const still = (act) => () => { stop(); act(); };
  const first = button("first", "|◂", still(() => go(0))), back = button("back", "◂", still(() => go(step() - 1)));
  const play = button("play", "play", () => (film ? stop() : run()));
  const next = button("next", "▸", still(() => go(step() + 1))), end = button("last", "▸|", still(() => go(last)));
  let film = null;
  const label = (text) => { play.textContent = text; play.setAttribute("aria-label", text); play.title = text; };
  function stop() { clearInterval(film); film = null; label("play"); }
  function run() {
    if (step() === last) go(0);
    film = setInterval(() => { if (step() < last && el.isConnected) go(step() + 1); if (step() === last) stop(); }, PAUSE);
    label("pause");
  }
  const place = slider(model, "step", "step", { min: 0, max: last, text: (k) => `${k} of ${last}` });
  place.addEventListener("input", stop);
  const bar = make("div", { class: "bar" }, first, back, play, next, end, place);
  const tokens = make("div", { class: "tokens", role: "img" }), words = said();
  const extra = [["rank", "rule"], ["count", "counted"]].filter(([key]) => merges.some((merge) => key in merge));
  const list = rows("each merge, the places where it fuses here, and the tokens left", ["step", "pair", "becomes", ...extra.map(([, head]) => head), "here", "tokens"]);
  const box = make("div", { class: "steps", tabindex: 0, role: "region", "aria-label": "list of merges" }, list.node);
  list.show(merges.map((merge, k) => {
    const both = make("span"), cell = ([key]) => (key in merge ? `${merge[key]}` : "");
    both.append(...pair(merge.pair));
    return [`${k + 1}`, both, name(merge.token), ...extra.map(cell), `${merge.at.length}`, `${states[k + 1].length}`];
  }));
  const lines = [...list.node.querySelectorAll("tbody tr")];

  function draw(k) {
    const state = states[k], ahead = merges[k], done = merges[k - 1];
    const left = new Set(ahead?.at), parts = [];
    const fresh = new Set(done?.at.map((i, already) => i - already)); // each fusion before it moved it one to the left
    for (let i = 0; i < state.length; i++) {
      const both = left.has(i), kind = both ? "pair" : fresh.has(i) ? "fresh" : "one";
      parts.push(make("span", { class: kind }, name(state[i]), ...(both ? [name(state[++i])] : [])));
    }
    tokens.replaceChildren(...parts);
    tokens.setAttribute("aria-label", state.map((t) => names[t]).join(" | "));
  }
  function tell(k) {
    const tally = `${plural(states[k].length, "token")} after ${plural(k, "merge")}. `, ahead = merges[k];
    if (!ahead) return words.replaceChildren(tally, last ? `No merge is left; there were ${states[0].length} tokens at first.` : "There is no merge.");
    const notes = [`${plural(ahead.at.length, "place")} here`];
    if ("rank" in ahead) notes.push(`rule ${ahead.rank}`);
    if ("count" in ahead) notes.push(`counted ${plural(ahead.count, "time")} in training`);
    const bold = (t) => make("b", {}, names[t]), [a, b] = ahead.pair;
    words.replaceChildren(tally, "Next: ", bold(a), " + ", bold(b), " → ", bold(ahead.token), ` (${notes.join(", ")}).`);
  }
  function show() {
    const k = step();
    for (const node of [first, back]) node.setAttribute("aria-disabled", k === 0);
    for (const node of [next, end]) node.setAttribute("aria-disabled", k === last);
    lines.forEach((line, i) => {
      line.classList.toggle("now", i === k - 1);
      if (i === k - 1) line.setAttribute("aria-current", "step"); else line.removeAttribute("aria-current");
    });
    const row = lines[k - 1];
    if (row) box.scrollTop = clamp(box.scrollTop, row.offsetTop + row.offsetHeight - box.clientHeight, k > 1 ? row.offsetTop - 20 : 0);
    draw(k);
    tell(k);
  }
  model.on("change:step", show);
  const children = last ? [bar, tokens, words, box] : [tokens, words];
  const remove = frame({ el, label: "merges, one at a time", title, style: OWN, children });
  show();
  return () => { stop(); remove(); };
}

const viewer = { render };
export default viewer;
