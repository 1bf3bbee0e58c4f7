// The sheet that shows a request: what it told, its fields, the command that shows it, and it as JSON.

// The place of a body that the page does not hold.
const LEFT_OUT = -2;

// `about` may have: title; told, rows of [name, text]; partition, [topic, number]; earlier and later, to step.
function openRequest(facts, place, about) {
  const sheet = byId("request");
  const asked = place < 0 ? null : requestForm(facts, place);
  const title = asked === null ? about.title ?? "Request" : `${asked.api} v${asked.api_version} to ${asked.broker_id === null ? asked.server : `broker ${asked.broker_id}`}`;
  const step = (name, text, go) => element("button", { type: "button", disabled: !go, title: name, "aria-label": name, onclick: go || (() => {}) }, text);
  const list = (rows) => element("dl", {}, ...rows.filter(([, text]) => text !== null).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, cellOf(text))]));
  const command = asked === null ? [] : inspectCommand(facts, place, about.partition);
  const copied = element("button", { type: "button", onclick: () => copy(command.join(" "), copied) }, "Copy");
  const closing = element("button", { type: "button", autofocus: true, onclick: () => sheet.close() }, "Close");
  sheet.replaceChildren(element("div", { class: "sheet" },
    element("header", {}, element("h2", { id: "request-title" }, title),
      element("div", { class: "steps" }, about.told ? step("Earlier state", "◀", about.earlier) : null, about.told ? step("Later state", "▶", about.later) : null, closing)),
    about.told ? element("h3", {}, about.title) : null,
    about.told ? list(about.told) : null,
    asked === null ? element("p", {}, "The request is not in the tables.") : null,
    asked === null ? null : element("h3", {}, "Request"),
    asked === null ? null : list([
      ["Time", `${day(facts.requests.ts[place])} ${clock(facts.requests.ts[place], 6)} UTC`],
      ["Controller", asked.controller_id === null ? "unknown" : `${asked.controller_id}, epoch ${asked.controller_epoch}`],
      ["Broker", `${asked.broker_id === null ? "" : `${asked.broker_id} at `}${asked.server}${asked.broker_epoch === null || asked.broker_epoch < 0 ? "" : `, epoch ${asked.broker_epoch}`}`],
      ["Answer", answerNode(facts, place)],
      ["Partitions named", facts.requests.n_partitions[place] === null ? null : counted(facts.requests.n_partitions[place])],
      facts.captures.length > 1 ? ["Capture", facts.captures[facts.requests.capture[place]].name] : ["", null],
    ]),
    asked === null ? null : element("header", {}, element("h3", {}, "See it in the capture"), copied),
    asked === null ? null : element("pre", { class: "command", tabindex: "0" }, ...command.flatMap((word) => [element("span", {}, word), " "])),
    asked === null ? null : element("h3", {}, "As JSON"),
    asked !== null && facts.requests.request[place] === LEFT_OUT ? element("p", { class: "hint" }, "Its body is too large for this page; the command shows it.") : null,
    asked === null ? null : element("pre", { class: "json", tabindex: "0" }, JSON.stringify(asked, null, 2)),
  ));
  if (!sheet.open) sheet.showModal();
  closing.focus();
}

function answerNode(facts, place) {
  const { error_code: codes, latency_us: latencies, unmatched_reason: unmatched, decode_error: unreadable } = facts.requests;
  const after = latencies[place] === null ? "" : ` after ${duration(latencies[place])}`;
  if (unreadable[place] !== null) return flag("warning", `cannot be read: ${unreadable[place]}`);
  if (unmatched[place] !== null) return flag("warning", `none: ${unmatched[place]}`);
  if (codes[place]) return flag("bad", `refused${after}: ${errorText(facts, codes[place])}`);
  return `accepted${after}`;
}

// A request as `kproto inspect --format json` gives it, as far as this page knows it.
function requestForm(facts, place) {
  const { requests } = facts;
  const at = (name) => requests[name][place];
  const body = (place) => (place < 0 ? null : structuredClone(requests.bodies[place]));
  const request = body(at("request"));
  // Bodies that differ in the broker epoch alone are kept once.
  if (request && "brokerEpoch" in request) request.brokerEpoch = at("broker_epoch");
  return {
    time: isoTime(at("ts")),
    server: at("server"),
    api: facts.apis[at("api_key")] ?? String(at("api_key")),
    api_key: at("api_key"),
    api_version: at("api_version"),
    correlation_id: at("correlation_id"),
    client_id: at("client_id"),
    request,
    response: body(at("response")),
    latency_ms: at("latency_us") === null ? null : at("latency_us") / 1000,
    broker_id: at("broker_id"),
    controller_id: at("controller_id"),
    controller_epoch: at("controller_epoch"),
    broker_epoch: at("broker_epoch"),
    error_code: at("error_code"),
    error_name: at("error_code") === null ? null : errorText(facts, at("error_code")),
  };
}

// A file's name or a topic as a word of a shell's command line, whatever is in it.
const quoted = (text) => (/^[\w@%+=:,./][\w@%+=:,./-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// The words of the command line that shows a request.
function inspectCommand(facts, place, partition) {
  const { requests } = facts;
  const file = requests.file[place] ?? facts.captures[requests.capture[place]].name;
  const words = ["kproto", "inspect", quoted(file.startsWith("-") ? `./${file}` : file), "--since", isoTime(requests.ts[place]), "--until", isoTime(requests.ts[place] + 1),
    "--api", facts.apis[requests.api_key[place]] ?? requests.api_key[place]];
  if (partition) words.push(`--partition=${quoted(`${partition[0]}-${partition[1]}`)}`);
  return [...words, "--format", "json"];
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const command = byId("request").querySelector("pre.command");
    window.getSelection().selectAllChildren(command);
    button.textContent = "Selected";
  }
}
