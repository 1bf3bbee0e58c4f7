// Helpers that all parts share: DOM without markup from data, numbers and times as text, the palette, the time range.

const byId = (id) => document.getElementById(id);

// An element; text and children are added as text and nodes, never parsed.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const counted = (number) => number.toLocaleString("en");
const plural = (number, noun) => `${counted(number)} ${noun}${number === 1 ? "" : "s"}`;

// us since 1970 as text, UTC; `digits` of the second's fraction.
function clock(us, digits = 3) {
  const date = new Date(Math.floor(us / 1000));
  if (Number.isNaN(date.getTime())) return `${us / 1e6} s`;
  const fraction = String(((us % 1e6) + 1e6) % 1e6).padStart(6, "0").slice(0, digits);
  return date.toISOString().slice(11, 19) + (digits ? `.${fraction}` : "");
}

function day(us) {
  const date = new Date(Math.floor(us / 1000));
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 10);
}

const isoTime = (us) => `${day(us)}T${clock(us, 6)}Z`;

function duration(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e4 ? 1 : 0)} ms`;
  if (us < 120e6) return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
  if (us < 7200e6) return `${Math.round(us / 60e6)} min`;
  if (us < 172800e6) return `${(us / 3600e6).toFixed(1)} h`;
  return `${(us / 86400e6).toFixed(1)} days`;
}

// Milliseconds for columns of numbers that are compared with each other.
const milliseconds = (us) => (us === null ? "–" : (us / 1000).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }));

// Paul Tol's "light" scheme: told apart with any colour vision, and dark text is readable on all of them. The broker's id
// stands in its bands too, since a cluster can have more brokers than there are colours.
const PALETTE = ["#77aadd", "#eedd88", "#44bb99", "#ffaabb", "#bbcc33", "#99ddff", "#ee8866", "#cccccc", "#aaaa00"];
const ON_PALETTE = "#12161c";
const DARKER = ["#3a78b5", "#a38a00", "#12805f", "#c9406b", "#728000", "#2d8fb8", "#c4501f", "#757575", "#6b6b00"];
const NO_COLOUR = "#cccccc";

// A node's colour, the same in every chart: for bands, and for lines on the card's ground.
const nodes = {
  places: new Map(),
  learn(ids) { [...ids].sort((a, b) => a - b).forEach((id, place) => this.places.set(id, place % PALETTE.length)); },
  band(id) { return PALETTE[this.places.get(id)] ?? NO_COLOUR; },
  line(id) {
    const place = this.places.get(id);
    return place === undefined ? theme.dim : theme.dark ? PALETTE[place] : DARKER[place];
  },
};

// Colours of the style sheet, for canvases; read again when light and dark change.
const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["card", "ink", "dim", "line", "soft", "accent", "bad", "warning", "good", "short", "mark", "mono", "api-4", "api-5", "api-6"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  theme.font = getComputedStyle(document.body).fontFamily;
}

// Where the time begins in the charts that are as wide as the page, so that their times stand below each other.
const labelWidth = (width) => Math.min(300, Math.round(width * 0.3));

// Steps of time axes, in us.
const STEPS = [1, 2, 5].flatMap((m) => [1, 10, 100, 1e3, 1e4, 1e5].map((e) => m * e))
  .concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800].map((s) => s * 1e6))
  .sort((a, b) => a - b);

// Round times between two, with their texts; about `most` of them.
function ticks(from, to, most) {
  const step = STEPS.find((s) => (to - from) / s <= most) || Math.ceil((to - from) / most / 604800e6) * 604800e6;
  const digits = step >= 1e6 ? 0 : step >= 1e3 ? 3 : 6;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to && found.length < 200; at += step) {
    found.push([at, step >= 86400e6 ? day(at) : step >= 60e6 ? clock(at, 0).slice(0, 5) : clock(at, digits)]);
  }
  return found;
}

// The stretch of time that all charts show; listeners are called when it changes.
const range = {
  first: 0, last: 1, from: 0, to: 1, listeners: [],
  bound(first, last) {
    const margin = Math.max((last - first) * 0.01, 500);
    this.first = first - margin;
    this.last = last + margin;
    this.set(this.first, this.last);
  },
  set(from, to) {
    const width = Math.min(Math.max(to - from, 100), this.last - this.first);
    const start = Math.min(Math.max(from, this.first), this.last - width);
    this.from = start;
    this.to = start + width;
    for (const listener of this.listeners) listener();
  },
  zoom(factor, at = (this.from + this.to) / 2) {
    this.set(at - (at - this.from) * factor, at + (this.to - at) * factor);
  },
  move(part) {
    const by = (this.to - this.from) * part;
    this.set(this.from + by, this.to + by);
  },
  get whole() { return this.from <= this.first && this.to >= this.last; },
};
