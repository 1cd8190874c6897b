// Moves batches.
const on = addEventListener, row = ({ target }) => target.closest("[data-lane]");
let from = null;
function onto(event) {
  const to = row(event);
  if (to !== from && to?.dataset.lane === from?.dataset.lane) return event.preventDefault(), to;
}
on("dragstart", (event) => (from = row(event)));
on("dragover", onto);
on("drop", (event) => {
  const to = onto(event);
  if (!to) return;
  const at = from.rowIndex < to.rowIndex ? to.nextElementSibling : to, form = from.querySelector("form");
  form.before.value = at?.dataset.lane === from.dataset.lane ? at.id.slice(6) : "";
  form.to.value = form.before.value ? "before" : "bottom";
  form.requestSubmit();
});
on("keydown", (event) => {
  event.altKey && row(event)?.querySelectorAll(".moves button")[["ArrowUp", "ArrowDown"].indexOf(event.key)]?.click();
});
