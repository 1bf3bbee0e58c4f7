// Controllers as rows, one for each epoch: from the first to the last of their requests, stale ones marked. Below them
// what KRaft's captures show beside: when the quorum had no leader that answered, and when brokers' metadata lagged.

class Controllers {
  constructor(facts) {
    this.facts = facts;
    this.rowHeight = 28;
    this.rows = [];
  }

  get count() { return this.rows.length; }

  choose(cluster) {
    const mine = (row) => cluster < 0 || row.cluster === cluster;
    this.rows = this.facts.controllers.filter(mine).map((sender) => ({
      ...sender,
      stale: this.facts.stale.filter((row) => row.cluster === sender.cluster && row.controller_id === sender.controller_id
        && row.controller_epoch === sender.controller_epoch),
    }));
    const outages = this.facts.quorum.outages.filter(mine).map((row) => ({ ...row, text: outageWords(row) }));
    if (outages.length) this.rows.push({ name: "no quorum leader", spans: outages });
    const late = this.facts.quorum.lag.filter(mine);
    for (const id of new Set(late.map((row) => row.broker_id))) {
      const rows = late.filter((row) => row.broker_id === id);
      this.rows.push({ name: `broker ${id} metadata lag`, spans: rows.map((row) => ({ ...row, text: `broker ${id} had not applied for ${duration(row.lag_us)} what was committed` })) });
    }
  }

  label(place) {
    const row = this.rows[place];
    if (row.spans) return { text: row.name, suffix: "", shorter: [] };
    const { controller_id: id, controller_epoch: epoch } = row;
    return { text: `${row.is_kraft_controller ? "KRaft " : ""}controller ${id}`, suffix: `  epoch ${epoch}`, shorter: [`${id}, epoch ${epoch}`, `${id} e${epoch}`] };
  }

  draw(pen, place, top, x, width) {
    const row = this.rows[place];
    const middle = top + this.rowHeight / 2;
    if (row.spans) {
      pen.fillStyle = theme.bad;
      for (const span of row.spans) {
        const begin = Math.max(x(span.first), -10);
        pen.fillRect(begin, middle - 6, Math.max(Math.min(x(span.last), width + 10) - begin, 3), 12);
      }
      return;
    }
    const from = Math.max(x(row.first), -10);
    const wide = Math.max(Math.min(x(row.last), width + 10) - from, 3);
    const onlyStale = row.zombies >= row.requests;
    pen.fillStyle = onlyStale ? theme.line : nodes.band(row.controller_id);
    pen.fillRect(from, middle - 6, wide, 12);
    const text = `${plural(row.requests, "request")} to ${plural(row.brokers, "broker")}`;
    pen.font = `600 11px ${theme.font}`;
    pen.textBaseline = "middle";
    const size = pen.measureText(text).width;
    if (size < wide - 10) {
      pen.fillStyle = onlyStale ? theme.ink : ON_PALETTE;
      pen.fillText(text, Math.max(from, x(range.from)) + 5, middle + 0.5);
    } else {
      pen.fillStyle = theme.dim;
      pen.fillText(text, from + wide + size + 16 < width ? from + wide + 10 : from - size - 10, middle + 0.5);
    }
    let drawn = -Infinity;
    for (const stale of row.stale) {
      const at = x(stale.ts);
      if (at - drawn < 1.5 || at < -10 || at > width + 10) continue;
      drawn = at;
      if (stale.zombie) cross(pen, at, middle, theme.bad, 6);
      else diamond(pen, at, middle, theme.warning);
    }
  }

  marks(place) {
    const row = this.rows[place];
    if (row.spans) {
      return row.spans.map((span) => ({
        from: span.first, to: span.last, text: `${span.text}\n${clock(span.first, 3)} to ${clock(span.last, 3)}`,
        open: () => range.set(span.first - (span.last - span.first) * 0.5, span.last + (span.last - span.first) * 0.5),
      }));
    }
    const whole = {
      from: row.first, to: row.last,
      text: `${plural(row.requests, "request")} to ${plural(row.brokers, "broker")}, ${counted(row.refused)} refused\n${day(row.first)} ${clock(row.first)} to ${clock(row.last)}`,
      open: () => range.set(row.first - (row.last - row.first) * 0.05, row.last + (row.last - row.first) * 0.05),
    };
    return [whole, ...row.stale.map((stale) => ({
      from: stale.ts, to: stale.ts, text: `${clock(stale.ts, 6)}  ${staleWords(stale)}`, open: () => openRequest(this.facts, stale.request, {}),
    }))];
  }
}

function outageWords(row) {
  const end = row.lasts ? "no leader of the quorum answers again" : `no leader of the quorum answered for ${duration(row.last - row.first)}`;
  return `${end}: ${plural(row.votes, "vote")} asked for, ${counted(row.refused)} fetches in vain by nodes ${row.nodes.join(", ")}`;
}

function staleWords(row) {
  const newer = row.known_epoch === null ? "" : `; the newest before was ${row.known_epoch}`;
  if (row.zombie) return `zombie: controller epoch ${row.seen_epoch} is out of date${newer}`;
  return `meant for an earlier registration of the broker: broker epoch ${row.seen_epoch}${newer}`;
}
