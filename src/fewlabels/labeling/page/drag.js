// The mouse held down: a rectangle selects images; selected images are carried onto a class.

import { labelAs } from "./decisions.js";
import { grid, inspect, relayout } from "./display.js";
import { element } from "./grid.js";
import { $ } from "./panels.js";
import { page } from "./shared.js";

const LEAST = 6; // pixels of a drag; less is a click
const EDGE = 24; // pixels from the edge of the grid within which it scrolls

const band = element("div", "band");
let start = null; // where the button went down, in the coordinates of the canvas
let before = null; // what was selected and in focus then
let carrying = false;
let moved = false;

const place = ({ clientX, clientY }) => {
  const box = $("canvas").getBoundingClientRect();
  return { x: clientX - box.left, y: clientY - box.top };
};
const classAt = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest("#classes button");

$("grid").addEventListener("pointerdown", (event) => {
  if (event.button !== 0 || event.pointerType !== "mouse" || event.offsetX > $("grid").clientWidth) return;
  const tile = event.target.closest(".tile");
  start = place(event);
  before = { selected: new Set(page.selected), focused: page.focused, anchor: page.anchor };
  moved = false;
  carrying = Boolean(tile) && (page.selected.has(Number(tile.dataset.item)) || (!page.selected.size && Number(tile.dataset.item) === page.focused));
});

document.addEventListener("pointermove", (event) => {
  if (!start) return;
  const now = place(event);
  if (!moved && Math.hypot(now.x - start.x, now.y - start.y) < LEAST) return;
  moved = true;
  getSelection().removeAllRanges();
  document.body.classList.toggle("carrying", carrying);
  if (carrying) return mark(classAt(event));
  const { top, bottom } = $("grid").getBoundingClientRect();
  if (event.clientY > bottom - EDGE) $("grid").scrollTop += EDGE;
  if (event.clientY < top + EDGE) $("grid").scrollTop -= EDGE;
  const [left, right] = [start.x, now.x].sort((a, b) => a - b);
  const [above, below] = [start.y, now.y].sort((a, b) => a - b);
  Object.assign(band.style, { left: `${left}px`, top: `${above}px`, width: `${right - left}px`, height: `${below - above}px` });
  $("canvas").append(band);
  const inside = page.layout.visible(above, below).filter((item) => {
    const box = page.layout.box(item);
    return box.x < right && box.x + page.layout.side > left && box.y < below && box.y + box.height > above;
  });
  page.selected = new Set(inside);
  page.focused = page.anchor = inside.at(-1) ?? page.focused;
  grid.render(true);
});

document.addEventListener("pointerup", (event) => {
  if (moved) {
    addEventListener("click", (click) => click.stopPropagation(), { capture: true, once: true }); // the drag was no click
    setTimeout(() => dispatchEvent(new Event("click"))); // and if no click follows, the next one counts
  }
  const ended = start && moved;
  const target = carrying && classAt(event);
  end();
  moved = false;
  if (!ended) return;
  if (target) labelAs(page.state.classes[target.dataset.way]);
  else inspect();
});

// Escape ends the drag: nothing is labelled, and the selection is what it was.
document.addEventListener("keydown", (event) => {
  if (!start || event.key !== "Escape") return;
  event.preventDefault();
  event.stopPropagation();
  Object.assign(page, before);
  end();
  relayout();
}, { capture: true });

function end() {
  start = null;
  band.remove();
  mark(null);
  document.body.classList.remove("carrying");
}

function mark(target) {
  for (const button of $("classes").querySelectorAll(".target")) button.classList.remove("target");
  target?.classList.add("target");
}
