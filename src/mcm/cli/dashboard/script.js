// Replaces the content of the page by that of a new request. Without script the browser loads it again.
"use strict";
const EVERY = 3000;
async function refresh() {
  if (!document.hidden && !String(document.getSelection())) {
    try {
      const response = await fetch(location.href, {cache: "no-store"});
      const next = new DOMParser().parseFromString(await response.text(), "text/html");
      const focused = document.activeElement && document.activeElement.getAttribute("href");
      document.body.replaceChildren(...next.body.childNodes);
      document.title = next.title;
      if (focused) {
        const link = [...document.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused);
        if (link) link.focus();
      }
    } catch {
      document.title = "mcm · no answer";
    }
  }
  setTimeout(refresh, EVERY);
}
setTimeout(refresh, EVERY);
