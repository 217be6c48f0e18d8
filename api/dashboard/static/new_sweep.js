// Says beside the form what the sweep would search, while somebody types. Without this script the button "Check" does.
import { part as fetched } from "./page.js";

const CALM_MS = 120; // a word is typed in several keys; one question serves them all

const form = document.getElementById("new-sweep");
const answer = document.getElementById("answer");
const connection = document.getElementById("connection");

/** Puts the texts of the part into the elements of the same ids; what it does not have is empty now. */
function place(part) {
  answer.innerHTML = part.getElementById("answer").innerHTML;
  for (const element of form.querySelectorAll(".wrong, .suits, .facts-of")) {
    const text = part.getElementById(element.id)?.textContent ?? "";
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of form.querySelectorAll("[aria-describedby^='wrong-']")) {
    const isWrong = document.getElementById(element.getAttribute("aria-describedby")).textContent !== "";
    element.toggleAttribute("aria-invalid", isWrong);
    if (!isWrong) continue;
    element.setAttribute("aria-invalid", "true");
    element.closest("details")?.setAttribute("open", "");
  }
  const texts = part.querySelectorAll("pre");
  document.getElementById("said").hidden = texts.length === 0;
  for (const element of texts) document.getElementById(element.id).textContent = element.textContent;
}

let asked = new AbortController();

/** Asks what comes of the form as it stands; the last question alone is answered. */
async function check(part = "answer") {
  asked.abort();
  asked = new AbortController();
  const busy = setTimeout(() => answer.setAttribute("aria-busy", "true"), 300);
  try {
    const body = new URLSearchParams(new FormData(form));
    const html = await fetched(`${form.dataset.check}?part=${part}`, { method: "POST", body, signal: asked.signal });
    place(new DOMParser().parseFromString(html, "text/html"));
    connection.textContent = "";
  } catch (error) {
    if (error.name === "AbortError") return;
    connection.textContent = "Connection lost: what you see is of before";
  } finally {
    clearTimeout(busy);
  }
  answer.removeAttribute("aria-busy");
  if (part === "answer" && answer.querySelector("[data-more]")) check("remedies"); // which takes longer
}

let waiting = 0;

function checkSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(() => check(), CALM_MS);
}

/** Reads a dropped or chosen file into the form, as if it had been pasted. */
async function take(file) {
  document.getElementById("in-model-document").value = await file.text();
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
  box.querySelector(".drop").hidden = false;
  document.getElementById("in-model-file").addEventListener("change", (event) => {
    if (event.target.files[0]) take(event.target.files[0]);
  });
}

form.addEventListener("input", (event) => {
  if (event.target.type !== "file") checkSoon();
});
form.querySelector("[formaction]").addEventListener("click", (event) => {
  event.preventDefault();
  check();
});
takesDrops(document.getElementById("in-model"));
