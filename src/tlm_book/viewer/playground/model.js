// The model on the page: the specification in JavaScript, name by name, one row at a time. A matrix is {rows, cols, data}, its numbers row by row; a row of
// numbers is a Float64Array or Float32Array. What has been computed of a beginning is kept, so that a letter typed at the end costs a row or two.

// --- Numbers

function unpack(file) { // {names, bytes} as pack.py makes them: an array is float32, or whole numbers from −127 to 127 with a factor for each row or column
  const letters = atob(file.bytes), bytes = new ArrayBuffer(letters.length), view = new Uint8Array(bytes);
  for (let i = 0; i < letters.length; i++) view[i] = letters.charCodeAt(i);
  const array = ({ shape, at, factors, by }) => {
    const [rows, cols] = shape.length > 1 ? shape.slice(-2) : [1, shape[0]], size = shape.reduce((a, b) => a * b, 1);
    if (factors === undefined) return { shape, data: new Float32Array(bytes, at, size) };
    const whole = new Int8Array(bytes, at, size), many = by === "row" ? size / cols : size / rows, factor = new Float32Array(bytes, factors, many);
    const data = new Float32Array(size);
    for (let i = 0; i < size; i++) data[i] = whole[i] * factor[by === "row" ? Math.floor(i / cols) : Math.floor(i / (rows * cols)) * cols + (i % cols)];
    return { shape, data };
  };
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

function matrix({ shape, data }, index = 0) { // of a stack of matrices, the one of this index
  const [rows, cols] = shape.slice(-2);
  return { rows, cols, data: data.subarray(index * rows * cols, (index + 1) * rows * cols) };
}
const part = (stack, index, width) => stack.data.subarray(index * width, (index + 1) * width);

function times(x, { rows, cols, data }, b = null) { // xW + b; four rows of W at a time, so that each y_j is fetched and stored a quarter as often
  const y = new Float64Array(cols);
  if (b) y.set(b);
  let i = 0, at = 0;
  for (; i + 4 <= rows; i += 4, at += 4 * cols) {
    const p = x[i], q = x[i + 1], r = x[i + 2], s = x[i + 3], at_1 = at + cols, at_2 = at_1 + cols, at_3 = at_2 + cols;
    for (let j = 0; j < cols; j++) y[j] += p * data[at + j] + q * data[at_1 + j] + r * data[at_2 + j] + s * data[at_3 + j];
  }
  for (; i < rows; i++, at += cols) for (let j = 0; j < cols; j++) y[j] += x[i] * data[at + j];
  return y;
}
const plus = (x, y) => x.map((x_i, i) => x_i + y[i]);
const dot = (x, y) => { let sum = 0; for (let i = 0; i < x.length; i++) sum += x[i] * y[i]; return sum; };

function softmax(s) {
  let top = -Infinity, sum = 0;
  for (let i = 0; i < s.length; i++) if (s[i] > top) top = s[i];
  const e = s.map((x) => Math.exp(x - top));
  for (let i = 0; i < e.length; i++) sum += e[i];
  return e.map((x) => x / sum);
}

// --- Normalization

function layerNorm(x, { a, b }, eps, epsMode) {
  const mean = x.reduce((s, x_i) => s + x_i, 0) / x.length, u = x.map((x_i) => x_i - mean), variance = dot(u, u) / x.length;
  const by = epsMode === "outside" ? Math.sqrt(variance) + eps : Math.sqrt(variance + (epsMode === "inside" ? eps : 0));
  return u.map((u_i, i) => a.data[i] * (u_i / by) + b.data[i]);
}
function rmsNorm(x, a, eps) {
  const by = Math.sqrt(dot(x, x) / x.length + eps);
  return x.map((x_i, i) => (a[i] * x_i) / by);
}

const normed = (x, w, { norm_kind, eps, eps_mode }) => (norm_kind === "rms" ? rmsNorm(x, w.a.data, eps) : layerNorm(x, w, eps, eps_mode));

// --- The feed-forward layer

function erf(x) { // a series near 0, a continued fraction beyond
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n++) { term *= (-z * z) / n; sum += term / (2 * n + 1); }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let tail = 0;
  for (let n = 60; n > 0; n--) tail = n / 2 / (z + tail);
  return Math.sign(x) * (1 - Math.exp(-z * z) / (z + tail) / Math.sqrt(Math.PI));
}
const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  gelu_tanh: (x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
  silu: (x) => x / (1 + Math.exp(-x)),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  identity: (x) => x,
};

function feedForward(x, w, activation) {
  const f = ACTIVATIONS[activation];
  return times(times(x, matrix(w.W_1), w.b_1.data).map(f), matrix(w.W_2), w.b_2.data);
}
function gatedFeedForward(x, w, activation) {
  const bias = (b) => (b ? b.data : null), f = ACTIVATIONS[activation];
  const gate = times(x, matrix(w.W_G), bias(w.b_G)).map(f), inner = times(x, matrix(w.W_1), bias(w.b_1));
  return times(gate.map((g, i) => g * inner[i]), matrix(w.W_2), bias(w.b_2));
}
function mixtureOfExperts(x, w, k, activation) { // the k largest, of equal ones the first
  const r = times(x, matrix(w.W_R)), chosen = [...r.keys()].sort((i, j) => r[j] - r[i] || i - j).slice(0, k), g = softmax(chosen.map((e) => r[e]));
  return chosen.map((e) => gatedFeedForward(x, w.experts[e], activation)).map((y, n) => y.map((y_i) => g[n] * y_i)).reduce(plus);
}
const FEED_FORWARDS = {
  plain: (x, w, settings) => feedForward(x, w, settings.activation),
  gated: (x, w, settings) => gatedFeedForward(x, w, settings.activation),
  experts: (x, w, settings) => mixtureOfExperts(x, w, settings.n_experts_used, settings.activation),
};

