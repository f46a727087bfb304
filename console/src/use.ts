// What pages read, and read again when something may have changed.

import { useEffect, useRef, useState } from "preact/hooks";
import { changes } from "./api";

/** What nobody agrees on changes too: it's looked at so often. */
const EVERY = 5000;
const GAP = 700;

export interface Loaded<T> {
  data: T | null;
  failure: string;
}

/** Reads now, on changes, and every few seconds while the page is seen. `key` says what is read. */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<Loaded<T> & { key: string }>({ data: null, failure: "", key });
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const ending = new AbortController();
    let timer = 0;
    let began = 0;
    let busy = false;
    let again = false;
    const read = async () => {
      clearTimeout(timer);
      if (busy) {
        again = true;
        return;
      }
      [busy, again, began] = [true, false, performance.now()];
      try {
        const data = await latest.current(ending.signal);
        if (!ending.signal.aborted) setState({ data, failure: "", key });
      } catch (error) {
        if (!ending.signal.aborted) setState((old) => ({ ...old, data: old.key === key ? old.data : null, failure: String((error as Error).message), key }));
      }
      busy = false;
      if (!ending.signal.aborted) timer = window.setTimeout(read, again ? GAP : EVERY);
    };
    const changed = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      if (busy) again = true;
      else timer = window.setTimeout(read, Math.max(0, began + GAP - performance.now()));
    };
    void read();
    const leave = changes.follow(changed);
    return () => {
      ending.abort();
      clearTimeout(timer);
      leave();
    };
  }, [key]);
  return state.key === key ? state : { data: null, failure: "" };
}

/** A list that comes in pages, of which only those that are looked at are read. */
export interface Paged<T> {
  total: number | null;
  row(at: number): T | undefined;
  look(from: number, to: number): void;
  failure: string;
}

export const PAGE = 100;

export function usePaged<T>(key: string, load: (offset: number, limit: number, signal: AbortSignal) => Promise<{ total: number; rows: T[] }>): Paged<T> {
  const pages = useRef(new Map<number, T[]>());
  const seen = useRef({ key, from: 0, to: 0 });
  const [range, setRange] = useState("0-0");
  if (seen.current.key !== key) {
    seen.current = { key, from: 0, to: 0 };
    pages.current = new Map();
  }
  const { data, failure } = useLoaded(`${key} ${range}`, async (signal) => {
    const { from, to } = seen.current;
    let total = 0;
    for (let at = from; at <= to; at++) {
      const got = await load(at * PAGE, PAGE, signal);
      pages.current.set(at, got.rows);
      total = got.total;
    }
    return { total };
  });
  const last = useRef<{ key: string; total: number | null }>({ key, total: null });
  if (last.current.key !== key) last.current = { key, total: null };
  if (data) last.current.total = data.total;
  return {
    total: last.current.total,
    failure,
    row: (at) => pages.current.get(Math.floor(at / PAGE))?.[at % PAGE],
    look(from, to) {
      const [first, end] = [Math.floor(from / PAGE), Math.floor(Math.max(to - 1, 0) / PAGE)];
      if (first === seen.current.from && end === seen.current.to) return;
      seen.current = { key, from: first, to: end };
      setRange(`${first}-${end}`);
    },
  };
}
