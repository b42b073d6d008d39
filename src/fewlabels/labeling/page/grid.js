// The pictures on the screen: only visible tiles exist, however many images there are.

import { HEADER } from "./layout.js";

const AHEAD = 600; // pixels above and below the screen that are kept ready
const REST = 80; // milliseconds without a jump before pictures are requested

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const TAIL = 9; // letters at the end of a long name that stay visible
export function twoEnds(name) {
  return name.length > 2 * TAIL ? [element("span", "head", name.slice(0, -TAIL)), element("span", "tail", name.slice(-TAIL))] : [element("span", "head", name)];
}

export class Grid {
  // describe(item) returns what a tile shows; onSection gets the section at the top of the screen; onMissing an item without a picture.
  constructor(scroller, canvas, { describe, onSection, onMissing }) {
    Object.assign(this, { scroller, canvas, describe, onSection, onMissing, tiles: new Map(), heads: new Map(), layout: null, waiting: false, lastTop: 0, resting: 0 });
    scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.render();
    });
  }

  show(layout) {
    this.layout = layout;
    this.canvas.style.height = `${layout.total}px`;
    this.render(true);
  }

  render(refresh = false) {
    const { layout, scroller } = this;
    if (!layout) return;
    const top = scroller.scrollTop;
    const bottom = top + scroller.clientHeight;
    const leaping = Math.abs(top - this.lastTop) > scroller.clientHeight;
    this.lastTop = top;
    const wanted = new Set(layout.visible(top - AHEAD, bottom + AHEAD));
    for (const [item, tile] of this.tiles) {
      if (wanted.has(item)) continue;
      tile.image?.removeAttribute("src"); // stop loading what was scrolled past
      tile.root.remove();
      this.tiles.delete(item);
    }
    for (const item of wanted) {
      const known = this.tiles.has(item);
      const tile = this.tiles.get(item) ?? this.make(item);
      if (!known || refresh) this.update(tile, item);
    }
    clearTimeout(this.resting);
    if (leaping) this.resting = setTimeout(() => this.load(), REST);
    else this.load();
    this.renderHeads(top - AHEAD, bottom + AHEAD, refresh);
    this.onSection(layout.sections.length ? layout.sectionAt(top + HEADER / 2) : null);
  }

  load() {
    for (const { image, picture } of this.tiles.values()) if (image && !image.hasAttribute("src")) image.src = picture;
  }

  renderHeads(top, bottom, refresh) {
    const near = new Map(this.layout.sections.filter((each) => each.top > 0 && each.bottom >= top && each.top <= bottom).map((each) => [each.key, each]));
    for (const [key, head] of this.heads) {
      if (near.has(key) && !refresh) continue;
      head.remove();
      this.heads.delete(key);
    }
    for (const [key, section] of near) {
      if (this.heads.has(key)) continue;
      const head = element("div", "section");
      head.setAttribute("role", "presentation");
      head.style.transform = `translateY(${section.top}px)`;
      if (section.color) {
        const swatch = element("i", "swatch");
        swatch.style.background = section.color;
        head.append(swatch);
      }
      const title = element("span", "name");
      title.append(...twoEnds(section.title));
      head.append(title, element("span", "note", section.note));
      this.canvas.append(head);
      this.heads.set(key, head);
    }
  }

  make(item) {
    const root = element("div", "tile");
    root.id = `tile-${item}`;
    root.dataset.item = item;
    root.setAttribute("role", "option");
    const frame = element("div", "frame");
    root.append(frame);
    const about = this.describe(item);
    const image = about.picture ? element("img") : null;
    if (image) {
      image.alt = "";
      image.decoding = "async";
      image.draggable = false;
      image.addEventListener("load", () => image.classList.add("there"));
      image.addEventListener("error", () => {
        if (!image.hasAttribute("src")) return;
        image.replaceWith(element("div", "words", `File is missing: ${about.name}`));
        this.onMissing(item);
      });
      frame.append(image);
    } else {
      frame.append(element("div", about.text === undefined ? "words" : "words text", about.text ?? about.name));
    }
    const tile = { root, frame, image, picture: about.picture, extras: [] };
    this.tiles.set(item, tile);
    this.canvas.append(root);
    return tile;
  }

  update(tile, item) {
    const about = this.describe(item);
    const box = this.layout.box(item);
    const { root, frame } = tile;
    root.style.transform = `translate(${box.x}px, ${box.y}px)`;
    root.style.width = `${this.layout.side}px`;
    root.style.height = `${box.height}px`;
    root.setAttribute("aria-selected", about.selected);
    root.setAttribute("aria-label", about.words);
    root.setAttribute("aria-posinset", this.layout.place.get(item) + 1);
    root.setAttribute("aria-setsize", this.layout.order.length);
    root.classList.toggle("focus", about.focused);
    root.classList.toggle("changed", about.changed);
    for (const extra of tile.extras) extra.remove();
    tile.extras = [];
    if (about.mine) tile.extras.push(element("span", about.mine, about.sign));
    else if (about.doubt) tile.extras.push(element("span", "doubt", about.doubt));
    for (const extra of tile.extras) frame.append(extra);
    if (box.section.captions) {
      const caption = element("span", "caption");
      const swatch = element("i", "swatch");
      swatch.style.background = about.color;
      const label = element("span", "name");
      label.append(...twoEnds(about.label || "no label"));
      caption.append(swatch, label);
      root.append(caption);
      tile.extras.push(caption);
    }
  }

  // Bring an item into sight, moving no more than needed.
  reveal(item) {
    const box = this.layout.box(item);
    if (!box) return;
    const { scroller } = this;
    const margin = 8;
    if (box.y < scroller.scrollTop + margin) scroller.scrollTop = box.y - box.section.head;
    else if (box.y + box.height > scroller.scrollTop + scroller.clientHeight - margin) scroller.scrollTop = box.y + box.height - scroller.clientHeight + margin;
    this.render();
  }

  inSight(item) {
    const box = item === null ? null : this.layout.box(item);
    const { scrollTop, clientHeight } = this.scroller;
    return Boolean(box) && box.y + box.height > scrollTop && box.y < scrollTop + clientHeight;
  }

  offset(item) {
    const box = this.layout?.box(item);
    return box ? box.y - this.scroller.scrollTop : null;
  }

  // Scroll so that an item is at the given offset from the top.
  hold(item, offset) {
    const box = this.layout.box(item);
    if (box && offset !== null) this.scroller.scrollTop = box.y - offset;
  }
}
