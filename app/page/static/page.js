// Everything works without this. It follows the run, moves the position, opens steps, and listens to keys.
"use strict";

const main = () => document.getElementById("main");

// pieces of a page that are fetched when somebody opens them
document.addEventListener("toggle", async (event) => {
  const details = event.target;
  if (!details.open || !details.dataset || !details.dataset.piece) return;
  const place = details.querySelector(".piece");
  if (place.dataset.loaded) return;
  place.dataset.loaded = "yes";
  try {
    const answer = await fetch(details.dataset.piece);
    place.innerHTML = answer.ok ? await answer.text() : "";
    if (!answer.ok) delete place.dataset.loaded; // opened once more, it is asked for once more
    if (!answer.ok) place.textContent = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main p")?.textContent ?? answer.statusText;
  } catch (error) {
    delete place.dataset.loaded;
    place.textContent = `not loaded: ${error.message}`;
  }
}, true);

// on a phone a table that is wider than its place becomes a list of rows, in which each cell has its column's name
const phone = matchMedia("(max-width: 640px)");
function stackWideTables() {
  for (const table of document.querySelectorAll(".scroll > table")) {
    table.classList.remove("stacked");
    const heads = table.tHead?.rows.length === 1 ? [...table.tHead.rows[0].cells] : [];
    if (!phone.matches || !heads.length || heads.some((head) => head.colSpan > 1) || table.scrollWidth <= table.parentElement.clientWidth) continue;
    for (const row of table.tBodies[0]?.rows ?? [])
      for (const [place, cell] of [...row.cells].entries()) cell.dataset.label = heads[place]?.textContent ?? "";
    table.classList.add("stacked");
  }
}

// a long list has its first rows there, and a button for the others; the style sheet has the same number
const FIRST_ROWS = 10;
const unfolded = new Set(); // tables whose rows were all asked for
const isFar = `:scope > tbody > tr:nth-child(n + ${FIRST_ROWS + 1})`;
function foldLongTables() {
  for (const button of document.querySelectorAll(".unfold")) button.remove();
  const named = document.getElementById(location.hash.slice(1)); // `:target` is not yet known when the page begins
  for (const table of document.querySelectorAll("main .scroll > table")) {
    const name = (table.tHead ?? table.rows[0])?.textContent;
    const far = table.querySelectorAll(isFar);
    const linked = unfolded.has(name) ? undefined : [...far].find((row) => row === named);
    if (linked) unfolded.add(name);
    const folded = phone.matches && far.length > 0 && !unfolded.has(name);
    table.classList.toggle("folded", folded);
    if (phone.matches) linked?.scrollIntoView();
    if (folded) table.parentElement.after(rest(far, name));
  }
}

function rest(rows, name) {
  const place = document.createElement("p");
  place.className = "unfold";
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `${rows.length} more ${rows.length === 1 ? "row" : "rows"}`;
  button.addEventListener("click", () => {
    unfolded.add(name);
    foldLongTables();
    rows[0].querySelector("a, summary")?.focus({ preventScroll: true });
  });
  place.append(button);
  return place;
}

// of a graph that is wider than its place, the thing itself is seen first
function showThing() {
  const thing = document.querySelector(".scroll > .graph .thing");
  const place = thing?.closest(".scroll");
  if (!place || place.dataset.centered) return;
  place.dataset.centered = "yes";
  const [inner, outer] = [thing.getBoundingClientRect(), place.getBoundingClientRect()];
  place.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
}
showThing();
document.addEventListener("renewed", showThing);

function fitTables() {
  stackWideTables();
  foldLongTables();
}
fitTables();
addEventListener("resize", fitTables);
addEventListener("hashchange", foldLongTables);
document.addEventListener("renewed", fitTables);
document.addEventListener("toggle", fitTables, true);

// the position in the log
document.addEventListener("input", (event) => {
  if (event.target.name === "as_of") event.target.form.querySelector("output").textContent = event.target.value;
});
// a key moves it by one: whoever holds or repeats it is waited for
const SETTLED_MS = 500;
let moving = 0;
document.addEventListener("change", (event) => {
  if (!event.target.form || event.target.form.dataset.submit || event.target.name !== "as_of" && event.target.tagName !== "SELECT" && event.target.type !== "checkbox") return;
  clearTimeout(moving);
  moving = setTimeout(() => event.target.form.requestSubmit(), SETTLED_MS);
});

