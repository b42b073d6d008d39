// Which images are shown together, in which order.

import { color } from "./panels.js";
import { count, className, doubtful, mine, page, outliers } from "./shared.js";

function matches(item) {
  if (!page.filter) return true;
  const words = `${page.project.names[item]} ${className(item)}`.toLowerCase();
  return page.filter.split(/\s+/).every((word) => words.includes(word));
}

const byDoubt = (a, b) => page.state.confidence[a] - page.state.confidence[b] || a - b;

export function sections() {
  const items = page.project.names.map((_, item) => item).filter(matches);
  const found = { class: byClass, check: toCheck, yours: (all) => [section("yours", "Labelled", all.filter(mine), { captions: true })], outliers: noClass };
  return found[page.view](items).filter((each) => each.items.length);
}

function toCheck(items) {
  const suggested = page.state.suggested.filter((item) => !mine(item) && matches(item));
  const first = new Set(suggested);
  const rest = items.filter((item) => !first.has(item) && (doubtful(item) || page.state.labels[item] < 0)).sort(byDoubt);
  return [
    section("suggested", "Label these first", suggested, { captions: true, note: "uncertain, and different from each other" }),
    section("doubtful", "Doubtful", rest, { captions: true, note: "least certain first" }),
  ];
}

function noClass() {
  return [section("outliers", "None of these?", outliers().filter(matches), { captions: true, note: "the most probable first: select similar images and name their class" })];
}

function byClass(items) {
  const { state } = page;
  const groups = state.classes.map(() => []);
  const none = [];
  for (const item of items) (state.labels[item] < 0 ? none : groups[state.labels[item]]).push(item);
  const found = groups.map((group, number) => {
    const open = group.filter((item) => !mine(item)).sort(byDoubt);
    const sure = open.filter((item) => !state.outliers.has(item)); // images that may be of no class are not confirmed with the others
    return section(`class-${number}`, state.classes[number], [...open, ...group.filter(mine)], { number, open: sure });
  });
  const rank = new Map(state.suggested.map((item, i) => [item, i]));
  none.sort((a, b) => (rank.get(a) ?? Infinity) - (rank.get(b) ?? Infinity) || a - b);
  return [section("none", "Not labelled yet", none, {}), ...found];
}

function section(key, title, items, { number, open = [], captions = false, note } = {}) {
  const unsure = open.filter(doubtful).length;
  const words = note ?? [count(items.length, "image"), unsure && `${unsure.toLocaleString("en")} doubtful`].filter(Boolean).join(" · ");
  return { key, title, items, open, captions, number, note: words, color: number === undefined ? "" : color(number) };
}
