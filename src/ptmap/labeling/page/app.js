// The labelling page: state, actions, keys. A decision shows at once and is sent; the answer brings everybody's labels.

import * as api from "./api.js";
import { Grid } from "./grid.js";
import { Layout } from "./layout.js";
import { $, Palette, color, percent, showCandidates, showClasses, showHistory, showInspector, showProgress, toast } from "./panels.js";

const SIZES = [72, 88, 112, 144, 192];
const VIEWS = ["class", "check", "yours"];
const POLL = 450; // milliseconds between looks for the thorough answer
const ABOVE = 12; // pixels above the first row of a section that was gone to
const DETAILS = 90; // milliseconds of rest before the candidates of an image are asked for

let project; // title, names, key, pictures
let state; // labels, confidence, marks ... of all items, replaced by every answer
let layout;
let view = "class";
let filter = "";
let size = matchMedia("(max-width: 640px)").matches ? 1 : 2;
let focused = null; // the item that keys act on
let anchor = null; // where a range of selection begins
let selected = new Set();
let several = false; // taps add to the selection
let changed = new Set();
let candidates = [];
let queue = Promise.resolve(); // decisions are sent one after the other
let pending = 0;
let polling;
let asking;

const grid = new Grid($("grid"), $("canvas"), { describe, onSection });
const palette = new Palette((label) => label_(label));

// ---- what is shown

const mine = (item) => state.marks[item] !== "0";
const doubtful = (item) => !mine(item) && state.labels[item] >= 0 && state.confidence[item] < state.doubtful_below;
const className = (item) => (state.labels[item] < 0 ? "" : state.classes[state.labels[item]]);
const picture = (item) => (project.pictures ? `/thumbnail/${item}?v=${project.key}` : "");

function describe(item) {
  const label = className(item);
  const who = { 1: "your label", 2: "given label" }[state.marks[item]] ?? (label ? `${percent(state.confidence[item])} sure` : "no label");
  return {
    name: project.names[item],
    picture: picture(item),
    label,
    color: state.labels[item] < 0 ? "var(--line)" : color(state.labels[item]),
    words: `${project.names[item]}, ${label || "no label"}, ${who}`,
    mine: { 1: "yours", 2: "given" }[state.marks[item]],
    doubt: doubtful(item) ? percent(state.confidence[item]).replace(" ", "") : "",
    selected: selected.has(item),
    focused: item === focused,
    changed: changed.has(item),
  };
}

function matches(item) {
  if (!filter) return true;
  const words = `${project.names[item]} ${className(item)}`.toLowerCase();
  return filter.split(/\s+/).every((word) => words.includes(word));
}

function sections() {
  const items = project.names.map((_, item) => item).filter(matches);
  const byDoubt = (a, b) => state.confidence[a] - state.confidence[b] || a - b;
  if (view === "yours") return [section("yours", "Labelled", items.filter(mine), { captions: true })];
  if (view === "check") {
    const suggested = state.suggested.filter((item) => !mine(item) && matches(item));
    const first = new Set(suggested);
    const rest = items.filter((item) => !first.has(item) && (doubtful(item) || state.labels[item] < 0)).sort(byDoubt);
    return [
      section("suggested", "Would help most", suggested, { captions: true, note: "doubtful, unlike one another" }),
      section("doubtful", "Doubtful", rest, { captions: true, note: "least certain first" }),
    ].filter((each) => each.items.length);
  }
  const groups = state.classes.map(() => []);
  const none = [];
  for (const item of items) (state.labels[item] < 0 ? none : groups[state.labels[item]]).push(item);
  const found = groups.map((group, number) => {
    const open = group.filter((item) => !mine(item)).sort(byDoubt);
    return section(`class-${number}`, state.classes[number], [...open, ...group.filter(mine)], { number, open });
  });
  if (none.length) {
    const rank = new Map(state.suggested.map((item, i) => [item, i]));
    none.sort((a, b) => (rank.get(a) ?? Infinity) - (rank.get(b) ?? Infinity) || a - b);
    found.unshift(section("none", "Not labelled yet", none, {}));
  }
  return found.filter((each) => each.items.length);
}

function section(key, title, items, { number, open = [], captions = false, note } = {}) {
  const unsure = open.filter(doubtful).length;
  const words = note ?? [`${items.length.toLocaleString("en")} images`, unsure && `${unsure} doubtful`].filter(Boolean).join(" · ");
  return { key, title, items, open, captions, number, note: words, color: number === undefined ? "" : color(number) };
}

