"use strict";
// Filters of the index, the search page, and what is near an asset in the graph. Without this script the pages list
// everything all the same.

function filterExperiments() {
  const form = document.getElementById("filters");
  if (!form) return;
  const cards = [...document.querySelectorAll("#experiments > li")];
  const chosen = (name) => [...form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);
  const apply = () => {
    const verdicts = chosen("verdict");
    const tags = chosen("tag");
    for (const card of cards) {
      const own = card.dataset.tags.split(" ");
      const verdictFits = !verdicts.length || verdicts.includes(card.dataset.verdict);
      card.hidden = !(verdictFits && (!tags.length || tags.some((tag) => own.includes(tag))));
    }
    const shown = cards.filter((card) => !card.hidden).length;
    document.getElementById("shown").textContent = `${shown} of ${cards.length} experiments`;
  };
  form.hidden = !cards.length;
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

const MOST_RESULTS = 50;

function* searched(index) {
  for (const one of index.experiments) {
    yield { kind: "Experiments", title: one.title, detail: `${one.verdict}. ${one.about[0] || one.about[1]}`, page: one.page,
            text: [one.title, one.verdict, ...one.about].join(" ") };
  }
  const { reasons, classes, rows } = index.failures;
  for (const [label, exitClass, reason, record] of rows) {
    yield { kind: "Failures", title: `${label}: ${classes[exitClass]}`, detail: reasons[reason], page: `runs/${record}.html`,
            text: `${label} ${classes[exitClass]} ${reasons[reason]}` };
  }
  for (const [name, { folder, newest }] of Object.entries(index.artifacts)) {
    for (const [partition, fingerprint] of newest) {
      yield { kind: "Artifacts", title: partition ? `${name} [${partition}]` : name, detail: fingerprint,
              page: `${folder}/${fingerprint}.html`, text: `${name} ${partition} ${fingerprint}` };
    }
  }
}

function show(found) {
  const results = document.getElementById("results");
  results.replaceChildren();
  for (const kind of ["Experiments", "Failures", "Artifacts"]) {
    const all = found.filter((one) => one.kind === kind);
    if (!all.length) continue;
    const heading = document.createElement("h2");
    heading.textContent = `${kind} (${all.length})`;
    const list = document.createElement("ul");
    for (const one of all.slice(0, MOST_RESULTS)) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = one.page;
      link.textContent = one.title;
      const detail = document.createElement("div");
      detail.className = "quiet";
      detail.textContent = one.detail;
      item.append(link, detail);
      list.append(item);
    }
    results.append(heading, list);
    if (all.length > MOST_RESULTS) {
      const more = document.createElement("p");
      more.textContent = `The first ${MOST_RESULTS}; add a word to see fewer.`;
      results.append(more);
    }
  }
}

function search() {
  const results = document.getElementById("results");
  if (!results || !window.searchIndex) return;
  const field = document.getElementById("find");
  const all = [...searched(window.searchIndex)].map((one) => ({ ...one, text: one.text.toLowerCase() }));
  const run = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? all.filter((one) => words.every((word) => one.text.includes(word))) : [];
    show(found);
    document.getElementById("found").textContent = words.length ? `${found.length} found` : "";
  };
  field.value = new URLSearchParams(location.search).get("q") || "";
  field.addEventListener("input", run);
  field.form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  run();
}

function pointOutNeighbours() {
  const edges = [...document.querySelectorAll(".edges path")];
  for (const node of document.querySelectorAll(".node")) {
    const near = (on) => {
      for (const edge of edges) {
        if ([edge.dataset.from, edge.dataset.to].includes(node.dataset.name)) edge.classList.toggle("near", on);
      }
    };
    for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => near(true));
    for (const event of ["mouseleave", "blur"]) node.addEventListener(event, () => near(false));
  }
}

filterExperiments();
search();
pointOutNeighbours();
