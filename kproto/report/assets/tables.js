// Tables of a few columns: sorted by a click on a heading, long ones opened on demand.

// Columns are {name, value(row), cell(row), number, long}; `value` sorts, `cell` gives text or a node.
function makeTable(title, columns, rows, { first = 12, none = "none", lit = null } = {}) {
  if (!rows.length) return element("p", { class: "hint" }, none);
  let sorted = rows;
  let [by, down, all] = [-1, false, rows.length <= first + 3];
  const body = element("tbody");
  const more = element("button", { type: "button", onclick: () => { all = true; fill(); } });
  const heads = columns.map((column, place) => element("button", {
    type: "button", "aria-pressed": "false",
    onclick: () => {
      down = by === place ? !down : Boolean(column.number);
      by = place;
      const value = columns[by].value || columns[by].cell;
      const rank = (row) => { const found = value(row); return found === undefined ? null : found; };
      sorted = [...rows].sort((a, b) => {
        const [one, other] = [rank(a), rank(b)];
        if (one === null || other === null) return (one === null) - (other === null);
        return (one > other ? 1 : one < other ? -1 : 0) * (down ? -1 : 1);
      });
      fill();
    },
  }, column.name));
  const headings = heads.map((head, place) => element("th", { scope: "col", class: columns[place].number ? "number" : null }, head));
  function fill() {
    headings.forEach((heading, place) => {
      heading.setAttribute("aria-sort", place !== by ? "none" : down ? "descending" : "ascending");
      heads[place].setAttribute("aria-pressed", String(place === by));
      heads[place].textContent = columns[place].name + (place !== by ? "" : down ? " ▾" : " ▴");
    });
    body.replaceChildren(...(all ? sorted : sorted.slice(0, first)).map((row) => {
      const made = element("tr", {}, ...columns.map((column) => element("td", { class: column.number ? "number" : column.long ? "long" : null }, cellOf(column.cell(row)))));
      if (lit) {
        made.addEventListener("pointerenter", () => { made.classList.add("lit"); lit(row); });
        made.addEventListener("pointerleave", () => { made.classList.remove("lit"); lit(null); });
      }
      return made;
    }));
    more.hidden = all;
    more.textContent = `Show all ${counted(rows.length)}`;
  }
  fill();
  return element("div", {}, element("div", { class: "table" }, element("table", { "aria-label": title }, element("thead", {}, element("tr", {}, ...headings)), body)),
    element("p", { class: "more" }, more));
}

const cellOf = (cell) => (cell === null || cell === undefined ? "–" : cell instanceof Node ? cell : String(cell));

const requestButton = (facts, place, text, about = {}) => (place < 0 ? text : element("button", { type: "button", class: "plain", onclick: () => openRequest(facts, place, about) }, text));

const flag = (kind, text) => element("span", { class: `flag ${kind}` }, text);

const apiText = (facts, row) => `${facts.apis[row.api_key] ?? `api ${row.api_key}`} v${row.api_version}`;
const errorText = (facts, code) => (code === null ? "" : facts.error_names[code] ?? String(code));
const brokerText = (id, address) => (id === null ? address ?? "unknown" : String(id));

// A column with the cluster, where the report has several.
function clusterColumn(facts) {
  return facts.clusters.length > 1 ? [{ name: "cluster", cell: (row) => facts.clusters[row.cluster].name, long: true }] : [];
}

function staleTable(facts, rows) {
  if (!rows.length) return element("p", { class: "hint" }, "No stale request: no controller sent any after another had replaced it.");
  return element("div", {}, element("h3", {}, "Stale requests"), makeTable("Stale requests", [
    { name: "time", value: (row) => row.ts, cell: (row) => requestButton(facts, row.request, clock(row.ts, 6)) },
    ...clusterColumn(facts),
    { name: "controller", number: true, cell: (row) => row.controller_id },
    { name: "epoch", number: true, cell: (row) => row.controller_epoch },
    { name: "broker", number: true, cell: (row) => row.broker_id },
    { name: "request", cell: (row) => facts.apis[row.api_key] },
    { name: "answer", value: (row) => row.error_code, cell: (row) => (row.error_code === null ? "unanswered" : row.error_code === 0 ? flag("bad", "accepted") : flag("warning", `refused: ${errorText(facts, row.error_code)}`)) },
    { name: "why", cell: staleWords, long: true },
  ], rows));
}

