// Plays an episode a step at a time: its screenshot or its page drawn, the answer, the result. It is made from the page's own film
// strip and list of steps, which are all there is without this script.
"use strict";

(() => {
  const pieces = new Map(); // address of a step in full -> its parts
  const place = () => document.getElementById("player");
  let shown = null;
  let afterwards = false; // whether the page after a step is shown, too

  function element(tag, attributes = {}, ...children) {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  }

  // an item of the list without the address of its step, which leads to the player
  const LISTED = "listed-";
  function stepId(item) {
    if (!item.id.startsWith(LISTED)) item.id = LISTED + item.id;
    return item.id.slice(LISTED.length);
  }

  const partsOf = (source) => ({ seen: source.querySelector(".seen"), said: source.querySelector(".said") });

  // a file without a server has its steps inside
  const held = (details) => details.dataset.piece ? null : partsOf(details);

  // the steps of the list, and the page that the episode ended on, each with its picture if one was taken
  function scenes() {
    const frames = [...document.querySelectorAll(".strip li")];
    const picture = (step) => frames.filter((one) => one.dataset.step === step && one.querySelector("svg"))
      .sort((one, other) => (other.dataset.shows === "before") - (one.dataset.shows === "before"))[0]?.querySelector("svg");
    const steps = [...document.querySelectorAll(".steps .step")].map((item) => ({
      id: stepId(item),
      name: item.querySelector(".index").textContent,
      summary: item.querySelector("summary"),
      piece: item.querySelector("details").dataset.piece,
      held: held(item.querySelector("details")),
      gain: [...item.classList].find((name) => /^(up|down)-\d$/.test(name)) ?? "",
      failed: !item.querySelector(".result.ok, .result.exit"),
      picture: picture(stepId(item).replace("step-", "")),
      missing: frames.find((one) => stepId(item) === `step-${one.dataset.step}`)?.querySelector(".empty")?.textContent,
    }));
    const end = picture("end");
    const last = document.getElementById("ended-on");
    return end || last ? [...steps, { id: "end", name: "end", picture: end, piece: last?.dataset.piece, held: last && held(last) }] : steps;
  }

  function current(all) {
    const named = all.findIndex((scene) => `#${scene.id}` === location.hash);
    const kept = all.findIndex((scene) => scene.id === shown);
    return Math.max(0, named >= 0 ? named : kept);
  }

  async function load(address) {
    if (!pieces.has(address)) {
      const answer = await fetch(address);
      const text = await answer.text();
      const parts = new DOMParser().parseFromString(text, "text/html");
      if (!answer.ok) return { seen: element("p", { className: "empty", textContent: parts.querySelector("main p")?.textContent ?? answer.statusText }), said: null };
      pieces.set(address, partsOf(parts));
    }
    return pieces.get(address);
  }

  function go(all, next) {
    if (!all[next]) return;
    shown = all[next].id;
    history.replaceState(null, "", `#${shown}`);
    draw();
  }

  function button(id, text, disabled, action) {
    const made = element("button", { type: "button", id, textContent: text, disabled });
    made.addEventListener("click", action);
    return made;
  }

  function thumb(scene, chosen, action) {
    const label = scene.summary ? scene.summary.querySelector("code").textContent : "the page it ended on";
    const made = button(`thumb-${scene.id}`, "", false, action);
    made.className = scene.failed ? "thumb failed" : "thumb";
    made.title = label;
    if (chosen) made.setAttribute("aria-current", "step");
    const picture = scene.picture?.cloneNode(true);
    picture?.setAttribute("aria-hidden", "true");
    made.append(picture ?? element("code", { textContent: label }), element("span", { textContent: scene.failed ? `✗ ${scene.name}` : scene.name }));
    return made;
  }

  function draw() {
    const root = place();
    const all = root ? scenes() : [];
    if (!all.length) return;
    const at = current(all);
    const scene = all[at];
    shown = scene.id;
    const head = element("div", { className: "head" },
      button("player-previous", "◀ previous", at === 0, () => go(all, at - 1)),
      element("b", { textContent: scene.summary ? `step ${scene.name} of ${all.filter((one) => one.summary).at(-1).name}` : "at the end" }),
      button("player-next", "next ▶", at === all.length - 1, () => go(all, at + 1)),
      ...[...(scene.summary?.children ?? [])].filter((part) => !part.matches(".index")).map((part) => part.cloneNode(true)));
    const stage = element("div", { className: "stage" });
    const answer = element("div", { className: `answer ${scene.gain ?? ""}` });
    if (scene.picture) stage.append(scene.picture.cloneNode(true));
    else stage.append(element("p", { className: "empty", textContent: "loading …" }));
    const strip = element("div", { className: "thumbs" }, ...all.map((one, number) => thumb(one, number === at, () => go(all, number))));
    const scrolled = root.querySelector(".thumbs")?.scrollLeft ?? 0;
    root.replaceChildren(head, element("div", { className: "scene" }, stage, answer), strip);
    root.hidden = false;
    document.body.classList.add("played"); // the film strip would show the same again
    strip.scrollLeft = scrolled;
    const mark = strip.querySelector("[aria-current]");
    if (mark.offsetLeft < strip.scrollLeft || mark.offsetLeft + mark.offsetWidth > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = mark.offsetLeft - strip.clientWidth / 2;
    if (scene.piece || scene.held) fill(scene, stage, answer, all[at + 1]);
  }

  async function fill(scene, stage, answer, next) {
    const known = scene.held ?? pieces.get(scene.piece);
    let parts = known;
    try {
      parts ??= await load(scene.piece); // known parts are shown at once: a page that follows its run does not flicker
    } catch (error) {
      parts = { seen: element("p", { className: "empty", textContent: `not loaded: ${error.message}` }), said: null };
    }
    const seen = parts.seen.cloneNode(true);
    if (!scene.picture) stage.replaceChildren(seen, element("small", { textContent: scene.missing ? `no screenshot: ${scene.missing}` : "" }));
    if (parts.said) answer.append(parts.said.cloneNode(true));
    if (scene.picture) answer.append(element("details", {}, element("summary", { textContent: "The page, drawn and as text" }), seen));
    const acted = stage.querySelector(".acted");
    const drawn = acted?.closest(".drawn");
    if (drawn) drawn.scrollTop = acted.offsetTop - drawn.clientHeight / 2;
    if (!next?.piece && !next?.held || shown !== scene.id) return;
    const later = next.held ?? await load(next.piece).catch(() => null); // it will be asked for next
    const follows = later?.seen?.querySelector(".drawn");
    if (!follows || scene.picture || !stage.isConnected) return;
    const after = element("details", { open: afterwards }, element("summary", { textContent: "The page after it" }), follows.cloneNode(true));
    after.addEventListener("toggle", () => { afterwards = after.open; });
    stage.append(after);
  }

  function step(by) {
    const focus = document.activeElement?.id;
    const all = scenes();
    go(all, current(all) + by);
    document.getElementById(focus)?.focus({ preventScroll: true });
  }

  function showNamed() {
    draw();
    if (location.hash === `#${shown}`) place().scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    step(event.key === "ArrowLeft" ? -1 : 1);
  });
  addEventListener("hashchange", showNamed);
  document.addEventListener("renewed", draw); // page.js has put new values into the page
  draw();
  if (location.hash) showNamed();
})();
