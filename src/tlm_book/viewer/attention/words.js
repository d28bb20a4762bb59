// ---- in words and numbers ------------------------------------------------------------------------------------------------

// What a head gives to a spot, in words. A stored weight is within 1/510 of the true one, and is shown as such.
function sentence(i, j, A, { n, m, hidden, rowNames, columnNames }) {
  const name = (names, k) => [make("b", {}, names[k]), ` (${k})`], about = () => make("small", {}, " ± 0.002");
  if (i !== null && j !== null) {
    const arrow = [...name(rowNames, i), " → ", ...name(columnNames, j)];
    return hidden && hidden[i * m + j] ? [...arrow, ": masked"] : [...arrow, ": ", share(A[i * m + j]), about()];
  }
  const along = i !== null, weight = (k) => (along ? A[i * m + k] : A[k * m + j]), names = along ? columnNames : rowNames;
  const best = [...names.keys()].filter((k) => weight(k) > 0).sort((a, b) => weight(b) - weight(a)).slice(0, 3);
  const parts = best.flatMap((k, place) => [place ? ", " : "", ...name(names, k), " ", share(weight(k))]);
  const verb = along ? " attends most to " : " is attended to most by ";
  return [...name(along ? rowNames : columnNames, along ? i : j), verb, ...(parts.length ? [...parts, about()] : ["no token"])];
}

// The numbers as tables: of the marked token (pinned, not under the pointer), and of all heads.
function tablesOf(host) {
  const { m, A, B, cross, hidden, stored, rowNames, columnNames, pairs, layer, head, second, title, facts, resting } = host;
  const { i, j } = resting(), both = [A, ...(B ? [B] : [])], tell = (k) => (B ? ` (${title(k ? second() : [0, layer(), head()])})` : "");
  const cell = (M, a, b) => (hidden && hidden[a * m + b] ? "masked" : data(M[a * m + b] / 255, share(M[a * m + b])));
  const full = cross ? (i !== null ? rowNames[i] : columnNames[j]) : rowNames[i ?? j], k = i ?? j, token = `“${[...full].length > 20 ? `${[...full].slice(0, 19).join("")}…` : full}”`;
  const looks = i !== null || !cross, looked = i === null || !cross;
  const one = rows(`${token} (${k}) and each token; weights ± 0.002`, ["token",
    ...(looks ? both.map((_, which) => `${token} looks at it${tell(which)}`) : []), ...(looked ? both.map((_, which) => `it looks at ${token}${tell(which)}`) : [])]);
  one.show((looks ? columnNames : rowNames).map((name, t) => [make("span", {}, make("bdi", {}, name), ` (${t})`),
    ...(looks ? both.map((M) => cell(M, k, t)) : []), ...(looked ? both.map((M) => cell(M, t, k)) : [])]));
  const all = rows("each head: the mean over its rows", ["head", "entropy (nats)", ...(cross ? [] : ["distance (tokens)"])]);
  all.show(stored.flatMap((_, which) => pairs.map(([l, h]) => [title([which, l, h]), ...facts([which, l, h]).map(([, x]) => data(x, fixed(x)))])));
  one.node.classList.add("token");
  all.node.classList.add("each");
  return [one.node, all.node];
}
