// Runs in every document before the page's own scripts: takes from it what reaches past the boundary of an episode.
(() => {
  // A service worker outlives its page and fetches without it. Playwright overrides `register` on the one object, which
  // a page undoes with the prototype's; where the property is gone, pages see a browser that has no service workers.
  delete Navigator.prototype.serviceWorker;
})();
