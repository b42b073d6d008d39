// Shows the last state: the grid, the section in question, the selected image.

import * as api from "./api.js";
import { follower } from "./decisions.js";
import { Grid, element } from "./grid.js";
import { Layout } from "./layout.js";
import { drawMap, revealOnMap } from "./map.js";
import { $, color, percent, showCandidates, showClasses, showHistory, showOutliers, showPicture, showProgress } from "./panels.js";
import { byName, matches, sections } from "./sections.js";
import { acting, anItem, beginning, className, count, doubtful, largePicture, lastLevel, mark, mine, none, noun, number, outliers, page, percentWrong, picture, skipped } from "./shared.js";

const SIZES = [72, 88, 112, 144, 192];
const DETAILS = 90; // milliseconds without a move before the candidates of an image are requested
const N_DIGITS = 9; // classes that have a key while there is no answer yet
const N_STRIP = 8; // selected images that are shown beside the grid
const N_EXAMPLES = 4; // labelled images of a likely class
const N_KNOWN = 500; // images whose candidates are kept
const WIDE = matchMedia("(min-width: 1001px)"); // where the selected picture is shown large

const TEXT_SIZE = 160; // pixels of a tile that shows a text, at the usual size

let size = matchMedia("(max-width: 640px), (max-height: 560px)").matches ? 1 : 2;
let above = null; // the section at the top of the screen
let current = null; // the section that the bar and Shift+Enter are about
let asking;
const known = new Map(); // candidates and history by selection, as last shown

export const grid = new Grid($("grid"), $("canvas"), { describe, onSection, onMissing });
export const currentSection = () => current;
// The likely classes beside the picture, in the order of their keys; nothing while they are loaded.
export function candidates() {
  const offered = known.get(key(acting()))?.candidates;
  // Of an answer that is older or newer than the state, a class may have another name.
  return offered?.length ? offered.filter(({ label }) => page.state.classes.includes(label)) : guesses();
}

const key = (items) => items.join();
// While there are fewer than two classes, nothing is likelier than another.
const guesses = () => (page.state.classes.length < 2 ? page.state.classes.slice(0, N_DIGITS).map((label) => ({ label, probability: 0 })) : null);

// What people said of an image that they decided differently.
const opinions = (item) => `decided as ${Object.entries(page.state.conflicts.get(item) ?? {}).map(([person, label]) => `${label} by ${person}`).join(", ")}`;

