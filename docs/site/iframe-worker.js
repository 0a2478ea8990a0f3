// Browsers start no workers from files on the disk. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      const load = (source) => new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        Object.assign(script, { src: source, onload: done, onerror: failed });
        inner.document.body.append(script);
      });
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.frame = frame;
      this.loaded = load(new URL(url, document.baseURI).href);
    }

    postMessage(data) {
      this.loaded.then(() => {
        const inner = this.frame.contentWindow;
        inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
}
