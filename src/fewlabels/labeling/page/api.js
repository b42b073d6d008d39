// Requests to the server. Changes carry its token; pictures are requested by number only.

const token = document.querySelector('meta[name="fewlabels-token"]').content;

export class Refused extends Error {}
class Unreachable extends Error {}

// nDecisions: how many decisions are lost if the request is refused because the images are others.
async function ask(path, options = {}, nDecisions = 0) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Unreachable("The server does not answer. Start it again: this page then goes on.");
  }
  if (answer.status === 204) return null;
  if (answer.status === 403 || answer.status === 421) throw new Unreachable("This is another server than before: open the link that it printed.");
  if (answer.status === 409) startAgain(nDecisions);
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(content.error || `The server refused (${answer.status}).`);
  return content;
}

// Other images than before: numbers mean others now, and nothing was recorded. The page that comes says so.
const LOST = "fewlabels-lost"; // decisions, until they are told
export function startAgain(nDecisions) {
  sessionStorage.setItem(LOST, nDecisions + Number(sessionStorage.getItem(LOST) ?? 0));
  location.reload();
}
export function tellLost() {
  const n = sessionStorage.getItem(LOST);
  sessionStorage.removeItem(LOST);
  if (n === null) return "";
  return "The images of the project changed." + (n === "0" ? "" : ` ${n === "1" ? "One decision was" : `${n} decisions were`} not saved: decide again.`);
}

let who = {}; // the header that says who decides, where this browser has a name
export const setPerson = (name) => (who = name ? { "X-Fewlabels-Person": encodeURIComponent(name) } : {});

const post = (path, body, nDecisions = 0) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Fewlabels-Token": token, ...who }, body: JSON.stringify(body) }, nDecisions);

// ---- states: the server tells what differs from the last state that this page has

const UNCHANGED = "#".charCodeAt(0); // a character per item: no change, the first value, the next, ...

let known; // whole
export const keep = (state) => (known = state);

// `since` is the state that the request named: the page may have another one by now.
function complete(answer, since) {
  if (answer?.since === undefined) return answer; // nothing new, or all of it
  const place = since.classes.map((name) => answer.classes.indexOf(name));
  const labels = since.labels.map((way) => (way < 0 ? way : place[way]));
  const confidence = [...since.confidence];
  const marks = [...since.marks];
  const outliers = new Map(since.outliers);
  const above = new Map(since.above.filter(([, label]) => answer.groups.includes(label)).map(([item, ...about]) => [item, about]));
  const changed = []; // labels of items that nobody decided, if the decision changed some
  patch(answer.marks, (item, code) => (marks[item] = String(code)));
  patch(answer.labels, (item, code) => {
    labels[item] = code - 1;
    if (answer.n_changed && since.marks[item] === "0" && marks[item] === "0") changed.push(item);
  });
  patch(answer.confidence, (item, code) => (confidence[item] = answer.step * code));
  patch(answer.outliers, (item, code) => (code ? outliers.set(item, answer.outlier_step * code) : outliers.delete(item)));
  patch(answer.above, (item, code) => (code ? above.set(item, [answer.groups[code - 1], above.get(item)?.[1]]) : above.delete(item)));
  patch(answer.above_sure, (item, code) => code && (above.get(item)[1] = answer.step * code));
  return {
    ...answer,
    labels,
    confidence,
    marks,
    changed,
    outliers: [...outliers].sort(([a, p], [b, q]) => q - p || a - b),
    above: [...above].map(([item, about]) => [item, ...about]),
  };
}

function patch(text, change) {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i) - UNCHANGED;
    if (code) change(i, code - 1);
  }
}

async function change(path, body) {
  const since = known;
  return complete(await post(`${path}?since=${since.version}&key=${key}`, body, 1), since);
}

let key; // of the images that this page shows
export async function getProject() {
  const project = await ask("/api/project");
  key ??= project.key;
  return project;
}
export async function getState() {
  const since = known;
  return complete(await ask(`/api/state?since=${since.version}&key=${key}`), since);
}
export const about = (items) => post(`/api/about?key=${key}`, { items });
export const search = (words) => ask(`/api/search?words=${encodeURIComponent(words)}&key=${key}`);
export const text = (item) => ask(`/api/text/${item}?key=${key}`);
export const places = () => ask("/api/map");
export const similar = (item) => ask(`/api/similar/${item}?key=${key}`);
export const burst = (item) => ask(`/api/burst/${item}?key=${key}`);
export const decide = (items, label, mark = null) => change("/api/decide", { items, label, mark });
export const confirm = (shown) => change("/api/confirm", { shown }); // items by label
export const exports = () => ask("/api/exports");
export const relabel = (old, name) => change("/api/relabel", { old, new: name });
export const undo = (batch) => change("/api/undo", { batch });
export const redo = (batch) => change("/api/redo", { batch });
