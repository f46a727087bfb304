// Every change that the console makes: its form, its request, and the command that does the same.

import { send, text } from "./api";
import { command } from "./command";
import type { Change, Field, Values } from "./dialog";
import { bytes, keep, kept, seconds, span } from "./format";
import type { Drive, FoundDrive, Loss, Pool, Schedule, Volume } from "./types";

const NAME = "1 to 128 of A-Z a-z 0-9 . _ -";
const LAYOUTS = "stripe, mirror:N, chained or ec:M+K, with options as in mirror:2;durability=flush; the pool's, if not said";
const SIZE = "as 64K, 10G or 1T (binary), or bytes";
const layout: Field = { key: "layout", label: "Layout", kind: "text", optional: true, hint: LAYOUTS };
const rate: Field = { key: "rate", label: "Rate", kind: "rate", optional: true, hint: "bytes a second at most, as 50M; as much as clients leave, if not said" };
const force = (label: string): Field => ({ key: "force", label, kind: "check" });

const or = (value: string) => value || undefined;
const rateOf = (values: Values) => (values.rate && values.rate !== "auto" ? values.bytes("rate") : undefined);
const pools = (all: Pool[]) => all.map((pool) => pool.name);
const query = (parts: Record<string, boolean>) => {
  const said = Object.entries(parts).filter(([, value]) => value);
  return said.length ? `?${said.map(([key]) => `${key}=true`).join("&")}` : "";
};
const volumePath = (name: string, verb = "") => `/v1/volumes/${text(name)}${verb && `/${verb}`}`;
const snapshotPath = (name: string, verb = "") => `/v1/snapshots/${text(name)}${verb && `/${verb}`}`;
const drivePath = (id: string, verb = "") => `/v1/drives/${text(id)}${verb && `/${verb}`}`;

export const createVolume = (all: Pool[]): Change => ({
  title: "Create a volume",
  about: "It reads as zeros, and takes space only as it is written to.",
  verb: "Create",
  fields: [
    { key: "name", label: "Name", kind: "text", hint: NAME },
    { key: "size", label: "Size", kind: "size", hint: SIZE },
    layout,
    { key: "pool", label: "Pool", kind: "choice", optional: true, choices: pools(all) },
  ],
  command: (v) =>
    command("volume", "create", v.name || "NAME", "--size", v.size || "SIZE", v.layout && "--layout", v.layout, v.pool && "--pool", v.pool),
  send: (v) => send("POST", "/v1/volumes", { name: v.name, size: v.bytes("size"), layout: or(v.layout), pool: or(v.pool) }),
  done: (volume: Volume) => `Volume ${volume.name} is there: ${bytes(volume.size)}, ${volume.layout}.`,
});

export const resizeVolume = (volume: Volume): Change => ({
  title: `Resize ${volume.name}`,
  about: `It has ${bytes(volume.size)}. It may be in use meanwhile; new bytes read as zeros.`,
  verb: "Resize",
  fields: [
    { key: "size", label: "New size", kind: "size", hint: SIZE },
    { key: "shrink", label: "It may become smaller: what is past the new end is lost", kind: "check" },
    force("Even while it's in use"),
  ],
  command: (v) => command("volume", "resize", volume.name, v.size || "SIZE", v.is("shrink") && "--shrink", v.is("force") && "--force"),
  send: (v) => send("POST", volumePath(volume.name, "resize"), { size: v.bytes("size"), shrink: v.is("shrink"), force: v.is("force") }),
  done: (after: Volume) => `Volume ${after.name} has ${bytes(after.size)}.`,
});

export const renameVolume = (volume: Volume): Change => ({
  title: `Rename ${volume.name}`,
  verb: "Rename",
  fields: [{ key: "name", label: "New name", kind: "text", value: volume.name, hint: NAME }],
  command: (v) => command("volume", "rename", volume.name, v.name || "NAME"),
  send: (v) => send("POST", volumePath(volume.name, "rename"), { new_name: v.name }),
  done: (after: Volume) => {
    location.hash = `#/volumes/${text(after.name)}`;
    return `It's called ${after.name} now.`;
  },
});

