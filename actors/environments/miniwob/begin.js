// Starts the problem of a seed and returns what it asks for.
async (seed) => {
  if (!document.getElementById("hindcast-style")) {
    // The cover, the score and the mouse trail are the harness's; what the task asks for is given as the instruction. The
    // terminal's cursor blinks, so that it would be read or not by chance.
    const style = document.createElement("style");
    style.id = "hindcast-style";
    style.textContent = "#sync-task-cover, #reward-display, #click-canvas, #input-flicker { display: none !important }"
      + " #query { visibility: hidden }";
    document.head.append(style);
  }
  // A picture that takes an element's place under the pointer must be there in time, or the element shrinks away from
  // the click.
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
  // Those of the problem itself take up no room until they are there: what is in view would depend on when it is read.
  await Promise.all(Array.from(document.images).map((picture) => picture.decode().catch(() => null)));
  if (location.hash) history.replaceState(null, "", location.pathname);
  const asked = core.getUtterance();
  return typeof asked === "string" ? asked : asked.utterance; // some pages add the words that vary, one by one
}
