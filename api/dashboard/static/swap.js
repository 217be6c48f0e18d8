// Sort, filter, columns and pages of a table without a new page: the part is fetched and put in place, and the address
// says what is shown. Without this script the same links and forms lead to whole pages.
import { put } from "./pieces.js";

const live = document.getElementById("live");

/** An address of this page as search parameters, without its anchor. */
const asked = (href) => new URL(href, location.href).searchParams;

const written = (params) => (params.size ? `?${params}` : location.pathname);

async function show(name, params) {
  const piece = document.querySelector(`[data-piece="${name}"]`);
  const of = (part) => { const query = new URLSearchParams(params); query.set("part", part); return `?${query}`; };
  if (live?.dataset.part) live.dataset.part = of("live"); // an answer to what was asked before is of no use any more
  const answer = await fetch(of(name), { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
  const fresh = document.createElement("div");
  fresh.innerHTML = await answer.text();
  fresh.className = piece.className;
  put(piece, fresh, { wasSent: true });
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
    if (value) params.set(name, params.has(name) ? `${params.get(name)},${value}` : value);
  }
  const boxes = [...form.querySelectorAll('input[name="columns"]')];
  if (boxes.length && boxes.every((box) => box.checked === box.hasAttribute("data-usual"))) params.delete("columns");
  return params;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-swap]");
  if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.dataset.swap, asked(link.href));
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest?.("form[data-swap]");
  if (!form) return;
  event.preventDefault();
  go(form.dataset.swap, said(form));
});

document.addEventListener("change", (event) => {
  const form = event.target.closest?.("form[data-swap]");
  if (form && event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
});

addEventListener("popstate", () => {
  const names = new Set([...document.querySelectorAll("form[data-swap]")].map((form) => form.dataset.swap));
  for (const name of names) show(name, asked(location.href)).catch(() => location.reload());
});
