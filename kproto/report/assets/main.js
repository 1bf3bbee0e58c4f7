// Reads the facts and makes the page.

performance.mark("kproto-begin");

async function readFacts() {
  if (typeof DecompressionStream === "undefined") throw new Error("This browser is too old to unpack the report; any of the last years will do.");
  const packed = Uint8Array.from(atob(byId("facts").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function tiles(facts, timeline, cluster) {
  const mine = (rows) => rows.filter((row) => cluster < 0 || row.cluster === cluster);
  const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
  let [leaders, isrs, partitions] = [0, 0, 0];
  const topics = new Set();
  timeline.partitions.cluster.forEach((place, row) => {
    if (cluster >= 0 && place !== cluster) return;
    partitions++;
    topics.add(timeline.partitions.topic[row]);
    leaders += timeline.leaderChanges[row];
    isrs += timeline.isrChanges[row];
  });
  const every = cluster < 0 || facts.clusters.length === 1;
  const brokers = mine(facts.brokers);
  const senders = mine(facts.controllers);
  const newest = senders.at(-1);
  const refused = sum(brokers, "refused");
  const zombies = sum(senders, "zombies");
  const tile = (figure, text, bad = false) => element("div", { class: bad ? "tile bad" : "tile" }, element("b", {}, figure), element("span", {}, text));
  byId("tiles").replaceChildren(
    tile(counted(new Set(brokers.map((row) => row.broker_id ?? row.address)).size), "brokers"),
    tile(newest ? `id ${newest.controller_id}` : "–", newest ? `last controller, controller epoch ${newest.controller_epoch}` : "controller"),
    tile(counted(every ? facts.timeline.all_partitions : partitions), `partitions of ${plural(every ? facts.timeline.all_topics : topics.size, "topic")}`),
    tile(counted(sum(brokers, "requests")), "control requests"),
    tile(counted(leaders), "leader changes"),
    tile(counted(isrs), "ISR changes"),
    tile(counted(refused), "requests refused", refused > 0),
    tile(counted(zombies), "from zombie controllers", zombies > 0),
    tile(counted(sum(brokers, "unanswered")), "unanswered", sum(brokers, "unanswered") > 0),
  );
}

function showFindings(facts) {
  byId("findings").append(facts.findings.length
    ? element("ul", {}, ...facts.findings.map((row) => element("li", { class: row.severity }, element("b", {}, { bad: "Trouble", warning: "Warning", note: "Note" }[row.severity]), element("a", { href: `#${row.section}`, onclick: () => chooseRows(row.rows) }, row.text))))
    : element("p", { class: "none" }, "Nothing: every request was accepted and answered, every partition has a leader and all its replicas."));
}

// Where the clusters' times are far apart, one at a time is readable.
function firstCluster(facts) {
  const spans = facts.clusters.filter((row) => row.first !== null).map((row) => [row.first, row.last]).sort((a, b) => a[0] - b[0]);
  if (facts.clusters.length === 1 || spans.length < 2) return -1;
  const covered = spans.reduce((total, [first, last]) => total + last - first, 0);
  if (Math.max(...spans.map(([, last]) => last)) - spans[0][0] < 2 * covered) return -1;
  return facts.clusters.findIndex((row) => row.first === Math.max(...spans.map(([first]) => first)));
}

let searchFor = () => {};
let chooseRows = () => {};

function start(facts) {
  readTheme();
  byId("main").hidden = false;
  document.title = `kproto report: ${facts.captures.map((row) => row.name).join(", ")}`;
  const timeline = new Timeline(facts);
  const controllers = new Controllers(facts);
  const choice = { cluster: firstCluster(facts), text: "", changed: false, troubled: false, order: "name" };
  const bound = () => {
    const rows = facts.clusters.filter((row, place) => row.first !== null && (choice.cluster < 0 || place === choice.cluster));
    if (rows.length) range.bound(Math.min(...rows.map((row) => row.first)), Math.max(...rows.map((row) => row.last)));
  };
  bound();
  timeline.choose(choice);
  controllers.choose(choice.cluster);
  const controllerLanes = new Lanes(byId("controllers-lanes"), controllers, "Controllers by time; arrow keys walk through the stale requests", 320);
  const lanes = new Lanes(byId("timeline-lanes"), timeline, "Partitions by time; arrow keys walk through partitions and their states", 560);
  const rates = new RatesChart(facts, byId("rates-chart"), byId("rates-legend"));
  const lag = new LagChart(facts, byId("lag-chart"), byId("lag-table"));

  const showRange = () => {
    byId("range").textContent = `${day(range.from)} ${clock(range.from)} – ${clock(range.to)} (${duration(range.to - range.from)})`;
    byId("whole").disabled = byId("wider").disabled = byId("earlier").disabled = byId("later").disabled = range.whole;
  };
  range.listeners.push(showRange);
  const showChosen = () => {
    timeline.choose(choice);
    lanes.reset();
    byId("shown").textContent = `${counted(timeline.count)} of ${plural(timeline.partitions.topic.length, "partition")}`;
  };
  const showCluster = () => {
    const mine = (rows) => rows.filter((row) => choice.cluster < 0 || row.cluster === choice.cluster);
    bound();
    controllers.choose(choice.cluster);
    controllerLanes.reset();
    showChosen();
    rates.choose(choice.cluster);
    lag.choose(choice.cluster);
    tiles(facts, timeline, choice.cluster);
    byId("stale").replaceChildren(staleTable(facts, mine(facts.stale)));
    byId("brokers-table").replaceChildren(brokersTable(facts, mine(facts.brokers)));
    byId("errors-table").replaceChildren(errorsTable(facts, mine(facts.errors)));
    byId("weeks").replaceChildren(...[weeksTable(facts.weeks)].filter(Boolean));
    byId("flaps").replaceChildren(...[flapsTable(facts.flaps)].filter(Boolean));
    byId("captures-table").replaceChildren(capturesTable(facts));
    byId("span").textContent = `${facts.captures.map((row) => row.name).join(", ")} · ${day(range.first)} ${clock(range.first, 0)} UTC, ${duration(range.last - range.first)}`;
  };
  showFindings(facts);
  byId("events").append(eventsTable(facts.events));
  byId("cut").replaceChildren(...facts.cut.map((text) => element("li", {}, text)));
  byId("timeline-legend").replaceChildren(...timelineLegend(timeline));
  if (facts.clusters.length > 1) {
    byId("cluster-choice").hidden = false;
    byId("cluster").append(element("option", { value: -1 }, "all"), ...facts.clusters.map((row, place) => element("option", { value: place }, row.name)));
    byId("cluster").value = String(choice.cluster);
    byId("cluster").addEventListener("change", (event) => { choice.cluster = Number(event.target.value); showCluster(); });
  }
  showCluster();

  byId("choice").addEventListener("submit", (event) => event.preventDefault());
  byId("search").addEventListener("input", (event) => { choice.text = event.target.value; showChosen(); });
  byId("changed").addEventListener("change", (event) => { choice.changed = event.target.checked; showChosen(); });
  byId("troubled").addEventListener("change", (event) => { choice.troubled = event.target.checked; showChosen(); });
  byId("order").addEventListener("change", (event) => { choice.order = event.target.value; showChosen(); });
  searchFor = (text) => {
    byId("search").value = choice.text = text;
    showChosen();
    byId("timeline").scrollIntoView();
    byId("search").focus({ preventScroll: true });
  };
  chooseRows = (rows) => {
    if (!rows) return;
    byId("changed").checked = choice.changed = rows === "changed";
    byId("troubled").checked = choice.troubled = rows === "troubled";
    byId("order").value = choice.order = rows === "changed" ? "changes" : "name";
    searchFor("");
  };
  for (const [id, act] of [["earlier", () => range.move(-0.5)], ["later", () => range.move(0.5)], ["closer", () => range.zoom(0.5)], ["wider", () => range.zoom(2)], ["whole", () => range.set(range.first, range.last)]]) {
    byId(id).addEventListener("click", act);
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    lanes.draw();
    controllerLanes.draw();
    rates.make();
    lag.make();
    byId("timeline-legend").replaceChildren(...timelineLegend(timeline));
  });
  requestAnimationFrame(() => {
    performance.measure("kproto-drawn", "kproto-begin");
    document.documentElement.dataset.drawn = "yes";
  });
}

readFacts().then(start).catch((error) => {
  byId("problem").hidden = false;
  byId("problem").textContent = `The report cannot be shown. ${error.message}`;
  throw error;
});