function relayout({ keep } = {}) {
  const offset = keep ?? (focused === null ? null : grid.offset(focused));
  const style = getComputedStyle($("grid"));
  const width = $("grid").clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const gap = parseFloat(style.getPropertyValue("--gap")) || 6;
  layout = new Layout(sections(), { width, gap, wish: SIZES[size] });
  grid.layout = layout;
  if (focused !== null && !layout.place.has(focused)) focused = null;
  selected = new Set([...selected].filter((item) => layout.place.has(item)));
  grid.canvas.style.height = `${layout.total}px`;
  if (focused !== null && offset !== null) grid.hold(focused, offset);
  grid.show(layout);
  $("empty").hidden = layout.order.length > 0;
  $("empty").textContent = filter ? `Nothing matches “${filter}”.` : { check: "Nothing is doubtful.", yours: "You have not labelled anything yet." }[view] ?? "";
  showAround();
}

function showAround() {
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
  showProgress(tally, project.names.length, state.estimate, state.advice);
  showClasses(state.classes, counts, { current: onSection.current?.number, onPick: goToClass });
  for (const tab of document.querySelectorAll("[data-view]")) {
    tab.setAttribute("aria-selected", tab.dataset.view === view);
    tab.tabIndex = tab.dataset.view === view ? 0 : -1;
  }
  inspect();
}

