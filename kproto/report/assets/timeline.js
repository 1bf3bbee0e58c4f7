// Partitions as rows: a band for each leader, and below it how many of the replicas are in sync.

const NO_LEADER = -1;

class Timeline {
  constructor(facts) {
    const { partitions, states, topics, brokers } = facts.timeline;
    this.facts = facts;
    this.rowHeight = 24;
    this.topics = topics;
    this.topicIds = facts.timeline.topic_ids;
    this.lists = brokers;
    this.partitions = partitions;
    this.states = states;
    this.rows = [];
    const count = partitions.topic.length;
    this.starts = new Int32Array(count + 1);
    for (const row of states.row) this.starts[row + 1]++;
    for (let row = 0; row < count; row++) this.starts[row + 1] += this.starts[row];
    this.leaderChanges = new Int32Array(count);
    this.isrChanges = new Int32Array(count);
    this.trouble = new Uint8Array(count); // at the end: 1 in-sync replicas are missing, 2 no leader
    for (let row = 0; row < count; row++) this.countChanges(row);
    this.lowTopics = topics.map((topic) => String(topic).toLowerCase());
    const ids = new Set(states.leader);
    for (const list of brokers) for (const id of list) ids.add(id);
    ids.delete(NO_LEADER);
    this.ids = [...ids].sort((a, b) => a - b);
    nodes.learn(new Set([...this.ids, ...facts.brokers.map((row) => row.broker_id).filter((id) => id !== null)]));
  }

  get count() { return this.rows.length; }

  countChanges(row) {
    const { leader, isr, replicas } = this.states;
    for (let at = this.starts[row] + 1; at < this.starts[row + 1]; at++) {
      this.leaderChanges[row] += leader[at] !== leader[at - 1];
      this.isrChanges[row] += !sameMembers(this.lists[isr[at]], this.lists[isr[at - 1]]);
    }
    const last = this.starts[row + 1] - 1;
    if (this.partitions.deleted[row] === null && last >= this.starts[row]) {
      if (leader[last] === NO_LEADER) this.trouble[row] = 2;
      else if (this.lists[isr[last]].length < this.lists[replicas[last]].length) this.trouble[row] = 1;
    }
  }

