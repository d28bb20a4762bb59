// A link to a statement shows that statement when it is pointed at or focused. The preview can be pointed at itself, stays
// until pointer and focus have left, and Escape closes it. Links and the page behave as they would without it.

(() => {
  const chapters = {}; // page name -> promise of {id: HTML}, filled by _static/previews/CHAPTER.js
  const arrived = {};
  window.tlmPreviews = (page, statements) => arrived[page](statements);

  function statementsOf(page) {
    chapters[page] ??= new Promise((resolve, reject) => {
      arrived[page] = resolve;
      const script = document.createElement("script"); // a script also loads where the page is a file
      script.src = `${document.documentElement.dataset.content_root}_static/previews/${page.split("/").pop()}.js`;
      script.onerror = reject;
      document.head.append(script);
    });
    return chapters[page];
  }

  const box = document.createElement("div");
  box.id = "statement-preview";
  box.className = "statement";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.querySelector("#main-content").append(box);

  let shown = null; // the link whose statement is shown
  let timer = 0;

  function hide() {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    box.hidden = true;
  }

  async function show(link) {
    clearTimeout(timer);
    if (link === shown) return;
    const page = DOCUMENTATION_OPTIONS.pagename;
    const file = link.pathname.split("/").pop().replace(/\.html$/, "");
    const here = link.pathname === location.pathname;
    const name = decodeURIComponent(link.hash.slice(1));
    const html = (await statementsOf(here ? page : page.replace(/[^/]*$/, file)))[name];
    if (!html || !wanted.has(link)) return;
    hide();
    shown = link;
    link.removeAttribute("title"); // the preview says more
    box.innerHTML = html;
    box.className = `statement statement-${box.querySelector(".statement-label").textContent.split(" ")[0].toLowerCase()}`;
    setMathematics(box);
    box.hidden = false;
    link.setAttribute("aria-describedby", box.id);
    place(link);
  }

  // Below the line of the link, or above it where there is more room; never over the link.
  function place(link) {
    const line = link.getClientRects()[0];
    const home = box.offsetParent.getBoundingClientRect();
    const below = innerHeight - line.bottom;
    const above = below < box.offsetHeight + 12 && line.top > below;
    box.style.maxHeight = `${Math.max(120, (above ? line.top : below) - 16)}px`;
    const left = Math.max(8, Math.min(line.left - 16, document.documentElement.clientWidth - box.offsetWidth - 8));
    box.style.left = `${left - home.left}px`;
    box.style.top = `${(above ? line.top - box.offsetHeight - 4 : line.bottom + 4) - home.top}px`;
  }

  const wanted = new Set(); // links under the pointer or in focus
  function enter(link, wait) {
    wanted.add(link);
    clearTimeout(timer);
    timer = setTimeout(() => show(link).catch(() => {}), wait);
  }
  function leave(link) {
    wanted.delete(link);
    clearTimeout(timer);
    timer = setTimeout(() => wanted.has(shown) || box.matches(":hover") || hide(), 250);
  }

  for (const link of document.querySelectorAll("a.statement-link")) {
    link.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && enter(link, 200));
    link.addEventListener("pointerleave", () => leave(link));
    link.addEventListener("focus", () => link.matches(":focus-visible") && enter(link, 200));
    link.addEventListener("blur", () => leave(link));
  }
  box.addEventListener("pointerleave", () => leave(shown));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown) hide();
  });
})();
