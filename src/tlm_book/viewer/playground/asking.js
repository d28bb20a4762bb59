// Questions of a story: what the model answers, which head found it, and the stories that stand ready.

const PLAIN = new Set(["the", "and", "had", "was", "in", "on", "at", "by", "with", "it"]); // words of an answer that say nothing of their own

const LONGEST_ANSWER = 40; // tokens
const roomFor = (longest) => Math.min(LONGEST_ANSWER, longest >> 1); // so many tokens of a long text give way to the answer

// An answer ends before a new line or document (`ends`) and with a full stop (`stops`), and the text with as many tokens as the page computes.
function answerEnds({ texts, start }, longest) {
  const those = (sign) => [...texts.keys()].filter((token) => texts[token].includes(sign));
  return { most: longest, long: LONGEST_ANSWER, ends: [start, ...those("\n")], stops: those(".") };
}

// The longest word of the answer that stands in the text, too (no plain one), and the head, of those that are not off, that gave it the largest weight in the row that
// wrote it; null without such a word.
function finder({ tokens, weights }, from, texts, off) {
  const shown = (token) => new TextDecoder().decode(Uint8Array.from(texts[token], (c) => c.charCodeAt(0))).trim();
  const word = (token) => shown(token).toLowerCase(), within = new Set(tokens.slice(0, from).map(word));
  let row = -1, longest = 1;
  for (let r = from; r < tokens.length; r++) {
    const said = word(tokens[r]);
    if (within.has(said) && !PLAIN.has(said) && said.length > longest) [row, longest] = [r - 1, said.length];
  }
  if (row < 0) return null;
  const places = [...tokens.keys()].filter((j) => j < from && word(tokens[j]) === word(tokens[row + 1]));
  let best = { weight: -1 };
  weights[row].forEach((heads, block) => heads.forEach((a, head) => {
    const weight = places.reduce((sum, j) => sum + (a[j] ?? 0), 0);
    if (weight > best.weight && !off.has(`${block}.${head}`)) best = { weight, block, head };
  }));
  return best.weight < 0 ? null : { ...best, seen: weights[row][best.block][best.head], row, word: shown(tokens[row + 1]) };
}

// The answer that a prepared story has; undefined for a story or a question of the reader's own.
const rightAnswer = (stories, story, question) => stories.find((one) => one.story === story)?.asked.find(([asked]) => asked === question)?.[1];

const press = (name, act) => { const button = make("button", { type: "button" }, name); button.addEventListener("click", act); return button; };

// Buttons: the questions of the prepared story, which can be asked of what the reader has made of it, too; and another story. `current` gives the story and the
// question that stand there.
function storyBar(stories, current, choose) {
  const node = make("div", { class: "bar asked", role: "group", "aria-label": "questions about the story" });
  let place = 0;
  const stands = () => stories.findIndex((one) => one.story === current()[0]);
  const other = press("another story", () => {
    if (stands() >= 0) place = (stands() + 1) % stories.length; // a story of the reader's own gives way to the one before it
    choose(stories[place].story, stories[place].asked[0][0]);
  });
  const show = () => {
    const found = stands(), question = current()[1], held = [...node.children].indexOf(node.getRootNode().activeElement);
    if (found >= 0) place = found;
    other.textContent = found < 0 ? "back to the story" : "another story";
    node.replaceChildren(...(stories[place]?.asked ?? []).map(([text]) => {
      const button = press(text, () => choose(current()[0], text));
      button.setAttribute("aria-pressed", text === question);
      return button;
    }));
    node.children[held]?.focus(); // a button that was pressed keeps the focus
  };
  return { node, other, show };
}

// What the model says, what the story says, and the head that found it, with buttons that switch it off, and on again what is off.
function replyLine(model) {
  const node = make("div", { class: "reply", role: "status" }), heads = make("p", { class: "finder" });
  const set = (off) => { model.set("off", off); model.save_changes(); };
  const show = (text, right, found) => {
    const fine = text === right, off = model.get("off"), held = heads.contains(heads.getRootNode().activeElement);
    node.classList.remove("waits");
    node.replaceChildren(...(/[\p{L}\p{N}]/u.test(text) ? ["The model answers: ", make("b", {}, text)] : ["The model answers nothing."]),
      ...(right === undefined ? [] : [` The story says: ${right} `, make("span", { class: fine ? "right" : "wrong" }, fine ? "✓ right" : "✗ not so")]));
    const on = off.length ? [press(off.length > 1 ? `${off.length} heads are off: switch them on` : `head ${off[0].split(".")[1]} of block ${off[0].split(".")[0]} is off: switch it on`, () => set([]))] : [];
    const named = found ? [`When it wrote “${found.word}”, head ${found.head} of block ${found.block} gave `, data(found.weight, `${Math.round(100 * found.weight)}%`),
      " of its attention to that word in the text. ", press("switch this head off", () => set([...off, `${found.block}.${found.head}`])), " "] : [];
    heads.replaceChildren(...named, ...on);
    if (held) heads.querySelector("button")?.focus(); // what was pressed has gone
  };
  const wait = () => node.classList.add("waits");
  return { node, heads, show, wait, clear: () => { node.replaceChildren(); heads.replaceChildren(); } };
}
