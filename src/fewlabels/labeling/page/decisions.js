// Decisions: shown at once, sent one after the other; the answer has the labels of all images.

import * as api from "./api.js";
import { focus, grid, relayout } from "./display.js";
import { $, toast } from "./panels.js";
import { acting, className, mine, page } from "./shared.js";

const POLL = 450; // milliseconds between requests for what takes longer: the thorough answer, then the outliers

let queue = Promise.resolve();
let pending = 0;
let polling;
let received; // the last answer, without decisions that were shown but not yet sent

// The next item to look at after some were decided: the first after them that is still open, in the old order.
function follower(items) {
  const { layout } = page;
  const gone = new Set(items);
  const section = layout.sectionOf(items[0]);
  const start = layout.place.get(items[items.length - 1]);
  const open = (item) => !gone.has(item) && !mine(item);
  const after = layout.order.slice(start + 1).find((item) => open(item) && (page.view !== "class" || layout.sectionOf(item) === section));
  return after ?? section?.items.find(open) ?? layout.order.slice(start + 1).find(open) ?? layout.order[start];
}

function change(items, send, words, apply) {
  const { layout } = page;
  const inOrder = [...items].sort((a, b) => (layout.place.get(a) ?? 0) - (layout.place.get(b) ?? 0));
  const offset = grid.offset(inOrder[0]);
  const next = follower(inOrder);
  for (const item of inOrder) apply(item);
  page.selected.clear();
  page.changed = new Set();
  page.focused = page.anchor = next;
  relayout({ keep: offset });
  grid.reveal(next);
  $("grid").setAttribute("aria-activedescendant", `tile-${next}`);
  submit(send, (answer) => toast(words + (answer.changed.length ? ` · ${answer.changed.length} ${answer.changed.length === 1 ? "other" : "others"} changed` : "")));
}

export function labelAs(label, items = acting()) {
  const name = label.trim();
  if (!name || !items.length) return;
  const { state } = page;
  change(items, () => api.decide(items, name), `${items.length === 1 ? "" : `${items.length} × `}${name}`, (item) => {
    if (!state.classes.includes(name)) state.classes.push(name);
    state.labels[item] = state.classes.indexOf(name);
    state.confidence[item] = 1000;
    state.marks[item] = "1";
  });
}

export function confirm(items) {
  const { state } = page;
  const open = items.filter((item) => state.labels[item] >= 0 && state.marks[item] !== "1");
  if (!open.length) return;
  // Each with the label that is on the screen: the model may have another when the request arrives.
  const labels = open.map(className);
  change(open, () => api.confirm(open, labels), open.length === 1 ? `${className(open[0])} ✓` : `${open.length} confirmed`, (item) => {
    state.confidence[item] = 1000;
    state.marks[item] = "1";
  });
}

export function removeLabels() {
  const items = acting().filter(mine);
  if (!items.length) return;
  change(items, () => api.decide(items, null), items.length === 1 ? "Label removed" : `${items.length} labels removed`, (item) => {
    page.state.confidence[item] = 0;
    page.state.marks[item] = "0";
  });
}

export function undo() {
  submit(api.undo, (answer) => {
    if (!answer.undone.length) return toast("Nothing to undo");
    toast(`Undone: ${answer.undone.length === 1 ? page.project.names[answer.undone[0]] : `${answer.undone.length} images`}`);
    if (page.layout.place.has(answer.undone[0])) focus(answer.undone[0]);
  });
}

function submit(send, then) {
  pending++;
  $("grid").setAttribute("aria-busy", "true"); // labels may still change
  queue = queue.then(async () => {
    const answer = await attempt(send);
    pending--;
    if (!answer) return;
    received = answer;
    if (pending === 0) receive(answer);
    then(answer);
  }).catch((error) => trouble(error.message)); // or no later decision would be sent
}

// The answer; nothing if it was refused or did not arrive: the page then shows the last answer again.
async function attempt(send) {
  try {
    const answer = await send();
    trouble("");
    return answer;
  } catch (error) {
    if (error instanceof api.Refused) toast(error.message);
    else trouble(error.message);
    setState(received);
    relayout();
  }
}

export function setState(answer) {
  received = answer;
  page.state = { ...answer, classes: [...answer.classes], labels: [...answer.labels], confidence: [...answer.confidence], marks: [...answer.marks] };
  page.state.outliers = new Map(answer.outliers); // item: thousandths
  $("grid").setAttribute("aria-busy", String(!answer.settled));
}

function receive(answer) {
  if (!answer) return;
  setState(answer);
  page.changed = new Set(answer.changed);
  relayout();
  clearTimeout(polling);
  if (!answer.searched) polling = setTimeout(poll, POLL);
}

export async function poll() {
  clearTimeout(polling);
  if (pending) return;
  try {
    const answer = await api.getState(page.state.version);
    if (answer && !pending) receive({ ...answer, changed: [] });
    else polling = setTimeout(poll, POLL);
  } catch (error) {
    trouble(error.message);
    polling = setTimeout(poll, 4 * POLL);
  }
}

export function trouble(words) {
  $("trouble").textContent = words;
  $("trouble").hidden = !words;
}
