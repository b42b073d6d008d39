// The labelling page: moving around, keys, clicks, and the start.

import * as api from "./api.js";
import { confirm, labelAs, poll, removeLabels, setState, trouble, undo } from "./decisions.js";
import { candidatesInSight, focus, grid, inspect, pinnedSection, relayout, resize, sectionInSight, whenChosen } from "./display.js";
import { $, Palette, toast } from "./panels.js";
import { acting, largePicture, page, views } from "./shared.js";

const ABOVE = 12; // pixels above the first row of a section after a jump to it

const palette = new Palette((label) => labelAs(label));
whenChosen({ label: labelAs, goToClass });

// ---- moving around

function setView(name) {
  page.view = name;
  page.selected.clear();
  $("grid").scrollTop = 0;
  page.focused = null;
  relayout();
  focus(page.layout.order[0]);
}

function setFilter(words) {
  page.filter = words.trim().toLowerCase();
  if ($("filter").value.trim().toLowerCase() !== page.filter) $("filter").value = words;
  $("grid").scrollTop = 0;
  relayout();
}

function clear() {
  if (page.selected.size) page.selected.clear();
  else if (page.filter) setFilter("");
  else page.focused = null;
  relayout();
}

function goToClass(number) {
  if (page.view !== "class") {
    page.view = "class";
    relayout();
  }
  const target = page.layout.sections.find((each) => each.number === number);
  if (!target) return toast(`No image is “${page.state.classes[number]}” yet`);
  goTo(target);
}

// Scrolled past the section's own heading, which repeats the pinned one.
function goTo(target) {
  focus(target.items[0]);
  $("grid").scrollTop = target.top + target.head - ABOVE;
}

function jump(step) {
  const target = page.layout.sections[page.layout.sections.indexOf(sectionInSight()) + step];
  if (target) goTo(target);
}

function selectSection() {
  page.selected = new Set(sectionInSight()?.items ?? []);
  grid.render(true);
  inspect();
}

function openPalette() {
  if (acting().length) palette.open(page.state.classes, candidatesInSight());
}

function lightbox() {
  if (page.focused === null || !page.project.pictures) return;
  $("lightbox-picture").src = largePicture(page.focused);
  $("lightbox").showModal();
}

const hasLabel = () => acting().some((item) => page.state.labels[item] >= 0);
const confirmOrName = () => (hasLabel() ? confirm(acting()) : openPalette());

// ---- keys

const KEYS = {
  Enter: (event) => (event.shiftKey ? confirm(sectionInSight()?.open ?? []) : confirmOrName()),
  " ": () => focus(page.focused ?? page.layout.order[0], { toggle: true }),
  Backspace: removeLabels,
  Delete: removeLabels,
  u: undo,
  l: openPalette,
  0: openPalette,
  v: () => setView(views()[(views().indexOf(page.view) + 1) % views().length]),
  "/": () => $("filter").focus(),
  "?": () => $("help").showModal(),
  o: lightbox,
  d: () => $("download").click(),
  "+": () => resize(1),
  "=": () => resize(1),
  "-": () => resize(-1),
  "[": () => jump(-1),
  "]": () => jump(1),
  Escape: clear,
};
for (const key of ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"])
  KEYS[key] = (event) => focus(page.layout.step(page.focused, key), { extend: event.shiftKey });
for (let digit = 1; digit <= 9; digit++) KEYS[digit] = () => page.state.classes[digit - 1] && labelAs(page.state.classes[digit - 1]);

document.addEventListener("keydown", (event) => {
  if (!page.state || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input")) {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    if (event.key === "Escape") setFilter("");
    $("grid").focus();
    return event.preventDefault();
  }
  if (event.target.matches("button, a") && (event.key === "Enter" || event.key === " ")) return; // the browser presses it
  const withControl = event.ctrlKey || event.metaKey;
  if (withControl && event.key === "z") undo();
  else if (withControl && event.key === "a") selectSection();
  else if (withControl || event.altKey) return;
  else {
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    act(event);
    if (event.key !== "/" && event.key !== "?") $("grid").focus({ preventScroll: true });
  }
  event.preventDefault();
});

// ---- clicks

$("canvas").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) focus(Number(tile.dataset.item), { extend: event.shiftKey, toggle: event.ctrlKey || event.metaKey || page.several });
});
$("canvas").addEventListener("dblclick", lightbox);
$("undo").addEventListener("click", undo);
$("help-button").addEventListener("click", () => $("help").showModal());
$("confirm").addEventListener("click", confirmOrName);
$("other").addEventListener("click", openPalette);
$("remove").addEventListener("click", removeLabels);
$("several").addEventListener("click", () => {
  page.several = !page.several;
  $("several").setAttribute("aria-pressed", page.several);
});
$("pinned-confirm").addEventListener("click", () => confirm(pinnedSection()?.open ?? []));
$("picture-button").addEventListener("click", lightbox);
$("lightbox").addEventListener("click", () => $("lightbox").close());
$("filter").addEventListener("input", (event) => setFilter(event.target.value));
for (const tab of document.querySelectorAll("[data-view]")) tab.addEventListener("click", () => setView(tab.dataset.view));
$("outliers").addEventListener("click", () => setView("outliers"));
new ResizeObserver(() => page.layout && relayout()).observe($("grid"));

// ---- the start

try {
  page.project = await api.getProject();
  setState(page.project.state);
  document.title = `${page.project.title} · fewlabels`;
  $("title").textContent = page.project.title;
  $("title").title = page.project.title;
  relayout();
  focus(page.layout.order[0]);
  $("grid").focus({ preventScroll: true });
  if (!page.state.searched) poll();
} catch (error) {
  trouble(error.message);
}
