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

// Everything visible belongs to a landmark.
function markRegions() {
  const regions = {
    "#pst-skip-link": ["navigation", "Skip"],
    "#pst-primary-sidebar": ["region", "Book"],
    "#pst-secondary-sidebar": ["region", "Contents of this page"],
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
function setMathematics(root = document) {
  for (const box of root.querySelectorAll(".math:not(.is-set)")) {
    const options = { displayMode: box.tagName === "DIV", throwOnError: false, errorColor: "currentColor" };
    box.innerHTML = katex.renderToString(box.textContent, options).replaceAll("△", "◺");
    box.classList.add("is-set");
  }
}

// A displayed formula or a printed table that is a little too wide becomes a little smaller.
function fitWideBoxes() {
  const boxes = [...document.querySelectorAll(".bd-article .katex-display, .bd-article .output pre")];
  for (const box of boxes) box.style.removeProperty("font-size");
  const widths = boxes.map((box) => [box.clientWidth, box.scrollWidth, parseFloat(getComputedStyle(box).fontSize)]);
  widths.forEach(([room, width, size], k) => {
    if (width > room + 1 && room / width > (boxes[k].tagName === "PRE" ? 0.79 : 0.72)) boxes[k].style.fontSize = `${((size * room) / width - 0.1).toFixed(2)}px`;
  });
  // Drawn pictures have 150 dots per inch and text of 8 to 10 points. One so wide that a phone would make it unreadable scrolls.
  for (const picture of document.querySelectorAll(".bd-article .cell_output img")) {
    const wide = picture.parentElement.clientWidth < 0.335 * picture.naturalWidth;
    picture.style.minWidth = wide ? `${Math.round(0.45 * picture.naturalWidth)}px` : "";
  }
}

// Boxes that scroll must be reachable by keyboard; formulas too wide for their line get such a box.
function markWideBoxes() {
  fitWideBoxes();
  for (const formula of document.querySelectorAll(".bd-article span.math")) {
    formula.classList.remove("too-wide");
    const room = formula.closest("p, li, td, th, dd, h1, h2, h3")?.clientWidth ?? Infinity;
    formula.classList.toggle("too-wide", formula.getBoundingClientRect().width > room && room > 0);
  }
  const boxes = "pre, div.math, .katex-display, span.too-wide, .cell_output:has(img), .cell_output .text_html, .cell_output > .output, .pst-scrollable-table-container";
  for (const box of document.querySelectorAll(boxes)) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible";
    if (scrolls) box.setAttribute("tabindex", "0");
    else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
  }
}

// A link to something inside a closed fold opens the fold.
function openFold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = target?.closest("details") ?? target?.nextElementSibling?.querySelector("details.hide");
  if (target && fold && (target.closest("details") || target.classList.contains("cell-caption"))) fold.open = true;
  const curious = target?.closest("details.curious");
  if (curious) curious.open = true;
}

// The theme follows the reader through a list of contents that it names wrongly; it would then follow every link.
function followContents() {
  const contents = document.querySelector("#pst-page-toc-nav");
  if (contents) document.body.dataset.bsTarget = "#pst-page-toc-nav";
  else document.body.removeAttribute("data-bs-spy");
}

// Paper is light, whatever the screen is, and nobody can unfold it.
function printLight() {
  const page = document.documentElement;
  let before = null;
  let folded = [];
  window.addEventListener("beforeprint", () => {
    before ??= page.dataset.theme;
    page.dataset.theme = "light";
    folded = [...folded, ...document.querySelectorAll(".bd-article details:not([open])")];
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
markRegions();
openFold();
window.addEventListener("hashchange", openFold);
window.addEventListener("load", () => {
  nameControls();
  document.fonts.ready.then(() => {
    markWideBoxes();
    // Formulas have grown the page above the target of a link.
    if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
    document.documentElement.dataset.ready = "true";
  });
});
let waiting;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(markWideBoxes, 200);
});
