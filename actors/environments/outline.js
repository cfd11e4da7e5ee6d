// The page as WebRL's published code reads it (THUDM/VisualAgentBench, VAB-WebArena-Lite, html_tools: prepare.js,
// clickable_checker.js, label.js, html_parser.py): its elements in document order, as core.domain.observation.Element.
// Kept: elements in the window that have text, can be clicked, or contain several elements with text. Labelled: the
// innermost clickable ones. A labelled element gets the number of its own node, of an enclosing or of a contained node;
// without one, `describe` makes a node. `nodes` and `elements` are changed in place.
({ limits, nodes, elements, describe, tagOf, cut }) => {
  const ATTRIBUTES = ["title", "value", "type", "placeholder", "selected", "data-value", "data-text", "data-testid",
    "data-label", "data-bbox", "data-status"];
  const TAGS = new Set(["INPUT", "TEXTAREA", "SELECT", "BUTTON", "A", "IFRAME", "VIDEO", "OBJECT", "EMBED", "DETAILS"]);
  const ROLES = new Set(["button", "tab", "link", "checkbox", "menuitem", "menuitemcheckbox", "menuitemradio", "radio"]);
  // The published code parses the page again by HTML 4, which does not know these to be empty: their following siblings
  // become their children.
  const UNCLOSED = new Set(["SOURCE", "TRACK", "WBR"]);

  // White space of any kind but no-break spaces, which are entities in that code.
  const BREAKS = /[\t-\r\x1c-\x20\x85\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
  const plain = (text) => {
    const folded = (text || "").slice(0, limits.part).replace(BREAKS, " ").trim();
    return folded.length > limits.value ? Array.from(folded).slice(0, limits.value).join("") : folded;
  };
  const inWindow = ({ left, top, right, bottom }) => {
    const box = { left: Math.max(0, left), top: Math.max(0, top), right: Math.min(innerWidth, right),
      bottom: Math.min(innerHeight, bottom) };
    return { width: box.right - box.left, height: box.bottom - box.top };
  };

  // ---- what can be clicked ------------------------------------------------------------------------------------------
  const jsaction = (element) => (element.getAttribute("jsaction") || "").split(";").some((rule) => {
    const parts = rule.trim().split(":");
    const [event, target] = parts.length === 1 ? ["click", parts[0]] : parts;
    const [space, action = "_"] = target.trim().split(".");
    return parts.length < 3 && event === "click" && space !== "none" && action !== "_";
  });
  const clickable = (element) => {
    if (element.onclick != null || getComputedStyle(element).cursor === "pointer" || TAGS.has(element.tagName)) return true;
    if (ROLES.has((element.getAttribute("role") || "").toLowerCase())) return true;
    const editable = element.getAttribute("contenteditable");
    if (editable !== null && ["", "contenteditable", "true"].includes(editable.toLowerCase())) return true;
    if (element.hasAttribute("jsaction") && jsaction(element)) return true;
    if (element.tagName === "LABEL" && element.control && !element.control.disabled) return true;
    if (element.tagName === "IMG") {
      const map = element.useMap && CSS.escape(element.useMap.replace(/^#/, ""));
      if (map && document.querySelector(`map[name="${map}"]`)) return true;
      if (["zoom-in", "zoom-out"].includes(element.style.cursor)) return true;
    }
    if ((element.getAttribute("class") || "").toLowerCase().includes("button")) return true;
    return Number.parseInt(element.getAttribute("tabindex"), 10) >= 0;
  };
  const hitArea = (element) => {
    let area = 0;
    for (const rect of element.getClientRects()) {
      const hit = document.elementFromPoint(rect.left + rect.width / 2, rect.top + rect.height / 2);
      if (!hit || !element.contains(hit)) continue;
      const { width, height } = inWindow(rect);
      area += width * height;
    }
    return area;
  };
  const found = [];
  const holding = new Set();
  const all = document.querySelectorAll("*");
  for (let index = 0; index < all.length; index += 1) {
    if (index >= limits.elements) { cut(); break; }
    const element = all[index];
    if (!clickable(element) || !(hitArea(element) >= 1)) continue;
    found.push(element);
    let parent = element.parentElement;
    while (parent && !holding.has(parent)) {
      holding.add(parent);
      parent = parent.parentElement;
    }
  }
  const labelled = found.filter((element) => {
    if (holding.has(element)) return false;
    const { width, height } = inWindow(element.getClientRects()[0]);
    return width > 0 || height > 0;
  });

  // ---- which elements are kept --------------------------------------------------------------------------------------
  const labels = new Set(labelled);
  // An element's own texts, up to its first child or all: together limited like one text.
  const ownTexts = (nodes, from, upToChild) => {
    const texts = [];
    let room = limits.part;
    for (let index = from; index < nodes.length; index += 1) {
      const node = nodes[index];
      if (room <= 0 || (upToChild && isRead(node))) break;
      if (node.nodeType !== Node.TEXT_NODE) continue;
      texts.push(node.data.slice(0, room));
      room -= node.data.length;
    }
    return texts;
  };
  const isRead = (node) => node.nodeType === Node.ELEMENT_NODE && !["script", "style"].includes(node.localName);
  const attributesOf = (element) => {
    const said = { "data-bbox": "" };
    for (const name of ATTRIBUTES) said[name] = element.getAttribute(name);
    const rect = element.getClientRects()[0];
    if (rect) {
      const left = Math.round(rect.left), top = Math.round(rect.top);
      said["data-bbox"] = `${left},${top},${Math.round(rect.right) - left},${Math.round(rect.bottom) - top}`;
    }
    if (element.hasChildNodes()) {
      said["data-text"] = ownTexts(element.childNodes, 0, false).map((text) => text.trim().replace(/\s{2,}/g, " "))
        .filter(Boolean).join(",");
    }
    const secret = element.tagName === "INPUT" && element.type === "password";
    if (element.tagName === "SELECT") {
      said["data-value"] = element.value;
      said["data-text"] = element.options[element.selectedIndex]?.text;
    } else if (element.tagName === "INPUT" || element.tagName === "TEXTAREA") said["data-value"] = element.value;
    if (secret) for (const name of ["value", "data-value"]) said[name] = "*".repeat(Math.min(said[name]?.length || 0, 20));
    if (element.tagName === "INPUT" && element.getAttribute("type") === "checkbox") {
      said["data-status"] = element.checked ? "checked" : "not-checked";
    }
    if (element.tagName === "OPTION" && element.parentNode?.closest?.("select")?.selectedOptions[0] === element) {
      said["data-status"] = "selected";
    }
    if (said.type === "hidden") delete said.type;
    const shown = {};
    for (const name of ATTRIBUTES) {
      const value = plain(said[name]);
      if (value) shown[name] = value;
    }
    return shown;
  };
  const touches = (attributes) => {
    if (!attributes["data-bbox"]) return false;
    const [x, y, width, height] = attributes["data-bbox"].split(",").map(Number);
    return x + width >= 0 && x <= innerWidth && y + height >= 0 && y <= innerHeight;
  };
  // `content` from an index on is the content of an element after parsing: its children, or for an unclosed one its later
  // siblings.
  let looked = 0;
  const read = (element, content, from, inSelect, level) => {
    const attributes = attributesOf(element);
    const label = labels.has(element);
    const seen = element.getAttribute("aria-hidden") !== "true" && touches(attributes);
    const candidate = seen || label || (inSelect && element.tagName === "OPTION");
    const text = plain(ownTexts(content, from, true).join(""));
    let speaking = 0;
    let inner = [];
    for (let index = from; index < content.length; index += 1) {
      const node = content[index];
      if (!isRead(node)) continue;
      looked += 1;
      if (level >= limits.depth || looked > limits.elements) { cut(); break; }
      const unclosed = UNCLOSED.has(node.tagName);
      const within = node instanceof HTMLTemplateElement ? node.content : node;
      const options = candidate && element.tagName === "SELECT";
      const child = unclosed ? read(node, content, index + 1, options, level + 1)
        : read(node, Array.from(within.childNodes), 0, options, level + 1);
      if (child.speaks) speaking += 1;
      if (!inner.length) inner = child.kept;
      else for (const one of child.kept) inner.push(one);
      if (unclosed) break;
    }
    const says = Boolean(text) || Object.keys(attributes).some((name) => name !== "data-bbox");
    const keep = candidate && (speaking > 1 || says || (label && seen));
    return { kept: keep ? [{ element, text, attributes, inner }] : inner, speaks: says || speaking > 0 };
  };
  const root = document.documentElement; // a script may have taken it away
  const kept = root ? read(root, Array.from(root.childNodes), 0, false, 0).kept : [];

  // ---- in document order, as long as there is room ------------------------------------------------------------------
  const flat = [];
  let room = limits.outlined;
  const flatten = ({ element, text, attributes, inner }, depth) => {
    const tag = tagOf(element);
    room -= 2 * tag.length + text.length + Object.entries(attributes).join("").length + 20;
    if (room < 0) { cut(); return; }
    const line = { tag, attributes };
    if (depth) line.depth = depth;
    if (text) line.text = text;
    flat.push({ element, line });
    for (const child of inner) flatten(child, depth + 1);
  };
  for (const top of kept) flatten(top, 0);

  // ---- numbers ------------------------------------------------------------------------------------------------------
  const shown = flat.filter(({ element }) => labels.has(element)).map(({ element }) => element);
  const owners = new Map(); // from an element of the page's nodes to its node
  for (const node of nodes) if (node.id) owners.set(elements[node.id], node);
  const places = new Map(Array.from(owners, ([element, node]) => [node, element]));
  const free = new Set(shown);
  const around = (element, has) => {
    for (let one = element; one; one = one.parentElement) if (has(one)) return one;
    return null;
  };
  for (const element of shown) {
    const owner = around(element, (one) => owners.has(one));
    if (!owner) continue;
    places.set(owners.get(owner), element);
    owners.delete(owner);
    free.delete(element);
  }
  for (const [owner, node] of owners) {
    const element = around(owner, (one) => free.has(one));
    if (!element) continue;
    places.set(node, element);
    free.delete(element);
  }
  let numbered = places.size;
  let at = 0;
  for (const element of shown) {
    if (!free.has(element)) continue;
    if (numbered >= limits.nodes) { cut(); break; }
    const precedes = (node) => places.has(node)
      && element.compareDocumentPosition(places.get(node)) & Node.DOCUMENT_POSITION_FOLLOWING;
    while (at < nodes.length && !precedes(nodes[at])) at += 1;
    const node = describe(element);
    nodes.splice(at, 0, node);
    places.set(node, element);
    numbered += 1;
  }
  elements.length = 1;
  const numbers = new Map();
  for (const node of nodes) {
    if (!places.has(node)) continue;
    node.id = elements.length;
    elements.push(places.get(node));
    numbers.set(places.get(node), node.id);
  }
  let last = 0;
  for (const { element, line } of flat) {
    const number = labels.has(element) ? numbers.get(element) : 0;
    if (number > last) line.id = last = number;
  }
  return flat.map(({ line }) => line);
}
