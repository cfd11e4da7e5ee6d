// Runs in every document before the page's own scripts. Leaves the page's behaviour alone; only takes notes that
// snapshot.js and the actions read: which elements listen to clicks, whether a navigation or a new tab is on its way.
(() => {
  const NOTES = Symbol.for("hindcast.notes");
  if (window[NOTES]) return;
  const notes = { clickable: new WeakSet(), elements: [], leaving: false, opened: 0 };
  Object.defineProperty(window, NOTES, { value: notes, enumerable: false });

  const CLICKS = new Set(["click", "mousedown", "mouseup", "pointerdown", "pointerup"]);
  const listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (CLICKS.has(type) && this instanceof Element) notes.clickable.add(this);
    return listen.call(this, type, ...rest);
  };

  // A cross-document navigation is announced here before the click that caused it returns to the driver.
  if (window.navigation) {
    listen.call(window.navigation, "navigate", (event) => {
      if (!event.destination.sameDocument && event.downloadRequest === null) notes.leaving = true;
    });
    listen.call(window.navigation, "navigateerror", () => { notes.leaving = false; });
  }
  // Submitting a form plans its navigation in a later task: note it at once.
  listen.call(window, "submit", (event) => {
    if (event.defaultPrevented || !(event.target instanceof HTMLFormElement)) return;
    const target = event.submitter?.getAttribute("formtarget") || event.target.target;
    const method = event.submitter?.getAttribute("formmethod") || event.target.method;
    if (method === "dialog") return;
    if (target === "_blank") notes.opened += 1;
    else if (!target || target === "_self" || target === "_top") notes.leaving = true;
  });

  const open = window.open;
  window.open = function (...rest) {
    notes.opened += 1;
    return open.apply(this, rest);
  };
  listen.call(window, "click", (event) => {
    if (event.defaultPrevented) return;
    const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement && node.href);
    if (link && link.target === "_blank") notes.opened += 1;
  });
})();
