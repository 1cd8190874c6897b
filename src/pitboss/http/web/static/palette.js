// Ctrl K: go somewhere by name.
const base = document.documentElement.dataset.base;
const dialog = document.getElementById("palette"), field = document.getElementById("palette-in"), list = document.getElementById("palette-list");
let places = [], shown = [], at = 0;

function draw() {
  const text = field.value.trim(), words = text.toLowerCase().split(/\s+/);
  shown = places.filter((one) => words.every((word) => `${one.kind} ${one.name}`.toLowerCase().includes(word))).slice(0, 50);
  if (text) shown.push({ kind: "filter", name: text, go: `${base}/tasks?q=${encodeURIComponent(text)}` });
  at = Math.max(0, Math.min(at, shown.length - 1));
  list.replaceChildren(...shown.map((one, place) => {
    const item = document.createElement("li"), kind = document.createElement("span");
    item.id = `place-${place}`;
    item.role = "option";
    item.ariaSelected = place === at;
    item.append(one.name, kind);
    kind.textContent = one.kind;
    item.addEventListener("click", () => location.assign(one.go));
    return item;
  }));
  field.setAttribute("aria-activedescendant", shown.length ? `place-${at}` : "");
  list.children[at]?.scrollIntoView({ block: "nearest" });
}

export async function openPalette() {
  if (dialog.open) return;
  field.value = "";
  at = 0;
  dialog.showModal();
  draw();
  const answer = await fetch(`${base}/palette`);
  if (answer.ok) places = await answer.json();
  draw();
}

field.addEventListener("input", () => { at = 0; draw(); });
field.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { event.preventDefault(); at += step; draw(); }
  if (event.key === "Enter" && shown[at]) { event.preventDefault(); location.assign(shown[at].go); }
});
