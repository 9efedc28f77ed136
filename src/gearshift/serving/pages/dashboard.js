"use strict";
// Reads a stream of looks at the server and draws ten minutes of them. Texts are set as text, never as HTML.
const KEPT = 600, LONGEST_SILENCE_MS = 5000, MOST_EVENTS = 100, NS = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const past = new Map(), drawn = new Map(), kinds = new Map();
let key = sessionStorage.getItem("key") || "", seen = "", promise = null, plan = null, look = null, events = [];

async function ask(path, options = {}) {
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...options.headers };
  const answer = await fetch(path, { cache: "no-store", ...options, headers });
  if (answer.ok) return answer;
  let text = `the server answers ${answer.status}`;
  try { text = (await answer.json()).error || text; } catch { /* no JSON */ }
  throw Object.assign(new Error(text), { status: answer.status });
}

const time = (s) => (s == null ? "-" : s < 0.01 ? `${(s * 1e3).toFixed(1)} ms` : s < 1 ? `${Math.round(s * 1e3)} ms` : `${s.toFixed(2)} s`);
const percent = (share) => (share == null || Number.isNaN(share) ? "-" : `${(share * 100).toFixed(1)} %`);
const number = (value) => (value == null ? "-" : Number.isInteger(value) ? String(value) : value < 10 ? value.toFixed(1) : Math.round(value).toString());
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

// What is shown is made anew only where it has changed: an idle server costs its viewers little.
const shown = new WeakMap();
function changes(element, of) {
  const told = JSON.stringify(of);
  if (shown.get(element) === told) return false;
  shown.set(element, told);
  return true;
}