function brokersTable(facts, rows) {
  const worst = Math.max(...rows.map((row) => row.p99_us ?? 0));
  return makeTable("Slowest and silent brokers", [
    { name: "broker", number: true, value: (row) => row.broker_id, cell: (row) => row.broker_id },
    { name: "address", cell: (row) => row.address },
    ...clusterColumn(facts),
    { name: "requests", number: true, value: (row) => row.requests, cell: (row) => counted(row.requests) },
    { name: "unanswered", number: true, value: (row) => row.unanswered, cell: (row) => (row.unanswered ? requestButton(facts, row.unanswered_request, counted(row.unanswered)) : "0") },
    { name: "refused", number: true, value: (row) => row.refused, cell: (row) => counted(row.refused) },
    { name: "median ms", number: true, value: (row) => row.p50_us, cell: (row) => milliseconds(row.p50_us) },
    { name: "p99 ms", number: true, value: (row) => row.p99_us, cell: (row) => milliseconds(row.p99_us) },
    { name: "slowest ms", number: true, value: (row) => row.max_us, cell: (row) => requestButton(facts, row.request, milliseconds(row.max_us)) },
    {
      name: "state", value: (row) => row.silent, long: true,
      cell: (row) => (!row.answered && row.requests ? flag("bad", "silent: never answered")
        : row.silent !== null ? flag("warning", `silent since ${clock(row.silent)}`)
          : row.p99_us === worst && rows.length > 1 ? flag("", "slowest") : "answers"),
    },
  ], rows, { none: "No request." });
}

function weeksTable(rows) {
  if (!rows.length) return null;
  const minutes = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  const clusters = new Set(rows.map((row) => row.cluster)).size > 1 ? [{ name: "cluster", cell: (row) => row.cluster, long: true }] : [];
  return element("div", {}, element("h3", {}, "Worst brokers, week by week"), makeTable("Worst brokers, week by week", [
    { name: "week from", cell: (row) => row.week },
    ...clusters,
    { name: "place", number: true, cell: (row) => row.place },
    { name: "broker", number: true, cell: (row) => row.broker },
    { name: "offline partition min", number: true, value: (row) => row.offline_partition_minutes, cell: (row) => minutes(row.offline_partition_minutes) },
    { name: "out of ISR partition min", number: true, value: (row) => row.out_of_isr_partition_minutes, cell: (row) => minutes(row.out_of_isr_partition_minutes) },
    { name: "leaders lost", number: true, cell: (row) => row.leader_changes },
    { name: "left ISRs", number: true, cell: (row) => row.isr_shrinks },
    { name: "refused", number: true, cell: (row) => row.refusals },
    { name: "updates", number: true, cell: (row) => row.updates },
    { name: "lag p99 ms", number: true, value: (row) => row.p99_us, cell: (row) => milliseconds(row.p99_us) },
  ], rows));
}

function errorsTable(facts, rows) {
  return makeTable("Errors", [
    { name: "request", value: (row) => row.api_key * 100 + row.api_version, cell: (row) => apiText(facts, row) },
    ...clusterColumn(facts),
    { name: "error", value: (row) => errorText(facts, row.error_code) || row.scope, cell: (row) => (row.error_code === null ? flag("warning", row.scope === "unanswered" ? "unanswered" : "cannot be read") : flag(row.scope === "request" ? "bad" : "", errorText(facts, row.error_code))) },
    { name: "of", cell: (row) => (row.scope === "partition" ? "partitions" : "the whole request") },
    { name: "count", number: true, value: (row) => row.n, cell: (row) => counted(row.n) },
    { name: "brokers", value: (row) => row.brokers_in_all, cell: (row) => row.brokers.join(", ") + (row.brokers_in_all > row.brokers.length ? ` and ${plural(row.brokers_in_all - row.brokers.length, "other")}` : ""), long: true },
    { name: "first", value: (row) => row.first, cell: (row) => requestButton(facts, row.request, clock(row.first), { partition: row.topic === null ? undefined : [row.topic, row.partition] }) },
    { name: "last", value: (row) => row.last, cell: (row) => clock(row.last) },
    { name: "note", long: true, cell: (row) => row.reason ?? "" },
  ], rows, { none: "No error: brokers accepted and answered every request." });
}

