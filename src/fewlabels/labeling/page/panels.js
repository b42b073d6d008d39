// What is shown around the pictures: classes, progress, the selected picture, the palette.

import { element, twoEnds } from "./grid.js";
import { beginning, count, levels, number, page, plain } from "./shared.js";

export const $ = (id) => document.getElementById(id);

const GOLDEN = 0.61803398875; // as in the report: the same class has the same colour there

// The colour of a class, by its number among all classes ever used: it does not change when another class goes.
export function color(way) {
  const place = page.state.colors[way];
  if (place === undefined) return "var(--line)";
  const hue = (0.604 + place * GOLDEN) % 1;
  const [lightness, saturation] = [[59.5, 70], [54, 54], [66, 62]][place % 3];
  return `hsl(${(hue * 360).toFixed(1)} ${saturation}% ${lightness}%)`;
}

export function swatch(way) {
  const made = element("i", "swatch");
  made.style.background = color(way);
  return made;
}

export const percent = (permille) => `${Math.floor(permille / 10)} %`;

const nClasses = (n) => (n === 1 ? "1 class" : `${number(n)} classes`);

// What a batch of decisions was, as in "30 × Cabbage confirmed".
export function batchWords({ n_items, labels, origin, mark, person }) {
  const label = labels.length > 1 ? nClasses(labels.length) : labels[0];
  const words = { none: "none of these", skip: "skipped", conflict: "decided differently" }[mark] ?? label ?? "label removed";
  return (person && person !== page.person ? `${person}: ` : "") + (n_items > 1 ? `${number(n_items)} × ` : "") + words + (origin === "confirmed" ? " confirmed" : "");
}

export function showProgress(tally, { estimate, advice, undo, redo }, amongOutliers) {
  const total = page.project.names.length;
  for (const key of ["yours", "sure", "doubtful"]) {
    $(`n-${key}`).textContent = number(tally[key]);
    $("track").querySelector(`.${key}`).style.width = `${(100 * tally[key]) / Math.max(1, total)}%`;
  }
  const [accuracy, low, high] = estimate ? [estimate.accuracy, estimate.low, estimate.high].map((part) => Math.round(100 * part)) : [];
  const wide = element("span", "wide", `≈ ${accuracy} % `);
  wide.append(element("span", "about", amongOutliers ? "of the named classes " : "of the other labels "), `right (${low}–${high} %)`);
  $("estimate").replaceChildren(...(estimate ? [wide, element("span", "narrow", `${low}–${high} % right`)] : []));
  $("estimate").title = estimate
    ? `Check: each of your ${number(estimate.n_hidden)} labels was hidden once; ${number(estimate.n_right)} were predicted right. ` +
      "They are weighted to be like the other images. After many suggested labels, the estimate is rather too low." +
      (amongOutliers ? " It says nothing about images that are none of these." : "")
    : "";
  $("advice-words").textContent = advice;
  $("start").hidden = !(tally.doubtful + tally.sure);
  for (const [id, batch, word, key] of [["undo", undo, "Undo", "u"], ["redo", redo, "Redo", "Shift+u"]]) {
    $(id).disabled = !batch;
    $(id).title = batch ? `${word}: ${batchWords(batch)} (${key})` : `Nothing to ${word.toLowerCase()}`;
    $(id).setAttribute("aria-label", batch ? `${word}: ${batchWords(batch)}` : word);
  }
  $("undo-what").textContent = undo ? batchWords(undo) : "";
}

// The rows of the list of classes: one per class, and one above sub-classes whose class has no label of its own.
function tree(order, counts) {
  const rows = [];
  const shown = new Map(); // rows by path
  for (const way of order) {
    const path = levels(page.state.classes[way]);
    path.forEach((title, depth) => {
      const key = JSON.stringify(path.slice(0, depth + 1));
      const last = depth === path.length - 1;
      if (!last && shown.has(key)) shown.get(key).n += counts[way].all;
      if (!last && shown.has(key)) return;
      const row = { depth, title, n: counts[way].all, way: last ? way : undefined };
      shown.set(key, row);
      rows.push(row);
    });
  }
  return rows;
}

