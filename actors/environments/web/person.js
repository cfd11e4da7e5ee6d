// Intercepts and reports what a person does in a page. Each report is then executed as an action of the grammar, so that
// the record holds what an agent would have done. While `open`, nothing is intercepted: then the action itself arrives.
// Only typing shows at once, in the field alone; the page gets it with the action.
(() => {
  const NAME = Symbol.for("hindcast.person");
  if (window[NAME]) return;
  const person = { open: false, targets: [null] };
  Object.defineProperty(window, NAME, { value: person, enumerable: false });
  const tell = (told) => window.hindcastPerson(told);
  const SCROLL_PAUSE_MS = 400, TYPE_PAUSE_MS = 1500, CHOICE_PAUSE_MS = 500;

  const remember = (element) => person.targets.push(element) - 1;
  const parentOf = (node) => node.assignedSlot || node.parentNode || node.host;
  // The number that the last snapshot gave to a remembered element or its container; 0: none, -1: it is gone.
  person.idOf = (place) => {
    const element = person.targets[place];
    const notes = window[Symbol.for("hindcast.notes")];
    if (!element || !element.isConnected || !notes) return -1;
    for (let node = element; node; node = parentOf(node)) {
      const id = notes.elements.indexOf(node);
      if (id > 0) return id;
      if (node.tagName === "LABEL" && node.control) {
        const labelled = notes.elements.indexOf(node.control);
        if (labelled > 0) return labelled;
      }
    }
    return 0;
  };

  // Whether the page scrolls further, as scroll.js would find.
  person.scrolls = (down) => {
    const moves = (box) => (down ? box.scrollTop + box.clientHeight < box.scrollHeight - 1 : box.scrollTop > 0);
    if (document.scrollingElement && moves(document.scrollingElement)) return true;
    return Array.from(document.querySelectorAll("body *")).some((element) => moves(element)
      && ["auto", "scroll"].includes(getComputedStyle(element).overflowY) && element.checkVisibility());
  };

  const UNTYPED = new Set(["checkbox", "radio", "button", "submit", "reset", "image", "file", "range", "color", "hidden"]);
  const fieldOf = (element) => {
    if (!(element instanceof Element)) return null;
    if (element.tagName === "TEXTAREA") return element.readOnly ? null : element;
    if (element.tagName === "INPUT") return UNTYPED.has(element.type) || element.readOnly ? null : element;
    const editable = element.closest("[contenteditable]");
    return editable && editable.isContentEditable ? editable : null;
  };
  const valueOf = (field) => {
    if (field.tagName === "SELECT") return field.selectedIndex;
    return field.isContentEditable ? field.innerText : field.value;
  };
  const searching = (field) => field.type === "search" || field.hasAttribute("list")
    || field.getAttribute("role") === "combobox" || field.hasAttribute("aria-autocomplete");

  const before = new WeakMap(); // field -> the text that the page knows of, or of a dropdown the index
  const dirty = new Set(); // those with another one now, in the order in which they were changed
  let pause = 0;
  const known = new Set(); // fields that the person was in
  const note = (field) => { if (!known.has(field)) { known.add(field); before.set(field, valueOf(field)); } };
  const choose = (select) => {
    dirty.delete(select);
    const index = select.selectedIndex;
    if (!select.isConnected || index === before.get(select) || index < 0) return false;
    const option = select.options[index];
    if (!select.multiple) select.selectedIndex = before.get(select);
    tell({ kind: "select", place: remember(select), text: option.label || option.textContent });
    return true;
  };
  const flush = (field, enter) => {
    if (field.tagName === "SELECT") return choose(field);
    dirty.delete(field);
    const text = valueOf(field);
    if (!field.isConnected || text === before.get(field)) return false;
    // back to the page's last text: the action types the new one, so that an agent sees the same states in between
    if (!field.isContentEditable) field.value = before.get(field);
    tell({ kind: field.type === "password" ? "password" : "type", place: remember(field), text, enter });
    return true;
  };
  // Typed text is reported before any other act: until then the person moves between fields undisturbed.
  person.flush = () => {
    clearTimeout(pause);
    return Array.from(dirty).filter((field) => flush(field, false)).length;
  };
  person.close = () => {
    // the typed text is known now, and the page may have changed it
    for (const field of known) if (!dirty.has(field)) before.set(field, valueOf(field));
    person.open = false;
  };

  const listen = (types, hear) => {
    for (const type of types) {
      window.addEventListener(type, (event) => {
        if (event.isTrusted && !person.open) hear(event);
      }, { capture: true, passive: false });
    }
  };
  const hold = (event) => { event.preventDefault(); event.stopImmediatePropagation(); };

  listen(["pointerdown", "mousedown", "pointerup", "mouseup", "click", "auxclick", "dblclick"], (event) => {
    if (event.button > 0) return;
    const element = event.composedPath()[0];
    if (!(element instanceof Element)) return;
    const select = element.closest("select");
    if (select) { note(select); return; } // its list is the browser's own: see `change`
    const field = fieldOf(element);
    if (field) { event.stopImmediatePropagation(); return; } // it takes the cursor; what is typed will be told
    hold(event);
    if (event.type !== "click") return;
    person.flush();
    tell({ kind: "click", place: remember(element) });
  });
  listen(["focusin"], (event) => {
    const element = event.composedPath()[0];
    const field = element instanceof HTMLSelectElement ? element : fieldOf(element);
    if (field) note(field);
  });
  listen(["beforeinput", "input", "keypress", "keyup", "change"], (event) => {
    const element = event.composedPath()[0];
    if (element instanceof Element && element.tagName === "SELECT") {
      if (event.type !== "input" && event.type !== "change") return;
      event.stopImmediatePropagation();
      if (event.type !== "change") return;
      note(element);
      dirty.add(element);
      clearTimeout(pause);
      pause = setTimeout(person.flush, CHOICE_PAUSE_MS); // on a keyboard it is chosen letter by letter
      return;
    }
    const field = fieldOf(element);
    event.stopImmediatePropagation();
    if (!field || event.type !== "input") return;
    dirty.add(field);
    clearTimeout(pause);
    if (searching(field)) pause = setTimeout(person.flush, TYPE_PAUSE_MS); // its page answers while one types
  });
  const SCROLLS = { PageDown: true, End: true, ArrowDown: true, " ": true, PageUp: false, Home: false, ArrowUp: false };
  listen(["keydown"], (event) => {
    const element = event.composedPath()[0];
    const field = fieldOf(element);
    if (event.ctrlKey || event.metaKey || event.altKey || ["Shift", "Control", "Alt", "Meta", "Tab"].includes(event.key)) return;
    if (field) {
      note(field);
      event.stopImmediatePropagation();
      if (event.key === "Enter" && field.tagName === "INPUT") {
        event.preventDefault();
        dirty.delete(field);
        person.flush();
        if (!flush(field, true)) tell({ kind: "press", place: remember(field), text: "Enter" });
      } else if (event.key === "Escape") {
        event.preventDefault();
        person.flush();
        tell({ kind: "press", place: 0, text: "Escape" });
      }
      return;
    }
    if (element instanceof HTMLSelectElement) { note(element); return; }
    const active = element instanceof Element && element !== document.body && element !== document.documentElement;
    if (active && (event.key === "Enter" || event.key === " ")) { event.stopImmediatePropagation(); return; } // clicks
    hold(event);
    person.flush();
    if (event.key in SCROLLS) scroll(SCROLLS[event.key]);
    else tell({ kind: "press", place: 0, text: event.key });
  });
  let scrolled = -Infinity;
  const scroll = (down) => {
    const now = performance.now();
    if (now - scrolled < SCROLL_PAUSE_MS) return;
    scrolled = now;
    person.flush();
    tell({ kind: "scroll", place: 0, text: down ? "down" : "up" });
  };
  listen(["wheel"], (event) => {
    if (event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    scroll(event.deltaY > 0);
  });
})();
