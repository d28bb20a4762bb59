// The search: while a reader types, and above the pages that are found by their text, stand the places that fit the words best: statements, code, headings,
// words of the glossary. They come from _static/places.js (site/tlm/finder.py), which is fetched when somebody searches. A script also loads where the page is a file.
// A page that is found by its text opens where the words stand; what is shown of it before is prose.

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

  // Where in a page the words of a question stand, as [text, place, length], the best first: all words together, else whole words, else words that begin like
  // them; in prose, and in code only if no prose has them.
  const BLOCKS = "p, li, dt, dd, td, th, pre, figcaption";
  function matches(article, words) {
    if (!words.length) return [];
    const ways = [words.join("[\\s_-]+"), words.join("|"), `(?:${words.map((word) => stem(word) || word).join("|")})[\\p{L}\\d]*`]
      .map((way) => new RegExp(`(?<![\\p{L}\\d])(?:${way})s?(?![\\p{L}\\d])`, "giu"));
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    const texts = { prose: [], code: [] };
    while (walker.nextNode()) {
      const home = walker.currentNode.parentElement;
      if (home.closest(BLOCKS) && !home.closest("summary, script, style, .math, .statement-head, .cell-caption"))
        texts[home.closest("pre, details.hide") ? "code" : "prose"].push(walker.currentNode);
    }
    for (const among of [texts.prose, texts.code]) {
      for (const way of ways) {
        const found = among.flatMap((text) => [...text.data.matchAll(way)].map((match) => [text, match.index, match[0].length]));
        const kinds = new Map(); // the words that each block has
        for (const [text, start, length] of found) {
          const block = text.parentElement.closest(BLOCKS);
          kinds.set(block, (kinds.get(block) ?? new Set()).add(stem(text.data.substr(start, length).toLowerCase())));
        }
        const most = ([text]) => kinds.get(text.parentElement.closest(BLOCKS)).size;
        if (found.length) return found.sort((a, b) => most(b) - most(a)); // a stable order
      }
    }
    return [];
  }

  function mark([text, start, length]) {
    const range = document.createRange();
    range.setStart(text, start);
    range.setEnd(text, start + length);
    const sign = document.createElement("mark");
    range.surroundContents(sign);
    return sign;
  }

  // The words around the best match, with their formulas.
  const AROUND = 20;
  function excerpt(html, words, anchor) {
    const page = new DOMParser().parseFromString(html, "text/html");
    const article = page.getElementById(anchor.slice(1)) ?? page.querySelector("article.bd-article");
    const [best] = matches(article, words);
    const block = best ? best[0].parentElement.closest(BLOCKS) : article.querySelector("p");
    if (!block) return null;
    const sign = best && mark(best);
    for (const link of block.querySelectorAll("a, .together")) link.replaceWith(...link.childNodes);
    const pieces = [...block.childNodes].flatMap((node) => (node.nodeType === 3 ? node.data.split(/(?<=\s)/).map((word) => new Text(word)) : [node]));
    const middle = pieces.findIndex((piece) => piece.contains(sign));
    const first = Math.max(0, middle - AROUND);
    const last = Math.max(0, middle) + AROUND;
    const shown = Object.assign(document.createElement("p"), { className: "context" });
    shown.append(first ? "… " : "", ...pieces.slice(first, last), last < pieces.length ? " …" : "");
    for (const one of shown.querySelectorAll("[id], .headerlink, script")) one.matches("[id]") ? one.removeAttribute("id") : one.remove();
    setMathematics(shown);
    return shown;
  }

  const address = new URL(location);
  const results = document.querySelector("#search-results");
  const question = address.searchParams.get("q");
  if (results && question) {
    const list = listFor("best matching places");
    results.before(list);
    whenThere(() => show(list, question));
    const words = split(question).filter((word) => !stopwords.includes(word));
    Search.makeSearchSummary = (html, _, anchor) => excerpt(html, words, anchor);
    new MutationObserver(() => {
      for (const link of results.querySelectorAll("ul.search a:not([href*='#'], [href*='?'])")) link.search = new URLSearchParams({ highlight: words.join(" ") });
    }).observe(results, { childList: true, subtree: true });
  }

  // A page whose address asks for it is marked: the best match, where it opens, and the first one of each section.
  const asked = split(address.searchParams.get("highlight") ?? "");
  const article = document.querySelector("article.bd-article");
  if (article && asked.length) {
    address.searchParams.delete("highlight");
    history.replaceState(null, "", address);
    const sections = new Set();
    const isFirst = ([text]) => { const home = text.parentElement.closest("section"); return !sections.has(home) && sections.add(home); };
    const [best] = matches(article, asked).filter(isFirst).map(mark);
    if (best) {
      best.id = "found";
      location.replace("#found");
    }
  }
})();