function classRow(isHeading) {
  const row = element("li", isHeading ? "above" : "");
  if (isHeading) row.append(element("span", "name"), element("span", "n all"));
  else {
    const button = element("button");
    button.type = "button";
    button.append(element("i", "swatch"), element("span", "name"), element("span", "n"), element("span", "n all"));
    row.append(button);
  }
  return row;
}

// Rows are updated in place, so that the keyboard focus and the scroll position stay.
export function showClasses(order, counts, current) {
  const list = $("classes");
  $("n-classes").textContent = nClasses(order.length);
  const rows = tree(order, counts);
  while (list.children.length > rows.length) list.lastChild.remove();
  rows.forEach(({ way, depth, title, n }, i) => {
    const isHeading = way === undefined;
    if (list.children[i]?.classList.contains("above") === !isHeading) list.children[i].replaceWith(classRow(isHeading));
    if (!list.children[i]) list.append(classRow(isHeading));
    list.children[i].style.setProperty("--depth", depth);
    if (isHeading) {
      const [name, all] = list.children[i].children;
      name.textContent = title;
      all.textContent = number(n);
      return;
    }
    const button = list.children[i].firstChild;
    const [dot, name, some, all] = button.children;
    const { doubtful } = counts[way];
    const label = page.state.classes[way];
    button.dataset.way = way;
    const size = page.state.sizes?.[way]; // low and high, where the server tells
    const between = size ? ` (in truth ${number(size[0])} to ${number(size[1])})` : "";
    button.title = `${label}: ${count(counts[way].all, "image")}${between}, ${number(doubtful)} doubtful. Right click: rename, merge or delete.`;
    dot.style.background = color(way);
    if (name.textContent !== title) name.replaceChildren(...twoEnds(title));
    some.textContent = doubtful ? number(doubtful) : "";
    some.className = doubtful ? "n some" : "n";
    all.textContent = number(counts[way].all);
    button.toggleAttribute("aria-current", way === current);
    if (way === current) button.setAttribute("aria-current", "true");
  });
}

export function showOutliers(n, current) {
  const button = $("outliers");
  button.hidden = n === 0 && !current;
  button.ariaLabel = `None of these? ${count(n, "image")}`;
  button.title = `${count(n, "image")} that probably ${n === 1 ? "belongs" : "belong"} to none of the classes (V)`;
  if (current) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
  $("n-outliers").textContent = number(n);
}

export function showPicture(source, item) {
  const image = $("picture");
  if (image.dataset.item !== String(item)) {
    image.dataset.item = item;
    delete image.dataset.large;
    image.src = source;
  }
  $("picture-button").hidden = !source;
}

// The buttons of likely classes, in place; their digits are keys. `classes` is null while they are loaded.
export function showCandidates(candidates) {
  const list = $("candidates");
  list.setAttribute("aria-busy", String(candidates === null));
  if (candidates === null) return list.querySelectorAll("button").forEach((button) => (button.disabled = true));
  while (list.children.length > candidates.length) list.lastChild.remove();
  candidates.forEach(({ label, probability }, i) => {
    if (!list.children[i]) {
      const button = element("button");
      button.type = "button";
      button.append(element("i", "bar"), element("kbd", "", String(i + 1)), element("i", "swatch"), element("span", "name"), element("span", "probability"));
      list.append(button);
    }
    const button = list.children[i];
    const [bar, , dot, name, words] = button.children;
    button.disabled = false;
    button.dataset.label = button.title = label;
    const shown = beginning() ? 0 : probability; // nobody knows yet how far it can be trusted
    bar.style.width = `${100 * shown}%`;
    dot.style.background = color(page.state.classes.indexOf(label));
    name.textContent = label;
    words.textContent = shown >= 0.01 ? percent(1000 * shown) : "";
  });
}

