// Requests to the server. Changes carry its token; pictures are requested by number only.

const token = document.querySelector('meta[name="fewlabels-token"]').content;

export class Refused extends Error {}
class Unreachable extends Error {}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Unreachable("The server does not answer. Start it again: this page then goes on.");
  }
  if (answer.status === 204) return null;
  if (answer.status === 403 || answer.status === 421) throw new Unreachable("This is another server than before: open the link that it printed.");
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(content.error || `The server refused (${answer.status}).`);
  return content;
}

const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Fewlabels-Token": token }, body: JSON.stringify(body) });

export const getProject = () => ask("/api/project");
export const getState = (since) => ask(`/api/state?since=${since}`);
export const about = (items) => post("/api/about", { items });
export const similar = (item) => ask(`/api/similar/${item}`);
export const decide = (items, label, mark = null) => post("/api/decide", { items, label, mark });
export const confirm = (items, labels) => post("/api/confirm", { items, labels });
export const relabel = (old, name) => post("/api/relabel", { old, new: name });
export const undo = (batch) => post("/api/undo", { batch });
export const redo = (batch) => post("/api/redo", { batch });
