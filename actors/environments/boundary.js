// Runs in every document before the page's own scripts: removes what reaches past the boundary of an episode.
(() => {
  // A service worker outlives its page and fetches without it. Playwright overrides `register` on the one object, which
  // a page undoes with the prototype's; where the property is gone, pages see a browser that has no service workers.
  delete Navigator.prototype.serviceWorker;

  // What a page logs or throws goes through the debugger to the driver in full, although it is not used: a hundred lines
  // of a megabyte block a browser for many seconds.
  for (const name of Object.keys(console)) {
    if (typeof console[name] === "function") console[name] = () => {};
  }
  for (const type of ["error", "unhandledrejection"]) addEventListener(type, (event) => event.preventDefault(), true);
})();
