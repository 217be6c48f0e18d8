// What every page does: keep its live part as the server would render it now, exchange a part without a new page, look
// closer into pictures, copy texts, find by "/". Without this script a page is complete, and its links and forms lead to
// whole pages.
// @ts-check

/** @type {any} */
const { Idiomorph } = window; // vendor/idiomorph

const CALM_MS = 250; // events come in bursts; one redraw serves them all
const SHOWN_MS = 2000;

// ---------------------------------------------------------------- parts of a page
const OURS = ".copy, .brush, .ring, .again"; // what scripts put into a part
const STATES = new Set(["value", "checked", "selected"]);

/** @param {any} field  Whether somebody has changed it since it was rendered. */
function isChanged(field) {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.options) return [...field.options].some((one) => one.selected && !one.defaultSelected && one.index > 0);
  return field.value !== field.defaultValue;
}

/**
 * Makes the content of an element that of a fresh rendering. What did not change is not touched, so that focus, open
 * texts and what is scrolled stay; what somebody typed or chose stays, too, unless it was sent.
 *
 * @param {Element} element
 * @param {string} html
 */
export function morph(element, html, { wasSent = false } = {}) {
  const fields = [...element.querySelectorAll("input, select, textarea")];
  const kept = new Set(wasSent ? [] : fields.filter(isChanged));
  Idiomorph.morph(element, html, {
    morphStyle: "innerHTML",
    callbacks: {
      beforeNodeRemoved: (node) => !node.matches?.(OURS),
      beforeNodeMorphed: (node, fresh) => !fresh.hasAttribute?.("data-awaited") || node.nodeName !== fresh.nodeName,
      beforeAttributeUpdated: (name, node) => {
        if (name === "open" && node.matches("details")) return false;
        return !(STATES.has(name) && (kept.has(node) || kept.has(node.closest("select"))));
      },
    },
  });
  document.dispatchEvent(new Event("morphed"));
}

/**
 * Asks for a part of this page.
 *
 * @param {string | URL} address
 * @param {RequestInit} [how]
 */
export async function part(address, how = {}) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, ...how });
  if (answer.status === 401) location.reload(); // the session is over: the page leads to the login
  if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
  return answer.text();
}

// ---------------------------------------------------------------- the live part
const live = document.getElementById("live");
const connection = document.getElementById("connection") ?? document.createElement("span");

/** @param {"" | "Live" | "Finished" | "Connection lost, trying again"} words */
const say = (words) => Object.assign(connection, { textContent: words });
const sayLost = () => say("Connection lost, trying again");

/** Renders the live part anew; if somebody has chosen other rows meanwhile, with these. */
async function refresh() {
  const asked = live.dataset.part;
  const html = await part(asked);
  if (live.dataset.part !== asked) return refresh();
  morph(live, html);
}

let [isWanted, isBusy] = [false, false];

/** Runs refreshes one after another: at most one under way and one waiting. */
async function redraw() {
  isWanted = true;
  if (isBusy) return;
  isBusy = true;
  while (isWanted) {
    await new Promise((resolve) => setTimeout(resolve, CALM_MS));
    isWanted = false;
    await refresh().catch(sayLost);
  }
  isBusy = false;
}

/** @param {string} url */
function follow(url) {
  const source = new EventSource(url);
  let ending = 0; // a sweep that was opened again has more to tell behind its end
  const finish = () => {
    source.close();
    say("Finished");
  };
  source.onopen = () => say("Live");
  source.onerror = () => (ending ? finish() : sayLost());
  for (const kind of live.dataset.kinds.split(" ")) {
    source.addEventListener(kind, () => {
      clearTimeout(ending);
      ending = kind === live.dataset.last ? setTimeout(finish, 2 * CALM_MS) : 0;
      redraw();
    });
  }
}

/** @param {number} seconds */
function poll(seconds) {
  const timer = setInterval(() => {
    if (live.querySelector("[data-ended]")) {
      say(""); // nothing more will come
      clearInterval(timer);
    } else if (document.visibilityState === "visible" && connection.textContent !== "Finished") {
      refresh().then(() => say("Live"), sayLost);
    }
  }, seconds * 1000);
}

// What took too long to be worked out for the first sight comes now.
if (live?.hasAttribute("data-later")) refresh().then(() => live.removeAttribute("data-later"), sayLost);
if (live?.dataset.events) follow(live.dataset.events);
if (live?.dataset.everyS) poll(Number(live.dataset.everyS));

