// Looks closer into pictures: the server draws the part that a link asks for, and it is put in place of the old one.
// Links with data-zoom are followed so; the wheel with Ctrl, and the keys in data-key, press them.
"use strict";

const section = (node) => node.closest("[data-zoomable]");

let underWay = null;

async function follow(address, place) {
  underWay?.abort();
  underWay = new AbortController();
  const url = new URL(address, location.href);
  const asked = new URL(url);
  asked.searchParams.set("part", place.dataset.zoomable);
  const answer = await fetch(asked, { signal: underWay.signal, headers: { accept: "text/html" } });
  if (!answer.ok) return location.assign(url);
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(place.id);
  if (!found) return location.assign(url);
  replace(place, found);
  history.replaceState(history.state, "", url);
}

function replace(place, found) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.dataset.key;
  const name = focused?.getAttribute("aria-label");
  const wasPicture = focused?.hasAttribute("data-zoomed");
  const scrolled = place.querySelector("[data-zoomed]")?.scrollLeft ?? 0;
  const opened = [...place.querySelectorAll("details")].map((one) => one.open);
  place.replaceChildren(...found.childNodes);
  place.querySelectorAll("details").forEach((one, index) => (one.open = opened[index] ?? one.open));
  const picture = place.querySelector("[data-zoomed]");
  if (picture) picture.scrollLeft = scrolled;
  if (wasPicture) picture?.focus({ preventScroll: true });
  else if (key) (link(place, key) ?? picture)?.focus({ preventScroll: true });
  else if (name) place.querySelector(`a[aria-label="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}

const link = (place, key) => place.querySelector(`a[data-key="${CSS.escape(key)}"]`);

function press(place, key) {
  const found = link(place, key);
  if (found) follow(found.getAttribute("href"), place).catch(ignoreAborted);
  return Boolean(found);
}

function ignoreAborted(error) {
  if (error.name !== "AbortError") throw error;
}

document.addEventListener("click", (event) => {
  const found = event.target.closest("a[data-zoom]");
  const place = found && section(found);
  if (!place || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  follow(found.getAttribute("href"), place).catch(ignoreAborted); // a link in a picture has another kind of href
});

document.addEventListener("keydown", (event) => {
  if (!event.target.matches("[data-zoomed]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key === "=" ? "+" : event.key;
  if (press(section(event.target), key)) event.preventDefault();
});

let turned = 0;

document.addEventListener(
  "wheel",
  (event) => {
    const picture = event.target.closest("[data-zoomed]");
    if (!picture || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    turned += event.deltaY;
    if (Math.abs(turned) < 40) return;
    press(section(picture), turned < 0 ? "+" : "-");
    turned = 0;
  },
  { passive: false },
);
