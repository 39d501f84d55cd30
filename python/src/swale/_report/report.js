"use strict";
// Draws the facts. All texts reach the page as text nodes: nothing of the facts is parsed as HTML.
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const main = document.querySelector("main");
  const SVG = "http://www.w3.org/2000/svg";
  // Okabe and Ito's colours; dashes tell lines apart in a grey print.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
  const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
  const WIDTH = 520, HEIGHT = 300, LEFT = 64, RIGHT = 12, TOP = 12, BOTTOM = 40;

  // ---- Elements ----

  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) element.append(child);
    return element;
  };
  const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);
  const section = (title, ...children) =>
    main.append(html("section", {}, html("h2", {}, title), ...children));
  const table = (heads, rows) => {
    const cells = (tag, row) => row.map((cell, i) => html(tag, heads[i][1] ? { class: "number" } : {}, cell));
    return html("table", {}, html("thead", {}, html("tr", {}, ...cells("th", heads.map(head => head[0])))),
      html("tbody", {}, ...rows.map(row => html("tr", {}, ...cells("td", row)))));
  };

  // ---- Numbers as people read them ----

  const count = n => n === null ? "–" : n.toLocaleString("en-US");
  const short = x => {
    if (x === null || x === undefined) return "–";
    if (x === 0) return "0";
    const size = Math.abs(x);
    return size >= 1e5 || size < 1e-3 ? x.toExponential(2).replace("e+", "e") :
      String(Number(x.toPrecision(4)));
  };
  const scaled = (x, units, step) => {
    if (x === null) return "–";
    let i = 0;
    while (x >= step && i + 1 < units.length) { x /= step; ++i; }
    return `${x >= 100 || i === 0 ? Math.round(x) : x.toPrecision(3)} ${units[i]}`;
  };
  const bytes = n => scaled(n, ["B", "kB", "MB", "GB", "TB", "PB"], 1000);
  const seconds = s => s === null ? "–" : s >= 1 || s === 0 ? `${short(s)} s` :
    s >= 1e-3 ? `${short(s * 1e3)} ms` : `${short(s * 1e6)} µs`;
  const withUnit = (name, unit) => unit ? `${name} (${unit})` : name;
  const sum = column => column.reduce((total, x) => total + (x || 0), 0);

  // ---- Scales and charts ----

  const ticks = (low, high, most) => {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough) || rough;
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; ++i) found.push(i * step);
    return found;
  };
  const extent = columns => {
    let low = Infinity, high = -Infinity;
    for (const column of columns) for (const x of column) {
      if (x === null) continue;
      if (x < low) low = x;
      if (x > high) high = x;
    }
    return low > high ? [0, 1] : low === high ?
      [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2] : [low, high];
  };
  const scale = (low, high, from, to) => x => from + (x - low) / (high - low) * (to - from);
  const path = (xs, ys, toX, toY) => {
    let drawn = "", open = false;
    for (let i = 0; i < xs.length; ++i) {
      if (xs[i] === null || ys[i] === null) { open = false; continue; }
      drawn += `${open ? "L" : "M"}${toX(xs[i]).toFixed(1)} ${toY(ys[i]).toFixed(1)}`;
      if (!open && (i + 1 === xs.length || xs[i + 1] === null || ys[i + 1] === null)) drawn += "h.1";
      open = true;
    }
    return drawn;
  };
  // Axes with their labels; `square`: a length is as long in both directions.
  const frame = (xRange, yRange, xLabel, yLabel, square) => {
    const height = square ? WIDTH - LEFT - RIGHT + TOP + BOTTOM : HEIGHT;
    if (square) {
      const half = Math.max(xRange[1] - xRange[0], yRange[1] - yRange[0]) * 0.53;
      [xRange, yRange] = [xRange, yRange].map(([low, high]) =>
        [(low + high) / 2 - half, (low + high) / 2 + half]);
    }
    const toX = scale(xRange[0], xRange[1], LEFT, WIDTH - RIGHT), toY =
      scale(yRange[0], yRange[1], height - BOTTOM, TOP);
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img" });
    for (const x of ticks(xRange[0], xRange[1], 7)) picture.append(
      svg("line", { class: "grid", x1: toX(x), x2: toX(x), y1: TOP, y2: height - BOTTOM }),
      svg("text", { x: toX(x), y: height - BOTTOM + 16, "text-anchor": "middle" }, short(x)));
    for (const y of ticks(yRange[0], yRange[1], 6)) picture.append(
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: toY(y), y2: toY(y) }),
      svg("text", { x: LEFT - 6, y: toY(y) + 4, "text-anchor": "end" }, short(y)));
    picture.append(
      svg("path", { class: "axis", fill: "none", d: `M${LEFT} ${TOP}V${height - BOTTOM}H${WIDTH - RIGHT}` }),
      svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
      svg("text", { transform: `translate(13 ${(TOP + height - BOTTOM) / 2}) rotate(-90)`, "text-anchor":
        "middle" }, yLabel));
    return { picture, toX, toY, height };
  };
  const style = i => ({ stroke: COLOURS[i % COLOURS.length], "stroke-dasharray": DASHES[i % DASHES.length] });
  const legend = (names, pressed) => {
    const buttons = names.map((name, i) => {
      const button = html("button", { type: "button", "aria-pressed": "true" },
        svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" },
          svg("path", { class: "line", d: "M0 5H26", ...style(i) })), name);
      button.addEventListener("click", () => pressed(i, button));
      return button;
    });
    return html("div", { class: "legend" }, ...buttons);
  };
  // Lines over the epochs. Pointing shows the numbers; a click into the legend takes a line away.
  const chart = (title, yLabel, xs, lines, show) => {
    const yMax = extent([...lines.map(line => line.ys), [0]])[1];
    const { picture, toX, toY, height } = frame(extent([xs]), [0, yMax * 1.04 || 1], "epoch", yLabel);
    const drawn = lines.map((line, i) =>
      svg("path", { class: "line", d: path(xs, line.ys, toX, toY), ...style(i) }));
    const cursor = svg("line", { class: "axis hidden", y1: TOP, y2: height - BOTTOM });
    picture.append(...drawn, cursor);
    picture.setAttribute("aria-label", title);
    const readout = html("div", { class: "readout" }, "Point at an epoch to see its numbers.");
    picture.addEventListener("pointermove", event => {
      const box = picture.getBoundingClientRect(), x = (event.clientX - box.left) * WIDTH / box.width;
      let nearest = 0;
      const far = i => Math.abs(toX(xs[i]) - x);
      for (let i = 1; i < xs.length; ++i) if (far(i) < far(nearest)) nearest = i;
      cursor.setAttribute("class", "axis");
      cursor.setAttribute("x1", toX(xs[nearest]));
      cursor.setAttribute("x2", toX(xs[nearest]));
      readout.textContent = `epoch ${xs[nearest]}: ` +
        lines.map(line => `${line.name} ${show(line.ys[nearest])}`).join(", ");
    });
    const names = legend(lines.map(line => line.name), (i, button) => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      drawn[i].setAttribute("class", shown ? "line" : "line hidden");
    });
    return html("figure", {}, html("figcaption", {}, title), picture, names, readout);
  };

  // ---- Sections ----

  const about = () => {
    const title = facts.title || facts.path;
    document.title = `${title}: Swale report`;
    document.querySelector("h1").textContent = title;
    document.querySelector("header p").textContent = `${facts.path}: ${count(facts.epochs)} epochs, ` +
      `${count(facts.records)} records, ${count(facts.files.files)} files, ` +
      `${bytes(facts.files.data + facts.files.index + facts.files.other)}. By swale ${facts.version}.`;
    const left = facts.fields_left_out ?
      [html("p", {}, `and ${count(facts.fields_left_out)} more fields`)] : [];
    section("What a record is", html("p", {}, `The key: ${facts.key_type}. ` +
      (facts.fields.length ? "The fields of the value:" : "The value has no declared fields.")),
      ...(facts.fields.length ? [table([["field"], ["type"], ["elements", 1], ["unit"]],
        facts.fields.map(([name, type, elements, unit]) => [name, type, count(elements), unit]))] : []),
          ...left);
  };

  const epochs = () => {
    const { costs } = facts, { each, first } = costs;
    if (!first.length) {
      section("Epochs", html("p", {}, "No epoch is committed yet."));
      return;
    }
    const unknown = facts.epochs - costs.known;
    const notes = (each > 1 ? `${each} epochs are one point. ` : "") +
      (unknown ? `Of ${count(unknown)} epochs it was not kept what they cost. ` : "") +
        "Bytes are those of all ranks.";
    const mega = column => column.map(n => n === null ? null : n / 1e6);
    section("What the job wrote", html("p", {}, notes), html("div", { class: "charts" },
      chart("Records", "records", first, [{ name: "records", ys: costs.records }], count),
      chart("Bytes", "MB", first, [["taken in", "append.bytes"], ["data log", "write.data"],
        ["index log", "write.index"],
        ["over the network", "network.bytes"]].map(([name, key]) => ({ name, ys: mega(costs.sum[key]) })),
      n => n === null ? "–" : bytes(n * 1e6))),
      html("details", {}, html("summary", {}, "The numbers"), html("div", { class: "scroll" }, table(
        [["epoch", 1], ["step", 1], ["time", 1], ["records", 1], ["ranks", 1], ["data log", 1],
          ["index log", 1], ["durable after", 1]],
        first.map((epoch, i) => [count(epoch), count(costs.step[i]), short(costs.time[i]),
          count(costs.records[i]),
          count(costs.ranks[i]), bytes(costs.sum["write.data"][i]), bytes(costs.sum["write.index"][i]),
          seconds(costs.slowest["epoch.drain"][i] === null ? null :
            costs.slowest["epoch.drain"][i] + costs.slowest["epoch.flush"][i])])))));
    if (costs.known) stages(costs, first);
  };

  const PHASES = [["epoch.open", "open", "the application appends, and the stages work meanwhile"],
    ["epoch.drain", "drain", "the epoch has ended; its last records arrive"],
    ["epoch.flush", "flush", "the last runs and the index are written and made durable"]];
  const STAGES = [["append.wait", "appends wait", "the application waited: the pipeline was full"],
    ["delivery.wait", "records wait", "records of other ranks waited for space in a memtable"],
    ["sort.time", "sort", "records are sorted into runs"],
    ["index.time", "index", "segments of the index are made"],
    ["write.time", "write", "write requests, summed; they overlap"],
    ["sync.time", "sync", "logs become durable"],
    ["commit.time", "commit", "rank 0 commits the epoch"]];
  const stages = (costs, first) => {
    const lines = rows => rows.map(([key, name]) => ({ name, ys: costs.slowest[key] }));
    const often = column => {
      const times = new Map();
      for (const rank of column) if (rank !== null) times.set(rank, (times.get(rank) || 0) + 1);
      const best = [...times].sort((a, b) => b[1] - a[1])[0];
      return best ? `${best[0]} (${Math.round(100 * best[1] / sum([...times.values()]))} %)` : "–";
    };
    section("Where the time went",
      html("p", {}, "Of the slowest rank of each epoch. Phases follow one another; stages overlap."),
      html("div", { class: "charts" }, chart("Phases of an epoch", "seconds", first, lines(PHASES), seconds),
        chart("Stages: work and waits", "seconds", first, lines(STAGES), seconds)),
      table([["stage"], ["seconds in all", 1], ["slowest most often: rank", 1], ["what it is"]],
        [...PHASES, ...STAGES].map(([key, name, what]) =>
          [name, short(sum(costs.slowest[key])), often(costs.rank[key]), what])),
      html("p", {}, `${count(sum(costs.sum["append.waits"]))} appends waited, and ` +
        `${count(sum(costs.sum["network.credit_waits"]))} frames waited for a peer to take earlier ones.`));
    const spread = [["index.records", "records"], ["sort.time", "sort"], ["epoch.flush", "flush"]];
    section("Balance over ranks",
      html("p", {}, "The greatest of a rank over the mean of all ranks: 1 is even. A rank with many " +
        "records has many keys, or keys with many values; a slow one with few may share its cores or its storage."),
      html("div", { class: "charts" }, chart("Greatest over mean", "ratio", first,
        spread.map(([key, name]) => ({ name, ys: costs.spread[key] })), short)));
  };

  const index = () => {
    const found = facts.index, { files, costs } = facts;
    if (!found) return;
    const records = sum(costs.sum["index.records"]);
    const rows = [["data logs", bytes(files.data)], ["index logs", bytes(files.index)],
      ["other files", bytes(files.other)]];
    if (records) rows.push(["index, bits a record", short(8 * sum(costs.sum["write.index"]) / records)]);
    if (found.failure) {
      section("The index", table([["what"], ["", 1]], rows),
        html("p", {}, `A look-up of a sample failed: ${found.failure}`));
      return;
    }
    rows.push(["keys of a sample, looked up in all epochs", count(found.keys)],
      ["look-ups: a key in an epoch", count(found.lookups)],
      ["records found", count(found.found)],
        ["blocks read for a key that they do not have", count(found.false)],
      ["such blocks a look-up", short(found.false / Math.max(1, found.lookups))],
      ["read requests", count(found.requests)], ["read", bytes(found.bytes)],
      ["reads that waited for one another", count(found.depth)]);
    section("The index", table([["what"], ["", 1]], rows));
  };

  const trajectories = () => {
    const told = facts.trajectories;
    if (!told) return;
    if (told.failure) {
      section("Trajectories", html("p", {}, `They could not be read: ${told.failure}`));
      return;
    }
    const { keys, fields, values } = told;
    const moving = new Set(told.times).size > 1 && !told.times.includes(null);
    const xs = moving ? told.times : told.epochs;
    const xLabel = moving ? withUnit("time", told.time_unit) : "epoch";
    const label = i => withUnit(...fields[i]);
    const choice = (i, name) => html("select", { "aria-label": name },
      ...fields.map((field, at) => html("option", { value: at, ...(at === i ? { selected: "" } : {}) },
        field[0])));
    const pick = { x: choice(0, "horizontal"), y: choice(Math.min(1, fields.length - 1), "vertical"),
      time: choice(fields.length > 3 ? fields.length - 1 : 0, "against time") };
    const slider = html("input", { type: "range", min: 0, max: xs.length - 1, value: xs.length - 1,
      "aria-label": "epoch" });
    const play = html("button", { type: "button" }, "Play");
    const now = html("output", {});
    const plane = html("figure", {}), panel = html("figure", {});
    const hidden = new Set();
    let strong = -1, timer = null, move = () => {};
    const readout = html("div", { class: "readout" },
      "Point at a line to see its key; a name in the list takes it away.");
    const emphasise = i => {
      strong = i;
      for (const [at, line] of document.querySelectorAll("[data-key]").entries()) {
        const key = Number(line.dataset.key);
        line.setAttribute("class", hidden.has(key) ? "hidden" : line.tagName === "circle" ? "" :
          `line${strong < 0 ? "" : key === strong ? " strong" : " faint"}`);
      }
    };
    const lines = (columns, { toX, toY, picture }) => {
      picture.append(...keys.map((_, i) => svg("path", { class: "line", "data-key": i,
        d: path(columns[0][i] || xs, columns[1][i], toX, toY), ...style(i) })));
      picture.addEventListener("pointermove", event => {
        const box = picture.getBoundingClientRect(), at = WIDTH / box.width;
        const x = (event.clientX - box.left) * at, y = (event.clientY - box.top) * at;
        let best = 400, nearest = -1, when = 0;
        for (let i = 0; i < keys.length; ++i) for (let t = 0; t < xs.length && !hidden.has(i); ++t) {
          const px = (columns[0][i] || xs)[t], py = columns[1][i][t];
          if (px === null || py === null) continue;
          const far = (toX(px) - x) ** 2 + (toY(py) - y) ** 2;
          if (far < best) [best, nearest, when] = [far, i, t];
        }
        emphasise(nearest);
        if (nearest >= 0) readout.textContent = `key ${keys[nearest]}, epoch ${told.epochs[when]}, time ` +
          `${short(told.times[when])}: ` +
            fields.map((field, f) => `${field[0]} ${short(values[f][nearest][when])}`).join(", ");
      });
    };
    const draw = () => {
      const [x, y, t] = [pick.x, pick.y, pick.time].map(each => Number(each.value));
      const flat = frame(extent(values[x]), extent(values[y]), label(x), label(y), fields[x][1] ===
        fields[y][1]);
      lines([values[x], values[y]], flat);
      const dots = keys.map((_, i) =>
        svg("circle", { r: 3.5, "data-key": i, fill: COLOURS[i % COLOURS.length] }));
      flat.picture.append(...dots);
      const over = frame(extent([xs]), extent(values[t]), xLabel, label(t));
      lines([[], values[t]], over);
      const cursor = svg("line", { class: "axis", y1: TOP, y2: over.height - BOTTOM });
      over.picture.append(cursor);
      flat.picture.setAttribute("aria-label", "paths");
      over.picture.setAttribute("aria-label", "against time");
      plane.replaceChildren(html("figcaption", {}, "Paths; dots: the chosen epoch"), flat.picture);
      panel.replaceChildren(html("figcaption", {}, "Against time"), over.picture);
      move = () => {
        const at = Number(slider.value);
        now.textContent = `epoch ${told.epochs[at]}, step ${count(told.steps[at])}, ` +
          `time ${short(told.times[at])} ${told.time_unit}`;
        cursor.setAttribute("x1", over.toX(xs[at]));
        cursor.setAttribute("x2", over.toX(xs[at]));
        for (const [i, dot] of dots.entries()) {
          const [px, py] = [values[x][i][at], values[y][i][at]];
          dot.setAttribute("visibility", px === null || py === null ? "hidden" : "visible");
          dot.setAttribute("cx", px === null ? 0 : flat.toX(px));
          dot.setAttribute("cy", py === null ? 0 : flat.toY(py));
        }
      };
      emphasise(strong);
      move();
    };
    for (const each of Object.values(pick)) each.addEventListener("change", draw);
    slider.addEventListener("input", () => move());
    play.addEventListener("click", () => {
      play.textContent = timer ? "Play" : "Stop";
      timer = timer ? clearInterval(timer) : setInterval(() => {
        slider.value = (Number(slider.value) + 1) % xs.length;
        move();
      }, 80);
    });
    const names = legend(keys, (i, button) => {
      const shown = hidden.delete(i) || !hidden.add(i);
      button.setAttribute("aria-pressed", String(shown));
      emphasise(-1);
    });
    const some = told.epochs.length < told.of ?
      ` Of ${count(told.of)} epochs, ${count(told.epochs.length)} are shown.` : "";
    section("Trajectories",
      html("p", {}, `${count(keys.length)} keys, ${told.chosen ? "as chosen" : "drawn at random"}.${some}`),
      html("div", { class: "controls" }, html("label", {}, "plane ", pick.x, " ", pick.y),
        html("label", {}, "against time ", pick.time),
        play, slider, now),
      html("div", { class: "charts" }, plane, panel), names, readout);
    draw();
  };

  for (const part of [about, epochs, index, trajectories]) {
    try {
      part();
    } catch (failure) {  // the other parts are shown all the same
      main.append(html("p", { class: "failed" }, `A part of this report could not be drawn: ${failure}`));
    }
  }
  document.documentElement.dataset.drawn = "yes";
})();
