"use strict";
// Draws the timeline and the table of operators of a report from the data in the page. Times are integer nanoseconds.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const UNITS = data.units;
  const TERMS = ["launch", "cube", "vector", "hbm", "l2", "comm"];
  const us = (ns) => (ns == null ? "" : ns >= 1e10 ? (ns / 1e9).toFixed(2) + " s" : ns >= 1e7 ? (ns / 1e6).toFixed(2) + " ms" : (ns / 1e3).toFixed(1) + " us");
  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // One object per operator; columns in the page keep it small.
  const ops = data.ops.name.map((name, i) => {
    const op = { index: i };
    for (const key of Object.keys(data.ops)) op[key] = data.ops[key][i];
    op.target = data.targets[op.target];
    op.unit = UNITS[op.unit];
    op.layer = data.layers[op.layer];
    op.critical = false;
    return op;
  });
  for (const [index, cause, waited] of data.critical) Object.assign(ops[index], { critical: true, cause, waited });

  // ---- state shared by the chart and the table
  const shown = { units: new Set(UNITS), layer: "", chosen: null };
  const matches = (op) => shown.units.has(op.unit) && (!shown.layer || op.layer === shown.layer);
  const redraw = [];
  const update = () => redraw.forEach((draw) => draw());

  // ---- tooltip
  const tip = $("tip");
  function describe(op, panel) {
    const span = panel === "before" ? op.before : op.after;
    const rows = [["unit", op.unit], ["stream", span && span[0]], ["from", span && us(span[1])], ["to", span && us(span[2])],
      ["alone on the chip", us(op.duration)], ["slack", panel === data.explained && us(op.slack)], ["cost from", op.tier && op.tier + ", within a factor of " + (1 + op.error).toFixed(2)],
      ["holds", op.held.map((n, i) => n && n + " " + ["AIC", "AIV", "‰ HBM", "comm engine"][i]).filter(Boolean).join(", ")],
      ["terms", TERMS.map((t, i) => op.terms[i] && t + " " + us(op.terms[i])).filter(Boolean).join(", ")],
      ["on the critical path after", panel === data.explained && op.blame], ["module", op.module], ["source", op.source]];
    return "<b>" + escape(op.target) + "</b> <span class=mono>" + escape(op.name) + "</span><table>" +
      rows.filter(([, value]) => value).map(([key, value]) => "<tr><td class=soft>" + key + "</td><td>" + escape(value) + "</td></tr>").join("") + "</table>";
  }
  for (const op of ops) op.blame = op.waited != null ? ops[op.waited].name + " (" + op.cause + ")" : "";
  function showTip(event, html) {
    tip.innerHTML = html;
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(4, event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  }
  const hideTip = () => { tip.style.display = "none"; };

  // ---- timeline
  if ($("chart")) {
    const canvas = $("chart"), pen = canvas.getContext("2d");
    const LANE = 26, GAP = 5, METER = 20, TITLE = 24, LEFT = 112, AXIS = 22;
    const end = Math.max(...data.panels.map((panel) => panel.makespan), 1);
    const view = { from: 0, to: end };
    let width = 0;
    for (const panel of data.panels) {
      panel.bars = [];
      for (const op of ops) if (op[panel.key]) panel.bars.push([op, panel.lanes.indexOf(op[panel.key][0]), op[panel.key][1], op[panel.key][2]]);
      panel.byLane = panel.lanes.map((_, lane) => panel.bars.filter((bar) => bar[1] === lane));
    }
    const heightOf = (panel) => TITLE + panel.lanes.length * (LANE + GAP) + panel.meters.length * (METER + GAP) + 10;
    const x = (time) => LEFT + (time - view.from) / (view.to - view.from) * (width - LEFT - 8);
    const timeAt = (px) => view.from + (px - LEFT) / (width - LEFT - 8) * (view.to - view.from);
    const laneTop = (panel, lane) => panel.top + TITLE + lane * (LANE + GAP);

    function step() {
      const rough = (view.to - view.from) / Math.max(4, (width - LEFT) / 110), power = 10 ** Math.floor(Math.log10(rough));
      return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    }
    function drawAxis(height) {
      pen.font = "11px system-ui";
      for (let time = Math.ceil(view.from / step()) * step(); time <= view.to; time += step()) {
        pen.fillStyle = colour("line");
        pen.fillRect(Math.round(x(time)), 0, 1, height - AXIS);
        pen.fillStyle = colour("soft");
        const text = us(time);
        pen.fillText(text, Math.min(x(time) - pen.measureText(text).width / 2, width - pen.measureText(text).width), height - 7);
      }
    }
    function drawBars(panel, colours) {
      const onlyPath = $("path").checked && panel.key === data.explained;
      for (const [op, lane, from, to] of panel.bars) {
        const left = Math.max(LEFT, x(from)), right = Math.min(width, x(to));
        if (right < LEFT || left > width || right <= left) continue;
        const top = laneTop(panel, lane), wide = Math.max(right - left - (right - left > 3 ? 1 : 0), 0.8);
        pen.globalAlpha = matches(op) && (!onlyPath || op.critical) ? 1 : +colours.fade;
        pen.fillStyle = colours[op.unit];
        pen.fillRect(left, top, wide, LANE);
        if (op === shown.chosen) { pen.globalAlpha = 1; pen.strokeStyle = colours.ink; pen.lineWidth = 2; pen.strokeRect(left, top, wide, LANE); }
        if (wide > 46) {
          pen.save(); pen.beginPath(); pen.rect(left, top, wide - 3, LANE); pen.clip();
          pen.fillStyle = "#fff"; pen.fillText(op.target, left + 5, top + 17); pen.restore();
        }
      }
      pen.globalAlpha = 1;
    }
    function drawMeters(panel, colours) {
      panel.meters.forEach((meter, row) => {
        const top = laneTop(panel, panel.lanes.length) + row * (METER + GAP) + 4;
        pen.fillStyle = colours.hover; pen.fillRect(LEFT, top, width - LEFT - 8, METER);
        pen.fillStyle = colours[meter.colour];
        meter.points.forEach(([time, value], i) => {
          const until = i + 1 < meter.points.length ? meter.points[i + 1][0] : time;
          const left = Math.max(LEFT, x(time)), right = Math.min(width - 8, x(until));
          const tall = Math.min(1, value / meter.capacity) * METER;
          if (value && right > left) pen.fillRect(left, top + METER - tall, right - left, tall);
        });
        pen.fillStyle = colours.soft; pen.fillText(meter.name, 4, top + 14);
      });
    }
    function drawArrows(panel, colours) {
      if (!$("arrows").checked || panel.key !== "after") return;
      pen.lineWidth = 1.1;
      for (const [one, two] of data.edges) {
        const a = ops[one].after, b = ops[two].after;
        if (!a || !b || x(b[1]) < LEFT || x(a[2]) > width) continue;
        if (!matches(ops[one]) && !matches(ops[two])) continue;
        const y1 = laneTop(panel, panel.lanes.indexOf(a[0])) + LANE / 2, y2 = laneTop(panel, panel.lanes.indexOf(b[0])) + LANE / 2;
        const x1 = Math.max(LEFT, x(a[2])), x2 = Math.max(LEFT, x(b[1])), bend = Math.max(14, Math.abs(x2 - x1) / 2);
        pen.strokeStyle = pen.fillStyle = colours.ink; pen.globalAlpha = .75;
        pen.beginPath(); pen.moveTo(x1, y1); pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2); pen.stroke();
        pen.beginPath(); pen.moveTo(x2, y2); pen.lineTo(x2 - 6, y2 - 3.5); pen.lineTo(x2 - 6, y2 + 3.5); pen.fill();
      }
      pen.globalAlpha = 1;
    }
    function draw() {
      const ratio = devicePixelRatio || 1;
      width = canvas.clientWidth;
      let height = AXIS;
      for (const panel of data.panels) { panel.top = height - AXIS; height += heightOf(panel); }
      canvas.style.height = height + "px";
      canvas.width = width * ratio; canvas.height = height * ratio;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      const colours = {};
      for (const name of [...UNITS, "ink", "soft", "line", "hover", "fade", "hbm"]) colours[name] = colour(name);
      drawAxis(height);
      for (const panel of data.panels) {
        pen.font = "600 12px system-ui"; pen.fillStyle = colours.ink;
        pen.fillText(panel.title + ": " + us(panel.makespan), 4, panel.top + 15);
        pen.font = "11px system-ui";
        panel.lanes.forEach((lane, i) => { pen.fillStyle = colours.soft; pen.fillText(lane.length > 17 ? lane.slice(0, 16) + "…" : lane, 4, laneTop(panel, i) + 17); });
        drawBars(panel, colours); drawMeters(panel, colours); drawArrows(panel, colours);
      }
    }
    function hit(event) {
      const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      if (px < LEFT) return null;
      for (const panel of data.panels) for (let lane = 0; lane < panel.lanes.length; lane++) {
        const top = laneTop(panel, lane);
        if (py < top || py > top + LANE) continue;
        const time = timeAt(px), near = (view.to - view.from) / width * 2;
        const bar = panel.byLane[lane].find(([, , from, to]) => from <= time && time < to) ||
          panel.byLane[lane].find(([, , from, to]) => from - near <= time && time < to + near);
        return bar ? { op: bar[0], panel: panel.key } : null;
      }
      return null;
    }
    function zoom(centre, factor) {
      const span = Math.min(end, Math.max(200, (view.to - view.from) * factor));
      const share = (centre - view.from) / (view.to - view.from);
      view.from = Math.max(0, Math.min(centre - share * span, end - span));
      view.to = view.from + span;
      draw();
    }
    function move(time) {
      const span = view.to - view.from;
      view.from = Math.max(0, Math.min(view.from + time, end - span));
      view.to = view.from + span;
      draw();
    }
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(timeAt(event.clientX - canvas.getBoundingClientRect().left), event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, moved: 0 }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const dx = event.clientX - drag.x;
        drag.moved += Math.abs(dx); drag.x = event.clientX;
        if (drag.moved > 3) { canvas.classList.add("dragging"); hideTip(); move(-dx / (width - LEFT) * (view.to - view.from)); }
        return;
      }
      const found = hit(event);
      if (found) showTip(event, describe(found.op, found.panel)); else hideTip();
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = drag && drag.moved <= 3 && hit(event);
      drag = null; canvas.classList.remove("dragging");
      if (clicked) choose(clicked.op);
    });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("keydown", (event) => {
      const span = view.to - view.from, keys = { "+": () => zoom(view.from + span / 2, 0.8), "-": () => zoom(view.from + span / 2, 1.25), ArrowLeft: () => move(-span / 8), ArrowRight: () => move(span / 8), Home: () => $("reset").click() };
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
    $("reset").addEventListener("click", () => { view.from = 0; view.to = end; draw(); });
    $("arrows").addEventListener("change", draw);
    $("path").addEventListener("change", draw);
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    redraw.push(draw);

    const present = UNITS.filter((unit) => ops.some((op) => op.unit === unit && (op.before || op.after)));
    for (const unit of present) {
      const label = document.createElement("label");
      label.innerHTML = '<input type="checkbox" checked data-unit="' + unit + '"><i class="swatch" style="background:var(--' + unit + ')"></i>' + unit;
      label.firstChild.addEventListener("change", (event) => { shown.units[event.target.checked ? "add" : "delete"](unit); update(); });
      $("units").append(label);
    }
    for (const layer of data.layers) if (layer) $("layer").append(new Option(layer, layer));
    $("layer").addEventListener("change", (event) => { shown.layer = event.target.value; update(); });
  }

  // ---- table
  const columns = [
    ["Operator", (op) => op.name, "mono any"], ["Kind", (op) => op.target, "any"], ["Unit", (op) => op.unit, ""],
    ["Stream", (op) => (op.after || op.before || [""])[0], ""], ["Start", (op) => (op.after || op.before || [0, null])[1], "num"],
    ["Time alone", (op) => op.duration, "num"], ["Cost", (op) => op.duration, "cost"], ["Slack", (op) => op.slack, "num"],
    ["From", (op) => op.tier || "", ""], ["Module", (op) => op.module, "any"], ["Source", (op) => op.source, "mono any"],
  ].filter(([title, get]) => !["Module", "Source"].includes(title) || ops.some(get));  // often neither is known
  const body = $("table").tBodies[0], PAGE = 200;
  const sorted = { column: 4, down: false };
  let limit = PAGE;
  columns.forEach(([title, , kind], i) => {
    const head = document.createElement("th");
    head.textContent = title; head.tabIndex = 0; head.scope = "col";
    head.className = "sortable" + (kind === "num" ? " num" : "");
    const sort = () => { sorted.down = sorted.column === i ? !sorted.down : false; sorted.column = i; table(); };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
    $("table").tHead.rows[0].append(head);
  });
  const longest = Math.max(1, ...ops.map((op) => op.duration));
  function costBar(op) {
    const total = op.terms.reduce((sum, ns) => sum + ns, 0) || 1;
    const parts = op.terms.map((ns, i) => ns && '<i style="width:' + 100 * ns / total + "%;background:var(--" + TERMS[i] + ')"></i>').filter(Boolean).join("");
    const title = TERMS.map((term, i) => op.terms[i] && term + " " + us(op.terms[i])).filter(Boolean).join(", ");
    return '<div title="' + title + '"><div class="bar" style="width:' + Math.max(6, 100 * op.duration / longest) + '%">' + parts + "</div></div>";
  }
  function table() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const value = columns[sorted.column][1];
    const rows = ops.filter((op) => matches(op) && words.every((word) => (op.name + " " + op.target + " " + op.module + " " + op.source + " " + op.unit).toLowerCase().includes(word)));
    rows.sort((a, b) => {
      const one = value(a), two = value(b);
      if (one == null || two == null) return (one == null) - (two == null);
      const order = typeof one === "number" ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
      return (sorted.down ? -order : order) || a.index - b.index;
    });
    if (shown.chosen && rows.indexOf(shown.chosen) >= limit) limit = Math.ceil((rows.indexOf(shown.chosen) + 1) / PAGE) * PAGE;
    body.innerHTML = rows.slice(0, limit).map((op) => '<tr data-op="' + op.index + '"' + (op === shown.chosen ? ' class="chosen"' : "") + ">" + columns.map(([title, get, kind]) => {
      if (kind === "cost") return "<td>" + costBar(op) + "</td>";
      const cell = get(op);
      const text = escape(kind === "num" ? us(cell) : cell ?? "");
      return '<td class="' + kind + '">' + (kind.includes("any") ? text.replace(/[_/]|\.(?!py)/g, "$&<wbr>") : text) + (title === "Operator" && op.critical ? ' <span class="soft" title="on the critical path">●</span>' : "") + "</td>";
    }).join("") + "</tr>").join("");
    [...$("table").tHead.rows[0].cells].forEach((head, i) => head.setAttribute("aria-sort", i !== sorted.column ? "none" : sorted.down ? "descending" : "ascending"));
    $("found").textContent = rows.length === ops.length ? ops.length + " operators" : rows.length + " of " + ops.length + " operators";
    $("more").hidden = rows.length <= limit;
  }
  function choose(op) {
    shown.chosen = op;
    if (!matches(op) || $("search").value) { $("search").value = ""; }
    update();
    const row = body.querySelector('[data-op="' + op.index + '"]');
    if (row) row.scrollIntoView({ block: "center" });
  }
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (!row) return;
    shown.chosen = ops[+row.dataset.op];
    update();
  });
  $("search").addEventListener("input", () => { limit = PAGE; table(); });
  $("more").addEventListener("click", () => { limit += 5 * PAGE; table(); });
  redraw.push(table);

  $("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    update();
  });
  update();
})();
