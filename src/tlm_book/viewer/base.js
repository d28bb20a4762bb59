// What the small interactive pictures share; base.py puts this text before each picture's own.
// A picture draws in a shadow root, so that the page's styles stay out and its ids stay in. Each number that stands on the
// screen rounded stands in a <data> element with its full value.

const STYLE = "base.css";

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children); // strings become text nodes: a token is never read as HTML
  return node;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const tenTo = (power) => `10${[...`${power}`].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("")}`;
// A number for reading: significant digits, and a power of ten where it is very small or large.
function number(x, digits = 3) {
  if (x === 0) return "0";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e"), power = +exponent;
  const text = Math.abs(power) < 4 ? (+x.toPrecision(digits)).toFixed(Math.max(digits - 1 - power, 0))
    : `${mantissa} × ${tenTo(power)}`;
  return text.replace("-", "−");
}
const fixed = (x, places = 3) => x.toFixed(places).replace(/^-0\.0+$/, (zero) => zero.slice(1)).replace("-", "−");
const data = (value, shown) => make("data", { value }, shown);

const luminance = (c) => {
  const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const inkOn = (ground) => (luminance(ground) > 0.179 ? "#000" : "#fff"); // at least 4.5 to 1, whatever the ground
const parts = (colour) => (/^rgb/.test(colour) ? colour.match(/[\d.]+/g).map(Number) : [0, 0, 0, 0]); // red, green, blue, alpha

// Dark ground? A box around the picture with a colour of its own decides, then the page's theme, which Sphinx, Colab, VS Code
// and JupyterLab write into an attribute, then the colour of the text around, then what the reader's system prefers.
function isDark(el) {
  const html = document.documentElement, body = document.body;
  for (let box = el; box && box !== body && box !== html; box = box.parentElement) {
    const [r, g, b, alpha = 1] = parts(getComputedStyle(box).backgroundColor);
    if (alpha > 0.5) return luminance([r, g, b]) < 0.3;
  }
  const said = html.dataset.theme ?? html.getAttribute("theme") ?? body.dataset.theme ?? body.dataset.vscodeThemeKind;
  if (said && said !== "auto") return /dark|high-contrast$/.test(said);
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  const [r, g, b, alpha = 1] = parts(getComputedStyle(el).color);
  return alpha > 0 ? luminance([r, g, b]) > 0.3 : matchMedia("(prefers-color-scheme: dark)").matches;
}

// The frame of a picture: its title, then its parts; dark or light as the page is; `resize(width)` at each new width.
// Returns what takes the frame down again.
function frame({ el, label, title, style, children, resize = () => {} }) {
  const host = make("div"), root = host.attachShadow({ mode: "open" });
  const all = make("div", { class: "all", role: "group", "aria-label": title ?? label });
  if (title) all.append(make("div", { class: "title" }, title));
  all.append(...children);
  root.append(make("style", {}, STYLE + style), all);
  el.replaceChildren(host); // the still picture gives way
  // Sphinx themes lay a light box under HTML outputs on dark pages; this picture has dark colours of its own.
  const laid = el.closest(".cell_output .text_html");
  if (laid) Object.assign(laid.style, { background: "none", padding: 0 });
  const follow = () => all.classList.toggle("dark", isDark(el));
  const themed = new MutationObserver(follow), scheme = matchMedia("(prefers-color-scheme: dark)");
  const attributeFilter = ["class", "data-theme", "theme", "data-jp-theme-light", "data-vscode-theme-kind"];
  for (const node of [document.documentElement, document.body]) themed.observe(node, { attributes: true, attributeFilter });
  scheme.addEventListener("change", follow);
  const lay = () => {
    if (!all.clientWidth) return; // not on the screen yet: the observer calls again
    all.classList.toggle("narrow", all.clientWidth < 520);
    resize(all.clientWidth);
  };
  const resized = new ResizeObserver(lay);
  resized.observe(host);
  follow();
  lay();
  return () => { resized.disconnect(); themed.disconnect(); scheme.removeEventListener("change", follow); };
}

// A native slider bound to one of the model's values. `value` takes the slider's place to the value, `place` goes back, and
// `text` says the value. The slider's place is rounded to its step; the value is not, until the reader moves it.
function slider(model, key, name, { min, max, step = 1, value = Number, place = Number, text = String }) {
  const input = make("input", { type: "range", min, max, step }), shown = make("span", { "aria-hidden": "true" });
  const show = () => {
    const now = model.get(key);
    if (value(+input.value) !== now) input.value = place(now);
    input.setAttribute("aria-valuetext", text(now));
    shown.textContent = text(now);
  };
  input.addEventListener("input", () => { model.set(key, value(+input.value)); model.save_changes(); });
  model.on(`change:${key}`, show);
  const node = make("label", { class: "slider" }, name, input, shown);
  show();
  return node;
}
// A slider over powers of ten: its place is the exponent, its value the power to three digits.
const powers = (from, to, step) => ({
  min: from, max: to, step, value: (x) => +(10 ** x).toPrecision(3), place: Math.log10,
});
const said = () => make("div", { class: "said", role: "status" });

function rows(caption, head) {
  const body = make("tbody"), top = make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)));
  const node = make("table", {}, make("caption", {}, caption), make("thead", {}, top), body);
  const row = (first, ...cells) => make("tr", {}, make("th", { scope: "row" }, first), ...cells.map((cell) => make("td", {}, cell)));
  return { node, show: (lines) => body.replaceChildren(...lines.map((line) => row(...line))) };
}
