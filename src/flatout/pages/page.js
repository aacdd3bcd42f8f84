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
