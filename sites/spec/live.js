(() => {
const make = name => document.createElement(name);
for (const table of document.querySelectorAll("[data-live=sort]")) {
const heads = [...table.tHead.rows[0].cells], rows = table.tBodies[0];
const order = new Intl.Collator(document.documentElement.lang, {numeric: true}).compare;
heads.forEach((head, at) => {
if (!head.hasAttribute("data-sort")) return;
const button = make("button");
button.type = "button";
button.append(...head.childNodes);
head.append(button);
const key = row => row.cells[at].dataset.key ?? row.cells[at].textContent;
button.addEventListener("click", () => {
const turn = head.ariaSort === "ascending" ? -1 : 1;
heads.forEach(it => { it.ariaSort = null; });
head.ariaSort = turn > 0 ? "ascending" : "descending";
rows.append(...[...rows.rows].sort((a, b) => turn * (key(a) - key(b) || order(key(a), key(b)))));
});
});
}
for (const list of document.querySelectorAll("[data-live=hours]")) {
const said = list.dataset, state = make("p");
state.className = "hours-state";
list.before(state);
const clock = new Intl.DateTimeFormat("en-GB", {timeZone: said.zone, weekday: "short", day: "2-digit",
month: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const show = () => {
const now = Object.fromEntries(clock.formatToParts().map(part => [part.type, part.value]));
const day = "MonTueWedThuFriSatSun".indexOf(now.weekday) / 3;
const minute = now.hour * 60 + +now.minute;
let known = !/^(24|25|26|31)12|^0101/.test(now.day + now.month), open = false, told = false;
for (const row of list.children) {
const {days, times} = row.dataset, today = days.includes(day);
row.ariaCurrent = today ? "date" : null;
told ||= today && times != "?";
for (const span of times.split(" ")) {
const [from, to] = span.split("-");
open ||= (today && minute >= from && minute < to) || (days.includes((day + 6) % 7) && minute + 1440 < to);
}
}
state.textContent = known && told ? (open ? said.open : said.closed) : "";
state.classList.toggle("hours-open", open);
};
show();
setInterval(show, 6e4);
}
})();
