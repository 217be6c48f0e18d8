// Pictures of many trials: which trial each piece of a path is, as a path lists its trials in its own order; a brush on
// the parallel coordinates, which marks what it keeps everywhere; the trial next to a pointer. Without this script the
// pictures are still, and the ranking leads to every trial and filters them.

// ---------------------------------------------------------------- trials in paths
/** Numbers of "0-12 14" as words: "0", "1" ... */
function numbers(list) {
  return list
    .split(" ")
    .filter(Boolean)
    .flatMap((run) => {
      const [first, last = first] = run.split("-").map(Number);
      return Array.from({ length: last - first + 1 }, (_, index) => String(first + index));
    });
}

/** Each trial of a path with its piece: [["12", "M3 4h0"], ...]. */
function pieces(path) {
  const drawn = path.getAttribute("d").split("M").slice(1);
  return numbers(path.dataset.trials).map((trial, index) => [trial, `M${drawn[index]}`]);
}

/** Points that a piece passes through: its start, and the ends of its lines or curves. */
function stops(piece) {
  const values = piece.match(/-?[\d.]+/g).map(Number);
  const stride = piece.includes("C") ? 6 : 2;
  const found = [[values[0], values[1]]];
  for (let at = 2; at + stride <= values.length; at += stride) {
    found.push([values[at + stride - 2], values[at + stride - 1]]);
  }
  return found;
}

/** Where a pointer is, in the units of a picture. */
function placeIn(svg, event) {
  const box = svg.getBoundingClientRect();
  const view = svg.viewBox.baseVal;
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  return [(x * view.width) / box.width, (y * view.height) / box.height];
}

/** The parallel coordinates of the page. */
const picture = () => document.querySelector(".parallel svg");

/** The axes as the picture tells them, from left to right. */
function axes() {
  return [...(picture()?.querySelectorAll(".par-axis") ?? [])].map((group) => {
    const [low, high, bottom, top] = ["low", "high", "bottom", "top"].map((name) => Number(group.dataset[name]));
    return {
      group,
      low,
      high,
      at: Number(group.dataset.at),
      name: group.dataset.axis,
      words: group.dataset.words?.split("|"),
      value: (y) => low + ((bottom - y) / (bottom - top)) * (high - low),
      y: (value) => bottom - ((value - low) / (high - low)) * (bottom - top),
    };
  });
}

/** Every line: its trial, and where it crosses each axis. */
function lines() {
  const crowds = [...picture().querySelectorAll(".par[data-trials]:not(.kept)")].flatMap(pieces);
  const alone = [...picture().querySelectorAll("a[data-trial]")];
  const linked = alone.map((link) => [link.dataset.trial, link.querySelector("path").getAttribute("d")]);
  return [...crowds, ...linked].map(([trial, piece]) => [trial, stops(piece).map(([, y]) => y)]);
}

/** Marks what is kept in every picture and table of the page; null marks nothing. */
function mark(kept) {
  for (const element of document.querySelectorAll("[data-trial]")) {
    element.classList.toggle("kept", kept !== null && kept.has(element.dataset.trial));
    element.classList.toggle("dropped", kept !== null && !kept.has(element.dataset.trial));
  }
  for (const path of document.querySelectorAll("path.kept.again")) path.remove();
  for (const path of document.querySelectorAll("path[data-trials]")) {
    path.classList.toggle("dropped", kept !== null);
    if (kept === null) continue;
    const again = path.cloneNode();
    const drawn = pieces(path).filter(([trial]) => kept.has(trial));
    again.removeAttribute("data-trials");
    again.classList.remove("dropped", "dense");
    again.classList.add("kept", "again");
    again.setAttribute("d", drawn.map(([, piece]) => piece).join(""));
    path.after(again);
  }
}

// ---------------------------------------------------------------- the brush
const ranges = new Map(); // name of an axis: [low, high] in its own unit

/** Whether a place on an axis lies in its range; lines through one choice are spread around it. */
function lies(axis, y) {
  const [low, high] = ranges.get(axis.name);
  const value = axis.words ? Math.round(axis.value(y)) : axis.value(y);
  const slack = axis.words ? 0.35 : 0.004 * (axis.high - axis.low);
  return value >= low - slack && value <= high + slack;
}

function keptTrials() {
  const [all, drawn] = [lines(), axes()];
  const kept = all.filter(([, ys]) => drawn.every((axis, place) => !ranges.has(axis.name) || lies(axis, ys[place])));
  return [new Set(kept.map(([trial]) => trial)), all.length];
}

