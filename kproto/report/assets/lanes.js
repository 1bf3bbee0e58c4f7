// Rows over time on a canvas: only the rows in sight are drawn, so their number does not matter.

const AXIS = 24;

// `source` gives the rows:
//   count, rowHeight
//   label(row)               its text; where it is too long, the first of `shorter` that has room, or its beginning with
//                            all of `suffix`: {text, suffix, shorter}
//   draw(pen, row, top, x)   draws a row; x(us) is the place of a time
//   marks(row)               its marks by time: {from, to, text, open}, for pointer and keyboard
class Lanes {
  constructor(host, source, title, mostHeight) {
    this.source = source;
    this.mostHeight = mostHeight;
    this.row = -1;
    this.mark = -1;
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": title });
    this.space = element("div");
    this.host = element("div", { class: "lanes" }, this.canvas, this.space);
    host.replaceChildren(this.host);
    this.pen = this.canvas.getContext("2d");
    this.host.addEventListener("scroll", () => this.later());
    new ResizeObserver(() => this.resize()).observe(this.host);
    range.listeners.push(() => this.later());
    this.listen();
    this.resize();
  }

  // To be called when the source's rows have changed.
  reset() {
    this.row = this.mark = -1;
    this.host.scrollTop = 0;
    this.resize();
  }

