// The page of mcastlab watch. All text of labs goes into the page as text, never as HTML.
const $ = (id) => document.getElementById(id);
const svgNS = "http://www.w3.org/2000/svg";
const framesMax = 4000; // of a lab that is up; older ones are forgotten

let film = null;
let frames = [];
let at = 0;
let following = true; // the newest frame is shown
let chosen = null; // {kind: "node" | "way" | "message", k}
let playing = 0;
let ways = [], nodes = [];
let dirty = false;

function make(tag, attributes, text) {
  const e = document.createElementNS(svgNS, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

function item(list, text, cls) {
  const e = document.createElement("li");
  e.textContent = text;
  if (cls) e.className = cls;
  list.append(e);
  return e;
}

function status(text, wrong) {
  $("status").textContent = text;
  $("status").className = wrong ? "wrong" : "";
}

function figure(v) {
  if (!Number.isFinite(v)) return "";
  return Number.isInteger(v) ? String(v) : Math.abs(v) >= 100 ? v.toFixed(1) : String(Number(v.toPrecision(3)));
}

// draw makes the picture of the topology anew.
function draw() {
  const lay = film.layout, picture = $("picture");
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 -6 ${lay.wide} ${lay.high + 12}`);
  ways = film.ways.map((w, k) => {
    const [a, b, c, d] = lay.ways[k];
    if (lay.map && !c) return null;
    const e = lay.map ? make("rect", { class: "cell", x: a, y: b, width: c, height: d }) : make("path", { class: "way", d: `M${a} ${b}L${c} ${d}` });
    e.dataset.way = w.name;
    e.append(make("title", {}, w.name));
    e.addEventListener("click", () => choose("way", k));
    picture.append(e);
    return e;
  });
  nodes = film.nodes.map((name, k) => {
    const [x, y, w, h] = lay.nodes[k];
    if (!w) return null;
    const e = make("rect", { class: "node", x, y, width: w, height: h, rx: lay.map ? 1 : 4 });
    e.dataset.node = name;
    e.append(make("title", {}, name));
    e.addEventListener("click", () => choose("node", k));
    if (!lay.map) {
      e.setAttribute("tabindex", "0");
      e.setAttribute("role", "button");
      e.setAttribute("aria-label", name);
      e.addEventListener("keydown", (event) => { if (event.key === "Enter") choose("node", k); });
    }
    picture.append(e);
    return e;
  });
  $("names").replaceChildren(...film.nodes.concat(film.ways.map((w) => w.name)).map((n) => new Option(n, n)));
  for (const t of lay.texts || []) {
    const e = make("text", { x: t.x, y: t.y, class: "text-" + t.kind }, t.text);
    if (t.kind === "node") e.setAttribute("text-anchor", "middle");
    picture.append(e);
  }
}

// find chooses a node or a direction of a link by its name.
function find(name) {
  for (const [kind, k] of [["node", film ? film.nodes.indexOf(name) : -1], ["way", film ? film.ways.findIndex((w) => w.name === name) : -1]]) {
    if (k < 0) continue;
    choose(kind, k);
    const e = (kind === "node" ? nodes : ways)[k];
    if (e) e.scrollIntoView({ block: "nearest", inline: "center" });
  }
}

function choose(kind, k) {
  chosen = { kind, k };
  show();
}

// pairs turns a frame's pairs into a map.
const pairs = (list) => new Map(list || []);

// queues returns what waits before each link: in this frame, or the most in a run if no more is known.
function queues(frame) {
  if (!film.queues && film.ways.some((w) => w.peak)) return new Map(film.ways.map((w, k) => [k, w.peak || 0]));
  return pairs(frame.queue);
}

// loads returns the share of the time for which each link is busy: in this frame, or in the run if no more is known.
function loads(frame) {
  if (film.ways.some((w) => w.load)) return new Map(film.ways.map((w, k) => [k, w.load || 0]));
  return pairs(frame.load);
}

function onNow(frame) {
  const on = new Set(frame.on || []);
  (film.faults || []).forEach((f, k) => {
    if ((f.spans || []).some(([a, b]) => a < Math.max(frame.to, frame.from + 1e-9) && b >= frame.from)) on.add(k);
  });
  return on;
}

function before(k, pick) {
  for (let i = k; i >= 0; i--) {
    const v = pick(frames[i]);
    if (v !== undefined) return v;
  }
  return undefined;
}

function treesAt(frame) {
  if (film.trees) return film.trees.filter((t) => t.from <= frame.to && !(t.to && t.to < frame.from));
  return before(at, (f) => f.trees) || [];
}

function key(unit, top) {
  const box = $("key");
  box.replaceChildren();
  for (let k = 0; k <= 6; k++) {
    const e = document.createElement("span"), i = document.createElement("i");
    i.className = "k" + k;
    e.append(i, k ? `to ${figure((top * k) / 6)}${k === 6 ? " " + unit : ""}` : "0");
    box.append(e);
  }
  const e = document.createElement("span");
  e.textContent = film.layout.map ? "with an edge: paused" : "dashed: paused";
  box.append(e);
}

// show paints the frame at which the scrubber stands.
function show() {
  if (!film || !frames.length) return;
  at = Math.max(0, Math.min(at, frames.length - 1));
  const frame = frames[at], paint = $("paint").value, pause = pairs(frame.pause), queue = queues(frame);
  const value = paint === "load" ? loads(frame) : paint === "pause" ? pause : queue;
  let top = 1;
  if (paint === "queue") top = Math.max(1, ...queue.values(), ...frames.map((f) => Math.max(0, ...(f.queue || []).map((p) => p[1]))));
  key(paint === "queue" ? "bytes" : "of the time", top);
  const trees = treesAt(frame), tree = trees.find((t) => t.group === $("tree").value);
  const inTree = new Set(tree ? tree.ways : []);
  ways.forEach((e, k) => {
    if (!e) return;
    const v = value.get(k) || 0, shade = v > 0 ? Math.min(6, Math.max(1, Math.ceil((v / top) * 6))) : 0;
    let cls = (film.layout.map ? "cell" : "way") + " s" + shade;
    if (pause.get(k)) cls += " halted";
    if (inTree.has(k)) cls += " tree";
    if (chosen && chosen.kind === "way" && chosen.k === k) cls += " chosen";
    if (e.getAttribute("class") !== cls) e.setAttribute("class", cls);
  });
  const gone = new Set(frame.gone || []);
  nodes.forEach((e, k) => {
    if (!e) return;
    const cls = "node" + (gone.has(k) ? " gone" : "") + (chosen && chosen.kind === "node" && chosen.k === k ? " chosen" : "");
    if (e.getAttribute("class") !== cls) e.setAttribute("class", cls);
  });
  $("scrub").max = frames.length - 1;
  $("scrub").value = at;
  $("now").textContent = `lab time ${figure(frame.from)} to ${figure(frame.to)} us` + (gone.size ? `; gone: ${[...gone].map((k) => film.nodes[k]).join(", ")}` : "");
  trees_(trees);
  faults(frame);
  messages(frame);
  detail(frame, pause, queue);
  spans();
}

function trees_(trees) {
  const select = $("tree"), was = select.value, names = ["", ...new Set(trees.map((t) => t.group))];
  if (names.length === select.options.length && names.every((n, i) => select.options[i].value === n)) return;
  select.replaceChildren(...names.map((n) => new Option(n || "none", n)));
  select.value = names.includes(was) ? was : "";
}

function faults(frame) {
  const list = $("faults"), on = onNow(frame);
  list.replaceChildren();
  (film.faults || []).forEach((f, k) => item(list, `${f.id}: ${f.text || f.kind}${on.has(k) ? " (on)" : ""}`, on.has(k) ? "on" : "over"));
  if (!list.children.length) item(list, "none");
}

function messages(frame) {
  const list = $("messages");
  const begun = (film.messages || []).map((m, k) => [m, k]).filter(([m]) => m.start <= frame.to).slice(-60).reverse();
  const keep = list.scrollTop;
  list.replaceChildren();
  for (const [m, k] of begun) {
    const have = (m.each || []).filter((r) => r.at <= frame.to).length, all = (m.each || []).length;
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = `${m.name}: ${have} of ${all} receivers have it`;
    b.addEventListener("click", () => choose("message", k));
    const e = document.createElement("li");
    if (have === all) e.className = "over";
    e.append(b);
    list.append(e);
  }
  if (!begun.length) item(list, film.messages ? "none has begun" : "none is known");
  list.scrollTop = keep;
}

function table(title, rows) {
  $("what").textContent = title;
  const body = $("detail");
  body.replaceChildren();
  for (const [a, b] of rows) {
    const tr = body.insertRow();
    tr.insertCell().textContent = a;
    tr.insertCell().textContent = b;
  }
}

// causers returns the nodes at whose ends of paused links nothing else is paused: who began it.
function causers(k, pause) {
  const seen = new Set(), found = new Set(), left = [film.ways[k].to];
  while (left.length) {
    const node = left.pop();
    if (seen.has(node)) continue;
    seen.add(node);
    const more = [...pause.keys()].filter((w) => film.ways[w].from === node).map((w) => film.ways[w].to).filter((n) => !seen.has(n));
    if (more.length) left.push(...more);
    else found.add(film.nodes[node]);
  }
  return [...found].join(", ");
}

function detail(frame, pause, queue) {
  if (!chosen) return;
  if (chosen.kind === "message") {
    const m = (film.messages || [])[chosen.k];
    if (!m) return;
    const rows = [["began", `${figure(m.start)} us`], ...(m.each || []).map((r) => [r.host, r.at <= frame.to ? `after ${figure(r.at - m.start)} us` : "not yet"])];
    table(m.name, rows.concat((m.parts || []).map(([name, us]) => ["critical path: " + name, us + " us"])));
    return;
  }
  if (chosen.kind === "way") {
    const w = film.ways[chosen.k];
    if (!w) return;
    const rows = [["rate", `${figure(w.gbps)} Gbit/s`], ["busy", `${figure(100 * (loads(frame).get(chosen.k) || 0))} % of ${w.load ? "the run" : "this step"}`],
      [!film.status ? "waits before it" : film.queues ? "most that waited before it in this step" : "most in one queue in the run", `${queue.get(chosen.k) || 0} bytes`], ["paused", `${figure(100 * (pause.get(chosen.k) || 0))} % of this step`]];
    if (pause.get(chosen.k)) rows.push(["paused by", film.nodes[w.to]], ["the cause is at", causers(chosen.k, pause)]);
    const inTrees = treesAt(frame).filter((t) => (t.ways || []).includes(chosen.k)).map((t) => t.group);
    if (inTrees.length) rows.push(["in the trees of", inTrees.join(", ")]);
    table(w.name, rows);
    return;
  }
  const k = chosen.k, rows = [], events = {};
  for (let i = 0; i <= at; i++) {
    const e = (frames[i].events || {})[k];
    for (const [kind, n] of Object.entries(e || {})) events[kind] = (events[kind] || 0) + n;
  }
  if ((frame.gone || []).includes(k)) rows.push(["does not answer", ""]);
  for (const kind of Object.keys(events).sort()) rows.push(["event " + kind + ", until now", String(events[kind])]);
  let state = before(at, (f) => (f.state || {})[k]), label = "";
  if (!state && film.status) {
    state = (frames[frames.length - 1].state || {})[k];
    label = ", whole run";
  }
  for (const name of Object.keys(state || {}).sort()) rows.push([name + label, String(state[name])]);
  if (!rows.length) rows.push(["nothing is counted", ""]);
  table(film.nodes[k], rows);
}

// spans draws below the scrubber when faults were on, by frame.
function spans() {
  const n = frames.length, e = $("spans"), list = film.faults || [], shown = list.slice(0, 8);
  const on = new Map(shown.map((f, k) => [k, []]));
  const step = Math.max(1, Math.floor(n / 800));
  for (let i = 0; i < n; i += step) for (const k of onNow(frames[i])) if (on.has(k)) on.get(k).push(i);
  e.setAttribute("viewBox", `0 0 ${Math.max(1, n)} ${Math.max(1, shown.length * 6)}`);
  e.setAttribute("height", shown.length * 6);
  e.replaceChildren();
  for (const [k, list] of on) {
    for (let i = 0; i < list.length; ) {
      let j = i;
      while (j + 1 < list.length && list[j + 1] === list[j] + step) j++;
      e.append(make("rect", { x: list[i], y: k * 6 + 1, width: list[j] - list[i] + step, height: 4 }));
      i = j + 1;
    }
  }
  if (shown.length) e.append(make("rect", { class: "here", x: at, y: 0, width: n / 300, height: shown.length * 6 }));
}

function later() {
  if (dirty) return;
  dirty = true;
  requestAnimationFrame(() => { dirty = false; show(); });
}

function add(frame) {
  frames.push(frame);
  while (frames.length > framesMax) {
    const old = frames.shift(), next = frames[0];
    next.state = { ...old.state, ...next.state };
    next.trees = next.trees || old.trees;
    at = Math.max(0, at - 1);
  }
  if (following) at = frames.length - 1;
}

const heard = {
  film(f) {
    const was = frames[at], same = film && film.lab === f.lab && JSON.stringify(film.nodes) === JSON.stringify(f.nodes);
    film = f;
    frames = f.frames || [];
    $("lab").textContent = f.lab;
    document.title = "mcastlab watch: " + f.lab;
    status(f.status ? "a run: " + f.status : "a lab that is up");
    if (!same) { draw(); chosen = null; }
    if (!same && f.status && f.status !== "running") { following = false; at = 0; } // it is seen from its start
    else if (following || !same || !was) at = frames.length - 1;
    else { at = frames.findIndex((g) => g.to >= was.to); if (at < 0) at = frames.length - 1; }
    const rows = $("rows"), notes = $("notes");
    rows.replaceChildren();
    for (const r of f.rows || []) item(rows, r);
    if (!rows.children.length) item(rows, "none yet");
    notes.replaceChildren();
    for (const n of f.notes || []) item(notes, n);
  },
  frame(f) { add(f); if (film && !film.status) status("a lab that is up"); },
  faults(f) { if (film) film.faults = f; },
  note(text) { status(text, true); },
  alive() {},
};

function take(block) {
  let event = "", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("data: ")) data = line.slice(6);
  }
  if (!Object.hasOwn(heard, event)) return;
  heard[event](JSON.parse(data));
  if (event !== "alive") later();
}

// listen reads the stream: with fetch, which can send the token in a header.
async function listen() {
  const answer = await fetch("data/stream", { headers: { Authorization: "Bearer " + location.hash.slice(1) }, cache: "no-store" });
  if (!answer.ok) {
    status(await answer.text(), true);
    return answer.status === 503;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return !(film && film.status && film.status !== "running");
    text += value;
    for (let k; (k = text.indexOf("\n\n")) >= 0; text = text.slice(k + 2)) take(text.slice(0, k));
  }
}

async function main() {
  for (let again = true; again; ) {
    try {
      again = await listen();
    } catch (error) {
      status("no connection to mcastlab watch: " + error.message, true);
    }
    if (again) await new Promise((go) => setTimeout(go, 2000));
  }
}

$("scrub").addEventListener("input", () => { at = Number($("scrub").value); following = at === frames.length - 1; show(); });
$("end").addEventListener("click", () => { following = true; at = frames.length - 1; show(); });
$("paint").addEventListener("change", show);
$("find").addEventListener("change", () => find($("find").value));
$("tree").addEventListener("change", show);
$("play").addEventListener("click", () => {
  if (playing) { clearInterval(playing); playing = 0; $("play").textContent = "play"; return; }
  if (at >= frames.length - 1) at = 0;
  following = false;
  $("play").textContent = "stop";
  playing = setInterval(() => {
    at++;
    if (at >= frames.length - 1) { clearInterval(playing); playing = 0; following = true; $("play").textContent = "play"; }
    show();
  }, 60);
});
window.addEventListener("hashchange", () => location.reload());
main();
