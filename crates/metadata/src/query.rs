//! Read-only SQL over `cluster.db` for people.
//!
//! Invariants:
//! 1. Nothing is changed, and nothing but this database is reached: a read-only connection, `query_only`, and an
//!    authorizer that allows only what reading needs.
//! 2. A query uses bounded rows, bytes and time, and few run at once; the state machine's own connection is never in
//!    its way.

#[cfg(test)]
mod tests;

use crate::facade::Cause;
use crate::state_machine;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What one query may use.
#[derive(Clone, Copy, Debug)]
pub struct QueryLimits {
    /// Most rows of the answer.
    pub rows: usize,
    /// Most bytes of all its values together.
    pub bytes: usize,
    /// How long it may run.
    pub time: Duration,
}

impl Default for QueryLimits {
    fn default() -> Self {
        QueryLimits { rows: 100_000, bytes: 16 << 20, time: Duration::from_secs(5) }
    }
}

/// A query's whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Their names, as the query gives them.
    pub columns: Vec<String>,
    /// Each has a value for every column.
    pub rows: Vec<Vec<Value>>,
}

/// One value of SQLite's five kinds.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the kinds are SQLite's")]
pub enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum QueryError {
    /// Fix the query.
    #[error("the query is not right: {0}")]
    Invalid(String),
    #[error("the query is empty: write one SELECT statement")]
    Empty,
    #[error("the query has {0} bytes, and at most {MAX_SQL} are possible")]
    LongQuery(usize),
    /// Fix the query: it would change something or reach beyond the database.
    #[error("the query is refused: it may only read the cluster's tables, in one statement")]
    NotReading,
    /// Ask for less.
    #[error("the query gives more than {rows} rows or {bytes} bytes: add a limit")]
    TooMuch { rows: usize, bytes: usize },
    /// Ask for less.
    #[error("the query was stopped after {0:?}")]
    TooLong(Duration),
    /// Call an operator.
    #[error("the database can't be read: {0}")]
    Storage(Cause),
    #[error("the server is stopping")]
    Stopped,
}

/// So many queries run at once; others wait.
const AT_ONCE: u32 = 2;
/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 1_000;
const MAX_SQL: i32 = 64 << 10;
/// Pragmas that only describe tables.
const DESCRIBING: [&str; 6] = ["table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"];

#[derive(Clone)]
pub(crate) struct Querier {
    file: PathBuf,
    running: Arc<Semaphore>,
}

impl Querier {
    pub fn new(folder: &Path) -> Self {
        Querier { file: folder.join(state_machine::FILE), running: Arc::new(Semaphore::new(AT_ONCE as usize)) }
    }

    pub async fn query(&self, sql: &str, limits: QueryLimits) -> Result<Rows, QueryError> {
        if sql.chars().all(|c| c.is_whitespace() || c == ';') {
            return Err(QueryError::Empty);
        }
        if sql.len() > MAX_SQL as usize {
            return Err(QueryError::LongQuery(sql.len()));
        }
        let permit = self.running.clone().acquire_owned().await.map_err(|_| QueryError::Stopped)?;
        let (file, sql) = (self.file.clone(), sql.to_owned());
        let done = tokio::task::spawn_blocking(move || {
            let _running = permit;
            run(&file, &sql, limits)
        });
        done.await.map_err(|error| QueryError::Storage(error.into()))?
    }

    /// Lets the running queries end, and takes no more.
    pub async fn close(&self) {
        if let Ok(all) = self.running.acquire_many(AT_ONCE).await {
            self.running.close();
            drop(all);
        }
    }
}

fn run(file: &Path, sql: &str, limits: QueryLimits) -> Result<Rows, QueryError> {
    let connection = connect(file, limits).map_err(|error| QueryError::Storage(error.into()))?;
    let explain = |error: rusqlite::Error| explain(error, limits);
    let mut statement = connection.prepare(sql).map_err(explain)?;
    if !statement.readonly() {
        return Err(QueryError::NotReading);
    }
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = Vec::new();
    let mut bytes: usize = columns.iter().map(String::len).sum();
    let mut cursor = statement.query([]).map_err(explain)?;
    while let Some(row) = cursor.next().map_err(explain)? {
        let values = (0..columns.len()).map(|column| Ok(read(row.get_ref(column)?)));
        let values = values.collect::<rusqlite::Result<Vec<Value>>>().map_err(explain)?;
        bytes += values.iter().map(size).sum::<usize>();
        if rows.len() == limits.rows || bytes > limits.bytes {
            return Err(QueryError::TooMuch { rows: limits.rows, bytes: limits.bytes });
        }
        rows.push(values);
    }
    Ok(Rows { columns, rows })
}

fn connect(file: &Path, limits: QueryLimits) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(limits.time)?;
    connection.execute_batch("PRAGMA query_only=ON; PRAGMA trusted_schema=OFF;")?;
    let longest = i32::try_from(limits.bytes).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest.max(MAX_SQL))?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_SQL)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.authorizer(Some(allow))?;
    let end = Instant::now() + limits.time;
    connection.progress_handler(STEPS, Some(move || Instant::now() > end))?;
    Ok(connection)
}

fn allow(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if function_name != "load_extension" => Authorization::Allow,
        AuthAction::Pragma { pragma_name, .. } if DESCRIBING.contains(&pragma_name) => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

fn explain(error: rusqlite::Error, limits: QueryLimits) -> QueryError {
    if is_denied_function(&error) {
        return QueryError::NotReading;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly) => QueryError::NotReading,
        Some(ErrorCode::OperationInterrupted) => QueryError::TooLong(limits.time),
        Some(ErrorCode::TooBig) => QueryError::TooMuch { rows: limits.rows, bytes: limits.bytes },
        Some(ErrorCode::Unknown | ErrorCode::ApiMisuse) => QueryError::Invalid(error.to_string()),
        Some(_) => QueryError::Storage(error.into()),
        None => match error {
            rusqlite::Error::MultipleStatement => QueryError::NotReading,
            other => QueryError::Invalid(other.to_string()),
        },
    }
}

/// SQLite has no code of its own for a function that the authorizer denies.
fn is_denied_function(error: &rusqlite::Error) -> bool {
    error.to_string().contains("not authorized to use function")
}

fn read(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

/// What a value takes, roughly.
fn size(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Null | Value::Integer(_) | Value::Real(_) => 0,
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
        }
}
