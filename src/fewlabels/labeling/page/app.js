// The labelling page: moving around, keys, clicks, and the start.

import * as api from "./api.js";
import "./drag.js";
import { confirm, confirmSection, labelAs, redo, relabel, removeLabels, setMark, setState, trouble, undo, watch } from "./decisions.js";
import { candidates, currentSection, focus, grid, inspect, isLarge, namesNew, relayout, resize } from "./display.js";
import { fitMap, openMap, setLasso, stepOnMap, zoomMap } from "./map.js";
import { $, Palette, answer, isMeant, showFormats, toast } from "./panels.js";
import { acting, beginning, className, count, largePicture, mine, noun, outliers, page, views } from "./shared.js";

const ABOVE = 7; // pixels above the first row of a section after a jump to it
const SETTLE = 400; // milliseconds in which a label that just changed is not confirmed: nobody has read it yet
const ALIKE = 0.5; // of the similarity between the most similar image and the rest: those above are "like this"
const LETTERS = "fewlabels-letters"; // whether single letters are keys
const PERSON = "fewlabels-person"; // who decides in this browser

const notAnswered = (error) => trouble(error.message);
const palette = new Palette((label) => labelAs(label));

// ---- moving around

// Between the map and the classes the picture in focus stays: where is it, what is beside it?
function setView(name) {
  const kept = [name, page.view].includes("map") ? page.focused : null;
  page.view = name;
  page.selected.clear();
  page.lasso = null;
  $("grid").scrollTop = 0;
  page.focused = null;
  if (name === "map") openMap().catch(notAnswered);
  relayout();
  focus(page.layout.place.has(kept) ? kept : page.layout.order[0]);
}

let beforeFilter = null; // the item in focus before a filter hid it
function setFilter(words) {
  if (!page.filter) beforeFilter = page.focused;
  page.filter = words.trim().toLowerCase();
  if ($("filter").value.trim().toLowerCase() !== page.filter) $("filter").value = words;
  relayout();
  if (!page.filter && page.layout.place.has(beforeFilter)) page.focused = beforeFilter;
  $("grid").scrollTop = 0;
  focus(page.focused ?? page.layout.order[0]);
}

// By name or by confidence; the picture in focus stays in focus.
function sortOtherwise() {
  page.byName = !page.byName;
  $("sort").setAttribute("aria-pressed", page.byName);
  relayout();
  focus(page.focused);
  toast(page.byName ? "Sorted by name" : "Least certain first");
}

function clear() {
  if ($("exports").open) return void ($("exports").open = false);
  if ($("show-classes").ariaExpanded === "true") return showClassList(false);
  if (isLarge()) enlarge(false);
  else if (page.selected.size) page.selected.clear();
  else if (page.lasso) return setLasso(null);
  else if (page.filter) return setFilter("");
  else if (page.view === "like") return setView("class");
  relayout();
}

function goToClass(way) {
  if (page.view === "map") return setLasso(page.project.names.map((_, item) => item).filter((item) => page.state.labels[item] === way), { select: false });
  if (page.view !== "class") {
    page.view = "class";
    relayout();
  }
  const target = page.layout.sections.find((each) => each.way === way);
  if (target) goTo(target);
}

// On a small screen the list of classes is behind a button.
function showClassList(on) {
  $("show-classes").ariaExpanded = on;
  document.body.classList.toggle("with-classes", on);
  if (on) $("classes").querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
}

// Scrolled past the section's own heading, which repeats the bar's.
const scrollTo = (target) => ($("grid").scrollTop = target.top + target.head - ABOVE);

function goTo(target) {
  scrollTo(target);
  focus(target.items[0]);
  scrollTo(target);
}

function jump(step) {
  const all = page.layout.sections;
  const target = all[all.findIndex((each) => each.key === currentSection()?.key) + step];
  if (target) goTo(target);
}

// The next section with something to confirm, after the last one the first.
function nextOpen() {
  const all = page.layout.sections;
  const at = all.findIndex((each) => each.key === currentSection()?.key);
  const target = [...all.slice(at + 1), ...all.slice(0, at + 1)].find((each) => each.open.length);
  if (target) goTo(target);
  else toast(`Every ${noun()} of every class has a label`);
}

function selectSection() {
  page.selected = new Set(currentSection()?.items ?? []);
  grid.render(true);
  inspect();
}

function openPalette() {
  if (acting().length) palette.open(page.state.classes, candidates() ?? [], { naming: namesNew() });
}

// ---- similar images

async function similarTo(item) {
  const { rows, similarities } = await api.similar(item);
  return new Map(rows.map((row, i) => [row, similarities[i]]));
}

