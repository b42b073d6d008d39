// The map: a point for every image, similar ones together. A lasso narrows the page to some; keys go from point to point.

import * as api from "./api.js";
import { focus, relayout } from "./display.js";
import { $, color, percent } from "./panels.js";
import { matches } from "./sections.js";
import { beginning, className, count, doubtful, mine, none, page, picture } from "./shared.js";

const EDGE = { left: 40, right: 60, top: 34, bottom: 56 }; // pixels around all points: the buttons and the legend are there
const LEAST = 5; // pixels of a lasso; less is a click
const REACH = 16; // pixels from a point within which it is meant
const FARTHEST = 80; // largest zoom
const WHEEL = 0.0016; // zoom by a pixel of the wheel, as an exponent
const STEP = 1.5; // and by a click
const N_PICTURES = 60; // points in sight up to which their pictures are shown
const SIDE = 46; // of these pictures
const MOST_NAMES = 60; // classes up to which names are written on the map
const DIM = 0.14;

const canvas = $("map-canvas");
const paint = canvas.getContext("2d");
const pictures = new Map(); // by item
const pointers = new Map(); // of fingers and the mouse that are down: { x, y }
let view = { zoom: 1, x: 0.5, y: 0.5 }; // the middle of the map, in places
let path = null; // of the lasso, in pixels
let panning = false;
let waiting = false;

const shown = () => page.view === "map" && page.places;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let size = { width: 1, height: 1, scale: 1, stretch: 1, x: 0, y: 0 }; // of the window; x, y is the middle of the map in it
const scale = () => view.zoom * size.scale;
const across = (item) => size.x + (page.places.across[item] - view.x) * view.zoom * size.scale * size.stretch;
const down = (item) => size.y + (page.places.down[item] - view.y) * view.zoom * size.scale;
function measure() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [wide, high] = [Math.max(50, width - EDGE.left - EDGE.right), Math.max(50, height - EDGE.top - EDGE.bottom)];
  const stretch = Math.max(1, Math.min(1.8, wide / high)); // as wide as the window, not a square
  size = { width, height, stretch, scale: Math.min(wide, high), x: EDGE.left + wide / 2, y: EDGE.top + high / 2 };
}
const there = (item) => matches(item) && (!page.lasso || page.lasso.has(item));
const items = () => page.project.names.map((_, item) => item);

export async function openMap() {
  if (page.places) return;
  $("map").setAttribute("aria-busy", "true");
  drawMap();
  const { across: x, down: y, side } = await api.places();
  page.places = { across: x.map((each) => each / side), down: y.map((each) => each / side) };
  $("map").setAttribute("aria-busy", "false");
  drawMap();
}

// ---- moving the view

export function fitMap() {
  view = { zoom: 1, x: 0.5, y: 0.5 };
  drawMap();
}

// By a key: around the image in focus, if it is in sight.
export function zoomMap(steps) {
  if (!shown()) return;
  const [x, y] = page.focused === null ? [-1, -1] : [across(page.focused), down(page.focused)];
  zoomAround(...(inSight(x, y) ? [x, y] : [size.x, size.y]), STEP ** steps);
}

const inSight = (x, y) => x >= 0 && y >= 0 && x <= size.width && y <= size.height;

function zoomAround(x, y, factor) {
  const zoom = Math.min(FARTHEST, Math.max(1, view.zoom * factor));
  const part = (1 - view.zoom / zoom) / scale();
  view = { zoom, x: view.x + ((x - size.x) * part) / size.stretch, y: view.y + (y - size.y) * part };
  limit();
}

function pan(right, below) {
  view = { ...view, x: view.x - right / scale() / size.stretch, y: view.y - below / scale() };
  limit();
}

// Some of the map stays in sight.
function limit() {
  const between = (each) => Math.min(1, Math.max(0, each));
  view = view.zoom === 1 ? { zoom: 1, x: 0.5, y: 0.5 } : { ...view, x: between(view.x), y: between(view.y) };
  drawMap();
}

export function revealOnMap(item) {
  if (!shown()) return;
  if (!inSight(across(item), down(item))) view = { ...view, x: page.places.across[item], y: page.places.down[item] };
  $("map-said").textContent = describe(item);
}

