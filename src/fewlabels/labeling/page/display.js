// Shows the last state: the grid, the section at the top, the selected image.

import * as api from "./api.js";
import { Grid } from "./grid.js";
import { Layout } from "./layout.js";
import { $, color, percent, showCandidates, showClasses, showHistory, showInspector, showProgress, showOutliers } from "./panels.js";
import { sections } from "./sections.js";
import { acting, className, doubtful, largePicture, mine, page, picture, outliers } from "./shared.js";

const SIZES = [72, 88, 112, 144, 192];
const DETAILS = 90; // milliseconds without a move before the candidates of an image are requested
const N_GUESSES = 6; // as many as the server sends, so that nothing moves when they arrive
const WIDE = matchMedia("(min-width: 1001px)"); // where the selected picture is shown large

let size = matchMedia("(max-width: 640px)").matches ? 1 : 2;
let current = null; // the section at the top of the screen
let inspected = null; // the selected item
let candidates = []; // its classes
let asking;
const on = { label: null, goToClass: null }; // what clicks beside the grid do, see `whenChosen`

export const grid = new Grid($("grid"), $("canvas"), { describe, onSection });
export const whenChosen = (does) => Object.assign(on, does);
export const candidatesInSight = () => candidates;
export const pinnedSection = () => current;
export const sectionInSight = () => page.layout.sectionOf(page.focused) ?? current;

function describe(item) {
  const { state, project } = page;
  const label = className(item);
  const sure = state.outliers.has(item) ? `if any; ${percent(state.outliers.get(item))} none of these` : `${percent(state.confidence[item])} sure`;
  const who = { 1: "your label", 2: "given label" }[state.marks[item]] ?? (label ? sure : "");
  return {
    name: project.names[item],
    picture: picture(item),
    label,
    color: state.labels[item] < 0 ? "var(--line)" : color(state.labels[item]),
    words: [project.names[item], label || "no label", who].filter(Boolean).join(", "),
    note: [label || "no label", who].filter(Boolean).join(", "),
    mine: { 1: "yours", 2: "given" }[state.marks[item]],
    doubt: doubtful(item) ? percent(state.confidence[item]).replace(" ", "") : "",
    selected: page.selected.has(item),
    focused: item === page.focused,
    changed: page.changed.has(item),
  };
}

export function relayout({ keep } = {}) {
  const offset = keep ?? (page.focused === null ? null : grid.offset(page.focused));
  const style = getComputedStyle($("grid"));
  const width = $("grid").clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const gap = parseFloat(style.getPropertyValue("--gap")) || 6;
  const layout = (page.layout = grid.layout = new Layout(sections(), { width, gap, wish: SIZES[size] }));
  if (page.focused !== null && !layout.place.has(page.focused)) page.focused = null;
  page.selected = new Set([...page.selected].filter((item) => layout.place.has(item)));
  grid.canvas.style.height = `${layout.total}px`;
  if (page.focused !== null && offset !== null) grid.hold(page.focused, offset);
  grid.show(layout);
  $("empty").hidden = layout.order.length > 0;
  $("empty").textContent = emptyWords();
  showAround();
}

function emptyWords() {
  if (page.filter) return `Nothing matches “${page.filter}”.`;
  if (page.view === "yours") return "You have not labelled anything yet.";
  if (page.view === "outliers") return "No image looks like none of the classes.";
  return "Nothing is doubtful. Look through the classes, or download the CSV.";
}

