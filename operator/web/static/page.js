// Enhancements of plain forms: times in the reader's zone, live parts, and drafts. Every page works without this script.
// **Invariant:** a decision that was not confirmed is never sent, and text is never put into the page as markup: all markup is the server's.
(() => {
  "use strict";

  // Times: the reader's own zone in the text, the exact instant in the title.
  const parts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
  const near = new Intl.DateTimeFormat(undefined, parts);
  const far = new Intl.DateTimeFormat(undefined, { ...parts, year: "numeric" });
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  function times(root) {
    for (const element of root.querySelectorAll("time[datetime]:not([data-local])")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const isThisYear = at.getFullYear() === new Date().getFullYear();
      element.textContent = (isThisYear ? near : far).format(at);
      element.title = `${full.format(at)} (${element.dateTime})`;
      element.dataset.local = "";
    }
  }

  // Live parts. The server says that something has changed; what it says comes with an ordinary request.
  function tell(text, label, act) {
    const news = document.getElementById("news");
    if (!news) return;
    const line = document.createElement("p");
    line.append(text);
    if (label) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.addEventListener("click", act);
      line.append(" ", button);
    }
    news.replaceChildren(line);
  }

  // The answer to a form of a request stands at an address that is only for forms.
  function here() { return location.pathname.replace(/\/decide$/, "") + location.search; }

  // One after the other: a change that comes while a part is fetched has it fetched once more, into what is there then.
  let renewing = Promise.resolve();
  const next = new Map();
  function renew(selector) {
    if (next.has(selector)) return next.get(selector);
    const fetched = () => {
      next.delete(selector);
      const part = document.querySelector(selector);
      if (!part) return null;
      const at = part.closest("[data-shown]")?.dataset.shown || here();
      return htmx.ajax("GET", at, { target: selector, select: selector, swap: "outerHTML" });
    };
    renewing = renewing.then(fetched).then(() => times(document), () => {});
    next.set(selector, renewing);
    return renewing;
  }

  // A part that the answer lacks stays as it is.
  document.addEventListener("htmx:before:swap", (event) => {
    if (event.detail.tasks.some((task) => task.fragment.firstElementChild)) return;
    event.preventDefault();
    tell("This page has changed.", "Reload", again);
  });

  const TRIES = 10;
  let source = null;
  let retry = 0;
  function live() {
    clearTimeout(retry);
    source?.close();
    source = null;
    const element = document.querySelector("[data-live]");
    if (!element || !window.EventSource) return;
    const address = element.dataset.live;
    const base = document.title.replace(/^\(\d+\) /, "");
    const shown = Number(element.dataset.count ?? 0);
    let version = element.dataset.version;
    const versions = element.dataset.versions ?? "version";
    let tries = 0;
    const end = () => tell("This page is not live any more: the session may have ended.", "Reload", () => location.reload());
    const open = () => {
      const own = new EventSource(address);
      source = own;
      own.addEventListener("open", () => { tries = 0; });
      own.addEventListener("inbox", (event) => {
        const said = JSON.parse(event.data);
        const count = document.getElementById("waiting");
        if (count) {
          count.textContent = said.waiting;
          count.dataset.count = said.waiting;
        }
        document.title = said.waiting > 0 ? `(${said.waiting}) ${base}` : base;
        if (said[versions] === version) return;
        version = said[versions];
        // What waits is again what this page shows.
        if (version === element.dataset.version) {
          document.getElementById("news")?.replaceChildren();
          return;
        }
        const more = said.waiting - shown;
        const what = more > 0 ? `${more} new ${more === 1 ? "request waits" : "requests wait"} for you.` : "The list has changed.";
        tell(what, "Show", () => fresh().then(() => document.getElementById("list")?.focus()));
      });
      // The parts that change under no finger are renewed at once; a form is never touched.
      own.addEventListener("changed", () => {
        for (const part of document.querySelectorAll("[data-renew]")) renew(`#${part.id}`).then(compare);
      });
      // The browser comes back by itself unless it was refused: then this does, a few times, with growing pauses.
      own.addEventListener("error", async () => {
        if (own.readyState !== EventSource.CLOSED || own !== source) return;
        if (tries >= TRIES || await hasEnded(address)) {
          if (own === source) end();
          return;
        }
        if (own !== source) return;
        tries += 1;
        retry = setTimeout(open, 1000 * Math.min(60, 2 ** tries));
      });
    };
    open();
  }

  // The list as it is now, with what was chosen in it.
  async function fresh() {
    const chosen = [...document.querySelectorAll("#list [name=a]:checked")].map((box) => box.value);
    await renew("#list");
    for (const box of document.querySelectorAll("#list [name=a]")) {
      if (!chosen.includes(box.value)) continue;
      box.checked = true;
      box.closest("details")?.setAttribute("open", "");
    }
    live();
    split();
    mark();
  }

  // An EventSource does not say why it was refused: the same address does.
  async function hasEnded(address) {
    const stop = new AbortController();
    try {
      const { status } = await fetch(address, { signal: stop.signal, cache: "no-store" });
      return status === 401;
    } catch {
      return false;
    } finally {
      stop.abort();
    }
  }

  // A request that changed under an open form is to be read again.
  function compare() {
    const state = document.querySelector("[data-digest]");
    const form = document.querySelector("form[data-draft] [name=digest], .confirm [name=digest]");
    if (state && form && state.dataset.digest !== form.value) {
      tell("This request has changed: read it again before you decide.", "Read it", again);
    }
    const badge = document.querySelector(".top .state");
    if (badge && state?.dataset.phase) {
      badge.className = `state ${state.dataset.phase.toLowerCase()}`;
      badge.firstElementChild.textContent = state.dataset.mark;
      badge.lastChild.textContent = ` ${state.dataset.phase}`;
    }
    const uncounted = document.getElementById("uncounted");
    if (uncounted && state) uncounted.textContent = state.dataset.uncounted ?? "";
    // What each button would come to follows from the votes so far.
    for (const line of (state?.dataset.hints ?? "").split("\n")) {
      const at = line.indexOf("=");
      const hint = at > 0 ? document.getElementById(`to-${line.slice(0, at)}`) : null;
      if (hint) hint.textContent = line.slice(at + 1);
    }
    const closed = document.querySelector("[data-renew][data-closed]");
    const decide = document.getElementById("decide");
    if (closed && decide && !decide.hidden) {
      decide.hidden = true;
      // What would follow from a decision was told before.
      document.querySelector(".boxes")?.remove();
      const form = document.querySelector("form[data-draft]");
      tell(form && draftOf(form) ? "It was decided meanwhile. What you typed is kept as a draft." : "It was decided meanwhile.", "Reload", again);
    }
  }

  // Drafts: of one user, for one version of one request, in this browser only. They are put back, never sent.
  const LIFE = 30 * 24 * 3600 * 1000;
  const PREFIX = "signoff-draft:";
  function key(form) { return `${PREFIX}${document.body.dataset.user}|${form.dataset.draft}`; }
  function fields(form) {
    return [...form.elements].filter((field) => field.name && !["hidden", "submit", "button"].includes(field.type) && field.tagName !== "BUTTON");
  }
  function draftOf(form) {
    try {
      const draft = JSON.parse(localStorage.getItem(key(form)));
      return draft && typeof draft.values === "object" ? draft.values : null;
    } catch { return null; }
  }
  function save(form) {
    const values = {};
    // A form that came back with a problem begins with what was typed: what is in the draft stays there.
    const earlier = draftOf(form) ?? {};
    for (const field of fields(form)) {
      const isChoice = field.type === "radio" || field.type === "checkbox";
      const name = isChoice ? `${field.name}=${field.value}` : field.name;
      const before = isChoice ? field.defaultChecked : field.defaultValue;
      const value = isChoice ? field.checked : field.value;
      if (value !== before || name in earlier) values[name] = value;
    }
    try {
      if (Object.keys(values).length) localStorage.setItem(key(form), JSON.stringify({ at: Date.now(), values }));
      else localStorage.removeItem(key(form));
    } catch { /* A full or forbidden store: then there are no drafts. */ }
  }
  function restore(form) {
    const draft = draftOf(form);
    if (!draft) return;
    let restored = false;
    for (const field of fields(form)) {
      const isChoice = field.type === "radio" || field.type === "checkbox";
      const value = draft[isChoice ? `${field.name}=${field.value}` : field.name];
      if (value === undefined || value === (isChoice ? field.checked : field.value)) continue;
      if (isChoice) field.checked = value === true; else field.value = String(value);
      field.closest("details")?.setAttribute("open", "");
      restored = true;
    }
    if (!restored) return;
    const note = say(form, "status", "Your draft of this decision is back. Nothing was sent. ");
    const drop = document.createElement("button");
    drop.type = "button";
    drop.className = "quiet";
    drop.textContent = "Discard the draft";
    drop.addEventListener("click", () => { localStorage.removeItem(key(form)); form.reset(); note.remove(); });
    note.append(drop);
  }
  // A line above the fields of a form.
  function say(form, role, text) {
    const note = document.createElement("p");
    note.className = "note";
    note.setAttribute("role", role);
    note.append(text);
    form.prepend(note);
    return note;
  }
  function drafts() {
    try {
      for (const name of Object.keys(localStorage)) {
        if (!name.startsWith(PREFIX)) continue;
        let at = 0;
        try { at = JSON.parse(localStorage.getItem(name)).at || 0; } catch { /* Not a draft: it goes. */ }
        if (Date.now() - at > LIFE) localStorage.removeItem(name);
      }
      // The decision was recorded: its drafts have done their work.
      for (const done of document.querySelectorAll("[data-decided]")) {
        const mine = `${PREFIX}${document.body.dataset.user}|${done.dataset.decided}`;
        for (const name of Object.keys(localStorage)) if (name.startsWith(mine)) localStorage.removeItem(name);
      }
    } catch { return; }
    for (const form of document.querySelectorAll("form[data-draft]")) restore(form);
  }
  // Fields can stand outside of their form, and forms come into the page later.
  for (const change of ["input", "change"]) {
    document.addEventListener(change, ({ target }) => { if (target.form?.dataset.draft) save(target.form); });
  }

  // The answer to the first of the two posts comes into the page: the confirmation in the place of the bar, or what is wrong at its
  // field. Every other answer is a page, as without scripts. From the post until Back, what it was made of does not change.
  let byKey = false;
  async function asks(form, button) {
    const isByKey = byKey;
    const fields = new URLSearchParams(new FormData(form));
    fields.append(button.name, button.value);
    const bar = document.getElementById("decide");
    const held = [bar, document.querySelector("[aria-labelledby=answer]")];
    const hold = (on) => { for (const part of held) if (part) part.inert = on; };
    form.querySelector("[role=alert].note")?.remove();
    hold(true);
    const before = document.activeElement;
    let hasTyped = false;
    const types = () => { hasTyped = true; };
    document.addEventListener("keydown", types, true);
    let came = null;
    try {
      const answer = await fetch(form.action, { method: "POST", body: fields });
      came = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch { /* It is told below: this post records nothing. */ }
    document.removeEventListener("keydown", types, true);
    delete form.dataset.sent;
    if (!form.isConnected) return;
    const confirm = came?.querySelector(".confirm");
    if (confirm) {
      const title = document.title;
      if (!pane?.contains(form)) document.title = came.title;
      confirm.className = "confirm decision";
      bar.replaceWith(confirm);
      const back = confirm.querySelector("[data-back]");
      confirm.addEventListener("keydown", ({ key }) => { if (key === "Escape") back.click(); });
      back.addEventListener("click", (event) => {
        event.preventDefault();
        confirm.replaceWith(bar);
        hold(false);
        document.title = title;
        button.focus();
      });
      // A button of the bar that was held has lost the focus to the page.
      const isStill = !hasTyped && [before, document.body].includes(document.activeElement);
      if (isStill || !isField(document.activeElement)) confirm.querySelector("[autofocus]").focus();
      if (isByKey && isStill && isInView(confirm)) ready(confirm);
      return;
    }
    hold(false);
    if (!came) {
      say(form, "alert", "The connection broke. Nothing was sent: try again.");
      button.focus();
    } else if (came.getElementById("problem")) {
      const content = came.getElementById("content");
      if (pane?.contains(form)) {
        content.querySelector("#news")?.remove();
        pane.replaceChildren(...content.childNodes);
      } else {
        document.getElementById("content").replaceWith(content);
        live();
      }
      times(document);
      drafts();
      wrong();
    } else {
      delete form.dataset.asks;
      form.requestSubmit(button);
    }
  }

  // Whether a reader sees the whole of a confirmation.
  function isInView(confirm) {
    const { top, bottom } = confirm.getBoundingClientRect();
    const fits = (part) => part.scrollHeight <= part.clientHeight + 1 && part.scrollWidth <= part.clientWidth + 1;
    const isWhole = !confirm.matches("[data-cut], :has([role=alert])") && top >= 0 && bottom <= innerHeight + 1;
    return isWhole && [confirm, ...confirm.querySelectorAll("[tabindex='0']")].every(fits);
  }

  // Who has opened a confirmation with a letter can press Enter in it: after a moment in which no key was pressed, its button has the
  // focus. Text that somebody types leads to its heading and stays there. Escape goes back.
  const PAUSE = 400;
  function ready(confirm) {
    const heading = confirm.querySelector("[autofocus]");
    const send = confirm.querySelector("form button:not([name])");
    let later = 0;
    const soon = () => {
      clearTimeout(later);
      later = setTimeout(() => { if (document.activeElement === heading) send.focus(); }, PAUSE);
    };
    soon();
    heading.addEventListener("keydown", ({ key }) => { if (key === "Enter") soon(); else clearTimeout(later); });
    send.addEventListener("keydown", (event) => {
      if (["Enter", "Tab", "Shift", "Escape"].includes(event.key)) return;
      event.preventDefault();
      heading.focus();
    });
  }

  // A second click of a double click is none: the confirmation may have come under the pointer meanwhile.
  document.addEventListener("click", (event) => {
    if (event.detail > 1 && event.target.closest(".confirm form button:not([name])")) event.preventDefault();
  }, true);

  // The pane has the focus, and is moved no further than into view.
  function look() {
    pane.focus({ preventScroll: true });
    pane.scrollIntoView({ block: "nearest" });
  }

  const isField = (element) => element?.matches("input, textarea, select") ?? false;

  // The second of the two posts, beside the list: what follows opens beside it too, unless its reader has chosen another request.
  async function records(form) {
    const own = new URL(form.action).pathname.replace(/\/decide$/, "");
    const fields = new URLSearchParams(new FormData(form));
    // What its own vote changes is no news.
    follows?.close();
    follows = null;
    let answer = null;
    let came = null;
    try {
      answer = await fetch(form.action, { method: "POST", body: fields });
      came = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch { /* It is told below. */ }
    const at = answer ? new URL(answer.url) : null;
    const isRecorded = answer?.redirected && /^\/n\/[^/]+\/a\/[^/]+$/.test(at.pathname);
    if (answer?.redirected && !isRecorded || came?.body.dataset.user && came.body.dataset.user !== document.body.dataset.user) {
      location.assign(at);
      return;
    }
    const content = came?.getElementById("content");
    if (!content || isRecorded && !answer.ok) {
      if (!form.isConnected) return;
      const what = isRecorded ? "Your decision is recorded. The next request cannot be shown now. " : "It is not known whether your decision was recorded. ";
      const read = say(form, "alert", what).appendChild(document.createElement("button"));
      Object.assign(read, { type: "button", textContent: "Read the request again", onclick: () => choose(own) });
      read.focus();
      return;
    }
    let isShown = false;
    renewing = renewing.catch(() => {}).then(() => {
      isShown = pane.dataset.at === own;
      if (!isShown) return;
      pane.replaceChildren(...[...content.children].filter((part) => !part.matches("[data-shell]")));
      pane.dataset.at = pane.dataset.shown = isRecorded ? at.pathname : own;
      mark();
      opened();
      pane.querySelector(".confirm [data-back]")?.addEventListener("click", (event) => { event.preventDefault(); choose(own); });
      if (isField(document.activeElement)) return;
      const wrong = pane.querySelector("[aria-invalid], #problem, .confirm [autofocus]");
      scrollTo({ top: 0 });
      if (wrong) wrong.focus(); else look();
    });
    await renewing;
    // No text that is typed into the list is lost.
    if (!document.activeElement.matches("#list input:not([type=checkbox])")) await fresh();
    if (!isShown) tell(isRecorded ? "Your decision is recorded." : "Your decision was answered.", "See it", () => choose(own));
  }

  // What is wrong is shown, not only told.
  function wrong() { (document.querySelector("[aria-invalid]") ?? document.getElementById("problem"))?.focus(); }

  // Two panes: the chosen request opens beside the list, as the server makes its page. Otherwise its line is a link.
  const wide = matchMedia("(min-width: 1000px)");
  const pane = document.getElementById("pane");
  const current = "#list a.what[aria-current]";
  let follows = null;
  let choice = 0;
  const opens = () => pane && !pane.hidden && wide.matches;
  function split() { if (pane && window.htmx) pane.hidden = !pane.dataset.at && !document.querySelector("#list a.what"); }
  function mark() {
    document.querySelector(current)?.removeAttribute("aria-current");
    const link = pane?.dataset.at ? document.querySelector(`#list a.what[href="${pane.dataset.at}"]`) : null;
    link?.setAttribute("aria-current", "true");
    link?.closest("details")?.setAttribute("open", "");
  }
  function again() {
    if (opens() && pane.dataset.at) choose(pane.dataset.at); else location.assign(here());
  }
  // Of requests that are chosen one after the other, only the last is shown.
  function choose(at) {
    clearTimeout(choice);
    pane.dataset.at = at;
    mark();
    renewing = renewing.catch(() => {}).then(async () => {
      if (pane.dataset.at !== at) return;
      const before = pane.firstElementChild;
      follows?.close();
      const what = { target: "#pane", select: "#content > :not([data-shell])", swap: "innerHTML ignoreTitle:true" };
      await htmx.ajax("GET", at, what).catch(() => {});
      const isShown = pane.firstElementChild !== before;
      pane.dataset.shown = isShown ? at : "";
      if (!isShown) {
        pane.replaceChildren();
        tell("The request could not be opened.", "Try again", again);
        return;
      }
      opened();
    });
    return renewing;
  }
  // A request came into the pane: it is live. News are told in the list.
  function opened() {
    const news = pane.querySelector("#news");
    news?.remove();
    // Read aloud when the pane gets the focus.
    if (pane.querySelector("#after")) pane.setAttribute("aria-describedby", "after"); else pane.removeAttribute("aria-describedby");
    pane.scrollTop = 0;
    times(pane);
    drafts();
    compare();
    if (!news?.dataset.live) return;
    const own = new EventSource(news.dataset.live);
    follows = own;
    own.addEventListener("changed", () => {
      for (const part of pane.querySelectorAll("[data-renew]")) renew(`#${part.id}`).then(compare);
    });
    own.addEventListener("error", () => {
      if (own === follows && own.readyState === EventSource.CLOSED) tell("The request is not live any more.", "Read it again", again);
    });
  }
  function panes() {
    split();
    document.addEventListener("click", (event) => {
      const link = event.target.closest("#list a.what");
      if (!link || !opens() || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      choose(link.pathname).then(look);
    });
  }

  // Keys: they move, and open the first step of a decision. They send none, and do nothing while a field has the focus.
  function keys() {
    const dialog = document.getElementById("keys");
    if (!dialog) return;
    const kept = (area, name, value) => { try { return value === undefined ? window[area].getItem(name) : window[area].setItem(name, value); } catch { return null; } };
    const find = (selector) => document.querySelector(selector);
    const own = `${document.body.dataset.user}|`;
    let on = kept("localStorage", "signoff-keys") !== "off";
    if (find("#list")) kept("sessionStorage", "signoff-list", own + location.search);
    const box = dialog.querySelector("input");
    box.checked = on;
    box.addEventListener("change", () => { on = box.checked; kept("localStorage", "signoff-keys", on ? "on" : "off"); });
    dialog.querySelector("button").addEventListener("click", () => dialog.close());
    const button = find("[data-keys]");
    button.hidden = false;
    const help = () => dialog.showModal();
    button.addEventListener("click", help);

    const chosen = () => document.activeElement.closest("#list .request")?.querySelector("a.what") ?? find(current);
    function move(by) {
      const stops = [...document.querySelectorAll("#list a.what, #list .more summary")].filter((stop) => stop.checkVisibility());
      const at = stops.indexOf(document.activeElement);
      const next = stops[(at < 0 ? stops.indexOf(chosen()) : at) + by];
      if (!next) return;
      next.focus();
      next.scrollIntoView({ block: "nearest" });
      clearTimeout(choice);
      if (opens() && next.matches("a")) choice = setTimeout(() => choose(next.pathname), 150);
    }
    async function decide(verdict) {
      clearTimeout(choice);
      let root = document;
      if (find("#list")) {
        const link = chosen();
        if (link && !opens()) { location.assign(link.href); return; }
        // The next request opens by itself, and need not be in this part of the list.
        if (link && pane.dataset.shown !== link.pathname) choose(link.pathname);
        await renewing;
        // Only what is shown is decided.
        if (!opens() || !pane.dataset.shown || link && pane.dataset.shown !== link.pathname || chosen()?.pathname !== link?.pathname) return;
        root = pane;
      }
      // A confirmation is no first step: there a key presses nothing.
      const first = root.querySelector(`form[data-draft]:not(:has([name=confirmed])) button[name=verdict][value=${verdict}]`);
      const way = first?.closest("details");
      if (!way) {
        byKey = true;
        first?.click();
        byKey = false;
        return;
      }
      way.open = true;
      way.querySelector("textarea, input:not([type=hidden])")?.focus();
    }
    const acts = {
      j: () => move(1),
      k: () => move(-1),
      "/": () => find("#find")?.focus(),
      a: () => decide("Approve"),
      r: () => decide("Reject"),
      m: () => decide("Modify"),
      x: () => chosen()?.closest("li").querySelector("[name=a]")?.click(),
      u: () => {
        const list = find("#list");
        const last = kept("sessionStorage", "signoff-list") ?? "";
        const link = chosen();
        if (list) (link?.checkVisibility() ? link : list).focus();
        else location.assign(`/${last.startsWith(own) ? last.slice(own.length) : ""}`);
      },
      "?": help,
    };
    document.addEventListener("keydown", (event) => {
      const act = acts[event.key];
      if (!act || !on || dialog.open || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
      const field = event.target.closest("input, textarea, select, [contenteditable]");
      if (event.repeat && !"jk".includes(event.key) || field && !field.matches("#list [name=a]")) return;
      event.preventDefault();
      act();
    });
  }

  // One click, one decision: a second one would only be refused.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent !== undefined) { event.preventDefault(); return; }
    form.dataset.sent = "";
    const isConfirmed = opens() && pane.contains(form) && form.closest(".confirm") && !event.submitter?.name;
    if (!isConfirmed && (form.dataset.asks === undefined || !event.submitter)) return;
    event.preventDefault();
    if (isConfirmed) records(form); else asks(form, event.submitter);
  });
  // What a reader unfolds in the bar stays in view.
  document.addEventListener("toggle", ({ target }) => {
    if (target.open && target.matches(".decision details") && target.contains(document.activeElement)) target.scrollIntoView({ block: "nearest" });
  }, true);
  window.addEventListener("pageshow", (event) => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
    // The answer to a form is not asked for again.
    if (event.persisted && !/\/(decide|change)$/.test(location.pathname)) location.reload();
  });

  wrong();
  times(document);
  drafts();
  live();
  compare();
  panes();
  keys();
  // The reader has decided: the next request is one key away.
  document.querySelector("#instead a")?.focus({ preventScroll: true });
})();
