// From what servers have counted to what happens in a second.

import { signal } from "./signal";
import type { Counters, Operation } from "./types";

const KEPT = 120;
/** Percentiles are of so many seconds: of one, there may be too few requests. */
const LATELY = 10;

interface Part {
  count: number;
  bytes: number;
  errors: number;
  buckets: number[];
}
export interface Second {
  at: number;
  requests: Record<string, Part>;
  drives: Record<string, Part>;
}

export const seconds = signal<Second[]>([]);
export const bounds = signal<number[]>([]);
let before: { at: number; counters: Counters } | null = null;

export function clear() {
  before = null;
  seconds.set([]);
}

export function take(counters: Counters) {
  const at = performance.now();
  bounds.set(counters.bounds_micros);
  const last = before;
  before = { at, counters };
  if (!last) return;
  const passed = Math.max((at - last.at) / 1000, 0.2);
  const second: Second = { at, requests: {}, drives: {} };
  for (const server of counters.servers) {
    const known = last.counters.servers.find((one) => one.server === server.server && one.uptime_ms <= server.uptime_ms);
    if (!known) continue; // started meanwhile: since when it counts isn't known here
    add(second.requests, server.requests, known.requests, passed);
    add(second.drives, server.drive_io, known.drive_io, passed);
  }
  for (const gateway of counters.gateways) {
    const known = last.counters.gateways.find((one) => one.gateway === gateway.gateway);
    if (known) add(second.requests, gateway.requests, known.requests, passed);
  }
  seconds.set([...seconds.get(), second].slice(-KEPT));
}

function add(to: Record<string, Part>, now: Operation[], then: Operation[], passed: number) {
  for (const operation of now) {
    const known = then.find((one) => one.operation === operation.operation);
    if (!known) continue;
    const part = (to[operation.operation] ??= { count: 0, bytes: 0, errors: 0, buckets: operation.buckets.map(() => 0) });
    // What was counted of volumes that are gone is missing now.
    const more = (a: number, b: number) => Math.max(a - b, 0);
    operation.buckets.forEach((count, at) => {
      const difference = more(count, known.buckets[at] ?? 0);
      part.buckets[at] += difference;
      part.count += difference / passed;
    });
    part.bytes += more(operation.bytes, known.bytes) / passed;
    part.errors += more(operation.errors, known.errors) / passed;
  }
}

/** How long the fraction of requests took at most, in microseconds, over the last seconds; null if there were none. */
export function percentile(of: "requests" | "drives", operation: string, fraction: number): number | null {
  const sums: number[] = [];
  for (const second of seconds.get().slice(-LATELY)) {
    second[of][operation]?.buckets.forEach((count, at) => (sums[at] = (sums[at] ?? 0) + count));
  }
  const all = sums.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let seen = 0;
  for (let at = 0; at < sums.length; at++) {
    if (seen + sums[at] >= fraction * all) {
      const [low, high] = [at === 0 ? 0 : bounds.get()[at - 1], bounds.get()[at] ?? Infinity];
      // Within a bucket they are taken as evenly spread.
      return Number.isFinite(high) ? low + ((high - low) * (fraction * all - seen)) / sums[at] : Infinity;
    }
    seen += sums[at];
  }
  return null;
}
