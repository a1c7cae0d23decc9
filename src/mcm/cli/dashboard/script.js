// Replaces the content of the page by that of a new request, and copies commands. Without script the browser loads the page again.
"use strict";
const EVERY = 3000;
document.documentElement.classList.add("script");
// The deployment that is read stays, whichever is the worst later.
function stay() {
  const query = document.body.dataset.query;
  if (query && !location.search) history.replaceState(null, "", query);
}
// What has the focus, so that it can be found in the next content.
const nameOf = (one) => one && (one.getAttribute("href") || one.getAttribute("aria-label"));
function gone() {
  if (document.getElementById("gone")) return;
  const note = document.createElement("p");
  note.id = "gone";
  note.className = "silence";
  note.setAttribute("role", "alert");
  const since = new Date().toISOString().slice(11, 19);
  note.textContent = `no answer of mcm dashboard since ${since} UTC: this is its last page. Does the program still run?`;
  document.body.prepend(note);
  document.title = "mcm · no answer";
}
async function refresh() {
  if (!document.hidden && !String(document.getSelection())) {
    try {
      const response = await fetch(location.href, {cache: "no-store"});
      if (!String(response.headers.get("content-type")).startsWith("text/html")) throw response;
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      const focused = nameOf(document.activeElement);
      document.body.replaceChildren(...next.body.childNodes);
      document.title = next.title;
      if (focused) {
        const same = [...document.querySelectorAll("a, button")].find((one) => nameOf(one) === focused);
        if (same) same.focus();
      }
    } catch {
      gone();
    }
  }
  setTimeout(refresh, EVERY);
}
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
  } catch {
    document.getSelection().selectAllChildren(button.previousElementSibling);
  }
});
stay();
setTimeout(refresh, EVERY);
