import { useState } from "preact/hooks";
import { get, page, text } from "../api";
import * as change from "../changes";
import { command } from "../command";
import { Do } from "../dialog";
import { bytes, moment, plural } from "../format";
import type { LiveImport, Loss, Plexes, Pool, Scrub, Volume } from "../types";
import { useLoaded, usePaged } from "../use";
import { Bar, Command, Facts, Failure, List, Reasons, State, Table } from "../widgets";
import { MigrationActions, Progress } from "./migrations";
import { SnapshotTable } from "./snapshots";

export function Volumes() {
  const [part, setPart] = useState("");
  const pools = useLoaded("pools", (signal) => get<Pool[]>("/v1/pools", signal)).data ?? [];
  const volumes = usePaged(`volumes ${part}`, (offset, limit, signal) =>
    page<Volume>(`/v1/volumes?offset=${offset}&limit=${limit}${part && `&contains=${text(part)}`}`, signal),
  );
  return (
    <>
      <div class="tools">
        <label>
          Only with <input type="search" value={part} onInput={(event) => setPart(event.currentTarget.value.trim())} />
        </label>
        <Do change={() => change.createVolume(pools)}>Create a volume</Do>
        {volumes.total !== null && <span role="status">{plural(volumes.total, "volume")}</span>}
      </div>
      <Failure text={volumes.failure} />
      {volumes.total !== null && (
        <List
          label="Volumes"
          none={part ? "No volume is called like that." : "There is no volume yet."}
          total={volumes.total}
          row={volumes.row}
          look={volumes.look}
          columns={[
            { name: "Volume", wide: true, show: (volume) => <a href={`#/volumes/${text(volume.name)}`}>{volume.name}</a> },
            { name: "State", show: (volume) => <State of={volume.state} /> },
            { name: "Size", show: (volume) => bytes(volume.size) },
            { name: "On drives", show: (volume) => bytes(volume.allocated), extra: true },
            { name: "Layout", show: (volume) => volume.layout, extra: true },
            { name: "Pool", show: (volume) => volume.pool, extra: true },
            { name: "Clients", show: (volume) => volume.clients, extra: true },
          ]}
        />
      )}
      <Command of="tepal volume ls" />
    </>
  );
}

export function VolumePage({ name }: { name: string }) {
  const { data: volume, failure } = useLoaded(`volume ${name}`, (signal) => get<Volume>(`/v1/volumes/${text(name)}`, signal));
  const pools = useLoaded("pools", (signal) => get<Pool[]>("/v1/pools", signal)).data ?? [];
  if (!volume || failure) {
    return (
      <>
        <Failure text={failure} />
        <Command of={command("volume", "show", name)} />
      </>
    );
  }
  const { recovery } = volume;
  return (
    <>
      <Reasons of={volume.reason} />
      <Facts
        of={[
          ["State", <State of={volume.state} />],
          ["Size", bytes(volume.size)],
          ["On drives", `${bytes(volume.allocated)}, copies counted`],
          ["Layout", volume.layout],
          ["Outlives", `${plural(volume.losses_left, "more drive")}${volume.domain ? `; copies apart by ${volume.domain}` : ""}`],
          ["Pool", <a href={`#/pools/${text(volume.pool)}`}>{volume.pool}</a>],
          ["Clients", String(volume.clients)],
          ["Clone of", volume.origin ?? "–"],
          ["Replica of", volume.replica?.called ?? "–"],
          ["Created", moment(volume.created_unix_ms)],
          ["Catching up", recovery.stale_regions + recovery.busy_regions ? `${recovery.stale_regions + recovery.busy_regions} MiB left, ${bytes(recovery.bytes_per_second)}/s` : "–"],
          ["Lies on", <a href={`#/picture/${text(volume.name)}`}>{plural(volume.drives.length, "drive")}</a>],
        ]}
      />
      <p class="buttons">
        <Do change={() => change.createSnapshot(volume.name)}>Snapshot</Do>
        <Do change={() => change.resizeVolume(volume)}>Resize</Do>
        <Do change={() => change.renameVolume(volume)}>Rename</Do>
        <Do change={() => change.relayoutVolume(volume, pools)}>Another layout</Do>
        <Do change={() => change.scrubVolume(volume)}>Scrub</Do>
        {volume.origin && <Do change={() => change.flattenVolume(volume)}>Flatten</Do>}
        {volume.replica && <Do change={() => change.promoteReplica(volume)}>Promote</Do>}
        {volume.state === "unavailable" && <AcceptLoss of={volume} />}
        <Do change={() => change.removeVolume(volume)}>Remove</Do>
      </p>
      {volume.migration && (
        <section aria-labelledby="migration">
          <h2 id="migration">On its way to {volume.migration.to}</h2>
          <Progress of={volume.migration} />
          <Reasons of={volume.migration.reason} />
          <MigrationActions volume={volume.name} of={volume.migration} />
        </section>
      )}
      {volume.live && <Import volume={volume.name} of={volume.live} />}
      <h2>Snapshots</h2>
      <SnapshotTable rows={[...volume.snapshots].reverse()} none="It has no snapshots." />
      <Scrubbed name={name} />
      {volume.layout.startsWith("plexes") && <Subdisks name={name} />}
      <Command of={command("volume", "show", name)} />
    </>
  );
}

