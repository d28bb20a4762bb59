// A model that answers while one types. The model of the picture holds `text`, `temperature`, `top_k`, `top_p`, `causal` and `off` (heads that are switched off,
// as "block.head"). What is computed is computed elsewhere (computer.js), so that typing goes on; later letters cost a row or two (model.js).

const OWN = "view.css";
const SHOWN = 8, FRAME = 60, EVERY = 4; // tokens in the list; of what is being written, the least milliseconds and the least tokens from picture to picture

// The tokens in the order of their scores, and the probabilities from which the next one is drawn, in that order.
function drawnFrom(z, tau, k, p) {
  const order = [...z.keys()].sort((i, j) => z[j] - z[i] || i - j), scores = order.map((i) => z[i]);
  return { order, before: tempered(scores, 1), after: choice(scores, tau, k, p).after };
}
function quantile({ order, after }, u) { // the smallest token whose sum, in the order of the vocabulary, exceeds u
  const p = new Float64Array(order.length);
  order.forEach((token, place) => { p[token] = after[place]; });
  const F = sums([...p]), all = F[F.length - 1];
  return F.findIndex((sum) => u < sum / all);
}

function render({ model, el }) {
  const { settings, file, vocabulary, title, blocks: L, heads: h, longest, begins, stories } = model.get("data");
  const network = { settings, weights: unpack(file) }, tokenizer = new Tokenizer(vocabulary), machine = computer(network), until = answerEnds(tokenizer, longest);
  const off = () => new Set(model.get("off")), how = () => ({ causal: model.get("causal"), off: off() });
  let tokens = [], answer = null, row = 0, followed = true, writing = null, changed = null, head = null, drawnAt = 0;
  let found = null, typed = false, fresh = false, cut = ""; // the head that found the answer; whether the reader types, or takes another story; what is said of a text too long

  const box = make("textarea", { rows: stories.length ? 5 : 3, spellcheck: "false", "aria-label": "text" });
  const strip = make("div", { class: "strip", role: "group", "aria-label": "tokens: choose one" });
  const grid = make("div", { class: "heads", role: "group", "aria-label": "heads: press to switch off or on" });
  const list = rows("", ["next token", "the model's probability", "drawn with"]), depth = rows("what the row says after each block, read by the last layer (the logit lens)", ["after", "likeliest next token", ""]);
  const seen = make("p", { class: "soft" }), words = said(), set = (name, value) => { model.set(name, value); model.save_changes(); };
  const write = press("write on", () => (writing ? rest() : begin())), mask = make("input", { type: "checkbox" });
  const masked = make("label", { class: "mask" }, mask, "causal mask");
  mask.addEventListener("change", () => set("causal", mask.checked));
  const reply = replyLine(model), bar = storyBar(stories, () => story(), (told, asked) => {
    [head, fresh] = [null, told !== story()[0]];
    set("text", `${told}\n${asked}`);
  });
  reply.heads.addEventListener("click", () => { head = null; }); // where the head looked that is named next
  const own = begins ? [tokenizer.start] : [], on = press("all heads on", () => set("off", []));
  const controls = [
    slider(model, "temperature", "temperature τ", { ...powers(-1, 1, 0.02), text: (tau) => number(tau) }),
    slider(model, "top_k", "top-k", topK(vocabulary.texts.length)),
    slider(model, "top_p", "top-p", { min: 0.01, max: 1, step: 0.01, text: (p) => fixed(p, 2) }),
  ];

  // --- Computing

  const shown = (token) => vocabulary.shown[token];
  function run(then = () => {}) {
    const before = answer;
    delete el.dataset.ready;
    delete el.dataset.answered;
    reply.wait();
    machine.read(tokens, how(), (now) => {
      const both = before ? agreeing(before, now) : 0, last = tokens.length - 1;
      changed = !fresh && both > own.length && before.key === now.key ? differing(before, now, both) : null;
      answer = now;
      row = followed ? last : Math.min(row, last);
      el.dataset.ready = now.tokens.length;
      if (!writing || (writing.tokens.length % EVERY === 0 && performance.now() > drawnAt + FRAME)) {
        show();
        bring(row);
        if (typed && changed) bring(Math.min(both, last));
      }
      typed = fresh = false;
      then();
    });
  }
  function story() { // the story and the question: a prepared story is one line; of the reader's own text, the question is the last line, if it is one
    const text = model.get("text"), line = text.split("\n", 1)[0], at = text.search(stories.some((one) => one.story === line) ? /\n/ : /\n([^\n]*\?)?$/);
    return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
  }
  const asks = () => stories.length && /\?$/.test(model.get("text"));
  function ask() { // what the model answers to a question that stands at the end
    if (writing || !asks()) { reply.clear(); return; }
    const from = tokens.length;
    machine.answer(tokens, how(), until, (now) => {
      found = finder(now, from, vocabulary.texts, off());
      reply.show(tokenizer.decode(now.tokens.slice(from)).trim(), rightAnswer(stories, ...story()), found);
      if (!head) show();
      bring(row); // the numbers at the tokens may have moved it
      if (found && !head && box.getRootNode().activeElement !== box) bring(found.seen.indexOf(Math.max(...found.seen.slice(0, from)))); // who types looks at the end
      el.dataset.answered = from;
    });
  }
  function agreeing({ tokens: before }, { tokens: now }) { // how many tokens both begin with
    let common = 0;
    while (common < Math.min(before.length, now.length) && before[common] === now[common]) common++;
    return common;
  }
  // Of the tokens that both texts begin with, those whose scores are no longer the same: the last layers read another row of the residual stream.
  function differing(before, now, common) {
    const found = [];
    for (let p = 0; p < common; p++) {
      const x = before.streams[p][L], y = now.streams[p][L]; // the same array, where it was kept
      if (x !== y && x.some((x_j, j) => Math.abs(x_j - y[j]) > 1e-6)) found.push(p);
    }
    return { found, common };
  }
  function read() { // from the text to its tokens, the last ones where it is too long
    const all = tokenizer.encode(model.get("text")), first = all.length ? own : [tokenizer.start], most = longest - first.length - (asks() ? roomFor(longest) : 0);
    bar.show();
    tokens = [...first, ...all.slice(-most)];
    found = null;
    cut = all.length > most ? ` Only the last ${most} tokens are read.` : "";
    run(ask);
  }

  // --- Writing

  const rest = () => {
    if (!writing) return;
    show();
    if (answer) bring(row);
    writing = null;
    write.textContent = "write on";
  };
  function begin() {
    writing = { state: model.get("seed") >>> 0, tokens: [] };
    write.textContent = "stop";
    followed = true;
    reply.clear();
    found = null;
    step();
  }
  function step() {
    if (!writing || !answer) return;
    writing.state = (Math.imul(1664525, writing.state) + 1013904223) >>> 0;
    const token = quantile(drawnFrom(logits(network, answer, answer.tokens.length - 1), model.get("temperature"), model.get("top_k"), model.get("top_p")), writing.state / 4294967296);
    if (token === tokenizer.start) { rest(); return; }
    const rows = [...tokens.filter((t, i) => i > 0 || t !== tokenizer.start), token], full = own.length + rows.length > longest;
    tokens = [...own, ...(full ? rows.slice(-Math.ceil(longest / 2)) : rows)];
    if (full) cut = " The context was full: its first half is forgotten.";
    writing.tokens.push(token);
    el.dataset.written = writing.tokens.join(" ");
    run(step);
  }

  // --- Showing

  const put = (node, name, value) => { if (node.getAttribute(name) !== `${value}`) node.setAttribute(name, value); }; // what is the same moves nothing on the page
  const shade = (w) => `color-mix(in srgb, var(--one) ${Math.round(100 * Math.sqrt(w))}%, transparent)`;
  const colours = () => [[grid.querySelector("button"), "color"], [box, "backgroundColor"]].map(([node, of]) => parts(getComputedStyle(node)[of]).slice(0, 3)); // --one and --field
  const chips = []; // one for each token that has ever stood there
  function chip(p) {
    const name = make("bdi"), weight = data("", ""), node = make("button", { type: "button" }, name, " ", weight);
    node.addEventListener("click", () => {
      if (!head && found) head = [found.block, found.head];
      row = p;
      followed = p === tokens.length - 1;
      show();
    });
    return { node, name, weight };
  }
  // The tab key stops once at the tokens and once at the heads; arrows go on from there.
  const followKeys = (node, from, down, go) => node.addEventListener("keydown", (event) => {
    const all = node.querySelectorAll("button"), at = from(all);
    const next = all[{ ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - down, ArrowDown: at + down, Home: 0, End: all.length - 1 }[event.key]];
    if (!next) return;
    event.preventDefault();
    go(next);
    next.focus();
  });
  followKeys(strip, () => row, 1, (next) => next.click());
  followKeys(grid, (all) => [...all].findIndex((one) => one.matches(":focus")), h, () => {});
  function showTokens() {
    const weights = head ? answer.weights[row][head[0]][head[1]] : found?.seen, moved = new Set(changed?.found), [one, field] = colours();
    const ink = (w) => inkOn(one.map((c, k) => field[k] + Math.sqrt(w) * (c - field[k])));
    answer.tokens.forEach((token, p) => {
      const { node, name, weight } = (chips[p] ??= chip(p)), w = weights ? weights[p] ?? 0 : null, text = shown(token);
      if (name.textContent !== text) name.textContent = text;
      put(node, "class", moved.has(p) ? "changed" : "");
      put(node, "aria-pressed", p === row);
      put(node, "tabindex", p === row ? 0 : -1);
      weight.hidden = w === null || w < 0.005;
      if (w !== null) { weight.value = w; weight.textContent = fixed(w, 2); }
      put(node, "style", w === null ? "--seen: transparent" : `--seen: ${shade(w)}; color: ${ink(w)}`);
    });
    const n = answer.tokens.length, there = strip.childElementCount;
    if (there < n) strip.append(...chips.slice(there, n).map(({ node }) => node));
    while (strip.childElementCount > n) strip.lastChild.remove();
  }
  function bring(p) { // the strip scrolls, the page does not
    const { top, bottom } = chips[p].node.getBoundingClientRect(), around = strip.getBoundingClientRect();
    strip.scrollTop += Math.min(top - around.top - 3, 0) || Math.max(bottom - around.bottom + 3, 0);
  }
  function showHeads() {
    const silent = off(), n = answer.tokens.length, [chosen, which] = head ?? [found?.block, found?.head];
    seen.textContent = `Each square holds the attention weights of a head: row by row, what each token sees. Press one to switch the head off.${head ? ` The numbers at the tokens: what token ${row} sees in head ${which} of block ${chosen}.` : found ? ` The numbers at the tokens: where head ${which} of block ${chosen} looked when the model wrote “${found.word}”.` : ""}`;
    const picture = new ImageData(n, n), pixels = picture.data, [one] = colours();
    for (let at = 0; at < pixels.length; at += 4) pixels.set(one, at); // the same for all heads: only what shines through is written anew
    [...grid.querySelectorAll("button")].forEach((node, at) => {
      const l = Math.floor(at / h), i = at % h, pen = node.firstChild.getContext("2d"), name = `${l}.${i}`;
      put(node, "aria-pressed", !silent.has(name));
      put(node, "class", l === chosen && i === which ? "chosen" : "");
      put(node, "tabindex", at === (chosen ?? 0) * h + (which ?? 0) ? 0 : -1);
      put(node, "aria-label", `block ${l}, head ${i}${silent.has(name) ? ", off" : ""}`);
      for (let p = 0, to = 3; p < n; p++) {
        const a = answer.weights[p][l][i];
        for (let j = 0; j < n; j++, to += 4) pixels[to] = n > 1 && j < a.length ? 255 * Math.sqrt(a[j]) : 0; // a token alone would fill its square
      }
      if (pen.canvas.width !== n) pen.canvas.width = pen.canvas.height = n;
      pen.putImageData(picture, 0, 0);
    });
  }
  function showNext() {
    const scores = lens(network, answer.streams[row]), { order, before, after } = drawnFrom(scores[L], model.get("temperature"), model.get("top_k"), model.get("top_p"));
    const bar = (w, two) => {
      const fill = make("i"), track = make("div", { class: two ? "track two" : "track", "aria-hidden": "true" }, fill);
      fill.style.width = `${100 * w}%`;
      return make("div", { class: "weight" }, track, data(w, fixed(w)));
    };
    list.show(order.slice(0, SHOWN).map((token, j) => [make("bdi", {}, shown(token)), bar(before[j], false), bar(after[j], true)]));
    list.node.caption.textContent = `after “${shown(answer.tokens[row])}”, token ${row} of 0 to ${answer.tokens.length - 1}`;
    depth.show(scores.map((z, l) => {
      const p = softmax(z), most = Math.max(...p);
      return [l ? `block ${l - 1}` : "embedding", make("bdi", {}, shown(p.indexOf(most))), data(most, fixed(most))];
    }));
  }
  function show() {
    if (!answer) return;
    drawnAt = performance.now();
    if (writing) {
      box.value = tokenizer.decode(tokens.filter((token, p) => p > 0 || token !== tokenizer.start));
      box.scrollTop = box.scrollHeight;
    }
    showTokens();
    showHeads();
    showNext();
    const count = changed && changed.common, silent = off().size;
    on.hidden = !silent;
    words.replaceChildren(make("p", {}, ...(changed === null ? ["Type at the end of the text, or anywhere: each letter is computed at once."]
      : [`This changed the scores of `, data(changed.found.length, `${changed.found.length}`), ` of the ${count} ${count === 1 ? "token" : "tokens"} before it`, model.get("causal") ? ": behind the mask, what comes later changes nothing earlier." : ". Without the mask every row sees what comes later."]),
    silent ? ` ${silent} of ${L * h} heads ${silent === 1 ? "is" : "are"} off.` : "", cut));
  }

  const half = L > 4 ? Math.ceil(L / 2) : L; // of many blocks the second half stands beside the first, where there is room
  for (let l = 0; l < L; l++) {
    if (l % half === 0) {
      grid.append(make("div", {}, make("span", { class: "top" }, "head"), ...Array.from({ length: h }, (_, i) => make("span", { class: "top number" }, `${i}`))));
      grid.lastChild.style.gridTemplateColumns = `4.2em repeat(${h}, minmax(0, 3.2rem))`;
    }
    grid.lastChild.append(make("span", {}, `block ${l}`));
    for (let i = 0; i < h; i++) {
      const node = make("button", { type: "button" }, make("canvas", { "aria-hidden": "true" })), name = `${l}.${i}`;
      node.addEventListener("click", () => set("off", off().has(name) ? model.get("off").filter((other) => other !== name) : [...model.get("off"), name]));
      const choose = () => { if (`${head}` !== `${[l, i]}`) { head = [l, i]; show(); } };
      for (const event of ["pointerdown", "focus"]) node.addEventListener(event, choose);
      node.addEventListener("pointermove", ({ movementX, movementY }) => { if (movementX || movementY) choose(); }); // the page may also move under a pointer that rests
      grid.lastChild.append(node);
    }
  }
  box.value = model.get("text");
  box.addEventListener("input", () => { writing = null; write.textContent = "write on"; followed = typed = true; set("text", box.value); });
  model.on("change:text", () => { if (box.value !== model.get("text")) box.value = model.get("text"); read(); });
  for (const name of ["temperature", "top_k", "top_p"]) model.on(`change:${name}`, show);
  for (const name of ["causal", "off"]) model.on(`change:${name}`, () => { mask.checked = model.get("causal"); run(ask); });
  mask.checked = model.get("causal");
  const remove = frame({ el, label: "a model that answers as you type", title, style: OWN, resize: (wide) => grid.classList.toggle("wide", wide > 110 * (h + 2)), children: [...(stories.length ? [bar.node] : []), box, ...(stories.length ? [reply.node, reply.heads] : []), make("div", { class: "bar" }, write, masked, ...(stories.length ? [bar.other] : [])), strip, words, seen, grid, make("div", { class: "bar" }, on), ...controls, list.node, depth.node] });
  new MutationObserver(show).observe(strip.parentElement, { attributes: true, attributeFilter: ["class"] }); // letters and squares have the page's colours
  read();
  return () => { rest(); machine.close(); remove(); };
}

const viewer = { render };
export default viewer;
