// A server is killed while the dashboard is looked at: it says so and why, without being asked, and says when all is well again.

import { createInterface } from "node:readline";
import { apis, check, json, open, signIn, stories } from "./browser.mjs";

// Who started this program kills and starts servers when it's asked to, and says when that is done.
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function have(done) {
  console.log(`please: ${done}`);
  const { value } = await lines.next();
  check(value === "done", `it wasn't done: ${done}`);
}

const health = (page, word) => page.locator("#health").filter({ hasText: word }).waitFor();

async function killed(browser) {
  const page = await open(browser);
  await signIn(page);
  await health(page, "ok");
  await page.locator("#forecast").filter({ hasText: /known yet|grow/ }).waitFor();
  // What clients do is seen from second to second.
  const row = page.getByRole("table", { name: "Requests of clients: latency" }).getByRole("row", { name: /^write/ });
  await page.waitForFunction((cell) => !/^0\/s$/.test(cell.textContent), await row.getByRole("cell").first().elementHandle());
  await row.getByRole("cell").nth(2).filter({ hasText: /ms|µs| s/ }).waitFor();

  await have("kill s3");
  const began = Date.now();
  await health(page, "degraded");
  await page.locator(".reasons li").filter({ hasText: "server s3 is down" }).waitFor();
  console.log(`the dashboard said it ${((Date.now() - began) / 1000).toFixed(1)} s after the kill`);
  check(json("status").reason.some((reason) => reason.includes("server s3 is down")), "the command says something else");
  await page.getByRole("link", { name: "2 of 3 up" }).waitFor();
  await have("start s3");
  await health(page, "ok");

  // The server whose console this is.
  await have("stop s1");
  await page.getByRole("alert").filter({ hasText: "doesn't answer" }).waitFor();
  const other = await open(browser);
  await signIn(other, apis[1]);
  await other.locator(".reasons li").filter({ hasText: "server s1 is down" }).waitFor();
  check(page.wrong.length + other.wrong.length === 0, [...page.wrong, ...other.wrong].join(", "));
}

await stories({ killed });
