// Paths of many trials: which of them each piece of a path is. A path lists its trials in its own order.

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
