// Numbers for people, and sizes as people type them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count: number): string {
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit > 0 && Math.abs(count) < 100 && !Number.isInteger(count) ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}

/** `64K`, `10G`, `1.5T` (binary) or bytes; null if it's none. */
export function size(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGTPE]?)(?:iB|B)?\s*$/i.exec(text);
  if (!match) return null;
  const power = match[2] ? "KMGTPE".indexOf(match[2].toUpperCase()) + 1 : 0;
  const count = Number(match[1]) * 1024 ** power;
  return Number.isSafeInteger(count) ? count : null;
}

export function count(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

export function micros(value: number | null): string {
  if (value === null) return "–";
  if (!Number.isFinite(value)) return "> 10 s";
  if (value < 1000) return `${Math.round(value)} µs`;
  return value < 1e6 ? `${(value / 1000).toFixed(value < 1e4 ? 1 : 0)} ms` : `${(value / 1e6).toFixed(1)} s`;
}

export function duration(seconds: number): string {
  const steps: [number, string][] = [[86400 * 365, "year"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [length, word] = steps.find(([length]) => seconds >= 1.5 * length) ?? [1, "second"];
  const number = Math.round(seconds / length);
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

const SPANS: [string, number][] = [["w", 604800], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** `15m`, `1h`, `30d` or `1w` in seconds; null if it's none. */
export function seconds(text: string): number | null {
  const match = /^\s*(\d{1,9})\s*([smhdw])\s*$/.exec(text);
  return match ? Number(match[1]) * SPANS.find(([unit]) => unit === match[2])![1] : null;
}

/** The same the other way round. */
export function span(length: number): string {
  const [unit, each] = SPANS.find(([, each]) => length % each === 0)!;
  return `${length / each}${unit}`;
}

const KINDS = ["last", "hourly", "daily", "weekly", "monthly", "yearly"];

/** `daily=7,weekly=4` as counts; null if it's none. */
export function keep(text: string): Record<string, number> | null {
  const parts = text.split(",").map((part) => /^\s*([a-z]+)=(\d{1,6})\s*$/.exec(part));
  const counts: Record<string, number> = {};
  for (const part of parts) {
    if (!part || !KINDS.includes(part[1]) || part[1] in counts) return null;
    counts[part[1]] = Number(part[2]);
  }
  return counts;
}

/** The same the other way round. */
export const kept = (counts: Record<string, number>) => KINDS.filter((kind) => counts[kind] > 0).map((kind) => `${kind}=${counts[kind]}`).join(",");

export function moment(unixMs: number): string {
  return unixMs > 0 ? new Date(unixMs).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "–";
}

export const plural = (number: number, word: string) => `${number} ${word}${number === 1 ? "" : "s"}`;
