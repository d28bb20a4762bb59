// The model on the page: the specification in JavaScript, name by name. A row of numbers is a Float64Array, a capital X a list of rows; a matrix of weights is
// {rows, cols, data}, its numbers row by row in a Float32Array. What several heads have stands side by side in one row. What has been computed of a beginning is
// kept, so that a letter typed at the end costs a row or two.

// --- Numbers

function unpack(file) { // {names, bytes} as pack.py makes them: an array is float32, or whole numbers from −127 to 127 with a factor for each row or column
  const letters = atob(file.bytes), bytes = new ArrayBuffer(letters.length), view = new Uint8Array(bytes);
  for (let i = 0; i < letters.length; i++) view[i] = letters.charCodeAt(i);
  const numbers = ({ shape, at, factors, by }) => {
    const [rows, cols] = shape.length > 1 ? shape.slice(-2) : [1, shape[0]], size = shape.reduce((a, b) => a * b, 1);
    if (factors === undefined) return new Float32Array(bytes, at, size);
    const whole = new Int8Array(bytes, at, size), many = by === "row" ? size / cols : size / rows, factor = new Float32Array(bytes, factors, many);
    const data = new Float32Array(size);
    for (let i = 0; i < size; i++) data[i] = whole[i] * factor[by === "row" ? Math.floor(i / cols) : Math.floor(i / (rows * cols)) * cols + (i % cols)];
    return data;
  };
  const array = (node) => { const all = { shape: node.shape, data: numbers(node) }; return all.shape.length > 2 ? beside(all) : all; };
  const build = (node) => (node === null || typeof node !== "object" ? node : Array.isArray(node) ? node.map(build) : node.shape ? array(node)
    : Object.fromEntries(Object.entries(node).map(([name, child]) => [name, build(child)])));
  const weights = build(file.names);
  if (weights.tied) weights.Y = transposed(weights.E, weights.tied);
  return weights;
}
function transposed({ shape: [V, d], data }, divisor) {
  const turned = new Float32Array(V * d);
  for (let v = 0; v < V; v++) for (let j = 0; j < d; j++) turned[j * V + v] = data[v * d + j] / divisor;
  return { shape: [d, V], data: turned };
}

function beside({ shape: [h, d, k], data }) { // of matrices for h heads, one matrix (W_0 W_1 …)
  const joined = new Float32Array(d * h * k);
  for (let head = 0; head < h; head++) for (let i = 0; i < d; i++) joined.set(data.subarray((head * d + i) * k, (head * d + i + 1) * k), (i * h + head) * k);
  return { shape: [d, h * k], heads: h, data: joined };
}
const matrix = ({ shape: [rows, cols], data }) => ({ rows, cols, data });
const part = (table, index, width) => table.data.subarray(index * width, (index + 1) * width);

function times(X, W, b = null) { // XW + b; four rows of X and four of W at a time, as far as there are so many: each number that is fetched serves four times
  const Y = X.map(() => new Float64Array(W.cols));
  if (b) for (const y of Y) for (let j = 0; j < y.length; j++) y[j] = b[j];
  let r = 0;
  for (; r + 4 <= X.length; r += 4) timesFour(X.slice(r, r + 4), W, Y.slice(r, r + 4));
  for (; r < X.length; r++) timesOne(X[r], W, Y[r]);
  for (let i = W.rows - (W.rows % 4); i < W.rows; i++) X.forEach((x, r) => { for (let j = 0; j < W.cols; j++) Y[r][j] += x[i] * W.data[i * W.cols + j]; });
  return Y;
}
function timesOne(x, { rows, cols, data }, y) {
  for (let i = 0; i + 4 <= rows; i += 4) {
    const at_0 = i * cols, at_1 = at_0 + cols, at_2 = at_1 + cols, at_3 = at_2 + cols, p = x[i], q = x[i + 1], r = x[i + 2], s = x[i + 3];
    for (let j = 0; j < cols; j++) y[j] += p * data[at_0 + j] + q * data[at_1 + j] + r * data[at_2 + j] + s * data[at_3 + j];
  }
}
function timesFour(X, { rows, cols, data }, Y) {
  const [x_0, x_1, x_2, x_3] = X, [y_0, y_1, y_2, y_3] = Y;
  for (let i = 0; i + 4 <= rows; i += 4) {
    const at_0 = i * cols, at_1 = at_0 + cols, at_2 = at_1 + cols, at_3 = at_2 + cols;
    const p_0 = x_0[i], q_0 = x_0[i + 1], r_0 = x_0[i + 2], s_0 = x_0[i + 3], p_1 = x_1[i], q_1 = x_1[i + 1], r_1 = x_1[i + 2], s_1 = x_1[i + 3];
    const p_2 = x_2[i], q_2 = x_2[i + 1], r_2 = x_2[i + 2], s_2 = x_2[i + 3], p_3 = x_3[i], q_3 = x_3[i + 1], r_3 = x_3[i + 2], s_3 = x_3[i + 3];
    for (let j = 0; j < cols; j++) {
      const p = data[at_0 + j], q = data[at_1 + j], r = data[at_2 + j], s = data[at_3 + j];
      y_0[j] += p_0 * p + q_0 * q + r_0 * r + s_0 * s;
      y_1[j] += p_1 * p + q_1 * q + r_1 * r + s_1 * s;
      y_2[j] += p_2 * p + q_2 * q + r_2 * r + s_2 * s;
      y_3[j] += p_3 * p + q_3 * q + r_3 * r + s_3 * s;
    }
  }
}
const plus = (x, y) => { for (let i = 0; i < y.length; i++) y[i] += x[i]; return y; }; // in the place of y
const added = (X, Y) => { Y.forEach((y, r) => plus(X[r], y)); return Y; };