function make(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// Charts -------------------------------------------------------------------------------------------

// A chart is drawn as often as it moves by four pixels. Lines are broken where looks are missing; it is as wide as the time that is known, a minute at least.
function pathOf(moments, valueOf, top, height, span, kind) {
  const now = moments.at(-1)[0];
  let drawn = "", before = null;
  for (const moment of moments) {
    const value = valueOf(moment);
    if (value == null) { before = null; continue; }
    const x = (600 - (now - moment[0]) * 600 / span).toFixed(1), y = (height - 2 - (value / top) * (height - 8)).toFixed(1);
    drawn += `${before != null && moment[0] - before < 3 ? "L" : "M"}${x} ${y}`;
    before = moment[0];
  }
  return shape(drawn, kind);
}

function gearsOf(moments, last, height, span) {
  const now = moments.at(-1)[0];
  let drawn = `M0 ${height}`;
  for (const [at, , , gear] of moments) drawn += `H${(600 - (now - at) * 600 / span).toFixed(1)}V${(height - (gear / Math.max(1, last)) * (height - 8)).toFixed(1)}`;
  return shape(`${drawn}V${height}Z`, "gears");
}

function shape(drawn, kind) {
  const path = document.createElementNS(NS, "path");
  path.setAttribute("d", drawn || "M0 0");
  path.setAttribute("class", kind);
  return path;
}

function draw(section, name, moments, lines, format, under = () => []) {
  const svg = section.querySelector(`svg.${name}`), height = svg.viewBox.baseVal.height, caption = svg.parentElement.querySelector("figcaption");
  const span = Math.max(60, moments.at(-1)[0] - moments[0][0]);
  const top = Math.max(...lines.flatMap(([valueOf]) => moments.map(valueOf)).filter((value) => value != null), 1e-9);
  svg.replaceChildren(...under(height, span), ...lines.map(([valueOf, kind]) => pathOf(moments, valueOf, top, height, span, kind)));
  caption.querySelector(".top").textContent = top > 1e-9 ? `0 to ${format(top)}` : "";
  svg.setAttribute("aria-label", caption.textContent);
  return span;
}

// Tables -------------------------------------------------------------------------------------------

// A column is a number where its name begins with "#".
function tableOf(title, columns, rows) {
  const made = document.createElement("table"), head = document.createElement("tr");
  made.append(make("caption", title));
  head.append(...columns.map((name) => make("th", name.replace("#", ""), name.startsWith("#") ? "n" : "")));
  made.append(head, ...rows.map((cells) => rowOf(cells, columns)));
  const scroll = make("div", "", "scroll");
  scroll.append(made);
  return scroll;
}

function rowOf(cells, columns) {
  const row = document.createElement("tr");
  row.append(...cells.map((cell, i) => make("td", cell?.text ?? cell, (columns[i].startsWith("#") ? "n" : "") + (cell?.bad ? " bad" : ""))));
  return row;
}

const NAMES = { latency: "latency", ttft: "first token", per_token: "per token", total: "latency" };
const UNITS = { drain_s: "s of work", outstanding_requests: "requests at engines" };
function timesTable(now, mine) {
  const goal = mine?.objective, of = goal?.metric || "latency", planned = mine?.predicted;
  const kinds = [["latency", now.latency, planned?.tokens?.total_s || planned?.latency_s]];
  if (now.ttft) kinds.unshift(["ttft", now.ttft, planned?.tokens?.ttft_s], ["per_token", now.per_token, planned?.tokens?.per_token_s]);
  const rows = kinds.flatMap(([kind, times, plan]) => ["p50", "p95", "p99"].map((name, i) => {
    const asked = goal?.latency_s != null && Math.round(goal.percentile * 100) === Number(name.slice(1)) && NAMES[of] === NAMES[kind];
    const over = asked && times[i] != null && times[i] > goal.latency_s;
    return [`${now.ttft ? `${NAMES[kind]} ` : ""}${name}`, { text: time(times[i]), bad: over }, time(plan?.[name]), asked ? time(goal.latency_s) : ""];
  }));
  const columns = ["time", "#now", "#predicted", "#objective"], told = [true, true, rows.some((row) => row[2] !== "-"), rows.some((row) => row[3])];
  const kept = (cells) => cells.filter((_, i) => told[i]);
  const title = `Times of the last ${number(now.window_s)} s${told[2] ? ", beside those that the plan predicts of its trace" : ""}`;
  return tableOf(title, kept(columns), rows.map(kept));
}

function auditTable(world) {
  const rows = world.disagreement.map((one) => [
    `${one.gear}, stage ${one.stage}`, one.model, number(one.audited),
    { text: `${percent(one.low)} to ${percent(one.high)}`, bad: one.alarm !== "" },
    one.planned_low == null ? "-" : `${percent(one.planned_low)} to ${percent(one.planned_high)}`, { text: one.alarm || "within", bad: one.alarm !== "" },
  ]);
  return tableOf("Accuracy audit: early answers that the strongest model disagrees with", ["gear", "model", "#audited", "#disagree", "#planned", "verdict"], rows);
}

function tablesOf(each, now, mine) {
  const made = [timesTable(now, mine)], total = sum(now.answered_by);
  const nodes = Object.entries(now.nodes);
  if (nodes.length > 1) made.push(tableOf("Nodes", ["node", "#items/s", "#mean time", "#failed"], nodes.map(([name, one]) => [name, number(one.items_qps), time(one.mean_s), { text: number(one.failed), bad: one.failed > 0 }])));
  if (total > 0) made.push(tableOf("Who answers", ["model", "#share", now.ttft ? "#answers" : nodes.length > 1 ? "#items" : "#rows"], Object.entries(now.answered_by).map(([model, count]) => [model, percent(count / total), number(count)])));
  if (each.adapting?.disagreement.length) made.push(auditTable(each.adapting));
  return made;
}

// What is shown ------------------------------------------------------------------------------------

function movedOf(each, status) {
  const world = each.adapting, told = [];
  if (world?.load_drifts) told.push(`load has drifted: ${percent(world.load_distance)} of the time it is elsewhere than planned`);
  if (world && world.load_factor !== 1) told.push(`load is multiplied by ${world.load_factor.toFixed(2)}`);
  for (const model of world?.slow_or_fast_models || []) told.push(`run times of ${model} are not as profiled`);
  for (const model of status.degraded_models || []) told.push(`${model} has no replica that answers`);
  if (each.replan?.running) told.push("a plan for the load of now is being made");
  if (each.replan?.offered) told.push(`a plan for the load of now is offered: ${each.replan.offered}`);
  return told.join("; ");
}

function facts(list, pairs) {
  if (!changes(list, pairs)) return;
  list.replaceChildren(...pairs.filter((pair) => pair).map(([name, value, bad]) => {
    const both = document.createElement("div");
    both.append(make("dt", name), make("dd", value, bad ? "bad" : ""));
    return both;
  }));
}

function sectionOf(name) {
  const found = byId(`of-${name}`);
  if (found) return found;
  const section = byId("pipeline").content.cloneNode(true).querySelector("section");
  section.id = `of-${name}`;
  section.querySelector("h2").textContent = name;
  byId("pipelines").append(section);
  const option = make("option", name);
  option.value = name;
  byId("steered").append(option);
  return section;
}

function showPipeline(each, now, status) {
  const section = sectionOf(each.name), moments = past.get(each.name) || [];
  const mine = promise?.pipelines.find((one) => one.name === each.name), gear = mine?.gears[each.gear], goal = mine?.objective;
  const cascades = Object.entries(each.cascades), unit = each.load_unit ? UNITS[each.load_unit] || each.load_unit.replaceAll("_", " ") : "";
  section.querySelector(".cascade").textContent = cascades
    .map(([node, all]) => (cascades.length > 1 ? `${node}: ` : "") + all.map((one) => one.models.join(" > ")).join(" or ")).join("; ");
  const moved = section.querySelector(".moved"), told = movedOf(each, status);
  moved.textContent = told; moved.hidden = told === "";
  const answered = (now.outcomes.answered || 0) + (now.outcomes.degraded || 0) + (now.outcomes.late || 0), refused = now.outcomes.refused || 0;
  const language = now.ttft != null, goalName = goal && `p${Math.round(goal.percentile * 100)}${language ? ` ${NAMES[goal.metric || "latency"]}` : ""}`;
  facts(section.querySelector(".facts"), [
    ["gear", `${each.gear} of 0 to ${each.last_gear}${each.pinned ? ", pinned" : ""}`],
    ["arrivals", `${number(each.rate_qps)}/s`],
    ["load", unit ? `${number(each.load)} ${unit}` : `${number(each.load)}/s`],
    ["waiting", `${each.waiting} of ${each.most_waiting}`, each.waiting >= each.most_waiting],
    ["objective", goal?.latency_s == null ? "-" : `${goalName} ${time(goal.latency_s)}`],
    ["accuracy, predicted", percent(gear?.accuracy ?? mine?.predicted?.accuracy)],
    ["answered in 10 s", number(answered)],
    ["refused", `${number(refused)}${refused ? ` (${Object.entries(now.dropped).filter(([, count]) => count).map(([why]) => why.replaceAll("_", " ")).join(", ")})` : ""}`, refused > 0],
    ["late", number(now.late), now.late > 0],
    (now.outcomes.failed || 0) > 0 && ["failed", number(now.outcomes.failed), true],
    language && ["tokens", `${number(now.tokens_qps)}/s`],
  ]);
  section.querySelector(".arrivals").hidden = unit !== "";
  section.querySelector(".unit").textContent = unit ? `in ${unit}` : "per second";
  const wide = moments.length > 0 ? moments.at(-1)[0] - moments[0][0] : 0;
  if (moments.length > 0 && !document.hidden && look.at - (drawn.get(each.name) || 0) > wide / 150) {
    drawn.set(each.name, look.at);
    const span = draw(section, "load", moments, [[(m) => m[1], "second"], ...(unit ? [] : [[(m) => m[2], "first"]])], number, (height, wide) => [gearsOf(moments, each.last_gear, height, wide)]);
    const goals = goal?.latency_s == null ? [] : [[() => goal.latency_s, "goal"]];
    draw(section, "latency", moments, [[(m) => m[6], "first"], [(m) => m[5], "second"], ...goals], time);
    section.querySelector(".metric").textContent = NAMES[goal?.metric || "latency"];
    section.querySelector("b.goal").hidden = goals.length === 0;
    draw(section, "waiting", moments, [[(m) => m[4], "first"]], number);
    section.querySelector(".from").textContent = span > 90 ? `${Math.round(span / 60)} minutes ago` : `${Math.round(span)} s ago`;
  }
  const tables = section.querySelector(".tables");
  if (changes(tables, [{ ...now, tokens_qps: 0 }, each.adapting, plan])) tables.replaceChildren(...tablesOf(each, now, mine));
}

const REPLICA = ["", "", "", "", "#", "#", "#"];
function showReplicas(status, busy) {
  if (!changes(byId("replicas"), [status.replicas, busy])) return;
  const share = (device) => (device in busy ? percent(busy[device]) : "-");
  byId("replicas").replaceChildren(...status.replicas.map((one) => rowOf(
    [one.id, one.model, one.devices.join(", "), { text: !one.ready ? "no" : one.failing ? "failing" : "yes", bad: !one.ready || one.failing }, number(one.waiting), number(one.running), one.devices.map(share).join(", ")], REPLICA)));
}

function showEvents() {
  byId("events").replaceChildren(...events.slice(-MOST_EVENTS).reverse().map(({ number: _, at, event, ...rest }) => {
    const told = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
    const item = make("li", "");
    item.append(make("time", new Date(at * 1e3).toLocaleTimeString()), ` ${event}${told ? `: ${told}` : ""}`);
    return item;
  }));
}

function say(text, bad) {
  byId("state").textContent = text;
  byId("state").className = bad ? "bad" : "";
}

async function show(seenNow) {
  look = seenNow;
  const { at, status } = look;
  seen = String(at);
  if (plan !== status.plan.sha256 || promise == null) {
    promise = await (await ask("/v2/gearshift/promise")).json();
    plan = status.plan.sha256;
  }
  for (const { name, load_unit: unit } of status.pipelines) {
    const kind = `${unit || ""} ${promise.pipelines.find((one) => one.name === name)?.objective?.metric || ""}`;
    if (kinds.get(name) !== kind) { past.delete(name); drawn.delete(name); }
    kinds.set(name, kind);
  }
  for (const [name, moments] of Object.entries(look.past)) {
    const kept = past.get(name) || [];
    kept.push(...moments);
    past.set(name, kept.slice(-KEPT));
  }
  if (look.events.length > 0) {
    events = [...events, ...look.events].slice(-MOST_EVENTS);
    showEvents();
  }
  byId("key-form").hidden = true;
  const file = status.plan.path.split("/").pop();
  byId("state").title = status.plan.path;
  say(`${status.state}, plan ${file || "without a file"}, up ${duration(status.uptime_s)}`, status.state !== "serving");
  for (const each of status.pipelines) showPipeline(each, look.last_10_s[each.name], status);
  showReplicas(status, look.busy);
}

const duration = (s) => (s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`);

// The stream ---------------------------------------------------------------------------------------

// `fetch` and not `EventSource`, which cannot send a key. A server behind front ends gives one look at a time.
async function watch() {
  const over = new AbortController();
  let silent = setTimeout(() => over.abort(), LONGEST_SILENCE_MS);
  const heard = () => { clearTimeout(silent); silent = setTimeout(() => over.abort(), LONGEST_SILENCE_MS); };
  try {
    const answer = await ask("/v2/gearshift/live", { headers: { Accept: "text/event-stream", ...(seen && { "Last-Event-ID": seen }) }, signal: over.signal });
    if (!answer.headers.get("content-type").startsWith("text/event-stream")) { await show(await answer.json()); return; }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the stream ended");
      heard();
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
        if (data) await show(JSON.parse(data));
      }
    }
  } catch (error) {
    if (error.status === 401) byId("key-form").hidden = false;
    say(error.status ? error.message : "the server does not answer; asking again", true);
  } finally {
    clearTimeout(silent);
    over.abort();
  }
}

async function watchOn() {
  for (;;) {
    await watch();
    await new Promise((done) => setTimeout(done, 1000));
  }
}

// Steering -----------------------------------------------------------------------------------------

function agreed(question) {
  const dialog = byId("question");
  dialog.querySelector("p").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true }));
}

async function steer(question, path, body) {
  if (!await agreed(question)) return;
  const result = byId("steered-result"), headers = { "Content-Type": "application/json" };
  const admin = byId("admin-key").value;
  if (admin) headers.Authorization = `Bearer ${admin}`;
  result.textContent = "asking"; result.className = "";
  try {
    await ask(path, { method: "POST", body: JSON.stringify(body), headers });
    result.textContent = "done";
  } catch (error) {
    result.textContent = error.message; result.className = "bad";
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value;
  sessionStorage.setItem("key", key);
});
const steered = () => (byId("steered").length > 1 ? { pipeline: byId("steered").value } : {});
const of = () => (byId("steered").length > 1 ? ` of ${byId("steered").value}` : "");
const press = (id, question, path, body) => byId(id).addEventListener("click", () => steer(question(), path, body()));
press("pin", () => `Keep gear ${byId("gear").value}${of()} at any load?`, "/v2/gearshift/gear", () => ({ pin: Number(byId("gear").value), ...steered() }));
press("free", () => `Let the load choose the gear${of()} again?`, "/v2/gearshift/gear", () => ({ pin: null, ...steered() }));
press("drain", () => "Refuse new requests from now on?", "/v2/gearshift/drain", () => ({}));
press("undo", () => "Let new requests in again?", "/v2/gearshift/drain", () => ({ undo: true }));
press("swap", () => `Put plan ${byId("plan").value} in force?`, "/v2/gearshift/swap", () => ({ plan: byId("plan").value }));
watchOn();
