// Changes made in the browser, each looked at from the command line; and text that tries to be more than text.

import { spawn } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { apis, becomes, change, check, dialog, folder, go, json, open, same, signIn, stories, tepal, typed } from "./browser.mjs";

const heading = (page, name) => page.getByRole("heading", { level: 1, name, exact: true }).waitFor();

async function volume(browser) {
  const page = await open(browser);
  await signIn(page, apis[1]);
  await go(page, "volumes");
  await heading(page, "Volumes");
  const shown = await change(page, "Create a volume", { Name: "v0", Size: "16M", Layout: "mirror:2" }, "Create");
  same(shown, "tepal volume create v0 --size 16M --layout mirror:2", "the command");
  const made = json("volume", "show", "v0");
  same([made.size, made.layout], [16 << 20, "mirror:2"], "the volume");
  await becomes(() => json("volume", "show", "v0").state, "healthy", "the volume's state");
  typed(shown.replace("v0", "typed")); // a terminal takes what is shown
  same(json("volume", "show", "typed").layout, "mirror:2", "the volume of the command");

  await go(page, "volumes/v0");
  await heading(page, "Volume v0");
  same(await change(page, "Resize", { "New size": "32M" }, "Resize"), "tepal volume resize v0 32M", "the command");
  same(json("volume", "show", "v0").size, 32 << 20, "the size");

  // Smaller only by a word more: the server's own rule is shown.
  await page.getByRole("button", { name: "Resize", exact: true }).click();
  await dialog(page).getByLabel("New size").fill("8M");
  await dialog(page).getByRole("button", { name: "Resize", exact: true }).click();
  const refused = await dialog(page).getByRole("alert").textContent();
  check(/small|shrink|lost/.test(refused), refused);
  await dialog(page).getByRole("button", { name: "Cancel" }).click();
  same(json("volume", "show", "v0").size, 32 << 20, "the size after a refusal");

  await change(page, "Snapshot", { "Name of the snapshot": "monday" }, "Take a snapshot");
  same(json("snapshot", "ls", "v0").map((one) => one.name), ["monday"], "the snapshots");
  await change(page, "Clone", { "Name of the new volume": "twin" }, "Clone");
  same(json("volume", "show", "twin").origin, "v0@monday", "of what it's a clone");
  await go(page, "clones");
  await page.getByRole("link", { name: "twin", exact: true }).waitFor();
  await page.getByText("v0@monday").waitFor();

  // What destroys data goes on only when the name was typed.
  await go(page, "volumes/v0");
  await heading(page, "Volume v0");
  await page.getByRole("button", { name: "Remove", exact: true }).last().waitFor();
  await page.locator("p.buttons").getByRole("button", { name: "Remove", exact: true }).first().click();
  const remove = dialog(page).getByRole("button", { name: "Remove", exact: true });
  await dialog(page).getByLabel("Type v0 to confirm").fill("v");
  check(await remove.isDisabled(), "half a name removes a volume");
  await dialog(page).getByLabel("Type v0 to confirm").fill("v0");
  await dialog(page).getByLabel("With its 1 snapshots").check();
  same(await dialog(page).locator(".command code").textContent(), "tepal volume rm v0 --snapshots --no-wait", "the command");
  await remove.click();
  await dialog(page).getByRole("status").filter({ hasText: "v0 is removed" }).waitFor();
  same(json("volume", "ls").map((one) => one.name), ["twin", "typed"], "the volumes that are left");
  same(page.wrong, [], "what went wrong");
}

async function migration(browser) {
  tepal("volume", "create", "mover", "--size", "64M", "--layout", "stripe");
  typed("head -c 64M /dev/urandom | tepal volume import mover"); // holes would be there at once
  const page = await open(browser);
  await signIn(page);
  await go(page, "volumes/mover");
  await heading(page, "Volume mover");
  await change(page, "Another layout", { Layout: "mirror:2", Rate: "1M" }, "Begin");
  await go(page, "migrations");
  const one = page.getByRole("region", { name: "Migration of mover" });
  await one.getByText("running").or(one.getByText("blocked")).first().waitFor();
  await change(page, "Pause", {}, "Pause");
  same(json("volume", "migrations")[0].state, "paused", "the migration");
  await one.getByText("paused").first().waitFor();
  await change(page, "Resume", {}, "Resume");
  same(json("volume", "migrations")[0].state, "running", "the migration");
  same(await change(page, "Cancel", {}, "Call it off"), "tepal volume cancel mover --no-wait", "the command");
  const left = json("volume", "show", "mover");
  check(left.migration === null || left.migration.cancelled, JSON.stringify(left.migration));
  await page.getByText("No volume is on its way").waitFor();
  same(json("volume", "show", "mover").layout, "stripe", "its layout");
}

