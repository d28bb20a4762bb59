// What the pages need beyond the theme: names for controls, landmarks, room for long formulas, links that arrive.

// A control's name must hold the text that it shows; where there is text, the text is the name.
function nameControls() {
  for (const control of document.querySelectorAll("button.search-button-field, details.hide > summary")) {
    control.removeAttribute("aria-label");
  }
  for (const button of document.querySelectorAll("button.theme-switch-button")) {
    const name = () => {
      const mode = { light: "light", dark: "dark", auto: "as the system" }[document.documentElement.dataset.mode];
      button.setAttribute("aria-label", mode ? `Colour mode: ${mode}` : "Colour mode");
    };
    name();
    new MutationObserver(name).observe(document.documentElement, { attributeFilter: ["data-mode"] });
    for (const icon of button.querySelectorAll("[title]")) icon.removeAttribute("title");
  }
  for (const button of document.querySelectorAll("button.sidebar-toggle")) {
    const what = button.classList.contains("primary-toggle") ? "table of contents" : "contents of this page";
    button.setAttribute("aria-label", `Show or hide the ${what}`);
  }
}

// The theme takes the focus from its buttons when they are pressed. Who pressed one by a key goes on from there.
function keepFocus() {
  for (const button of document.querySelectorAll("button:is(.theme-switch-button, .search-button, .primary-toggle, .secondary-toggle)")) {
    button.blur = () => button.matches(":focus-visible") || HTMLElement.prototype.blur.call(button);
  }
}

// What copies code puts it into a field, selects that and removes it, and with it the focus.
document.addEventListener("click", ({ target, detail }) => {
  if (detail === 0) setTimeout(() => target.closest("button.copybtn")?.focus());
});

// Everything visible belongs to a landmark.
function markRegions() {
  const regions = {
    "#pst-skip-link": ["navigation", "Skip"],
    "#pst-primary-sidebar": ["region", "Book"],
    "#pst-secondary-sidebar": ["region", "Contents of this page"],
    "#pst-primary-sidebar-modal": ["dialog", "Book"],
    "#pst-secondary-sidebar-modal": ["dialog", "Contents of this page"],
    "#pst-search-dialog": ["dialog", "Search"],
  };
  for (const [selector, [role, name]] of Object.entries(regions)) {
    const element = document.querySelector(selector);
    element?.setAttribute("role", role);
    element?.setAttribute("aria-label", name);
  }
  const top = document.querySelector("#pst-back-to-top");
  if (top) document.querySelector("#main-content")?.append(top);
}

// Mathematics: KaTeX sets the TeX that stands in the page (see site/tlm/math.py for the sign of the mask).
function setFormula(box, tex = box.tex) {
  const options = { displayMode: box.tagName === "DIV", throwOnError: false, errorColor: "currentColor" };
  box.innerHTML = katex.renderToString(tex, options).replaceAll("△", "◺");
}

function setMathematics(root = document) {
  if (!globalThis.katex) return; // its file is missing: the TeX is shown after a while (tlm.css)
  for (const box of root.querySelectorAll(".math:not(.is-set)")) {
    box.tex = box.textContent;
    setFormula(box);
    box.classList.add("is-set");
  }
}

// Who copies formulas gets their TeX; where there is more than plain text, MathML. Of what is set, a copy would have every letter twice, each in a line.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  if (selection.isCollapsed || event.target.matches?.("input, textarea")) return;
  const range = selection.getRangeAt(0).cloneRange();
  const formulaOf = (node) => (node.closest ? node : node.parentElement)?.closest(".math.is-set");
  const [first, last] = [formulaOf(range.startContainer), formulaOf(range.endContainer)]; // they are copied whole
  if (first) range.setStartBefore(first);
  if (last) range.setEndAfter(last);
  const formulas = [...document.querySelectorAll(".math.is-set")].filter((box) => range.intersectsNode(box));
  const copy = Object.assign(document.createElement("div"), { className: "copied" });
  copy.append(range.cloneContents());
  if (!copy.querySelector(".katex-mathml")) return;
  for (const drawn of copy.querySelectorAll(".katex-html")) drawn.remove();
  event.clipboardData.setData("text/html", copy.innerHTML);
  copy.querySelectorAll(".math.is-set").forEach((box, k) => {
    const sign = box.tagName === "DIV" ? "$$" : "$";
    box.textContent = `${sign}${formulas[k].tex}${sign}`;
  });
  document.querySelector(".bd-article").append(copy); // only what is on the page has lines
  event.clipboardData.setData("text/plain", copy.innerText);
  copy.remove();
  event.preventDefault();
});

