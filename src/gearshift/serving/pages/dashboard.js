"use strict";
// Asks the server once a second and draws the last ten minutes. Texts are set as text, never as HTML.
const KEPT_S = 600;
const WINDOW_S = 10;
const byId = (id) => document.getElementById(id);
const history = new Map();
let key = sessionStorage.getItem("key") || "";
let promise = null, plan = "", ticks = 0, before = null;

async function ask(path, options = {}) {
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...options.headers };
  const answer = await fetch(path, { cache: "no-store", ...options, headers });
  if (answer.ok) return answer;
  let text = `the server answers ${answer.status}`;
  try { text = (await answer.json()).error || text; } catch { /* no JSON */ }
  throw Object.assign(new Error(text), { status: answer.status });
}

function readMetrics(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match || line.startsWith("#")) continue;
    const labels = {};
    for (const [, name, value] of (match[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    found.push({ name: match[1], labels, value: Number(match[3]) });
  }
  return found;
}

function bucketsOf(metrics, pipeline) {
  const buckets = new Map();
  for (const { name, labels, value } of metrics) {
    if (name !== "gearshift_request_latency_seconds_bucket" || labels.operator !== pipeline) continue;
    const edge = labels.le === "+Inf" ? Infinity : Number(labels.le);
    buckets.set(edge, (buckets.get(edge) || 0) + value);
  }
  return buckets;
}

// The latency below which a share of the answers since `old` lie, between the edges of a bucket.
function percentile(now, old, share) {
  const edges = [...now.keys()].sort((a, b) => a - b);
  const counts = edges.map((edge) => now.get(edge) - ((old && old.get(edge)) || 0));
  const total = counts.at(-1) || 0;
  if (total <= 0) return null;
  const place = counts.findIndex((count) => count >= share * total);
  if (edges[place] === Infinity) return edges[place - 1];
  const below = place > 0 ? counts[place - 1] : 0, from = place > 0 ? edges[place - 1] : 0;
  return from + (edges[place] - from) * (share * total - below) / Math.max(1, counts[place] - below);
}

const ms = (s) => (s == null ? "-" : s < 0.01 ? `${(s * 1e3).toFixed(1)} ms` : `${Math.round(s * 1e3)} ms`);
const percent = (share) => (share == null || Number.isNaN(share) ? "-" : `${(share * 100).toFixed(1)} %`);
const number = (value) => (value == null ? "-" : value < 10 ? value.toFixed(1) : Math.round(value).toString());

// A minute fills the chart at first, and then all that is kept.
const stepOf = (points) => 600 / Math.max(60, points.length);

function pathOf(points, top, height, name) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  let drawn = "", open = false;
  points.forEach((value, i) => {
    if (value == null) { open = false; return; }
    const x = 600 - (points.length - 1 - i) * stepOf(points), y = height - 4 - (value / top) * (height - 8);
    drawn += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = true;
  });
  path.setAttribute("d", drawn || "M0 0");
  path.setAttribute("class", name);
  return path;
}

function draw(svg, lines, format, gears) {
  const height = svg.viewBox.baseVal.height;
  const top = Math.max(...lines.flatMap(([points]) => points.filter((value) => value != null)), 1e-9);
  const shapes = [];
  if (gears) {
    const last = Math.max(1, ...gears.map((gear) => gear.last));
    gears.forEach(({ gear }, i) => {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const tall = (gear / last) * (height - 8);
      rect.setAttribute("class", "gear");
      rect.setAttribute("x", (600 - (gears.length - i) * stepOf(gears)).toFixed(1));
      rect.setAttribute("width", stepOf(gears).toFixed(2));
      rect.setAttribute("y", (height - tall).toFixed(1));
      rect.setAttribute("height", tall.toFixed(1));
      shapes.push(rect);
    });
  }
  svg.replaceChildren(...shapes, ...lines.map(([points, name]) => pathOf(points, top, height, name)));
  let said = svg.parentElement.querySelector(".top");
  if (!said) {
    said = document.createElement("span");
    said.className = "top";
    svg.parentElement.querySelector("figcaption").append(said);
  }
  said.textContent = `up to ${format(top)}`;
  svg.setAttribute("aria-label", `${svg.parentElement.querySelector("figcaption").textContent}`);
}

function facts(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([name, value, bad]) => {
    const term = document.createElement("dt"), said = document.createElement("dd"), both = document.createElement("div");
    term.textContent = name; said.textContent = value; said.className = bad ? "bad" : "";
    both.append(term, said);
    return [both];
  }));
}

function cellsOf(row, texts) {
  row.replaceChildren(...texts.map((text) => { const cell = document.createElement("td"); cell.textContent = text; return cell; }));
  return row;
}

function sectionOf(name) {
  let section = byId(`of-${name}`);
  if (!section) {
    section = byId("pipeline").content.cloneNode(true).querySelector("section");
    section.id = `of-${name}`;
    section.querySelector("h2").textContent = name;
    byId("pipelines").append(section);
    const option = document.createElement("option");
    option.value = option.textContent = name;
    byId("steered").append(option);
  }
  return section;
}

