"""Measures pages in a real browser, at three widths and in both colour schemes.

Used by `page.py`. A page is opened in frames of the given widths, with its details folded and then unfolded.
"""

import json
import re

WIDTHS = [390, 768, 1280]

# Runs in a page around the frame. A text is cut if its box hides a part of it without an ellipsis.
SCRIPT = r"""
const widths = WIDTHS, found = [];
function colour(text) { const part = text.match(/[\d.]+/g).map(Number); return part.length < 4 ? [...part, 1] : part; }
function over(top, below) { return [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1); }
function light(rgb) {
  const [r, g, b] = rgb.map(it => it / 255).map(it => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one, other) {
  const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}
function behind(view, element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(colour(view.getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
}
function named(element) {
  const name = element.tagName.toLowerCase() + (element.getAttribute('class') ? '.' + element.getAttribute('class') : '');
  return name + ' ' + JSON.stringify(element.textContent.trim().slice(0, 40));
}
function measure(frame, width, open) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  page.querySelectorAll('details').forEach(it => { it.open = open; });
  const bad = [];
  if (root.scrollWidth > width) bad.push(`the page is ${root.scrollWidth} px wide`);
  let lowest = 99, texts = 0;
  const walk = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode, element = text.parentElement;
    if (!text.textContent.trim() || !element.checkVisibility() || element.closest('svg')) continue;
    const range = page.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect(), style = view.getComputedStyle(element);
    if (!box.width) continue;
    texts += 1;
    let cut = false, scrolls = false;
    for (let at = element; at; at = at.parentElement) {
      const clip = view.getComputedStyle(at);
      scrolls ||= clip.overflowX === 'auto';
      if (clip.overflowX === 'hidden' && at.scrollWidth > at.clientWidth + 1 && clip.textOverflow !== 'ellipsis') cut = true;
    }
    if (cut) bad.push(`cut: ${named(element)}`);
    if (!scrolls && box.right > width + 1 && view.getComputedStyle(element).textOverflow !== 'ellipsis') bad.push(`outside: ${named(element)}`);
    const drawn = contrast(over(colour(style.color), behind(view, element)), behind(view, element));
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    lowest = Math.min(lowest, drawn);
    if (drawn < (large ? 3 : 4.5)) bad.push(`contrast ${drawn.toFixed(1)}: ${named(element)}`);
  }
  page.querySelectorAll('code').forEach(it => {
    const text = it.textContent.trim();
    if (/^[0-9a-f]{7,12}$/.test(text) && it.checkVisibility() && it.getClientRects().length > 1) bad.push(`wrapped: ${named(it)}`);
  });
  const paper = view.getComputedStyle(page.body).backgroundColor;
  found.push({ width, open, paper, texts, lowest, high: root.scrollHeight, bad: [...new Set(bad)].slice(0, 12) });
}
const frames = widths.map(width => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.style = `border:0;width:${width}px;height:1200px`;
  frame.onload = () => { measure(frame, width, false); measure(frame, width, true); done(); };
  frame.src = PAGE;
  document.body.append(frame);
}));
Promise.all(frames).then(() => { document.documentElement.dataset.found = btoa(unescape(encodeURIComponent(JSON.stringify(found)))); });
"""


def measured(chromium, scratch, page, dark):
    """Returns the measures of a page: two for each width, with details folded and unfolded."""
    frame = scratch / "measured.html"
    script = SCRIPT.replace("WIDTHS", json.dumps(WIDTHS), 1).replace("PAGE", json.dumps(page.as_uri()), 1)
    frame.write_text(f"<!DOCTYPE html><body style='margin:0'><script>{script}</script>")
    # 0 is the dark scheme.
    scheme = f"--blink-settings=preferredColorScheme={int(not dark)}"
    dom = chromium(scratch, scheme, "--window-size=1400,1200", "--timeout=30000", "--dump-dom", frame.as_uri())
    found = re.search(r'data-found="([^"]+)"', dom)
    assert found, dom[:300]
    import base64

    return json.loads(base64.b64decode(found[1]))


def check(chromium, scratch, page, pictures=None):
    """Checks that a page fits and can be read at each width and in both schemes. Returns a description."""
    papers, lowest, texts = set(), 99, 0
    for dark in (False, True):
        for one in measured(chromium, scratch, page, dark):
            what = f"{page.name} at {one['width']} px, {'dark' if dark else 'light'}, {'un' if one['open'] else ''}folded"
            assert not one["bad"], f"{what}: {one['bad']}"
            assert one["texts"] > 5, f"{what}: {one['texts']} texts"
            papers.add((dark, one["paper"]))
            lowest, texts = min(lowest, one["lowest"]), max(texts, one["texts"])
        if pictures:
            photograph(chromium, scratch, page, pictures, dark)
    assert len(papers) == 2 and len({paper for _, paper in papers}) == 2, f"{page.name} has one scheme: {papers}"
    return f"{page.name}: {texts} texts fit at {WIDTHS} px in both schemes, lowest contrast {lowest:.1f}"


def photograph(chromium, scratch, page, pictures, dark):
    """Writes a picture of a page at each width."""
    pictures.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        frame = scratch / "frame.html"
        frame.write_text(f"<body style='margin:0'><iframe src='{page.as_uri()}' style='border:0;width:{width}px;height:2400px'>")
        chromium(
            scratch, f"--window-size={max(width, 500)},2400", f"--blink-settings=preferredColorScheme={int(not dark)}",
            f"--screenshot={pictures}/{page.stem}-{width}-{'dark' if dark else 'light'}.png", frame.as_uri(),
        )
