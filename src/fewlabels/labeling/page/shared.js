// Shared by all parts of the page: the project, the last state, and what is focused and selected.

export const page = {
  project: null, // title, names, key, pictures, texts, sounds, noun, searchable, burst_seconds
  state: null, // labels, confidence, marks ... of all items, replaced by every answer
  layout: null,
  view: "class",
  filter: "",
  focused: null, // the item that keys act on
  anchor: null, // where a range of selection begins
  selected: new Set(),
  byName: false, // images in the order of their names; otherwise the least certain first
  several: false, // taps add to the selection
  changed: new Set(), // whose labels the last answer changed
  kinds: [], // images to name first, in the order in which they were suggested
  like: null, // { item or words, similar: Map(item: similarity), burst: whether it is one } of the view "like"
  places: null, // { across, down } of all items on the map, from 0 to 1
  lasso: null, // Set of the items that the map is narrowed to
  missing: new Set(), // items whose file could not be shown
  person: "", // who decides here
};

// "begin" is a view until accuracy can be estimated; "outliers" and "like" only if there is something to show.
export const views = () => [
  ...(beginning() ? ["begin"] : []),
  "class",
  "check",
  "yours",
  ...(outliers().length ? ["outliers"] : []),
];

export const mark = (item) => page.state.marks[item];
export const mine = (item) => "1234".includes(mark(item)); // a person or a file gave the label, or said that there is none
export const none = (item) => mark(item) === "4";
export const skipped = (item) => mark(item) === "5";
export const contested = (item) => mark(item) === "6"; // people decided differently: each needs a decision of its own
// While too few labels can be hidden to estimate the accuracy, nothing is called sure.
export const beginning = () => page.state.doubtful_below > 1000;
export const doubtful = (item) =>
  !mine(item) && page.state.labels[item] >= 0 && (beginning() || page.state.confidence[item] < page.state.doubtful_below);
// Of the labels that nobody gave, how many per cent are wrong by the estimate; 0 without one.
export const percentWrong = () => Math.round(100 * (1 - (page.state.estimate?.accuracy ?? 1)));
// Images that probably belong to no class, the most probable first.
export const outliers = () => [...page.state.outliers.keys()].filter((item) => !mine(item) && !skipped(item));
export const className = (item) => (page.state.labels[item] < 0 ? "" : page.state.classes[page.state.labels[item]]);
// The levels of a class: "animal/dog" is a dog, and an animal; one level without a separator.
export const levels = (name) => {
  const { separator } = page.project;
  const found = separator ? name.split(separator).map((part) => part.trim()).filter(Boolean) : [];
  return found.length ? found : [name];
};
export const lastLevel = (name) => levels(name).at(-1);
export const picture = (item) => (page.project.pictures ? `/thumbnail/${item}?v=${page.project.key}` : "");
export const largePicture = (item, full = false) => `/picture/${item}?v=${page.project.key}${full ? "&full=true" : ""}`;

// The items that a decision is about.
export const acting = () => (page.selected.size ? [...page.selected] : page.focused === null ? [] : [page.focused]);

export const number = (n) => n.toLocaleString("en");
// Items are called what they are: images, or texts.
export const noun = () => page.project?.noun ?? "image";
export const anItem = () => (noun() === "image" ? "an image" : `a ${noun()}`);
export const count = (n, word) => `${number(n)} ${word === "image" ? noun() : word}${n === 1 ? "" : "s"}`;
// Names that differ only by case, spaces, hyphens and the like are the same to a person.
export const plain = (name) => name.normalize("NFKC").toLowerCase().replace(/[\s\-_.]+/g, "");
