// Charts by uPlot: requests over time, and lag by percentile. uPlot gets numbers alone; names stand beside it as text.

const APIS = [6, 4, 5];
const axes = () => ({ stroke: theme.dim, grid: { stroke: theme.line, width: 1 }, ticks: { stroke: theme.line, width: 1 }, font: `11px ${theme.font}` });

// The names of percentiles that stand `apart` pixels from each other: those for which there is room, from the greatest on.
function percentileTexts(percentiles, apart) {
  const most = Math.max(1, Math.ceil(38 / apart));
  return percentiles.map((part, place) => {
    if (part === 0 || (percentiles.length - 1 - place) % most) return "";
    return part === 100 ? "max" : `p${part}`;
  });
}

class RatesChart {
  constructor(facts, host, legend) {
    Object.assign(this, { facts, host, legend, cluster: -1 });
    range.listeners.push(() => { if (this.plot) this.plot.setScale("x", { min: this.seconds(range.from), max: this.seconds(range.to) }); });
    new ResizeObserver(() => { if (this.plot && this.plot.width !== host.clientWidth) this.plot.setSize({ width: host.clientWidth, height: this.plot.height }); }).observe(host);
  }

  seconds(us) { return (us - range.first) / 1e6; }
  us(seconds) { return seconds * 1e6 + range.first; }

  choose(cluster) { this.cluster = cluster; this.make(); }

  // One column for each stretch of a cluster's time, or of all clusters' on one axis.
  columns() {
    const { bins, counts } = this.facts.rates;
    const chosen = this.facts.clusters.map((row, place) => [row, place]).filter(([row, place]) => row.first !== null && (this.cluster < 0 || place === this.cluster));
    const first = Math.min(...chosen.map(([row]) => row.first));
    const width = (Math.max(...chosen.map(([row]) => row.last)) - first + 1) / bins;
    const series = Object.fromEntries([...APIS, "refused"].map((name) => [name, new Float64Array(bins)]));
    const spans = new Map(chosen.map(([row, place]) => [place, row]));
    for (const { cluster, bin, api_key: key, requests, refused } of counts) {
      const span = spans.get(cluster);
      if (!span) continue;
      const at = span.first + ((bin + 0.5) * (span.last - span.first + 1)) / bins;
      const place = Math.min(bins - 1, Math.floor((at - first) / width));
      if (series[key]) series[key][place] += requests;
      series.refused[place] += refused;
    }
    return { xs: Array.from(series.refused, (_, place) => this.seconds(first + (place + 0.5) * width)), series, width };
  }

  make() {
    this.plot?.destroy();
    const { xs, series } = this.columns();
    const stacked = [];
    APIS.forEach((key, place) => stacked.push(Array.from(series[key], (count, at) => count + (place ? stacked[place - 1][at] : 0))));
    const refused = Array.from(series.refused, (count, at) => (count ? stacked.at(-1)[at] : null));
    const bars = uPlot.paths.bars({ size: [0.9, 40, 1], align: 0 });
    const order = [...APIS.keys()].reverse();
    this.plot = new uPlot({
      width: Math.max(this.host.clientWidth, 200), height: 150, legend: { show: false }, padding: [8, 2, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: false, range: () => [this.seconds(range.from), this.seconds(range.to)] }, y: { range: (_, __, most) => [0, Math.max(most * 1.12, 1)] } },
      series: [
        {},
        ...order.map((place) => ({ paths: bars, fill: theme[`api-${APIS[place]}`], width: 0, points: { show: false } })),
        { paths: () => null, points: { show: true, size: 8, fill: theme.bad, stroke: theme.card, width: 1 } },
      ],
      axes: [
        { ...axes(), size: 28, splits: (plot) => this.times(plot).map(([us]) => this.seconds(us)), values: (plot) => this.timeTexts(plot) },
        { ...axes(), size: (plot) => labelWidth(plot.width), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6], space: 26 },
      ],
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width > 4) range.set(this.us(plot.posToVal(plot.select.left, "x")), this.us(plot.posToVal(plot.select.left + plot.select.width, "x")));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        setCursor: [(plot) => this.tip(plot, series, xs)],
      },
    }, [xs, ...order.map((place) => stacked[place]), refused], this.host);
    this.plot.over.addEventListener("dblclick", () => range.set(range.first, range.last));
    this.legend.replaceChildren(...APIS.map((key) => element("span", {}, swatch(theme[`api-${key}`]), this.facts.apis[key])),
      element("span", {}, swatch(theme.bad, "50%"), "with refused requests"));
  }

  // The times below the chart, the same as in the rows of lanes.
  times(plot) { return ticks(range.from, range.to, (plot.width - labelWidth(plot.width)) / 90); }

  // Their texts; none that the chart's right edge would cut.
  timeTexts(plot) {
    const last = range.to - ((range.to - range.from) * 34) / (plot.width - labelWidth(plot.width));
    return this.times(plot).map(([us, text]) => (us > last ? "" : text));
  }

  tip(plot, series, xs) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined || plot.cursor.left < 0) { hideTip(); return; }
    const box = plot.over.getBoundingClientRect();
    const words = APIS.filter((key) => series[key][at]).map((key) => `${this.facts.apis[key]}: ${counted(series[key][at])}`);
    if (series.refused[at]) words.push(`refused: ${counted(series.refused[at])}`);
    showTip([`around ${clock(this.us(xs[at]))}`, ...(words.length ? words : ["no request"])].join("\n"), box.left + plot.cursor.left, box.top + 40);
  }
}

