// Shared by all parts of the page: the project, the last state, and what is focused and selected.

export const page = {
  project: null, // title, names, key, pictures
  state: null, // labels, confidence, marks ... of all items, replaced by every answer
  layout: null,
  view: "class",
  filter: "",
  focused: null, // the item that keys act on
  anchor: null, // where a range of selection begins
  selected: new Set(),
  several: false, // taps add to the selection
  changed: new Set(), // whose labels the last answer changed
};

// "outliers" is a view only if there are some.
export const views = () => ["class", "check", "yours", ...(outliers().length ? ["outliers"] : [])];

export const mine = (item) => page.state.marks[item] !== "0";
export const doubtful = (item) => !mine(item) && page.state.labels[item] >= 0 && page.state.confidence[item] < page.state.doubtful_below;
// Images that probably belong to no class, the most probable first.
export const outliers = () => [...page.state.outliers.keys()].filter((item) => !mine(item));
export const className = (item) => (page.state.labels[item] < 0 ? "" : page.state.classes[page.state.labels[item]]);
export const picture = (item) => (page.project.pictures ? `/thumbnail/${item}?v=${page.project.key}` : "");
export const largePicture = (item) => `/picture/${item}?v=${page.project.key}`;

// The items that a decision is about.
export const acting = () => (page.selected.size ? [...page.selected] : page.focused === null ? [] : [page.focused]);

export const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
