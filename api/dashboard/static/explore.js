// Asks again whenever an input moves, and puts the answer in its place. Without this script a button sends the form.

const TYPING_MS = 150;
const SLOW_MS = 300;
const COPIED_MS = 2000;

const box = document.getElementById("explore");
const said = document.getElementById("said");
let asking = null;
let typing = 0;
let typedIn = ""; // the input that somebody types in: its letters make one step to go back by
let isStep = false; // what is asked makes a step, whichever question is answered first

/** What a person has in hand, by id: the answer replaces the elements, not what was done to them. */
function inHand() {
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const isText = focused instanceof HTMLInputElement && focused.type === "text";
  return {
    id: focused?.id ?? "",
    text: isText ? focused.value : null,
    from: isText ? focused.selectionStart : 0,
    to: isText ? focused.selectionEnd : 0,
    open: [...box.querySelectorAll("details")].map((one) => [one.id, one.open]),
    scrolled: [...box.querySelectorAll(".scroll")].map((one) => one.scrollLeft),
  };
}

function replace(html) {
  const before = inHand();
  box.innerHTML = html;
  for (const [id, open] of before.open) if (document.getElementById(id)) document.getElementById(id).open = open;
  box.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = before.scrolled[index] ?? 0; });
  const focused = before.id && document.getElementById(before.id);
  if (!focused) return;
  if (before.text !== null) {
    focused.value = before.text;
    focused.setSelectionRange(before.from, before.to);
  }
  focused.focus({ preventScroll: true });
}

function section(name) {
  return document.getElementById(`${name}-section`);
}

async function part(address, name, signal) {
  const answer = await fetch(`${address}&part=${name}`, { headers: { Accept: "text/html" }, signal });
  if (answer.status === 401) location.reload(); // the session is over: the page leads to the login
  if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
  return answer.text();
}

/** Asks about an address, for both parts at once; a newer question takes the place of one that is under way. */
async function ask(address) {
  asking?.abort();
  const own = (asking = new AbortController());
  const slow = setTimeout(() => box.setAttribute("aria-busy", "true"), SLOW_MS);
  try {
    const timeline = part(address, "timeline", own.signal);
    timeline.catch(() => {}); // said below
    const [before, curve] = ["timeline", "bandwidth"].map((name) => section(name)?.innerHTML ?? "");
    replace(await part(address, "explore", own.signal));
    const place = section("timeline");
    if (place) place.innerHTML = before; // stands in for the one that comes, so that nothing jumps
    if (section("bandwidth")) section("bandwidth").innerHTML = curve;
    const head = box.querySelector("[data-permalink]");
    if (isStep && new URL(head.dataset.permalink, location).href !== location.href) history.pushState(null, "", head.dataset.permalink);
    else history.replaceState(null, "", head.dataset.permalink);
    isStep = false;
    said.textContent = head.dataset.said;
    if (place) place.outerHTML = await timeline;
    if (section("bandwidth")) section("bandwidth").outerHTML = await part(address, "bandwidth", own.signal);
  } catch (error) {
    if (error.name !== "AbortError") said.textContent = "No answer: what you see is as before. Change an input to ask again.";
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

async function copy(link) {
  const before = link.textContent;
  try {
    await navigator.clipboard.writeText(link.href);
    link.textContent = "Copied";
  } catch {
    link.textContent = "Copy it from the address bar";
  }
  setTimeout(() => { link.textContent = before; }, COPIED_MS);
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
  const link = event.target.closest("a");
  if (!link || "zoom" in link.dataset || event.ctrlKey || event.metaKey || event.shiftKey || new URL(link.href).pathname !== location.pathname) return;
  event.preventDefault();
  if (link.id === "permalink") copy(link);
  else {
    isStep = true;
    typedIn = "";
    ask(link.href);
  }
});

addEventListener("popstate", () => location.reload());
