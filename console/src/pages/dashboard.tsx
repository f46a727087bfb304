// The cluster at a glance: its health and why, how full it is and becomes, and what clients ask of it now.

import { get, status } from "../api";
import { setLease } from "../changes";
import { Do } from "../dialog";
import { bytes, count, duration, micros, plural } from "../format";
import { percentile, seconds, type Second } from "../rates";
import { useSignal } from "../signal";
import type { Cluster, Usage } from "../types";
import { useLoaded } from "../use";
import { Chart, Command, Facts, Failure, Reasons, State, Used } from "../widgets";

function forecast(usage: Usage): string {
  const noted = duration(usage.noted_seconds);
  if (usage.growth_per_day === null) return `When it's full isn't known yet: servers have to note their use for a minute, and all have for ${noted}.`;
  const growth = `${bytes(Math.abs(usage.growth_per_day))} a day`;
  if (usage.full_in_seconds === null) {
    return usage.growth_per_day > 0 ? `It grows by ${growth}: not full within ten years.` : `It doesn't grow (noted for ${noted}).`;
  }
  return `Full in about ${duration(usage.full_in_seconds)} if it goes on growing by ${growth} (noted for ${noted}).`;
}

function Capacity() {
  const { data, failure } = useLoaded("usage", (signal) => get<Usage>("/v1/usage", signal));
  return (
    <section aria-labelledby="capacity">
      <h2 id="capacity">Capacity</h2>
      <Failure text={failure} />
      {data && (
        <>
          <Used used={data.used} capacity={data.capacity} of="all drives" />
          <p id="forecast">{forecast(data)}</p>
          <Chart title="Used, since it's noted" lines={[{ name: "used", values: data.samples.map((sample) => sample.used) }]} show={bytes} />
        </>
      )}
    </section>
  );
}

const rate = (second: Second, of: "requests" | "drives", operations: string[], what: "count" | "bytes") =>
  operations.reduce((sum, operation) => sum + (second[of][operation]?.[what] ?? 0), 0);

function Load({ of, title, about }: { of: "requests" | "drives"; title: string; about: string }) {
  const all = useSignal(seconds);
  const values = (operation: string, what: "count" | "bytes") => all.map((second) => rate(second, of, [operation], what));
  const perSecond = (value: number) => `${count(value)}/s`;
  const amount = (value: number) => `${bytes(value)}/s`;
  const operations = ["read", "write", "flush", "discard"];
  return (
    <section aria-labelledby={of}>
      <h2 id={of}>{title}</h2>
      <p class="about">{about}</p>
      <div class="charts">
        <Chart title="Operations" lines={["read", "write"].map((name) => ({ name, values: values(name, "count") }))} show={perSecond} most={1} />
        <Chart title="Bandwidth" lines={["read", "write"].map((name) => ({ name, values: values(name, "bytes") }))} show={amount} most={1} />
      </div>
      <table class="percentiles" aria-label={`${title}: latency`}>
        <caption>How long they take, of the last ten seconds</caption>
        <thead>
          <tr>
            <th scope="col">Operation</th>
            <th scope="col">In a second</th>
            <th scope="col">Half within</th>
            <th scope="col">99% within</th>
            <th scope="col">99.9% within</th>
          </tr>
        </thead>
        <tbody>
          {operations.map((operation) => (
            <tr>
              <th scope="row">{operation}</th>
              <td>{perSecond(all.length ? rate(all[all.length - 1], of, [operation], "count") : 0)}</td>
              {[0.5, 0.99, 0.999].map((fraction) => (
                <td>{micros(percentile(of, operation, fraction))}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function Dashboard() {
  const now = useSignal(status);
  const cluster = useLoaded("cluster", (signal) => get<Cluster>("/v1/cluster", signal)).data;
  if (!now) return <p class="none">The servers are being asked …</p>;
  const up = now.servers.filter((server) => server.state !== "down").length;
  return (
    <>
      <section aria-labelledby="health" class={`health ${now.health}`}>
        <h2 id="health">
          Health: <State of={now.health} />
        </h2>
        <div aria-live="polite">
          {now.reason.length ? <Reasons of={now.reason} /> : <p>Everything is as it should be.</p>}
        </div>
        <Facts
          of={[
            ["Servers", <a href="#/servers">{`${up} of ${now.servers.length} up`}</a>],
            ["Drives", <a href="#/drives">{String(now.servers.reduce((sum, server) => sum + server.drives.length, 0))}</a>],
            ["Volumes", <a href="#/volumes">{String(now.volumes)}</a>],
            ["Migrations", <a href="#/migrations">{String(now.migrations)}</a>],
            ["Copies on their way", String(now.moving)],
            ["Being freed", bytes(now.reclaiming)],
          ]}
        />
        <Command of="tepal status" />
      </section>
      <Capacity />
      <Load of="requests" title="Requests of clients" about="Of NBD clients, at servers and at gateways." />
      <Load of="drives" title="I/O of drives" about="What requests, copies and background work cost the drives." />
      {cluster && (
        <section aria-labelledby="cluster">
          <h2 id="cluster">Cluster</h2>
          <Facts
            of={[
              ["Name", cluster.name],
              ["Id", cluster.id],
              ["Leader", cluster.leader ?? "none now"],
              ["Voters", cluster.voters.join(", ")],
              ["Lease", `${cluster.lease_ms} ms`],
              ["Version", now.version],
            ]}
          />
          <p>
            <Do change={() => setLease(cluster.lease_ms)}>Change the lease</Do>
          </p>
          <Command of="tepal cluster show" />
          <p class="about">{plural(cluster.voters.length, "server")} vote: of these a majority has to be there for anything to be changed.</p>
        </section>
      )}
    </>
  );
}
