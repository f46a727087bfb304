import { get, text } from "../api";
import { cancelMigration, pauseMigration, rateOfMigration, resumeMigration } from "../changes";
import { Do } from "../dialog";
import { bytes, duration } from "../format";
import type { Migration, MigrationInfo } from "../types";
import { useLoaded } from "../use";
import { Bar, Command, Failure, Reasons, State } from "../widgets";

export function Progress({ of }: { of: Migration }) {
  return (
    <>
      <Bar part={of.done_bytes} whole={of.total_bytes} label="How far it is" />
      <p>
        <State of={of.state} /> {bytes(of.done_bytes)} of {bytes(of.total_bytes)}, {bytes(of.rate)}/s
        {of.most_rate !== null && ` of at most ${bytes(of.most_rate)}/s`}
        {of.seconds_left !== null && `, ${duration(of.seconds_left)} left`}
        {of.cancelled && "; it's called off, and what has gone comes back"}
      </p>
    </>
  );
}

export function MigrationActions({ volume, of }: { volume: string; of: Migration }) {
  return (
    <p class="buttons">
      {of.state === "paused" ? <Do change={() => resumeMigration(volume)}>Resume</Do> : <Do change={() => pauseMigration(volume)}>Pause</Do>}
      <Do change={() => rateOfMigration(volume)}>Rate</Do>
      {!of.cancelled && <Do change={() => cancelMigration(volume)}>Cancel</Do>}
    </p>
  );
}

export function Migrations() {
  const { data, failure } = useLoaded("migrations", (signal) => get<MigrationInfo[]>("/v1/migrations", signal));
  return (
    <>
      <Failure text={failure} />
      {data?.length === 0 && <p class="none">No volume is on its way to another layout or pool.</p>}
      {data?.map((one) => (
        <section key={one.volume} aria-label={`Migration of ${one.volume}`}>
          <h2>
            <a href={`#/volumes/${text(one.volume)}`}>{one.volume}</a>: {one.flattens ? "leaves those that it shares data with" : `${one.from} to ${one.to}${one.to_pool ? ` in pool ${one.to_pool}` : ""}`}
          </h2>
          <Progress of={one} />
          <Reasons of={one.reason} />
          <MigrationActions volume={one.volume} of={one} />
        </section>
      ))}
      <Command of="tepal volume migrations" />
    </>
  );
}
