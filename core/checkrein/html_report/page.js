"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const make = (tag, text = "", name = "") => {
  const node = document.createElement(tag);
  node.textContent = text;
  node.className = name;
  return node;
};

// A row: [at (ms since the beginning), phase, step, what, state, us, nano-dollars, tokens,
// attempt, cost state, verdict, undo, arguments, result, detail]; phase, what and state are
// positions in `names`.
const [AT, PHASE, STEP, WHAT, STATE, US, COST, TOKENS, ATTEMPT, PRICED, VERDICT, UNDO, ARGS, RESULT, DETAIL] =
  Array(15).keys();
const rows = data.rows;
const names = data.names;
const GOOD = new Set(["done", "answered"]);
const BAD = new Set(["denied", "unknown", "not_done"]);

const dollars = (nano) => "$" + (nano / 1e9).toFixed(6).replace(/\.?0+$/, "");
const took = (us) => (us === null ? "" : us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : (us / 1e3).toFixed(1) + " ms");
const clock = (ms) => "+" + (ms / 1000).toFixed(2) + "s";
const tone = (state) => (GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : state ? "wait" : "");

function fill(list, pairs) {
  list.replaceChildren();
  for (const [name, value] of pairs) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(make("dt", name), make("dd", String(value)));
  }
}

$("title").textContent = data.title;
fill($("facts"), data.facts);
for (const [value, label] of [[dollars(data.cost), "cost"], ...data.cards]) {
  const card = make("div", "", "card");
  card.append(make("b", value), make("span", label));
  $("cards").append(card);
}

function sums(key, value, keep = () => true) {
  const total = new Map();
  for (const row of rows) {
    if (!keep(row)) continue;
    const name = key(row);
    if (name) total.set(name, (total.get(name) || 0) + value(row));
  }
  return [...total].filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
}

function figure(caption) {
  const node = document.createElement("figure");
  node.append(make("figcaption", caption));
  $("charts").append(node);
  return node;
}

function bars(caption, entries, shown) {
  if (!entries.length) return;
  const node = figure(caption);
  for (const [name, value] of entries.slice(0, 8)) {
    const bar = make("div", "", "bar");
    const meter = document.createElement("meter");
    meter.max = entries[0][1];
    meter.value = value;
    bar.append(make("span", name), meter, make("span", shown(value), "number"));
    node.append(bar);
  }
  if (entries.length > 8) node.append(make("div", `and ${entries.length - 8} more`, "more"));
}

function curve(caption) {
  const points = [];
  let total = 0;
  for (const row of rows) {
    if (!row[COST]) continue;
    total += row[COST];
    points.push([row[AT], total]);
  }
  if (points.length < 2) return;
  const last = Math.max(...[points[points.length - 1][0], 1]);
  const every = Math.ceil(points.length / 600);
  const drawn = points.filter((_, i) => i % every === 0 || i === points.length - 1);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 600 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", caption + ": " + dollars(total));
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const at = ([x, y]) => `${((x / last) * 600).toFixed(1)},${(98 - (y / total) * 94).toFixed(1)}`;
  line.setAttribute("points", ["0,98", ...drawn.map(at)].join(" "));
  svg.append(line);
  figure(`${caption}: ${dollars(total)} in ${(last / 1000).toFixed(1)} s`).append(svg);
}

const named = (kind) => (row) => names[kind][row[kind === "what" ? WHAT : kind === "state" ? STATE : PHASE]];
const isCall = (row) => ["call", "check"].includes(names.phase[row[PHASE]]) && row[STEP] !== null;
curve("Cost over time");
bars("Cost", sums(named("what"), (row) => row[COST] || 0), dollars);
bars("Outcomes of calls", sums(named("state"), () => 1, isCall), String);
bars("Time", sums(named("what"), (row) => row[US] || 0, isCall), took);
bars("Verdicts", data.verdicts, String);
bars("Undo", sums(named("state"), () => 1, (row) => names.phase[row[PHASE]] === "undo"), String);

for (const [id, kind] of [["phase", "phase"], ["outcome", "state"]]) {
  $(id).append(new Option("all " + id + "s", ""));
  names[kind].forEach((name, i) => name && $(id).append(new Option(name, String(i))));
}
for (const [name, label] of [["time", "time"], ["step", "step"], ["phase", "phase"], ["what", "what"],
  ["state", "outcome"], ["took number", "took"], ["cost number", "cost"], ["rest", "detail"]]) {
  $("head").append(make("span", label, name));
}

const rest = (row) =>
  [row[ARGS], row[RESULT] && "-> " + row[RESULT], row[VERDICT], row[UNDO] && "undo " + row[UNDO], row[DETAIL]]
    .filter(Boolean).join(" ");
const searched = rows.map((row) => (names.what[row[WHAT]] + " " + rest(row)).toLowerCase());
let shown = [];

function filter() {
  const text = $("text").value.trim().toLowerCase();
  const phase = $("phase").value;
  const state = $("outcome").value;
  shown = [];
  for (let i = 0; i < rows.length; i++) {
    if (phase !== "" && rows[i][PHASE] !== +phase) continue;
    if (state !== "" && rows[i][STATE] !== +state) continue;
    if (text && !searched[i].includes(text)) continue;
    shown.push(i);
  }
  $("count").textContent = shown.length === rows.length ? `${rows.length} steps` : `${shown.length} of ${rows.length} steps`;
  $("list").scrollTop = 0;
  draw();
}

function draw() {
  const list = $("list");
  const height = getComputedStyle($("head")).display === "none" ? 58 : 32;
  const first = Math.max(0, Math.floor(list.scrollTop / height) - 10);
  const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / height) + 20);
  const room = $("room");
  room.style.height = shown.length * height + "px";
  const drawn = document.createDocumentFragment();
  for (let i = first; i < last; i++) {
    const row = rows[shown[i]];
    const state = names.state[row[STATE]];
    const node = make("div", "", "row");
    node.setAttribute("role", "listitem");
    node.dataset.row = shown[i];
    node.style.top = i * height + "px";
    node.append(
      make("span", clock(row[AT]), "time"), make("span", row[STEP] === null ? "" : row[STEP], "step"),
      make("span", names.phase[row[PHASE]], "phase"), make("span", names.what[row[WHAT]], "what"),
      make("span", state, "state " + tone(state)), make("span", took(row[US]), "took number"),
      make("span", row[COST] ? dollars(row[COST]) : "", "cost number"), make("span", rest(row), "rest"),
    );
    drawn.append(node);
  }
  room.replaceChildren(drawn);
}

$("list").addEventListener("scroll", draw, { passive: true });
addEventListener("resize", draw);
$("filters").addEventListener("input", filter);
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("room").addEventListener("click", (event) => {
  const node = event.target.closest(".row");
  if (!node) return;
  const row = rows[+node.dataset.row];
  fill($("detail").querySelector("dl"), [
    ["what", names.what[row[WHAT]]], ["step", row[STEP]], ["attempt", row[ATTEMPT] || ""],
    ["outcome", names.state[row[STATE]]], ["begun", clock(row[AT])], ["took", took(row[US])],
    ["cost", row[COST] ? dollars(row[COST]) + " " + row[PRICED] : row[PRICED]], ["tokens", row[TOKENS] || ""],
    ["verdicts", row[VERDICT]], ["undo", row[UNDO]], ["arguments", row[ARGS]], ["result", row[RESULT]],
    ["detail", row[DETAIL]],
  ]);
  $("detail").showModal();
});
$("note").textContent = data.note;
filter();
