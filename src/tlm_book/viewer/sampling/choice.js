// Temperature, top-k and top-p on scores that fall.

function tempered(scores, tau) { // the first score is the largest
  const e = scores.map((s) => Math.exp((s - scores[0]) / tau)), sum = e.reduce((a, b) => a + b);
  return e.map((x) => x / sum);
}
const scaled = (weights) => { const sum = weights.reduce((a, b) => a + b); return weights.map((w) => w / sum); };
const sums = (weights) => { let sum = 0; return weights.map((w) => (sum += w)); };
const entropy = (weights) => weights.reduce((sum, w) => (w > 0 ? sum - w * Math.log(w) : sum), 0);

// A slider for top-k: each number up to 20, then larger steps, up to all V.
function topK(V) {
  const steps = [...Array(20).keys()].map((k) => k + 1).concat([25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000]).filter((k) => k < V).concat(V);
  return { min: 0, max: steps.length - 1, value: (i) => steps[i], place: (k) => steps.filter((step) => step <= k).length - 1, text: (k) => (k === V ? `all ${V}` : `${k}`) };
}

// What is drawn from: the first k, then of these the shortest beginning whose sum reaches p.
function choice(scores, tau, k, p) {
  const first = scaled(tempered(scores, tau).map((w, j) => (j < k ? w : 0))), F = sums(first);
  const kept = first.map((w, j) => (p >= 1 || j === 0 || F[j - 1] < p ? w : 0));
  return { after: scaled(kept), F };
}
