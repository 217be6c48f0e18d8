// Asks again whenever an input moves, and puts the answer in its place. Without this script a button sends the form.
import { copy, isPlain, morph, part } from "./page.js";

const TYPING_MS = 150;
const SLOW_MS = 300;

const box = document.getElementById("explore");
const said = document.getElementById("said");
let asking = new AbortController();
let typing = 0;
let typedIn = ""; // the input that somebody types in: its letters make one step to go back by
let isStep = false; // what is asked makes a step, whichever question is answered first

/** Puts a section that takes longer in the place that waits for it. */
async function fill(address, name, signal) {
  if (!document.getElementById(`${name}-section`)) return;
  const html = await part(`${address}&part=${name}`, { signal });
  const place = document.getElementById(`${name}-section`);
  if (place) place.outerHTML = html;
}

/** Asks about an address; a newer question takes the place of one that is under way. */
async function ask(address) {
  asking.abort();
  const own = new AbortController();
  asking = own;
  const slow = setTimeout(() => box.setAttribute("aria-busy", "true"), SLOW_MS);
  try {
    morph(box, await part(`${address}&part=explore`, { signal: own.signal }));
    const { permalink, said: words } = box.querySelector("[data-permalink]").dataset;
    if (isStep && new URL(permalink, location).href !== location.href) history.pushState(null, "", permalink);
    else history.replaceState(null, "", permalink);
    isStep = false;
    said.textContent = words;
    await Promise.all(["timeline", "bandwidth"].map((name) => fill(address, name, own.signal)));
  } catch (error) {
    if (error.name !== "AbortError")
      said.textContent = "No answer: what you see is as before. Change an input to ask again.";
  } finally {
    clearTimeout(slow);
    if (own === asking) box.removeAttribute("aria-busy");
  }
}

/** Asks what the form asks; every choice makes a step to go back by, and so does typing in another input. */
function askForm(typed = "") {
  if (!typed || typed !== typedIn) isStep = true;
  typedIn = typed;
  const form = document.getElementById("ask");
  ask(`${form.action}?${new URLSearchParams(new FormData(form))}`);
}

box.addEventListener("input", (event) => {
  clearTimeout(typing);
  if (event.target.type === "text") typing = setTimeout(() => askForm(event.target.id), TYPING_MS);
  else askForm();
});

box.addEventListener("submit", (event) => {
  event.preventDefault();
  askForm();
});

box.addEventListener("click", (event) => {
  const link = event.target.closest("a:not([data-zoom])");
  if (!link || !isPlain(event) || new URL(link.href).pathname !== location.pathname) return;
  event.preventDefault();
  if (link.id === "permalink") return void copy(link, link.href, "Copy it from the address bar");
  isStep = true;
  typedIn = "";
  ask(link.href);
});

addEventListener("popstate", () => location.reload());
