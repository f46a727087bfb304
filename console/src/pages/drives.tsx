import { useState } from "preact/hooks";
import { get, sql, text } from "../api";
import { addDrive, growDrive, nameDrive, plugDrive, removeDrive, replaceDrive, useDrive } from "../changes";
import { Do } from "../dialog";
import { bytes } from "../format";
import type { Drive, FoundDrive, Pool, Server } from "../types";
import { useLoaded } from "../use";
import { Command, Facts, Failure, List, State, Table, Used } from "../widgets";

const called = (drive: Drive) => drive.name ?? drive.id;

export function Drives() {
  const [part, setPart] = useState("");
  const { data, failure } = useLoaded("drives", (signal) => get<Drive[]>("/v1/drives", signal));
  const pools = useLoaded("pools", (signal) => get<Pool[]>("/v1/pools", signal)).data ?? [];
  const servers = useLoaded("servers", (signal) => get<Server[]>("/v1/servers", signal)).data ?? [];
  const rows = (data ?? []).filter((drive) => `${drive.name ?? ""} ${drive.id} ${drive.server} ${drive.pool} ${drive.path} ${drive.state}`.includes(part));
  const ids = servers.map((server) => server.id);
  return (
    <>
      <div class="tools">
        <label>
          Only with <input type="search" value={part} onInput={(event) => setPart(event.currentTarget.value)} />
        </label>
        <Do change={() => addDrive(ids, pools)}>Add a drive</Do>
      </div>
      <Failure text={failure} />
      {data && (
        <List
          label="Drives"
          none="No drive is like that."
          total={rows.length}
          row={(at) => rows[at]}
          columns={[
            { name: "Drive", wide: true, show: (drive) => <a href={`#/drives/${text(drive.id)}`}>{called(drive)}</a> },
            { name: "State", show: (drive) => <State of={drive.state === "up" && drive.use !== "active" ? drive.use : drive.state} /> },
            { name: "Used", show: (drive) => <Used used={drive.used} capacity={drive.capacity} of={called(drive)} /> },
            { name: "Server", show: (drive) => drive.server, extra: true },
            { name: "Pool", show: (drive) => drive.pool, extra: true },
            { name: "Path", wide: true, show: (drive) => drive.path, extra: true },
          ]}
        />
      )}
      <Command of="tepal drive ls" />
      <Found servers={ids} pools={pools} />
    </>
  );
}

/** Looks around only when asked: servers open every device for that. */
function Found({ servers, pools }: { servers: string[]; pools: Pool[] }) {
  const [found, setFound] = useState<FoundDrive[] | null>(null);
  const [failure, setFailure] = useState("");
  const scan = () => get<FoundDrive[]>("/v1/drives/scan").then(setFound, (error) => setFailure(error.message));
  return (
    <section aria-labelledby="found">
      <h2 id="found">Devices that could be added</h2>
      <p>
        <button type="button" onClick={scan}>
          Look for devices
        </button>
      </p>
      <Failure text={failure} />
      {found && (
        <Table
          label="Devices"
          none="Servers see no device."
          rows={found}
          columns={[
            { name: "Server", show: (device) => device.server },
            { name: "Path", show: (device) => device.path },
            { name: "Size", show: (device) => bytes(device.size) },
            { name: "What it is", show: (device) => `${device.what.replaceAll("_", " ")}${device.detail && `: ${device.detail}`}` },
            { name: "Change", show: (device) => (["free", "in_use"].includes(device.what) ? <Do small change={() => addDrive(servers, pools, device)}>Add</Do> : "") },
          ]}
        />
      )}
      <Command of="tepal drive scan" />
    </section>
  );
}

const MOST = 500;

export function DrivePage({ id }: { id: string }) {
  const { data: all, failure } = useLoaded("drives", (signal) => get<Drive[]>("/v1/drives", signal));
  const drive = all?.find((one) => one.id === id);
  // The id is one that the API has said: hexadecimal digits.
  const safe = /^[0-9a-f]+$/.test(id) ? id : "";
  const question =
    `select distinct v.name from volumes v join map_columns c on c.map = v.map ` + `where c.drive = '${safe}' and v.state = 'active' order by v.name limit ${MOST}`;
  const lying = useLoaded(`lying on ${safe}`, (signal) => sql(question, signal));
  return (
    <>
      <Failure text={failure} />
      {all && !drive && <p class="none">There is no such drive.</p>}
      {drive && (
        <>
          <Facts
            of={[
              ["State", <State of={drive.state} />],
              ["Why", drive.reason || "–"],
              ["Id", drive.id],
              ["Name", drive.name ?? "–"],
              ["For", drive.use],
              ["Server", <a href={`#/servers/${text(drive.server)}`}>{drive.server}</a>],
              ["Path", drive.path],
              ["Pool", drive.pool],
              ["Used", <Used used={drive.used} capacity={drive.capacity} of="the drive" />],
              ["Being freed", bytes(drive.reclaiming)],
              ["Copies", `${drive.copies}, ${drive.moving} on their way`],
              ["Isn't emptied as", drive.stuck ?? "–"],
              ["I/O", drive.open ? `${drive.open.backend}${drive.open.emulated ? `, as slow as ${drive.open.emulated}` : ""}` : "not open"],
              ["Errors", drive.open ? `${drive.open.read_errors} reads, ${drive.open.block_errors} blocks` : "–"],
            ]}
          />
          <p class="buttons">
            {drive.state === "offline" ? <Do change={() => plugDrive(drive, "online")}>Put online</Do> : <Do change={() => plugDrive(drive, "offline")}>Take offline</Do>}
            <Do change={() => useDrive(drive, "draining", drive.use !== "draining")}>{drive.use === "draining" ? "Stop draining" : "Drain"}</Do>
            <Do change={() => useDrive(drive, "spare", drive.use !== "spare")}>{drive.use === "spare" ? "No longer a spare" : "Keep as a spare"}</Do>
            <Do change={() => growDrive(drive)}>Grow</Do>
            <Do change={() => nameDrive(drive)}>Name</Do>
            <Do change={() => replaceDrive(drive, all!.filter((one) => one.id !== id))}>Replace</Do>
            <Do change={() => removeDrive(drive)}>Remove</Do>
          </p>
          <h2>Volumes on it</h2>
          <Failure text={lying.failure} />
          {lying.data && (
            <ul class="names">
              {lying.data.rows.map(([name]) => (
                <li>
                  <a href={`#/volumes/${text(String(name))}`}>{name}</a>
                </li>
              ))}
              {lying.data.rows.length === 0 && <li>None.</li>}
              {lying.data.rows.length === MOST && <li>and others</li>}
            </ul>
          )}
          <Command of={`tepal sql "${question}"`} />
        </>
      )}
    </>
  );
}
