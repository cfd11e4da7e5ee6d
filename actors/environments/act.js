// What an action needs from the page, by the number that the last snapshot gave to an element.
// Returns {state: "ready", x, y} or the reason why not: unknown, gone, disabled, hidden, covered, and others by `way`.
// `box` is the visible box of the element at that moment; null where it is not visible.
({ id, way, option }) => {
  const notes = window[Symbol.for("hindcast.notes")];
  const element = notes && notes.elements[id];
  if (!element) return { state: "unknown" };
  if (!element.isConnected) return { state: "gone" };
  let box = notes.boxOf(element);
  const say = (state, more) => ({ state, box, ...more });
  if (element.matches(":disabled") || element.getAttribute("aria-disabled") === "true") return say("disabled");

  if (way === "point") {
    let point = notes.pointOf(element, notes.clipOf(element));
    if (!point) {
      element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      box = notes.boxOf(element);
      point = notes.pointOf(element, notes.clipOf(element));
    }
    if (!point) return say("hidden");
    return say(point.onTop ? "ready" : "covered", { x: point.x, y: point.y });
  }

  if (way === "field") {
    // Focus the field and select its text, so that typing replaces it.
    const control = element.tagName === "LABEL" && element.control ? element.control : element;
    const editable = control.isContentEditable || control.tagName === "TEXTAREA"
      || (control.tagName === "INPUT" && !["checkbox", "radio", "button", "submit", "reset", "image", "file", "range",
        "color", "hidden"].includes(control.type));
    if (!editable) return say("no field");
    if (control.readOnly) return say("readonly");
    control.focus();
    if (control.isContentEditable) getSelection().selectAllChildren(control);
    else control.select();
    const dated = ["date", "time", "month", "week", "datetime-local"].includes(control.type);
    return say("ready", { dated });
  }

  if (way === "value") {
    // Date and time fields have no text to type into: set the value as their picker would.
    const setter = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
    setter.call(element, option);
    if (element.value !== option) return say("no value", { offered: element.type });
    element.dispatchEvent(new Event("input", { bubbles: true }));
    element.dispatchEvent(new Event("change", { bubbles: true }));
    return say("ready");
  }

  // way === "option"
  if (element.tagName !== "SELECT") return say("no dropdown");
  // Prompts show a number in square brackets, which mark an element there, in round ones.
  const fold = (text) => (text || "").replace(/\s+/g, " ").trim().toLowerCase().replace(/\[(\s*\d+\s*)\]/g, "($1)");
  const options = Array.from(element.options).filter((one) => !one.disabled);
  const label = (one) => fold(one.label || one.textContent);
  const wanted = fold(option);
  const near = options.filter((one) => wanted && label(one).includes(wanted));
  const chosen = options.find((one) => (one.label || one.textContent) === option)
    || options.find((one) => label(one) === wanted) || options.find((one) => fold(one.value) === wanted)
    || (near.length === 1 ? near[0] : null);
  if (!chosen) return say("no option", { offered: options.slice(0, 8).map((one) => one.label).join(", ") });
  element.focus();
  if (!element.multiple) for (const one of element.options) one.selected = false;
  chosen.selected = true;
  element.dispatchEvent(new Event("input", { bubbles: true }));
  element.dispatchEvent(new Event("change", { bubbles: true }));
  return say("ready");
}