const describe = (item) => {
  const label = none(item) ? "none of these" : className(item) || "no label";
  return [page.project.names[item], label, mine(item) ? "labelled" : !className(item) || beginning() ? "" : `${percent(page.state.confidence[item])} sure`].filter(Boolean).join(", ");
};

// ---- which image

function nearest(x, y) {
  let [best, closest] = [null, REACH ** 2];
  for (const item of items()) {
    const square = (across(item) - x) ** 2 + (down(item) - y) ** 2;
    if (square < closest && there(item)) [best, closest] = [item, square];
  }
  return best;
}

// The nearest point in the direction of an arrow key: within 45 degrees, those straight ahead first.
const AHEAD = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
export function stepOnMap(key) {
  if (!AHEAD[key] || !shown() || page.focused === null) return page.layout.step(page.focused, key);
  const [dx, dy] = AHEAD[key];
  let [best, least] = [page.focused, Infinity];
  for (const item of items()) {
    const [x, y] = [across(item) - across(page.focused), down(item) - down(page.focused)];
    const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
    const cost = ahead + 2 * aside;
    if (ahead > 0.5 && aside <= ahead && cost < least && there(item)) [best, least] = [item, cost];
  }
  return best;
}

// Narrow the map and the pictures to some images; null shows all again.
export function setLasso(found, { select = true } = {}) {
  page.lasso = found?.length ? new Set(found) : null;
  page.selected = new Set(select ? page.lasso : []);
  relayout();
  if (page.lasso && !page.lasso.has(page.focused)) page.focused = null;
  page.focused ??= page.layout.order[0] ?? null;
  page.anchor = page.focused;
  $("grid").scrollTop = 0;
  relayout();
  if (select && page.lasso) $("map-said").textContent = `${count(page.lasso.size, "image")} selected`;
}

function inside(polygon) {
  const within = (x, y) => {
    let odd = false;
    for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
      const [a, b] = [polygon[i], polygon[j]];
      if (a.y > y !== b.y > y && x < ((b.x - a.x) * (y - a.y)) / (b.y - a.y) + a.x) odd = !odd;
    }
    return odd;
  };
  return items().filter((item) => within(across(item), down(item)) && matches(item));
}

// ---- drawing

export function drawMap() {
  if (waiting || page.view !== "map") return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (page.view === "map") draw();
  });
}

function draw() {
  measure();
  const { width, height } = size;
  const dense = devicePixelRatio;
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) Object.assign(canvas, { width: Math.round(width * dense), height: Math.round(height * dense) });
  paint.setTransform(dense, 0, 0, dense, 0, 0);
  paint.clearRect(0, 0, width, height);
  if (!page.places) return write("The map is being made …", width / 2, height / 2, css("--soft"));
  const radius = Math.max(2, Math.min(5.5, (0.2 * size.scale) / Math.sqrt(page.project.names.length))) * Math.min(2, view.zoom ** 0.3);
  const layers = [[], [], [], []]; // those outside the lasso below, labelled and doubtful ones above
  for (const item of items()) {
    const [x, y] = [across(item), down(item)];
    if (x > -SIDE && y > -SIDE && x < width + SIDE && y < height + SIDE) layers[2 * there(item) + (mine(item) || doubtful(item))].push({ item, x, y });
  }
  const points = layers.flat();
  const near = page.project.pictures && view.zoom > 1 && points.length <= N_PICTURES;
  const point = painter(radius, dense);
  for (const { item, x, y } of points) {
    paint.globalAlpha = there(item) ? 1 : DIM;
    if (near) drawPicture(item, x, y);
    else point(item, x, y);
  }
  paint.globalAlpha = 1;
  if (!near && page.state.classes.length <= MOST_NAMES) writeNames(width, height);
  for (const { item, x, y } of points) if (!page.lasso && page.selected.has(item) && item !== page.focused && !near) ring(x, y, radius + 2, 2);
  const focused = points.find(({ item }) => item === page.focused);
  if (focused && near) drawPicture(focused.item, focused.x, focused.y); // above the others
  if (focused && !near) for (const [more, ink, thick] of [[4.5, css("--card"), 5], [4.5, css("--ring"), 3]]) ring(focused.x, focused.y, radius + more, thick, ink);
  if (path) drawPath();
}

