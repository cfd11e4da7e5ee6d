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
    if (!answer.ok) place.textContent = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main p")?.textContent ?? answer.statusText;
  } catch (error) {
    delete place.dataset.loaded;
    place.textContent = `not loaded: ${error.message}`;
  }
}, true);

// the position in the log
document.addEventListener("input", (event) => {
  if (event.target.name === "as_of") event.target.form.querySelector("output").textContent = event.target.value;
});
document.addEventListener("change", (event) => {
  if (event.target.name === "as_of" || event.target.tagName === "SELECT") event.target.form.requestSubmit();
});

// a run that goes on: the page is asked for again, and what was opened in it stays open
async function renew() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const opened = new Map([...main().querySelectorAll("details[open]")].map((one) => [key(one), one]));
  const here = document.querySelector(".here")?.id;
  for (const details of fresh.querySelectorAll("main details")) {
    const before = opened.get(key(details));
    if (before) details.replaceWith(document.adoptNode(before));
    else if (details.dataset.piece === undefined && main().querySelector("details")) details.open = false;
  }
  main().replaceChildren(...fresh.getElementById("main").childNodes);
  document.querySelector("footer").replaceWith(fresh.querySelector("footer"));
  const range = document.querySelector("input[name=as_of]");
  const now = fresh.querySelector("input[name=as_of]");
  if (document.activeElement !== range) {
    range.max = now.max;
    range.value = now.value;
    range.form.querySelector("output").textContent = now.value;
  }
  if (here) document.getElementById(here)?.classList.add("here");
}

function key(details) {
  return details.dataset.piece ?? details.querySelector("summary").textContent;
}

function follow(address) {
  let waiting = false;
  const stream = new EventSource(address);
  let first = true;
  stream.onmessage = async () => {
    if (first) { first = false; return; }
    // a form under way, a marked text: nobody takes those away
    if (waiting || document.hidden || main().contains(document.activeElement) && document.activeElement.form || !getSelection().isCollapsed) return;
    waiting = true;
    try { await renew(); } finally { setTimeout(() => { waiting = false; }, 1000); }
  };
}
if (document.body.dataset.live) follow(document.body.dataset.live);

// j and k move, o and Enter open, [ and ] lead to the pages beside
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  const items = [...document.querySelectorAll(".steps .step, table.rows tbody tr")];
  const now = items.findIndex((item) => item.classList.contains("here"));
  if (event.key === "j" || event.key === "k") {
    const next = items[Math.max(0, Math.min(items.length - 1, now + (event.key === "j" ? 1 : -1)))];
    if (!next) return;
    items[now]?.classList.remove("here");
    next.classList.add("here");
    if (next.tabIndex >= 0) next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  } else if (event.key === "o" && now >= 0) {
    const details = items[now].querySelector("details");
    if (details) details.open = !details.open;
    else items[now].querySelector("a")?.click();
  } else if (event.key === "[" || event.key === "]") {
    const views = [...document.querySelectorAll(".views a")];
    const current = views.findIndex((view) => view.hasAttribute("aria-current"));
    views[current + (event.key === "]" ? 1 : -1)]?.click();
  }
});