function onSection(section) {
  const last = onSection.current;
  onSection.current = section;
  $("pinned-title").textContent = section?.title ?? "";
  $("pinned-note").textContent = section?.note ?? "";
  $("pinned-confirm").hidden = !section?.open.length;
  $("pinned-confirm").textContent = `Confirm all ${section?.open.length}`;
  if (last?.number !== section?.number) {
    [...$("classes").querySelectorAll("button")].forEach((button, number) => {
      if (number === section?.number) {
        button.setAttribute("aria-current", "true");
        button.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else button.removeAttribute("aria-current");
    });
  }
}

function inspect() {
  const items = acting();
  const item = focused ?? items[0] ?? null;
  const only = item !== null && items.length <= 1;
  showInspector({
    item,
    name: only ? project.names[item] : "",
    picture: item === null ? "" : picture(item),
    selected: items.length,
    note: item === null ? "" : only ? describe(item).words.slice(project.names[item].length + 2) : `${items.filter(mine).length} of them yours`,
    label: only ? className(item) : "",
    mine: items.some(mine),
    confirmable: items.some((each) => state.labels[each] >= 0 && state.marks[each] !== "1"),
  });
  if (item === null) return;
  if (inspect.item !== item) showHistory((candidates = []));
  inspect.item = item;
  showCandidates(candidates.length ? candidates : guesses(), state.classes, label_);
  clearTimeout(asking);
  asking = setTimeout(async () => {
    const about = await api.getItem(item).catch(() => null);
    if (!about || inspect.item !== item) return;
    candidates = about.candidates;
    showCandidates(candidates.length ? candidates : guesses(), state.classes, label_);
    showHistory(about.history);
    const image = $("picture");
    if (project.pictures && image.dataset.large !== String(item)) {
      const large = new Image();
      large.onload = () => {
        if (inspect.item === item) Object.assign(image, { src: large.src }).dataset.large = item;
      };
      if (matchMedia("(min-width: 1001px)").matches) large.src = `/picture/${item}?v=${project.key}`;
    }
  }, DETAILS);
}

const guesses = () => state.classes.slice(0, 9).map((label) => ({ label, share: 0 }));

// ---- selection

const acting = () => (selected.size ? [...selected] : focused === null ? [] : [focused]);

function focus(item, { extend = false, toggle = false } = {}) {
  if (item === undefined || item === null) return;
  if (extend) {
    anchor ??= focused ?? item;
    const [from, to] = [layout.place.get(anchor), layout.place.get(item)].sort((a, b) => a - b);
    selected = new Set(layout.order.slice(from, to + 1));
  } else if (toggle) {
    if (selected.size === 0 && focused !== null && focused !== item) selected.add(focused);
    if (!selected.delete(item)) selected.add(item);
    anchor = item;
  } else {
    selected.clear();
    anchor = item;
  }
  focused = item;
  $("grid").setAttribute("aria-activedescendant", `tile-${item}`);
  grid.reveal(item);
  grid.render(true);
  inspect();
}

function clear() {
  if (selected.size) selected.clear();
  else if (filter) setFilter("");
  else focused = null;
  relayout();
}

// ---- decisions

// The next item to look at after some were decided: the first after them that is still open, in the old order.
function follower(items) {
  const gone = new Set(items);
  const section = layout.sectionOf(items[0]);
  const start = layout.place.get(items[items.length - 1]);
  const open = (item) => !gone.has(item) && !mine(item);
  const after = layout.order.slice(start + 1).find((item) => open(item) && (view !== "class" || layout.sectionOf(item) === section));
  return after ?? section?.items.find(open) ?? layout.order.slice(start + 1).find(open) ?? layout.order[start];
}

function change(items, send, words, apply) {
  const inOrder = [...items].sort((a, b) => (layout.place.get(a) ?? 0) - (layout.place.get(b) ?? 0));
  const offset = grid.offset(inOrder[0]);
  const next = follower(inOrder);
  for (const item of inOrder) apply(item);
  selected.clear();
  changed = new Set();
  focused = next;
  anchor = next;
  relayout({ keep: offset });
  grid.reveal(next);
  $("grid").setAttribute("aria-activedescendant", `tile-${next}`);
  submit(send, (answer) => toast(words + (answer.changed.length ? ` · ${answer.changed.length} others changed` : "")));
}

function label_(label, items = acting()) {
  const name = label.trim();
  if (!name || !items.length) return;
  change(items, () => api.decide(items, name), `${items.length === 1 ? "" : `${items.length} × `}${name}`, (item) => {
    if (!state.classes.includes(name)) state.classes.push(name);
    state.labels[item] = state.classes.indexOf(name);
    state.confidence[item] = 1000;
    state.marks[item] = "1";
  });
}

function confirmAll(items) {
  const open = items.filter((item) => state.labels[item] >= 0 && state.marks[item] !== "1");
  if (!open.length) return;
  // Each with the label that is on the screen, whatever the model may think by the time the request arrives.
  const byLabel = new Map();
  for (const item of open) byLabel.set(className(item), [...(byLabel.get(className(item)) ?? []), item]);
  const send = byLabel.size === 1 ? () => api.decide(open, [...byLabel.keys()][0]) : () => api.confirmItems(open);
  change(open, send, open.length === 1 ? `${className(open[0])} ✓` : `${open.length} confirmed`, (item) => {
    state.confidence[item] = 1000;
    state.marks[item] = "1";
  });
}

function remove() {
  const items = acting().filter(mine);
  if (!items.length) return;
  change(items, () => api.decide(items, null), items.length === 1 ? "Label removed" : `${items.length} labels removed`, (item) => {
    state.confidence[item] = 0;
    state.marks[item] = "0";
  });
}

function undo() {
  submit(api.undo, (answer) => {
    if (!answer.undone.length) return toast("Nothing to undo");
    toast(`Undone: ${answer.undone.length === 1 ? project.names[answer.undone[0]] : `${answer.undone.length} images`}`);
    if (layout.place.has(answer.undone[0])) focus(answer.undone[0]);
  });
}

function submit(send, then) {
  pending++;
  queue = queue.then(async () => {
    try {
      const answer = await send();
      pending--;
      trouble("");
      if (pending === 0) receive(answer);
      then(answer);
    } catch (error) {
      pending--;
      if (error instanceof api.Refused) {
        toast(error.message);
        receive(await api.getState(-1));
      } else trouble(error.message);
    }
  });
}

function setState(answer) {
  state = { ...answer, marks: [...answer.marks] }; // one mark an item
}

function receive(answer) {
  if (!answer) return;
  setState(answer);
  changed = new Set(answer.changed);
  relayout();
  clearTimeout(polling);
  if (!answer.settled) polling = setTimeout(poll, POLL);
}

async function poll() {
  clearTimeout(polling);
  if (pending) return;
  try {
    const answer = await api.getState(state.version);
    if (answer && !pending) receive({ ...answer, changed: [] });
    else polling = setTimeout(poll, POLL);
  } catch (error) {
    trouble(error.message);
    polling = setTimeout(poll, 4 * POLL);
  }
}

function trouble(words) {
  $("trouble").textContent = words;
  $("trouble").hidden = !words;
}

// ---- going about

function setView(name) {
  view = name;
  selected.clear();
  $("grid").scrollTop = 0;
  focused = null;
  relayout();
  focus(layout.order[0]);
}

function setFilter(words) {
  filter = words.trim().toLowerCase();
  if ($("filter").value.trim().toLowerCase() !== filter) $("filter").value = words;
  $("grid").scrollTop = 0;
  relayout();
}

function goToClass(number) {
  if (view !== "class") {
    view = "class";
    relayout();
  }
  const target = layout.sections.find((each) => each.number === number);
  if (!target) return toast(`No image is “${state.classes[number]}” yet`);
  goTo(target);
}

// A section's own heading would only repeat what is pinned above it.
function goTo(target) {
  focus(target.items[0]);
  $("grid").scrollTop = target.top + target.head - ABOVE;
}

function jump(step) {
  const at = layout.sections.indexOf(layout.sectionOf(focused) ?? onSection.current);
  const target = layout.sections[at + step];
  if (target) goTo(target);
}

function openPalette() {
  if (acting().length) palette.open(state.classes, candidates);
}

function lightbox() {
  if (focused === null || !project.pictures) return;
  $("lightbox-picture").src = `/picture/${focused}?v=${project.key}`;
  $("lightbox").showModal();
}

function resize(step) {
  size = Math.min(SIZES.length - 1, Math.max(0, size + step));
  relayout();
}

const KEYS = {
  Enter: (event) => (event.shiftKey ? confirmAll((layout.sectionOf(focused) ?? onSection.current)?.open ?? []) : confirmAll(acting())),
  " ": () => focus(focused ?? layout.order[0], { toggle: true }),
  Backspace: remove,
  Delete: remove,
  u: undo,
  l: openPalette,
  0: openPalette,
  v: () => setView(VIEWS[(VIEWS.indexOf(view) + 1) % VIEWS.length]),
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
  KEYS[key] = (event) => focus(layout.step(focused, key), { extend: event.shiftKey });
for (let digit = 1; digit <= 9; digit++) KEYS[digit] = () => state.classes[digit - 1] && label_(state.classes[digit - 1]);

document.addEventListener("keydown", (event) => {
  if (!state || document.querySelector("dialog[open]")) return;
  const inField = event.target.matches("input");
  if (inField) {
    if (event.key === "Escape" || event.key === "Enter") {
      if (event.key === "Escape") setFilter("");
      $("grid").focus();
      event.preventDefault();
    }
    return;
  }
  const onButton = event.target.matches("button, a");
  if (onButton && (event.key === "Enter" || event.key === " ")) return; // presses it
  if ((event.ctrlKey || event.metaKey) && event.key === "z") undo();
  else if ((event.ctrlKey || event.metaKey) && event.key === "a") {
    selected = new Set((layout.sectionOf(focused) ?? onSection.current)?.items ?? []);
    grid.render(true);
    inspect();
  } else if (event.ctrlKey || event.metaKey || event.altKey) return;
  else {
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    act(event);
    if (event.key !== "/" && event.key !== "?") $("grid").focus({ preventScroll: true });
  }
  event.preventDefault();
});

$("canvas").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  focus(Number(tile.dataset.item), { extend: event.shiftKey, toggle: event.ctrlKey || event.metaKey || several });
});
$("canvas").addEventListener("dblclick", lightbox);
$("undo").addEventListener("click", undo);
$("help-button").addEventListener("click", () => $("help").showModal());
$("confirm").addEventListener("click", () => confirmAll(acting()));
$("other").addEventListener("click", openPalette);
$("remove").addEventListener("click", remove);
$("several").addEventListener("click", () => {
  several = !several;
  $("several").setAttribute("aria-pressed", several);
});
$("pinned-confirm").addEventListener("click", () => confirmAll(onSection.current?.open ?? []));
$("picture-button").addEventListener("click", lightbox);
$("lightbox").addEventListener("click", () => $("lightbox").close());
$("filter").addEventListener("input", (event) => setFilter(event.target.value));
for (const tab of document.querySelectorAll("[data-view]")) tab.addEventListener("click", () => setView(tab.dataset.view));
new ResizeObserver(() => layout && relayout()).observe($("grid"));

try {
  project = await api.getProject();
  setState(project.state);
  document.title = `${project.title} · ptmap`;
  $("title").textContent = project.title;
  $("title").title = project.title;
  relayout();
  focus(layout.order[0]);
  $("grid").focus({ preventScroll: true });
  if (!state.settled) poll();
} catch (error) {
  trouble(error.message);
}
