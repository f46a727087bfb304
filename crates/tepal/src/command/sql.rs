//! `tepal sql`.

use super::CommandError;
use crate::cli::Global;
use crate::locate;
use crate::output::{self, Outcome, Output};
use serde_json::Value;
use tepal_server::api::types::{SqlQuery, SqlRows, route};

pub fn run(global: &Global, output: Output, query: String) -> Result<Outcome, CommandError> {
    let rows: SqlRows = locate::client(global)?.post(route::SQL, &SqlQuery { query })?;
    output.show(&rows, page)?;
    Ok(Outcome::Done)
}

fn page(answer: &SqlRows) -> String {
    let columns: Vec<&str> = answer.columns.iter().map(String::as_str).collect();
    output::table(&columns, answer.rows.iter().map(|row| row.iter().map(cell).collect()))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