function dot(x, y, k = x.length, i = 0, j = 0) { // of the k numbers from places i and j on; four sums that need not wait for each other
  let p = 0, q = 0, r = 0, s = 0, c = 0;
  for (; c + 4 <= k; c += 4) {
    p += x[i + c] * y[j + c];
    q += x[i + c + 1] * y[j + c + 1];
    r += x[i + c + 2] * y[j + c + 2];
    s += x[i + c + 3] * y[j + c + 3];
  }
  for (; c < k; c++) p += x[i + c] * y[j + c];
  return p + q + r + s;
}

function softmax(s, first = 0, last = s.length - 1) { // in place, from the first of these places to the last
  let top = -Infinity, sum = 0;
  for (let i = first; i <= last; i++) if (s[i] > top) top = s[i];
  for (let i = first; i <= last; i++) sum += s[i] = Math.exp(s[i] - top);
  for (let i = first; i <= last; i++) s[i] /= sum;
  return s;
}

// --- Normalization

function layerNorm(x, { a, b }, eps, epsMode) {
  const mean = x.reduce((s, x_i) => s + x_i, 0) / x.length, u = x.map((x_i) => x_i - mean), variance = dot(u, u) / x.length;
  const by = epsMode === "outside" ? Math.sqrt(variance) + eps : Math.sqrt(variance + (epsMode === "inside" ? eps : 0));
  return u.map((u_i, i) => a.data[i] * (u_i / by) + b.data[i]);
}
function rmsNorm(x, a, eps, k = x.length, y = new Float64Array(x.length)) { // each k numbers by themselves, written to y
  for (let at = 0; at < x.length; at += k) {
    const by = Math.sqrt(dot(x, x, k, at, at) / k + eps);
    for (let i = 0; i < k; i++) y[at + i] = (a[i] * x[at + i]) / by;
  }
  return y;
}

const normed = (X, w, { norm_kind, eps, eps_mode }) => X.map((x) => (norm_kind === "rms" ? rmsNorm(x, w.a.data, eps) : layerNorm(x, w, eps, eps_mode)));

// --- The feed-forward layer

function erfAnew(z) { // for z ≥ 0: a series near 0, a continued fraction beyond
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n++) { term *= (-z * z) / n; sum += term / (2 * n + 1); }
    return (2 * sum) / Math.sqrt(Math.PI);
  }
  let tail = 0;
  for (let n = 60; n > 0; n--) tail = n / 2 / (z + tail);
  return 1 - Math.exp(-z * z) / (z + tail) / Math.sqrt(Math.PI);
}
const STEPS = 64, ERF = Float64Array.from({ length: 6 * STEPS + 1 }, (_, i) => erfAnew(i / STEPS));
const SLOPE = ERF.map((_, i) => (2 / Math.sqrt(Math.PI)) * Math.exp(-((i / STEPS) ** 2)));
function erf(x) { // from the nearest of the numbers i/64, where it is known, by Taylor's polynomial of degree 4: to 1e-11
  const i = Math.round(Math.abs(x) * STEPS), z = i / STEPS, h = Math.abs(x) - z;
  if (i >= ERF.length) return Math.sign(x);
  return Math.sign(x) * (ERF[i] + SLOPE[i] * h * (1 - h * (z - h * ((2 * z * z - 1) / 3 - h * z * (z * z - 1.5) / 3))));
}
const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  gelu_tanh: (x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
  silu: (x) => x / (1 + Math.exp(-x)),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  identity: (x) => x,
};