export const removeVolume = (volume: Volume): Change => ({
  title: `Remove ${volume.name}`,
  about: "All that is on it is lost. Clones of it stay.",
  destroys: volume.name,
  verb: "Remove",
  fields: [
    ...(volume.snapshots.length > 0 ? [{ key: "snapshots", label: `With its ${volume.snapshots.length} snapshots`, kind: "check" } as Field] : []),
    force("Even while it's in use: its users get errors from then on"),
  ],
  command: (v) => command("volume", "rm", volume.name, v.is("snapshots") && "--snapshots", v.is("force") && "--force", "--no-wait"),
  send: (v) => send("DELETE", volumePath(volume.name) + query({ force: v.is("force"), snapshots: v.is("snapshots") })),
  done: () => `Volume ${volume.name} is removed; its space is freed in the background.`,
});

export const relayoutVolume = (volume: Volume, all: Pool[]): Change => ({
  title: `Give ${volume.name} another layout`,
  about: "Its data goes there a part at a time, with its snapshots and clones, while it's used.",
  verb: "Begin",
  fields: [
    { ...layout, value: volume.layout, hint: "as of a new volume" },
    { key: "pool", label: "Pool", kind: "choice", optional: true, choices: pools(all) },
    rate,
  ],
  command: (v) =>
    command("volume", "relayout", volume.name, v.layout && "--layout", v.layout, v.pool && "--pool", v.pool, v.rate && "--rate", v.rate, "--no-wait"),
  send: (v) => send("POST", volumePath(volume.name, "relayout"), { layout: or(v.layout), pool: or(v.pool), rate: rateOf(v) }),
  done: () => "It's on its way: the page Migrations shows how far it is.",
});

export const flattenVolume = (volume: Volume): Change => ({
  title: `Flatten ${volume.name}`,
  about: "It shares no data with other volumes any more: what it shares is copied.",
  verb: "Begin",
  fields: [rate],
  command: (v) => command("volume", "flatten", volume.name, v.rate && "--rate", v.rate, "--no-wait"),
  send: (v) => send("POST", volumePath(volume.name, "flatten"), { rate: rateOf(v) }),
  done: () => "It's on its way: the page Migrations shows how far it is.",
});

export const pauseMigration = (name: string): Change => ({
  title: `Pause ${name}`,
  about: "The volume rests on its way until it's resumed; it's used as before.",
  verb: "Pause",
  command: () => command("volume", "pause", name),
  send: () => send("POST", volumePath(name, "pause")),
});

export const resumeMigration = (name: string): Change => ({
  title: `Resume ${name}`,
  verb: "Resume",
  command: () => command("volume", "resume", name),
  send: () => send("POST", volumePath(name, "resume")),
});

export const pauseImport = (name: string): Change => ({ ...pauseMigration(name), about: "Nothing is copied until it's resumed; the volume is used as before." });

export const cancelImport = (name: string): Change => ({
  title: `Cancel the import of ${name}`,
  about: "Where it comes from isn't read any more: what isn't here yet can't be read, until it's resumed.",
  verb: "Call it off",
  command: () => command("volume", "cancel", name),
  send: () => send("POST", volumePath(name, "cancel")),
});

export const cancelMigration = (name: string): Change => ({
  title: `Cancel the change of ${name}`,
  about: "What has gone comes back, a part at a time.",
  verb: "Call it off",
  command: () => command("volume", "cancel", name, "--no-wait"),
  send: () => send("POST", volumePath(name, "cancel")),
});

export const rateOfMigration = (name: string): Change => ({
  title: `Keep ${name} to a rate`,
  verb: "Set",
  fields: [{ ...rate, optional: false, value: "auto", hint: "bytes a second, as 50M; or auto for as much as clients leave" }],
  command: (v) => command("volume", "rate", name, v.rate || "RATE"),
  send: (v) => send("POST", volumePath(name, "rate"), { rate: rateOf(v) ?? null }),
});

