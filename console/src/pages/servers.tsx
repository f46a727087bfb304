import { get, text } from "../api";
import { drainServer, removeServer } from "../changes";
import { command } from "../command";
import { Do } from "../dialog";
import { duration } from "../format";
import type { Server } from "../types";
import { useLoaded } from "../use";
import { Command, Facts, Failure, State, Table } from "../widgets";

export function Servers() {
  const { data, failure } = useLoaded("servers", (signal) => get<Server[]>("/v1/servers", signal));
  return (
    <>
      <Failure text={failure} />
      {data && (
        <Table
          label="Servers"
          none="There is no server."
          rows={data}
          columns={[
            { name: "Id", show: (server) => <a href={`#/servers/${text(server.id)}`}>{server.id}</a> },
            { name: "State", show: (server) => <State of={server.state} /> },
            { name: "Drives", show: (server) => server.drives.length },
            { name: "Site", show: (server) => server.site ?? "–", extra: true },
            { name: "API", show: (server) => server.api || "–", extra: true },
            { name: "Up for", show: (server) => (server.pid ? duration(server.uptime_ms / 1000) : "–"), extra: true },
            { name: "Version", show: (server) => server.version || "–", extra: true },
          ]}
        />
      )}
      <Command of="tepal server ls" />
    </>
  );
}

export function ServerPage({ id }: { id: string }) {
  const { data, failure } = useLoaded(`server ${id}`, (signal) => get<Server>(`/v1/servers/${text(id)}`, signal));
  return (
    <>
      <Failure text={failure} />
      {data && (
        <>
          <Facts
            of={[
              ["State", <State of={data.state} />],
              ["Site", data.site ?? "–"],
              ["API", data.api || "–"],
              ["NBD", data.nbd.join(", ") || "–"],
              ["Process", data.pid ? String(data.pid) : "–"],
              ["Up for", data.pid ? duration(data.uptime_ms / 1000) : "–"],
              ["Version", data.version || "–"],
            ]}
          />
          <p class="buttons">
            <Do change={() => drainServer(data.id, data.state !== "draining")}>{data.state === "draining" ? "Stop draining" : "Drain"}</Do>
            <Do change={() => removeServer(data.id)}>Remove</Do>
          </p>
          <h2>Drives</h2>
          <Table
            label="Drives of the server"
            none="It has no drives."
            rows={data.drives}
            columns={[
              { name: "Id", show: (drive) => <a href={`#/drives/${text(drive.id)}`}>{drive.id}</a> },
              { name: "State", show: (drive) => <State of={drive.state} /> },
              { name: "Path", show: (drive) => drive.path },
            ]}
          />
        </>
      )}
      <Command of={command("server", "show", id)} />
    </>
  );
}
