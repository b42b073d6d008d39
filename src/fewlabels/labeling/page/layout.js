// Positions of all images, computed without the DOM: sections below one another, rows of equal tiles.

export const HEADER = 46; // height of a section's heading
const FIRST = 12; // above the first section, whose heading is pinned over the grid
const CAPTION = 20; // height of the line below a tile
const BELOW = 24; // space after the last section

export class Layout {
  // sections: [{ key, title, items, captions }]; width and gap in pixels; wish is the preferred side of a tile.
  constructor(sections, { width, gap, wish }) {
    this.columns = Math.max(2, Math.floor((width + gap) / (wish + gap)));
    this.side = Math.floor((width - (this.columns - 1) * gap) / this.columns);
    this.gap = gap;
    this.order = []; // all items in reading order
    this.place = new Map(); // item: its index in the order
    this.sections = [];
    let top = 0;
    for (const section of sections) {
      const height = this.side + (section.captions ? CAPTION : 0);
      const rows = Math.ceil(section.items.length / this.columns);
      const head = this.sections.length ? HEADER : FIRST;
      const first = this.order.length;
      section.items.forEach((item, i) => {
        this.place.set(item, first + i);
        this.order.push(item);
      });
      this.sections.push({ ...section, top, head, first, height, rows, bottom: top + head + rows * (height + gap) });
      top += head + rows * (height + gap);
    }
    this.total = top + BELOW;
  }

  sectionAt(y) {
    let low = 0;
    let high = this.sections.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.sections[middle].top <= y) low = middle;
      else high = middle - 1;
    }
    return this.sections[low];
  }

  sectionOf(item) {
    const index = this.place.get(item);
    return index === undefined ? undefined : this.sections.findLast((section) => section.first <= index && section.items.length);
  }

  box(item) {
    const section = this.sectionOf(item);
    if (!section) return null;
    const i = this.place.get(item) - section.first;
    const row = Math.floor(i / this.columns);
    const column = i % this.columns;
    return { x: column * (this.side + this.gap), y: section.top + section.head + row * (section.height + this.gap), height: section.height, section };
  }

  // The items that touch the band from top to bottom.
  visible(top, bottom) {
    const found = [];
    for (const section of this.sections) {
      if (section.bottom < top) continue;
      if (section.top > bottom) break;
      const step = section.height + this.gap;
      const firstRow = Math.max(0, Math.floor((top - section.top - section.head) / step));
      const lastRow = Math.min(section.rows - 1, Math.floor((bottom - section.top - section.head) / step));
      for (let i = firstRow * this.columns; i < Math.min((lastRow + 1) * this.columns, section.items.length); i++) found.push(section.items[i]);
    }
    return found;
  }

  // The item that an arrow key leads to.
  step(item, key) {
    const index = this.place.get(item);
    if (index === undefined) return this.order[0];
    if (key === "ArrowLeft") return this.order[Math.max(0, index - 1)];
    if (key === "ArrowRight") return this.order[Math.min(this.order.length - 1, index + 1)];
    if (key === "Home") return this.order[0];
    if (key === "End") return this.order[this.order.length - 1];
    const section = this.sectionOf(item);
    const i = index - section.first;
    const full = this.sections.filter((each) => each.items.length);
    const at = full.findIndex((each) => each.first === section.first);
    const column = i % this.columns;
    if (key === "ArrowDown") {
      if (i + this.columns < section.items.length) return this.order[index + this.columns];
      if (Math.floor(i / this.columns) < section.rows - 1) return section.items[section.items.length - 1];
      const next = full[at + 1];
      return next ? next.items[Math.min(column, next.items.length - 1)] : item;
    }
    if (i - this.columns >= 0) return this.order[index - this.columns];
    const previous = full[at - 1];
    if (!previous) return item;
    const last = (previous.rows - 1) * this.columns + column;
    return previous.items[Math.min(last, previous.items.length - 1)];
  }
}
