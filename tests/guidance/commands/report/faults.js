// What is wrong with the page that this is evaluated in: overflow, charts that are empty, clipped or hard to read, pale text.
(() => {
  const faults = [];
  const name = (node) => `${node.tagName}.${node.getAttribute("class")} ${node.textContent.trim().slice(0, 40)}`;
  const wide = () => {
    const whole = document.documentElement.scrollWidth;
    if (whole > innerWidth) faults.push(`the page is ${whole} wide`);
    for (const node of document.body.querySelectorAll("*")) {
      const box = node.getBoundingClientRect();
      const out = box.right > innerWidth + 1 || box.left < -1;
      if (box.width && !node.closest("thead") && out) faults.push(`out of the page: ${name(node)}`);
    }
  };
  const inside = () => {
    for (const table of document.querySelectorAll("table")) {
      const [box, room] = [table, table.parentElement].map((node) => node.getBoundingClientRect());
      if (box.right > room.right + 1) faults.push(`too wide: ${name(table)}`);
    }
  };
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  wide();
  const charts = [...document.querySelectorAll("svg.chart")];
  for (const chart of charts) {
    const title = chart.querySelector("title").textContent, frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    if (texts.length < 4 || frame.height < 60) faults.push(`${title}: hardly a chart`);
    const marks = [...chart.querySelectorAll("path, use")].filter((node) => {
      const box = node.getBoundingClientRect();
      const data = /-(val|test|train|right|wrong|accepted|refused|seen|ink)\b/;
      return box.width + box.height > 3 && data.test(node.getAttribute("class"));
    });
    if (!marks.length) faults.push(`${title}: nothing is drawn`);
    const size = parseFloat(getComputedStyle(chart.querySelector("text")).fontSize);
    if (size * frame.width / chart.viewBox.baseVal.width < 9) faults.push(`${title}: letters too small to read`);
    texts.forEach(([one, box], i) => {
      const out = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
      if (out > 1) faults.push(`${title}: ${one} is cut off`);
      for (const [other, its] of texts.slice(i + 1)) if (meet(box, its)) faults.push(`${title}: ${one} lies on ${other}`);
    });
  }
  // Contrast: WCAG 2.2, relative luminance.
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\d.]+/g).slice(0, 3).map((c) => linear(c / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (node) => {
    const colour = getComputedStyle(node).backgroundColor;
    return /, 0\)$/.test(colour) && node.parentElement ? behind(node.parentElement) : colour;
  };
  const texts = "h1, h2, h3, p, a, td, th, dt, dd, summary, figcaption, caption, ins, del, .tag, .soft, text";
  for (const node of document.querySelectorAll(texts)) {
    const style = getComputedStyle(node), ink = node.tagName === "text" ? style.fill : style.color;
    const under = node.closest("svg") ? node.closest("figure") : node;
    const [high, low] = [light(ink), light(behind(under))].sort((a, b) => b - a);
    if ((high + 0.05) / (low + 0.05) < 4.5) faults.push(`too pale: ${name(node)}`);
  }
  const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
  for (const node of document.querySelectorAll("details")) node.open = true;
  wide();
  inside();
  return {faults: [...new Set(faults)], charts: charts.length, scripts: document.scripts.length, load,
          scheme: getComputedStyle(document.body).backgroundColor};
})()
