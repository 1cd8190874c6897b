// Queued batches move by dragging a row in its lane, and by Alt with an arrow key.
const row = ({ target }) => target.closest("[data-lane]");
let from = null;
function onto(event) {
  const to = row(event);
  if (to === from || to?.dataset.lane !== from?.dataset.lane) return;
  event.preventDefault();
  return to;
}
addEventListener("dragstart", (event) => (from = row(event)));
addEventListener("dragover", onto);
addEventListener("drop", (event) => {
  let to = onto(event);
  if (!to) return;
  if (from.rowIndex < to.rowIndex) to = to.nextElementSibling;
  const form = from.querySelector("form"), next = to?.dataset.lane === from.dataset.lane;
  form.to.value = next ? "before" : "bottom";
  form.before.value = next ? to.id.slice(6) : "";
  form.requestSubmit();
});
addEventListener("keydown", (event) => {
  const place = ["ArrowUp", "ArrowDown"].indexOf(event.key);
  event.altKey && row(event)?.querySelectorAll(".moves button")[place]?.click();
});
