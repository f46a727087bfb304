//! The state as drives keep it: the rows of all records but the events, in as few bytes as is easy; byte table in `docs/formats.md`.
//!
//! Tables and columns are named in it, so that a later build brings it to its own form by the steps that it has for `cluster.db`.

use super::digest::Digest;
use super::machine::DIGEST;
use super::rows::{self, MapRow, Record};
use super::schema::KIND;
use crate::database::StoreError;
use crate::meta_table::put_meta;
use crate::record::{ColumnRecord, MapRecord, RebuildRecord};
use crate::schedule::{MadeRecord, ScheduleRecord, Schedules, ScrubRecord};
use crate::state::State;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use tepal_model::{DriveId, MapId};

/// Of the bytes; of the rows it's that of `cluster.db`.
const FORMAT: u64 = 1;

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const TEXT: u8 = 2;
const REAL: u8 = 3;
/// Small integers, and texts with small numbers, are one byte.
const SMALL_INTEGER: u8 = 0x10;
const SMALL_TEXT: u8 = 0x80;
const NEXT_OF_ABOVE: u8 = 0xfe;
const AS_ABOVE: u8 = 0xff;

/// Why a copy of the state can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum StateCopyError {
    /// Use another copy.
    #[error("the copy of the cluster's state is damaged: {0}")]
    Damaged(String),
    /// Use a newer build.
    #[error(
        "the copy of the cluster's state was written by a newer version (format {found}, this build knows {known})"
    )]
    Newer { found: u64, known: u64 },
}

fn damaged(what: impl ToString) -> StateCopyError {
    StateCopyError::Damaged(what.to_string())
}

impl From<StoreError> for StateCopyError {
    fn from(error: StoreError) -> Self {
        damaged(error)
    }
}

impl From<rusqlite::Error> for StateCopyError {
    fn from(error: rusqlite::Error) -> Self {
        damaged(error)
    }
}

/// One value of a row. A text is its number.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Null,
    Integer(u64),
    Text(u64),
    Real(f64),
}

#[derive(Default)]
struct Writer {
    numbers: HashMap<String, u64>,
    texts: Vec<String>,
    rows: Vec<u8>,
    above: Vec<Cell>,
}

