// Which images are shown together, in which order.

import { color } from "./panels.js";
import { anItem, className, contested, count, doubtful, levels, mark, mine, none, number, outliers, page, percentWrong, skipped } from "./shared.js";

export function matches(item) {
  if (!page.filter) return true;
  const words = `${page.project.names[item]} ${page.project.texts?.[item] ?? ""} ${className(item)}`.toLowerCase();
  return page.filter.split(/\s+/).every((word) => words.includes(word));
}

const NAMES = new Intl.Collator(undefined, { numeric: true });
let places; // of each item in the order of names
function place(item) {
  const { names } = page.project;
  places ??= new Map(names.map((_, i) => i).sort((a, b) => NAMES.compare(names[a], names[b])).map((each, i) => [each, i]));
  return places.get(item);
}
const inOrder = (a, b) => (page.byName ? place(a) - place(b) : page.state.confidence[a] - page.state.confidence[b] || a - b);
const VIEWS = { begin: kinds, class: byClass, check: toCheck, yours, outliers: noClass, like: alike, map: onMap };

export function sections() {
  const items = page.project.names.map((_, item) => item).filter(matches);
  return VIEWS[page.view](items).filter((each) => each.items.length);
}

// Suggestions come anew with every answer; those shown stay where they are.
function kinds() {
  const { state } = page;
  const open = (item) => !mine(item) && !skipped(item);
  page.kinds = [...new Set([...page.kinds.filter(open), ...state.suggested.filter(open)])].slice(0, 24);
  const n = state.searched ? outliers().length : 0;
  const first = state.classes.length ? `${count(state.classes.length, "kind")} named` : `choose ${anItem()}, press Enter and name its kind`;
  const words = [first, n && `${count(n, "image")} ${n === 1 ? "looks" : "look"} like none of them`];
  return [section("begin", "Name the kinds", page.kinds.filter(matches), { captions: true, note: words.filter(Boolean).join(" · ") })];
}

function toCheck(items) {
  const open = (item) => !mine(item) && !skipped(item) && !contested(item);
  const suggested = page.state.suggested.filter((item) => open(item) && matches(item));
  const first = new Set(suggested);
  const rest = items.filter((item) => !first.has(item) && open(item) && (doubtful(item) || page.state.labels[item] < 0)).sort(inOrder);
  const guessed = page.state.classes.length > 1; // or there is nothing to doubt
  const wrong = !suggested.some(doubtful) && percentWrong();
  const why = !guessed ? "different from each other" : wrong ? `nothing is doubtful, but about ${wrong} % of the sure labels may be wrong` : "uncertain, and different from each other";
  return [
    section("contested", "Decided differently", items.filter(contested), { captions: true, note: "people disagree: decide again" }),
    section("suggested", "Label these first", suggested, { captions: true, note: why }),
    section("doubtful", guessed ? "Doubtful" : "Not labelled yet", rest, { captions: true, note: guessed ? (page.byName ? "by name" : "least certain first") : undefined }),
  ];
}

function yours(items) {
  const suspicious = (page.state.suspicious ?? []).filter((item) => mine(item) && matches(item)); // where the server tells
  const marked = (...marks) => items.filter((item) => marks.includes(mark(item)) && !suspicious.includes(item));
  return [
    section("suspicious", "Perhaps wrong", suspicious, { captions: true, note: "the other labels speak against these: look again" }),
    section("yours", "Labelled", marked("1", "2"), { captions: true }),
    section("confirmed", "Confirmed together", marked("3"), { captions: true, note: "not looked at one by one: not counted in the estimate" }),
    section("none-of-these", "None of these", marked("4")),
    section("skipped", "Skipped", marked("5"), { captions: true }),
  ];
}

function noClass() {
  return [section("outliers", "None of these?", outliers().filter(matches), { captions: true, note: "the most probable first" })];
}

function alike(items) {
  const { item, similar, words, burst } = page.like;
  const found = items.filter((each) => similar.has(each)).sort((a, b) => similar.get(b) - similar.get(a));
  const [title, note] = burst ? ["Burst of", `each at most ${page.project.burst_seconds} seconds after the one before`] : ["Like", "the most similar first"];
  return [section("like", words ? `Search: ${words}` : `${title} ${page.project.names[item]}`, found, { captions: true, note })];
}

// Sub-classes follow their class.
function compare(one, other) {
  const [a, b] = [levels(one), levels(other)];
  const i = a.findIndex((part, depth) => depth >= b.length || NAMES.compare(part, b[depth]));
  return i < 0 ? a.length - b.length : i >= b.length ? 1 : NAMES.compare(a[i], b[i]);
}
export const byName = () => page.state.classes.map((_, i) => i).sort((a, b) => compare(page.state.classes[a], page.state.classes[b]));

function byClass(items) {
  const { state } = page;
  const groups = state.classes.map(() => []);
  const rest = [];
  for (const item of items) if (!none(item)) (state.labels[item] < 0 ? rest : groups[state.labels[item]]).push(item);
  const found = byName().map((way) => {
    const group = groups[way];
    const open = group.filter((item) => !mine(item)).sort(inOrder);
    return section(`class-${state.classes[way]}`, state.classes[way], [...open, ...group.filter(mine)], { way });
  });
  const rank = new Map(state.suggested.map((item, i) => [item, i]));
  rest.sort((a, b) => (rank.get(a) ?? Infinity) - (rank.get(b) ?? Infinity) || a - b);
  return [section("none", "Not labelled yet", rest), ...found];
}

function onMap(items) {
  const inside = page.lasso ? items.filter((item) => page.lasso.has(item)) : items;
  return [...byClass(inside), section("none-of-these", "None of these", inside.filter(none))];
}

// way is the number of a class: only sections of a class can be confirmed together.
function section(key, title, items, { way, captions = false, note } = {}) {
  const open = way === undefined ? [] : items.filter((item) => !mine(item) && !skipped(item) && !contested(item) && !page.missing.has(item));
  const sure = open.filter((item) => !doubtful(item) && !page.state.outliers.has(item));
  const unsure = open.filter(doubtful).length;
  const words = note ?? [count(items.length, "image"), unsure && `${number(unsure)} doubtful`].filter(Boolean).join(" · ");
  return { key, title, items, open, sure, captions, way, note: words, color: way === undefined ? "" : color(way) };
}