// By meaning, not by letters: where the encoder of the items knows words.
async function search(words) {
  const found = await api.search(words).catch(notAnswered);
  if (!found) return;
  setFilter("");
  page.like = { words, similar: new Map(found.rows.map((row, i) => [row, found.similarities[i]])) };
  setView("like");
}

async function moreLikeThis() {
  if (page.focused === null) return;
  const item = page.focused;
  const similar = await similarTo(item).catch(notAnswered);
  if (!similar) return;
  page.like = { item, similar };
  setView("like");
}

// The photographs that the camera took within seconds of this one, selected together.
async function showBurst() {
  const item = page.focused;
  const found = item === null ? null : await api.burst(item).catch(notAnswered);
  if (!found) return;
  if (found.rows.length < 2) return toast(`No other photograph was taken within ${page.project.burst_seconds} seconds of this one`);
  if (page.filter) setFilter(""); // or some of them would be hidden
  page.like = { item, similar: new Map(found.rows.map((row) => [row, 1])), burst: true };
  setView("like");
  page.selected = new Set(found.rows);
  grid.render(true);
  inspect();
}

// Among images of no class: those as similar as its nearest neighbours.
async function selectAlike() {
  const item = page.focused;
  if (item === null) return;
  const similar = await similarTo(item).catch(notAnswered);
  if (!similar) return;
  const others = outliers().filter((each) => each !== item && similar.has(each));
  const [best, worst] = [Math.max(...others.map((each) => similar.get(each))), Math.min(...similar.values())];
  page.selected = new Set([item, ...others.filter((each) => similar.get(each) > worst + ALIKE * (best - worst))]);
  grid.render(true);
  inspect();
  toast(`${count(page.selected.size, "image")} selected: name their class`);
}

// ---- the picture large

function enlarge(on = !isLarge()) {
  if (page.focused === null || !page.project.pictures) on = false;
  document.body.classList.toggle("large", on);
  for (const part of document.querySelectorAll(".top, .rail, main")) part.inert = on;
  zoom(false);
  inspect();
  if (!on) toGrid();
  else $("picture-button").focus();
}

function zoom(on = !$("picture-button").classList.contains("zoomed")) {
  $("picture-button").classList.toggle("zoomed", on);
  if (on && page.focused !== null) $("picture").src = largePicture(page.focused, true);
}

// ---- decisions

function confirmOrName() {
  if (namesNew()) return openPalette();
  const items = acting();
  if (items.length === 1 && performance.now() - (page.newLabel ?? -SETTLE) < SETTLE) {
    page.newLabel = -SETTLE;
    return toast(`The label just changed to “${className(items[0])}”: press again to confirm`);
  }
  if (items.length === 1 && mine(items[0]) && page.state.marks[items[0]] === "1") return focus(page.layout.step(items[0], "ArrowRight"));
  confirm(items);
}

// What the button in the bar says. After a question was answered, nothing can happen by a double click: go on.
async function confirmCurrent(all = false) {
  const section = currentSection();
  if (section?.way === undefined) return;
  if (!section.open.length || (await confirmSection(section, all))) return nextOpen();
  const left = page.layout.sections.find((each) => each.key === section.key);
  if (left) scrollTo(left);
}

function pickDigit(digit) {
  const offered = acting().length ? candidates() : [];
  if (offered === null) return toast("The likely classes are being loaded");
  if (offered[digit - 1]) labelAs(offered[digit - 1].label);
}

// ---- a class: rename, merge, delete

let classInQuestion;
function openClass(name) {
  if (name === undefined) return;
  classInQuestion = name;
  $("class-name").value = name;
  describeClass();
  $("class-dialog").showModal();
  $("class-name").select();
}

function describeClass() {
  const { state } = page;
  const typed = $("class-name").value.trim();
  const mineOf = (name) => state.marks.filter((_, item) => mine(item) && className(item) === name).length;
  const other = typed !== classInQuestion && state.classes.includes(typed);
  $("class-rename").textContent = other ? `Merge into “${typed}”` : "Rename";
  $("class-rename").disabled = !typed || typed === classInQuestion;
  $("class-note").textContent = other
    ? `${count(mineOf(classInQuestion), "label")} of “${classInQuestion}” become “${typed}”.`
    : `${count(mineOf(classInQuestion), "label")}. Type the name of another class to merge them. Deleting removes the labels, not the images.`;
}

async function renameClass() {
  const name = $("class-name").value.trim();
  $("class-dialog").close();
  if (name && name !== classInQuestion && (await isMeant(name, page.state.classes.filter((each) => each !== classInQuestion)))) relabel(classInQuestion, name);
}

// ---- keys