impl Writer {
    fn text(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn begin(&mut self, table: &str, columns: &[&str], rows: usize) {
        let name = self.text(table);
        put(&mut self.rows, name);
        put(&mut self.rows, columns.len() as u64);
        for column in columns {
            let name = self.text(column);
            put(&mut self.rows, name);
        }
        put(&mut self.rows, rows as u64);
        self.above.clear();
    }

    fn row(&mut self, cells: &[Cell]) {
        for (at, cell) in cells.iter().enumerate() {
            let follows = |above: &Cell| match (above, cell) {
                (Cell::Integer(above), Cell::Integer(this)) => above.checked_add(1) == Some(*this),
                _ => false,
            };
            match self.above.get(at) {
                Some(above) if above == cell => self.rows.push(AS_ABOVE),
                Some(above) if follows(above) => self.rows.push(NEXT_OF_ABOVE),
                _ => put_cell(&mut self.rows, *cell),
            }
        }
        self.above.clear();
        self.above.extend_from_slice(cells);
    }

    fn rows(&mut self, table: &str, columns: &[&str], rows: &[Vec<Value>]) {
        self.begin(table, columns, rows.len());
        for values in rows {
            let cells: Vec<Cell> = values.iter().map(|value| self.cell(value)).collect();
            self.row(&cells);
        }
    }

    fn records<R: Record>(&mut self, records: impl ExactSizeIterator<Item = Vec<Value>>) {
        self.begin(R::TABLE, R::COLUMNS, records.len());
        for values in records {
            let cells: Vec<Cell> = values.iter().map(|value| self.cell(value)).collect();
            self.row(&cells);
        }
    }

    fn cell(&mut self, value: &Value) -> Cell {
        match value {
            Value::Integer(number) => Cell::Integer(u64::try_from(*number).expect("no record has a negative number")),
            Value::Text(text) => Cell::Text(self.text(text)),
            Value::Real(number) => Cell::Real(*number),
            Value::Null | Value::Blob(_) => Cell::Null,
        }
    }

    fn drive(&mut self, known: &mut BTreeMap<DriveId, u64>, drive: DriveId) -> Cell {
        Cell::Text(*known.entry(drive).or_insert_with(|| self.text(&drive.to_string())))
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_cell(out: &mut Vec<u8>, cell: Cell) {
    match cell {
        Cell::Null => out.push(NULL),
        Cell::Integer(number) if number < u64::from(SMALL_TEXT - SMALL_INTEGER) => {
            out.push(SMALL_INTEGER + number as u8);
        }
        Cell::Integer(number) => {
            out.push(INTEGER);
            put(out, number);
        }
        Cell::Text(number) if number < u64::from(NEXT_OF_ABOVE - SMALL_TEXT) => out.push(SMALL_TEXT + number as u8),
        Cell::Text(number) => {
            out.push(TEXT);
            put(out, number);
        }
        Cell::Real(number) => {
            out.push(REAL);
            out.extend(number.to_le_bytes());
        }
    }
}

const COLUMNS: [&str; 6] = ["map", "column", "copy", "drive", "since", "status"];
const JOINS: [&str; 5] = ["map", "column", "drive_to", "drive_from", "since"];

/// All of the state, but the events.
pub fn encode(state: &State) -> Vec<u8> {
    let mut writer = Writer::default();
    let counters = rows::counters(&state.counters);
    writer.records::<crate::record::ClusterRecord>(std::iter::once(state.cluster.values()));
    writer.records::<crate::record::ServerRecord>(state.servers.values().map(|record| record.values()));
    writer.records::<crate::record::DriveRecord>(state.drives.values().map(|record| record.values()));
    writer.records::<crate::record::PoolRecord>(state.pools.values().map(|record| record.values()));
    writer.records::<crate::record::VolumeRecord>(state.volumes.values().map(|record| record.values()));
    let bare = |map: &Arc<MapRecord>| MapRow(MapRecord::clone(map)).values();
    writer.records::<MapRow>(state.maps.values().map(bare));
    writer.records::<crate::record::MigrationRecord>(state.migrations.values().map(|record| record.values()));
    let snapshots: Vec<Vec<Value>> =
        state.snapshots.values().flat_map(|all| all.values()).map(|record| record.values()).collect();
    writer.records::<crate::record::SnapshotRecord>(snapshots.into_iter());
    put_columns(&mut writer, state);
    let access = &state.access;
    writer.records::<crate::access::AuthorityRecord>(access.authorities.values().map(|record| record.values()));
    writer.records::<crate::access::IdentityRecord>(access.identities.values().map(|record| record.values()));
    writer.records::<crate::access::GrantRecord>(access.grants.values().map(|record| record.values()));
    let reservations = access.reservations.values().map(|record| record.values());
    writer.records::<crate::access::ReservationRecord>(reservations);
    let keys = access.volume_keys.values().map(|record| record.values());
    writer.records::<crate::access::VolumeKeyRecord>(keys);
    writer.records::<crate::access::LimitsRecord>(access.limits.values().map(|record| record.values()));
    writer.records::<crate::access::JoinTokenRecord>(access.join_tokens.values().map(|record| record.values()));
    let live = access.live_imports.values().map(|record| record.values());
    writer.records::<crate::access::LiveRecord>(live);
    super::realm::rows_of(access, |table, columns, rows| writer.rows(table, columns, &rows));
    put_schedules(&mut writer, &state.schedules);
    writer.begin("counters", &["name", "next"], counters.len());
    for counter in counters {
        let name = Cell::Text(writer.text(counter.name));
        writer.row(&[name, Cell::Integer(counter.next)]);
    }
    let mut out = Vec::new();
    put(&mut out, FORMAT);
    put(&mut out, KIND.version() as u64);
    put(&mut out, Digest::of(state).0.into());
    put(&mut out, state.rebuilds.len() as u64);
    for rebuild in &*state.rebuilds {
        let RebuildRecord { history, after_view, after_events, before_view, first_map, end_map } = *rebuild;
        [history, after_view, after_events, before_view, first_map.0.into(), end_map.0.into()]
            .into_iter()
            .for_each(|number| put(&mut out, number));
    }
    put(&mut out, writer.texts.len() as u64);
    for text in &writer.texts {
        put(&mut out, text.len() as u64);
        out.extend(text.as_bytes());
    }
    out.extend(writer.rows);
    out
}

fn put_schedules(writer: &mut Writer, schedules: &Schedules) {
    writer.records::<ScheduleRecord>(schedules.by_id.values().map(|record| record.values()));
    writer.records::<MadeRecord>(super::schedules::made_rows(schedules).into_iter());
    writer.records::<ScrubRecord>(schedules.scrubs.values().map(|record| record.values()));
}

fn put_columns(writer: &mut Writer, state: &State) {
    fn columns(state: &State) -> impl Iterator<Item = (MapId, u64, &ColumnRecord)> {
        state.maps.values().flat_map(|map| (0..).zip(&map.columns).map(|(number, column)| (map.id, number, column)))
    }
    let mut known = BTreeMap::new();
    writer.begin("map_columns", &COLUMNS, columns(state).map(|(.., column)| column.holders.len()).sum());
    for (map, number, column) in columns(state) {
        for (copy, holder) in (0..).zip(&column.holders) {
            let drive = writer.drive(&mut known, holder.drive);
            let (map, number, copy) = (Cell::Integer(map.0.into()), Cell::Integer(number), Cell::Integer(copy));
            let status = Cell::Text(writer.text(&holder.status.to_string()));
            writer.row(&[map, number, copy, drive, Cell::Integer(holder.since), status]);
        }
    }
    let joins = || columns(state).filter_map(|(map, number, column)| Some((map, number, column.joining?)));
    writer.begin("map_joins", &JOINS, joins().count());
    for (map, number, join) in joins() {
        let (to, from) = (writer.drive(&mut known, join.to), writer.drive(&mut known, join.from));
        writer.row(&[Cell::Integer(map.0.into()), Cell::Integer(number), to, from, Cell::Integer(join.since)]);
    }
}

struct Reader<'a> {
    left: &'a [u8],
    texts: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: u64) -> Result<&'a [u8], StateCopyError> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.left.len());
        let (bytes, left) = self.left.split_at(length.ok_or_else(|| damaged("it ends too early"))?);
        self.left = left;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, StateCopyError> {
        Ok(self.bytes(1)?[0])
    }

    fn number(&mut self) -> Result<u64, StateCopyError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number is too long"))
    }