function describe(item) {
  const { state, project } = page;
  const label = none(item) ? "none of these" : className(item);
  const strange = state.outliers.get(item);
  const above = mine(item) ? undefined : state.above.get(item);
  const only = above ? `; ${above.label} is ${percent(above.sure)} sure` : "";
  const guess = beginning() ? "a guess" : `${percent(state.confidence[item])} sure${only}`;
  const who = { 1: "your label", 2: "given label", 3: "confirmed with others", 4: "your decision", 5: "skipped", 6: opinions(item) }[mark(item)];
  const words = who ?? (!label ? "" : strange ? `${percent(strange)} none of these` : guess);
  return {
    name: project.names[item],
    picture: picture(item),
    text: page.project.texts?.[item],
    label: above && !who ? `${above.label} (${lastLevel(label)}?)` : label && beginning() && !who ? `${label}?` : label,
    color: state.labels[item] < 0 ? "var(--line)" : color(state.labels[item]),
    words: [project.names[item], project.texts?.[item], label || "no label", words, page.missing.has(item) && "file is missing"].filter(Boolean).join(", "),
    note: page.missing.has(item) ? "File is missing" : !who && strange && label ? `Probably none of your classes (${percent(strange)}); closest: ${label}` : [label || "no label", words].filter(Boolean).join(", "),
    mine: { 1: "mine", 2: "mine given", 3: "mine given", 4: "mine", 5: "mine skipped", 6: "mine skipped" }[mark(item)],
    sign: { 4: "∅", 5: "?", 6: "≠" }[mark(item)] ?? "✓",
    doubt: strange && !who ? `∅ ${percent(strange)}` : doubtful(item) && !beginning() ? percent(state.confidence[item]) : "",
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
  const before = page.layout;
  const layout = (page.layout = grid.layout = new Layout(sections(), { width, gap, wish: page.project.texts && !page.project.pictures ? Math.round((TEXT_SIZE * SIZES[size]) / 112) : SIZES[size] }));
  page.focused = stay(before, layout);
  page.selected = new Set([...page.selected].filter((item) => layout.place.has(item)));
  grid.canvas.style.height = `${layout.total}px`;
  if (page.focused !== null && offset !== null) grid.hold(page.focused, offset);
  grid.show(layout);
  if (page.focused === null) $("grid").removeAttribute("aria-activedescendant");
  $("empty").hidden = layout.order.length > 0;
  $("empty").textContent = emptyWords();
  showAround();
}

// The item in focus: where an answer took it to another section, the one that is in its place now, or the next open one.
function stay(before, after) {
  const item = page.focused;
  const was = item === null ? null : before?.sectionOf(item);
  if (!was || after.sectionOf(item)?.key === was.key) return after.place.has(item) ? item : null;
  if (after.place.has(item) && mine(item)) return item;
  const open = (each) => !mine(each) && !skipped(each);
  const same = after.sections.find((each) => each.key === was.key);
  const inPlace = same?.items.filter(open) ?? [];
  return inPlace[Math.min(was.items.indexOf(item), inPlace.length - 1)] ?? after.order.slice(same?.first ?? 0).find(open) ?? after.order[0] ?? null;
}

function emptyWords() {
  if (page.filter) return `Nothing matches “${page.filter}”.`;
  if (page.view === "yours") return "You have not labelled anything yet.";
  if (page.view === "outliers") return "No image looks like none of the classes.";
  if (page.view === "begin") return "Every suggested image has a name.";
  const open = page.project.names.filter((_, item) => !mine(item)).length;
  if (!open) return `Every ${noun()} has a label.`;
  const wrong = percentWrong();
  if (!wrong) return "Nothing is doubtful. Look through the classes, or download the CSV.";
  return `Nothing is doubtful. But about ${wrong} % of the ${number(open)} sure ones may be wrong: look through the classes.`;
}

function showAround() {
  const { state, project } = page;
  const counts = state.classes.map(() => ({ all: 0, doubtful: 0 }));
  const tally = { yours: 0, sure: 0, doubtful: 0 };
  project.names.forEach((_, item) => {
    const unsure = doubtful(item);
    if (mine(item)) tally.yours++;
    else if (state.labels[item] < 0) return;
    else if (unsure) tally.doubtful++;
    else tally.sure++;
    if (state.labels[item] < 0 || !matches(item)) return;
    counts[state.labels[item]].all++;
    if (unsure) counts[state.labels[item]].doubtful++;
  });
  const nOutliers = outliers().length;
  showProgress(tally, state, nOutliers > 0);
  showOutliers(nOutliers, page.view === "outliers");
  showClasses(byName().filter((way) => counts[way].all || !page.filter), counts, current?.way);
  document.body.classList.toggle("in-outliers", page.view === "outliers");
  document.body.classList.toggle("on-map", page.view === "map");
  document.body.classList.toggle("on-whole-map", onWholeMap());
  document.querySelector('[data-view="begin"]').hidden = !beginning() && page.view !== "begin";
  for (const tab of document.querySelectorAll("[data-view]")) {
    tab.setAttribute("aria-selected", tab.dataset.view === page.view);
    tab.setAttribute("aria-controls", "pictures");
    tab.tabIndex = tab.dataset.view === (["outliers", "like"].includes(page.view) ? "class" : page.view) ? 0 : -1;
  }
  inspect();
}

function onSection(section) {
  above = section;
  showBar();
}

let missing;
function onMissing(item) {
  page.missing.add(item);
  clearTimeout(missing);
  missing = setTimeout(relayout, DETAILS);
}

// On the map the pictures are below it only after a lasso.
const onWholeMap = () => page.view === "map" && !page.lasso;

// The bar is about the section of the image in focus, or the one at the top if that is out of sight.
function showBar() {
  const last = current;
  const section = (current = (onWholeMap() || grid.inSight(page.focused) ? page.layout.sectionOf(page.focused) : null) ?? above);
  const { open = [], sure = [] } = section ?? {};
  const ofClass = section?.way !== undefined;
  const title = section?.title ?? `No ${noun()}s`;
  if ($("pinned-title").textContent !== title) $("pinned-title").textContent = title; // announced
  $("pinned-swatch").hidden = !ofClass;
  if (ofClass) $("pinned-swatch").style.background = color(section.way);
  const first = section?.key === "none";
  $("pinned-note").textContent = first ? `Begin: choose ${anItem()} and name its class` : section?.note ?? "";
  $("above").hidden = onWholeMap() || !above || above.key === section?.key;
  $("above").textContent = above?.title ?? "";
  $("rename").hidden = $("pinned-confirm").hidden = !ofClass;
  $("sort").hidden = !["class", "check"].includes(page.view);
  $("pinned-words").textContent = !open.length ? "Next class →" : sure.length ? `Confirm ${number(sure.length)} sure` : open.length > 1 ? `Confirm all ${number(open.length)}…` : "Confirm 1 doubtful…";
  $("pinned-all").hidden = !sure.length || sure.length === open.length;
  $("pinned-all").textContent = `All ${number(open.length)}…`;
  if (last?.key === section?.key) return;
  for (const button of $("classes").querySelectorAll("button")) {
    if (ofClass && Number(button.dataset.way) === section.way) {
      button.setAttribute("aria-current", "true");
      button.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else button.removeAttribute("aria-current");
  }
}

export function inspect() {
  const { state, project } = page;
  const items = acting();
  const item = page.focused ?? items[0] ?? null;
  drawMap();
  const several = items.length > 1;
  $("inspector").hidden = item === null;
  if (item === null) return;
  const labelled = items.filter((each) => state.labels[each] >= 0);
  const labels = new Map();
  for (const each of labelled) labels.set(className(each), (labels.get(className(each)) ?? 0) + 1);
  const tally = [...labels].sort((a, b) => b[1] - a[1]).map(([label, n]) => `${number(n)} ${label}`);
  showPicture(page.missing.has(item) ? "" : picture(item), item);
  showText(item, several);
  showStrip(several ? items : []);
  $("item-name").textContent = several ? `${count(items.length, "image")} selected` : project.names[item];
  $("item-note").textContent = several ? `${tally.slice(0, 4).join(" · ")}${tally.length > 4 ? " · …" : ""}` : describe(item).note;
  // What Enter does: confirm, or name what has no label or probably no class.
  const naming = namesNew();
  const words = naming ? (page.view === "outliers" ? "Name a new class…" : "Name the class…") : !several ? `✓ ${className(item)}` : labels.size === 1 ? `✓ ${number(items.length)} × ${className(labelled[0])}` : "✓ Confirm their labels";
  $("confirm-words").textContent = words;
  $("confirm").title = several ? tally.join(", ") : words;
  $("confirm").disabled = !naming && !items.some((each) => state.labels[each] >= 0 && mark(each) !== "1");
  $("other").hidden = naming;
  $("remove").disabled = !items.some((each) => mine(each) || skipped(each));
  showExamples();
  showOffer(items);
  clearTimeout(asking);
  asking = setTimeout(() => askAbout(items), known.has(key(items)) ? DETAILS : DETAILS / 3);
}

// Whether Enter asks for a name: nothing to confirm, or images that are probably of a class without a name.
export const namesNew = () => ["begin", "outliers"].includes(page.view) || !acting().some((item) => page.state.labels[item] >= 0);

function showOffer(items) {
  showCandidates(candidates());
  showHistory(known.get(key(items))?.history ?? []);
}

async function askAbout(items) {
  const about = await api.about(items).catch(() => null);
  if (!about) return;
  keep(items, about);
  if (key(items) !== key(acting())) return;
  showOffer(items);
  showExamples();
  const [item] = items;
  const image = $("picture");
  if (page.project.pictures && image.dataset.large !== String(item) && (WIDE.matches || isLarge())) {
    const large = new Image();
    large.onload = () => {
      if (image.dataset.item === String(item)) Object.assign(image, { src: large.src }).dataset.large = item;
    };
    large.src = largePicture(item);
  }
  const next = follower(items);
  if (!known.has(key([next]))) api.about([next]).then((found) => known.has(key([next])) || keep([next], found)).catch(() => null);
}

// The order of classes that are on the screen does not change, or a key would mean something else than a moment ago.
function keep(items, about) {
  const before = known.get(key(items))?.candidates.map(({ label }) => label) ?? [];
  const place = (label) => (before.indexOf(label) + 1 || Infinity);
  const shown = key(items) === key(acting());
  if (shown && about.candidates.every(({ label }) => before.includes(label))) about.candidates.sort((a, b) => place(a.label) - place(b.label));
  if (known.size > N_KNOWN) known.clear();
  known.set(key(items), about);
}

// Forget what was offered by an older answer, except what is on the screen.
export function forget({ all = false } = {}) {
  const shown = key(acting());
  const about = known.get(shown);
  known.clear();
  if (about && !all) known.set(shown, about);
}

// The text of the item, whole as soon as it is there, and its sound.
function showText(item, several) {
  const { texts, sounds } = page.project;
  const shown = $("item-text");
  shown.hidden = !texts || several;
  if (texts && shown.dataset.item !== String(item)) {
    shown.dataset.item = item;
    shown.textContent = texts[item];
    shown.scrollTop = 0;
    if (texts[item].endsWith("…"))
      api.text(item).then(({ text }) => shown.dataset.item === String(item) && (shown.textContent = text)).catch(() => null);
  }
  const sound = $("sound");
  sound.hidden = !sounds || several;
  if (sounds && sound.dataset.item !== String(item)) Object.assign(sound, { src: `/audio/${item}` }).dataset.item = item;
}

function thumbnail(item) {
  const image = element("img");
  image.src = picture(item);
  image.alt = page.project.names[item];
  return image;
}

function showStrip(items) {
  const shown = page.project.pictures ? items.slice(0, N_STRIP) : [];
  $("strip").replaceChildren(...shown.map(thumbnail));
  $("strip").hidden = !shown.length;
  if (shown.length) $("picture-button").hidden = true;
}

export const isLarge = () => document.body.classList.contains("large");

// Labelled images of the two likeliest classes, beside the large picture.
function showExamples() {
  if (!isLarge() || page.focused === null) return $("examples").replaceChildren();
  const rows = (candidates() ?? []).slice(0, 2).map(({ label }) => {
    const way = page.state.classes.indexOf(label);
    const found = [];
    for (let item = 0; item < page.project.names.length && found.length < N_EXAMPLES; item++)
      if (page.state.labels[item] === way && "12".includes(mark(item)) && item !== page.focused) found.push(item);
    const row = element("figure");
    const images = element("div");
    images.append(...found.map(thumbnail));
    row.append(element("figcaption", "", found.length ? `Labelled ${label}` : `No other image is labelled ${label}`), images);
    return row;
  });
  $("examples").replaceChildren(...(page.project.pictures ? rows : []));
}

export function focus(item, { extend = false, toggle = false } = {}) {
  if (item === undefined || item === null) return;
  const { layout } = page;
  if (extend) {
    page.anchor ??= page.focused ?? item;
    const [from, to] = [layout.place.get(page.anchor) ?? 0, layout.place.get(item)].sort((a, b) => a - b);
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
  revealOnMap(item);
  inspect();
}

export function resize(step) {
  size = Math.min(SIZES.length - 1, Math.max(0, size + step));
  relayout();
}
