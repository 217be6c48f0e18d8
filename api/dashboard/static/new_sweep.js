// Says beside the form what the sweep would search, while somebody types. Without this script the button "Check" does.
import { part as fetched, morph } from "./page.js";

const CALM_MS = 120; // a word is typed in several keys; one question serves them all

const form = document.getElementById("new-sweep");
const connection = document.getElementById("connection");

let asked = new AbortController();

/** Asks what comes of the form as it stands; the last question alone is answered. */
async function check(part = "answer") {
  asked.abort();
  asked = new AbortController();
  const busy = setTimeout(() => form.setAttribute("aria-busy", "true"), 300);
  try {
    const body = new URLSearchParams(new FormData(form));
    morph(form, await fetched(`${form.dataset.check}?part=${part}`, { method: "POST", body, signal: asked.signal }));
    for (const wrong of form.querySelectorAll("[aria-invalid]")) wrong.closest("details")?.setAttribute("open", "");
    connection.textContent = "";
  } catch (error) {
    if (error.name === "AbortError") return;
    connection.textContent = "Connection lost: what you see is of before";
  } finally {
    clearTimeout(busy);
  }
  form.removeAttribute("aria-busy");
  if (part === "answer" && form.querySelector("[data-more]")) check("remedies"); // which takes longer
}

let waiting = 0;

function checkSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(() => check(), CALM_MS);
}

/** Reads a dropped or chosen file into the form, as if it had been pasted. */
async function take(file) {
  document.getElementById("model-document").value = await file.text();
  form.querySelector('[name="model.from"][value="described"]').checked = true;
  checkSoon();
}

function takesDrops(box) {
  for (const kind of ["dragenter", "dragover"]) {
    box.addEventListener(kind, (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      box.classList.add("over");
    });
  }
  box.addEventListener("dragleave", (event) => {
    if (!box.contains(event.relatedTarget)) box.classList.remove("over");
  });
  box.addEventListener("drop", (event) => {
    box.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    take(file);
  });
}

form.addEventListener("input", (event) => {
  if (event.target.type !== "file") return checkSoon();
  if (event.target.files[0]) take(event.target.files[0]);
});
form.addEventListener("click", (event) => {
  if (!event.target.matches("[formaction]")) return;
  event.preventDefault();
  check();
});
takesDrops(document.getElementById("model"));