// ---------------------------------------------------------------- sort, filter and turn pages of a table
export const isPlain = (event) => !(event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

/** @param {string} href  An address of this page, as search parameters. */
const asked = (href) => new URL(href, location.href).searchParams;

async function show(name, params) {
  const of = (one) => `?${new URLSearchParams([...params, ["part", one]])}`;
  if (live?.dataset.part) live.dataset.part = of("live"); // an answer to what was asked before is of no use any more
  morph(document.querySelector(`[data-piece="${name}"]`), await part(of(name)), { wasSent: true });
}

function go(name, params) {
  const address = params.size ? `?${params}` : location.pathname;
  show(name, params).then(
    () => history.pushState({ swapped: name }, "", address),
    () => location.assign(address),
  );
}

/** What a form asks for, as short as it can be said: no empty fields, several values with commas, no usual columns. */
function said(form) {
  const params = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value) params.set(name, params.has(name) ? `${params.get(name)},${value}` : String(value));
  }
  const boxes = [...form.querySelectorAll('input[name="columns"]')];
  if (boxes.length && boxes.every((box) => box.checked === box.hasAttribute("data-usual"))) params.delete("columns");
  return params;
}

/** @param {any} event */
const swapper = (event, kind) => event.target.closest?.(`${kind}[data-swap]`);

document.addEventListener("click", (event) => {
  const link = swapper(event, "a");
  if (!link || !isPlain(event)) return;
  event.preventDefault();
  go(link.dataset.swap, asked(link.href));
});

document.addEventListener("submit", (event) => {
  const form = swapper(event, "form");
  if (!form) return;
  event.preventDefault();
  go(form.dataset.swap, said(form));
});

document.addEventListener("change", (event) => {
  const field = /** @type {Element} */ (event.target);
  if (field.matches("select, input[type=checkbox]")) swapper(event, "form")?.requestSubmit();
});

const swapped = () => new Set([...document.querySelectorAll("form[data-swap]")].map((form) => form.dataset.swap));

if (swapped().size) {
  addEventListener("popstate", () => {
    for (const name of swapped()) show(name, asked(location.href)).catch(() => location.reload());
  });
}

// ---------------------------------------------------------------- look closer into a picture
let looking = new AbortController();

async function look(link, place) {
  looking.abort();
  looking = new AbortController();
  const url = new URL(link.getAttribute("href"), location.href); // a link in a picture has another kind of href
  const query = new URL(url);
  query.searchParams.set("part", place.dataset.zoomable);
  const key = place.contains(document.activeElement) && document.activeElement.dataset.key;
  try {
    const html = await part(query, { signal: looking.signal });
    const found = new DOMParser().parseFromString(html, "text/html").getElementById(place.id);
    if (!found) return location.assign(url);
    morph(place, found.innerHTML);
    history.replaceState(history.state, "", url);
    if (place.contains(document.activeElement)) return;
    (keyed(place, key) ?? place.querySelector("[data-zoomed]"))?.focus({ preventScroll: true });
  } catch (error) {
    if (error.name !== "AbortError") location.assign(url);
  }
}

const keyed = (place, key) => key && place.querySelector(`a[data-key="${CSS.escape(key)}"]`);

function press(picture, key) {
  const place = picture.closest("[data-zoomable]");
  const link = keyed(place, key);
  if (link) look(link, place);
  return Boolean(link);
}

document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest?.("a[data-zoom]");
  const place = link?.closest("[data-zoomable]");
  if (!place || !isPlain(event)) return;
  event.preventDefault();
  look(link, place);
});

document.addEventListener("keydown", (event) => {
  const target = /** @type {Element} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("[data-zoomed]")) {
    if (press(target, event.key === "=" ? "+" : event.key)) event.preventDefault();
  } else if (event.key === "/" && !target.closest("input, textarea, select, [contenteditable]")) {
    const find = document.getElementById("find");
    if (!(find instanceof HTMLInputElement)) return;
    event.preventDefault();
    find.focus();
    find.select();
  }
});

let turned = 0;

function turn(event) {
  const picture = event.target.closest?.("[data-zoomed]");
  if (!picture || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  turned += event.deltaY;
  if (Math.abs(turned) < 40) return;
  press(picture, turned < 0 ? "+" : "-");
  turned = 0;
}

document.addEventListener("wheel", turn, { passive: false });

// ---------------------------------------------------------------- copy
/** Writes a text where people paste from, and says on what was pressed that it did. */
export async function copy(pressed, text, otherwise = "Not allowed here: select the text") {
  const before = pressed.textContent;
  pressed.textContent = await navigator.clipboard.writeText(text).then(
    () => "Copied",
    () => otherwise,
  );
  setTimeout(() => Object.assign(pressed, { textContent: before }), SHOWN_MS);
}

/** A button above each text that is there to be copied. */
function addCopyButtons() {
  for (const text of document.querySelectorAll("pre.copied:not(.copy + pre)")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy" });
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(button, text.textContent));
    text.before(button);
  }
}

if (navigator.clipboard) {
  addCopyButtons();
  document.addEventListener("morphed", addCopyButtons);
}
