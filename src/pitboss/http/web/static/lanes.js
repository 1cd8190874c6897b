// Moves batches.
const on = addEventListener, row = ({ target }) => target.closest("[data-lane]");
let from = null;
// The batch before which the dragged one goes, "" at the end of its lane. Where a list is cut, what follows is unknown.
function onto(event) {
  const to = row(event);
  if (to === from || to?.dataset.lane !== from?.dataset.lane) return;
  const at = from.rowIndex < to.rowIndex ? to.nextElementSibling : to;
  const before = at?.dataset.lane === to.dataset.lane ? at.id.slice(6) : "";
  if (before || "last" in to.dataset) return event.preventDefault(), { before };
}
on("dragstart", (event) => (from = row(event)));
on("dragend", () => (from = null));
on("dragover", onto);
on("drop", (event) => {
  const found = onto(event), form = from?.querySelector("form");
  if (!found) return;
  form.before.value = found.before;
  form.to.value = found.before ? "before" : "bottom";
  form.requestSubmit();
});
on("keydown", (event) => {
  event.altKey && !event.target.matches("input") && row(event)?.querySelectorAll(".moves button")[["ArrowUp", "ArrowDown"].indexOf(event.key)]?.click();
});
