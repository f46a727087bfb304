import { get, text } from "../api";
import { changeSchedule, createScrubs, createSnapshots, pauseSchedule, removeSchedule, resumeSchedule, runSchedule } from "../changes";
import { command } from "../command";
import { Do } from "../dialog";
import { duration, kept, moment, plural } from "../format";
import type { Pool, Schedule } from "../types";
import { useLoaded } from "../use";
import { Command, Facts, Failure, Reasons, State, Table } from "../widgets";

const state = (schedule: Schedule) => (schedule.paused ? "paused" : schedule.error ? "failed" : "active");

/** What it's about, and how often. */
function Work({ of }: { of: Schedule }) {
  const subject = of.volume ? (
    <>
      volume <a href={`#/volumes/${text(of.volume)}`}>{of.volume}</a>
    </>
  ) : of.pool ? (
    <>
      pool <a href={`#/pools/${text(of.pool)}`}>{of.pool}</a>
    </>
  ) : (
    <>all volumes</>
  );
  return of.work === "scrubs" ? (
    <>
      Scrubs of {subject}, each within {duration(of.within_s ?? 0)}
    </>
  ) : (
    <>
      Snapshots of {subject}, one in {duration(of.every_s ?? 0)}
    </>
  );
}

const wrong = (schedule: Schedule) => [
  ...(schedule.error ? [schedule.error] : []),
  ...(schedule.missed > 0 ? [`${plural(schedule.missed, "time")} passed without the run that was due, the last on ${moment(schedule.last_missed_unix_ms ?? 0)}`] : []),
  ...schedule.held.map((held) => `${held.name} stays: ${held.reason}`),
];

export function Schedules() {
  const { data, failure } = useLoaded("schedules", async (signal) => ({
    schedules: await get<Schedule[]>("/v1/schedules", signal),
    pools: await get<Pool[]>("/v1/pools", signal),
  }));
  return (
    <>
      <div class="tools">
        <Do change={() => createSnapshots(data?.pools ?? [])}>Have snapshots made</Do>
        <Do change={() => createScrubs(data?.pools ?? [])}>Have volumes scrubbed</Do>
      </div>
      <Failure text={failure} />
      {data && (
        <Table
          label="Schedules"
          none="There is no schedule: nothing is kept or scrubbed by itself."
          rows={data.schedules}
          columns={[
            { name: "Schedule", show: (schedule) => <a href={`#/schedules/${text(schedule.name)}`}>{schedule.name}</a> },
            { name: "What", show: (schedule) => <Work of={schedule} /> },
            { name: "Next", show: (schedule) => (schedule.next_unix_ms === null ? "–" : moment(schedule.next_unix_ms)), extra: true },
            {
              name: "State",
              show: (schedule) => (
                <>
                  <State of={state(schedule)} />
                  <Reasons of={wrong(schedule)} />
                </>
              ),
            },
          ]}
        />
      )}
      <Command of="tepal schedule ls" />
    </>
  );
}

export function SchedulePage({ name }: { name: string }) {
  const { data, failure } = useLoaded(`schedule ${name}`, (signal) => get<Schedule>(`/v1/schedules/${text(name)}`, signal));
  return (
    <>
      <Failure text={failure} />
      {data && (
        <>
          <p>
            <State of={state(data)} /> <Work of={data} />
          </p>
          <Reasons of={wrong(data)} />
          <Facts
            of={[
              ["Next", data.next_unix_ms === null ? "–" : moment(data.next_unix_ms)],
              ["Last run", moment(data.last_run_unix_ms ?? 0)],
              ...(data.work === "snapshots"
                ? ([
                    ["One of the times", `${data.at ?? "00:00"}, ${data.zone ?? "UTC"}`],
                    ["Kept of each volume", kept(data.keep ?? {})],
                    ["Snapshots", String(data.snapshots)],
                  ] as [string, string][])
                : ([["Unscrubbed for the longest", data.oldest ? `${data.oldest.volume}, since ${moment(data.oldest.since_unix_ms)}` : "–"]] as [string, string][])),
            ]}
          />
          <p class="buttons">
            <Do change={() => runSchedule(data)}>Run now</Do>
            {data.paused ? <Do change={() => resumeSchedule(name)}>Resume</Do> : <Do change={() => pauseSchedule(name)}>Pause</Do>}
            <Do change={() => changeSchedule(data)}>Change</Do>
            <Do change={() => removeSchedule(name)}>Remove</Do>
          </p>
        </>
      )}
      <Command of={command("schedule", "show", name)} />
    </>
  );
}
