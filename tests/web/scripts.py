"""JavaScript that the tests run in the browser."""

from __future__ import annotations

ALL_SHOWN = "return arguments[0].split(', ').every(one => document.querySelector('main ' + one))"
ANY_SHOWN = "return document.querySelector(arguments[0]) !== null"
#: what a question of a test brings, as those of the page do
WITH_TOKEN = "{headers: {Authorization: `Bearer ${localStorage.getItem('steplens.token')}`}}"
READY = "return document.body.dataset.ready !== undefined"
ALL_OPEN = f"""
return fetch('./api/session', {WITH_TOKEN}).then(one => one.json())
  .then(one => one.runs.every(run => run.progress.state === 'ready'))"""
#: the first name in a cell or heading that holds the text
NAME_WITH = """
return [...document.querySelectorAll('main td, main h2')].map(one => one.textContent).find(one => one.includes(arguments[0]))"""
#: put into every document before its own scripts: counts the answers that are on their way, and what the page will do soon
COUNT_ANSWERS = """
{
  const SOON_MS = 500;
  const [later, never] = [window.setTimeout.bind(window), window.clearTimeout.bind(window)];
  // for the tests, whose waiting is nothing that the page does
  window.later = later;
  window.soon = new Set();
  window.setTimeout = (what, after = 0, ...given) => {
    const number = later((...told) => { window.soon.delete(number); what(...told); }, after, ...given);
    if (after <= SOON_MS) window.soon.add(number);
    return number;
  };
  window.clearTimeout = number => { window.soon.delete(number); never(number); };
  window.unanswered = 0;
  const ask = window.fetch;
  // an answer is there with its last byte; then the page needs a moment to show it
  window.fetch = async (...asked) => {
    window.unanswered++;
    const come = () => later(() => window.unanswered--, 30);
    try {
      const answer = await ask(...asked);
      answer.clone().arrayBuffer().then(come, come);
      return answer;
    } catch (error) {
      come();
      throw error;
    }
  }
}"""
#: what changes while a page is being filled; null while something is on its way
STATE = """
if (document.body.dataset.ready === undefined || window.unanswered || window.soon.size) return null;
if (document.querySelector('.timeline-view[data-waiting="true"]')) return null;
const main = document.querySelector('main');
if ([...main.querySelectorAll('.grid-table td')].some(one => one.innerText === '…')) return null;
return `${location.hash} ${main.querySelectorAll('*').length} ${main.innerText.length}`"""
#: waits until the page is as it stays, which is looked at again once it is painted, however long the next pictures of the screen
#: take; answers whether it is. In the page, because a question from outside every moment takes the processor that the page needs.
SETTLED = f"""
const [limit, done] = arguments;
const state = () => {{{STATE}}};
const begin = performance.now();
const look = before => {{
  const now = state();
  if (now !== null && now === before) done(true);
  else if (performance.now() - begin > limit) done(false);
  else window.later(() => requestAnimationFrame(() => requestAnimationFrame(() => look(now))), 100);
}};
look(undefined)"""
#: goes to an address, and waits until its page is there; answers whether it is
OPENED = """
const [address, limit, done] = arguments;
const data = document.body.dataset;
delete data.ready;
// to the page that is there already no address leads
if (location.hash === address) dispatchEvent(new HashChangeEvent('hashchange'));
else location.hash = address;
const ends = window.later(() => end(false), limit);
const end = is => { changes.disconnect(); clearTimeout(ends); done(is); };
const changes = new MutationObserver(() => data.ready !== undefined && end(true));
changes.observe(document.body, {attributes: true});
if (data.ready !== undefined) end(true)"""
#: chooses from the list of the header that has a value
PICK = """
const list = [...document.querySelectorAll('header.top select')].find(
  one => [...one.options].some(option => option.value === arguments[0]));
list.value = arguments[1];
list.dispatchEvent(new Event('change'))"""
#: runs axe, which was put into the page, with these rules only, or all but some; answers what is wrong
AXE = """
const [only, without, done] = arguments;
const runOnly = only ? {type: 'rule', values: only}
  : {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']};
const rules = Object.fromEntries((without ?? []).map(rule => [rule, {enabled: false}]));
axe.run(document, {runOnly, rules, resultTypes: ['violations']}).then(
  found => done(found.violations.flatMap(one => one.nodes.map(
    node => `${one.id}: ${node.target.join(' ')}: ${node.html.slice(0, 160)}: ${node.failureSummary.slice(0, 300)}`))),
  error => done([String(error)]))"""
