// Who lies on what: the drives of each server, and the columns and copies of a volume on them.

import { useState } from "preact/hooks";
import { get, page, sql, text } from "../api";
import type { Drive, Volume } from "../types";
import { useLoaded } from "../use";
import { Bar, Command, Failure, State, Table } from "../widgets";

const called = (drive: Drive) => drive.name ?? drive.id;
const SUGGESTED = 50;
const COLUMNS = 200;

export function Picture({ name }: { name: string }) {
  const [part, setPart] = useState(name);
  const drives = useLoaded("drives", (signal) => get<Drive[]>("/v1/drives", signal));
  const suggested = useLoaded(`suggested ${part}`, (signal) => page<Volume>(`/v1/volumes?limit=${SUGGESTED}&contains=${text(part)}`, signal));
  const volume = useLoaded(`picture of ${name}`, (signal) => (name ? get<Volume>(`/v1/volumes/${text(name)}`, signal) : Promise.resolve(null)));
  const id = volume.data?.id ?? 0;
  const copies = useLoaded(`copies of ${id}`, (signal) =>
    sql(`select c.column, c.copy, c.drive, c.status from map_columns c join volumes v on v.map = c.map where v.id = ${id} order by 1, 2`, signal),
  );
  const on = new Map<string, number>();
  for (const [, , drive] of copies.data?.rows ?? []) on.set(String(drive), (on.get(String(drive)) ?? 0) + 1);
  const servers = [...new Set((drives.data ?? []).map((drive) => drive.server))];
  const label = (drive: string) => {
    const known = drives.data?.find((one) => one.id === drive);
    return known ? called(known) : drive;
  };
  const columns = new Map<number, { drive: string; status: string }[]>();
  for (const [column, , drive, status] of copies.data?.rows ?? []) {
    columns.set(Number(column), [...(columns.get(Number(column)) ?? []), { drive: String(drive), status: String(status) }]);
  }
  const show = (event: Event) => {
    event.preventDefault();
    location.hash = `#/picture/${text(part)}`;
  };
  return (
    <>
      <form class="tools" onSubmit={show}>
        <label>
          Volume <input type="text" list="volumes" autocomplete="off" value={part} onInput={(event) => setPart(event.currentTarget.value.trim())} />
        </label>
        <datalist id="volumes">{suggested.data?.rows.map((one) => <option value={one.name} />)}</datalist>
        <button type="submit">Show where it lies</button>
      </form>
      <Failure text={drives.failure || volume.failure || copies.failure} />
      {volume.data && (
        <p role="status">
          Volume {volume.data.name}, {volume.data.layout}, lies on {on.size} of {drives.data?.length ?? 0} drives.
        </p>
      )}
      <div class="picture">
        {servers.map((server) => (
          <section aria-label={`Server ${server}`}>
            <h2>
              <a href={`#/servers/${text(server)}`}>{server}</a>
            </h2>
            <ul>
              {drives.data!.filter((drive) => drive.server === server).map((drive) => (
                <li class={on.has(drive.id) ? "on" : name ? "off" : ""}>
                  <a href={`#/drives/${text(drive.id)}`}>{called(drive)}</a> <State of={drive.state} />
                  <Bar part={drive.used} whole={drive.capacity} label={`Used of ${called(drive)}`} />
                  <small>{name ? (on.has(drive.id) ? `${on.get(drive.id)} copies of it` : "nothing of it") : `${drive.copies} copies`}</small>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
      {volume.data && (
        <Table
          label="Columns"
          none="It has none."
          rows={[...columns].slice(0, COLUMNS)}
          columns={[
            { name: "Column", show: ([column]) => column },
            {
              name: "Its copies, the first that is up leads",
              show: ([, all]) => all.map((copy, at) => <>{at ? ", " : ""}<a href={`#/drives/${text(copy.drive)}`}>{label(copy.drive)}</a>{copy.status === "complete" ? "" : ` (${copy.status})`}</>),
            },
          ]}
        />
      )}
      <Command of="tepal show --as picture" />
    </>
  );
}
