// Points of many trials are one path: the one nearest to a pointer is ringed, named, and leads to its trial.
// Without this script the ranking leads to every trial.
import { pieces, placeIn, stops } from "./crowds.js";

const SVG = "http://www.w3.org/2000/svg";
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
const address = (trial) => document.querySelector("a[data-trial]").getAttribute("href").replace(/\d+$/, trial.padStart(4, "0"));

function ring(svg, found) {
  svg.querySelector(".ring")?.remove();
  svg.classList.toggle("pointed", found !== null);
  if (!found) return;
  const [trial, x, y] = found;
  const drawn = document.createElementNS(SVG, "circle");
  for (const [name, value] of Object.entries({ cx: x, cy: y, r: 6, class: "ring" })) drawn.setAttribute(name, value);
  drawn.append(document.createElementNS(SVG, "title"));
  drawn.firstChild.textContent = `trial ${trial}`;
  svg.append(drawn);
}

const picture = (event) => {
  const svg = event.target.closest?.("svg.chart");
  return svg?.querySelector(".m-cloud[data-trials]") ? svg : null;
};

document.addEventListener("pointermove", (event) => {
  const svg = picture(event);
  document.querySelectorAll("svg.pointed").forEach((other) => { if (other !== svg) ring(other, null); });
  if (svg) ring(svg, event.target.closest("a") ? null : nearest(svg, event));
});

document.addEventListener("click", (event) => {
  const svg = picture(event);
  const found = svg && !event.target.closest("a") && nearest(svg, event);
  if (found) location.assign(address(found[0]));
});