// Points are drawn once per class and kind, and then copied: fast enough for 30,000.
function painter(radius, dense) {
  const [ink, amber, pale, paper] = ["--ink", "--doubt", "--soft", "--paper"].map(css);
  const stamps = new Map();
  const half = radius + 3;
  const make = (fill, edge) => {
    const stamp = new OffscreenCanvas(Math.ceil(2 * half * dense), Math.ceil(2 * half * dense));
    const brush = stamp.getContext("2d");
    brush.scale(dense, dense);
    for (const [color, size] of [[paper, radius + (edge ? 2.8 : 0.9)], ...(edge ? [[edge, radius + 2]] : []), [fill, radius - (edge === amber ? 0.9 : 0)]]) {
      brush.fillStyle = color;
      brush.beginPath();
      brush.arc(half, half, Math.max(0.8, size), 0, 7);
      brush.fill();
    }
    return stamp;
  };
  return (item, x, y) => {
    const way = page.state.labels[item];
    const kind = mine(item) ? ink : doubtful(item) && !beginning() ? amber : "";
    const key = `${way} ${kind}`;
    if (!stamps.has(key)) stamps.set(key, make(way < 0 ? pale : color(way), kind));
    paint.drawImage(stamps.get(key), x - half, y - half, 2 * half, 2 * half);
  };
}

function drawPicture(item, x, y) {
  if (!pictures.has(item)) {
    const image = new Image();
    image.onload = drawMap;
    image.src = picture(item);
    pictures.set(item, image);
  }
  const image = pictures.get(item);
  const [edge, thick] = item === page.focused || page.selected.has(item) ? [css("--ring"), 4] : [mine(item) ? css("--ink") : doubtful(item) ? css("--doubt") : color(page.state.labels[item]), 2.5];
  paint.save();
  paint.beginPath();
  paint.roundRect(x - SIDE / 2, y - SIDE / 2, SIDE, SIDE, 6);
  paint.fillStyle = css("--sunk");
  paint.fill();
  paint.clip();
  if (image.complete && image.naturalWidth) {
    const cut = Math.min(image.naturalWidth, image.naturalHeight);
    paint.drawImage(image, (image.naturalWidth - cut) / 2, (image.naturalHeight - cut) / 2, cut, cut, x - SIDE / 2, y - SIDE / 2, SIDE, SIDE);
  }
  paint.restore();
  paint.strokeStyle = edge.startsWith("var") ? css("--line") : edge;
  paint.lineWidth = thick;
  paint.stroke();
}

function ring(x, y, radius, thick, ink = css("--ring")) {
  paint.beginPath();
  paint.arc(x, y, radius, 0, 7);
  paint.lineWidth = thick;
  paint.strokeStyle = ink;
  paint.stroke();
}

function write(words, x, y, ink) {
  paint.font = "600 12px system-ui, sans-serif";
  paint.textAlign = "center";
  paint.lineJoin = "round";
  paint.lineWidth = 4;
  paint.strokeStyle = css("--paper");
  paint.strokeText(words, x, y);
  paint.fillStyle = ink;
  paint.fillText(words, x, y);
}

// Each class has its name above its points; what would cover another name is left out, the smaller class first.
function writeNames(width, height) {
  const groups = page.state.classes.map((name) => ({ name, xs: [], ys: [] }));
  for (const item of items()) {
    const way = page.state.labels[item];
    if (way < 0 || !there(item)) continue;
    groups[way].xs.push(across(item));
    groups[way].ys.push(down(item));
  }
  const taken = [];
  const ink = css("--ink");
  const middle = (values, part = 0.5) => values.sort((a, b) => a - b)[Math.floor(part * values.length)];
  for (const { name, xs, ys } of groups.filter(({ xs }) => xs.length).sort((a, b) => b.xs.length - a.xs.length)) {
    const words = name.length > 26 ? `${name.slice(0, 16)}…${name.slice(-8)}` : name;
    const half = 3.4 * words.length;
    const y = middle(ys, 0.08) - 11;
    const x = Math.min(width - half - 4, Math.max(half + 4, middle(xs)));
    if (y < 14 || y > height - 6 || middle(xs) < 0 || middle(xs) > width) continue;
    if (taken.some((each) => Math.abs(each.x - x) < each.half + half && Math.abs(each.y - y) < 15)) continue;
    taken.push({ x, y, half });
    write(words, x, y, ink);
  }
}