export const scrubVolume = (volume: Volume): Change => ({
  title: `Scrub ${volume.name}`,
  about: "Every copy of everything on it is read and verified, and what is damaged is repaired.",
  verb: "Begin",
  command: () => command("volume", "scrub", volume.name, "--no-wait"),
  send: () => send("POST", volumePath(volume.name, "scrub")),
  done: () => "It runs: the volume's page shows how far it is.",
});

export const acceptLoss = (volume: Volume, loss: Loss): Change => ({
  title: `Accept the loss of ${volume.name}`,
  about: `${bytes(loss.bytes)} of it are lost${loss.unsettled ? ", as far as is known by now" : ""}. Where only drives that failed had all that was acknowledged, what is left is served as it is. There is no way back: if a drive may still return, bring it back instead.`,
  destroys: volume.name,
  verb: "Accept",
  command: () => command("volume", "accept-loss", volume.name, "--force", "--shown", loss.tag),
  send: () => send("POST", volumePath(volume.name, "loss"), { tag: loss.tag }),
  done: (loss: { bytes: number }) => `${bytes(loss.bytes)} may miss writes that were acknowledged; what is left is served.`,
});

export const promoteReplica = (volume: Volume): Change => ({
  title: `Promote ${volume.name}`,
  about: "The replica becomes an ordinary volume, with the content of its newest whole snapshot.",
  destroys: volume.name,
  verb: "Promote",
  fields: [force("Even while replication writes to it")],
  command: (v) => command("replicate", "promote", volume.name, v.is("force") && "--force"),
  send: (v) => send("POST", volumePath(volume.name, "promote") + query({ force: v.is("force") })),
});

export const createSnapshot = (volume: string): Change => ({
  title: `Keep what ${volume} holds now`,
  about: "Whatever was acknowledged before is in it. It takes space as the volume changes.",
  verb: "Take a snapshot",
  fields: [{ key: "name", label: "Name of the snapshot", kind: "text", hint: NAME }],
  command: (v) => command("snapshot", "create", `${volume}@${v.name || "SNAP"}`),
  send: (v) => send("POST", "/v1/snapshots", { volume, name: v.name }),
  done: (snapshot: { volume: string; name: string }) => `Snapshot ${snapshot.volume}@${snapshot.name} is there.`,
});

export const removeSnapshot = (name: string): Change => ({
  title: `Remove ${name}`,
  about: "What only this snapshot kept is lost, and freed in the background.",
  destroys: name,
  verb: "Remove",
  fields: [force("Even while it's in use: its readers get errors from then on")],
  command: (v) => command("snapshot", "rm", name, v.is("force") && "--force"),
  send: (v) => send("DELETE", snapshotPath(name) + query({ force: v.is("force") })),
});

export const renameSnapshot = (name: string): Change => ({
  title: `Rename ${name}`,
  verb: "Rename",
  fields: [{ key: "name", label: "New name", kind: "text", hint: NAME }],
  command: (v) => command("snapshot", "rename", name, v.name || "NAME"),
  send: (v) => send("POST", snapshotPath(name, "rename"), { new_name: v.name }),
});

export const rollBack = (name: string): Change => ({
  title: `Roll back to ${name}`,
  about: "The volume holds what the snapshot does. What it holds now is lost, unless another snapshot keeps it.",
  destroys: name.split("@")[0],
  verb: "Roll back",
  fields: [force("Even while the volume is in use: what its users know of it is wrong from then on")],
  command: (v) => command("snapshot", "rollback", name, v.is("force") && "--force"),
  send: (v) => send("POST", snapshotPath(name, "rollback") + query({ force: v.is("force") })),
});

export const cloneSnapshot = (name: string): Change => ({
  title: `Clone ${name}`,
  about: "The new volume begins with what the snapshot holds. Nothing is copied, and each goes on by itself.",
  verb: "Clone",
  fields: [{ key: "name", label: "Name of the new volume", kind: "text", hint: NAME }],
  command: (v) => command("volume", "clone", name, v.name || "NEW"),
  send: (v) => send("POST", snapshotPath(name, "clone"), { name: v.name }),
  done: (volume: Volume) => `Volume ${volume.name} is there.`,
});