    /// Of things of which each takes a byte at least.
    fn count(&mut self) -> Result<usize, StateCopyError> {
        let count = self.number()?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.left.len())
            .ok_or_else(|| damaged("it ends too early"))
    }

    fn text(&mut self) -> Result<&'a str, StateCopyError> {
        let number = self.number()?;
        self.text_of(number)
    }

    fn text_of(&self, number: u64) -> Result<&'a str, StateCopyError> {
        let text = usize::try_from(number).ok().and_then(|number| self.texts.get(number));
        text.copied().ok_or_else(|| damaged("it has no such text"))
    }

    /// A name as tables and columns have them.
    fn name(&mut self) -> Result<&'a str, StateCopyError> {
        let name = self.text()?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_name { Ok(name) } else { Err(damaged("a table has a name that none has")) }
    }

    fn read_texts(&mut self) -> Result<(), StateCopyError> {
        for _ in 0..self.count()? {
            let length = self.number()?;
            let text = std::str::from_utf8(self.bytes(length)?).map_err(damaged)?;
            self.texts.push(text);
        }
        Ok(())
    }

    fn cell(&mut self, above: Option<Cell>) -> Result<Cell, StateCopyError> {
        match (self.byte()?, above) {
            (NULL, _) => Ok(Cell::Null),
            (INTEGER, _) => Ok(Cell::Integer(self.number()?)),
            (TEXT, _) => Ok(Cell::Text(self.number()?)),
            (REAL, _) => {
                let bytes = self.bytes(8)?.try_into().expect("8 bytes");
                Ok(Cell::Real(f64::from_le_bytes(bytes)))
            }
            (AS_ABOVE, Some(above)) => Ok(above),
            (NEXT_OF_ABOVE, Some(Cell::Integer(above))) => Ok(Cell::Integer(above.saturating_add(1))),
            (small @ SMALL_INTEGER..SMALL_TEXT, _) => Ok(Cell::Integer((small - SMALL_INTEGER).into())),
            (small @ SMALL_TEXT..NEXT_OF_ABOVE, _) => Ok(Cell::Text((small - SMALL_TEXT).into())),
            _ => Err(damaged("a value is of no kind")),
        }
    }

    fn value(&self, cell: Cell) -> Result<Value, StateCopyError> {
        Ok(match cell {
            Cell::Null => Value::Null,
            Cell::Integer(number) => Value::Integer(i64::try_from(number).map_err(damaged)?),
            Cell::Text(number) => Value::Text(self.text_of(number)?.to_owned()),
            Cell::Real(number) => Value::Real(number),
        })
    }

    /// Makes a table of the same name and columns, and fills it.
    fn table(&mut self, connection: &Connection) -> Result<(), StateCopyError> {
        let table = self.name()?;
        let columns = (0..self.count()?).map(|_| self.name()).collect::<Result<Vec<_>, _>>()?;
        let quoted = columns.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        connection.execute_batch(&format!("CREATE TABLE \"{table}\" ({quoted})"))?;
        let marks = ["?"].repeat(columns.len()).join(", ");
        let mut insert = connection.prepare(&format!("INSERT INTO \"{table}\" VALUES ({marks})"))?;
        let mut above: Vec<Cell> = Vec::new();
        for _ in 0..self.count()? {
            let mut cells = Vec::with_capacity(columns.len());
            for at in 0..columns.len() {
                cells.push(self.cell(above.get(at).copied())?);
            }
            let values = cells.iter().map(|cell| self.value(*cell)).collect::<Result<Vec<_>, _>>()?;
            insert.execute(params_from_iter(values))?;
            above = cells;
        }
        Ok(())
    }
}

