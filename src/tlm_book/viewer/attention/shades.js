// ---- numbers and colours --------------------------------------------------------------------------------------------

function bytes(base64) {
  const text = atob(base64), all = new Uint8Array(text.length);
  for (let k = 0; k < all.length; k++) all[k] = text.charCodeAt(k);
  return all;
}
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));

// The colours of the shades 0 to 255 between the stops.
function ramp(stops) {
  const ends = stops.map(rgb);
  return Array.from({ length: 256 }, (_, s) => {
    const t = (s / 255) * (ends.length - 1), k = Math.min(Math.floor(t), ends.length - 2);
    return ends[k].map((c, a) => Math.round(c + (t - k) * (ends[k + 1][a] - c)));
  });
}

// Shade s has the colour colours[255 + s]; `pixels` holds the same as a canvas does.
function lookOf(theme) {
  const colours = [...ramp(BELOW[theme]).slice(1).reverse(), ...ramp(STOPS[theme]), rgb(MASKED[theme])];
  return { colours, pixels: Uint32Array.from(colours, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r), hatch: HATCH[theme] };
}

// The shade of every cell of a head A; of A − B, where there is a B.
function shadesOf(A, B, hidden, n, m, scale, k) {
  const place = Int16Array.from({ length: 256 }, (_, q) => Math.round(255 * SCALES[scale].place(q / 255))), s = new Int16Array(n * m);
  for (let c = 0; c < n * m; c++) {
    if (hidden && hidden[c]) s[c] = MASK;
    else if (!B) s[c] = place[A[c]];
    else s[c] = A[c] < B[c] ? -place[B[c] - A[c]] : place[A[c] - B[c]];
  }
  if (scale !== "top" || B) return s;
  const count = new Uint32Array(256); // of each row the k largest; of equals those that stand first
  for (let i = 0; i < n; i++) {
    count.fill(0);
    for (let j = 0; j < m; j++) count[A[i * m + j]]++;
    let least = 255, room = k; // what is above `least` stays, and `room` of those equal to it
    while (least > 0 && count[least] < room) room -= count[least--];
    for (let c = i * m; c < (i + 1) * m; c++) if (s[c] !== MASK && (A[c] < least || (A[c] === least && room-- <= 0))) s[c] = 0;
  }
  return s;
}

// One block for each k × k cells, so that there are at most `most` on a side: its largest shade, so that a thin diagonal survives.
function blocks(s, n, m, most) {
  const k = Math.max(1, Math.ceil(Math.max(n, m) / most)), height = Math.ceil(n / k), width = Math.ceil(m / k);
  if (k === 1) return { k, height, width, s };
  const t = new Int16Array(height * width).fill(MASK);
  for (let i = 0; i < n; i++) {
    const a = Math.floor(i / k) * width;
    for (let j = 0; j < m; j++) {
      const v = s[i * m + j], at = a + Math.floor(j / k);
      if (v !== MASK && (t[at] === MASK || Math.abs(v) > Math.abs(t[at]))) t[at] = v;
    }
  }
  return { k, height, width, s: t };
}

function paint(canvas, s, n, m, look, most) {
  const small = blocks(s, n, m, most), image = new ImageData(small.width, small.height), pixels = new Uint32Array(image.data.buffer);
  for (let c = 0; c < pixels.length; c++) pixels[c] = look.pixels[255 + small.s[c]];
  Object.assign(canvas, { width: small.width, height: small.height });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The edges to draw, as [i, j, shade] from faint to strong: of very many, the strongest.
function edgesOf(s, n, m, most = MOST_EDGES) {
  const count = new Uint32Array(256), edges = [];
  for (const v of s) if (v !== MASK) count[Math.abs(v)]++;
  let least = 256, room = most;
  while (least > 1 && count[least - 1] <= room) room -= count[--least];
  for (let c = 0; c < n * m; c++) if (s[c] !== MASK && Math.abs(s[c]) >= least) edges.push([Math.floor(c / m), c % m, s[c]]);
  return edges.sort((a, b) => Math.abs(a[2]) - Math.abs(b[2]));
}

const longest = (names) => names.reduce((most, name) => Math.max(most, [...name].length), 0);
const share = (q) => (q / 255).toFixed(3);