const schedulePath = (name: string, verb = "") => `/v1/schedules/${text(name)}${verb && `/${verb}`}`;
const spanOf = (said: string) => seconds(said) ?? undefined;
const every: Field = { key: "every", label: "From one to the next", kind: "span", hint: "as 15m, 1h, 1d or 1w" };
const within: Field = { key: "within", label: "No volume stays unscrubbed for longer than", kind: "span", hint: "as 7d or 30d" };
const at: Field = { key: "at", label: "One of the times of the day", kind: "text", optional: true, hint: "as 02:30, in UTC; midnight, if not said" };
const keeps: Field = { key: "keep", label: "How many of a volume stay", kind: "keep", hint: "the newest, and one of each of so many hours and so on: last=N,hourly=N,daily=N,weekly=N,monthly=N,yearly=N" };

export const createSnapshots = (all: Pool[]): Change => ({
  title: "Have snapshots made",
  about: "They are made at equal distances, and those that aren't kept any more are removed. Say a volume, or a pool for all of its volumes.",
  verb: "Make the schedule",
  fields: [
    { key: "name", label: "Name of the schedule", kind: "text", hint: NAME },
    { key: "volume", label: "Volume", kind: "text", optional: true },
    { key: "pool", label: "Pool", kind: "choice", optional: true, choices: pools(all) },
    { ...every, value: "1h" },
    at,
    { ...keeps, value: "hourly=24,daily=7,weekly=4,monthly=12" },
  ],
  command: (v) =>
    command("schedule", "create", v.name || "NAME", v.volume && "--snapshot", v.volume, v.pool && "--pool", v.pool, "--every", v.every || "TIME", v.at && "--at", v.at, "--keep", v.keep || "COUNTS"),
  send: (v) => send("POST", "/v1/schedules", { name: v.name, work: "snapshots", volume: or(v.volume), pool: or(v.pool), every_s: spanOf(v.every), at: or(v.at), keep: keep(v.keep) }),
  done: (made: Schedule) => `Schedule ${made.name} is there.`,
});

export const createScrubs = (all: Pool[]): Change => ({
  title: "Have volumes scrubbed",
  about: "Everything on them is read and verified in time, as slowly as that allows, and what is damaged is repaired.",
  verb: "Make the schedule",
  fields: [
    { key: "name", label: "Name of the schedule", kind: "text", value: "scrubs", hint: NAME },
    { key: "pool", label: "Only of this pool", kind: "choice", optional: true, choices: pools(all) },
    { ...within, value: "30d" },
  ],
  command: (v) => command("schedule", "create", v.name || "NAME", "--scrub", v.pool && "--pool", v.pool, "--within", v.within || "TIME"),
  send: (v) => send("POST", "/v1/schedules", { name: v.name, work: "scrubs", pool: or(v.pool), within_s: spanOf(v.within) }),
  done: (made: Schedule) => `Schedule ${made.name} is there.`,
});

const rules = ({ work, volume, pool, every_s, at, zone, keep, within_s }: Schedule) => ({ work, volume, pool, every_s, at, zone, keep, within_s });

export const changeSchedule = (schedule: Schedule): Change => {
  const { name } = schedule;
  const scrubs = schedule.work === "scrubs";
  return {
    title: `Change schedule ${name}`,
    verb: "Change",
    fields: scrubs
      ? [{ ...within, value: span(schedule.within_s ?? 1) }]
      : [{ ...every, value: span(schedule.every_s ?? 1) }, { ...keeps, value: kept(schedule.keep ?? {}) }],
    command: (v) => (scrubs ? command("schedule", "set", name, "--within", v.within || "TIME") : command("schedule", "set", name, "--every", v.every || "TIME", "--keep", v.keep || "COUNTS")),
    send: (v) =>
      send("POST", schedulePath(name), scrubs ? { ...rules(schedule), within_s: spanOf(v.within) } : { ...rules(schedule), every_s: spanOf(v.every), keep: keep(v.keep) }),
  };
};

