// The search looks for every word of a query, also for "a" and "how", which stand on every page. This leaves such words
// out before the query reaches the worker of the search.
const LEFT_OUT = new Set(
  "a an and are as at be by can do does for from how i if in is it my of on or our so that the this to was we what when which why with you your".split(" "),
);

function withoutCommonWords(query) {
  const kept = query.split(/\s+/).filter((word) => !LEFT_OUT.has(word.toLowerCase()));
  return kept.length > 0 ? kept.join(" ") : query;
}

const send = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...others) {
  const isQuery = message !== null && typeof message === "object" && typeof message.data === "string";
  return send.call(this, isQuery ? { ...message, data: withoutCommonWords(message.data) } : message, ...others);
};
