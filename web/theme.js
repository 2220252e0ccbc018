/* Runs before the first pixel, so that a chosen theme does not flash in the other one. */
"use strict";
(function () {
    let theme = null;
    try {
        theme = localStorage.getItem("avocet.theme");
    } catch (error) {
        /* Storage may be forbidden; the system's theme then holds. */
    }
    if (theme === "light" || theme === "dark")
        document.documentElement.dataset.theme = theme;
})();
