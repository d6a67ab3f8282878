// The search of the site for pages that are opened from a folder.
//
// Browsers start no worker from a file:// page. Here the worker's script runs in a hidden frame of
// the page instead, whose postMessage answers the page. mkdocs-material's plugin `offline` asks a
// public host for such a script, unless one named *iframe-worker* is given (mkdocs.yml).
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      // the page's own scripts have not all run yet, and body may not exist
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        frame.contentDocument.head.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() =>
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  };
}
