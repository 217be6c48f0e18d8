// Keys of every page: "/" finds.
"use strict";

const find = document.getElementById("find");

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey || !find) return;
  event.preventDefault();
  find.focus();
  find.select();
});
