// Decisions: shown at once, sent one after the other; the answer has the labels of all images.

import * as api from "./api.js";
import { focus, forget, grid, relayout } from "./display.js";
import { $, ask, batchWords, toast } from "./panels.js";
import { acting, className, count, mark, mine, number, page, skipped } from "./shared.js";

const POLL = 450; // milliseconds between requests for what takes longer: the thorough answer, then the outliers
const WATCH = 3000; // and for decisions in other windows

let queue = Promise.resolve();
let pending = 0;
let polling;
const unsent = []; // decisions that did not arrive: sent again when the server answers
let received; // the last answer, without decisions that were shown but not yet sent

// The next item to look at after some were decided: the first after them that is still open, in the old order.
export function follower(items) {
  const { layout } = page;
  const gone = new Set(items);
  const section = layout.sectionOf(items[0]);
  const start = layout.place.get(items[items.length - 1]) ?? -1;
  const open = (item) => !gone.has(item) && !mine(item) && !skipped(item);
  const after = layout.order.slice(start + 1).find((item) => open(item) && (!["class", "map"].includes(page.view) || layout.sectionOf(item) === section));
  return after ?? section?.items.find(open) ?? layout.order.slice(start + 1).find(open) ?? layout.order.find(open) ?? layout.order[start];
}

const inOrder = (items) => [...items].sort((a, b) => (page.layout.place.get(a) ?? 0) - (page.layout.place.get(b) ?? 0));

// Show a decision at once and send it. `next` is the item in focus afterwards.
function change(items, send, words, apply, next = follower(items)) {
  const offset = grid.offset(items[0]);
  for (const item of items) apply(item);
  page.selected.clear();
  page.changed = new Set();
  page.focused = page.anchor = next;
  relayout({ keep: offset });
  focus(page.focused);
  submit(send, ({ n_changed, missing = [] }) => {
    const others = n_changed ? ` · ${number(n_changed)} ${n_changed === 1 ? "other" : "others"} changed` : "";
    const gone = missing.length ? ` · left out, as the file is missing: ${number(missing.length)}` : "";
    for (const item of missing) page.missing.add(item);
    toast(words + others + gone);
  });
}

const times = (n, words) => (n === 1 ? words : `${number(n)} × ${words}`);

export function labelAs(label, items = acting()) {
  const name = label.trim();
  if (!name || !items.length) return;
  const { state } = page;
  change(inOrder(items), () => api.decide(items, name), times(items.length, name), (item) => {
    if (!state.classes.includes(name)) {
      state.classes.push(name);
      state.colors.push(Math.max(-1, ...state.colors) + 1);
    }
    state.labels[item] = state.classes.indexOf(name);
    state.confidence[item] = 1000;
    state.marks[item] = "1";
  });
}

export function confirm(items, next) {
  const { state } = page;
  const seen = (item) => items.length === 1 || !page.missing.has(item);
  const open = inOrder(items.filter((item) => state.labels[item] >= 0 && mark(item) !== "1" && seen(item)));
  if (!open.length) return;
  // Each with the label that is on the screen: the model may have another when the request arrives.
  const shown = Map.groupBy(open, className);
  change(open, () => api.confirm(Object.fromEntries(shown)), open.length === 1 ? `${className(open[0])} ✓` : `${number(open.length)} confirmed`, (item) => {
    state.confidence[item] = 1000;
    state.marks[item] = open.length === 1 ? "1" : "3";
  }, next);
}

// Confirm what is sure in a section; what is not, after a question. The view stays where it is; true if all of the section is confirmed after a question.
export async function confirmSection(section, all = false) {
  const { sure, open } = section;
  const chosen = all || !sure.length ? open : sure;
  const doubtful = chosen.length - sure.length;
  if (doubtful) {
    // Confidences are rounded down: the mean is half a step more.
    const { confidence, step } = page.state;
    const wrong = Math.round(chosen.reduce((sum, item) => sum + Math.max(0, 1000 - step / 2 - confidence[item]), 0) / 1000);
    const several = chosen.length > 1;
    const which = several ? `all ${number(chosen.length)}` : "it";
    const who = several ? `${number(doubtful)} of these ${count(chosen.length, "image")} ${doubtful === 1 ? "is" : "are"}` : "This label is";
    const words = `${who} doubtful, or may be none of the classes` + (wrong && several ? `; about ${number(wrong)} of the labels may be wrong.` : ".");
    if (!(await ask(`Confirm ${which} as “${section.title}”?`, words, { yes: `Confirm ${which}`, no: several ? "Look at them first" : "Look at it first" }))) return false;
  }
  const done = new Set(chosen);
  const left = section.open.find((item) => !done.has(item));
  confirm(chosen, left ?? section.items[0]);
  return doubtful > 0;
}