function Import({ volume, of }: { volume: string; of: LiveImport }) {
  return (
    <section aria-labelledby="import">
      <h2 id="import">Comes from {of.from}</h2>
      <Bar part={of.done_bytes} whole={of.total_bytes} label="How far the import is" />
      <p>
        <State of={of.state} /> {bytes(of.done_bytes)} of {bytes(of.total_bytes)} are here
        {of.state === "cancelled" ? "; the rest can't be read" : "; the rest is read where it comes from"}
      </p>
      <Reasons of={of.reason ? [of.reason] : []} />
      <p class="buttons">
        {of.state === "running" ? <Do change={() => change.pauseImport(volume)}>Pause</Do> : <Do change={() => change.resumeMigration(volume)}>Resume</Do>}
        {of.state !== "cancelled" && <Do change={() => change.cancelImport(volume)}>Cancel</Do>}
      </p>
    </section>
  );
}

function AcceptLoss({ of }: { of: Volume }) {
  const { data } = useLoaded(`loss ${of.name}`, (signal) => get<Loss>(`/v1/volumes/${text(of.name)}/loss`, signal));
  return data && data.bytes > 0 ? <Do change={() => change.acceptLoss(of, data)}>Accept the loss</Do> : null;
}

function Scrubbed({ name }: { name: string }) {
  const { data } = useLoaded(`scrub ${name}`, (signal) => get<Scrub>(`/v1/volumes/${text(name)}/scrub`, signal));
  if (!data || data.state === "never") return null;
  return (
    <section aria-labelledby="scrub">
      <h2 id="scrub">
        Scrub: <State of={data.state} />
      </h2>
      <Bar part={data.checked_bytes} whole={data.total_bytes} label="How far the scrub is" />
      <p>
        {bytes(data.checked_bytes)} of {bytes(data.total_bytes)} checked, {plural(data.repaired_blocks, "block")} repaired, {plural(data.damaged.length, "range")} damaged on every copy
        {data.unchecked_drives.length > 0 && `; not checked: ${data.unchecked_drives.join(", ")}`}
      </p>
      <Failure text={data.error ?? ""} />
    </section>
  );
}

function Subdisks({ name }: { name: string }) {
  const { data, failure } = useLoaded(`plexes ${name}`, (signal) => get<Plexes>(`/v1/volumes/${text(name)}/plexes`, signal));
  return (
    <section aria-labelledby="plexes">
      <h2 id="plexes">Plexes</h2>
      <Failure text={failure} />
      {data?.plexes.map((plex) => (
        <>
          <h3>
            {plex.name}: {plex.organization}, {bytes(plex.size)} <State of={plex.state} />
          </h3>
          <Table
            label={`Subdisks of ${plex.name}`}
            none="It has none."
            rows={plex.subdisks}
            columns={[
              { name: "Subdisk", show: (disk) => disk.name },
              { name: "State", show: (disk) => <State of={disk.state} /> },
              { name: "Drive", show: (disk) => <a href={`#/drives/${text(disk.drive)}`}>{disk.drive_name ?? disk.drive}</a> },
              { name: "From", show: (disk) => bytes(disk.drive_offset), extra: true },
              { name: "Length", show: (disk) => bytes(disk.length) },
            ]}
          />
        </>
      ))}
      <Command of="tepal plex ls" />
    </section>
  );
}
