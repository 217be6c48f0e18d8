// Puts a button above each text that is there to be copied. Without this script, or without a clipboard, one selects it.
"use strict";

const SHOWN_MS = 2000;

/** A button that copies the text of an element and says so for a moment. */
function copyButton(element) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here: select the text";
    }
    setTimeout(() => { button.textContent = "Copy"; }, SHOWN_MS);
  });
  return button;
}

if (navigator.clipboard) for (const element of document.querySelectorAll("pre.copied")) element.before(copyButton(element));
