// Scrolls the window, or else the largest scrolling box in it, by a share of its height. Returns whether anything moved.
(share) => {
  const move = (box) => {
    const before = box.scrollTop;
    box.scrollBy({ top: share * box.clientHeight, behavior: "instant" });
    return box.scrollTop !== before;
  };
  if (document.scrollingElement && move(document.scrollingElement)) return true;
  const boxes = Array.from(document.querySelectorAll("body *")).filter((element) => {
    if (element.scrollHeight <= element.clientHeight + 1) return false;
    const overflow = getComputedStyle(element).overflowY;
    return (overflow === "auto" || overflow === "scroll") && element.checkVisibility();
  });
  boxes.sort((a, b) => b.clientWidth * b.clientHeight - a.clientWidth * a.clientHeight);
  return boxes.some(move);
}