function showAround() {
  const { state, project } = page;
  const counts = state.classes.map(() => ({ all: 0, doubtful: 0 }));
  const tally = { yours: 0, sure: 0, doubtful: 0 };
  project.names.forEach((_, item) => {
    if (mine(item)) tally.yours++;
    else if (state.labels[item] < 0) return;
    else if (doubtful(item)) tally.doubtful++;
    else tally.sure++;
    counts[state.labels[item]].all++;
    if (doubtful(item)) counts[state.labels[item]].doubtful++;
  });
  const nOutliers = outliers().length;
  showProgress(tally, project.names.length, state.estimate, state.advice, nOutliers > 0);
  showOutliers(nOutliers, page.view === "outliers");
  showClasses(state.classes, counts, { current: current?.number, onPick: on.goToClass });
  for (const tab of document.querySelectorAll("[data-view]")) {
    tab.setAttribute("aria-selected", tab.dataset.view === page.view);
    tab.tabIndex = tab.dataset.view === (page.view === "outliers" ? "class" : page.view) ? 0 : -1;
  }
  inspect();
}

function onSection(section) {
  const last = current;
  current = section;
  const beginning = section?.key === "none"; // there are fewer than two classes
  $("pinned-title").textContent = section?.title ?? "";
  $("pinned-note").textContent = beginning ? "Begin: choose an image and name its class" : (section?.note ?? "");
  $("pinned-note").classList.toggle("begin", beginning);
  $("pinned-confirm").hidden = !section?.open.length;
  $("pinned-confirm").textContent = `Confirm all ${section?.open.length.toLocaleString("en")}`;
  if (last?.number === section?.number) return;
  [...$("classes").querySelectorAll("button")].forEach((button, number) => {
    if (number === section?.number) {
      button.setAttribute("aria-current", "true");
      button.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else button.removeAttribute("aria-current");
  });
}

export function inspect() {
  const { state, project } = page;
  const items = acting();
  const item = page.focused ?? items[0] ?? null;
  const only = item !== null && items.length <= 1;
  showInspector({
    item,
    name: only ? project.names[item] : "",
    picture: item === null ? "" : picture(item),
    selected: items.length,
    note: item === null ? "" : only ? describe(item).note : `${items.filter(mine).length} of them yours`,
    label: only ? className(item) : "",
    mine: items.some(mine),
    labelled: items.some((each) => state.labels[each] >= 0),
    confirmable: items.some((each) => state.labels[each] >= 0 && state.marks[each] !== "1"),
  });
  if (item === null) return;
  if (inspected !== item) showHistory((candidates = []));
  inspected = item;
  offer();
  clearTimeout(asking);
  asking = setTimeout(() => askAbout(item), DETAILS);
}

async function askAbout(item) {
  const about = await api.getItem(item).catch(() => null);
  if (!about || inspected !== item) return;
  candidates = about.candidates;
  offer();
  showHistory(about.history);
  const image = $("picture");
  if (!page.project.pictures || image.dataset.large === String(item) || !WIDE.matches) return;
  const large = new Image();
  large.onload = () => {
    if (inspected === item) Object.assign(image, { src: large.src }).dataset.large = item;
  };
  large.src = largePicture(item);
}

function offer() {
  const guesses = page.state.classes.slice(0, N_GUESSES).map((label) => ({ label, probability: 0 }));
  showCandidates(candidates.length ? candidates : guesses, page.state.classes, on.label);
}

export function focus(item, { extend = false, toggle = false } = {}) {
  if (item === undefined || item === null) return;
  const { layout } = page;
  if (extend) {
    page.anchor ??= page.focused ?? item;
    const [from, to] = [layout.place.get(page.anchor), layout.place.get(item)].sort((a, b) => a - b);
    page.selected = new Set(layout.order.slice(from, to + 1));
  } else if (toggle) {
    if (page.selected.size === 0 && page.focused !== null && page.focused !== item) page.selected.add(page.focused);
    if (!page.selected.delete(item)) page.selected.add(item);
    page.anchor = item;
  } else {
    page.selected.clear();
    page.anchor = item;
  }
  page.focused = item;
  $("grid").setAttribute("aria-activedescendant", `tile-${item}`);
  grid.reveal(item);
  grid.render(true);
  inspect();
}

export function resize(step) {
  size = Math.min(SIZES.length - 1, Math.max(0, size + step));
  relayout();
}
