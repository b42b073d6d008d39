// What is shown around the pictures: classes, progress, the selected picture, the palette.

import { element } from "./grid.js";
import { count } from "./shared.js";

export const $ = (id) => document.getElementById(id);

const GOLDEN = 0.61803398875; // as in the report: the same class has the same colour there

export function color(number) {
  const hue = (0.604 + number * GOLDEN) % 1;
  const [lightness, saturation] = [[59.5, 70], [54, 54], [66, 62]][number % 3];
  return `hsl(${(hue * 360).toFixed(1)} ${saturation}% ${lightness}%)`;
}

export function swatch(number) {
  const made = element("i", "swatch");
  made.style.background = number < 0 ? "var(--line)" : color(number);
  return made;
}

export const percent = (permille) => `${Math.round(permille / 10)} %`;

export function showProgress(tally, total, estimate, advice, amongOutliers) {
  for (const key of ["yours", "sure", "doubtful"]) {
    $(`n-${key}`).textContent = tally[key].toLocaleString("en");
    $("track").querySelector(`.${key}`).style.width = `${(100 * tally[key]) / Math.max(1, total)}%`;
  }
  const [accuracy, low, high] = estimate ? [estimate.accuracy, estimate.low, estimate.high].map((part) => Math.round(100 * part)) : [];
  const wide = element("span", "wide", `≈ ${accuracy} % `);
  wide.append(element("span", "about", amongOutliers ? "of the named classes " : ""), `right (${low}–${high} %)`);
  $("estimate").replaceChildren(...(estimate ? [wide, element("span", "narrow", `${low}–${high} % right`)] : []));
  $("estimate").title = estimate
    ? `${estimate.n_right} of ${estimate.n_hidden} labels were predicted right when each was hidden once. ` +
      "They are weighted to be like the other images. After many suggested labels, the estimate is rather too low." +
      (amongOutliers ? " It says nothing about images that are none of these." : "")
    : "";
  $("advice").textContent = advice;
}

export function showClasses(classes, counts, { current, onPick }) {
  const rows = classes.map((name, number) => {
    const row = element("li");
    const button = element("button");
    button.type = "button";
    button.title = `${name}: ${count(counts[number].all, "image")}, ${counts[number].doubtful} doubtful`;
    if (number === current) button.setAttribute("aria-current", "true");
    button.append(swatch(number), element("span", "name", name));
    if (counts[number].doubtful) button.append(element("span", "n some", String(counts[number].doubtful)));
    button.append(element("span", "n", String(counts[number].all)));
    if (number < 9) button.append(element("kbd", "", String(number + 1)));
    button.addEventListener("click", () => onPick(number));
    row.append(button);
    return row;
  });
  $("classes").replaceChildren(...rows);
}

export function showOutliers(n, current) {
  const button = $("outliers");
  button.hidden = n === 0 && !current;
  button.ariaLabel = `None of these? ${count(n, "image")}`;
  button.title = `${count(n, "image")} that probably ${n === 1 ? "belongs" : "belong"} to none of the classes (V)`;
  if (current) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
  $("n-outliers").textContent = n.toLocaleString("en");
}

export function showInspector({ item, name, picture, selected, note, label, mine, labelled, confirmable }) {
  $("inspector").hidden = item === null;
  if (item === null) return;
  const image = $("picture");
  if (picture && image.dataset.item !== String(item)) {
    image.dataset.item = item;
    image.src = picture;
  }
  $("picture-button").hidden = !picture;
  $("item-name").textContent = selected > 1 ? `${selected.toLocaleString("en")} images selected` : name;
  $("item-note").textContent = note;
  $("confirm").disabled = labelled && !confirmable;
  $("other").hidden = !labelled;
  const words = !labelled ? "Name the class…" : selected > 1 ? "✓ Confirm their labels" : `✓ ${label}`;
  $("confirm").replaceChildren(element("span", "label", words), element("kbd", "", labelled ? "Enter" : "L"));
  $("confirm").title = label;
  $("remove").disabled = !mine;
}

export function showCandidates(candidates, classes, onPick) {
  const rows = candidates.map(({ label, probability }) => {
    const button = element("button");
    button.type = "button";
    const bar = element("i", "bar");
    bar.style.width = `${Math.max(1, 100 * probability)}%`;
    const dot = element("span");
    dot.append(swatch(classes.indexOf(label)));
    button.append(bar, dot, element("span", "name", label), element("span", "probability", probability >= 0.005 ? percent(1000 * probability) : ""));
    button.addEventListener("click", () => onPick(label));
    return button;
  });
  $("candidates").replaceChildren(...rows);
}

export function showHistory(history) {
  const words = { person: "you", import: "imported", model: "model" };
  const rows = history.map(({ label, origin, time, undone }) => {
    const when = new Date(time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
    return element("li", undone ? "undone" : "", `${label ?? "label removed"} · ${words[origin]} · ${when}`);
  });
  $("history").replaceChildren(...rows);
}

let fading;
export function toast(words) {
  const line = $("toast");
  line.textContent = words;
  line.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => line.classList.remove("shown"), 2600);
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

  open(classes, candidates) {
    this.classes = classes;
    this.probabilities = new Map(candidates.map(({ label, probability }) => [label, probability]));
    this.input.value = "";
    this.fill();
    this.dialog.showModal();
    this.input.focus();
  }

  fill() {
    const typed = this.input.value.trim();
    const wanted = typed.toLowerCase();
    const found = this.classes
      .filter((name) => name.toLowerCase().includes(wanted))
      .sort((a, b) => b.toLowerCase().startsWith(wanted) - a.toLowerCase().startsWith(wanted) || (this.probabilities.get(b) ?? 0) - (this.probabilities.get(a) ?? 0));
    this.choices = found.map((name) => ({ name, fresh: false }));
    if (typed && !this.classes.includes(typed)) this.choices.push({ name: typed, fresh: true });
    this.at = 0;
    this.hint.hidden = this.choices.length > 0;
    this.list.replaceChildren(
      ...this.choices.map(({ name, fresh }, i) => {
        const row = element("li");
        row.id = `choice-${i}`;
        row.setAttribute("role", "option");
        const probability = this.probabilities.get(name);
        row.append(swatch(fresh ? this.classes.length : this.classes.indexOf(name)), element("span", "", fresh ? `New class “${name}”` : name));
        if (probability >= 0.005) row.append(element("span", "probability", percent(1000 * probability)));
        row.addEventListener("click", () => this.pick(i));
        return row;
      }),
    );
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((row, i) => row.setAttribute("aria-selected", i === this.at));
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", this.choices.length ? `choice-${this.at}` : "");
  }

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.at = (this.at + step + this.choices.length) % Math.max(1, this.choices.length);
      this.mark();
    } else if (event.key === "Enter") {
      this.pick(this.at);
    } else {
      return;
    }
    event.preventDefault();
  }

  pick(i) {
    const choice = this.choices[i];
    if (!choice) return;
    this.dialog.close();
    this.onPick(choice.name);
  }
}
