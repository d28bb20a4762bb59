// ---- the names along one side: all where they fit, else only the marked one, which walks along ----------------------------

function namesAlong(names, side) {
  const node = make("div", { class: side, "aria-hidden": "true" }), made = [];
  let size = 0, long = 0, few = false, marked = null;
  const label = (k) => (made[k] ??= make("div", { class: "name", title: names[k] }, names[k]));
  function place(k) {
    const thick = Math.max(size, 16), middle = (k + 0.5) * size, edge = Math.min(50, long / 2), style = { lineHeight: `${thick}px` };
    if (side !== "columns") style.top = `${middle - thick / 2}px`;
    else style.left = `${few ? clamp(middle, edge, long - edge) : middle - thick / 2}px`;
    Object.assign(label(k).style, style);
  }
  return {
    node,
    at: (event) => {
      const box = node.getBoundingClientRect(), along = side === "columns" ? event.clientX - box.left : event.clientY - box.top;
      return clamp(Math.floor(along / size), 0, names.length - 1);
    },
    lay(cell, space) {
      size = cell; long = cell * names.length; few = cell < SMALLEST_LABELLED;
      node.classList.toggle("few", few);
      node.style.fontSize = `${few ? 12 : clamp(size - 1, 9, 12.5)}px`;
      node.style[side === "columns" ? "height" : "width"] = `${side === "columns" && few ? 24 : space}px`;
      const all = few ? (marked === null ? [] : [marked]) : [...names.keys()];
      all.forEach(place);
      node.replaceChildren(...all.map(label));
    },
    mark(k) {
      if (k === marked) return;
      if (marked !== null) label(marked).classList.remove("on");
      if (k !== null) label(k).classList.add("on");
      marked = k;
      if (!few) return;
      if (k !== null) place(k);
      node.replaceChildren(...(k === null ? [] : [label(k)]));
    },
  };
}

// ---- the text, a token after the other, shaded ---------------------------------------------------------------------------

function textLine(names, axis, caption) {
  const short = (name) => (/^[\x20-\x7e␣⏎]{1,10}$/.test(name) ? "short" : "");
  const tokens = names.map((name, k) => make("span", { class: short(name), role: "option", title: name, id: `${axis}${k}`, "aria-selected": "false" }, name));
  const places = new Map(tokens.map((node, k) => [node, k])), shown = new Array(tokens.length).fill(null);
  const node = make("div", { class: "text", role: "listbox", tabindex: "0", "aria-label": caption }, ...tokens);
  const above = make("div", { class: "caption", "aria-hidden": "true" }, caption);
  let marks = [];
  return {
    nodes: [above, node], node,
    say(words) { above.textContent = words; node.setAttribute("aria-label", words); },
    at: (event) => places.get(event.target.closest("span")) ?? null,
    forget: () => shown.fill(null), // the colours have changed
    tint(shade, look) { // shade(k) is null where the token has none
      tokens.forEach((token, k) => {
        const s = shade(k) ?? -999;
        if (shown[k] === s) return;
        shown[k] = s;
        const fill = s === -999 || s === MASK ? null : look.colours[255 + s];
        token.classList.toggle("hatch", s === MASK);
        token.style.backgroundColor = fill ? `rgb(${fill})` : "";
        token.style.color = fill ? inkOn(fill) : "";
      });
    },
    mark(k, also, pinned) { // `also`: marked too, but not the one the keys are on
      for (const token of marks) { token.classList.remove("on", "pinned"); token.setAttribute("aria-selected", "false"); }
      marks = [k, also].filter((place) => place !== null).map((place) => tokens[place]);
      for (const token of marks) { token.classList.add("on"); token.setAttribute("aria-selected", "true"); }
      if (pinned !== null) { tokens[pinned].classList.add("pinned"); marks.push(tokens[pinned]); }
      // Tells a screen reader which token of the line is marked.
      if (k === null) node.removeAttribute("aria-activedescendant");
      else node.setAttribute("aria-activedescendant", tokens[k].id);
    },
  };
}