// What happened, in order, each with the command that shows it.
function eventsTable(rows) {
  return makeTable("What happened", [
    { name: "time", value: (row) => row.ts, cell: (row) => isoTime(row.ts) },
    { name: "event", cell: (row) => row.event },
    { name: "", cell: (row) => element("span", { title: row.command }, row.text), long: true },
  ], rows, { first: 8 });
}

function flapsTable(rows) {
  if (!rows.length) return null;
  return element("div", {}, element("h3", {}, "Partitions whose leader changed again and again"), makeTable("Flapping partitions", [
    { name: "partition", value: (row) => `${row.topic}-${String(row.partition).padStart(9, "0")}`, long: true, cell: (row) => element("button", { type: "button", class: "plain", onclick: () => searchFor(`${row.topic}-${row.partition}`) }, `${row.topic}-${row.partition}`) },
    { name: "changes", number: true, cell: (row) => row.changes },
    { name: "leaders", cell: (row) => row.leaders.map((id) => (id === NO_LEADER ? "no leader" : id)).join(", "), long: true },
    { name: "between", value: (row) => row.first, cell: (row) => `${clock(row.first, 0).slice(0, 5)} and ${clock(row.last, 0).slice(0, 5)}` },
  ], rows, { first: 6 }));
}

function capturesTable(facts) {
  const rows = facts.captures.map((row, capture) => ({ ...row, capture }));
  const lost = (row) => {
    const found = facts.losses.counts.filter((loss) => loss.capture === row.capture);
    const words = [["partial_starts", "beginning of a message"], ["gaps", "gap"], ["cut_packets", "cut packet"], ["ip_fragments", "IP fragment"], ["bad_checksums", "bad checksum"], ["dropped_packets", "dropped packet"], ["unmatched_responses", "answer without request"], ["tls_connections", "TLS connection"]]
      .map(([name, noun]) => [found.reduce((sum, loss) => sum + loss[name], 0), noun]).filter(([count]) => count).map(([count, noun]) => (noun.includes("without") ? `${counted(count)} ${noun}` : plural(count, noun)));
    return words.length ? flag("warning", words.join(", ")) : "nothing";
  };
  const table = makeTable("Captures", [
    { name: "capture", cell: (row) => row.name, long: true },
    { name: "files", cell: (row) => row.files.join(", "), long: true },
    { name: "format", cell: (row) => row.format },
    { name: "packets", number: true, cell: (row) => counted(row.packets), value: (row) => row.packets },
    { name: "connections", number: true, cell: (row) => counted(row.connections), value: (row) => row.connections },
    { name: "control requests", number: true, cell: (row) => counted(row.requests), value: (row) => row.requests },
    { name: "first", cell: (row) => (row.first === null ? null : `${day(row.first)} ${clock(row.first)}`) },
    { name: "last", cell: (row) => (row.last === null ? null : `${day(row.last)} ${clock(row.last)}`) },
    { name: "lacks", cell: lost, long: true },
  ], rows);
  if (!facts.losses.bad_inputs.length) return table;
  return element("div", {}, table, element("h3", {}, "Pieces that could not be used"), makeTable("Pieces that could not be used", [
    { name: "file", cell: (row) => row.file, long: true },
    { name: "at byte", number: true, value: (row) => row.offset, cell: (row) => (row.offset === null ? "whole file" : counted(row.offset)) },
    { name: "bytes", number: true, value: (row) => row.bytes_skipped, cell: (row) => (row.bytes_skipped === null ? null : counted(row.bytes_skipped)) },
    { name: "reason", cell: (row) => row.reason, long: true },
  ], facts.losses.bad_inputs, { first: 5 }));
}
