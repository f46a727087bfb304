// Changes: a form, the command that does the same, and what came of it. What destroys data wants the name typed.

import { useEffect, useRef, useState } from "preact/hooks";
import { keep, seconds, size } from "./format";
import { signal, useSignal } from "./signal";
import { Command, Failure } from "./widgets";

export interface Field {
  key: string;
  label: string;
  kind: "text" | "size" | "rate" | "span" | "keep" | "check" | "choice";
  value?: string | boolean;
  hint?: string;
  optional?: boolean;
  choices?: string[];
}

export type Values = Record<string, string> & { is: (key: string) => boolean; bytes: (key: string) => number | undefined };

export interface Change {
  title: string;
  /** What comes of it, in a sentence. */
  about?: string;
  fields?: Field[];
  /** The name that has to be typed: data is lost. */
  destroys?: string;
  verb: string;
  command: (values: Values) => string;
  send: (values: Values) => Promise<unknown>;
  /** What is told when it's done. */
  done?: (answer: any) => string;
}

const open = signal<Change | null>(null);

export const ask = (change: Change) => open.set(change);

/** A button that opens the form of a change. */
export function Do({ change, children, small }: { change: () => Change; children: string; small?: boolean }) {
  const opens = change();
  return (
    <button type="button" class={`${small ? "small" : ""} ${opens.destroys ? "danger" : ""}`} onClick={() => ask(change())} aria-haspopup="dialog">
      {children}
    </button>
  );
}

export function Dialogs() {
  const change = useSignal(open);
  return change ? <Form key={change.title} change={change} /> : null;
}

function toValues(fields: Field[], raw: Record<string, string | boolean>): Values {
  const values = Object.fromEntries(fields.map((field) => [field.key, typeof raw[field.key] === "string" ? String(raw[field.key]).trim() : ""]));
  return Object.assign(values, {
    is: (key: string) => raw[key] === true,
    bytes: (key: string) => size(String(raw[key] ?? "")) ?? undefined,
  }) as unknown as Values;
}

/** The rule that a field breaks. */
function breach(field: Field, value: string | boolean): string {
  if (typeof value === "boolean") return "";
  const text = value.trim();
  if (!text) return field.optional ? "" : `${field.label}: say something`;
  if (field.kind === "size" && size(text) === null) return `${field.label}: as 64K, 10G or 1T (binary), or bytes`;
  if (field.kind === "rate" && text !== "auto" && size(text) === null) return `${field.label}: as 50M, or auto`;
  if (field.kind === "span" && seconds(text) === null) return `${field.label}: as 15m, 1h, 30d or 1w`;
  if (field.kind === "keep" && keep(text) === null) return `${field.label}: as daily=7,weekly=4`;
  return "";
}

function Form({ change }: { change: Change }) {
  const fields = change.fields ?? [];
  const [raw, setRaw] = useState<Record<string, string | boolean>>(() =>
    Object.fromEntries(fields.map((field) => [field.key, field.value ?? (field.kind === "check" ? false : "")])),
  );
  const [typed, setTyped] = useState("");
  const [state, setState] = useState<{ at: "asked" | "busy" | "done"; said: string }>({ at: "asked", said: "" });
  const box = useRef<HTMLDialogElement>(null);
  const before = useRef(document.activeElement);
  useEffect(() => {
    const shown = box.current;
    shown?.showModal();
    return () => {
      shown?.close(); // until then nothing else can have the focus
      (before.current as HTMLElement | null)?.focus?.();
    };
  }, []);
  const end = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (state.at === "done") end.current?.focus();
  }, [state.at]);
  const values = toValues(fields, raw);
  const close = () => open.set(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    const broken = fields.map((field) => breach(field, raw[field.key])).find(Boolean);
    if (broken) return setState({ at: "asked", said: broken });
    if (change.destroys && typed !== change.destroys) return setState({ at: "asked", said: `type ${change.destroys} to go on: its data is lost` });
    setState({ at: "busy", said: "" });
    try {
      const answer = await change.send(values);
      setState({ at: "done", said: change.done?.(answer) ?? "Done." });
    } catch (error) {
      setState({ at: "asked", said: (error as Error).message });
    }
  };
  const input = (field: Field) => {
    const id = `field-${field.key}`;
    const set = (value: string | boolean) => setRaw((old) => ({ ...old, [field.key]: value }));
    const hint = field.hint && <small id={`${id}-hint`}>{field.hint}</small>;
    const described = field.hint ? `${id}-hint` : undefined;
    if (field.kind === "check") {
      return (
        <div class="check">
          <input id={id} type="checkbox" checked={raw[field.key] === true} aria-describedby={described} onChange={(event) => set(event.currentTarget.checked)} />
          <label for={id}>{field.label}</label>
          {hint}
        </div>
      );
    }
    const value = String(raw[field.key] ?? "");
    return (
      <div class="field">
        <label for={id}>
          {field.label}
          {field.optional ? " (optional)" : ""}
        </label>
        {field.kind === "choice" ? (
          <select id={id} value={value} aria-describedby={described} onChange={(event) => set(event.currentTarget.value)}>
            {field.optional && <option value="" />}
            {field.choices?.map((choice) => <option value={choice}>{choice}</option>)}
          </select>
        ) : (
          <input id={id} type="text" autocomplete="off" spellcheck={false} value={value} aria-describedby={described} onInput={(event) => set(event.currentTarget.value)} />
        )}
        {hint}
      </div>
    );
  };
  return (
    <dialog ref={box} aria-labelledby="dialog-title" onCancel={(event) => (event.preventDefault(), state.at !== "busy" && close())}>
      <h2 id="dialog-title">{change.title}</h2>
      {state.at === "done" ? (
        <div>
          <p role="status">{state.said}</p>
          <Command of={change.command(values)} label="What a terminal would have done" />
          <div class="buttons">
            <button type="button" class="main" ref={end} onClick={close}>
              Close
            </button>
          </div>
        </div>
      ) : (
        <form onSubmit={submit}>
          {change.about && <p>{change.about}</p>}
          {fields.map(input)}
          {change.destroys && (
            <div class="field danger">
              <label for="field-confirm">
                This loses data for good. Type <code>{change.destroys}</code> to confirm
              </label>
              <input id="field-confirm" type="text" autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
            </div>
          )}
          <Command of={change.command(values)} />
          <Failure text={state.said} />
          <div class="buttons">
            <button type="submit" class={change.destroys ? "danger" : "main"} disabled={state.at === "busy" || (!!change.destroys && typed !== change.destroys)}>
              {state.at === "busy" ? "Working …" : change.verb}
            </button>
            <button type="button" onClick={close} disabled={state.at === "busy"}>
              Cancel
            </button>
          </div>
        </form>
      )}
    </dialog>
  );
}
