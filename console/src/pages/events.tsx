import { useState } from "preact/hooks";
import { sql } from "../api";
import { moment } from "../format";
import { useLoaded } from "../use";
import { Command, Failure, List } from "../widgets";

const MOST = 2000;
const QUESTION = `select seq, unix_ms, kind, subject, text from events order by seq desc limit ${MOST}`;

export function Events() {
  const [part, setPart] = useState("");
  const { data, failure } = useLoaded("events", (signal) => sql(QUESTION, signal));
  const rows = (data?.rows ?? []).filter((row) => row.slice(2).join(" ").includes(part));
  return (
    <>
      <div class="tools">
        <label>
          Only with <input type="search" value={part} onInput={(event) => setPart(event.currentTarget.value)} />
        </label>
      </div>
      <p class="about">What has happened to servers, drives, pools and volumes: the newest {MOST}.</p>
      <Failure text={failure} />
      {data && (
        <List
          label="Events"
          none="Nothing like that has happened."
          total={rows.length}
          row={(at) => rows[at]}
          columns={[
            { name: "When", show: ([, when]) => moment(Number(when)) },
            { name: "What", show: ([, , kind]) => kind, extra: true },
            { name: "Which", show: ([, , , subject]) => subject },
            { name: "Text", wide: true, show: ([, , , , text]) => <span title={String(text)}>{text}</span> },
          ]}
        />
      )}
      <Command of={`tepal sql '${QUESTION}'`} />
    </>
  );
}
