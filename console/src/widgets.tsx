// What pages are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes } from "./format";

const GOOD = ["ok", "up", "healthy", "active", "running", "done", "free", "live"];
const BUSY = ["recovering", "behind", "draining", "paused", "catching up", "reviving", "initializing", "spare", "connecting"];

/** A state: told by its word and a mark, not by colour alone. */
export function State({ of }: { of: string }) {
  const kind = GOOD.includes(of) ? "good" : BUSY.includes(of) ? "busy" : "bad";
  return (
    <span class={`state ${kind}`}>
      <span aria-hidden="true">{{ good: "●", busy: "◐", bad: "▲" }[kind]}</span> {of}
    </span>
  );
}

export function Bar({ part, whole, label }: { part: number; whole: number; label: string }) {
  const percent = whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
  return (
    <span class="bar" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(percent)}>
      <span class={percent >= 90 ? "full" : ""} style={{ width: `${percent}%` }} />
    </span>
  );
}

export const Used = ({ used, capacity, of }: { used: number; capacity: number; of: string }) => (
  <>
    <Bar part={used} whole={capacity} label={`Used of ${of}`} />
    <small>
      {bytes(used)} of {bytes(capacity)}
    </small>
  </>
);

/** Text in which commands stand between backquotes. */
export function Said({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 ? <code>{part}</code> : part))}</>;
}

export function Reasons({ of }: { of: string[] }) {
  if (of.length === 0) return null;
  return (
    <ul class="reasons">
      {of.map((reason) => (
        <li>
          <Said text={reason} />
        </li>
      ))}
    </ul>
  );
}

export const Failure = ({ text }: { text: string }) =>
  text ? (
    <p class="failure" role="alert">
      <Said text={text} />
    </p>
  ) : null;

/** The command that shows or does the same, with a button that copies it. */
export function Command({ of, label = "The same in a terminal" }: { of: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(of).then(() => setCopied(true), () => undefined);
  return (
    <p class="command">
      <span class="label">{label}:</span> <code>{of}</code>
      <button type="button" class="small" onClick={copy} aria-label="Copy the command">
        {copied ? "Copied" : "Copy"}
      </button>
    </p>
  );
}

export const Facts = ({ of }: { of: [string, ComponentChildren][] }) => (
  <dl class="facts">
    {of.map(([name, value]) => (
      <div>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

export interface Column<T> {
  name: string;
  show: (row: T) => ComponentChildren;
  /** Left out on narrow screens. */
  extra?: boolean;
  wide?: boolean;
}

/** A short table: all rows are there. */
export function Table<T>({ label, columns, rows, none }: { label: string; columns: Column<T>[]; rows: T[]; none: string }) {
  if (rows.length === 0) return <p class="none">{none}</p>;
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" class={column.extra ? "extra" : ""}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {columns.map((column) => (
                <td class={column.extra ? "extra" : ""}>{column.show(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const ROW = 44;
const BEYOND = 12;

interface ListProps<T> {
  label: string;
  columns: Column<T>[];
  total: number;
  row: (at: number) => T | undefined;
  look?: (from: number, to: number) => void;
  none: string;
}

/** A list of any length, of which only the rows that are seen exist. */
export function List<T>({ label, columns, total, row, look, none }: ListProps<T>) {
  const frame = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const measure = () => {
    const element = frame.current;
    if (!element) return;
    const top = Math.floor(element.scrollTop / ROW) * ROW;
    setSeen((old) => (old.top === top && old.height === element.clientHeight ? old : { top, height: element.clientHeight }));
  };
  useLayoutEffect(measure, [total > 0]);
  useEffect(() => {
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const from = Math.max(0, Math.floor(seen.top / ROW) - BEYOND);
  const to = Math.min(total, Math.ceil((seen.top + seen.height) / ROW) + BEYOND);
  useEffect(() => look?.(from, to), [from, to, total]);
  if (total === 0) return <p class="none">{none}</p>;
  const widths = columns.map((column) => (column.wide ? "wide" : "") + (column.extra ? " extra" : ""));
  const rows = [];
  for (let at = from; at < to; at++) {
    const one = row(at);
    rows.push(
      <div key={at} role="row" aria-rowindex={at + 2} class="row" style={{ top: `${at * ROW}px` }}>
        {columns.map((column, number) => (
          <div role="cell" class={widths[number]}>
            {one === undefined ? (number === 0 ? "…" : "") : column.show(one)}
          </div>
        ))}
      </div>,
    );
  }
  return (
    <div role="table" aria-label={label} aria-rowcount={total + 1} class="list">
      <div role="rowgroup">
        <div role="row" class="row head" aria-rowindex={1}>
          {columns.map((column, number) => (
            <div role="columnheader" class={widths[number]}>
              {column.name}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="frame" ref={frame} onScroll={measure} tabIndex={0} aria-label={`${label}: rows`}>
        <div class="length" role="none" style={{ height: `${total * ROW}px` }}>
          {rows}
        </div>
      </div>
    </div>
  );
}

export interface Line {
  name: string;
  values: number[];
}

/** Lines over time, the newest on the right; the numbers of now stand beside them as text. */
export function Chart({ title, lines, show, most = 0 }: { title: string; lines: Line[]; show: (value: number) => string; most?: number }) {
  const top = Math.max(most, 1e-9, ...lines.flatMap((line) => line.values));
  const length = Math.max(2, ...lines.map((line) => line.values.length));
  const [width, height] = [240, 60];
  const path = (values: number[]) =>
    values.map((value, at) => `${at ? "L" : "M"}${(((length - values.length + at) / (length - 1)) * width).toFixed(1)} ${(height - (value / top) * (height - 4)).toFixed(1)}`).join("");
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <svg viewBox={`0 0 ${width} ${height + 2}`} preserveAspectRatio="none" aria-hidden="true">
        {lines.map((line, at) => (
          <path d={path(line.values)} class={`line l${at}`} />
        ))}
      </svg>
      <ul>
        {lines.map((line, at) => (
          <li>
            <span class={`key l${at}`} aria-hidden="true" /> {line.name} <strong>{show(line.values.at(-1) ?? 0)}</strong>
          </li>
        ))}
      </ul>
    </figure>
  );
}
