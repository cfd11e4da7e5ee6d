// One round trip: {"page": core.domain.observation.Page or null during a navigation, "opened": new tabs to come, "ended":
// whether the page has ended the episode} as JSON.
// Kept: what a person sees in the window, in document order. Numbered: innermost elements that can be acted upon, enabled
// and on top at their click point. The document remembers the numbered elements, so that an action finds its own.
async (limits) => {
  const notes = window[Symbol.for("hindcast.notes")];
  const { meet, empty, pointOf } = notes;
  await new Promise((resolve) => setTimeout(resolve, 0));
  if (limits.stay) notes.leaving = false;
  const opened = notes.opened;
  notes.opened = 0;
  if (notes.leaving) return JSON.stringify({ opened, page: null });
  if (document.readyState === "loading" && !limits.stay) {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  }

  const SKIPPED = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "META", "LINK", "IFRAME", "OBJECT",
    "EMBED", "CANVAS", "AUDIO", "VIDEO", "DATALIST"]);
  const ACTIVE_ROLES = new Set(["button", "link", "checkbox", "radio", "switch", "tab", "menuitem", "option",
    "menuitemcheckbox", "menuitemradio", "treeitem", "textbox", "searchbox", "combobox", "slider", "spinbutton"]);
  const ROLE_KINDS = { button: "button", link: "link", checkbox: "checkbox", switch: "checkbox",
    menuitemcheckbox: "checkbox", radio: "radio", menuitemradio: "radio", textbox: "input", searchbox: "input" };
  const CONTROLS = "input, select, textarea, button";
  const CONTAINERS = new Set(["NAV", "MAIN", "HEADER", "FOOTER", "ASIDE", "FORM", "SECTION", "ARTICLE", "UL", "OL",
    "TABLE", "TR", "FIELDSET", "DIALOG"]);

  const clean = (text) => (text || "").replace(/\s+/g, " ").trim();
  const cap = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
  // `<li<a href=…>` is an element of that name: replace characters of a tag name that markup cannot contain.
  const ODD = /[\s\x1c-\x1f\x85<>&"']/g;
  // A form's field may be called tagName, and a form title: access by name would return it.
  const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
  const tagName = getter(Element.prototype, "tagName");
  const titleOf = getter(Document.prototype, "title");
  const tagOf = (element) => {
    const tag = tagName.call(element).toLowerCase();
    return tag.search(ODD) < 0 && tag.length <= 200 ? tag : tag.replace(ODD, "_").slice(0, 200);
  };
  // Content beyond the limits is not read, so it costs nothing.
  const part = (node) => node.data.slice(0, limits.part);
  const short = (element, length) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let text = "";
    while (text.length < limits.part && walker.nextNode()) text += part(walker.currentNode);
    return text.length < limits.part && clean(text).length <= length;
  };
  const styles = new Map();
  const styleOf = (element) => {
    let style = styles.get(element);
    if (!style) styles.set(element, (style = getComputedStyle(element)));
    return style;
  };
  const seen = (element) => element.checkVisibility({ visibilityProperty: true });
  const children = (element) => {
    if (element.shadowRoot) return element.shadowRoot.childNodes;
    if (element.tagName === "SLOT" && element.assignedNodes().length) return element.assignedNodes();
    return element.childNodes;
  };

  const nodes = [];
  const elements = [null];
  let truncated = false;

  // ---- what can be acted upon -------------------------------------------------------------------------------------
  const windowArea = innerWidth * innerHeight;
  const native = (element) => {
    switch (element.tagName) {
      case "A": case "AREA": return element.hasAttribute("href");
      case "INPUT": return element.type !== "hidden";
      case "BUTTON": case "SELECT": case "TEXTAREA": case "SUMMARY": return true;
      default: return element.isContentEditable && !element.parentElement?.isContentEditable;
    }
  };
  const strong = (element) => {
    if (element === document.body || element === document.documentElement) return false;
    if (native(element) || ACTIVE_ROLES.has(element.getAttribute("role"))) return true;
    const listens = notes.clickable.has(element) || typeof element.onclick === "function"
      || (element.hasAttribute("tabindex") && element.tabIndex >= 0);
    if (!listens) return false;
    // A container that listens for its children is not itself a click target.
    const box = element.getBoundingClientRect();
    return box.width * box.height < windowArea / 4 && short(element, limits.text);
  };
  const strongOnes = new Set();
  const around = new Set();
  let surveyed = 0;
  const survey = (root) => {
    for (const element of root.querySelectorAll("*")) {
      surveyed += 1;
      if (surveyed > limits.elements) { truncated = true; return; }
      if (element.shadowRoot) survey(element.shadowRoot);
      if (!strong(element) || !seen(element)) continue;
      strongOnes.add(element);
      let parent = element.parentNode;
      while (parent && !around.has(parent)) {
        around.add(parent);
        parent = parent.parentNode || parent.host;
      }
    }
  };
  survey(document);

  // ---- names ------------------------------------------------------------------------------------------------------
  const textOf = (element, withoutControls) => {
    let text = "";
    const visit = (node, level) => {
      if (text.length > 2 * limits.text || level > limits.depth) return;
      if (node.nodeType === Node.TEXT_NODE) { text += part(node); return; }
      if (node.nodeType !== Node.ELEMENT_NODE || SKIPPED.has(node.tagName)) return;
      if (withoutControls && node.matches(CONTROLS)) return;
      const style = styleOf(node);
      if (style.display === "none" || style.visibility !== "visible") return;
      if (node.tagName === "IMG") text += " " + (node.alt || "") + " ";
      if (node.tagName === "BR") text += " ";
      const inline = style.display === "inline" || style.display === "contents";
      if (!inline) text += " ";
      for (const child of children(node)) visit(child, level + 1);
      if (!inline) text += " ";
    };
    for (const child of children(element)) visit(child, 0);
    return clean(text);
  };
  const referenced = (element) => clean((element.getAttribute("aria-labelledby") || "").split(/\s+/)
    .map((id) => id && document.getElementById(id)?.textContent).filter(Boolean).join(" "));
  const given = (element) => referenced(element) || clean(element.getAttribute("aria-label"));
  const graphic = (element) => {
    const image = element.matches("img, svg") ? element : element.querySelector("img[alt], svg");
    return image ? clean(image.getAttribute("alt") || image.querySelector("title")?.textContent) : "";
  };
  const labelText = (control) => clean(Array.from(control.labels || []).map((label) => textOf(label, true)).join(" "));
  const spoken = new Set(); // text nodes that serve as the name of an unlabelled checkbox or radio button
  const textAfter = (control) => {
    const found = [];
    for (let node = control.nextSibling; node; node = node.nextSibling) {
      if (node.nodeType === Node.TEXT_NODE) found.push(node);
      else if (node.nodeType === Node.ELEMENT_NODE) {
        if (node.tagName === "BR" || node.matches(CONTROLS) || node.querySelector(CONTROLS)) break;
        if (!styleOf(node).display.startsWith("inline")) break;
        const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) found.push(walker.currentNode);
      }
    }
    const text = clean(found.map((node) => node.data).join(""));
    if (text) for (const node of found) spoken.add(node);
    return text;
  };

  // ---- one node ---------------------------------------------------------------------------------------------------
  let line = "";
  let lineKind = "text";
  let depth = 0;
  let separator = "";
  const emit = (node) => {
    if (nodes.length >= limits.nodes) { truncated = true; return false; }
    if (depth) node.depth = depth;
    nodes.push(node);
    return true;
  };
  const flush = () => {
    const text = clean(line);
    line = "";
    separator = "";
    if (text) emit({ kind: lineKind, tag: lineKind === "heading" ? "h" : "p", text: cap(text, limits.text) });
  };
  const say = (text) => {
    if (line.length > limits.part) return;
    if (separator && text.trim()) {
      if (line.trim()) line = line.trimEnd() + separator;
      separator = "";
    }
    line += text;
  };
  const inView = (element, clip) => {
    for (const rect of element.getClientRects()) if (!empty(meet(rect, clip))) return true;
    return false;
  };
  const kindOf = (element) => {
    const role = ROLE_KINDS[element.getAttribute("role")];
    switch (element.tagName) {
      case "A": case "AREA": return role || "link";
      case "BUTTON": case "SUMMARY": return role || "button";
      case "TEXTAREA": return "textarea";
      case "SELECT": return "select";
      case "IMG": return role || "image";
      case "INPUT":
        if (["submit", "button", "reset", "image"].includes(element.type)) return "button";
        if (["checkbox", "radio"].includes(element.type)) return element.type;
        return "input";
      default: return role || (element.isContentEditable ? "textarea" : "clickable");
    }
  };
  // Of a scrolled text field, about what its box shows; no ellipsis at the end means that it is the end.
  const scrolledPart = ({ value, scrollTop, clientHeight, scrollHeight }) => {
    const letters = value.length / scrollHeight;
    const rest = value.slice(Math.round(letters * scrollTop));
    if (scrollTop + clientHeight >= scrollHeight - 1) return "…" + rest.slice(1 - limits.text);
    return "…" + cap(rest.slice(0, Math.round(letters * clientHeight)) + "…", limits.text - 1);
  };
  // `shown` is seen and clicked; `control` is what it represents (a label may represent a hidden checkbox).
  const unit = (shown, control, clip) => {
    const kind = kindOf(control);
    const field = kind === "input" || kind === "textarea" || kind === "select";
    const attributes = {};
    let text;
    if (control !== shown) text = textOf(shown, true);
    else if (field && !control.isContentEditable) text = given(control) || labelText(control);
    else if (kind === "button" && control.tagName === "INPUT") {
      text = control.value || given(control) || clean(control.alt)
        || { submit: "Submit", reset: "Reset" }[control.type] || "";
    } else if (control.tagName === "INPUT") text = given(control) || labelText(control) || textAfter(control);
    else if (control.isContentEditable) text = given(control);
    else text = textOf(control, false) || given(control) || graphic(control);
    if (!text) text = clean(control.getAttribute("title"));
    if (!text && field && line.trim() && clean(line).length <= 60) {
      // Text directly before an unlabelled field, on the same line, serves as its label.
      text = clean(line);
      line = "";
    }
    flush();
    const placeholder = clean(control.getAttribute("placeholder"));
    if (placeholder && !text) text = placeholder;
    else if (placeholder) attributes.placeholder = cap(placeholder, limits.attribute);
    if (control.tagName === "INPUT" && kind === "input" && control.type !== "text") attributes.type = control.type;
    if (control.readOnly) attributes.readonly = "true";
    if (kind === "clickable" && control.getAttribute("role")) attributes.role = cap(control.getAttribute("role"), limits.attribute);
    for (const state of ["expanded", "selected", "pressed"]) {
      const value = (control.closest('[role="tab"]') || control).getAttribute("aria-" + state);
      if (value === "true" || value === "false") attributes[state] = value;
    }
    if (control.getAttribute("aria-current") && control.getAttribute("aria-current") !== "false") {
      attributes.selected = "true";
    }
    if (!text && !field) {
      const hint = control.classList?.[control.classList.length - 1] || control.id || "";
      if (hint) attributes.class = cap(hint, limits.attribute);
    }

    const node = { kind, tag: tagOf(control), text: cap(text, limits.text) };
    if (kind === "checkbox" || kind === "radio") {
      node.checked = control.tagName === "INPUT" ? control.checked : control.getAttribute("aria-checked") === "true";
    } else if (kind === "select") {
      const label = (option) => cap(clean(option.label || option.textContent), limits.attribute);
      node.value = Array.from(control.selectedOptions).slice(0, limits.options).map(label).join(", ");
      const options = Array.from(control.options).filter((option) => !option.disabled);
      if (options.length > limits.options) truncated = true;
      node.options = options.slice(0, limits.options).map(label);
    } else if (control.isContentEditable) node.value = cap(textOf(control, false), limits.text);
    else if (field && control.type === "password") node.value = "*".repeat(Math.min(control.value.length, 20));
    else if (field) node.value = control.scrollTop ? scrolledPart(control) : cap(control.value ?? "", limits.text);
    if (control.matches(":disabled") || control.getAttribute("aria-disabled") === "true") node.disabled = true;
    if (Object.keys(attributes).length) node.attributes = attributes;
    if (!node.disabled && pointOf(shown, clip)?.onTop) {
      node.id = elements.length;
      if (emit(node)) elements.push(shown);
    } else if (node.text || field) emit(node);
  };

  // ---- the walk ---------------------------------------------------------------------------------------------------
  const range = document.createRange();
  const readText = (node, clip) => {
    if (spoken.has(node)) return;
    if (!node.data.trim()) { say(" "); return; }
    range.selectNodeContents(node);
    if (empty(meet(range.getBoundingClientRect(), clip))) return;
    say(part(node));
  };
  const smallCell = (element) => short(element, 120) && !element.querySelector("table");

  let walked = 0;
  const walk = (element, clip, inCell, level) => {
    walked += 1;
    if (nodes.length >= limits.nodes || walked > limits.elements || level > limits.depth) {
      truncated = true;
      return;
    }
    if (SKIPPED.has(element.tagName)) return;
    const style = styleOf(element);
    if (style.display === "none") return;
    if (style.opacity === "0" && !element.matches("input")) return;
    const visible = style.visibility === "visible";

    if (visible && strongOnes.has(element) && !around.has(element)) {
      if (inView(element, clip)) unit(element, element, clip);
      return;
    }
    if (visible && element.tagName === "LABEL" && element.control) {
      const control = element.control;
      if (!seen(control) || styleOf(control).opacity === "0") {
        if (inView(element, clip)) unit(element, control, clip);
        return;
      }
      if (textOf(element, true) && !given(control)) { // the control carries this text
        if (element.contains(control)) for (const child of element.querySelectorAll(CONTROLS)) walk(child, clip, inCell, level);
        return;
      }
    }
    if (visible && element.tagName === "IMG") {
      if (style.cursor === "pointer" && inView(element, clip)) unit(element, element, clip);
      else if (element.alt && inView(element, clip)) {
        flush();
        emit({ kind: "image", tag: "img", text: cap(clean(element.alt), limits.text) });
      }
      return;
    }
    if (element instanceof SVGElement && !around.has(element)) return;
    const ownText = Array.from(children(element)).some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (visible && ownText && style.cursor === "pointer" && !around.has(element) && element.tagName !== "LABEL") {
      if (inView(element, clip)) unit(element, element, clip);
      return;
    }

    let box = clip;
    if (style.position === "fixed") box = notes.view();
    if (notes.clips(style)) {
      const own = element.getBoundingClientRect();
      if (element !== document.body && element !== document.documentElement) box = meet(box, own);
      if (own.width * own.height <= 4) return; // text for screen readers only
    }

    const display = style.display;
    const inline = display === "inline" || display === "contents";
    const cell = display === "table-cell" && smallCell(element);
    const term = element.tagName === "DT";
    const detail = element.tagName === "DD";
    const block = !inline && display !== "inline-block" && display !== "inline-flex" && !cell && !detail;
    const heading = /^H[1-6]$/.test(element.tagName) || element.getAttribute("role") === "heading";
    if (inCell && !inline) say(" ");
    else if (block) flush();
    else if (!inline && !cell && !detail) say(" ");
    const outer = lineKind;
    if (heading) lineKind = "heading";
    const nested = CONTAINERS.has(element.tagName);
    if (nested) depth += 1;
    for (const child of children(element)) {
      if (child.nodeType === Node.ELEMENT_NODE) {
        if (child.tagName === "BR") { if (inCell) say(" "); else flush(); } else walk(child, box, inCell || cell, level + 1);
      } else if (child.nodeType === Node.TEXT_NODE && visible) readText(child, box);
    }
    if (cell) separator = " | ";
    else if (term) { if (line.trim()) { line = line.trimEnd().replace(/:$/, ""); separator = ": "; } }
    else if (detail) flush();
    else if (inCell && !inline) say(" ");
    else if (block) flush();
    else if (!inline) say(" ");
    if (nested) depth -= 1;
    lineKind = outer;
  };
  if (document.body) {
    walk(document.body, notes.view(), false, 0);
    flush();
  }

  let outline;
  if (limits.outline) {
    outline = notes.outline({ limits, nodes, elements, tagOf,
      describe: (element) => ({ kind: kindOf(element), tag: tagOf(element),
        text: cap(textOf(element, false) || given(element) || graphic(element), limits.text) }),
      cut: () => { truncated = true; } });
  }
  notes.elements = elements;
  const ordinal = Number(document.querySelector('meta[name="world-ordinal"]')?.content);
  const page = {
    url: location.href,
    title: cap(clean(titleOf.call(document)), limits.text),
    nodes,
    ordinal: Number.isSafeInteger(ordinal) && ordinal >= 0 ? ordinal : 0,
    truncated,
    outline,
  };
  // Half a surrogate pair, from a cut or a script, cannot be encoded.
  const whole = (_, value) => (typeof value === "string" ? value.toWellFormed() : value);
  return JSON.stringify({ opened, ended: notes.ended(), page }, whole);
}