export const pauseSchedule = (name: string): Change => ({
  title: `Pause schedule ${name}`,
  about: "It rests until it's resumed; times that pass meanwhile aren't missed.",
  verb: "Pause",
  command: () => command("schedule", "pause", name),
  send: () => send("POST", schedulePath(name, "pause")),
});

export const resumeSchedule = (name: string): Change => ({
  title: `Resume schedule ${name}`,
  verb: "Resume",
  command: () => command("schedule", "resume", name),
  send: () => send("POST", schedulePath(name, "resume")),
});

export const runSchedule = (schedule: Schedule): Change => ({
  title: `Run schedule ${schedule.name} now`,
  about: "Beside its times, which stay as they are.",
  verb: "Run",
  command: () => command("schedule", "run", schedule.name),
  send: () => send("POST", schedulePath(schedule.name, "run")),
  done: (done: { snapshots: string[]; scrubs: string[] }) => (schedule.work === "scrubs" ? `Scrubs began: ${done.scrubs.join(", ")}.` : `Made: ${done.snapshots.join(", ")}.`),
});

export const removeSchedule = (name: string): Change => ({
  title: `Remove schedule ${name}`,
  about: "Its snapshots stay, and nothing removes them any more.",
  verb: "Remove",
  command: () => command("schedule", "rm", name),
  send: () => send("DELETE", schedulePath(name)),
  done: () => {
    location.hash = "#/schedules";
    return `Schedule ${name} is removed.`;
  },
});

export const createPool = (): Change => ({
  title: "Make a pool",
  about: "A pool begins without drives: drives that are added may name it.",
  verb: "Make",
  fields: [
    { key: "name", label: "Name", kind: "text", hint: NAME },
    { ...layout, hint: "for volumes that are created without one" },
  ],
  command: (v) => command("pool", "create", v.name || "NAME", v.layout && "--layout", v.layout),
  send: (v) => send("POST", "/v1/pools", { name: v.name, layout: or(v.layout) }),
});

export const removePool = (pool: Pool): Change => ({
  title: `Remove pool ${pool.name}`,
  about: "Only a pool without drives and volumes can be removed.",
  verb: "Remove",
  command: () => command("pool", "rm", pool.name),
  send: () => send("DELETE", `/v1/pools/${text(pool.name)}`),
});

export const drainServer = (id: string, draining: boolean): Change => ({
  title: draining ? `Drain server ${id}` : `Stop draining server ${id}`,
  about: draining ? "Others take what its drives hold; it goes on serving meanwhile." : "Its drives are to hold their share again.",
  verb: draining ? "Drain" : "Stop draining",
  command: () => command("server", "drain", id, !draining && "--cancel", draining && "--no-wait"),
  send: () => send("POST", `/v1/servers/${text(id)}/draining`, { draining }),
});

export const removeServer = (id: string): Change => ({
  title: `Remove server ${id}`,
  about: "A server without drives leaves the cluster for good. If it runs, it ends.",
  destroys: id,
  verb: "Remove",
  command: () => command("server", "rm", id),
  send: () => send("DELETE", `/v1/servers/${text(id)}`),
});

export const addDrive = (servers: string[], all: Pool[], found?: FoundDrive): Change => ({
  title: "Add a drive",
  about: "A block device or file of a server joins the cluster. What is on it is lost.",
  verb: "Add",
  fields: [
    { key: "server", label: "Server", kind: "choice", choices: servers, value: found?.server ?? servers[0] },
    { key: "path", label: "Path on that server", kind: "text", value: found?.path, hint: "absolute, as /dev/sdb" },
    { key: "pool", label: "Pool", kind: "choice", optional: true, choices: pools(all) },
    { key: "create", label: "Make a file of this size first", kind: "size", optional: true, hint: SIZE },
    force("Even if it carries a filesystem or partitions, which are lost"),
  ],
  command: (v) =>
    command("drive", "add", v.server, v.path || "PATH", v.pool && "--pool", v.pool, v.create && "--create", v.create, v.is("force") && "--force"),
  send: (v) =>
    send("POST", "/v1/drives", { server: v.server, path: v.path, pool: or(v.pool), create: v.create ? v.bytes("create") : undefined, force: v.is("force") }),
  done: (drive: Drive) => `Drive ${drive.id} is there.`,
});

