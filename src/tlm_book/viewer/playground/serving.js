// What a worker answers to: {network} once, then a text each time, {id, tokens, how} or, for an answer, {id, tokens, how, until}.

function serve(port) {
  let network = null, known = null, stop = () => {};
  port.onmessage = ({ data: { network: given, id, tokens, how, until } }) => {
    stop(); // a new text has come
    if (given) { network = given; return; }
    const steps = until ? answered(network, tokens, how, known, until) : forward(network, tokens, how, known);
    stop = inSlices(steps, (now) => {
      const rows = packed(now, known);
      known = now;
      port.postMessage({ id, ...rows }, [rows.numbers.buffer]);
    });
  };
}

// What `forward` found, without the rows that were known before: all numbers in one array, which moves to the page and is not copied.
function packed({ key, tokens, streams, weights }, known) {
  let start = 0;
  while (start < Math.min(tokens.length, known?.tokens.length ?? 0) && streams[start] === known.streams[start]) start++;
  const rows = weights.slice(start), lengths = rows.map(([[a]]) => a.length), shape = [weights[0].length, weights[0][0].length, streams[0][0].length];
  const [L, h, d] = shape, numbers = new Float64Array(lengths.reduce((sum, length) => sum + (L + 1) * d + L * h * length, 0));
  let at = 0;
  const put = (x) => { numbers.set(x, at); at += x.length; };
  rows.forEach((row, r) => { streams[start + r].forEach(put); row.flat().forEach(put); });
  return { key, tokens, start, shape, lengths, numbers };
}

const mostLikely = (z) => { let best = 0; for (let i = 1; i < z.length; i++) if (z[i] > z[best]) best = i; return best; };

// Goes on from a text that ends in a question, with the likeliest token each time, before one of `ends` or with one of `stops`. Returns all that is then known.
function* answered(network, asked, how, known, { most, long, ends, stops }) {
  let now = yield* forward(network, asked, how, known);
  while (now.tokens.length < Math.min(most, asked.length + long)) {
    const next = mostLikely(logits(network, now, now.tokens.length - 1));
    if (ends.includes(next)) break;
    now = yield* forward(network, [...now.tokens, next], how, now);
    if (stops.includes(next)) break;
  }
  return now;
}