// a run that goes on: the page is asked for again, and what was opened in it stays open
async function renew() {
  const answer = await fetch(location.href);
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const opened = new Map([...main().querySelectorAll("details[open]")].map((one) => [key(one), one]));
  const here = document.querySelector(".here")?.id;
  const focus = main().contains(document.activeElement) && document.activeElement !== main() ? mark(document.activeElement) : null;
  for (const details of fresh.querySelectorAll("main details")) {
    const before = opened.get(key(details));
    if (before) {
      details.open = true;
      const loaded = before.querySelector(":scope > .piece");
      if (loaded) details.querySelector(":scope > .piece").replaceWith(document.adoptNode(loaded));
    } else if (details.dataset.piece === undefined && main().querySelector("details")) details.open = false;
  }
  const steady = keep(fresh);
  main().replaceChildren(...fresh.getElementById("main").childNodes);
  steady();
  document.dispatchEvent(new Event("renewed"));
  document.querySelector("footer").replaceWith(fresh.querySelector("footer"));
  document.querySelector(".now")?.replaceWith(fresh.querySelector(".now") ?? "");
  const range = document.querySelector("input[name=as_of]");
  const now = fresh.querySelector("input[name=as_of]");
  if (range && document.activeElement !== range) {
    range.max = now.max;
    range.value = now.value;
    range.form.querySelector("output").textContent = now.value;
  }
  if (here) document.getElementById(here)?.classList.add("here");
  if (focus) alike(focus.name)[focus.place]?.focus({ preventScroll: true });
  shown = fresh.body.dataset.shown;
}

// A table of newest rows first: a reader who scrolled into it, or points at it, keeps the rows they see. Those rows are
// brought up to date in their places; new ones are counted, and shown when the reader asks for them.
let catchUp = false;

function isHeld(table) {
  return !catchUp && (scrollY > 0 || table.matches(":hover") || table.contains(document.activeElement) || table.querySelector(".here"));
}

// puts the rows that are seen now into the fresh page; what it returns keeps their place in the window
function keep(fresh) {
  const table = main().querySelector("table[data-steady]");
  const next = fresh.querySelector("main table[data-steady]");
  if (!table || !next || !isHeld(table)) {
    catchUp = false;
    return () => {};
  }
  const rows = [...table.tBodies[0].rows];
  const found = new Map([...next.tBodies[0].rows].map((row) => [row.id, row]));
  const newest = [...found.keys()];
  const known = new Set(rows.map((row) => row.id));
  const last = newest.findLastIndex((id) => known.has(id));
  const waiting = newest.slice(0, last < 0 ? newest.length : last).filter((id) => !known.has(id)).length;
  const end = rows.findLastIndex((row) => found.has(row.id));
  const kept = rows.map((row, place) => {
    const now = found.get(row.id);
    // one after the end fell off the fresh page; one before it does not match the filters any more
    row.classList.toggle("past", !now && place < end);
    return now ?? document.adoptNode(row);
  });
  const seen = rows.find((row) => row.getBoundingClientRect().bottom > 0);
  const top = seen?.getBoundingClientRect().top;
  const aside = table.parentElement.scrollLeft;
  next.tBodies[0].replaceChildren(...kept);
  if (waiting) next.parentElement.before(newer(waiting, table.dataset.steady));
  return () => {
    next.parentElement.scrollLeft = aside;
    const now = seen && document.getElementById(seen.id);
    if (now) scrollBy(0, now.getBoundingClientRect().top - top);
  };
}

function newer(count, name) {
  const note = document.createElement("p");
  note.className = "newer";
  note.setAttribute("role", "status");
  const button = document.createElement("button");
  button.type = "button";
  button.id = "newer";
  button.textContent = `${count} newer ${name}${count === 1 ? "" : "s"}: show`;
  button.addEventListener("click", () => {
    catchUp = true;
    renew().then(() => scrollTo(0, 0)).catch(() => { catchUp = false; });
  });
  note.append(button);
  return note;
}

// what has the focus, so that its successor gets it: who reads with the keyboard is not sent back to the top
function mark(element) {
  const name = named(element);
  return { name, place: alike(name).indexOf(element) };
}

function alike(name) {
  return [...main().querySelectorAll("a, summary, button, [tabindex], .chart-controls input")].filter((one) => named(one) === name);
}

function named(element) {
  return element.tagName + (element.id || element.getAttribute("href") || element.textContent);
}

function key(details) {
  return details.dataset.piece ?? details.querySelector("summary").textContent;
}

// Nothing is missed: what could not be shown at once is shown when the reader lets go, or comes back. A tab that nobody
// looks at holds no stream, since a browser opens no more than six to one server.
const PAUSE_MS = 1000;
let shown = document.body.dataset.shown;