  resize() {
    const rows = Math.max(this.source.count, 1) * this.source.rowHeight;
    this.width = this.host.clientWidth;
    this.height = Math.min(rows + AXIS, this.mostHeight);
    this.host.style.height = `${this.height + 2}px`;
    this.space.style.height = `${rows + AXIS - this.height}px`;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.labels = labelWidth(this.width);
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  x(us) { return this.labels + ((us - range.from) / (range.to - range.from)) * (this.width - this.labels); }
  us(x) { return range.from + ((x - this.labels) / (this.width - this.labels)) * (range.to - range.from); }

  draw() {
    const { pen, source, width, height, labels } = this;
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = theme.card;
    pen.fillRect(0, 0, width, height);
    const top = this.host.scrollTop;
    const first = Math.floor(top / source.rowHeight);
    const last = Math.min(source.count - 1, Math.floor((top + height - AXIS) / source.rowHeight));
    const times = ticks(range.from, range.to, (width - labels) / 90);
    pen.strokeStyle = theme.line;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const [us] of times) {
      const x = Math.round(this.x(us)) + 0.5;
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, height);
    }
    pen.stroke();
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, width, height - AXIS);
    pen.clip();
    for (let row = first; row <= last; row++) this.drawRow(row, AXIS + row * source.rowHeight - top);
    pen.restore();
    this.drawAxis(times);
    if (this.drag && this.drag.moved) {
      pen.fillStyle = theme.accent;
      pen.globalAlpha = 0.18;
      pen.fillRect(Math.min(this.drag.x, this.drag.now), AXIS, Math.abs(this.drag.now - this.drag.x), height - AXIS);
      pen.globalAlpha = 1;
    }
    if (!source.count) {
      pen.fillStyle = theme.dim;
      pen.font = `13px ${theme.font}`;
      pen.fillText("nothing to show", 12, AXIS + source.rowHeight / 2 + 4);
    }
  }

  drawRow(row, y) {
    const { pen, source, width, labels } = this;
    if (row === this.row) {
      pen.fillStyle = theme.soft;
      pen.fillRect(0, y, width, source.rowHeight);
    }
    pen.save();
    pen.beginPath();
    pen.rect(labels, y, width - labels, source.rowHeight);
    pen.clip();
    source.draw(pen, row, y, (us) => this.x(us), width);
    if (row === this.row && this.mark >= 0) {
      const mark = source.marks(row)[this.mark];
      if (mark) {
        const [from, to] = [Math.max(this.x(mark.from), labels - 4), Math.min(this.x(mark.to), width + 4)];
        pen.strokeStyle = theme.accent;
        pen.lineWidth = 2;
        pen.strokeRect(from, y + 1, Math.max(to - from, 5), source.rowHeight - 2);
      }
    }
    pen.restore();
    pen.fillStyle = row === this.row ? theme.ink : theme.dim;
    pen.font = `12px ${theme.mono}`;
    pen.textBaseline = "middle";
    pen.fillText(this.fitted(source.label(row), labels - 18), 10, y + source.rowHeight / 2);
  }

  fitted({ text, suffix, shorter = [] }, width) {
    const room = Math.max(4, Math.floor(width / (this.pen.measureText("0000000000").width / 10)));
    const whole = [text + suffix, ...shorter].find((words) => words.length <= room);
    if (whole) return whole;
    return `${text.slice(0, Math.max(1, room - suffix.length - 1))}…${suffix}`;
  }

  drawAxis(times) {
    const { pen, width, labels } = this;
    pen.fillStyle = theme.card;
    pen.fillRect(0, 0, width, AXIS);
    pen.fillStyle = theme.dim;
    pen.font = `11px ${theme.font}`;
    pen.textBaseline = "middle";
    for (const [us, text] of times) {
      const at = this.x(us) - pen.measureText(text).width / 2;
      if (at > labels - 20) pen.fillText(text, Math.min(at, width - pen.measureText(text).width - 2), AXIS / 2);
    }
    pen.strokeStyle = theme.line;
    pen.beginPath();
    pen.moveTo(0, AXIS - 0.5);
    pen.lineTo(width, AXIS - 0.5);
    pen.stroke();
  }

  // The row and the mark at a place on the canvas; -1 where there is none.
  at(x, y) {
    const row = Math.floor((y - AXIS + this.host.scrollTop) / this.source.rowHeight);
    if (y < AXIS || row < 0 || row >= this.source.count) return [-1, -1];
    if (x < this.labels) return [row, -1];
    const us = this.us(x);
    const near = this.us(x + 5) - us;
    let found = -1;
    this.source.marks(row).forEach((mark, place) => {
      if (us >= mark.from - near && us <= mark.to + near) found = place;
    });
    return [row, found];
  }

  listen() {
    const { canvas } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      if (event.button !== 0) return;
      this.drag = { x, y, now: x, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (this.drag && this.drag.x >= this.labels) {
        this.drag.now = Math.max(x, this.labels);
        this.drag.moved ||= Math.abs(x - this.drag.x) > 4;
        if (this.drag.moved) { hideTip(); this.later(); return; }
      }
      this.hover(x, y, event);
    });
    canvas.addEventListener("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      if (drag.moved) {
        range.set(this.us(Math.min(drag.x, drag.now)), this.us(Math.max(drag.x, drag.now)));
        return;
      }
      const [row, mark] = this.at(...place(event));
      this.select(row, mark, false);
      if (mark >= 0) { hideTip(); this.source.marks(row)[mark].open(); }
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.later(); });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("dblclick", () => range.set(range.first, range.last));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.shiftKey) range.move(Math.sign(event.deltaY || event.deltaX) * 0.15);
      else range.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.us(place(event)[0]));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  hover(x, y, event) {
    const [row, mark] = this.at(x, y);
    if (row < 0) { hideTip(); return; }
    const { text, suffix } = this.source.label(row);
    const words = mark < 0 ? [] : [this.source.marks(row)[mark].text];
    showTip([text + suffix, ...words].join("\n"), event.clientX, event.clientY);
  }

  select(row, mark, speak = true) {
    this.row = row;
    this.mark = mark;
    if (row >= 0) {
      const top = row * this.source.rowHeight;
      const sight = this.height - AXIS;
      if (top < this.host.scrollTop) this.host.scrollTop = top;
      else if (top + this.source.rowHeight > this.host.scrollTop + sight) this.host.scrollTop = top + this.source.rowHeight - sight;
      if (speak) {
        const { text, suffix } = this.source.label(row);
        const found = this.source.marks(row)[mark];
        byId("spoken").textContent = text + suffix + (found ? `: ${found.text}` : "");
        if (found && (found.from > range.to || found.to < range.from)) range.set(found.from - (range.to - range.from) / 2, found.from + (range.to - range.from) / 2);
      }
    }
    this.later();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { source } = this;
    const page = Math.max(1, Math.floor((this.height - AXIS) / source.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -source.count, End: source.count };
    if (event.key in steps) {
      const row = Math.min(Math.max(this.row + steps[event.key], 0), source.count - 1);
      this.select(row, source.count ? source.marks(row).length - 1 : -1);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      if (event.shiftKey) range.move(event.key === "ArrowLeft" ? -0.2 : 0.2);
      else if (source.count) {
        const row = Math.max(this.row, 0);
        const marks = source.marks(row);
        const next = this.mark + (event.key === "ArrowLeft" ? -1 : 1);
        this.select(row, Math.min(Math.max(next, 0), marks.length - 1));
      }
    } else if (event.key === "Enter" || event.key === " ") {
      const mark = this.row >= 0 ? source.marks(this.row)[this.mark] : null;
      if (mark) mark.open();
    } else if (event.key === "+" || event.key === "=") range.zoom(0.5);
    else if (event.key === "-") range.zoom(2);
    else if (event.key === "0") range.set(range.first, range.last);
    else return;
    event.preventDefault();
  }
}

function showTip(text, x, y) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? y - box.height - 12 : y + 18}px`;
}

function hideTip() { byId("tip").hidden = true; }