async function imported(browser) {
  const [disk, socket] = [`${folder}/old.raw`, `${folder}/old.sock`];
  typed(`head -c 24M /dev/urandom > '${disk}'`);
  const slow = ["--object", "throttle-group,id=t,x-bps-total=1048576", "--image-opts", `driver=throttle,throttle-group=t,file.driver=file,file.filename=${disk}`];
  const old = spawn("qemu-nbd", ["--read-only", "--persistent", "--shared=0", "--socket", socket, ...slow], { stdio: "ignore" });
  try {
    await becomes(() => existsSync(socket), true, "the old place");
    tepal("volume", "import", "moved", "--from", `nbd+unix:///?socket=${socket}`, "--live", "--no-wait", "--layout", "mirror:2");
    const page = await open(browser);
    await signIn(page);
    await go(page, "volumes/moved");
    await heading(page, "Volume moved");
    const one = page.getByRole("region", { name: "Comes from" });
    await one.getByText("running").first().waitFor();
    await change(page, "Pause", {}, "Pause");
    same(json("volume", "show", "moved").live.state, "paused", "the import");
    await one.getByText("paused").first().waitFor();
    await change(page, "Resume", {}, "Resume");
    same(await change(page, "Cancel", {}, "Call it off"), "tepal volume cancel moved", "the command");
    same(json("volume", "show", "moved").live.state, "cancelled", "the import");
    await one.getByText("the rest can't be read").waitFor();
    await change(page, "Resume", {}, "Resume");
    await becomes(() => json("volume", "show", "moved").live, null, "the import");
    await one.waitFor({ state: "detached" });
    same(page.wrong, [], "what went wrong");
  } finally {
    old.kill();
  }
}

async function schedules(browser) {
  tepal("volume", "create", "kept", "--size", "8M");
  const page = await open(browser);
  await signIn(page);
  await go(page, "schedules");
  await heading(page, "Schedules");
  // What no schedule has is said before it's asked for.
  await page.getByRole("button", { name: "Have snapshots made", exact: true }).click();
  await dialog(page).getByLabel("Name of the schedule").fill("daily");
  await dialog(page).getByLabel("From one to the next").fill("often");
  await dialog(page).getByRole("button", { name: "Make the schedule", exact: true }).click();
  check(/as 15m/.test(await dialog(page).getByRole("alert").textContent()), "what a time is");
  await dialog(page).getByRole("button", { name: "Cancel" }).click();

  const snapshots = { "Name of the schedule": "daily", Volume: "kept", "From one to the next": "1d", "One of the times of the day": "02:30", "How many of a volume stay": "daily=7,weekly=4" };
  const shown = await change(page, "Have snapshots made", snapshots, "Make the schedule");
  same(shown, "tepal schedule create daily --snapshot kept --every 1d --at 02:30 --keep daily=7,weekly=4", "the command");
  const rules = ({ every_s, at, keep }) => [every_s, at, keep.daily, keep.weekly, keep.hourly];
  same(rules(json("schedule", "show", "daily")), [86400, "02:30", 7, 4, 0], "the schedule");
  typed(shown.replace("daily", "typed")); // a terminal takes what is shown
  same(rules(json("schedule", "show", "typed")), [86400, "02:30", 7, 4, 0], "the schedule of the command");
  await change(page, "Have volumes scrubbed", { "Name of the schedule": "monthly", "No volume stays unscrubbed for longer than": "4w" }, "Make the schedule");
  same(json("schedule", "show", "monthly").within_s, 28 * 86400, "the scrubs");

  await go(page, "schedules/daily");
  await heading(page, "Schedule daily");
  same(await change(page, "Change", { "From one to the next": "12h" }, "Change"), "tepal schedule set daily --every 12h --keep daily=7,weekly=4", "the command");
  same(rules(json("schedule", "show", "daily")), [43200, "02:30", 7, 4, 0], "what isn't changed stays");
  await change(page, "Run now", {}, "Run");
  same(json("snapshot", "ls", "kept").length, 1, "the snapshots");
  await change(page, "Pause", {}, "Pause");
  same(json("schedule", "show", "daily").paused, true, "whether it rests");
  await page.getByText("paused").first().waitFor();
  await change(page, "Resume", {}, "Resume");
  same(json("schedule", "show", "daily").paused, false, "whether it rests");
  await change(page, "Remove", {}, "Remove");
  await heading(page, "Schedules");
  same(json("schedule", "ls").map((one) => one.name), ["monthly", "typed"], "the schedules that are left");
  same(page.wrong, [], "what went wrong");
  tepal("schedule", "rm", "typed");
}