const scale = (step) => (page.view === "map" ? zoomMap(step) : resize(step));
function move({ key, shiftKey }) {
  if (document.activeElement === $("map-canvas")) focus(stepOnMap(key), { toggle: shiftKey });
  else focus(page.layout.step(page.focused, key), { extend: shiftKey });
}

const KEYS = {
  Enter: (event) => (event.shiftKey ? confirmCurrent() : confirmOrName()),
  " ": () => focus(page.focused ?? page.layout.order[0], { toggle: true }),
  Backspace: removeLabels,
  Delete: removeLabels,
  u: (event) => (event.shiftKey ? redo() : undo()),
  l: openPalette,
  0: openPalette,
  n: () => setMark("none"),
  s: () => setMark("skip"),
  m: moreLikeThis,
  b: showBurst,
  a: () => page.view === "outliers" && selectAlike(),
  r: () => openClass(currentSection()?.way === undefined ? undefined : currentSection().title),
  f: () => $("grid").classList.toggle("whole"),
  z: () => isLarge() && zoom(),
  t: sortOtherwise,
  v: () => setView(views()[(views().indexOf(page.view) + 1) % views().length]),
  "/": () => $("filter").focus(),
  "?": () => $("help").showModal(),
  o: () => enlarge(),
  d: () => $("download").click(),
  p: () => setView(page.view === "map" ? "class" : "map"),
  "+": () => scale(1),
  "=": () => scale(1),
  "-": () => scale(-1),
  "[": () => jump(-1),
  "]": () => jump(1),
  Escape: clear,
};
const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
for (const key of MOVES) KEYS[key] = move;
for (let digit = 1; digit <= 9; digit++) KEYS[digit] = () => pickDigit(digit);
const REPEATED = [...MOVES, "+", "=", "-", "[", "]"]; // a key that is held down decides only once
const lettersOn = () => localStorage.getItem(LETTERS) !== "off";

function moveTab(tab, step) {
  const all = [...document.querySelectorAll("[data-view]")].filter((each) => !each.hidden);
  const next = all[(all.indexOf(tab) + step + all.length) % all.length];
  setView(next.dataset.view);
  next.focus();
}

document.addEventListener("keydown", (event) => {
  if (!page.state || document.querySelector("dialog[open]")) return;
  const { target, key } = event;
  if (target.matches("input")) {
    if (key !== "Escape" && key !== "Enter") return;
    if (key === "Escape") setFilter("");
    else if (page.project.searchable && target.value.trim()) search(target.value.trim());
    $("grid").focus();
    return event.preventDefault();
  }
  if (target.matches("[role=tab]") && (key === "ArrowLeft" || key === "ArrowRight")) {
    moveTab(target, key === "ArrowLeft" ? -1 : 1);
    return event.preventDefault();
  }
  // On a button the browser presses it; the large picture is none to press.
  if (target.matches("button:not(.picture), a") && ((key === "Enter" && !event.shiftKey) || key === " ")) return;
  const withControl = event.ctrlKey || event.metaKey;
  if (withControl && key.toLowerCase() === "z") event.shiftKey ? redo() : undo();
  else if (withControl && key === "y") redo();
  else if (withControl && key === "a") selectSection();
  else if (withControl || event.altKey) return;
  else {
    const letter = key.length === 1 ? key.toLowerCase() : key;
    const act = KEYS[letter];
    if (!act || (!lettersOn() && /^[a-z]$/.test(letter))) return;
    event.preventDefault();
    if (event.repeat && !REPEATED.includes(letter)) return;
    act(event);
    if (letter !== "/" && letter !== "?" && !isLarge()) toGrid();
    return;
  }
  event.preventDefault();
});

// ---- clicks: the grid gets the focus back, so that the next key acts on the picture

// The map, if it is shown and the pictures below it do not have the focus already.
function toGrid() {
  const onMap = page.view === "map" && (!page.lasso || document.activeElement !== $("grid"));
  $(onMap ? "map-canvas" : "grid").focus({ preventScroll: true });
}
function onClick(id, act) {
  $(id).addEventListener("click", (event) => {
    act(event);
    if (event.detail > 0 && !isLarge() && !document.querySelector("dialog[open]")) toGrid();
  });
}
const once = (act) => (event) => event.detail < 2 && act(event); // the second click of a double click does nothing

