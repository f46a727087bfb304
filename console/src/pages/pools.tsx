import { get, text } from "../api";
import { createPool, removePool } from "../changes";
import { command } from "../command";
import { Do } from "../dialog";
import type { Pool } from "../types";
import { useLoaded } from "../use";
import { Command, Facts, Failure, Table, Used } from "../widgets";

export function Pools() {
  const { data, failure } = useLoaded("pools", (signal) => get<Pool[]>("/v1/pools", signal));
  return (
    <>
      <div class="tools">
        <Do change={createPool}>Make a pool</Do>
      </div>
      <Failure text={failure} />
      {data && (
        <Table
          label="Pools"
          none="There is no pool."
          rows={data}
          columns={[
            { name: "Pool", show: (pool) => <a href={`#/pools/${text(pool.name)}`}>{pool.name}</a> },
            { name: "Layout of new volumes", show: (pool) => pool.layout ?? "mirror:2 where it has two drives" },
            { name: "Drives", show: (pool) => pool.drives.length },
            { name: "Volumes", show: (pool) => pool.volumes },
            { name: "Used", show: (pool) => <Used used={pool.used} capacity={pool.capacity} of={pool.name} /> },
          ]}
        />
      )}
      <Command of="tepal pool ls" />
    </>
  );
}

export function PoolPage({ name }: { name: string }) {
  const { data, failure } = useLoaded(`pool ${name}`, (signal) => get<Pool>(`/v1/pools/${text(name)}`, signal));
  return (
    <>
      <Failure text={failure} />
      {data && (
        <>
          <Facts
            of={[
              ["Layout of new volumes", data.layout ?? "–"],
              ["Volumes", String(data.volumes)],
              ["Used", <Used used={data.used} capacity={data.capacity} of="the pool" />],
            ]}
          />
          <p class="buttons">
            <Do change={() => removePool(data)}>Remove</Do>
          </p>
          <h2>Drives</h2>
          <ul class="names">
            {data.drives.map((id) => (
              <li>
                <a href={`#/drives/${text(id)}`}>{id}</a>
              </li>
            ))}
            {data.drives.length === 0 && <li>None.</li>}
          </ul>
        </>
      )}
      <Command of={command("pool", "show", name)} />
    </>
  );
}
