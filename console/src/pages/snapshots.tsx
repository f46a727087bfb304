import { useState } from "preact/hooks";
import { get, text } from "../api";
import { cloneSnapshot, removeSnapshot, renameSnapshot, rollBack } from "../changes";
import { Do } from "../dialog";
import { bytes, moment, plural } from "../format";
import type { Snapshot } from "../types";
import { useLoaded } from "../use";
import { Command, Failure, List, Reasons, Table } from "../widgets";

const full = (snapshot: Snapshot) => `${snapshot.volume}@${snapshot.name}`;

const Actions = ({ name }: { name: string }) => (
  <span class="row-buttons">
    <Do small change={() => cloneSnapshot(name)}>Clone</Do>
    <Do small change={() => rollBack(name)}>Roll back</Do>
    <Do small change={() => renameSnapshot(name)}>Rename</Do>
    <Do small change={() => removeSnapshot(name)}>Remove</Do>
  </span>
);

export function SnapshotTable({ rows, none }: { rows: Snapshot[]; none: string }) {
  return (
    <Table
      label="Snapshots"
      none={none}
      rows={rows}
      columns={[
        {
          name: "Snapshot",
          show: (snapshot) => (
            <>
              {snapshot.name}
              <Reasons of={snapshot.reason} />
            </>
          ),
        },
        { name: "Size", show: (snapshot) => bytes(snapshot.size), extra: true },
        { name: "Made", show: (snapshot) => moment(snapshot.created_unix_ms), extra: true },
        { name: "Change", show: (snapshot) => <Actions name={full(snapshot)} /> },
      ]}
    />
  );
}

export function Snapshots() {
  const [part, setPart] = useState("");
  const { data, failure } = useLoaded("snapshots", (signal) => get<Snapshot[]>("/v1/snapshots", signal));
  const rows = (data ?? []).filter((snapshot) => full(snapshot).includes(part));
  return (
    <>
      <div class="tools">
        <label>
          Only with <input type="search" value={part} onInput={(event) => setPart(event.currentTarget.value)} />
        </label>
        {data && <span role="status">{plural(rows.length, "snapshot")}</span>}
      </div>
      <Failure text={failure} />
      {data && (
        <List
          label="Snapshots"
          none={data.length ? "No snapshot is called like that." : "There is no snapshot: a volume's page makes one."}
          total={rows.length}
          row={(at) => rows[at]}
          columns={[
            {
              name: "Snapshot",
              wide: true,
              show: (snapshot) => (
                <>
                  <a href={`#/volumes/${text(snapshot.volume)}`}>{snapshot.volume}</a>@{snapshot.name}
                </>
              ),
            },
            { name: "Size", show: (snapshot) => bytes(snapshot.size), extra: true },
            { name: "Only its own", show: (snapshot) => (snapshot.unique === null ? "–" : bytes(snapshot.unique)), extra: true },
            { name: "Made", show: (snapshot) => moment(snapshot.created_unix_ms), extra: true },
            { name: "Change", wide: true, show: (snapshot) => <Actions name={full(snapshot)} /> },
          ]}
        />
      )}
      <Command of="tepal snapshot ls" />
    </>
  );
}
