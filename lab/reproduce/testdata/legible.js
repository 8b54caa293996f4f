// Returns one line for each thing on the page that a reader cannot make out.
(() => {
  const faults = [];
  const wide = innerWidth >= 1280;
  // Corners of a text on the screen. A text that stands aslant has them aslant, too.
  const corners = t => {
    const b = t.getBBox(), m = t.getScreenCTM();
    const at = (x, y) => ({ x: m.a * x + m.c * y + m.e, y: m.b * x + m.d * y + m.f });
    return [at(b.x, b.y), at(b.x + b.width, b.y), at(b.x + b.width, b.y + b.height), at(b.x, b.y + b.height)];
  };
  const far = (p, q) => Math.hypot(p.x - q.x, p.y - q.y);
  // Two boxes lie over each other unless a line along one of their sides parts them. Boxes have room above and below letters: a fifth of it may be shared.
  const over = (p, q) => {
    for (const box of [p, q]) {
      for (const [i, j] of [[0, 1], [0, 3]]) {
        const l = far(box[i], box[j]) || 1, ax = (box[j].x - box[i].x) / l, ay = (box[j].y - box[i].y) / l;
        const range = c => { const d = c.map(k => k.x * ax + k.y * ay); return [Math.min(...d), Math.max(...d)]; };
        const [a, b] = range(p), [c, d] = range(q);
        if (Math.min(b, d) - Math.max(a, c) <= 0.2 * Math.min(far(p[0], p[3]), far(q[0], q[3]))) return false;
      }
    }
    return true;
  };
  const light = c => {
    const v = c.match(/[\d.]+/g).slice(0, 3).map(x => { x /= 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  for (const svg of document.querySelectorAll('svg')) {
    const name = svg.getAttribute('aria-label') || 'a picture', box = svg.getBoundingClientRect(), paper = svg.querySelector('rect.p');
    if (box.width === 0) continue; // in a part that is folded
    const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim() && t.getBBox().width > 0).map(t => ({ t, c: corners(t), s: t.textContent.trim() }));
    for (const a of texts) {
      if (a.c.some(k => k.x < box.left - 1 || k.x > box.right + 1 || k.y < box.top - 1 || k.y > box.bottom + 1)) faults.push(`${name}: "${a.s}" lies outside of its picture`);
      const high = far(a.c[0], a.c[3]);
      if (wide && high < 8) faults.push(`${name}: "${a.s}" is ${high.toFixed(1)} px high`);
      if (paper && !a.t.closest('[data-on]')) {
        const c = contrast(getComputedStyle(a.t).fill, getComputedStyle(paper).fill);
        if (c < 3) faults.push(`${name}: "${a.s}" has a contrast of ${c.toFixed(1)}`);
      }
    }
    const rows = texts.map(a => ({ ...a, left: Math.min(...a.c.map(k => k.x)), right: Math.max(...a.c.map(k => k.x)) })).sort((a, b) => a.left - b.left);
    rows.forEach((a, i) => {
      for (let j = i + 1; j < rows.length && rows[j].left < a.right; j++) if (over(a.c, rows[j].c)) faults.push(`${name}: "${a.s}" lies over "${rows[j].s}"`);
    });
  }
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    const widest = [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.wide'))[0];
    faults.push(`the page scrolls sideways: ${root.scrollWidth} px of ${innerWidth}${widest ? ', ' + widest.tagName : ''}`);
  }
  return faults;
})()