fn known_format(found: u64, known: u64) -> Result<u64, StateCopyError> {
    match found {
        0 => Err(damaged("its format never was")),
        found if found > known => Err(StateCopyError::Newer { found, known }),
        found => Ok(found),
    }
}

/// The state that was encoded, checked as one that is read from `cluster.db`.
pub fn decode(bytes: &[u8]) -> Result<State, StateCopyError> {
    let mut reader = Reader { left: bytes, texts: Vec::new() };
    known_format(reader.number()?, FORMAT)?;
    let form = known_format(reader.number()?, KIND.version() as u64)?;
    let digest = u32::try_from(reader.number()?).map_err(damaged)?;
    let mut rebuilds = Vec::new();
    for _ in 0..reader.count()? {
        let history = reader.number()?;
        let (after_view, after_events, before_view) = (reader.number()?, reader.number()?, reader.number()?);
        let map = |number: u64| u32::try_from(number).map(MapId).map_err(damaged);
        let (first_map, end_map) = (map(reader.number()?)?, map(reader.number()?)?);
        rebuilds.push(RebuildRecord { history, after_view, after_events, before_view, first_map, end_map });
    }
    reader.read_texts()?;
    let (mut connection, place) = (Connection::open_in_memory()?, Path::new("the copy"));
    let transaction = connection.transaction()?;
    transaction.execute_batch("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL)")?;
    put_meta(&transaction, DIGEST, &digest)?;
    while !reader.left.is_empty() {
        reader.table(&transaction)?;
    }
    for step in KIND.steps.iter().skip(form as usize - 1) {
        step(&transaction, place)?;
    }
    let state = rows::load(&transaction)?;
    let stored: Option<u32> = crate::meta_table::meta(&transaction, place, DIGEST)?;
    if stored != Some(Digest::of(&state).0) || !state.is_set_up() {
        return Err(damaged("its records don't have the checksum that was stored with them"));
    }
    drop(transaction);
    Ok(State { rebuilds: Arc::new(rebuilds), ..state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::record::DriveState;
    use crate::state_machine::apply::tests::{cluster, create, done, set};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_copy_with_anything_changed_is_refused_or_says_the_same(
            at: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 1..8), cut: Option<prop::sample::Index>,
        ) {
            let state = cluster(&[(1, 1), (2, 2)]);
            let mut copy = encode(&state);
            let at = at.index(copy.len());
            let end = (at + bytes.len()).min(copy.len());
            copy[at..end].copy_from_slice(&bytes[..end - at]);
            if let Some(cut) = cut {
                copy.truncate(cut.index(copy.len()));
            }
            if let Ok(read) = decode(&copy) {
                prop_assert_eq!(State { rebuilds: state.rebuilds.clone(), ..read }, state);
            }
        }

        #[test]
        fn hostile_bytes_are_no_copy(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }

    /// Some of everything.
    fn busy_state() -> State {
        let mut state = cluster(&[(1, 1), (2, 2), (3, 3), (4, 3)]);
        let (v, snapshot) = (|| "v".to_owned(), || "s".to_owned());
        done(&mut state, create("v", "mirror:2"));
        done(&mut state, create("w", "stripe"));
        done(&mut state, Command::CreateSnapshot { volume: v(), name: snapshot() });
        done(&mut state, Command::CloneVolume { volume: v(), snapshot: snapshot(), name: "clone".to_owned() });
        done(&mut state, create("big", "stripe"));
        let cleared = state.volume_named("big").map(|big| state.as_cleared(big));
        done(&mut state, Command::ResizeVolume { name: "big".to_owned(), size: 1 << 63, shrink: false, cleared });
        done(&mut state, Command::CreatePool { name: "p".to_owned(), layout: Some("mirror:2".to_owned()) });
        done(&mut state, set(4, DriveState::Missing, None));
        let layout = Some("mirror:2".to_owned());
        let begin = Command::BeginMigration {
            volume: "w".to_owned(),
            layout,
            alone: false,
            pool: None,
            range: None,
            seed: 7,
            rate: Some(8),
        };
        done(&mut state, begin);
        let map = state.volume_named("v").expect("made").map;
        let from = state.maps[&map].columns[0].holders[0].drive;
        let mut others = [1, 2, 3].map(DriveId).into_iter();
        let to =
            others.find(|drive| !state.maps[&map].columns[0].is_held_by(*drive)).expect("three drives, two copies");
        done(&mut state, Command::BeginMove { map, column: 0, from, to });
        state
    }

    #[test]
    fn a_state_reads_back_as_it_was() {
        let mut state = busy_state();
        let rebuild = RebuildRecord {
            history: 5,
            after_view: 3,
            after_events: 900,
            before_view: 1_000_000,
            first_map: MapId(7),
            end_map: MapId(1007),
        };
        state.rebuilds = Arc::new(vec![rebuild]);
        let bytes = encode(&state);
        assert_eq!(decode(&bytes), Ok(state));
    }

    #[test]
    fn whatever_is_cut_off_or_changed_is_an_error_or_the_same_state() {
        let state = busy_state();
        let bytes = encode(&state);
        for end in (0..bytes.len()).step_by(7) {
            assert!(decode(&bytes[..end]).is_err(), "{end} bytes of {}", bytes.len());
        }
        for at in (0..bytes.len()).step_by(3) {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            // What no digest is over: the rebuilds. The drive's own checksum is over all.
            if let Ok(read) = decode(&other) {
                assert_eq!(State { rebuilds: Arc::default(), ..read }, state, "byte {at}");
            }
        }
    }

    #[test]
    fn a_copy_of_a_newer_build_is_told_apart_from_damage() {
        let mut bytes = encode(&busy_state());
        bytes[1] += 1;
        let known = KIND.version() as u64;
        assert_eq!(decode(&bytes), Err(StateCopyError::Newer { found: known + 1, known }));
    }
}
