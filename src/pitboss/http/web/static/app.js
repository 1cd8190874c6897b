// The dashboard's own script: times, acts, rows and keys here; updates in live.js, the palette in palette.js.
import { refresh, start, toggle } from "./live.js";
import { openPalette } from "./palette.js";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Times are in UTC in the page; here they become those of the viewer, with UTC in the tooltip.
export function times(root = document) {
  for (const one of $$("time[data-t]", root)) {
    const at = new Date(one.dateTime);
    if (one.dataset.t === "clock") one.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
    if (one.dataset.t === "date") {
      const today = at.toDateString() === new Date().toDateString();
      const day = today ? {} : { month: "short", day: "numeric" };
      one.textContent = at.toLocaleString([], { ...day, hour12: false, hour: "2-digit", minute: "2-digit", second: today ? "2-digit" : undefined });
    }
    one.title = `${at.toLocaleString()}\n${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  }
}

export function toast(told) {
  const box = document.createElement("div");
  box.className = `toast ${told.ok ? "is-ok" : "is-bad"}`;
  const words = document.createElement("div");
  const head = document.createElement("b");
  head.textContent = told.text;
  words.append(head);
  for (const more of [told.why, told.fix]) {
    if (!more) continue;
    const line = document.createElement("span");
    line.className = "sub";
    line.textContent = more;
    words.append(line);
  }
  box.append(words);
  if (told.undo) {
    const form = $("#undo").content.firstChild.cloneNode(true);
    form.action = told.undo;
    form.onsubmit = () => box.remove();
    box.append(form);
  }
  $("#toasts").append(box);
  setTimeout(() => box.remove(), told.ok && !told.undo ? 5000 : 15000);
}

function confirmed(question) {
  const dialog = $("#confirm");
  $("#confirm-what").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

async function act(form, button) {
  const data = new FormData(form, button);
  const question = data.get("_confirm");
  if (question) {
    const picked = $$("[name=_pick]:checked").length;
    if (!(await confirmed(form.id === "picked" ? `${question} (${picked} selected)` : question))) return;
    data.set("_sure", "1");
  }
  const address = button?.formAction && button.hasAttribute("formaction") ? button.formAction : form.action;
  if (button) button.disabled = true;
  try {
    const answer = await fetch(address, { method: "POST", body: new URLSearchParams(data), headers: { "HX-Request": "true" } });
    if (answer.status === 401) return location.reload();
    const told = await answer.json();
    if (told.go) return location.assign(told.go);
    toast(told);
    if (!told.ok) return;
    $(":popover-open")?.hidePopover();
    if (form.id === "picked") for (const one of $$("[name=_pick]:checked")) one.checked = false;
    document.activeElement?.closest("form[data-act]") && document.activeElement.blur();
    await refresh(true);
  } catch {
    toast({ ok: false, text: "The server did not answer", fix: "try again" });
  } finally {
    if (button) button.disabled = false;
    counts();
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-act]") || $("[name=_show]", form)) return;
  event.preventDefault();
  act(form, event.submitter);
});

// Rows: selection, and a mark that j and k move.
function counts() {
  const picked = $$("[name=_pick]:checked").length;
  for (const one of $$("[data-picked]")) one.textContent = `${picked} selected`;
  for (const one of $$("[name=_pick]")) one.closest("tr").classList.toggle("is-picked", one.checked);
  const all = $("[data-pick-all]");
  if (all) all.classList.toggle("is-some", picked > 0 && !all.checked);
}
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) for (const one of $$("[name=_pick]")) one.checked = event.target.checked;
  counts();
});
document.addEventListener("reset", () => setTimeout(counts));

let here = "";
function move(step) {
  const rows = $$("[data-rows] tbody tr");
  if (!rows.length) return;
  const place = rows.findIndex((one) => one.id === here);
  const row = rows[Math.max(0, Math.min(rows.length - 1, place < 0 ? 0 : place + step))];
  here = row.id;
  mark();
  row.scrollIntoView({ block: "nearest" });
}
const row = () => here && document.getElementById(here);
function mark() {
  for (const one of $$("tr.is-here")) one.classList.remove("is-here");
  row() && row().classList.add("is-here");
}

const single = {
  "/": () => ($("#main [data-filter]") || $("[data-filter]"))?.focus(),
  "?": () => $("#shortcuts").togglePopover(),
  j: () => move(1),
  k: () => move(-1),
  x: () => row() && $("[name=_pick]", row())?.click(),
  Enter: () => row() && $(".name", row())?.click(),
  p: toggle,
  R: () => $$("[name=_pick]:checked").length && $("#bulk-retry")?.click(),
  C: () => $$("[name=_pick]:checked").length && $("#bulk-cancel")?.click(),
};
let going = 0;
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return openPalette();
  }
  const field = event.target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (field && event.key === "Escape") event.target.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  if (event.key === "Enter" && event.target !== document.body) return;
  if (going > Date.now()) {
    going = 0;
    const link = $$(".side [data-key]").find((one) => one.dataset.key === event.key);
    if (link) return location.assign(link.href);
  }
  if (event.key === "g") return void (going = Date.now() + 1500);
  const done = single[event.key];
  if (!done || event.target.matches("summary") && event.key === "Enter") return;
  event.preventDefault();
  done();
});

document.addEventListener("htmx:after:swap", () => { times(); mark(); counts(); });
document.addEventListener("pitboss:refreshed", () => { times(); mark(); counts(); });
times();
counts();
start();
