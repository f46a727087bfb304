// What the API answers, as far as the console reads it. The server crate's `api_types` describe each key.

export interface Status {
  health: "ok" | "recovering" | "degraded" | "unavailable";
  reason: string[];
  cluster: string;
  servers: Server[];
  volumes: number;
  migrations: number;
  moving: number;
  capacity: number;
  used: number;
  reclaiming: number;
  version: string;
}
export interface Server {
  id: string;
  state: string;
  site: string | null;
  api: string;
  nbd: string[];
  drives: { id: string; path: string; state: string }[];
  pid: number;
  version: string;
  uptime_ms: number;
  data_threads: number;
}
export interface Drive {
  id: string;
  name: string | null;
  server: string;
  pool: string;
  path: string;
  state: string;
  reason: string;
  use: string;
  copies: number;
  moving: number;
  stuck: string | null;
  capacity: number;
  used: number;
  reclaiming: number;
  open: { backend: string; emulated: string | null; read_errors: number; block_errors: number } | null;
}
export interface FoundDrive {
  server: string;
  path: string;
  size: number;
  what: string;
  detail: string;
}
export interface Pool {
  name: string;
  layout: string | null;
  drives: string[];
  volumes: number;
  capacity: number;
  used: number;
}
export interface Snapshot {
  volume: string;
  name: string;
  size: number;
  created_unix_ms: number;
  clients: number;
  unique: number | null;
  reason: string[];
}
export interface Schedule {
  name: string;
  work: "snapshots" | "scrubs";
  volume: string | null;
  pool: string | null;
  every_s: number | null;
  at: string | null;
  zone: string | null;
  keep: Record<string, number> | null;
  within_s: number | null;
  paused: boolean;
  next_unix_ms: number | null;
  last_run_unix_ms: number | null;
  missed: number;
  last_missed_unix_ms: number | null;
  error: string | null;
  snapshots: number;
  held: { name: string; reason: string }[];
  oldest: { volume: string; since_unix_ms: number } | null;
}
export interface Migration {
  to: string;
  to_pool: string | null;
  done_bytes: number;
  total_bytes: number;
  rate: number;
  seconds_left: number | null;
  state: "running" | "paused" | "blocked";
  reason: string[];
  cancelled: boolean;
  flattens: boolean;
  most_rate: number | null;
}
export type MigrationInfo = Migration & { volume: string; from: string; begun_unix_ms: number };
export interface Volume {
  name: string;
  id: number;
  size: number;
  layout: string;
  domain: string | null;
  losses_left: number;
  state: string;
  reason: string[];
  clients: number;
  replica: { called: string } | null;
  allocated: number;
  reclaiming: number;
  origin: string | null;
  epoch: number;
  pool: string;
  drives: string[];
  created_unix_ms: number;
  snapshots: Snapshot[];
  migration: Migration | null;
  live: LiveImport | null;
  recovery: { busy_regions: number; stale_regions: number; bytes_per_second: number };
}
export interface LiveImport {
  from: string;
  state: "running" | "paused" | "cancelled";
  done_bytes: number;
  total_bytes: number;
  reason: string | null;
}
export interface Scrub {
  state: "never" | "running" | "done" | "failed";
  checked_bytes: number;
  total_bytes: number;
  repaired_blocks: number;
  unchecked_drives: string[];
  damaged: { offset: number; length: number }[];
  error: string | null;
}
export interface Loss {
  bytes: number;
  unsettled: boolean;
  tag: string;
}
export interface Plexes {
  plexes: {
    name: string;
    organization: string;
    size: number;
    state: string;
    subdisks: { name: string; drive: string; drive_name: string | null; drive_offset: number; length: number; state: string }[];
  }[];
}
export interface Usage {
  capacity: number;
  used: number;
  samples: { unix_s: number; used: number; capacity: number }[];
  growth_per_day: number | null;
  full_in_seconds: number | null;
  noted_seconds: number;
}
export interface Operation {
  operation: string;
  buckets: number[];
  micros: number;
  bytes: number;
  errors: number;
}
export interface Counters {
  bounds_micros: number[];
  servers: { server: string; uptime_ms: number; requests: Operation[]; drive_io: Operation[] }[];
  gateways: { gateway: number; requests: Operation[] }[];
}
export interface Cluster {
  id: string;
  name: string;
  created_unix_ms: number;
  leader: string | null;
  voters: string[];
  lease_ms: number;
}
export interface Rows {
  columns: string[];
  rows: (string | number | null)[][];
}