const SMALLEST_FORMULA = 0.72; // of its size: one that would have to be smaller scrolls

// The parts of a formula between its wide spaces (those of braces and environments belong to their part).
function partsOf(tex, spaces) {
  const parts = [""];
  let depth = 0;
  for (const [sign] of tex.matchAll(/\\[a-zA-Z]+|\\[^]|[^]/g)) {
    if (/^(\{|\\begin|\\left)$/.test(sign)) depth++;
    if (/^(\}|\\end|\\right)$/.test(sign)) depth--;
    if (depth === 0 && spaces.includes(sign)) parts.push("");
    else parts[parts.length - 1] += sign;
  }
  return parts.filter((part) => part.trim());
}

// The two sides of a long equation below one another, at the left; and the next sides of a chain.
function equationInLines(part) {
  const sides = partsOf(part, ["="]);
  return sides.length === 1 ? part : `\\begin{aligned}&${sides.join("\\\\[0.4em]&=")}\\end{aligned}`;
}

// Formulas side by side that are too wide for their place stand below one another; what would still have to scroll is cut at its equality signs.
function breakWideFormulas() {
  const boxes = [...document.querySelectorAll(".bd-article div.math.is-set")];
  for (const box of boxes.filter((box) => box.broken)) {
    setFormula(box);
    box.broken = false;
  }
  const steps = [[["\\qquad"], 1], [["\\qquad", "\\quad"], 1], [["\\qquad", "\\quad"], SMALLEST_FORMULA]];
  for (const [spaces, least] of steps) {
    const wide = boxes.filter(({ firstChild: shown }) => shown.scrollWidth > shown.clientWidth + 1 && shown.clientWidth / shown.scrollWidth <= least);
    for (const box of wide) {
      const parts = partsOf(box.tex, spaces).map(least < 1 ? equationInLines : String);
      const tex = parts.length > 1 ? `\\begin{gathered}${parts.join("\\\\[0.5em]")}\\end{gathered}` : parts[0];
      if (tex === box.tex) continue;
      box.broken = true;
      setFormula(box, tex);
    }
  }
}

// A displayed formula or a printed table that is a little too wide becomes a little smaller.
function fitWideBoxes() {
  const boxes = [...document.querySelectorAll(".bd-article .katex-display, .bd-article .output pre")];
  for (const box of boxes) box.style.removeProperty("font-size");
  const widths = boxes.map((box) => [box.clientWidth, box.scrollWidth, parseFloat(getComputedStyle(box).fontSize)]);
  widths.forEach(([room, width, size], k) => {
    if (width > room + 1 && room / width > (boxes[k].tagName === "PRE" ? 0.79 : SMALLEST_FORMULA)) boxes[k].style.fontSize = `${((size * room) / width - 0.1).toFixed(2)}px`;
  });
  // Drawn pictures have 150 dots per inch and text of 8 to 10 points. At half a pixel for a dot the smallest letters can still be read: a picture
  // that does not fit so, or nearly so, keeps this scale and scrolls.
  const pictures = [...document.querySelectorAll(".bd-article .cell_output img")];
  const wide = pictures.map((picture) => picture.parentElement.clientWidth < 0.47 * picture.naturalWidth);
  pictures.forEach((picture, k) => { picture.style.minWidth = wide[k] ? `${Math.round(0.5 * picture.naturalWidth)}px` : ""; });
}

function isTooWide(formula) {
  const line = formula.closest("p, li, td, th, dd, h1, h2, h3");
  if (!line) return false;
  const { paddingLeft, paddingRight } = getComputedStyle(line);
  const room = line.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  return formula.getBoundingClientRect().width > room && room > 0;
}

