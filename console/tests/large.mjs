// Lists of a cluster of 10,000 volumes and 1,000 drives. The server behind has a few: its own rows are told again under other names.

import { check, go, open, same, signIn, stories } from "./browser.mjs";

const VOLUMES = 10_000;
const DRIVES = 1_000;
/** Frames that are scrolled, each by so many pixels: past all rows of either list, at a pace at which each row is looked at. */
const FRAMES = 120;
const STEP = 400;
/** Of 60 frames a second, a busy machine of two cores without a graphics card shows half. */
const MEDIAN_MS = 34;
const SLOWEST_MS = 250;

const number = (at) => String(at).padStart(5, "0");
const of = (request, name) => new URL(request.url()).searchParams.get(name);

/** A page whose server tells of that many. */
async function large(browser) {
  const page = await open(browser);
  await page.route("**/v1/volumes?*", async (route, request) => {
    const answer = await route.fetch();
    const [one] = await answer.json();
    const from = Number(of(request, "offset"));
    const count = Math.min(Number(of(request, "limit")), VOLUMES - from);
    const rows = Array.from({ length: Math.max(0, count) }, (_, at) => ({ ...one, name: `volume-${number(from + at)}` }));
    await route.fulfill({ response: answer, headers: { ...answer.headers(), "tepal-total": String(VOLUMES) }, json: rows });
  });
  await page.route("**/v1/drives", async (route) => {
    const answer = await route.fetch();
    const [one] = await answer.json();
    await route.fulfill({ response: answer, json: Array.from({ length: DRIVES }, (_, at) => ({ ...one, id: `drive-${number(at)}`, name: null })) });
  });
  await signIn(page);
  return page;
}

/** How long each frame took while the list was scrolled, in order of length, in milliseconds. */
const scrolled = (frame) =>
  frame.evaluate(
    async (frame, [frames, step]) => {
      const next = () => new Promise((go) => requestAnimationFrame(go));
      const took = [];
      let before = await next();
      for (let at = 0; at < frames; at++) {
        frame.scrollTop += step;
        const now = await next();
        took.push(now - before);
        before = now;
      }
      return took.sort((one, other) => one - other);
    },
    [FRAMES, STEP],
  );

async function list(page, what, first, last) {
  await go(page, what);
  await page.getByRole("link", { name: first, exact: true }).waitFor();
  const frame = page.locator(".list .frame");
  let best;
  // Others may have the machine for a moment.
  for (let round = 0; round < 5; round++) {
    await frame.evaluate((frame) => (frame.scrollTop = 0));
    const took = await scrolled(frame);
    const found = { median: took[took.length / 2], slowest: took.at(-1) };
    if (!best || found.slowest < best.slowest) best = found;
    if (best.median <= MEDIAN_MS && best.slowest <= SLOWEST_MS) break;
  }
  console.log(`${what}: a frame takes ${best.median.toFixed(1)} ms while the list is scrolled, ${best.slowest.toFixed(1)} ms at most`);
  check(best.median <= MEDIAN_MS && best.slowest <= SLOWEST_MS, `${what} don't scroll smoothly`);
  const rows = await page.locator(".list .frame .row").count();
  check(rows < 80, `${rows} rows exist at once`);
  await frame.evaluate((frame) => (frame.scrollTop = frame.scrollHeight));
  await page.getByRole("link", { name: last, exact: true }).waitFor();
}

async function manyRows(browser) {
  const page = await large(browser);
  await list(page, "volumes", `volume-${number(0)}`, `volume-${number(VOLUMES - 1)}`);
  await list(page, "drives", `drive-${number(0)}`, `drive-${number(DRIVES - 1)}`);
  same(page.wrong, [], "what went wrong");
}

await stories({ manyRows });