function showPipeline(each, metrics) {
  const section = sectionOf(each.name);
  const past = history.get(each.name) || [];
  history.set(each.name, past);
  const buckets = bucketsOf(metrics, each.name);
  const old = past.slice(-WINDOW_S).find((one) => one.buckets)?.buckets;
  const p50 = old ? percentile(buckets, old, 0.5) : null, p95 = old ? percentile(buckets, old, 0.95) : null;
  past.push({ load: each.load, rate: each.rate_qps, gear: each.gear, last: each.last_gear, waiting: each.waiting, p50, p95, buckets });
  if (past.length > KEPT_S) past.shift();
  const mine = promise?.pipelines.find((one) => one.name === each.name);
  const goal = mine?.objective.latency_s, gear = mine?.gears[each.gear];
  const cascades = Object.entries(each.cascades);
  section.querySelector(".cascade").textContent = cascades
    .map(([node, all]) => (cascades.length > 1 ? `${node}: ` : "") + all.map((one) => one.models.join(" > ")).join(", ")).join("; ");
  facts(section.querySelector(".facts"), [
    ["gear", `${each.gear} of 0 to ${each.last_gear}${each.pinned ? ", pinned" : ""}`],
    ["arrivals", `${number(each.rate_qps)}/s`],
    ["load", `${number(each.load)}/s`],
    ["waiting", `${each.waiting} of ${each.most_waiting}`, each.waiting >= each.most_waiting],
    ["p95 now", ms(p95), goal != null && p95 > goal],
    ["p95 planned", ms(mine?.predicted?.latency_s.p95)],
    ["objective", goal == null ? "-" : `p${Math.round(mine.objective.percentile * 100)} ${ms(goal)}`],
    ["accuracy, predicted", percent(gear?.accuracy ?? mine?.predicted?.accuracy)],
  ]);
  draw(section.querySelector("svg.load"), [[past.map((one) => one.rate), "first"], [past.map((one) => one.load), "second"]], (top) => `${number(top)}/s`, past);
  const goals = goal == null ? [] : [[past.map(() => goal), "goal"]];
  draw(section.querySelector("svg.latency"), [[past.map((one) => one.p95), "p95"], [past.map((one) => one.p50), "p50"], ...goals], ms);
  draw(section.querySelector("svg.waiting"), [[past.map((one) => one.waiting), "first"]], (top) => number(top));
}

function showReplicas(status, metrics, passed_s) {
  const busy = new Map(metrics.filter((one) => one.name === "gearshift_device_busy_seconds_total").map((one) => [one.labels.device, one.value]));
  const shares = (devices) => devices.map((device) => (before && passed_s > 0 ? percent(Math.min(1, (busy.get(device) - before.busy.get(device)) / passed_s)) : "-")).join(", ");
  byId("replicas").replaceChildren(...status.replicas.map((one) => cellsOf(document.createElement("tr"),
    [one.id, one.model, one.devices.join(", "), one.ready ? "yes" : "no", one.waiting, one.running, shares(one.devices)])));
  before = { busy, at: performance.now() };
}

function showEvents(events) {
  byId("events").replaceChildren(...events.reverse().map(({ number, at, event, ...rest }) => {
    const item = document.createElement("li");
    const told = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
    item.textContent = `${new Date(at * 1e3).toLocaleTimeString()} ${event}${told ? `: ${told}` : ""}`;
    return item;
  }));
}

function say(text, bad) {
  byId("state").textContent = text;
  byId("state").className = bad ? "bad" : "";
}

async function tick() {
  try {
    const [status, metrics] = await Promise.all([
      ask("/v2/gearshift/status").then((answer) => answer.json()),
      ask("/metrics").then((answer) => answer.text()).then(readMetrics),
    ]);
    if (status.plan.sha256 !== plan || !promise) {
      promise = await (await ask("/v2/gearshift/promise")).json();
      plan = status.plan.sha256;
    }
    byId("key-form").hidden = true;
    say(`${status.state}, plan ${status.plan.path || "without a file"}, up ${Math.round(status.uptime_s)} s`, status.state !== "serving");
    for (const each of status.pipelines) showPipeline(each, metrics);
    showReplicas(status, metrics, before ? (performance.now() - before.at) / 1e3 : 0);
    if (ticks++ % 2 === 0) showEvents(await (await ask("/v2/gearshift/events")).json());
  } catch (error) {
    if (error.status === 401) byId("key-form").hidden = false;
    say(error.status ? error.message : "the server does not answer; asking again", true);
    for (const past of history.values()) past.push({ load: null, rate: null, gear: 0, last: 1, waiting: null, p50: null, p95: null, buckets: null });
    before = null;
  } finally {
    setTimeout(tick, 1000);
  }
}

async function steer(question, path, body) {
  if (!confirm(question)) return;
  const result = byId("steered-result"), headers = { "Content-Type": "application/json" };
  const admin = byId("admin-key").value;
  if (admin) headers.Authorization = `Bearer ${admin}`;
  try {
    await ask(path, { method: "POST", body: JSON.stringify(body), headers });
    result.textContent = "done"; result.className = "";
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
byId("pin").addEventListener("click", () => steer(`Keep gear ${byId("gear").value} at any load?`, "/v2/gearshift/gear", { pin: Number(byId("gear").value), ...steered() }));
byId("free").addEventListener("click", () => steer("Let the load choose the gear again?", "/v2/gearshift/gear", { pin: null, ...steered() }));
byId("drain").addEventListener("click", () => steer("Refuse new requests from now on?", "/v2/gearshift/drain", {}));
byId("undo").addEventListener("click", () => steer("Let new requests in again?", "/v2/gearshift/drain", { undo: true }));
byId("swap").addEventListener("click", () => steer(`Put plan ${byId("plan").value} in force?`, "/v2/gearshift/swap", { plan: byId("plan").value }));
tick();
