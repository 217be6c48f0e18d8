// Browsers start no Worker for a page that was opened from the disk. This gives the search one that runs in a hidden
// frame of the same page instead. Pages that a server sends use the browser's own.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><title>search</title>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside = inside;
      this.loaded = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, location);
        script.onload = resolve;
        inside.document.body.append(script);
      });
    }
    set onmessage(handler) {
      this.addEventListener("message", handler);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