export function removeLabels() {
  const items = inOrder(acting().filter((item) => mine(item) || skipped(item)));
  if (!items.length) return;
  change(items, () => api.decide(items, null), items.length === 1 ? "Label removed" : `${number(items.length)} labels removed`, (item) => {
    page.state.confidence[item] = 0;
    page.state.marks[item] = "0";
  });
}

// Say of images that they belong to none of the classes ("none"), or that one cannot tell ("skip").
export function setMark(kind) {
  const items = inOrder(acting());
  if (!items.length) return;
  change(items, () => api.decide(items, null, kind), times(items.length, kind === "none" ? "none of these" : "skipped"), (item) => {
    if (kind === "none") page.state.labels[item] = -1;
    page.state.marks[item] = kind === "none" ? "4" : "5";
  });
}

export function relabel(old, name) {
  forget({ all: true });
  submit(() => api.relabel(old, name), () => toast(name === null ? `“${old}” removed` : `“${old}” is “${name}” now`));
}

export const undo = () => reverse(api.undo, "undo", "Undone");
export const redo = () => reverse(api.redo, "redo", "Done again");

// The page tells which decision it means: another window may have decided since.
function reverse(send, which, said) {
  submit(async () => {
    const batch = received[which];
    return { ...(batch ? await send(batch.number) : { ...received, n_undone: 0 }), batch };
  }, ({ n_undone, undone, batch }) => {
    if (!batch) return toast(`Nothing to ${which}`);
    if (!n_undone) return toast("Something else was decided in another window. Look again.");
    toast(`${said}: ${batchWords(batch)}`);
    if (page.layout.place.has(undone)) focus(undone);
  });
}

function submit(send, then) {
  pending++;
  $("grid").setAttribute("aria-busy", "true"); // labels may still change
  queue = queue.then(async () => {
    const answer = await attempt(send, then);
    pending--;
    if (!answer) return;
    received = api.keep(answer);
    if (pending === 0) receive(answer);
    then(answer);
  }).catch((error) => trouble(error.message)); // or no later decision would be sent
}

// The answer; nothing if it was refused or did not arrive: the page then shows the last answer again.
async function attempt(send, then) {
  try {
    const answer = await send();
    trouble("");
    return answer;
  } catch (error) {
    if (error instanceof api.Refused) toast(error.message);
    else {
      unsent.push([send, then]);
      trouble(error.message);
    }
    setState(received);
    relayout();
    watch();
  }
}

export function setState(answer) {
  received = api.keep(answer);
  page.state = { ...answer, classes: [...answer.classes], colors: [...answer.colors], labels: [...answer.labels], confidence: [...answer.confidence], marks: [...answer.marks] };
  page.state.outliers = new Map(answer.outliers); // item: thousandths
  page.state.conflicts = new Map(answer.conflicts); // item: opinions by person
  page.state.above = new Map(answer.above.map(([item, label, sure]) => [item, { label, sure }])); // of doubtful sub-classes: the class that is sure
  $("grid").setAttribute("aria-busy", String(!answer.settled));
}

function receive(answer) {
  const seen = page.focused === null ? "" : className(page.focused);
  setState(answer);
  page.changed = new Set(answer.changed ?? []);
  forget();
  if (page.focused !== null && className(page.focused) !== seen) page.newLabel = performance.now();
  relayout();
  watch();
}

export function watch() {
  clearTimeout(polling);
  polling = setTimeout(poll, page.state.more ? 0 : page.state.searched ? WATCH : POLL);
}

async function poll() {
  if (pending) return; // the answer to a decision goes on watching
  try {
    const before = received;
    const answer = await api.getState();
    trouble("");
    if (unsent.length) return sendAgain();
    if (answer && !pending && received === before) return receive({ ...answer, changed: [] });
  } catch (error) {
    trouble(error.message);
  }
  watch();
}

async function sendAgain() {
  const { key } = await api.getProject();
  const waiting = unsent.splice(0);
  if (key !== page.project.key) return api.startAgain(waiting.length);
  for (const [send, then] of waiting) submit(send, then);
}

// The browser asks before a page goes away that has decisions to send.
addEventListener("beforeunload", (event) => unsent.length && event.preventDefault());

export function trouble(words) {
  const waiting = unsent.length ? ` ${number(unsent.length)} ${unsent.length === 1 ? "decision is" : "decisions are"} not saved yet and will be sent then.` : " All your decisions are saved.";
  $("trouble").textContent = words && words + waiting;
  $("trouble").hidden = !words;
  document.body.style.setProperty("--below", `${Math.ceil($("trouble").getBoundingClientRect().height)}px`); // it covers nothing
}
