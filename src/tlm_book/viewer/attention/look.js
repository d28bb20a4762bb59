// What the picture of attention weights looks like: colours, sizes, scales. The style is view.css.

// Nine colours at equal perceptual distances, from weight 0 to weight 1; on a dark page light means large. Then the same for
// a difference from 0 to −1.
const STOPS = {
  light: ["#f6fbfd", "#c4e7f2", "#8ed0e4", "#5bb4d7", "#3898cb", "#2a7cbb", "#295fa3", "#263f80", "#1d2657"],
  dark: ["#1e222f", "#222f50", "#264378", "#2463a2", "#2284bf", "#35a3d2", "#5cc2e1", "#92e1ef", "#ccfdff"],
};
const BELOW = {
  light: ["#f6fbfd", "#fbe3c8", "#f8c894", "#f0a95f", "#e28632", "#c9671a", "#a64d12", "#7f370f", "#58240b"],
  dark: ["#1e222f", "#3c2a22", "#5d3718", "#834a12", "#aa6114", "#cf7f24", "#ec9f46", "#fdc382", "#ffe9cd"],
};
const MASKED = { light: "#e3e6ea", dark: "#33363d" }, HATCH = { light: "#b9c0c9", dark: "#565c66" };
const MASK = 256, STEP = 1 / 510; // half a step of the stored weights: what they are off by at most
const LARGEST_CELL = 40, SMALLEST_LABELLED = 9.5, THUMB_PIXELS = 56, MOST_EDGES = 3000; // css pixels; the thumb's also canvas pixels

// How a weight becomes a place on the colour scale, and what is written at its ends and middle. The root spends more colours on
// small weights: a row of a hundred tokens rarely gives any one of them more than 0.1. The logarithm begins at half a step.
const SCALES = {
  root: { name: "root", place: Math.sqrt, ticks: ["0", "0.25", "1"] },
  linear: { name: "linear", place: (w) => w, ticks: ["0", "0.5", "1"] },
  log: { name: "logarithm", place: (w) => (w > STEP ? 1 - Math.log(w) / Math.log(STEP) : 0), ticks: ["0.002", "0.044", "1"] },
  top: { name: "k largest", place: Math.sqrt, ticks: ["0", "0.25", "1"] },
};

const OWN = "view.css";
