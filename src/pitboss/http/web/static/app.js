// Times, acts, rows and keys; updates are in live.js, the palette in palette.js.
import { refresh, start, toggle } from "./live.js";
import { openPalette } from "./palette.js";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector) => [...document.querySelectorAll(selector)];
const picks = () => $$("[name=_pick]:checked");

// Times become those of the viewer, with UTC in the tooltip.
function times() {
  for (const one of $$("time[data-t]")) {
    const at = new Date(one.dateTime), today = at.toDateString() === new Date().toDateString(), kind = one.dataset.t;
    const how = { hour: "2-digit", minute: "2-digit", hour12: false };
    if (kind === "date") Object.assign(how, today ? { second: "2-digit" } : { month: "short", day: "numeric" });
    if (kind === "clock" || kind === "date") one.textContent = at.toLocaleString([], how);
    one.title = `${at.toLocaleString()}\n${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  }
}

function part(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

const fade = (box) => setTimeout(() => box.remove(), box.matches(".is-ok:not(:has(form))") ? 5000 : 15000);

// A later word on an act replaces the earlier one.
function toast(told, from, form) {
  for (const one of $$(".toasts>*")) if (one.from === from || (told.ok && one.contains(form))) one.remove();
  const box = part("div", `toast ${told.ok ? "is-ok" : "is-bad"}`), words = part("div");
  words.append(part("b", "", told.text), ...[told.why, told.fix].filter(Boolean).map((line) => part("span", "sub", line)));
  box.append(words);
  if (told.undo) {
    const form = $("#undo").content.firstChild.cloneNode(true);
    form.action = told.undo;
    box.append(form);
  }
  box.from = from;
  $("#toasts").append(box);
  fade(box);
}

function confirmed(question) {
  const dialog = $("#confirm");
  $("#confirm-what").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

async function act(form, button) {
  const data = new FormData(form, button), question = data.get("_confirm"), bulk = form.id === "picked";
  if (question) {
    if (!(await confirmed(bulk ? `${question} (${picks().length} selected)` : question))) return;
    data.set("_sure", "1");
  }
  const address = button?.hasAttribute("formaction") ? button.formAction : form.action;
  if (button) button.disabled = true;
  try {
    const answer = await fetch(address, { method: "POST", body: new URLSearchParams(data), headers: { "HX-Request": "true" } });
    if (answer.status === 401) return location.reload();
    const told = await answer.json();
    if (told.go) return location.assign(told.go);
    toast(told, address, form);
    if (!told.ok) return;
    $(":popover-open")?.hidePopover();
    if (bulk) for (const one of picks()) one.checked = false;
    if (form.contains(document.activeElement)) document.activeElement.blur();
    await refresh(true);
  } catch {
    toast({ text: "The server did not answer", fix: "try again" }, address);
  } finally {
    if (button) button.disabled = false;
    counts();
  }
}

addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-act]") || $("[name=_show]", form)) return;
  event.preventDefault();
  act(form, event.submitter);
});

// Rows: selection, and a mark that j and k move.
function counts() {
  for (const one of $$("[data-picked]")) one.textContent = `${picks().length} selected`;
}
addEventListener("change", (event) => {
  if (event.target.matches("[data-pick-all]")) for (const one of $$("[name=_pick]")) one.checked = event.target.checked;
  counts();
});
addEventListener("reset", () => setTimeout(counts));

let here = "";
function mark() {
  $(".is-here")?.classList.remove("is-here");
  document.getElementById(here)?.classList.add("is-here");
}
function move(step) {
  const rows = $$("[data-rows] tbody tr"), place = rows.findIndex((one) => one.id === here);
  const next = rows[Math.max(0, Math.min(rows.length - 1, place < 0 ? 0 : place + step))];
  if (!next) return;
  here = next.id;
  mark();
  next.scrollIntoView({ block: "nearest" });
}

const single = {
  "/": () => ($("#main [data-filter]") || $("[data-filter]"))?.focus(),
  "?": () => $("#shortcuts").togglePopover(),
  j: () => move(1),
  k: () => move(-1),
  x: () => $(".is-here [name=_pick]")?.click(),
  Enter: () => $(".is-here .name")?.click(),
  p: toggle,
  R: () => picks().length && $("#bulk-retry")?.click(),
  C: () => picks().length && $("#bulk-cancel")?.click(),
};
let going = 0;
addEventListener("keydown", (event) => {
  const { key, target } = event, chord = event.ctrlKey || event.metaKey;
  if (chord && key.toLowerCase() === "k") {
    event.preventDefault();
    return openPalette();
  }
  const field = target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (field && key === "Escape") target.blur();
  if (field || chord || event.altKey || $("dialog[open]") || (key === "Enter" && target !== document.body)) return;
  const link = going > Date.now() && $(`.side [data-key="${CSS.escape(key)}"]`);
  going = key === "g" ? Date.now() + 1500 : 0;
  if (link) return location.assign(link.href);
  const done = single[key];
  if (!done) return;
  event.preventDefault();
  done();
});

function arrange() {
  times();
  mark();
  counts();
}
document.addEventListener("pitboss:refreshed", arrange);
arrange();
$$(".toast").forEach(fade);
start();
