// The search: while a reader types, and above the pages that are found by their text, stand the places that fit the words best: statements, code, headings,
// words of the glossary. They come from _static/places.js (site/tlm/finder.py), which is fetched when somebody searches. A script also loads where the page is a file.

(() => {
  const MOST = 8;
  const split = (text) => text.toLowerCase().match(/[\p{L}\d]+/gu) ?? [];
  const wordsOf = (text) => [...new Set([...split(text), ...split(text.replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2"))])]; // RopeScaling: also rope, scaling
  const root = document.documentElement.dataset.content_root;
  let places = null;
  let waiting = []; // what to do when the places are there
  window.tlmPlaces = (found) => {
    places = found.map(([title, what, url, more]) => ({ title, what, url, words: wordsOf(title), more: wordsOf(`${what} ${more}`) }));
    for (const go of waiting.splice(0)) go();
  };
  function whenThere(go) {
    if (places) { go(); return; }
    waiting = [go];
    if (document.querySelector("#tlm-places")) return;
    const script = document.createElement("script");
    Object.assign(script, { id: "tlm-places", src: `${root}_static/places.js` });
    document.head.append(script);
  }

  // How well a word of the question fits one of these: the same word 1, its beginning less, the same but for an ending (masks, masking) less still, else 0.
  const stem = (word) => word.replace(/(?:ings?|ed|es|s)$/, "");
  const akin = (asked, word) => stem(asked).length > 3 && stem(asked) === stem(word);
  const one = (asked, word) => word === asked ? 1 : asked.length > 2 && word.startsWith(asked) ? 0.7 : akin(asked, word) ? 0.6 : 0;
  const fit = (asked, words) => words.reduce((best, word) => Math.max(best, one(asked, word)), 0);

  // A word counts the more the rarer it is; one of the title counts more than others; a short title is about its word.
  function best(question) {
    const asked = [...new Set(wordsOf(question))];
    const scores = places.map(() => 0);
    for (const word of asked) {
      const fits = places.map(({ words, more }) => Math.max(fit(word, words), 0.5 * fit(word, more)));
      const rare = Math.log(1 + places.length / (1 + fits.filter(Boolean).length));
      fits.forEach((fitting, k) => { scores[k] += fitting * rare; });
    }
    const order = [...places.keys()].filter((k) => scores[k] > 0);
    const value = (k) => scores[k] * (1 + 0.3 / (1 + places[k].words.length));
    order.sort((a, b) => value(b) - value(a) || a - b);
    return order.slice(0, MOST).filter((k) => value(k) > 0.4 * value(order[0])).map((k) => places[k]);
  }

  function show(list, question) {
    list.replaceChildren(...best(question).map(({ title, what, url }) => {
      const link = Object.assign(document.createElement("a"), { href: root + url, textContent: title });
      const place = Object.assign(document.createElement("small"), { textContent: what });
      const item = document.createElement("li");
      item.append(link, " ", place);
      return item;
    }));
    list.hidden = !list.childElementCount;
  }

  function listFor(name) {
    const list = document.createElement("ul");
    list.className = "places";
    list.setAttribute("aria-label", name);
    list.setAttribute("aria-live", "polite");
    list.hidden = true;
    return list;
  }

  for (const input of document.querySelectorAll("#pst-search-dialog input[type=search]")) {
    const list = listFor("matching places");
    input.form.after(list);
    input.addEventListener("input", () => whenThere(() => show(list, input.value)));
  }
  document.querySelector("#pst-search-dialog")?.addEventListener("click", (event) => {
    if (event.target.closest(".places a")) event.currentTarget.close();
  });

  const results = document.querySelector("#search-results");
  const question = new URLSearchParams(location.search).get("q");
  if (results && question) {
    const list = listFor("best matching places");
    results.before(list);
    whenThere(() => show(list, question));
  }
})();
