// A short story and a question: the answer comes live, with the words that the head which found it looked at. The model of the picture holds `story`,
// `question` and `off` (heads that are switched off, as "block.head").

const OWN = "view.css";

function render({ model, el }) {
  const { settings, file, vocabulary, title, longest, stories } = model.get("data");
  const tokenizer = new Tokenizer(vocabulary), machine = computer({ settings, weights: unpack(file) }), until = answerEnds(tokenizer, longest);
  const set = (name, value) => { model.set(name, value); model.save_changes(); };

  const told = make("p", { class: "told" }), cut = make("p", { class: "cut", role: "status" }), box = make("textarea", { rows: 5, spellcheck: "false", "aria-label": "story", hidden: "" });
  const question = make("input", { type: "text", spellcheck: "false", "aria-label": "question", autocomplete: "off" });
  const reply = replyLine(model), bar = storyBar(stories, () => [model.get("story"), model.get("question")], (story, asked) => {
    if (story !== model.get("story") && model.get("off").length) model.set("off", []); // another story is asked of the whole model
    model.set("story", story);
    model.set("question", asked);
    model.save_changes();
  });
  const edit = make("button", { type: "button", "aria-expanded": "false" }, "edit the story");
  edit.addEventListener("click", () => {
    box.hidden = !box.hidden;
    edit.setAttribute("aria-expanded", !box.hidden);
    edit.textContent = box.hidden ? "edit the story" : "done";
    if (!box.hidden) box.focus();
  });

  // The story, each word shaded by the weight that it got.
  function tell(tokens, from, weights) {
    const letters = new TextDecoder(); // a letter of several tokens stands where its last one does
    told.replaceChildren(...tokens.slice(1, from).map((token, j) => {
      const text = letters.decode(tokenizer.bytes([token]), { stream: true }), node = make("span", {}, j === from - 2 ? text.trimEnd() : text);
      node.style.setProperty("--seen", `${Math.round(100 * Math.sqrt(weights?.[j + 1] ?? 0))}%`);
      return node;
    }));
  }
  function run() {
    delete el.dataset.ready;
    reply.wait();
    const story = model.get("story"), asked = model.get("question"), off = new Set(model.get("off")), how = { causal: true, off };
    const asking = tokenizer.encode(asked), text = [...tokenizer.encode(`${story}\n`), ...asking], most = longest - 1 - roomFor(longest);
    const tokens = [tokenizer.start, ...text.slice(Math.max(0, text.length - most))], ofStory = Math.max(1, tokens.length - asking.length);
    cut.textContent = text.length > most ? `Only the last ${most} tokens are read.` : "";
    machine.answer(tokens, how, until, (now) => {
      const found = finder(now, tokens.length, tokenizer.texts, off);
      tell(now.tokens, ofStory, found?.seen);
      reply.show(tokenizer.decode(now.tokens.slice(tokens.length)).trim(), rightAnswer(stories, story, asked), found);
      el.dataset.ready = now.tokens.length;
    });
  }

  box.addEventListener("input", () => set("story", box.value));
  question.addEventListener("input", () => set("question", question.value));
  const follow = () => {
    if (box.value !== model.get("story")) box.value = model.get("story");
    if (question.value !== model.get("question")) question.value = model.get("question");
    bar.show();
    run();
  };
  for (const name of ["story", "question", "off"]) model.on(`change:${name}`, follow);
  const asking = make("label", { class: "asking" }, "Ask: ", question), below = make("div", { class: "bar" }, bar.other, edit);
  const remove = frame({ el, label: "a story, a question, and the model's answer", title, style: OWN, children: [told, cut, box, asking, bar.node, reply.node, reply.heads, below] });
  follow();
  return () => { machine.close(); remove(); };
}

const viewer = { render };
export default viewer;
