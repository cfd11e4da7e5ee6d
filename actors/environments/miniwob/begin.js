// Starts the problem of a seed and returns its instruction.
async (seed) => {
  if (!document.getElementById("hindcast-style")) {
    // The cover, the score and the mouse trail belong to the harness, and the instruction is returned. The terminal's
    // cursor blinks, so chance would decide whether it is read.
    const style = document.createElement("style");
    style.id = "hindcast-style";
    style.textContent = "#sync-task-cover, #reward-display, #click-canvas, #input-flicker { display: none !important }"
      + " #query { visibility: hidden }";
    document.head.append(style);
  }
  // A picture that replaces an element under the pointer must be loaded in time, or the element shrinks away from the
  // click.
  const pictures = Symbol.for("hindcast.pictures");
  if (!document[pictures]) {
    const rules = Array.from(document.querySelectorAll("style")).flatMap((style) => Array.from(style.sheet?.cssRules || []));
    const names = rules.flatMap((rule) => /url\("(.*?)"\)/.exec(rule.style?.content || "")?.[1] ?? []);
    document[pictures] = names.map((name) => Object.assign(new Image(), { src: name }));
    await Promise.all(document[pictures].map((picture) => picture.decode().catch(() => null)));
  }
  if (window.jQuery) window.jQuery.fx.off = true;
  core.EPISODE_MAX_TIME = 1e9;
  if (document.activeElement) document.activeElement.blur();
  Math.seedrandom(seed);
  core.startEpisodeReal();
  for (let turn = 0; turn < 200 && !WOB_TASK_READY; turn += 1) await new Promise((resolve) => setTimeout(resolve, 20));
  // The problem's own pictures take no room until they are loaded: the view would depend on when it is read.
  await Promise.all(Array.from(document.images).map((picture) => picture.decode().catch(() => null)));
  if (location.hash) history.replaceState(null, "", location.pathname);
  const asked = core.getUtterance();
  return typeof asked === "string" ? asked : asked.utterance; // some pages add the words that vary, one by one
}