#: what is wider than the window, and how much of its width the page takes
WIDTHS = """
const main = document.querySelector('main').getBoundingClientRect();
const taken = Math.max(0, ...[...document.querySelectorAll('main > *')].map(one => one.getBoundingClientRect().right));
return {over: document.documentElement.scrollWidth - innerWidth, share: (taken - main.left) / (innerWidth - main.left)}"""
FOREIGN_ENTRIES = """
return performance.getEntriesByType('resource').map(one => one.name).filter(one => new URL(one).origin !== location.origin)"""

#: remembers what gets the focus from now on, and what is wrong with it
WATCH_FOCUS = """
const tabbable = 'a[href], button, select, input, summary, textarea, [tabindex="0"]';
const shown = one => one.checkVisibility({visibilityProperty: true}) && !one.disabled && !one.closest('[inert]');
const told = one => `${one.tagName} ${one.className} ${one.getAttribute('aria-label') ?? one.textContent.slice(0, 60)}`;
window.focused = {seen: new Set(), wrong: [], last: null, count: 0, ended: false};
window.expected = [...document.querySelectorAll(tabbable)].filter(one => shown(one) && !one.closest('.grid-table'));
const watching = new AbortController();
const ended = () => { window.focused.ended = true; watching.abort(); };
// nothing had the focus when the key came: it had been led out
const nothing = () => document.activeElement === document.body || document.activeElement === null;
document.addEventListener('keydown', () => nothing() && ended(), {capture: true, signal: watching.signal});
document.addEventListener('focusin', event => {
  const {target} = event;
  const log = window.focused;
  // by way of the browser, not from another place of the page: it was led out, and comes in again
  if (log.count && event.relatedTarget === null && target.matches('.skip')) return ended();
  log.count++;
  log.seen.add(target);
  const style = getComputedStyle(target);
  if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 1) log.wrong.push(`no visible focus: ${told(target)}`);
  const box = target.getBoundingClientRect();
  const header = document.querySelector('header.top').getBoundingClientRect();
  const top = target.closest('header.top, .skip, .side') ? 0 : header.bottom;
  const hidden = box.bottom <= top || box.top >= innerHeight || box.right <= 0 || box.left >= innerWidth;
  if (hidden) log.wrong.push(`out of sight: ${told(target)}`);
  if (log.last?.isConnected && !(log.last.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING)) {
    log.wrong.push(`out of order: ${told(target)} after ${told(log.last)}`);
  }
  log.last = target;
}, {signal: watching.signal});
document.querySelector('.skip').focus()"""
FOCUS_ENDED = "return window.focused.ended"
FOCUS_REPORT = """
const told = one => `${one.tagName} ${one.className} ${one.getAttribute('aria-label') ?? one.textContent.slice(0, 60)}`;
return {count: window.focused.count, wrong: window.focused.wrong,
  missed: window.expected.filter(one => one.isConnected && one.checkVisibility() && !window.focused.seen.has(one)).map(told)}"""
#: label and rows of what charts say as tables
CHARTS = """
return [...document.querySelectorAll('main .chart-frame')].map(one => [
  one.querySelector('[role=img]').getAttribute('aria-label'),
  [...one.querySelectorAll('.hidden tr')].map(row => [...row.cells].map(cell => cell.textContent))])"""
#: texts of a column of the first table with it
CELLS_OF = """
const head = document.querySelector(`.grid-table [data-control="sort ${arguments[0]}"]`).closest('th');
return [...head.closest('table').querySelectorAll('tbody tr[aria-rowindex]')].map(row => row.cells[head.cellIndex].textContent)"""
MOVING = """
return [...document.querySelectorAll('*')].filter(one => {
  const style = getComputedStyle(one);
  const animated = style.animationName !== 'none' && parseFloat(style.animationDuration) > 0;
  return animated || parseFloat(style.transitionDuration) > 0;
}).map(one => one.outerHTML.slice(0, 100))"""
UNNAMED_CONTROLS = """
return [...document.querySelectorAll('button, select, input, a')]
  .filter(one => one.offsetParent && !one.textContent.trim() && !one.getAttribute('aria-label') && !one.closest('label'))
  .map(one => one.outerHTML)"""