function activated(X, activation) {
  const f = ACTIVATIONS[activation];
  for (const x of X) for (let i = 0; i < x.length; i++) x[i] = f(x[i]);
  return X;
}
function feedForward(X, w, activation) {
  return times(activated(times(X, matrix(w.W_1), w.b_1.data), activation), matrix(w.W_2), w.b_2.data);
}
function gatedFeedForward(X, w, activation) {
  const bias = (b) => (b ? b.data : null);
  const gates = activated(times(X, matrix(w.W_G), bias(w.b_G)), activation), inner = times(X, matrix(w.W_1), bias(w.b_1));
  return times(gates.map((gate, r) => gate.map((g, i) => g * inner[r][i])), matrix(w.W_2), bias(w.b_2));
}
function mixtureOfExperts(X, w, k, activation) { // each row has its own: the k largest, of equal ones the first
  return X.map((x) => {
    const [r] = times([x], matrix(w.W_R)), chosen = [...r.keys()].sort((i, j) => r[j] - r[i] || i - j).slice(0, k), g = softmax(chosen.map((e) => r[e]));
    return chosen.map((e, n) => gatedFeedForward([x], w.experts[e], activation)[0].map((y_i) => g[n] * y_i)).reduce(plus);
  });
}
const FEED_FORWARDS = {
  plain: (X, w, settings) => feedForward(X, w, settings.activation),
  gated: (X, w, settings) => gatedFeedForward(X, w, settings.activation),
  experts: (X, w, settings) => mixtureOfExperts(X, w, settings.n_experts_used, settings.activation),
};

// --- Positions

function rotary(x, position, k, settings) { // in place, each k numbers by themselves
  const turns = angles(position, k, settings), halves = settings.layout === "halves";
  for (let at = 0; at < x.length; at += k) {
    for (let i = 0; i < k / 2; i++) {
      const a = at + (halves ? i : 2 * i), b = halves ? a + k / 2 : a + 1, cos = turns[2 * i], sin = turns[2 * i + 1], x_a = x[a];
      x[a] = x_a * cos - x[b] * sin;
      x[b] = x_a * sin + x[b] * cos;
    }
  }
}
const ANGLES = new WeakMap(); // for each model's settings: cosines and sines of a position, computed once
function angles(position, k, settings) {
  if (!ANGLES.has(settings)) ANGLES.set(settings, []);
  return (ANGLES.get(settings)[position] ??= Float64Array.from({ length: k }, (_, j) => {
    const angle = position * stretched(settings.base ** ((-2 * Math.floor(j / 2)) / k), settings.scaling);
    return j % 2 ? Math.sin(angle) : Math.cos(angle);
  }));
}
function stretched(omega, scaling) {
  if (!scaling) return omega;
  const { kind, factor: F, low_freq_factor: low, high_freq_factor: high, original_max_len: M } = scaling;
  if (kind === "linear") return omega / F;
  const s = Math.min(Math.max(((M * omega) / (2 * Math.PI) - low) / (high - low), 0), 1);
  return (s + (1 - s) / F) * omega;
}

// --- Attention

// Queries, keys and values of the rows X, the first of which is row p; in each of them the heads stand side by side.
function projected(X, p, w, settings) {
  const of = (W, b, gain) => {
    const Y = times(X, matrix(W), b && b.data), k = W.shape[1] / W.heads;
    if (gain !== null) Y.forEach((y, r) => {
      if (w.qk_gain) rmsNorm(y, part(w.qk_gain, gain, k), settings.eps, k, y);
      if (settings.rotary) rotary(y, p + r, k, settings.rotary);
    });
    return Y;
  };
  const Q = of(w.W_Q, w.b_Q, 0), K = of(w.W_K, w.b_K, 1), V = of(w.W_V, w.b_V, null);
  return X.map((_, r) => ({ q: Q[r], k: K[r], v: V[r] }));
}

