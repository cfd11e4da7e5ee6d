// Scrolls the window, or else its largest scrolling box, by a share of its height. Returns whether anything moved, once
// the page has got the scroll event. A browser sends it only with its next frame; without the wait, chance would decide
// whether the page is read before or after its reaction.
async ({ share, heard_s }) => {
  const move = (box) => {
    const before = box.scrollTop;
    box.scrollBy({ top: share * box.clientHeight, behavior: "instant" });
    return box.scrollTop !== before;
  };
  const heard = (target) => new Promise((resolve) => {
    const hear = (event) => {
      if (event.target !== target) return;
      removeEventListener("scroll", hear, true);
      setTimeout(resolve, 0); // this listener is the first of them
    };
    addEventListener("scroll", hear, true);
    setTimeout(resolve, 1000 * heard_s); // a tab that is not drawn has no frames
  });
  if (document.scrollingElement && move(document.scrollingElement)) {
    await heard(document);
    return true;
  }
  const boxes = Array.from(document.querySelectorAll("body *")).filter((element) => {
    if (element.scrollHeight <= element.clientHeight + 1) return false;
    const overflow = getComputedStyle(element).overflowY;
    return (overflow === "auto" || overflow === "scroll") && element.checkVisibility();
  });
  boxes.sort((a, b) => b.clientWidth * b.clientHeight - a.clientWidth * a.clientHeight);
  const moved = boxes.find(move);
  if (moved) await heard(moved);
  return moved !== undefined;
}
