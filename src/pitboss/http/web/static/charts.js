// Server-drawn charts become uPlot charts, with the values under the cursor.
const kept = new Map();
const css = (one, name, part) => () => getComputedStyle(one, part).getPropertyValue(name);
const size = (box) => ({ width: box.clientWidth - 32, height: 148 });
const clock = { hour: "2-digit", minute: "2-digit", hour12: false }, day = { month: "short", day: "numeric" };
const time = (second, how) => new Date(second * 1e3).toLocaleString([], how);

function made(box, data) {
  const keys = [...box.querySelectorAll(".key")], at = box.querySelector("time");
  const label = data[0].at(-1) - data[0][0] > 2e5 ? day : clock;
  const axis = { stroke: css(box, "--text-3"), font: "11px system-ui", ticks: { show: false }, grid: { stroke: css(box, "--line"), width: 1 } };
  return new uPlot({
    ...size(box),
    padding: [6, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false } },
    scales: { y: { range: (u, low, high) => [0, high || 1] } },
    axes: [{ ...axis, size: 28, values: (u, all) => all.map((at) => time(at, label)) }, { ...axis, size: 44 }],
    series: [{}, ...keys.map((one) => ({ stroke: css(one, "background-color", "::before"), width: 1.5 }))],
    hooks: { setCursor: [({ cursor: { idx }, data }) => {
      keys.forEach((one, place) => (one.lastChild.textContent = idx == null ? "" : data[place + 1][idx]));
      at.textContent = idx == null ? "" : time(data[0][idx], { ...day, ...clock });
    }] },
  }, data, box);
}

function draw() {
  for (const box of document.querySelectorAll("[data-chart]")) {
    const { data } = JSON.parse(box.dataset.chart), known = kept.get(box);
    known ? (box.append(known.root), known.setData(data)) : kept.set(box, made(box, data));
  }
}

document.addEventListener("pitboss:refreshed", draw);
addEventListener("resize", () => kept.forEach((one, box) => one.setSize(size(box))));
draw();