const called = (drive: Drive) => drive.name ?? drive.id;

export const useDrive = (drive: Drive, to: "draining" | "spare", on: boolean): Change => ({
  title: `${on ? (to === "spare" ? "Keep as a spare:" : "Drain") : to === "spare" ? "No longer a spare:" : "Stop draining"} ${called(drive)}`,
  about: on ? "Others take what it holds; it goes on serving meanwhile." : "It's to hold its share again.",
  verb: on ? (to === "spare" ? "Keep as a spare" : "Drain") : "Stop",
  command: () => command("drive", to === "spare" ? "spare" : "drain", called(drive), !on && "--cancel", on && to === "draining" && "--no-wait"),
  send: () => send("POST", drivePath(drive.id, "use"), { to: on ? to : "active" }),
});

export const plugDrive = (drive: Drive, verb: "offline" | "online"): Change => ({
  title: `Take ${called(drive)} ${verb}`,
  about: verb === "offline" ? "It's used no more until it's put online, as if it had been pulled. Its data stays on it." : "It's used again, and catches up on what it missed.",
  verb: verb === "offline" ? "Take offline" : "Put online",
  command: () => command("drive", verb, called(drive)),
  send: () => send("POST", drivePath(drive.id, verb)),
});

export const growDrive = (drive: Drive): Change => ({
  title: `Grow ${called(drive)}`,
  about: "It takes what its device has been enlarged by.",
  verb: "Grow",
  command: () => command("drive", "grow", called(drive)),
  send: () => send("POST", drivePath(drive.id, "grow")),
  done: (after: Drive) => `It has ${bytes(after.capacity)} now.`,
});

export const nameDrive = (drive: Drive): Change => ({
  title: `Name ${called(drive)}`,
  about: "None takes the name away.",
  verb: "Name",
  fields: [{ key: "name", label: "Name", kind: "text", optional: true, value: drive.name ?? "", hint: NAME }],
  command: (v) => command("drive", "name", called(drive), v.name),
  send: (v) => send("POST", drivePath(drive.id, "name"), { name: v.name || null }),
});

export const replaceDrive = (drive: Drive, others: Drive[]): Change => ({
  title: `Replace ${called(drive)}`,
  about: "Volumes whose layouts name it get the other drive in its place.",
  verb: "Replace",
  fields: [{ key: "by", label: "By", kind: "choice", choices: others.map((one) => one.id), value: others[0]?.id }],
  command: (v) => command("drive", "replace", called(drive), v.by || "ID"),
  send: (v) => send("POST", drivePath(drive.id, "replace"), { by: v.by }),
});

export const removeDrive = (drive: Drive): Change => ({
  title: `Remove ${called(drive)}`,
  about: "The drive leaves the cluster for good. Drain it first, so that others have what it holds.",
  destroys: called(drive),
  verb: "Remove",
  fields: [force("Even if it may hold the last good copy of something")],
  command: (v) => command("drive", "rm", called(drive), v.is("force") && "--force"),
  send: (v) => send("DELETE", drivePath(drive.id) + query({ force: v.is("force") })),
});

export const setLease = (now: number): Change => ({
  title: "For how long a server may be silent",
  about: "Others take over soon after that: from 300ms to 60s.",
  verb: "Set",
  fields: [{ key: "ms", label: "Milliseconds", kind: "text", value: String(now) }],
  command: (v) => command("cluster", "set", "--lease", `${v.ms || "TIME"}ms`),
  send: (v) => send("POST", "/v1/cluster", { lease_ms: Number(v.ms) }),
});