/** Draws an element into a picture. */
function draw(place, kind, attributes) {
  const element = place.appendChild(document.createElementNS("http://www.w3.org/2000/svg", kind));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function boxes() {
  for (const box of picture().querySelectorAll(".brush")) box.remove();
  for (const axis of axes().filter(({ name }) => ranges.has(name))) {
    const [low, high] = ranges.get(axis.name);
    const pad = axis.words ? 10 : 0;
    const [y, bottom] = [axis.y(high) - pad, axis.y(low) + pad];
    const height = Math.max(2, bottom - y);
    draw(axis.group, "rect", { class: "brush", x: axis.at - 6, y, width: 12, height, rx: 3 });
  }
}

const said = (axis, value) => (axis.words ? axis.words[Math.round(value)] : Number(value.toPrecision(3)).toString());

function tell(kept, all) {
  const parts = axes()
    .filter(({ name }) => ranges.has(name))
    .map((axis) => {
      const [low, high] = ranges.get(axis.name).map((value) => said(axis, value));
      return `${axis.name} ${low === high ? low : `${low} to ${high}`}`;
    });
  const output = document.getElementById("brush-said");
  if (output) output.textContent = ranges.size ? `Kept ${kept} of ${all}: ${parts.join(", ")}.` : "";
  for (const button of document.querySelectorAll("[data-clears-brush]")) button.hidden = !ranges.size;
  for (const input of document.querySelectorAll("[data-brush]")) {
    const [axis, end] = input.dataset.brush.split(" ");
    const value = ranges.get(axis)?.[Number(end)];
    if (input !== document.activeElement) input.value = value === undefined ? "" : Number(value.toPrecision(4));
  }
}

/** Puts the brush on the page as it is now. */
function apply() {
  if (!picture()) return;
  for (const name of ranges.keys()) if (!axes().some((axis) => axis.name === name)) ranges.delete(name);
  const [kept, all] = ranges.size ? keptTrials() : [null, 0];
  mark(kept);
  boxes();
  tell(kept?.size, all);
}

let waiting = 0;
function soon() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(apply);
}

/** A range between two values; of choices it ends at choices, and one without any is none. */
function keep(axis, from, to) {
  let [low, high] = [Math.max(axis.low, Math.min(from, to)), Math.min(axis.high, Math.max(from, to))];
  if (axis.words) [low, high] = [Math.ceil(low - 0.35), Math.floor(high + 0.35)];
  if (low > high) ranges.delete(axis.name);
  else ranges.set(axis.name, [low, high]);
  soon();
}

document.addEventListener("pointerdown", (event) => {
  const group = event.target.closest?.(".par-axis");
  if (!group || event.button !== 0) return;
  const axis = axes().find(({ name }) => name === group.dataset.axis);
  const y = (moved) => placeIn(picture(), moved)[1];
  const start = y(event);
  event.preventDefault();
  const move = (moved) => {
    if (Math.abs(y(moved) - start) > 3) keep(axis, axis.value(start), axis.value(y(moved)));
  };
  const end = (moved) => {
    document.removeEventListener("pointermove", move);
    if (Math.abs(y(moved) - start) <= 3 && ranges.delete(axis.name)) soon();
  };
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerup", end, { once: true });
});

function clear() {
  ranges.clear();
  for (const input of document.querySelectorAll("[data-brush]")) input.value = "";
  soon();
}

document.addEventListener("keydown", ({ key }) => key === "Escape" && ranges.size && clear());
document.addEventListener("click", ({ target }) => target.closest?.("[data-clears-brush]") && clear());
document.addEventListener("change", (event) => {
  const [name] = event.target.dataset?.brush?.split(" ") ?? [];
  const axis = axes().find((one) => one.name === name);
  if (!axis) return;
  const [from, to] = [0, 1].map((end) => document.querySelector(`[data-brush="${name} ${end}"]`).value);
  if (from || to) return keep(axis, from ? Number(from) : axis.low, to ? Number(to) : axis.high);
  ranges.delete(name);
  soon();
});

document.addEventListener("morphed", () => ranges.size && soon());

// ---------------------------------------------------------------- the trial next to a pointer
const NEAR = 9; // pixels

/** The trial next to a pointer, among the points of its picture that a brush keeps: [number, x, y]. */
function nearest(svg, event) {
  const [x, y] = placeIn(svg, event);
  const points = [...svg.querySelectorAll(".m-cloud[data-trials], .cross[data-trials]")].flatMap(pieces);
  const places = points.map(([trial, piece]) => [trial, ...stops(piece)[0]]);
  const away = ([, px, py]) => Math.hypot(px - x, py - y);
  const found = places.reduce((best, place) => (best === null || away(place) < away(best) ? place : best), null);
  return found && away(found) <= NEAR ? found : null;
}

/** The page of a trial, whose address ends in its number as those of all links to trials do. */
const address = (trial) =>
  document.querySelector("a[data-trial]").getAttribute("href").replace(/\d+$/, trial.padStart(4, "0"));

function ring(svg, found) {
  svg.querySelector(".ring")?.remove();
  svg.classList.toggle("pointed", found !== null);
  if (!found) return;
  const [trial, x, y] = found;
  const drawn = draw(svg, "circle", { class: "ring", cx: x, cy: y, r: 6 });
  draw(drawn, "title", {}).textContent = `trial ${trial}`;
}

const pointed = (event) => {
  const svg = event.target.closest?.("svg.chart");
  return svg?.querySelector(".m-cloud[data-trials]") ? svg : null;
};

document.addEventListener("pointermove", (event) => {
  const svg = pointed(event);
  for (const other of document.querySelectorAll("svg.pointed")) if (other !== svg) ring(other, null);
  if (svg) ring(svg, event.target.closest("a") ? null : nearest(svg, event));
});

document.addEventListener("click", (event) => {
  const svg = pointed(event);
  const found = svg && !event.target.closest("a") && nearest(svg, event);
  if (found) location.assign(address(found[0]));
});