$("canvas").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) focus(Number(tile.dataset.item), { extend: event.shiftKey, toggle: event.ctrlKey || event.metaKey || page.several });
});
$("canvas").addEventListener("dblclick", (event) => event.target.closest(".tile") && enlarge(true));
$("canvas").addEventListener("contextmenu", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || event.shiftKey) return; // with Shift, the browser's own menu
  event.preventDefault();
  const item = Number(tile.dataset.item);
  if (!page.selected.has(item)) focus(item);
  openPalette();
});
$("classes").addEventListener("contextmenu", (event) => {
  const button = event.target.closest("button");
  if (!button || event.shiftKey) return;
  event.preventDefault();
  openClass(page.state.classes[button.dataset.way]);
});
onClick("classes", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  showClassList(false);
  goToClass(Number(button.dataset.way));
});
$("show-classes").addEventListener("click", () => showClassList($("show-classes").ariaExpanded !== "true"));
document.addEventListener("pointerdown", ({ target }) => target.closest("#classes, #show-classes, dialog") || showClassList(false));
onClick("candidates", once((event) => {
  const button = event.target.closest("button");
  if (button) labelAs(button.dataset.label);
}));
onClick("undo", once(undo));
onClick("redo", once(redo));
onClick("confirm", once(confirmOrName));
onClick("other", openPalette);
onClick("none", once(() => setMark("none")));
onClick("skip", once(() => setMark("skip")));
onClick("like", once(moreLikeThis));
onClick("alike", once(selectAlike));
onClick("remove", once(removeLabels));
onClick("pinned-confirm", once(() => confirmCurrent()));
onClick("pinned-all", once(() => confirmCurrent(true)));
onClick("rename", () => openClass(currentSection()?.title));
onClick("sort", sortOtherwise);
onClick("map-in", () => zoomMap(1));
onClick("map-out", () => zoomMap(-1));
onClick("map-fit", fitMap);
onClick("start", () => setView("check"));
onClick("outliers", () => setView("outliers"));
onClick("picture-button", () => (isLarge() ? zoom() : enlarge(true)));
onClick("close-large", () => enlarge(false));
for (const tab of document.querySelectorAll("[data-view]"))
  tab.addEventListener("click", (event) => {
    setView(tab.dataset.view);
    if (event.detail > 0) toGrid();
  });
$("help-button").addEventListener("click", () => $("help").showModal());
$("several").addEventListener("click", () => {
  page.several = !page.several;
  $("several").setAttribute("aria-pressed", page.several);
});
$("filter").addEventListener("input", (event) => setFilter(event.target.value));
$("class-name").addEventListener("input", describeClass);
$("class-form").addEventListener("submit", (event) => {
  event.preventDefault();
  renameClass();
});
$("class-delete").addEventListener("click", () => {
  $("class-dialog").close();
  relabel(classInQuestion, null);
});
$("class-cancel").addEventListener("click", () => $("class-dialog").close());
$("ask-yes").addEventListener("click", () => answer(true));
$("ask-no").addEventListener("click", () => answer(false));
$("ask").addEventListener("keydown", (event) => event.key === "y" && !event.repeat && answer(true));
$("letters").checked = lettersOn();
$("letters").addEventListener("change", (event) => localStorage.setItem(LETTERS, event.target.checked ? "on" : "off"));
// The name is shown if there is one, or where others may decide too.
function setPerson(name) {
  api.setPerson(name);
  page.person = name || page.project.person;
  $("person").value = name;
  $("person").placeholder = page.project.person;
  $("who").textContent = page.person || "Your name…";
  $("who").hidden = !page.person && !page.project.shared;
}
$("who").addEventListener("click", () => {
  $("help").showModal();
  $("person").focus();
});
$("person").addEventListener("change", (event) => {
  const name = event.target.value.trim();
  localStorage.setItem(PERSON, name);
  setPerson(name);
});
$("exports").addEventListener("toggle", () => $("exports").open && api.exports().then(showFormats, notAnswered));
document.addEventListener("click", (event) => $("exports").contains(event.target) && !event.target.closest("a") || ($("exports").open = false));
new ResizeObserver(() => page.layout && relayout()).observe($("grid"));

// ---- the start

try {
  page.project = await api.getProject();
  setState(page.project.state);
  setPerson(localStorage.getItem(PERSON) ?? "");
  document.title = `${page.project.title} · fewlabels`;
  $("title").textContent = page.project.title;
  $("title").title = page.project.title;
  $("burst-seconds").textContent = page.project.burst_seconds;
  if (page.project.searchable) Object.assign($("filter"), { placeholder: "Filter; Enter: search  /", title: "Filter by letters; Enter searches by meaning" });
  // Whoever began without labels goes on naming kinds, after a reload too.
  const { classes, marks } = page.state;
  if (classes.length < 2 || (beginning() && marks.includes("1") && !marks.includes("2"))) page.view = "begin";
  relayout();
  focus(page.layout.order[0]);
  toGrid();
  watch();
  const said = api.tellLost();
  if (said) toast(said, 12_000); // milliseconds
} catch (error) {
  trouble(error.message);
}
