// Where the model computes: in a worker, so that the page's own thread only draws; on the page itself, in slices, where there can be no worker.

// All that a worker needs, as one function: base.py puts the named files in the place of their names, and the function's text is the worker's program.
function computing() {
  "model.js";
  "slices.js";
  "serving.js";
  return { unpack, lens, logits, softmax, serve };
}
const { unpack, lens, logits, softmax, serve } = computing();

const SILENT = { tokens: [], streams: [], weights: [] };

// computer(network) computes one text at a time: `read(tokens, how, done)` gives `done` what `forward` knows of its rows, `answer(tokens, how, until, done)` the same
// of the text and its answer. A new text takes the place of one that is not done.
function computer(network) {
  let known = SILENT, job = null, asked = 0, port = null, close = () => {};
  const hear = ({ data }) => {
    known = unpacked(data, known);
    if (job?.text.id !== data.id) return; // of a text that has gone
    const { done } = job;
    job = null;
    done(known);
  };
  function connect(to, closing) {
    close();
    [port, close] = [to, closing];
    port.onmessage = hear;
    port.postMessage({ network });
    if (job) port.postMessage(job.text);
  }
  function onPage() {
    const { port1, port2 } = new MessageChannel();
    serve(port2);
    connect(port1, () => port1.close());
  }
  try {
    const address = URL.createObjectURL(new Blob([`(${computing})().serve(self)`], { type: "text/javascript" })), worker = new Worker(address);
    worker.onerror = (fault) => { fault.preventDefault(); onPage(); }; // the page's rules may forbid workers
    connect(worker, () => { worker.terminate(); URL.revokeObjectURL(address); });
  } catch { onPage(); }
  const start = (text, done) => {
    job = { text: { ...text, id: ++asked }, done };
    port.postMessage(job.text);
  };
  return {
    read: (tokens, how, done) => start({ tokens, how }, done),
    answer: (tokens, how, until, done) => start({ tokens, how, until }, done),
    close: () => { job = null; close(); },
  };
}

// The rows that `packed` sent, behind those that were known before.
function unpacked({ key, tokens, start, shape: [L, h, d], lengths, numbers }, known) {
  const now = { key, tokens, streams: known.streams.slice(0, start), weights: known.weights.slice(0, start) };
  let at = 0;
  const next = (count, size) => Array.from({ length: count }, () => numbers.subarray(at, (at += size)));
  for (const length of lengths) {
    now.streams.push(next(L + 1, d));
    now.weights.push(Array.from({ length: L }, () => next(h, length)));
  }
  return now;
}
