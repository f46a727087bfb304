import { get, sql, text } from "../api";
import { flattenVolume } from "../changes";
import { ask } from "../dialog";
import { bytes } from "../format";
import type { Volume } from "../types";
import { useLoaded } from "../use";
import { Command, Failure, List } from "../widgets";

const QUESTION =
  "select v.name, v.size, o.name as origin, s.name as snapshot from volumes v " +
  "left join volumes o on o.id = v.origin_volume left join snapshots s on s.volume = v.origin_volume and s.epoch = v.origin_epoch " +
  "where v.origin_volume is not null and v.state = 'active' order by v.name";

export function Clones() {
  const { data, failure } = useLoaded("clones", (signal) => sql(QUESTION, signal));
  const rows = data?.rows ?? [];
  const flatten = (name: string) => void get<Volume>(`/v1/volumes/${text(name)}`).then((volume) => ask(flattenVolume(volume)));
  return (
    <>
      <p class="about">A clone begins with what a snapshot holds, and shares that with its origin until it's flattened. The page Snapshots makes one.</p>
      <Failure text={failure} />
      {data && (
        <List
          label="Clones"
          none="There is no clone."
          total={rows.length}
          row={(at) => rows[at]}
          columns={[
            { name: "Clone", wide: true, show: ([name]) => <a href={`#/volumes/${text(String(name))}`}>{name}</a> },
            { name: "Size", show: ([, size]) => bytes(Number(size)), extra: true },
            { name: "Of", wide: true, show: ([, , origin, snapshot]) => `${origin ?? "a volume that is gone"}@${snapshot ?? "(gone)"}` },
            {
              name: "Change",
              show: ([name]) => (
                <button type="button" class="small" aria-haspopup="dialog" onClick={() => flatten(String(name))}>
                  Flatten
                </button>
              ),
            },
          ]}
        />
      )}
      <Command of={`tepal sql "${QUESTION}"`} />
    </>
  );
}
