// A value that components follow.

import { useEffect, useState } from "preact/hooks";

export interface Signal<T> {
  get(): T;
  set(value: T): void;
  follow(heard: () => void): () => void;
}

export function signal<T>(value: T): Signal<T> {
  const all = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      all.forEach((heard) => heard());
    },
    follow(heard) {
      all.add(heard);
      return () => all.delete(heard);
    },
  };
}

export function useSignal<T>(of: Signal<T>): T {
  const [value, set] = useState(of.get());
  useEffect(() => {
    set(() => of.get());
    return of.follow(() => set(() => of.get()));
  }, [of]);
  return value;
}