// --- Positions

function rotary(x, position, settings) {
  const k = x.length, y = new Float64Array(k), turns = angles(position, k, settings);
  for (let i = 0; i < k / 2; i++) {
    const [a, b] = settings.layout === "halves" ? [i, i + k / 2] : [2 * i, 2 * i + 1], cos = turns[2 * i], sin = turns[2 * i + 1];
    y[a] = x[a] * cos - x[b] * sin;
    y[b] = x[a] * sin + x[b] * cos;
  }
  return y;
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

// Queries, keys and values of row p, for each head.
function projected(x, p, w, settings) {
  const of = (W, b, gain) => Array.from({ length: W.shape[0] }, (_, i) => {
    let y = times(x, matrix(W, i), b ? part(b, i, W.shape[2]) : null);
    if (gain !== null && w.qk_gain) y = rmsNorm(y, part(w.qk_gain, gain, y.length), settings.eps);
    return gain !== null && settings.rotary ? rotary(y, p, settings.rotary) : y;
  });
  return { Q: of(w.W_Q, w.b_Q, 0), K: of(w.W_K, w.b_K, 1), V: of(w.W_V, w.b_V, null) };
}

// Row i of the multi-head layer: each head's average of the rows that it sees, then W_O. A head that is off adds nothing.
function multiHead(i, rows, w, settings, { causal, off }) {
  const { Q } = rows[i], h = Q.length, g = rows[i].K.length, last = causal ? i : rows.length - 1, width = rows[i].V[0].length;
  const first = settings.window && causal ? Math.max(0, i - settings.window + 1) : 0, scale = settings.scale ?? 1 / Math.sqrt(Q[0].length);
  const joined = new Float64Array(h * width), weights = [];
  for (let head = 0; head < h; head++) {
    const shared = Math.floor(head / (h / g)), s = new Float64Array(last - first + 1);
    for (let j = first; j <= last; j++) s[j - first] = scale * dot(Q[head], rows[j].K[shared]);
    const a = softmax(s), all = new Float64Array(rows.length);
    all.set(a, first);
    weights.push(all);
    if (off.has(head)) continue;
    for (let j = first; j <= last; j++) {
      const w_j = a[j - first], v = rows[j].V[shared];
      for (let c = 0; c < width; c++) joined[head * width + c] += w_j * v[c];
    }
  }
  return { y: times(joined, matrix(w.W_O), w.b_O.data), weights };
}

// --- The model

// forward(model, tokens, {causal, off}, kept) → what is known of each row: its logits, its row of the residual stream before each block and at the end, and
// the attention weights of each head of each block. A generator: it rests after each row of a block, so that a page stays alive. `off` holds "block.head".
// `kept`, an earlier answer, is gone on from as far as the tokens agree: with the mask, later tokens have changed nothing before them.
function* forward({ weights, settings }, tokens, { causal = true, off = new Set() } = {}, kept = null) {
  const key = `${causal} ${[...off].sort()}`, n = tokens.length, L = weights.blocks.length;
  let start = 0;
  if (causal && kept && kept.key === key) while (start < Math.min(n, kept.tokens.length) && kept.tokens[start] === tokens[start]) start++;
  const from = (old) => (start ? old.slice(0, start) : []), blank = Array.from({ length: L }, () => []);
  const answer = { key, tokens: [...tokens], rows: (start ? kept.rows : blank).map(from), streams: from(kept?.streams), weights: from(kept?.weights), logits: from(kept?.logits) };
  const norm = (x, w) => normed(x, w, settings), d = weights.E.shape[1];
  let X = [];
  for (let p = start; p < n; p++) {
    let x = Float64Array.from(part(weights.E, tokens[p], d));
    if (weights.P) x = plus(x, part(weights.P, p, d));
    X.push(x);
    answer.streams.push([x]);
    answer.weights.push([]);
  }
  for (let l = 0; l < L; l++) {
    const w = weights.blocks[l], rows = answer.rows[l], mask = { causal, off: new Set([...off].filter((name) => +name.split(".")[0] === l).map((name) => +name.split(".")[1])) };
    const pre = settings.norm === "pre", post = settings.norm === "post", FF = (x) => FEED_FORWARDS[settings.feed_forward](x, w.FF, settings);
    X.forEach((x, r) => rows.push(projected(pre ? norm(x, w.N_ca) : x, start + r, w.CA, settings)));
    for (let r = 0; r < X.length; r++) {
      const x = X[r], { y, weights: seen } = multiHead(start + r, rows, w.CA, settings, mask), sum = plus(x, y);
      answer.weights[start + r].push(seen);
      if (post) {
        const z = norm(sum, w.N_ca);
        X[r] = norm(plus(z, FF(z)), w.N_ff);
      } else if (settings.variant === "parallel") X[r] = plus(sum, FF(pre ? norm(x, w.N_ff) : x));
      else X[r] = plus(settings.variant === "simplified" ? x : sum, FF(pre ? norm(sum, w.N_ff) : sum));
      answer.streams[start + r].push(X[r]);
      yield;
    }
  }
  for (const x of X) {
    answer.logits.push(lens({ weights, settings }, x));
    yield;
  }
  return answer;
}

// Φ(N(x)): what the last layers read in a row of the residual stream, wherever it is taken from (the logit lens).
function lens({ weights, settings }, x) {
  return times(weights.N ? normed(x, weights.N, settings) : x, matrix(weights.Y), weights.b.data);
}

const finish = (steps) => { for (;;) { const { done, value } = steps.next(); if (done) return value; } };
