// Updates: one stream for all tabs of this browser. The tab that holds a lock listens; it tells the others.
const base = document.documentElement.dataset.base;
const main = () => document.getElementById("main");
const topics = () => new Set((main().dataset.topics || "").split(" ").filter(Boolean));
const AT_MOST_EVERY = 2000, POLL = 10000, LOST_AFTER = 25000;

let paused = false, dirty = false, fetching = false, fetched = 0, heard = Date.now(), timer = 0, polling = 0, working = true;

function show() {
  const sign = document.getElementById("live"), button = document.getElementById("pause");
  sign.hidden = button.hidden = false;
  const age = Math.round((Date.now() - fetched) / 1000);
  const stale = paused || !working;
  const words = paused ? "Paused" : working ? "Live" : `updated ${age} s ago`;
  sign.classList.toggle("is-stale", stale);
  if (sign.firstElementChild.textContent !== words) sign.firstElementChild.textContent = words;
  button.setAttribute("aria-pressed", String(paused));
}

export function toggle() {
  paused = !paused;
  show();
  if (!paused) refresh(true);
}

// A person who is reading a dialog, or writing, is not disturbed.
function busy() {
  const active = document.activeElement;
  const writing = active && main().contains(active) && active.matches("input:not([type=checkbox]), textarea, select");
  return writing || document.querySelector("dialog[open], [popover]:popover-open") !== null;
}

export async function refresh(now = false) {
  if (!now && (paused || document.hidden || busy())) return void (dirty = true);
  if (fetching) return void (dirty = true);
  const wait = fetched + AT_MOST_EVERY - Date.now();
  if (!now && wait > 0) {
    timer ||= setTimeout(() => { timer = 0; refresh(); }, wait);
    return;
  }
  fetching = true;
  dirty = false;
  try {
    const answer = await fetch(location.href, { headers: { "HX-Request": "true" }, cache: "no-store" });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (fresh && (now || !busy())) {
      for (const one of fresh.querySelectorAll("details[id]")) one.open = document.getElementById(one.id)?.open ?? one.open;
      await window.htmx.swap({ sourceElement: main(), target: main(), text: fresh.innerHTML, swap: "innerMorph" });
      document.dispatchEvent(new Event("pitboss:refreshed"));
    }
    working = true;
    fetched = Date.now();
  } catch {
    working = false;
    dirty = true;
  } finally {
    fetching = false;
    show();
  }
}

function changed(names) {
  heard = Date.now();
  const mine = topics();
  if (names.some((one) => mine.has(one))) refresh();
}

const channel = "BroadcastChannel" in window ? new BroadcastChannel(`pitboss ${base}`) : null;

// Listens until the page goes or is hidden. A stream that ended is opened again, later each time.
function lead() {
  return document.hidden ? null : new Promise((done) => {
    let pause = 1000, source = null, again = 0;
    const tell = (names) => { changed(names); channel?.postMessage(names); };
    const open = () => {
      source = new EventSource(`${base}/live`);
      source.addEventListener("open", () => { pause = 1000; heard = Date.now(); if (!working) tell([...topics(), "store"]); });
      source.addEventListener("changed", (event) => tell(event.data.split(" ")));
      source.onerror = () => {
        source.close();
        working = false;
        show();
        again = setTimeout(open, pause);
        pause = Math.min(pause * 2, 30000);
      };
    };
    const close = () => {
      if (!document.hidden) return;
      document.removeEventListener("visibilitychange", close);
      clearTimeout(again);
      source.close();
      done();
    };
    open();
    document.addEventListener("visibilitychange", close);
    window.addEventListener("pagehide", () => source.close());
  });
}

let asking = false;
async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  await navigator.locks.request(`pitboss ${base}`, lead);
  asking = false;
  ask();
}

function poll() {
  polling ||= setInterval(() => refresh(), POLL);
}

export function start() {
  fetched = Date.now();
  document.getElementById("pause").addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => document.hidden || !dirty || refresh());
  if (topics().size === 0) return;
  if (navigator.locks && channel) {
    channel.onmessage = (event) => changed(event.data);
    document.addEventListener("visibilitychange", ask);
    ask();
  } else poll();
  setInterval(() => {
    if (dirty && !paused && !document.hidden && !fetching && Date.now() - fetched > AT_MOST_EVERY) refresh();
    // Who hears nothing for long looks for itself: the stream may be full, or its leader asleep.
    if (!document.hidden && Date.now() - Math.max(heard, fetched) > LOST_AFTER) refresh();
    show();
  }, 1000);
  show();
}
