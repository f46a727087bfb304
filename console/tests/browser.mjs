// What the browser's tests share: Chromium, the console signed in, the command line, and checks that say what is wrong.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
/** Far more than anything takes: a slow machine is no failure. */
export const LIMIT = 60_000;

const { TEPAL, DIR, APIS, TOKEN, CHROMIUM } = process.env;
export const apis = APIS.split(",");
export const token = readFileSync(TOKEN, "utf8").trim();
export const folder = DIR;

export function check(is, what) {
  if (!is) throw new Error(what);
}

export function same(found, wanted, what) {
  check(JSON.stringify(found) === JSON.stringify(wanted), `${what}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
}

/** Looks again until the answer is the wanted one: servers of a busy machine lose each other for a moment. */
export async function becomes(look, wanted, what) {
  const end = Date.now() + LIMIT;
  while (JSON.stringify(look()) !== JSON.stringify(wanted)) {
    check(Date.now() < end, `${what}: ${JSON.stringify(look())}, not ${JSON.stringify(wanted)}`);
    await new Promise((go) => setTimeout(go, 100));
  }
}

export const tepal = (...words) => execFileSync(TEPAL, ["--dir", DIR, ...words], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
export const json = (...words) => JSON.parse(tepal("-o", "json", ...words));

/** A command as the console shows it, typed into a shell. */
export const typed = (line) =>
  execFileSync("sh", ["-c", `tepal() { "$TEPAL" --dir "$DIR" "$@"; }\n${line}`], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

export async function launch() {
  return chromium.launch({
    executablePath: CHROMIUM,
    headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** A page that notes whatever goes wrong in it. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(String(error)));
  page.on("dialog", (dialog) => (page.wrong.push(`a dialog of the browser: ${dialog.message()}`), dialog.dismiss()));
  page.on("console", (message) => /Content.Security.Policy/i.test(message.text()) && page.wrong.push(message.text()));
  if (process.env.DIST) {
    for (const name of ["console.js", "console.css"]) {
      const kind = name.endsWith("js") ? "text/javascript" : "text/css";
      await page.route(`**/${name}`, (route) => route.fulfill({ contentType: kind, body: readFileSync(`${process.env.DIST}/${name}`) }));
    }
    await page.route(/:\d+\/(#.*)?$/, async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, body: readFileSync(`${process.env.DIST}/index.html`) });
    });
  }
  return page;
}

export async function signIn(page, api = apis[0]) {
  await page.goto(`${api}/`);
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Dashboard" }).waitFor();
}

export async function go(page, path) {
  await page.evaluate((path) => (location.hash = path), `#/${path}`);
}

export async function axe(page, what) {
  await page.evaluate(AXE).catch(async (error) => {
    // The page's policy forbids what isn't its own; the checker is let in from outside.
    throw new Error(`axe can't be loaded: ${error}`);
  });
  const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => `${node.html} ${node.any.map((any) => any.message).join(" ")}`).slice(0, 3).join(" | ")}`));
  check(found.length === 0, `${what}: ${found.join("\n")}`);
}

export const dialog = (page) => page.getByRole("dialog");

/** Opens a form by its button, fills it, sends it, and says which command it showed. */
export async function change(page, button, fields, verb) {
  await page.getByRole("button", { name: button, exact: true }).first().click();
  for (const [label, value] of Object.entries(fields)) {
    const field = dialog(page).getByLabel(new RegExp(`(^|[.] )${label}( [(]optional[)])?$`));
    if (value === true) await field.check();
    else if ((await field.evaluate((one) => one.tagName)) === "SELECT") await field.selectOption(value);
    else await field.fill(value);
  }
  const shown = await dialog(page).locator(".command code").textContent();
  await dialog(page).getByRole("button", { name: verb, exact: true }).click();
  await dialog(page).getByRole("status").or(dialog(page).getByRole("alert")).waitFor();
  const refused = dialog(page).getByRole("alert");
  if ((await refused.count()) > 0) throw new Error(`${button}: ${await refused.textContent()}`);
  same(await dialog(page).locator(".command code").textContent(), shown, "the command before and after");
  await dialog(page).getByRole("button", { name: "Close" }).click();
  await dialog(page).waitFor({ state: "detached" });
  return shown;
}

/** Runs stories one after another; the process ends with 1 if one fails. */
export async function stories(all) {
  if (process.env.ONLY) all = Object.fromEntries(Object.entries(all).filter(([name]) => process.env.ONLY.split(",").includes(name)));
  const browser = await launch();
  let failed = 0;
  for (const [name, story] of Object.entries(all)) {
    const began = performance.now();
    try {
      await story(browser);
      console.log(`ok: ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED: ${name}: ${error.stack ?? error}`);
      for (const context of browser.contexts()) {
        for (const page of context.pages()) {
          console.log(`the page says: ${(await page.locator("body").innerText().catch(() => "")).slice(0, 2000)}`);
          if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/failed.png` }).catch(() => {});
        }
      }
    }
    for (const context of browser.contexts()) await context.close();
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
}
