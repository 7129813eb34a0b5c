// What scrolls sideways can be scrolled with the keyboard.
"use strict";
function reachable() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .cell_output .output")) {
    if (box.scrollWidth > box.clientWidth + 1) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", box.tagName === "PRE" ? "code" : "table");
    } else {
      box.removeAttribute("tabindex");
      box.removeAttribute("role");
      box.removeAttribute("aria-label");
    }
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
