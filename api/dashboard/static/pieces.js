// Puts a fresh rendering in place piece by piece: what did not change is not touched, so that focus, open texts, what is
// typed, selected and scrolled stay where they are; of a piece that changed they are put back.

const shown = new WeakMap(); // a piece: the text it was made of, before any script drew into it
document.querySelectorAll("[data-piece]").forEach((piece) => shown.set(piece, piece.innerHTML));

const key = (element) => element.dataset.piece;

const isTicked = (field) => field.type === "checkbox" || field.type === "radio";

/** Whether somebody has changed a field since it was rendered. */
function isChanged(field) {
  if (isTicked(field)) return field.checked !== field.defaultChecked;
  if (field.options) return [...field.options].some((option) => option.selected && !option.defaultSelected && option.index > 0);
  return field.value !== field.defaultValue;
}

const fields = (piece) => [...piece.querySelectorAll("input[name], select[name], textarea[name]")];
const name = (field) => (isTicked(field) ? `${field.name}=${field.value}` : field.name);

/** What of a piece somebody has changed by looking at it. */
function looked(piece) {
  const focus = piece.contains(document.activeElement) ? document.activeElement : null;
  const changed = fields(piece).filter(isChanged);
  return {
    open: [...piece.querySelectorAll("details[id]")].map((element) => [element.id, element.open]),
    scrolled: [...piece.querySelectorAll(".scroll")].map((element) => element.scrollLeft),
    filled: new Map(changed.map((field) => [name(field), isTicked(field) ? field.checked : field.value])),
    focus: focus?.id,
    caret: focus?.selectionStart,
  };
}

function lookAgain(piece, before) {
  for (const [id, open] of before.open) piece.querySelector(`#${CSS.escape(id)}`)?.toggleAttribute("open", open);
  piece.querySelectorAll(".scroll").forEach((element, index) => { element.scrollLeft = before.scrolled[index] ?? 0; });
  for (const field of fields(piece).filter((one) => before.filled.has(name(one)))) {
    field[isTicked(field) ? "checked" : "value"] = before.filled.get(name(field));
  }
  const focus = before.focus && piece.querySelector(`#${CSS.escape(before.focus)}`);
  if (!focus) return;
  focus.focus({ preventScroll: true });
  if (typeof before.caret === "number") focus.setSelectionRange?.(before.caret, before.caret);
}

/**
 * Puts one piece, or a part without pieces, in the place of another.
 * What was filled in stays, unless it was sent: then the answer shows it.
 */
export function put(old, fresh, { wasSent = false } = {}) {
  const html = fresh.innerHTML;
  if ((shown.has(old) ? shown.get(old) : old.innerHTML) === html) { shown.set(old, html); return; }
  const before = looked(old);
  if (wasSent) before.filled.clear();
  old.className = fresh.className;
  old.innerHTML = html;
  shown.set(old, html);
  lookAgain(old, before);
}

/** Makes the pieces of a part those of a fresh rendering, in their order; a part without pieces is one. */
export function replace(part, html) {
  const fresh = document.createElement("div");
  fresh.innerHTML = html;
  const wanted = [...fresh.querySelectorAll(":scope > [data-piece]")];
  if (!wanted.length) { fresh.className = part.className; put(part, fresh); return; }
  const there = new Map([...part.querySelectorAll(":scope > [data-piece]")].map((piece) => [key(piece), piece]));
  let behind = null;
  for (const piece of wanted) {
    const old = there.get(key(piece));
    there.delete(key(piece));
    if (old) put(old, piece);
    else if (behind) behind.after(piece);
    else part.prepend(piece);
    behind = old ?? piece;
  }
  there.forEach((piece) => piece.remove());
}
