"""How a study's report looks: the style sheet, and the script that draws the charts.

Charts keep their notes in the margin on a laptop and below them on a phone. Tables scroll in their own box, the page
never sideways. Dark paper is for screens only: printed pages are always light.
"""

STYLE = """
:root { color-scheme: light dark;
  --paper: #fffefb; --ink: #1f1e1c; --soft: #66635c; --rule: #e3dfd6; --tint: #f7f4ed;
  --blue: #3b82c4; --good: #2d7a4b; --bad: #b2412b; --warn: #94690a; --good-tint: #edf5ee; --bad-tint: #fbefeb; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #17181a; --ink: #e7e4de; --soft: #a5a198; --rule: #34363a; --tint: #1f2124;
  --blue: #6aa5dc; --good: #74c493; --bad: #ea8b75; --warn: #dcae55; --good-tint: #1a2620; --bad-tint: #2a1d1a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 1.6rem 1.5rem 4rem; }
h1, h2, .verdict b { font-family: "Iowan Old Style", Charter, "Palatino Linotype", Georgia, "Times New Roman", serif; }
h1 { font-size: 1.9rem; font-weight: 600; line-height: 1.15; margin: 0; }
h2 { font-size: 1.35rem; font-weight: 600; line-height: 1.2; margin: 0 0 .8rem; }
h3 { font-size: .72rem; font-weight: 600; letter-spacing: .07em; text-transform: uppercase; color: var(--soft);
  margin: 0 0 .35rem; }
p { margin: 0 0 .8rem; max-width: 46rem; } ul { margin: 0 0 1rem; padding-left: 1.1rem; } li { margin-bottom: .25rem; }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .15em; }
small, .quiet { color: var(--soft); font-size: .84rem; }
code, pre { font: .8rem/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
pre { margin: 0; white-space: pre; }
section { border-top: 1px solid var(--rule); padding-top: 1.1rem; margin-top: 2.2rem; }
header { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: .2rem 1.5rem; }
header p { margin: 0; }
nav { margin: 1.1rem 0 0; font-size: .84rem; line-height: 1.9; color: var(--soft); }
nav a { margin-right: .9rem; text-decoration: none; white-space: nowrap; }
nav a:hover { text-decoration: underline; }
h1, p, li, dt, dd, code, figcaption { overflow-wrap: anywhere; }
.missing { color: var(--soft); font-style: italic; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); } .none { color: var(--soft); }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: 3px; padding: 0 .4em;
  font-size: .78em; font-weight: 600; letter-spacing: .04em; text-transform: uppercase; }
.verdict { margin-top: 1rem; padding: 1.1rem 1.3rem 1rem; border-left: 6px solid var(--soft); background: var(--tint); }
.verdict.good { border-color: var(--good); background: var(--good-tint); }
.verdict.bad { border-color: var(--bad); background: var(--bad-tint); }
.verdict b { display: block; font-size: 1.75rem; line-height: 1.15; letter-spacing: .03em; }
.verdict > p { color: var(--ink); font-size: 1.05rem; margin: .3rem 0 .7rem; }
.verdict > p.quiet { color: var(--soft); font-size: .84rem; margin: 0; } .verdict table { color: var(--ink); }
.gates :is(td, th):first-child, .signs :is(td, th):first-child { width: 1.8rem; padding-right: .5rem; }
.gates td:last-child { color: var(--soft); }
.sign { font-weight: 700; font-size: 1.05em; }
table { border-collapse: collapse; font-size: .87rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; font-size: .76rem; color: var(--soft); white-space: nowrap; }
th, td { padding: .26rem 1.1rem .26rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
.box { overflow-x: auto; margin: 0 0 .9rem; max-width: 100%; }
.box.gates table, .box.wide table, .box.days table, .box.bars table { width: 100%; }
.box.days td, .box.paths td, .box.bars td, .box.times td:first-child { white-space: nowrap; }
.box.days { max-height: 23rem; overflow-y: auto; border-bottom: 1px solid var(--rule); }
.box.gaps { max-height: 12rem; overflow: auto; border-bottom: 1px solid var(--rule); }
.box.days th { position: sticky; top: 0; background: var(--paper); }
.box.bars td:last-child { width: 55%; min-width: 5rem; vertical-align: middle; }
.bar { display: block; height: .62rem; background: var(--blue); opacity: .8; } .bar.bad { background: var(--bad); }
.facts { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .9rem 1.8rem; margin: 0 0 1.2rem; }
.facts.close { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.facts dt { font-size: .78rem; color: var(--soft); }
.facts dd { margin: 0; } .facts strong { display: block; font-weight: 600; font-size: 1.08rem; line-height: 1.35; }
.facts small { display: block; line-height: 1.4; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); gap: 1.2rem 2.4rem;
  margin-bottom: 1rem; align-items: start; }
.columns > * { min-width: 0; }
.settings { columns: 3 17rem; column-gap: 2.4rem; margin-bottom: 1rem; }
.settings .pairs { break-inside: avoid; padding-bottom: 1.1rem; }
.pairs dl { display: grid; grid-template-columns: minmax(0, auto) minmax(0, 1fr); margin: 0; font-size: .85rem;
  line-height: 1.4; }
.pairs dt { color: var(--soft); padding-right: 1rem; }
.pairs dd { margin: 0; text-align: right; max-height: 7rem; overflow-y: auto; }
.pairs dt, .pairs dd { border-bottom: 1px solid var(--rule); padding-top: .16rem; padding-bottom: .16rem; }
figure { margin: 0 0 1.2rem; display: grid; grid-template-columns: minmax(0, 1fr) 14.5rem; gap: 0 2rem;
  align-items: start; break-inside: avoid; }
figure > div { min-width: 0; }
figcaption { color: var(--soft); font-size: .84rem; line-height: 1.45; padding-top: .3rem; }
figcaption span { display: block; margin-top: .55rem; } figcaption em { color: var(--bad); font-style: normal; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: 0 0 .2rem; font-size: .8rem; color: var(--soft);
  max-width: none; }
.key i { display: inline-block; vertical-align: middle; margin: -.15em .4em 0 0; width: 1.1rem; }
.key .line { border-top: 2.5px solid; } .key .thin { border-top-width: 1px; } .key .dash { border-top-style: dashed; }
.key .dot { width: .55rem; height: .55rem; border-radius: 50%; background: currentColor; }
.key .block { width: .7rem; height: .7rem; background: currentColor; }
.key .tick { width: 0; height: .8rem; border-left: 2.5px solid; }
.key .ring { width: .75rem; height: .75rem; border: 2.5px solid; border-radius: 50%; }
.key .cross { width: auto; font-style: normal; } .key .cross::before { content: "×"; }
.chart g[class$="tick"] text, .chart text[class$="title"] { fill: var(--soft) !important; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: .9rem; }
@media (max-width: 800px) {
  main { padding: 1.1rem 1rem 3rem; }
  h1 { font-size: 1.55rem; } .verdict { padding: .9rem 1rem; } .verdict b { font-size: 1.4rem; }
  figure { grid-template-columns: minmax(0, 1fr); }
  .facts:not(.close) { grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
  section { margin-top: 1.8rem; }
  .gates thead { display: none; }
  .gates tr { display: grid; grid-template-columns: 1.5rem 1fr auto 3.6rem; border-bottom: 1px solid var(--rule); }
  .gates td { border: 0; padding: .2rem 0; } .gates td.n { padding-left: .6rem; }
  .gates td:last-child { grid-column: 2 / -1; padding-top: 0; } }
@media print {
  :root { --paper: #fff; } body { font-size: 10.5pt; } main { max-width: none; padding: 0; } nav { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, .columns { grid-template-columns: minmax(0, 1fr); } figure:has(.days) { break-inside: auto; }
  .box, .box.days, .box.gaps, .pairs dd { overflow: visible; max-height: none; }
  h2, h3, section > p { break-after: avoid; break-inside: avoid; } tr, .facts, .pairs { break-inside: avoid; } }
"""

# Charts stand beside their data. A chart that reacts to a finger would keep the page from being scrolled, and paper
# is narrower than most windows.
SCRIPT = """
const touch = matchMedia("(pointer: coarse)").matches;
const charts = [...document.querySelectorAll(".chart")];
for (const chart of charts) {
  const figure = JSON.parse(chart.nextElementSibling.textContent);
  if (touch) {
    figure.layout.dragmode = false;
    for (const key of Object.keys(figure.layout)) if (/axis/.test(key)) figure.layout[key].fixedrange = true;
  }
  Plotly.newPlot(chart, figure.data, figure.layout, {responsive: true, displayModeBar: false});
}
const width = pixels => charts.forEach(chart => Plotly.relayout(chart, {width: pixels, autosize: !pixels}));
addEventListener("beforeprint", () => width(640));
addEventListener("afterprint", () => width(null));
"""