export function showHistory(history) {
  const words = { person: "you", import: "imported", confirmed: "confirmed with others", model: "model" };
  const rows = history.map(({ label, origin, time, undone, mark, person }) => {
    const when = new Date(time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
    const what = label ?? { none: "none of these", skip: "skipped", conflict: "decided differently" }[mark] ?? "label removed";
    const who = mark === "conflict" ? "merged" : !person || person === page.person ? words[origin] : origin === "person" ? person : `${words[origin]}, ${person}`;
    return element("li", undone ? "undone" : "", `${what} · ${who} · ${when}`);
  });
  $("history").replaceChildren(...rows);
}

// What can be downloaded besides the CSV file; where the server does not make it, the command that does.
export function showFormats(formats) {
  const rows = formats.map(({ name, words, here, command }) => {
    const row = element("li");
    const line = element(here ? "a" : "p");
    line.append(element("b", "", name), ` ${words}`);
    row.append(line);
    if (here) Object.assign(line, { href: `/export/${name}`, download: "" });
    else line.append(element("code", "", command));
    return row;
  });
  $("formats").replaceChildren(...rows);
}

// A question with two answers; true for yes. The safe answer has the focus.
let answered = () => {};
export function ask(title, words, { yes, no = "Cancel" }) {
  answered(false); // a question that another one follows
  $("ask-title").textContent = title;
  $("ask-words").textContent = words;
  $("ask-yes-words").textContent = yes;
  $("ask-no").textContent = no;
  $("ask").showModal();
  $("ask-no").focus();
  return new Promise((resolve) => { answered = resolve; });
}

// The answer counts at once: the event "close" comes later, and the next question may be open by then.
export function answer(yes) {
  $("ask").close();
  answered(yes);
}

$("ask").addEventListener("close", () => $("ask").open || answered(false)); // by Escape

let fading;
export function toast(words, milliseconds = 2600) {
  const line = $("toast");
  line.textContent = words;
  line.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => line.classList.remove("shown"), milliseconds);
}

// Asks before a class is made whose name a person would take for another's.
export async function isMeant(name, classes) {
  const other = classes.find((each) => each !== name && plain(each) === plain(name));
  return !other || ask(`A new class “${name}”?`, `There is a class “${other}”. The names differ only by case, spaces or hyphens.`, { yes: "Make a new class" });
}

// A list of classes to choose from by typing; onPick gets the name, perhaps of a new class.
export class Palette {
  constructor(onPick) {
    this.dialog = $("palette");
    this.input = $("palette-input");
    this.list = $("palette-list");
    this.hint = $("palette-hint");
    this.onPick = onPick;
    this.input.addEventListener("input", () => this.fill());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  // Where a new name is expected no class is chosen before something is typed: Enter twice gives no label.
  open(classes, candidates, { naming }) {
    this.classes = classes;
    this.naming = naming;
    this.probabilities = new Map(candidates.map(({ label, probability }) => [label, probability]));
    this.input.value = "";
    this.fill();
    this.dialog.showModal();
    this.input.focus();
  }

  fill() {
    const typed = this.input.value.trim();
    const wanted = plain(typed);
    const rank = (name) => 2 * (plain(name) === wanted) + plain(name).startsWith(wanted) + (this.probabilities.get(name) ?? 0);
    const found = this.classes.filter((name) => typed.split(/\s+/).every((word) => plain(name).includes(plain(word)))).sort((a, b) => rank(b) - rank(a));
    this.choices = found.map((name) => ({ name, fresh: false }));
    if (typed && !this.classes.includes(typed)) this.choices.push({ name: typed, fresh: true });
    this.at = this.naming && !typed ? -1 : 0;
    this.hint.hidden = this.choices.length > 0;
    this.list.replaceChildren(
      ...this.choices.map(({ name, fresh }, i) => {
        const row = element("li");
        row.id = `choice-${i}`;
        row.setAttribute("role", "option");
        const probability = this.probabilities.get(name);
        row.append(swatch(fresh ? this.classes.length : this.classes.indexOf(name)), element("span", "", fresh ? `New class “${name}”` : name));
        if (probability >= 0.01) row.append(element("span", "probability", percent(1000 * probability)));
        row.addEventListener("click", () => this.pick(i));
        return row;
      }),
    );
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((row, i) => row.setAttribute("aria-selected", i === this.at));
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", this.choices[this.at] ? `choice-${this.at}` : "");
  }

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      const n = this.choices.length;
      this.at = (Math.max(this.at, step > 0 ? -1 : 0) + step + n) % Math.max(1, n);
      this.mark();
    } else if (event.key === "Enter") {
      if (!event.repeat) this.pick(this.at);
    } else {
      return;
    }
    event.preventDefault();
  }

  async pick(i) {
    const choice = this.choices[i];
    if (!choice) return;
    this.dialog.close();
    if (choice.fresh && !(await isMeant(choice.name, this.classes))) return;
    this.onPick(choice.name);
  }
}