  // Choose the rows to show. Words of `text` must all fit: part of topic-partition, leader:ID or replica:ID.
  choose({ cluster, text, changed, troubled, order }) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [];
    const { topic, partition, cluster: clusters } = this.partitions;
    for (let row = 0; row < topic.length; row++) {
      if (cluster >= 0 && clusters[row] !== cluster) continue;
      if (changed && !this.leaderChanges[row] && !this.isrChanges[row]) continue;
      if (troubled && !this.trouble[row]) continue;
      if (words.length) {
        const name = `${this.lowTopics[topic[row]]}-${partition[row]}`;
        if (!words.every((word) => this.fits(row, name, word))) continue;
      }
      rows.push(row);
    }
    if (order === "changes") {
      const weight = (row) => this.leaderChanges[row] * 1000 + this.isrChanges[row];
      rows.sort((a, b) => weight(b) - weight(a) || a - b);
    }
    this.rows = rows;
  }

  fits(row, name, word) {
    const id = /^(leader|replica):(-?\d+)$/.exec(word);
    if (!id) return name.includes(word);
    const { leader, replicas } = this.states;
    for (let at = this.starts[row]; at < this.starts[row + 1]; at++) {
      if (id[1] === "leader" ? leader[at] === Number(id[2]) : this.lists[replicas[at]].includes(Number(id[2]))) return true;
    }
    return false;
  }

  label(place) {
    const row = this.rows[place];
    return { text: String(this.topics[this.partitions.topic[row]]), suffix: `-${this.partitions.partition[row]}` };
  }

  // When a state ends: with the next, with the partition, or with the chart.
  end(row, at) {
    if (at + 1 < this.starts[row + 1]) return this.states.ts[at + 1];
    return this.partitions.deleted[row] ?? this.lastTime(row);
  }

  lastTime(row) {
    const last = this.facts.clusters[this.partitions.cluster[row]].last;
    return last === null ? range.last : Math.max(last, range.last);
  }

  draw(pen, place, top, x, width) {
    const row = this.rows[place];
    const { ts, leader, isr, replicas } = this.states;
    const [bandTop, bandHeight] = [top + 3, this.rowHeight - 11];
    pen.textBaseline = "middle";
    for (let at = this.starts[row]; at < this.starts[row + 1]; at++) {
      const end = this.end(row, at);
      if (end < range.from || ts[at] > range.to) continue;
      const from = Math.max(x(ts[at]), -10);
      const wide = Math.max(Math.min(x(end), width + 10) - from, 1.5);
      const missing = this.lists[replicas[at]].length - this.lists[isr[at]].length;
      if (leader[at] === NO_LEADER) {
        pen.fillStyle = hatch(pen);
        pen.fillRect(from, bandTop, wide, bandHeight);
        pen.strokeStyle = theme.bad;
        pen.lineWidth = 1;
        pen.strokeRect(from + 0.5, bandTop + 0.5, Math.max(wide - 1, 0.5), bandHeight - 1);
      } else {
        pen.fillStyle = nodes.band(leader[at]);
        pen.fillRect(from, bandTop, wide, bandHeight);
      }
      this.write(pen, row, at, Math.max(from, x(range.from)), from + wide, bandTop + bandHeight / 2 + 0.5, missing);
      if (missing > 0) {
        pen.fillStyle = theme.short;
        const part = Math.min(1, missing / Math.max(1, this.lists[replicas[at]].length));
        pen.fillRect(from, bandTop + bandHeight + 1, wide, 2 + Math.round(4 * part));
      } else {
        pen.fillStyle = theme.line;
        pen.fillRect(from, bandTop + bandHeight + 1, wide, 1.5);
      }
      const before = at > this.starts[row] ? at - 1 : -1;
      if (before >= 0 && leader[before] !== leader[at]) {
        pen.fillStyle = theme.mark;
        pen.fillRect(from - 1, bandTop - 1, 2, bandHeight + 2);
      } else if (before >= 0 && isr[before] !== isr[at]) {
        pen.fillStyle = theme.mark;
        pen.fillRect(from - 0.5, bandTop + bandHeight - 1, 1.5, 7);
      }
    }
    const deleted = this.partitions.deleted[row];
    if (deleted !== null) cross(pen, x(deleted), bandTop + bandHeight / 2, theme.dim);
  }

  // The leader's id in its band, and the ISR where it is short; as much as there is room for.
  write(pen, row, at, from, to, y, missing) {
    const { leader, isr, replicas } = this.states;
    const room = to - from - 8;
    if (room < 6) return;
    const name = leader[at] === NO_LEADER ? "no leader" : String(leader[at]);
    const members = this.lists[isr[at]];
    const long = missing > 0 ? `${name}   isr ${members.join(",") || "none"} (${members.length} of ${this.lists[replicas[at]].length})` : name;
    pen.font = `600 11px ${theme.font}`;
    pen.fillStyle = leader[at] === NO_LEADER ? theme.bad : ON_PALETTE;
    const text = [long, name, leader[at] === NO_LEADER ? "–" : name].find((option) => pen.measureText(option).width <= room);
    if (text === undefined) return;
    if (leader[at] === NO_LEADER) {
      pen.fillStyle = theme.card;
      pen.fillRect(from + 2, y - 6, pen.measureText(text).width + 4, 12);
      pen.fillStyle = theme.bad;
    }
    pen.fillText(text, from + 4, y);
  }

  marks(place) {
    const row = this.rows[place];
    const found = [];
    for (let at = this.starts[row]; at < this.starts[row + 1]; at++) {
      found.push({ from: this.states.ts[at], to: this.end(row, at), text: this.words(row, at), open: () => this.open(row, at) });
    }
    return found;
  }

  members(place) { return this.lists[place].join(",") || "none"; }

  leaderName(at) { return this.states.leader[at] === NO_LEADER ? "none" : String(this.states.leader[at]); }

  // What a state says, beside what it changed.
  words(row, at) {
    const { ts, leader, isr, replicas, leader_epoch: epoch } = this.states;
    const before = at > this.starts[row] ? at - 1 : -1;
    const arrow = (name, old, now) => (old === null || old === now ? `${name} ${now}` : `${name} ${old} → ${now}`);
    return [
      `${day(ts[at])} ${clock(ts[at], 6)}`,
      arrow("leader", before < 0 ? null : this.leaderName(before), this.leaderName(at)) + `, epoch ${epoch[at]}`,
      arrow("ISR", before < 0 ? null : this.members(isr[before]), this.members(isr[at])),
      `replicas ${this.members(replicas[at])}`,
    ].join("\n");
  }

  open(row, at) {
    const { states } = this;
    const name = `${this.topics[this.partitions.topic[row]]}-${this.partitions.partition[row]}`;
    const step = (next) => (next >= this.starts[row] && next < this.starts[row + 1] ? () => this.open(row, next) : null);
    const before = at > this.starts[row] ? at - 1 : -1;
    const arrow = (old, now) => (old === null || old === now ? now : `${old} → ${now}`);
    openRequest(this.facts, states.request[at], {
      title: name,
      partition: [this.topics[this.partitions.topic[row]], this.partitions.partition[row]],
      told: [
        ["Leader", arrow(before < 0 ? null : this.leaderName(before), this.leaderName(at))],
        ["In-sync replicas", arrow(before < 0 ? null : this.members(states.isr[before]), this.members(states.isr[at]))],
        ["Replicas", this.members(states.replicas[at])],
        ["Topic id", this.topicIds[this.partitions.topic_id[row]]],
        ["Epochs", `leader ${states.leader_epoch[at]}, partition ${states.partition_epoch[at]}, controller ${states.controller_epoch[at]}`],
      ],
      earlier: step(at - 1),
      later: step(at + 1),
    });
  }
}

