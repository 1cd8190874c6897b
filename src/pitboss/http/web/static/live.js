// One stream for all tabs of this browser: a visible one leads, listens, and tells the others.
const base = document.documentElement.dataset.base, key = `pitboss ${base}`, me = `${Math.random()}`;
const main = document.getElementById("main"), sign = document.getElementById("live"), button = document.getElementById("pause");
const AT_MOST_EVERY = 2000, POLL = 10000, LOST_AFTER = 25000, LEADS = 3000;

// `live`: a stream tells what changed. `dirty`: something did since the page was read.
let live = true, paused = !!sessionStorage.paused, dirty = false, fetching = false, failed = false, fetched = Date.now(), heard = fetched;
let channel, source, opens = 0, pause = 1000;

const picked = () => main.querySelector("[name=_pick]:checked");

function show() {
  const words = paused || picked() ? "Updates paused" : failed ? `updated ${Math.round((Date.now() - fetched) / 1000)} s ago` : live ? "Live" : "every 10 s";
  sign.classList.toggle("is-stale", words !== "Live");
  if (sign.textContent !== words) sign.firstElementChild.textContent = words;
  button.ariaPressed = paused;
}

export function toggle() {
  sessionStorage.paused = (paused = !paused) || "";
  show();
  refresh();
}

// Selected rows stay. Who writes or reads a dialog is not disturbed, but sees an own act at once.
const busy = (now) => picked() || (!now && (paused || document.hidden || document.querySelector("#main :is(input:not([type=checkbox]), textarea, select):focus, dialog[open], :popover-open")));

export async function refresh(now) {
  dirty = true;
  if (busy(now) || fetching || (!now && Date.now() - fetched < AT_MOST_EVERY)) return;
  fetching = true;
  dirty = false;
  try {
    const answer = await fetch(location.href, { headers: { "HX-Request": "true" }, cache: "no-store", signal: AbortSignal.timeout(30000) });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) throw answer;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (busy(now)) dirty = true;
    else {
      for (const one of fresh.querySelectorAll("details[id]")) one.open = document.getElementById(one.id)?.open ?? one.open;
      await htmx.swap({ sourceElement: main, target: main, text: fresh.innerHTML, swap: "innerMorph" });
      document.dispatchEvent(new Event("pitboss:refreshed"));
    }
    failed = false;
    fetched = Date.now();
  } catch {
    failed = dirty = true;
  }
  fetching = false;
  show();
}

// The names of topics that changed; none if the stream is lost.
function changed(names) {
  heard = Date.now();
  live = names.length > 0;
  if (!live || names.some((one) => main.dataset.topics.split(" ").includes(one))) refresh();
}

function tell(names) {
  changed(names);
  channel.postMessage(names);
}

function close() {
  source?.close();
  source = null;
}

function leave() {
  close();
  if (localStorage[key]?.startsWith(me)) localStorage.removeItem(key);
}

// The tab that wrote last leads, and goes on writing. It listens when it finds that no other one wrote after it.
function elect() {
  const now = Date.now(), [who, at] = (localStorage[key] || "").split(" ");
  if (who !== me && now - at < LEADS) return close();
  localStorage[key] = `${me} ${now}`;
  if (who !== me || source || now < opens) return;
  source = new EventSource(`${base}/live`);
  source.addEventListener("changed", ({ data }) => {
    pause = 1000;
    tell(data.split(" "));
  });
  source.onerror = () => {
    close();
    opens = Date.now() + pause;
    pause = Math.min(pause * 2, 30000);
    tell([]);
  };
}

function tick() {
  if (document.hidden) return;
  if (channel) elect();
  // Also after a long silence: the server may have no stream left, or the leader may sleep.
  if (dirty || Date.now() - Math.max(live && heard, fetched) > (live ? LOST_AFTER : POLL)) refresh();
  show();
}

export function start() {
  if (!main.dataset.topics) return;
  sign.hidden = button.hidden = false;
  button.addEventListener("click", toggle);
  try {
    // Where a browser keeps nothing for sites, each tab looks for itself.
    localStorage.getItem(key);
    channel = new BroadcastChannel(key);
    channel.onmessage = ({ data }) => changed(data);
    addEventListener("storage", (event) => event.key === key && !event.newValue && setTimeout(tick, 300 * Math.random()));
    addEventListener("pagehide", leave);
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : tick()));
  } catch {
    live = false;
  }
  setInterval(tick, 1000);
  tick();
  setTimeout(tick, 100);
}