TABLE_END = "const box = document.querySelector('.table-scroll'); box.scrollTop = box.scrollHeight"
#: whether the last row that is drawn is that of a number, and has its cells
LAST_ROW_IS = """
const row = [...document.querySelectorAll('.grid-table tbody tr[aria-rowindex]')].at(-1);
return row?.getAttribute('aria-rowindex') === arguments[0] && !row.innerText.includes('…')"""
FILTER_NAME = """
const form = document.querySelector('.filter');
const [column] = form.querySelectorAll('select');
column.value = 'name';
column.dispatchEvent(new Event('change'));
form.querySelector('input').value = arguments[0];
form.requestSubmit()"""
FILTERED = """
return document.querySelectorAll('.chip').length === 1 && / of /.test(document.querySelector('.table-foot')?.innerText ?? '')"""

TILES_THERE = "return document.querySelector('.timeline-view')?.dataset.waiting === 'false'"
COLOURS_PAINTED = """
const canvas = document.querySelector('.timeline-canvas');
const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
return new Set(new Uint32Array(data.buffer)).size"""
PRESS = """
document.querySelector('.timeline-scroll').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"""
STATUS_CHANGED = """
return document.querySelector('.timeline-view').dataset.waiting === 'false'
  && document.querySelector('.timeline-status').innerText !== arguments[0]"""
PANEL_SAYS = "return (document.querySelector('.timeline-panel h2')?.innerText ?? '').includes(arguments[0])"
DRAG = """
const canvas = document.querySelector('.timeline-canvas');
const box = canvas.getBoundingClientRect();
canvas.setPointerCapture = () => undefined;
const at = (type, x, y) => canvas.dispatchEvent(
  new PointerEvent(type, {clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true}));
at('pointerdown', 50, 8);
at('pointermove', 300, 20);
at('pointermove', 500, 60);
at('pointerup', 500, 60)"""
EVENTS_OF_THE_SERVER = f"return fetch('./api/runs/0/timeline', {WITH_TOKEN}).then(one => one.json()).then(one => one.events)"
#: whether the events that are painted one by one and those in shared boxes are as many as wanted
ALL_COUNTED = r"""
const text = document.querySelector('.timeline-status').innerText;
const [single, merged] = [...text.matchAll(/([\d,]+) (?:events|in boxes)/g)].map(one => Number(one[1].replaceAll(',', '')));
return single + merged === arguments[0]"""

#: elements whose text has a contrast below 4.5 : 1 to its ground
LOW_CONTRAST = r"""
const pen = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
const rgb = colour => {
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const linear = one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
const light = parts => parts.reduce((sum, one, place) => sum + linear(one / 255) * [0.2126, 0.7152, 0.0722][place], 0);
const ground = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/rgba\(.*, 0\)|transparent/.test(colour)) return colour;
  }
  return 'white';
};
const low = new Set();
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some(one => one.nodeType === 3 && one.textContent.trim());
  if (!own || !element.offsetParent) continue;
  const [text, back] = [light(rgb(getComputedStyle(element).color)), light(rgb(ground(element)))];
  const ratio = (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
  if (ratio < 4.5) low.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
}
return [...low];
"""

#: what the server answers about the first run
ASK = f"return fetch('./api/runs/0/' + arguments[0], {WITH_TOKEN}).then(one => one.json())"

#: of each track that is shown: rank and number, top and height on the canvas and how many rows it is drawn in
TRACKS = """
const canvas = document.querySelector('.timeline-canvas').getBoundingClientRect();
return [...document.querySelectorAll('.lane-label[data-lane]')].map(one => {
  const box = one.getBoundingClientRect();
  return {lane: one.dataset.lane, rows: Number(one.dataset.rows), top: box.top - canvas.top, height: box.height};
})"""
#: colours of points of the canvas of the timeline, [x, y] in pixels of the page
POINTS = """
const canvas = document.querySelector('.timeline-canvas');
const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
const pen = copy.getContext('2d', {willReadFrequently: true});
pen.drawImage(canvas, 0, 0);
const scale = canvas.width / canvas.getBoundingClientRect().width;
return arguments[0].map(([x, y]) => [...pen.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data].join())"""
PANEL_ROWS = """
return [...document.querySelectorAll('.timeline-panel tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"""
