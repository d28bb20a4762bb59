// Long computations that leave the page alive.

const SLICE = 10; // milliseconds between rests

// Runs a generator in slices; `done` gets its answer. Returns what stops it.
function inSlices(steps, done) {
  let stopped = false;
  const rest = new MessageChannel();
  rest.port1.onmessage = () => {
    const until = performance.now() + SLICE;
    while (!stopped) {
      const { done: over, value } = steps.next();
      if (over) { rest.port1.close(); done(value); return; }
      if (performance.now() > until) { rest.port2.postMessage(0); return; }
    }
    rest.port1.close();
  };
  rest.port2.postMessage(0);
  return () => { stopped = true; };
}
