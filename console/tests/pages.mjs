// Every page: reached, readable in both colour schemes, on a phone, by keyboard; and who has no token learns nothing.

import { apis, axe, check, dialog, go, json, open, same, signIn, stories, tepal, token } from "./browser.mjs";

const PAGES = ["", "servers", "drives", "pools", "volumes", "snapshots", "clones", "schedules", "migrations", "events", "picture"];
const SHOWN = {
  "": "Health:", servers: "s1", drives: "MiB", pools: "default", volumes: "plain", snapshots: "plain@first", clones: "twin", schedules: "each within",
  migrations: "on its way", events: "created", picture: "copies",
};

const seen = async (page, path) => {
  await go(page, path);
  const text = SHOWN[path.split("/")[0]];
  await page.waitForFunction((text) => document.querySelector("main").innerText.includes(text), text);
};

async function nobody() {
  for (const [path, kind] of [["/", "text/html"], ["/console.js", "text/javascript"], ["/console.css", "text/css"]]) {
    const answer = await fetch(apis[0] + path);
    same(answer.status, 200, path);
    check(answer.headers.get("content-type").startsWith(kind), `${path}: ${answer.headers.get("content-type")}`);
    check(answer.headers.get("content-security-policy").startsWith("default-src 'none'"), `${path}: its policy`);
    const again = await fetch(apis[0] + path, { headers: { "if-none-match": answer.headers.get("etag") } });
    same(again.status, 304, `${path}, which the browser has`);
    const text = await answer.text();
    same(answer.headers.get("content-encoding"), "gzip", `${path}: how it's sent`);
    const plain = await fetch(apis[0] + path, { headers: { "accept-encoding": "identity" } });
    same([plain.headers.get("content-encoding"), await plain.text()], [null, text], `${path}, not compressed`);
    for (const secret of ["plain", json("cluster", "show").id, token]) check(!text.includes(secret), `${path} tells of ${secret}`);
  }
  for (const path of ["/v1/live", "/v1/counters", "/v1/usage", "/v1/volumes", "/v1/status"]) {
    for (const authorization of ["", "Bearer wrong"]) {
      const answer = await fetch(apis[0] + path, { headers: { authorization } });
      same(answer.status, 401, path);
      check(!(await answer.text()).includes("plain"), `${path} tells of a volume`);
    }
  }
}

async function signedIn(browser) {
  const page = await open(browser);
  await page.goto(`${apis[0]}/`);
  await axe(page, "sign-in");
  await page.getByLabel("Token").fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").filter({ hasText: "doesn't know this token" }).waitFor();
  await signIn(page);
  const kept = await page.evaluate(() => [JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie, document.documentElement.outerHTML, location.href]);
  same(kept.map((text) => text.includes(token)), [true, false, false, false, false], "where the token is");
  const second = await page.context().newPage();
  await second.goto(`${apis[0]}/`);
  await second.getByLabel("Token").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  same(await page.evaluate(() => sessionStorage.length), 0, "what stays");
  same(page.wrong, [], "what went wrong");
}

async function eachPage(browser) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, { colorScheme });
    await signIn(page);
    for (const path of [...PAGES, "volumes/plain", "drives/" + json("drive", "ls")[0].id, "servers/s1", "pools/default", "schedules/scrubs", "picture/plain"]) {
      await seen(page, path);
      await axe(page, `${path || "dashboard"}, ${colorScheme}`);
    }
    await go(page, "volumes/plain");
    await page.getByRole("button", { name: "Remove", exact: true }).first().click();
    await dialog(page).waitFor();
    await axe(page, `a form, ${colorScheme}`);
    const [ground, asked] = await page.evaluate(() => [getComputedStyle(document.body).backgroundColor, matchMedia("(prefers-color-scheme: dark)").matches]);
    same(asked, colorScheme === "dark", "the system's scheme");
    const light = Number(/\d+/.exec(ground)[0]) > 128;
    same(light, colorScheme === "light", `the ground is ${ground}`);
    await page.keyboard.press("Escape");
    await dialog(page).waitFor({ state: "detached" });
    await page.getByLabel("Colours").selectOption(light ? "dark" : "light");
    await page.waitForFunction((before) => getComputedStyle(document.body).backgroundColor !== before, ground);
    await axe(page, "the other scheme");
    same(page.wrong, [], "what went wrong");
  }
}

