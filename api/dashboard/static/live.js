// Keeps the element #live as the server would render it now: a fetch per burst of events, and only what changed is put in
// place. Without this script a page is complete, only not live.
import { replace } from "./pieces.js";

const KINDS = [
  "sweep.created", "sweep.started", "sweep.resumed", "sweep.paused", "sweep.queued", "sweep.changed", "sweep.finished",
  "trial.started", "trial.step", "trial.finished", "trial.interrupted", "trial.waiting", "trial.resumed", "trial.job",
  "trial.gated", "trial.link_event", "sweep.estimated",
];
const CALM_MS = 250; // events come in bursts; one redraw serves them all

const live = document.getElementById("live");
const connection = document.getElementById("connection");

/** Asks for the live part; an answer that fails leaves what is shown. */
async function refresh() {
  const part = live.dataset.part;
  const answer = await fetch(part, { headers: { Accept: "text/html" } });
  if (answer.status === 401) location.reload(); // the session is over: the page leads to the login
  if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
  const html = await answer.text();
  if (live.dataset.part === part) replace(live, html); // else somebody has chosen other rows meanwhile
  else await refresh();
}

/** Runs refreshes one after another: at most one under way and one waiting. */
function redrawer() {
  let wanted = false;
  let busy = false;
  return async function redraw() {
    wanted = true;
    if (busy) return;
    busy = true;
    while (wanted) {
      await new Promise((resolve) => setTimeout(resolve, CALM_MS));
      wanted = false;
      try {
        await refresh();
      } catch {
        connection.textContent = "Connection lost, trying again";
      }
    }
    busy = false;
  };
}

function follow(url) {
  const redraw = redrawer();
  const source = new EventSource(url);
  source.onopen = () => { connection.textContent = "Live"; };
  let ending = 0; // a sweep that was opened again has more to tell behind its end
  const finish = () => {
    source.close();
    connection.textContent = "Finished";
  };
  source.onerror = () => {
    if (ending) finish();
    else connection.textContent = "Connection lost, trying again";
  };
  for (const kind of KINDS) {
    source.addEventListener(kind, () => {
      clearTimeout(ending);
      ending = kind === "sweep.finished" ? setTimeout(finish, 2 * CALM_MS) : 0;
      redraw();
    });
  }
}

/** Whether somebody fills in a form of the live part, which a redraw would empty. */
function isBeingFilledIn() {
  const fields = [...live.querySelectorAll("input, select, textarea")];
  return fields.some((field) => field === document.activeElement || (field.defaultValue ?? field.value) !== field.value);
}

function poll(seconds) {
  const timer = setInterval(async () => {
    if (live.querySelector("[data-ended]")) { // nothing more will come
      connection.textContent = "";
      return clearInterval(timer);
    }
    if (document.visibilityState !== "visible" || connection.textContent === "Finished" || isBeingFilledIn()) return;
    try {
      await refresh();
      connection.textContent = "Live";
    } catch {
      connection.textContent = "Connection lost, trying again";
    }
  }, seconds * 1000);
}

if (live?.hasAttribute("data-later")) { // what took too long to be worked out for the first sight
  refresh().then(() => live.removeAttribute("data-later"), () => {});
}
if (live?.dataset.events) follow(live.dataset.events);
if (live?.dataset.everyS) poll(Number(live.dataset.everyS));
