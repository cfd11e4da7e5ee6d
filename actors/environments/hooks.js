// Runs in every document before the page's own scripts. Does not change the page's behaviour; takes notes for snapshot.js
// and act.js: which elements listen to clicks, whether a navigation or a new tab is under way.
(() => {
  const NOTES = Symbol.for("hindcast.notes");
  if (window[NOTES]) return;

  const meet = (a, b) => ({ left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
    right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom) });
  const empty = (box) => box.right - box.left < 1 || box.bottom - box.top < 1;
  const view = () => ({ left: 0, top: 0, right: innerWidth, bottom: innerHeight });
  const clips = (style) => style.overflowX !== "visible" || style.overflowY !== "visible";
  const parentOf = (node) => node.assignedSlot || node.parentNode || node.host;

  // The part of the window in which an element is visible, given the scrolling boxes around it.
  const clipOf = (element) => {
    let box = view();
    for (let node = parentOf(element); node && node !== document.body; node = parentOf(node)) {
      if (!(node instanceof Element) || node === document.documentElement) continue;
      const style = getComputedStyle(node);
      if (clips(style)) box = meet(box, node.getBoundingClientRect());
      if (style.position === "fixed") break;
    }
    return box;
  };
  // Where to click an element: the centre of its first visible part or, where another element covers that, a point near a
  // corner. `onTop` says whether a click hits the element itself.
  const SHARES = [[0.5, 0.5], [0.15, 0.15], [0.85, 0.85], [0.85, 0.15], [0.15, 0.85]];
  const hits = (element, x, y) => {
    let hit = document.elementFromPoint(x, y);
    while (hit && hit.shadowRoot) {
      const inner = hit.shadowRoot.elementFromPoint(x, y);
      if (!inner || inner === hit) break;
      hit = inner;
    }
    for (let node = hit; node; node = parentOf(node)) if (node === element) return true;
    const label = hit && hit.closest && hit.closest("label");
    return Boolean(label && label.control === element);
  };
  const pointOf = (element, clip) => {
    for (const rect of element.getClientRects()) {
      const box = meet(rect, clip);
      if (empty(box)) continue;
      const points = SHARES.map(([across, down]) => ({
        x: box.left + across * (box.right - box.left), y: box.top + down * (box.bottom - box.top) }));
      const point = points.find(({ x, y }) => hits(element, x, y));
      return point ? { ...point, onTop: true } : { ...points[0], onTop: false };
    }
    return null;
  };

  // The visible part of an element, in whole pixels of the window; null where there is none.
  const boxOf = (element) => {
    const seen = meet(element.getBoundingClientRect(), clipOf(element));
    if (empty(seen)) return null;
    const x = Math.round(seen.left), y = Math.round(seen.top);
    return { x, y, width: Math.round(seen.right) - x, height: Math.round(seen.bottom) - y };
  };

  const notes = { clickable: new WeakSet(), elements: [], leaving: false, opened: 0, meet, empty, view, clips, clipOf,
    pointOf, boxOf };
  Object.defineProperty(window, NOTES, { value: notes, enumerable: false });

  const CLICKS = new Set(["click", "mousedown", "mouseup", "pointerdown", "pointerup"]);
  const listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (CLICKS.has(type) && this instanceof Element) notes.clickable.add(this);
    return listen.call(this, type, ...rest);
  };

  // A link's navigation to another document is announced here before the click on it returns to the driver.
  if (window.navigation) {
    listen.call(window.navigation, "navigate", (event) => {
      if (!event.destination.sameDocument && event.downloadRequest === null) notes.leaving = true;
    });
    listen.call(window.navigation, "navigateerror", () => { notes.leaving = false; });
  }
  // Submitting a form plans its navigation for a later task: note it at once.
  listen.call(window, "submit", (event) => {
    if (event.defaultPrevented || !(event.target instanceof HTMLFormElement)) return;
    const form = event.target, button = event.submitter;
    const target = (button && button.getAttribute("formtarget")) || form.target;
    const method = (button && button.getAttribute("formmethod")) || form.method;
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
