// The way to the API: the token, requests, and the stream of changes.
//
// The token is kept in sessionStorage alone: it ends with the tab, and no other tab, page or disk has it.

import { signal } from "./signal";
import type { Counters, Rows, Status } from "./types";
import { clear, take } from "./rates";

const KEY = "tepal-token";

export const token = signal<string | null>(sessionStorage.getItem(KEY));
/** Why the console asks for the token again. */
export const signedOutBecause = signal("");
export const status = signal<Status | null>(null);
/** Rises whenever what is shown may have changed. */
export const changes = signal(0);
export const connection = signal<"live" | "connecting" | "lost">("connecting");

export class ApiFailure extends Error {
  constructor(message: string, readonly kind: string) {
    super(message);
  }
}

export function signIn(text: string) {
  sessionStorage.setItem(KEY, text);
  signedOutBecause.set("");
  token.set(text);
}

export function signOut(because = "") {
  sessionStorage.removeItem(KEY);
  signedOutBecause.set(because);
  status.set(null);
  clear();
  token.set(null);
}

async function ask(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { authorization: `Bearer ${token.get() ?? ""}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiFailure("this server doesn't answer: open the console of another one, or wait", "unreached");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  if (answer.status === 401) signOut("The server doesn't know this token.");
  throw new ApiFailure(said?.error ?? `the server answers ${answer.status}`, said?.kind ?? "internal");
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask("GET", path, undefined, signal)).json();
}

export async function page<T>(path: string, signal?: AbortSignal): Promise<{ total: number; rows: T[] }> {
  const answer = await ask("GET", path, undefined, signal);
  const rows: T[] = await answer.json();
  return { total: Number(answer.headers.get("tepal-total") ?? rows.length), rows };
}

export async function send<T = unknown>(method: "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
  const answer = await (await ask(method, path, body)).json();
  changes.set(changes.get() + 1);
  return answer as T;
}

export const sql = (query: string, signal?: AbortSignal): Promise<Rows> =>
  ask("POST", "/v1/sql", { query }, signal).then((answer) => answer.json());

export const text = (value: string) => encodeURIComponent(value);

/** Tests a token before it's kept. */
export async function isRight(candidate: string): Promise<boolean> {
  const answer = await fetch("/v1/cluster", { headers: { authorization: `Bearer ${candidate}` }, cache: "no-store" });
  return answer.status !== 401;
}

/** Follows the server until `signal` says stop; begins again when the connection is lost. */
export async function follow(signal: AbortSignal) {
  let wait = 250;
  while (!signal.aborted) {
    try {
      const answer = await ask("GET", "/v1/live", undefined, signal);
      connection.set("live");
      wait = 250;
      await read(answer.body!, signal);
    } catch {
      // Told by what is shown; it's tried again.
    }
    if (signal.aborted) return;
    connection.set("lost");
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, 5000);
  }
}

/** An event that doesn't come for so long: the counters come every second, and a few when a server stands still. */
const SILENCE = 15_000;

async function read(body: ReadableStream<Uint8Array>, signal: AbortSignal) {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  while (!signal.aborted) {
    let timer = 0;
    const late = new Promise<never>((_, reject) => (timer = window.setTimeout(() => reject(new Error("silence")), SILENCE)));
    const { done, value } = await Promise.race([reader.read(), late]).finally(() => clearTimeout(timer));
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop()!;
    events.forEach(hear);
  }
  await reader.cancel();
}

function hear(event: string) {
  const match = /^event: (\w+)\ndata: (.*)$/.exec(event);
  if (!match) return;
  const data = JSON.parse(match[2]);
  if (match[1] === "status") status.set(data);
  if (match[1] === "status" || match[1] === "changed") changes.set(changes.get() + 1);
  if (match[1] === "counters") take(data as Counters);
}