// A square of a colour, set by script: the page's policy allows no styles in markup.
function swatch(colour, radius = "3px") {
  const made = element("i", { class: "swatch", "aria-hidden": "true" });
  made.style.background = colour;
  made.style.borderRadius = radius;
  return made;
}

class LagChart {
  constructor(facts, host, table) {
    Object.assign(this, { facts, host, table, rows: [] });
    new ResizeObserver(() => { if (this.plot && this.plot.width !== host.clientWidth) this.plot.setSize({ width: host.clientWidth, height: this.plot.height }); }).observe(host);
  }

  choose(cluster) {
    this.rows = this.facts.lag.brokers.filter((row) => cluster < 0 || row.cluster === cluster);
    this.make();
    const { percentiles } = this.facts.lag;
    const figure = (percentile) => ({
      name: percentile === 100 ? "slowest ms" : percentile === 50 ? "median ms" : `p${percentile} ms`, number: true,
      value: (row) => row.lag_us?.[percentiles.indexOf(percentile)] ?? null,
      cell: (row) => { const text = milliseconds(row.lag_us?.[percentiles.indexOf(percentile)] ?? null); return percentile === 100 ? requestButton(this.facts, row.request, text) : text; },
    });
    this.table.replaceChildren(makeTable("Lag by broker", [
      { name: "broker", number: true, value: (row) => row.broker_id, cell: (row) => element("span", {}, this.colours.has(row) ? swatch(this.colours.get(row)) : null, String(row.broker_id)) },
      ...clusterColumn(this.facts),
      { name: "updates", number: true, value: (row) => row.updates, cell: (row) => counted(row.updates) },
      figure(50), figure(90), figure(99), figure(100),
      { name: "missed", number: true, value: (row) => row.missing, cell: (row) => (row.missing ? flag("warning", counted(row.missing)) : "0") },
    ], this.rows, { none: "No metadata update reached a known broker.", lit: (row) => this.light(row) }));
  }

  // The slowest brokers have colours, up to a hundred others are grey lines behind them.
  make() {
    this.plot?.destroy();
    this.plot = null;
    const drawn = this.rows.filter((row) => row.lag_us).slice(0, 100);
    const dashes = [[], [9, 4], [3, 3], [12, 4, 3, 4], [6, 2], [1, 4]];
    this.colours = new Map(drawn.slice(0, dashes.length).map((row) => [row, nodes.line(row.broker_id)]));
    this.host.hidden = !drawn.length;
    if (!drawn.length) return;
    const { percentiles } = this.facts.lag;
    const places = percentiles.map((_, place) => place);
    this.drawn = [...drawn].reverse();
    this.plot = new uPlot({
      width: Math.max(this.host.clientWidth, 200), height: 260, legend: { show: false }, cursor: { show: false }, padding: [8, 14, 0, 0],
      scales: { x: { time: false, range: () => [0, percentiles.length - 1] }, y: { distr: 3, range: (_, least, most) => [0.1, Math.max(most * 1.6, 10)] } },
      series: [{}, ...this.drawn.map((row) => ({ stroke: this.colours.get(row) ?? theme.line, width: this.colours.has(row) ? 2 : 1, dash: dashes[drawn.indexOf(row)] ?? [], points: { show: this.colours.has(row), size: 5 } }))],
      axes: [
        { ...axes(), size: 28, splits: () => places, values: (plot) => percentileTexts(percentiles, (plot.width - 78) / (percentiles.length - 1)) },
        { ...axes(), size: 64, values: (_, splits) => splits.map((ms) => (ms === null || !/^1e|^1(0*)$|^0\.1$/.test(String(ms)) ? "" : ms <= 0.1 ? "≤ 0.1 ms" : duration(ms * 1000).replace(/\.0+ /, " "))) },
      ],
    }, [places, ...this.drawn.map((row) => row.lag_us.map((us) => Math.max(us / 1000, 0.1)))], this.host);
  }

  light(row) {
    if (!this.plot) return;
    this.drawn.forEach((other, place) => {
      this.plot.series[place + 1].width = other === row ? 4 : this.colours.has(other) ? 2 : 1;
      this.plot.series[place + 1].stroke = () => (other === row && !this.colours.has(other) ? theme.ink : this.colours.get(other) ?? theme.line);
    });
    this.plot.redraw(false);
  }
}