function drawPath() {
  paint.beginPath();
  for (const { x, y } of path) paint.lineTo(x, y);
  paint.closePath();
  paint.globalAlpha = 0.12;
  paint.fillStyle = css("--ring");
  paint.fill();
  paint.globalAlpha = 1;
  paint.lineWidth = 2;
  paint.strokeStyle = css("--ring");
  paint.stroke();
}

// ---- the mouse and fingers

function hover(item, x = 0, y = 0) {
  const card = $("map-hover");
  card.hidden = item === null;
  if (item === null) return;
  const [image, words] = card.children;
  image.hidden = !page.project.pictures;
  if (page.project.pictures && image.dataset.item !== String(item)) Object.assign(image, { src: picture(item) }).dataset.item = item;
  words.textContent = [page.project.texts?.[item], describe(item)].filter(Boolean).join(" — ");
  const [width, height] = [card.offsetWidth, card.offsetHeight];
  card.style.left = `${x + 18 + width > size.width ? x - width - 18 : x + 18}px`;
  card.style.top = `${Math.max(4, Math.min(size.height - height - 4, y - height / 2))}px`;
}

const at = (event) => ({ x: event.offsetX, y: event.offsetY });

canvas.addEventListener("pointerdown", (event) => {
  if (!shown()) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, at(event));
  panning = event.button > 0 || pointers.size > 1;
  path = panning ? null : [at(event)];
  hover(null);
});
canvas.addEventListener("pointermove", (event) => {
  if (!shown()) return;
  const now = at(event);
  const last = pointers.get(event.pointerId);
  if (!last) {
    const item = nearest(now.x, now.y);
    canvas.style.cursor = item === null ? "" : "pointer";
    return hover(item, now.x, now.y);
  }
  const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1]; // the second finger
  pointers.set(event.pointerId, now);
  if (other) {
    const apart = (each) => Math.hypot(each.x - other.x, each.y - other.y);
    zoomAround((now.x + other.x) / 2, (now.y + other.y) / 2, apart(now) / Math.max(1, apart(last)));
    pan((now.x - last.x) / 2, (now.y - last.y) / 2);
  } else if (panning) pan(now.x - last.x, now.y - last.y);
  else if (path) {
    path.push(now);
    drawMap();
  }
});
canvas.addEventListener("pointerup", (event) => {
  pointers.delete(event.pointerId);
  const drawn = path;
  path = null;
  if (!drawn || !shown()) return;
  const [{ x, y }] = drawn;
  if (drawn.some((each) => Math.hypot(each.x - x, each.y - y) > LEAST)) {
    const found = inside(drawn);
    return setLasso(event.shiftKey && page.lasso ? [...new Set([...page.lasso, ...found])] : found);
  }
  const item = nearest(x, y);
  if (item !== null) focus(item, { toggle: event.shiftKey || event.ctrlKey || event.metaKey || page.several });
  else setLasso(null);
});
canvas.addEventListener("pointercancel", (event) => {
  pointers.delete(event.pointerId);
  path = null;
  drawMap();
});
canvas.addEventListener("pointerleave", () => hover(null));
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const pixels = event.deltaY * (event.deltaMode ? 30 : 1); // lines, in some browsers
  if (shown()) zoomAround(event.offsetX, event.offsetY, Math.exp(-WHEEL * pixels));
  hover(null);
}, { passive: false });
new ResizeObserver(drawMap).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);

// Where an image is in the window, in pixels.
export function placeOnScreen(item) {
  const { left, top } = canvas.getBoundingClientRect();
  return [left + across(item), top + down(item)];
}
