// Brushing: drag along an axis of the parallel coordinates, or set numbers, and see everywhere what is kept.
// Without this script the picture is still, and the filter of the ranking keeps what it is told.
import { axes, lines, mark, picture, placeIn } from "./crowds.js";

const SVG = "http://www.w3.org/2000/svg";
const ranges = new Map(); // name of an axis: [low, high] in its own unit

/** Whether a place on an axis lies in its range; lines through one choice are spread around it. */
function lies(axis, y) {
  const [low, high] = ranges.get(axis.name);
  const value = axis.words ? Math.round(axis.value(y)) : axis.value(y);
  const slack = axis.words ? 0.35 : 0.004 * (axis.high - axis.low);
  return value >= low - slack && value <= high + slack;
}

function keptTrials() {
  const brushed = axes().map((axis, place) => [axis, place]).filter(([axis]) => ranges.has(axis.name));
  const all = lines();
  const kept = all.filter(([, ys]) => brushed.every(([axis, place]) => lies(axis, ys[place])));
  return [new Set(kept.map(([trial]) => trial)), all.length];
}

function boxes() {
  picture().querySelectorAll(".brush").forEach((box) => box.remove());
  for (const axis of axes().filter(({ name }) => ranges.has(name))) {
    const [low, high] = ranges.get(axis.name);
    const pad = axis.words ? 10 : 0;
    const box = document.createElementNS(SVG, "rect");
    const [top, bottom] = [axis.y(high) - pad, axis.y(low) + pad];
    for (const [name, value] of Object.entries({ x: axis.at - 6, y: top, width: 12, height: Math.max(2, bottom - top), rx: 3, class: "brush" })) {
      box.setAttribute(name, value);
    }
    axis.group.append(box);
  }
}

const said = (axis, value) => (axis.words ? axis.words[Math.round(value)] : Number(value.toPrecision(3)).toString());

function tell(kept, all) {
  const parts = axes().filter(({ name }) => ranges.has(name)).map((axis) => {
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
  watch.takeRecords();
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
  const move = (moved) => { if (Math.abs(y(moved) - start) > 3) keep(axis, axis.value(start), axis.value(y(moved))); };
  const end = (moved) => {
    document.removeEventListener("pointermove", move);
    if (Math.abs(y(moved) - start) <= 3 && ranges.delete(axis.name)) soon();
  };
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerup", end, { once: true });
});

function clear() {
  ranges.clear();
  document.querySelectorAll("[data-brush]").forEach((input) => { input.value = ""; });
  soon();
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape" && ranges.size) clear(); });
document.addEventListener("click", (event) => { if (event.target.closest?.("[data-clears-brush]")) clear(); });
document.addEventListener("change", (event) => {
  const [name] = event.target.dataset?.brush?.split(" ") ?? [];
  const axis = axes().find((one) => one.name === name);
  if (!axis) return;
  const ends = [0, 1].map((end) => document.querySelector(`[data-brush="${name} ${end}"]`).value);
  if (ends.every((end) => end === "")) { ranges.delete(name); soon(); }
  else keep(axis, ends[0] === "" ? axis.low : Number(ends[0]), ends[1] === "" ? axis.high : Number(ends[1]));
});

// The live part of a page is replaced as a sweep goes on, and has to be marked again.
const watch = new MutationObserver(() => { if (ranges.size) soon(); });
watch.observe(document.getElementById("main") ?? document.body, { childList: true, subtree: true });