// Row i of the multi-head layer before W_O: each head's average of the rows that it sees, and its weights. A head that is off adds nothing.
function attention(i, rows, w, settings, { causal, off }) {
  const { q: queries } = rows[i], h = w.W_Q.heads, g = w.W_K.heads, k = queries.length / h, width = rows[i].v.length / g, last = causal ? i : rows.length - 1;
  const first = settings.window && causal ? Math.max(0, i - settings.window + 1) : 0, scale = settings.scale ?? 1 / Math.sqrt(k);
  const joined = new Float64Array(h * width), weights = [];
  for (let head = 0; head < h; head++) {
    const shared = Math.floor(head / (h / g)), from = head * k, key = shared * k, value = shared * width, to = head * width, a = new Float64Array(rows.length);
    for (let j = first; j <= last; j++) a[j] = scale * dot(queries, rows[j].k, k, from, key);
    weights.push(softmax(a, first, last));
    if (off.has(head)) continue;
    let j = first;
    for (; j + 3 <= last; j += 4) { // four rows at a time
      const p = a[j], q = a[j + 1], r = a[j + 2], s = a[j + 3], v_0 = rows[j].v, v_1 = rows[j + 1].v, v_2 = rows[j + 2].v, v_3 = rows[j + 3].v;
      for (let c = 0; c < width; c++) joined[to + c] += p * v_0[value + c] + q * v_1[value + c] + r * v_2[value + c] + s * v_3[value + c];
    }
    for (; j <= last; j++) for (let c = 0; c < width; c++) joined[to + c] += a[j] * rows[j].v[value + c];
  }
  return { joined, weights };
}
function multiHead(X, p, rows, w, settings, mask) { // of the rows X, the first of which is row p
  const heads = X.map((_, r) => attention(p + r, rows, w, settings, mask));
  return { Y: times(heads.map(({ joined }) => joined), matrix(w.W_O), w.b_O.data), weights: heads.map(({ weights }) => weights) };
}

// --- The model

// forward(model, tokens, {causal, off}, kept) → what is known of each row: its row of the residual stream before each block and at the end, and the attention
// weights of each head of each block; `logits` reads its scores there. A generator: it rests after every four rows of a block, so that a page stays alive. `off`
// holds "block.head". `kept`, an earlier answer, is gone on from as far as the tokens agree: with the mask, later tokens have changed nothing before them.
function* forward({ weights, settings }, tokens, { causal = true, off = new Set() } = {}, kept = null) {
  const key = `${causal} ${[...off].sort()}`, n = tokens.length, L = weights.blocks.length;
  let start = 0;
  if (causal && kept && kept.key === key) while (start < Math.min(n, kept.tokens.length) && kept.tokens[start] === tokens[start]) start++;
  const from = (old) => (start ? old.slice(0, start) : []), blank = Array.from({ length: L }, () => []);
  const answer = { key, tokens: [...tokens], rows: (start ? kept.rows : blank).map(from), streams: from(kept?.streams), weights: from(kept?.weights) };
  const norm = (X, w) => normed(X, w, settings), d = weights.E.shape[1], fours = [];
  for (let p = start; p < n; p += 4) {
    const X = [];
    for (let r = p; r < Math.min(p + 4, n); r++) {
      const x = Float64Array.from(part(weights.E, tokens[r], d));
      X.push(weights.P ? plus(part(weights.P, r, d), x) : x);
      answer.streams.push([X[r - p]]);
      answer.weights.push([]);
    }
    fours.push({ p, X });
  }
  for (let l = 0; l < L; l++) {
    const w = weights.blocks[l], rows = answer.rows[l], mask = { causal, off: new Set([...off].filter((name) => +name.split(".")[0] === l).map((name) => +name.split(".")[1])) };
    const pre = settings.norm === "pre", post = settings.norm === "post", FF = (X) => FEED_FORWARDS[settings.feed_forward](X, w.FF, settings);
    for (const { p, X } of fours) {
      rows.push(...projected(pre ? norm(X, w.N_ca) : X, p, w.CA, settings));
      yield;
    }
    for (const four of fours) {
      const { p, X } = four, { Y, weights: seen } = multiHead(X, p, rows, w.CA, settings, mask), sum = added(X, Y);
      if (post) {
        const Z = norm(sum, w.N_ca);
        four.X = norm(added(Z, FF(Z)), w.N_ff);
      } else if (settings.variant === "parallel") four.X = added(sum, FF(pre ? norm(X, w.N_ff) : X));
      else four.X = added(settings.variant === "simplified" ? X : sum, FF(pre ? norm(sum, w.N_ff) : sum));
      four.X.forEach((x, r) => { answer.weights[p + r].push(seen[r]); answer.streams[p + r].push(x); });
      yield;
    }
  }
  return answer;
}

// Φ(N(X)): what the last layers read in rows of the residual stream, wherever they are taken from (the logit lens).
function lens({ weights, settings }, X) {
  return times(weights.N ? normed(X, weights.N, settings) : X, matrix(weights.Y), weights.b.data);
}
const logits = (model, { streams }, p) => lens(model, streams[p].slice(-1))[0]; // of row p: the scores of the token that follows it

const finish = (steps) => { for (;;) { const { done, value } = steps.next(); if (done) return value; } };