async function drivesAndPools(browser) {
  const page = await open(browser);
  await signIn(page);
  await go(page, "pools");
  await change(page, "Make a pool", { Name: "second" }, "Make");
  same(json("pool", "ls").map((pool) => pool.name), ["default", "second"], "the pools");
  // A path may have what no name has.
  const place = `${folder}/<img src=x onerror="window.hacked=1">`;
  mkdirSync(folder, { recursive: true });
  await go(page, "drives");
  const shown = await change(page, "Add a drive", { Server: "s2", "Path on that server": place, Pool: "second", "Make a file of this size first": "32M" }, "Add");
  check(shown.includes(`'${place}'`), `not quoted: ${shown}`);
  const drive = json("drive", "ls").find((one) => one.path === place);
  same([drive.server, drive.pool], ["s2", "second"], "the drive");
  for (const path of ["drives", `drives/${drive.id}`, "servers/s2", "events", "picture"]) {
    await go(page, path);
    await page.waitForFunction((id) => document.querySelector("main").innerText.includes(id), path === "events" ? place : drive.id);
    same(await page.evaluate(() => [window.hacked ?? 0, document.querySelectorAll("img").length]), [0, 0], `${path}: what a drive's path did`);
  }
  await go(page, `drives/${drive.id}`);
  await change(page, "Name", { Name: "odd" }, "Name");
  same(json("drive", "ls").find((one) => one.id === drive.id).name, "odd", "the drive's name");
  await page.getByRole("button", { name: "Take offline" }).click();
  await dialog(page).getByRole("button", { name: "Take offline" }).click();
  await dialog(page).getByRole("button", { name: "Close" }).click();
  same(json("drive", "ls").find((one) => one.id === drive.id).state, "offline", "the drive");
  await page.getByRole("button", { name: "Put online" }).waitFor();
  await change(page, "Put online", {}, "Put online");
  await change(page, "Remove", { "Type odd to confirm": "odd" }, "Remove");
  check(!json("drive", "ls").some((one) => one.id === drive.id), "the drive is still there");
  await go(page, "pools/second");
  await change(page, "Remove", {}, "Remove");
  same(json("pool", "ls").map((pool) => pool.name), ["default"], "the pools");
  same(page.wrong, [], "what went wrong");
}

async function hostile(browser) {
  const page = await open(browser);
  await signIn(page);
  const script = "<img src=x onerror=alert(1)><script>window.hacked=1</script>'\"`$(touch x)";
  await go(page, "volumes");
  await page.getByRole("button", { name: "Create a volume" }).click();
  await dialog(page).getByLabel("Name").fill(script);
  await dialog(page).getByLabel("Size").fill("1M");
  const shown = await dialog(page).locator(".command code").textContent();
  same(typed(shown.replace("tepal volume create", "printf %s").replace(" --size 1M", "")), script, "what a shell makes of the command");
  await dialog(page).getByRole("button", { name: "Create", exact: true }).click();
  const refused = await dialog(page).getByRole("alert").textContent();
  check(refused.includes("img"), `it's refused by its name: ${refused}`);
  await page.keyboard.press("Escape");
  for (const path of [`volumes/${encodeURIComponent(script)}`, `picture/${encodeURIComponent(script)}`, "volumes/%E0%A4%A", "nowhere/x", "drives/' or 1=1 --"]) {
    await go(page, path);
    await page.waitForFunction(() => document.querySelector("h1"));
    same(await page.evaluate(() => [window.hacked ?? 0, document.querySelectorAll("main img, main script").length]), [0, 0], path);
  }
  same(page.wrong, [], "what went wrong");
}

await stories({ volume, migration, imported, schedules, drivesAndPools, hostile });
