// Pictures of many trials, for a brush: which trial each piece of a path is, as a path lists its trials in its own order;
// where lines cross axes; and marks of what is kept.

/** Numbers of "0-12 14" as words: "0", "1" ... */
export function numbers(list) {
  return list.split(" ").filter(Boolean).flatMap((run) => {
    const [first, last = first] = run.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => String(first + index));
  });
}

/** Each trial of a path with its piece: [["12", "M3 4h0"], ...]. */
export function pieces(path) {
  const trials = numbers(path.dataset.trials);
  const drawn = path.getAttribute("d").split("M").slice(1);
  return trials.map((trial, index) => [trial, `M${drawn[index]}`]);
}

/** Points that a piece passes through: its start, and the ends of its lines or curves. */
export function stops(piece) {
  const values = piece.match(/-?[\d.]+/g).map(Number);
  const stride = piece.includes("C") ? 6 : 2;
  const found = [[values[0], values[1]]];
  for (let at = 2; at + stride <= values.length; at += stride) {
    found.push([values[at + stride - 2], values[at + stride - 1]]);
  }
  return found;
}

/** Where a pointer is, in the units of a picture. */
export function placeIn(svg, event) {
  const box = svg.getBoundingClientRect();
  const view = svg.viewBox.baseVal;
  return [((event.clientX - box.left) * view.width) / box.width, ((event.clientY - box.top) * view.height) / box.height];
}

/** The parallel coordinates of the page. */
export const picture = () => document.querySelector(".parallel svg");

/** The axes as the picture tells them, from left to right. */
export function axes() {
  return [...(picture()?.querySelectorAll(".par-axis") ?? [])].map((group) => {
    const [low, high, bottom, top] = ["low", "high", "bottom", "top"].map((name) => Number(group.dataset[name]));
    return {
      group, low, high, at: Number(group.dataset.at), name: group.dataset.axis, words: group.dataset.words?.split("|"),
      value: (y) => low + ((bottom - y) / (bottom - top)) * (high - low),
      y: (value) => bottom - ((value - low) / (high - low)) * (bottom - top),
    };
  });
}

/** Every line: its trial, and where it crosses each axis. */
export function lines() {
  const crowds = [...picture().querySelectorAll(".par[data-trials]:not(.kept)")].flatMap(pieces);
  const alone = [...picture().querySelectorAll("a[data-trial]")];
  const linked = alone.map((link) => [link.dataset.trial, link.querySelector("path").getAttribute("d")]);
  return [...crowds, ...linked].map(([trial, piece]) => [trial, stops(piece).map(([, y]) => y)]);
}

/** Marks what is kept in every picture and table of the page; null marks nothing. */
export function mark(kept) {
  for (const element of document.querySelectorAll("[data-trial]")) {
    element.classList.toggle("kept", kept !== null && kept.has(element.dataset.trial));
    element.classList.toggle("dropped", kept !== null && !kept.has(element.dataset.trial));
  }
  document.querySelectorAll("path.kept.again").forEach((path) => path.remove());
  for (const path of document.querySelectorAll("path[data-trials]")) {
    path.classList.toggle("dropped", kept !== null);
    if (kept === null) continue;
    const again = path.cloneNode();
    again.removeAttribute("data-trials");
    again.classList.remove("dropped", "dense");
    again.classList.add("kept", "again");
    again.setAttribute("d", pieces(path).filter(([trial]) => kept.has(trial)).map(([, piece]) => piece).join(""));
    path.after(again);
  }
}