function follow(address) {
  let stream = null;
  let told = shown;
  let busy = false;

  async function show() {
    // a form under way, a marked text: nobody takes those away
    const said = [...main().querySelectorAll(".say input[name=reason]")].some((field) => field.value);
    const chosen = [...main().querySelectorAll("form[data-submit] input")].some((box) => box.checked !== box.defaultChecked);
    const held = said || chosen || main().querySelector(".area:active, .chart-controls :active, .lanes:active") || main().contains(document.activeElement) && document.activeElement.form || !getSelection().isCollapsed;
    if (busy || told === shown || document.hidden || held) return;
    busy = true;
    const began = performance.now();
    try { await renew(); } catch { /* the server is away or busy: the next try is soon */ }
    // a page that takes long to make is asked for less often
    setTimeout(() => { busy = false; show(); }, Math.max(PAUSE_MS, 4 * (performance.now() - began)));
  }

  function listen() {
    if (document.hidden) {
      stream?.close();
      stream = null;
    } else if (!stream || stream.readyState === EventSource.CLOSED) {
      stream = new EventSource(address);
      stream.onmessage = (event) => { told = event.data; show(); };
    }
  }

  document.addEventListener("visibilitychange", listen);
  setInterval(show, PAUSE_MS);
  listen();
}
if (document.body.dataset.live) follow(document.body.dataset.live);

// j and k move, o and Enter open, [ and ] lead to the pages beside
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  const items = [...document.querySelectorAll(".steps .step, table.rows tbody tr")].filter((item) => item.offsetParent);
  const now = items.findIndex((item) => item.classList.contains("here"));
  if (event.key === "j" || event.key === "k") {
    const next = items[Math.max(0, Math.min(items.length - 1, now + (event.key === "j" ? 1 : -1)))];
    if (!next) return;
    items[now]?.classList.remove("here");
    next.classList.add("here");
    if (next.tabIndex >= 0) next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  } else if (now >= 0 && (event.key === "o" || event.key === "Enter" && event.target === items[now])) {
    const details = items[now].querySelector("details");
    if (details) details.open = !details.open;
    else items[now].querySelector("a")?.click();
  } else if (event.key === "[" || event.key === "]") {
    const views = [...document.querySelectorAll(".views a")];
    const current = views.findIndex((view) => view.hasAttribute("aria-current"));
    views[current + (event.key === "]" ? 1 : -1)]?.click();
  }
});

// a drag over the timeline enlarges a stretch of it
const SECOND_NS = 1e9;
const LEAST_DRAG = 6; // pixels; less is a click
let stretch = null;
const share = (event, box) => Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
document.addEventListener("dragstart", (event) => { if (event.target.closest?.(".lanes")) event.preventDefault(); });
document.addEventListener("pointerdown", (event) => {
  const picture = event.pointerType === "mouse" && event.button === 0 && event.target.closest?.("svg.lanes");
  if (!picture || location.protocol === "file:") return;
  const chosen = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  chosen.setAttribute("class", "chosen");
  chosen.setAttribute("height", "100%");
  const box = picture.getBoundingClientRect();
  stretch = { picture, chosen, box, from: event.clientX, begin: share(event, box), end: null };
});
document.addEventListener("pointermove", (event) => {
  if (!stretch || stretch.end === null && Math.abs(event.clientX - stretch.from) < LEAST_DRAG) return;
  stretch.end = share(event, stretch.box);
  stretch.chosen.setAttribute("x", `${100 * Math.min(stretch.begin, stretch.end)}%`);
  stretch.chosen.setAttribute("width", `${100 * Math.abs(stretch.end - stretch.begin)}%`);
  stretch.picture.append(stretch.chosen);
});
document.addEventListener("click", (event) => {
  if (stretch?.end != null) event.preventDefault(); // the end of a drag opens no bar
}, true);
document.addEventListener("pointerup", () => {
  if (!stretch) return;
  const { picture, chosen, begin, end } = stretch;
  setTimeout(() => { stretch = null; });
  chosen.remove();
  if (end === null) return;
  const { until, window: seconds } = picture.parentElement.dataset;
  const address = new URL(location.href);
  const after = (1 - Math.max(begin, end)) * seconds;
  address.searchParams.set("until", BigInt(until) - BigInt(Math.round(after * SECOND_NS)));
  address.searchParams.set("seconds", Math.max(1, Math.round(Math.abs(end - begin) * seconds)));
  location.assign(address);
});