async function phone(browser) {
  const page = await open(browser, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  await signIn(page);
  for (const path of [...PAGES, "volumes/plain"]) {
    await seen(page, path);
    const [width, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    check(width <= screen, `${path || "dashboard"} is ${width} wide on a screen of ${screen}`);
  }
  await go(page, "volumes");
  const name = page.getByRole("link", { name: "plain", exact: true });
  await name.tap();
  await page.getByRole("heading", { level: 1, name: "Volume plain" }).waitFor();
}

async function keyboard(browser) {
  const page = await open(browser);
  await page.goto(`${apis[0]}/`);
  await page.waitForFunction(() => document.activeElement?.id === "token");
  await page.keyboard.type(token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Dashboard" }).waitFor();
  const reach = async (name) => {
    for (let presses = 0; presses < 80; presses++) {
      await page.keyboard.press("Tab");
      const [text, ring] = await page.evaluate(() => [document.activeElement?.textContent?.trim() ?? "", getComputedStyle(document.activeElement).outlineStyle]);
      if (text !== name) continue;
      check(ring !== "none", `${name} doesn't show that it has the focus`);
      return;
    }
    throw new Error(`${name} can't be reached by Tab`);
  };
  await reach("Volumes");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Volumes" }).waitFor();
  same(await page.evaluate(() => document.activeElement.tagName), "H1", "where the focus is on a new page");
  await reach("Create a volume");
  await page.keyboard.press("Enter");
  await dialog(page).getByLabel("Name").waitFor();
  for (const text of ["by-keyboard", "8M"]) {
    await page.keyboard.type(text);
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await dialog(page).getByRole("status").filter({ hasText: "by-keyboard is there" }).waitFor();
  await page.keyboard.press("Enter");
  await dialog(page).waitFor({ state: "detached" });
  await page.waitForFunction(() => document.activeElement.textContent === "Create a volume");
  same(json("volume", "show", "by-keyboard").size, 8 << 20, "its size");
  tepal("volume", "rm", "by-keyboard");
}

async function painted(browser) {
  const times = [];
  for (let round = 0; round < 5; round++) {
    const page = await open(browser);
    await page.goto(`${apis[0]}/`);
    await page.getByLabel("Token").waitFor();
    const paint = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
    times.push(await page.waitForFunction(paint).then((handle) => handle.jsonValue()));
    await page.context().close();
  }
  console.log(`first paint: ${times.map((time) => `${Math.round(time)} ms`).join(", ")}`);
  check(Math.min(...times) < 1000, `first paint took ${times} ms`);
}

async function longList(browser) {
  const page = await open(browser);
  await signIn(page);
  await go(page, "volumes");
  const total = json("status").volumes;
  const frame = page.locator(".list .frame");
  await page.getByText(`${total} volumes`).waitFor();
  await frame.evaluate((one) => (one.scrollTop = one.scrollHeight));
  const last = json("volume", "ls").at(-1).name;
  await page.getByRole("link", { name: last, exact: true }).waitFor();
  const rows = await page.locator(".list .frame .row").count();
  check(rows < 60, `${rows} rows of ${total} exist`);
  await page.getByLabel("Only with").fill("row-007");
  await page.getByRole("link", { name: "row-007", exact: true }).waitFor();
  await page.getByText("1 volume", { exact: true }).waitFor();
}

async function shots(browser) {
  if (!process.env.SHOTS) return;
  for (const [name, path, options] of [
    ["dashboard", "", { colorScheme: "light" }],
    ["volume-dark", "volumes/plain", { colorScheme: "dark" }],
    ["picture", "picture/plain", { colorScheme: "light" }],
    ["phone", "drives", { viewport: { width: 360, height: 640 } }],
  ]) {
    const page = await open(browser, { viewport: { width: 1000, height: 700 }, ...options });
    await signIn(page);
    await seen(page, path);
    await page.waitForTimeout(8000); // for the charts to have something to show
    await page.screenshot({ path: `${process.env.SHOTS}/${name}.png` });
  }
}

await stories({ nobody, signedIn, eachPage, phone, keyboard, painted, longList, shots });