function sameMembers(one, other) {
  return one === other || (one.length === other.length && one.every((id) => other.includes(id)));
}

// Slanted lines in the colour of trouble: "no leader" is told without colours too.
function hatch(pen) {
  if (hatch.made && hatch.colour === theme.bad) return hatch.made;
  const tile = element("canvas", { width: 8, height: 8 });
  const on = tile.getContext("2d");
  on.strokeStyle = theme.bad;
  on.globalAlpha = 0.55;
  on.lineWidth = 1.6;
  on.beginPath();
  for (const shift of [-8, 0, 8]) {
    on.moveTo(shift, 8);
    on.lineTo(shift + 8, 0);
  }
  on.stroke();
  hatch.colour = theme.bad;
  hatch.made = pen.createPattern(tile, "repeat");
  return hatch.made;
}

function cross(pen, x, y, colour, size = 4) {
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x - size, y - size);
  pen.lineTo(x + size, y + size);
  pen.moveTo(x + size, y - size);
  pen.lineTo(x - size, y + size);
  pen.stroke();
}

function diamond(pen, x, y, colour, size = 5) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(x, y - size);
  pen.lineTo(x + size, y);
  pen.lineTo(x, y + size);
  pen.lineTo(x - size, y);
  pen.fill();
}

// The meanings of the timeline's marks, each with a picture drawn as in the rows.
function timelineLegend(timeline) {
  const picture = (draw, width = 26) => {
    const scale = window.devicePixelRatio || 1;
    const canvas = element("canvas", { width: width * scale, height: 16 * scale, "aria-hidden": "true" });
    canvas.style.width = `${width}px`;
    canvas.style.height = "16px";
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    draw(pen);
    return canvas;
  };
  const band = (pen, colour, text) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 1, 26, 13);
    pen.fillStyle = ON_PALETTE;
    pen.font = `600 11px ${theme.font}`;
    pen.textBaseline = "middle";
    pen.fillText(text, 4, 8);
  };
  const shown = timeline.ids.slice(0, PALETTE.length);
  const more = timeline.ids.length - shown.length;
  return [
    ...shown.map((id) => element("span", {}, picture((pen) => band(pen, nodes.band(id), String(id))), `leader ${id}`)),
    more > 0 ? element("span", {}, `and ${plural(more, "more broker")}, by the ids in their bands`) : null,
    element("span", {}, picture((pen) => {
      pen.fillStyle = hatch(pen);
      pen.fillRect(0, 1, 26, 13);
      pen.strokeStyle = theme.bad;
      pen.strokeRect(0.5, 1.5, 25, 12);
    }), "no leader"),
    element("span", {}, picture((pen) => { pen.fillStyle = theme.short; pen.fillRect(0, 6, 26, 5); }), "replicas missing from the ISR"),
    element("span", {}, picture((pen) => { pen.fillStyle = theme.mark; pen.fillRect(6, 1, 2, 14); }, 14), "new leader"),
    element("span", {}, picture((pen) => cross(pen, 7, 8, theme.dim), 14), "deleted"),
  ].filter(Boolean);
}
