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

async function refresh() {
  const asked = live.dataset.part;
  const html = await part(asked);
  if (live.dataset.part === asked)
    morph(live, html); // else somebody has chosen other rows meanwhile
  else await refresh();
}

/** Runs refreshes one after another: at most one under way and one waiting. */
function redrawer() {
  let [wanted, busy] = [false, false];
  return async function redraw() {
    wanted = true;
    if (busy) return;
    busy = true;
    while (wanted) {
      await new Promise((resolve) => setTimeout(resolve, CALM_MS));
      wanted = false;
      await refresh().catch(() => {
        connection.textContent = "Connection lost, trying again";
      });
    }
    busy = false;
  };
}

/** @param {string} url */
function follow(url) {
  const redraw = redrawer();
  const source = new EventSource(url);
  source.onopen = () => {
    connection.textContent = "Live";
  };
  let ending = 0; // a sweep that was opened again has more to tell behind its end
  const finish = () => {
    source.close();
    connection.textContent = "Finished";
  };
  source.onerror = () => {
    if (ending) finish();
    else connection.textContent = "Connection lost, trying again";
  };
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
  const timer = setInterval(async () => {
    if (live.querySelector("[data-ended]")) {
      // nothing more will come
      connection.textContent = "";
      return clearInterval(timer);
    }
    if (document.visibilityState !== "visible" || connection.textContent === "Finished") return;
    try {
      await refresh();
      connection.textContent = "Live";
    } catch {
      connection.textContent = "Connection lost, trying again";
    }
  }, seconds * 1000);
}

if (live?.hasAttribute("data-later")) {
  // what took too long to be worked out for the first sight
  refresh()
    .then(() => live.removeAttribute("data-later"))
    .catch(() => {});
}
if (live?.dataset.events) follow(live.dataset.events);
if (live?.dataset.everyS) poll(Number(live.dataset.everyS));

// ---------------------------------------------------------------- sort, filter and turn pages of a table
const isPlain = (event) => !(event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

/** @param {string} href  An address of this page, as search parameters. */
const asked = (href) => new URL(href, location.href).searchParams;

const written = (params) => (params.size ? `?${params}` : location.pathname);

async function show(name, params) {
  const of = (one) => `?${new URLSearchParams([...params, ["part", one]])}`;
  if (live?.dataset.part) live.dataset.part = of("live"); // an answer to what was asked before is of no use any more
  morph(document.querySelector(`[data-piece="${name}"]`), await part(of(name)), { wasSent: true });
}

async function go(name, params) {
  try {
    await show(name, params);
    history.pushState({ swapped: name }, "", written(params));
  } catch {
    location.assign(written(params));
  }
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

document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest?.("a[data-swap]");
  if (!(link instanceof HTMLAnchorElement) || !isPlain(event)) return;
  event.preventDefault();
  go(link.dataset.swap, asked(link.href));
});

document.addEventListener("submit", (event) => {
  const form = /** @type {Element} */ (event.target).closest?.("form[data-swap]");
  if (!(form instanceof HTMLFormElement)) return;
  event.preventDefault();
  go(form.dataset.swap, said(form));
});

document.addEventListener("change", (event) => {
  const field = /** @type {Element} */ (event.target);
  const form = field.closest?.("form[data-swap]");
  if (form instanceof HTMLFormElement && field.matches("select, input[type=checkbox]")) form.requestSubmit();
});

const swapped = () =>
  new Set([...document.querySelectorAll("form[data-swap]")].map((form) => form.getAttribute("data-swap")));

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

document.addEventListener(
  "wheel",
  (event) => {
    const picture = /** @type {Element} */ (event.target).closest?.("[data-zoomed]");
    if (!picture || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    turned += event.deltaY;
    if (Math.abs(turned) < 40) return;
    press(picture, turned < 0 ? "+" : "-");
    turned = 0;
  },
  { passive: false },
);

// ---------------------------------------------------------------- copy
/** Writes a text where people paste from, and says on what was pressed that it did. */
export async function copy(pressed, text, otherwise = "Not allowed here: select the text") {
  const before = pressed.textContent;
  const say = (words) => Object.assign(pressed, { textContent: words });
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say(otherwise);
  }
  setTimeout(say, SHOWN_MS, before);
}

/** A button above each text that is there to be copied. */
function addCopyButtons() {
  for (const text of document.querySelectorAll("pre.copied:not(.copy + pre)")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(button, text.textContent));
    text.before(button);
  }
}

if (navigator.clipboard) {
  addCopyButtons();
  document.addEventListener("morphed", addCopyButtons);
}