// Boxes that scroll must be reachable by keyboard; formulas too wide for their line get such a box.
// First all is measured, then all is changed: a page is laid out anew for each measurement that follows a change.
function markWideBoxes() {
  breakWideFormulas();
  fitWideBoxes();
  const formulas = [...document.querySelectorAll(".bd-article span.math")];
  for (const formula of formulas) formula.classList.remove("too-wide");
  for (const formula of formulas.filter(isTooWide)) formula.classList.add("too-wide");
  const boxes = "pre, div.math, .katex-display, span.too-wide, .cell_output:has(img), .cell_output .text_html, .cell_output > .output, .pst-scrollable-table-container";
  const scrolls = (box) => box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible";
  for (const [box, wide] of [...document.querySelectorAll(boxes)].map((box) => [box, scrolls(box)])) {
    if (wide) box.setAttribute("tabindex", "0");
    else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
  }
  document.querySelectorAll(".cell_output:has(img)").forEach(showMore);
}

// Where a picture goes on beyond the edge of its frame, it fades.
function showMore(box) {
  const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
  box.classList.toggle("more-before", box.scrollLeft > 1);
  box.classList.toggle("more-after", rest > 1);
}
document.addEventListener("scroll", ({ target }) => { if (target.matches?.(".cell_output:has(img)")) showMore(target); }, { capture: true, passive: true });

const targetOfPage = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));

// A link to something inside a closed fold opens the fold.
function openFold() {
  const target = targetOfPage();
  const fold = target?.closest("details") ?? target?.nextElementSibling?.querySelector("details.hide");
  if (target && fold && (target.closest("details") || target.classList.contains("cell-caption"))) fold.open = true;
  const curious = target?.closest("details.curious");
  if (curious) curious.open = true;
  if (target?.id.startsWith("code-")) for (const cell of target.closest("div.cell")?.querySelectorAll("details.hide") ?? []) cell.open = true;
  const tab = target?.closest(".sd-tab-content")?.previousElementSibling; // the label of a hidden tab
  if (tab && !tab.control?.checked) tab.click();
}

// The theme follows the reader through a list of contents that it names wrongly; it would then follow every link.
function followContents() {
  const contents = document.querySelector("#pst-page-toc-nav");
  if (contents) document.body.dataset.bsTarget = "#pst-page-toc-nav";
  else document.body.removeAttribute("data-bs-spy");
}

// Paper is light, whatever the screen is, and nobody can unfold it. Of code it shows what the screen shows; above a check it says how it was checked.
function printLight() {
  const isCode = (fold) => /^(✓|\d|Show the (code|imports))/.test(fold.querySelector(":scope > summary .collapsed")?.textContent ?? "");
  for (const summary of document.querySelectorAll(".bd-article details.hide > summary")) {
    const words = summary.querySelector(".collapsed")?.textContent ?? "";
    if (words.endsWith(" · show")) summary.dataset.words = words.slice(0, -" · show".length);
  }
  const page = document.documentElement;
  let before = null;
  let folded = [];
  window.addEventListener("beforeprint", () => {
    before ??= page.dataset.theme;
    page.dataset.theme = "light";
    folded = [...folded, ...document.querySelectorAll(".bd-article details:not([open])")].filter((fold) => !isCode(fold));
    for (const fold of folded) fold.open = true;
  });
  window.addEventListener("afterprint", () => {
    page.dataset.theme = before ?? page.dataset.theme;
    before = null;
    for (const fold of folded) fold.open = false;
    folded = [];
  });
}

setMathematics();
printLight();
followContents();
nameControls();
keepFocus();
markRegions();
openFold();
window.addEventListener("hashchange", () => { // what was hidden could not be scrolled to
  openFold();
  targetOfPage()?.scrollIntoView();
});
window.addEventListener("load", () => {
  nameControls();
  document.fonts.ready.then(() => {
    markWideBoxes();
    // Formulas have grown the page above the target of a link. Who comes back, or reads the page anew, is where they were.
    if (performance.getEntriesByType("navigation")[0]?.type === "navigate") targetOfPage()?.scrollIntoView();
    document.documentElement.dataset.ready = "true";
  });
});
let waiting;
const markSoon = () => {
  clearTimeout(waiting);
  waiting = setTimeout(markWideBoxes, 200);
};
window.addEventListener("resize", markSoon);
document.addEventListener("toggle", markSoon, true); // what was folded had no width before
